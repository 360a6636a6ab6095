//! One block of memory for data that every token reads in full (a model's packed weights, or its
//! cache), on huge pages where the system has them.

use std::{io, mem::MaybeUninit, sync::Arc, sync::atomic::AtomicUsize, sync::atomic::Ordering};

use burn::tensor::{Bytes, DType, TensorData};
use bytemuck::Pod;
use cubecl_environment::bytes::{AccessError, AccessPolicy, AllocationController, AllocationProperty};
use memmap2::{MmapMut, MmapRaw};
use thiserror::Error;

/// Size of a huge page in bytes, on x86-64 and most other processors.
pub const HUGE_PAGE: usize = 2 << 20;

/// Alignment of a part: a cache line, in bytes.
const CACHE_LINE: usize = 64;

/// Total size of all [`Memory`] blocks, in bytes.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Total size of this program's [`Memory`] blocks, in bytes. They come from the system directly, so
/// no allocator counts them.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// The system refused the memory.
#[derive(Debug, Error)]
#[error("cannot allocate {} MB of memory; free some", bytes >> 20)]
pub struct ArenaError {
    bytes: usize,
    source: io::Error,
}

/// Zero-initialised memory, handed out in parts.
///
/// A token reads all of it, page after page. With pages of 4 KiB, address translation takes as long
/// as the reads (17 against 32 GB/s on one core of an AMD EPYC with nested virtual memory).
#[derive(Debug)]
pub struct Memory {
    /// Raw, because parts are borrowed separately, some of them mutably.
    map: MmapRaw,
    /// Offset and length in bytes of each part in `map`.
    parts: Vec<(usize, usize)>,
    bytes: usize,
    taken: AtomicUsize,
}

impl Drop for Memory {
    fn drop(&mut self) {
        HELD.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Memory {
    /// Memory for parts of these sizes in bytes, in the order in which they will be taken and read.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn new(parts: impl IntoIterator<Item = usize>) -> Result<Arc<Self>, ArenaError> {
        let mut end = 0;
        let place = |bytes: usize| {
            let start = end;
            end += bytes.next_multiple_of(CACHE_LINE);
            (start, bytes)
        };
        let mut parts: Vec<_> = parts.into_iter().map(place).collect();
        let map = MmapMut::map_anon(end + HUGE_PAGE).map_err(|source| ArenaError { bytes: end, source })?;
        let map = MmapRaw::from(map);
        // Fails on a system without huge pages, which then uses small ones.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let first = map.as_ptr().align_offset(HUGE_PAGE);
        parts.iter_mut().for_each(|(start, _)| *start += first);
        HELD.fetch_add(end, Ordering::Relaxed);
        Ok(Arc::new(Self { map, parts, bytes: end, taken: AtomicUsize::new(0) }))
    }

    /// The next part that has not been taken.
    ///
    /// # Panics
    /// When all parts are taken.
    pub fn take(self: &Arc<Self>) -> Part {
        let index = self.taken.fetch_add(1, Ordering::Relaxed);
        assert!(index < self.parts.len(), "more parts than announced");
        Part { memory: self.clone(), index }
    }

    /// Makes the system allocate all pages now, on a separate thread, for callers that cannot wait
    /// later. Otherwise a page is cleared at its first write, which takes a millisecond or more for
    /// a huge page, and parts that are filled in parallel all reach their next pages at the same
    /// time.
    pub fn populate(self: &Arc<Self>) {
        let memory = self.clone();
        let populating = move || {
            #[cfg(target_os = "linux")]
            let _ = memory.map.advise(memmap2::Advice::PopulateWrite);
            drop(memory);
        };
        // Where this fails, or no thread is left, each page is allocated at its first write.
        let _ = std::thread::Builder::new().spawn(populating);
    }

    fn place(&self, index: usize) -> (*mut u8, usize) {
        let (start, bytes) = self.parts[index];
        // SAFETY: `new` made the map long enough for every part.
        (unsafe { self.map.as_mut_ptr().add(start) }, bytes)
    }
}

/// A part of a [`Memory`] with one owner.
#[derive(Debug)]
pub struct Part {
    memory: Arc<Memory>,
    index: usize,
}

impl Part {
    /// The part as a slice of values.
    ///
    /// # Panics
    /// When the part's size is not a multiple of the value's.
    pub fn values<T: Pod>(&self) -> &[T] {
        let (start, length) = self.place::<T>();
        // SAFETY: inside the map and aligned to a cache line by construction; any bits are valid;
        // written only through the single owner's `values_mut`.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// The part as a mutable slice of values.
    ///
    /// # Panics
    /// As [`Self::values`].
    pub fn values_mut<T: Pod>(&mut self) -> &mut [T] {
        let (start, length) = self.place::<T>();
        // SAFETY: as above; parts do not overlap, and this one is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// Start and length in bytes of the part that is read after this one. After the last part comes
    /// the first, for the next token.
    pub fn next(&self) -> (*const u8, usize) {
        let (start, bytes) = self.memory.place((self.index + 1) % self.memory.parts.len());
        (start.cast_const(), bytes)
    }

    fn place<T: Pod>(&self) -> (*mut T, usize) {
        const { assert!(align_of::<T>() <= CACHE_LINE && size_of::<T>() > 0) };
        let (start, bytes) = self.memory.place(self.index);
        assert!(bytes.is_multiple_of(size_of::<T>()), "{bytes} bytes are not whole values of {}", size_of::<T>());
        (start.cast(), bytes / size_of::<T>())
    }

    /// The part as the data of a float32 tensor, which burn's CPU backend then reads and writes in
    /// place.
    ///
    /// # Panics
    /// When the part's size does not match the shape.
    pub fn tensor_data<const D: usize>(self, shape: [usize; D]) -> TensorData {
        let (_, bytes) = self.place::<u8>();
        // SAFETY: the map was made of zeros, so all of the part's bytes are initialised.
        TensorData::from_bytes(unsafe { Bytes::from_controller(Box::new(self), bytes) }, shape, DType::F32)
    }
}

/// Lets a part be a tensor's memory; the tensor ensures that all of it is initialised.
impl AllocationController for Part {
    /// Less than the actual alignment, and the most that burn's own copies can have.
    fn alloc_align(&self) -> usize {
        align_of::<u128>()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    unsafe fn memory_mut(&mut self, _policy: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let (start, bytes) = self.place::<u8>();
        // SAFETY: as `values_mut`.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) })
    }

    fn memory(&self, _policy: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let (start, bytes) = self.place::<u8>();
        // SAFETY: as `values`.
        Ok(unsafe { std::slice::from_raw_parts(start.cast(), bytes) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{Device, Tensor};

    use super::*;

    #[test]
    fn parts_are_zeros_side_by_side_and_follow_one_another_in_a_circle() {
        let memory = Memory::new([100, 64, 8]).unwrap();
        let mut parts = [memory.take(), memory.take(), memory.take()];
        for (i, part) in parts.iter_mut().enumerate() {
            assert!(part.values::<u8>().iter().all(|&value| value == 0));
            part.values_mut::<u8>().fill(i as u8 + 1);
        }
        for (i, part) in parts.iter().enumerate() {
            assert!(part.values::<u8>().iter().all(|&value| value == i as u8 + 1));
            assert_eq!(part.values::<u8>().as_ptr().align_offset(CACHE_LINE), 0);
            let next = parts[(i + 1) % 3].values::<u8>();
            assert_eq!(part.next(), (next.as_ptr(), next.len()));
        }
        assert_eq!(parts[0].values::<u8>().as_ptr().align_offset(HUGE_PAGE), 0);
    }

    #[test]
    fn a_tensor_is_written_in_place() {
        let part = Memory::new([24]).unwrap().take();
        let place = part.values::<u8>().as_ptr();
        let tensor = Tensor::<2>::from_data(part.tensor_data([2, 3]), &Device::flex());
        let write = |tensor: Tensor<2>| tensor.slice_assign([1..2, 0..3], Tensor::ones([1, 3], &Device::flex()));
        // A tensor that shares the buffer is copied before a write.
        let copy = write(tensor.clone()).into_data();
        assert_eq!(tensor.clone().into_data().try_into_vec::<f32>().unwrap(), [0.0; 6]);
        let data = write(tensor).into_data();
        assert_eq!(data.as_bytes().as_ptr(), place);
        for data in [data, copy] {
            assert_eq!(data.try_into_vec::<f32>().unwrap(), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        }
    }
}
