//! Time and memory of what runs between two readings.

use std::time::Instant;

use burn::{backend::autodiff::NodeId, tensor::Device};
use ember_kernels::is_cpu;
use serde::Serialize;

use crate::error::{Error, Result};
use ember_training::memory::counting;

/// Waits until the device has done what it was given.
///
/// # Errors
/// When it failed.
pub fn wait_for(device: &Device) -> Result<()> {
    device.sync().map_err(|error| Error::Device(format!("{error:?}")))
}

/// What the bytes are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredBy {
    /// Every block that the program's allocator gives out; the peak is the true one.
    Allocator,
    /// The bytes in use of the device's memory pool, read after each phase; the peak is the largest
    /// reading, and what an operation needs for itself in between is not seen.
    Pool,
}

/// Reads the memory of one device.
pub struct Meter {
    device: Device,
    /// What the bytes are read from.
    pub measured_by: MeasuredBy,
    base: i64,
    highest: i64,
}

impl Meter {
    /// A meter for `device`; what is in use now counts as nothing.
    ///
    /// # Errors
    /// When nobody can say how much memory is in use: the program allocates through another
    /// allocator than [`counting::Counting`], or the device does not report.
    pub fn new(device: &Device) -> Result<Self> {
        let device = device.clone().inner();
        let measured_by = if is_cpu(&device) { MeasuredBy::Allocator } else { MeasuredBy::Pool };
        if measured_by == MeasuredBy::Allocator && !counting::start() {
            return Err(Error::NotCounted);
        }
        let mut meter = Self { device, measured_by, base: 0, highest: 0 };
        meter.base = meter.reading()?;
        Ok(meter)
    }

    fn reading(&self) -> Result<i64> {
        match self.measured_by {
            MeasuredBy::Allocator => Ok(counting::live()),
            MeasuredBy::Pool => {
                wait_for(&self.device)?;
                let usage = self.device.memory_pool_usage();
                Ok(usage.ok_or(Error::Silent)?.bytes_in_use as i64)
            }
        }
    }

    /// Bytes in use since the meter was made; on a GPU also a reading for the peak.
    ///
    /// # Errors
    /// When the device fails.
    pub fn live(&mut self) -> Result<i64> {
        let live = self.reading()? - self.base;
        self.highest = self.highest.max(live);
        Ok(live)
    }

    /// Lets the peak begin again; returns what is live now.
    ///
    /// # Errors
    /// When the device fails.
    pub fn begin_peak(&mut self) -> Result<i64> {
        counting::reset_peak();
        let live = self.live()?;
        self.highest = live;
        Ok(live)
    }

    /// The most that was live since [`Self::begin_peak`].
    ///
    /// # Errors
    /// When the device fails.
    pub fn peak(&mut self) -> Result<i64> {
        match self.measured_by {
            MeasuredBy::Allocator => Ok(counting::peak() - self.base),
            MeasuredBy::Pool => {
                self.live()?;
                Ok(self.highest)
            }
        }
    }

    /// Seconds that `run` takes, the device's work included.
    ///
    /// # Errors
    /// What `run` returns, or when the device fails.
    pub fn time<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        wait_for(&self.device)?;
        let began = Instant::now();
        let result = run()?;
        wait_for(&self.device)?;
        Ok((result, began.elapsed().as_secs_f64()))
    }
}

/// A difference of readings as a number of bytes; 0 where it is negative.
pub fn positive(bytes: i64) -> u64 {
    bytes.max(0) as u64
}

/// How many nodes burn's graph is given while `run` runs: it numbers them in the order in which
/// they are made.
pub fn nodes_made<T>(run: impl FnOnce() -> T) -> (T, u64) {
    let first = NodeId::new().value;
    let result = run();
    (result, NodeId::new().value - first - 1)
}
