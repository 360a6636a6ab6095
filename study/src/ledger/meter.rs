//! Measures the time and memory of code between two readings.

use std::time::Instant;

use burn::{backend::autodiff::NodeId, tensor::Device};
use ember_kernels::is_cpu;
use serde::Serialize;

use crate::error::{Error, Result};
use ember_training::memory::counting;

/// Waits until the device has finished its work.
///
/// # Errors
/// When the device failed.
pub fn wait_for(device: &Device) -> Result<()> {
    device.sync().map_err(|error| Error::Device(format!("{error:?}")))
}

/// Where the byte counts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredBy {
    /// The program's allocator, which counts every block; the peak is exact.
    Allocator,
    /// The device's memory pool, whose bytes in use are read after each phase; the peak is the
    /// largest reading, and temporary memory inside an operation is not seen.
    Pool,
}

/// Reads the memory of one device.
pub struct Meter {
    device: Device,
    /// Where the byte counts come from.
    pub measured_by: MeasuredBy,
    base: i64,
    highest: i64,
}

impl Meter {
    /// A meter for `device`; memory in use now counts as 0.
    ///
    /// # Errors
    /// When memory in use is unknown: the program does not allocate through [`counting::Counting`],
    /// or the device does not report it.
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

    /// Bytes in use, less those when the meter was made; on a GPU also a reading for the peak.
    ///
    /// # Errors
    /// When the device fails.
    pub fn live(&mut self) -> Result<i64> {
        let live = self.reading()? - self.base;
        self.highest = self.highest.max(live);
        Ok(live)
    }

    /// Resets the peak; returns the bytes in use now.
    ///
    /// # Errors
    /// When the device fails.
    pub fn begin_peak(&mut self) -> Result<i64> {
        counting::reset_peak();
        let live = self.live()?;
        self.highest = live;
        Ok(live)
    }

    /// The most bytes in use since [`Self::begin_peak`].
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

    /// Runs `run` and returns its result and its seconds, the device's work included.
    ///
    /// # Errors
    /// The error of `run`, or when the device fails.
    pub fn time<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        timed(&self.device, run)
    }
}

/// Runs `run` and returns its result and its seconds, the work of `device` included.
///
/// # Errors
/// The error of `run`, or when the device fails.
pub fn timed<T>(device: &Device, run: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    wait_for(device)?;
    let began = Instant::now();
    let result = run()?;
    wait_for(device)?;
    Ok((result, began.elapsed().as_secs_f64()))
}

/// A difference of readings as a number of bytes; 0 if it is negative.
pub fn positive(bytes: i64) -> u64 {
    bytes.max(0) as u64
}

/// How many nodes burn's graph gains while `run` runs: burn numbers them in order of creation.
pub fn nodes_made<T>(run: impl FnOnce() -> T) -> (T, u64) {
    let first = NodeId::new().value;
    let result = run();
    (result, NodeId::new().value - first - 1)
}
