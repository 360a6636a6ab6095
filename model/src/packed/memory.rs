//! One stretch of memory for all packed weights of a model, on huge pages where the system has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use memmap2::MmapMut;

/// A huge page of x86-64 and most others, in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// Where a part may begin: at a cache line.
const LINE: usize = 64;

/// Zeros to begin with, given away part by part.
///
/// A token reads all of it, a page after the other: with pages of 4 KiB finding them costs as much time as reading them (17
/// against 32 GB/s on one core of an AMD EPYC with virtual memory inside virtual memory).
#[derive(Debug)]
pub struct Memory {
    map: MmapMut,
    /// Where the first huge page begins in `map`.
    start: usize,
    bytes: usize,
    taken: AtomicUsize,
}

impl Memory {
    /// Room for parts of `bytes` in all, each rounded up by [`rounded`].
    ///
    /// # Errors
    /// When the system does not give as much.
    pub fn new(bytes: usize) -> Result<Arc<Self>> {
        let bytes = rounded(bytes);
        let map = MmapMut::map_anon(bytes + HUGE_PAGE)
            .with_context(|| format!("cannot take {} MB of memory for the weights; free some", bytes >> 20))?;
        // A system without huge pages says no, and the weights are read from small ones.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let start = map.as_ptr().align_offset(HUGE_PAGE);
        Ok(Arc::new(Self { map, start, bytes, taken: AtomicUsize::new(0) }))
    }

    /// The next `bytes`, which nobody else has.
    ///
    /// # Panics
    /// When more is taken than there is.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Part {
        let start = self.taken.fetch_add(rounded(bytes), Ordering::Relaxed);
        assert!(start + bytes <= self.bytes, "more weights than announced");
        Part { memory: self.clone(), start: self.start + start, bytes }
    }
}

/// What a part of `bytes` takes.
pub fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(LINE)
}

/// A part of a [`Memory`] with one owner.
#[derive(Debug)]
pub struct Part {
    memory: Arc<Memory>,
    start: usize,
    bytes: usize,
}

/// Values whose every bit pattern is valid and which need no alignment beyond a cache line's.
///
/// # Safety
/// As said.
pub unsafe trait Bits: Copy + Send + Sync + 'static {}

impl Part {
    /// The part as values.
    pub fn values<T: Bits>(&self) -> &[T] {
        // SAFETY: inside the map and aligned to a cache line by construction, valid whatever the bits; written only through
        // the one owner's `values_mut`.
        unsafe { std::slice::from_raw_parts(self.first(), self.bytes / size_of::<T>()) }
    }

    /// The part as values to write.
    pub fn values_mut<T: Bits>(&mut self) -> &mut [T] {
        // SAFETY: as above; parts do not overlap, and this one is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.first::<T>().cast_mut(), self.bytes / size_of::<T>()) }
    }

    fn first<T: Bits>(&self) -> *const T {
        const { assert!(align_of::<T>() <= LINE && size_of::<T>() > 0) };
        // SAFETY: `start + bytes` was checked against the map's length.
        unsafe { self.memory.map.as_ptr().add(self.start).cast() }
    }
}
