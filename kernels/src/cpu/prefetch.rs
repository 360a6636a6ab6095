//! Prefetching the weights of a decoding step's next product. An idle thread, at the end of a
//! product or while another normalises a row, prefetches the first of them, so that memory is not
//! idle too.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::simd::prefetch;

/// Bytes that a thread prefetches before it looks for work again.
const PIECE: usize = 1024;

/// Maximum number of bytes that are prefetched of each thread's share: they must fit in a
/// second-level cache beside other data. With more than two threads they may be in another core's
/// cache, which is still faster than memory.
const MAX_BYTES: usize = 256 * 1024;

/// The next weights in this process. Two models that run at the same time overwrite each other's
/// entry, which only loses the time gained.
pub static NEXT_WEIGHTS: NextWeights =
    NextWeights { start: AtomicPtr::new(ptr::null_mut()), bytes: AtomicUsize::new(0), requested: AtomicUsize::new(0) };

/// A block of memory, and how much of it has been prefetched.
#[derive(Debug)]
pub struct NextWeights {
    start: AtomicPtr<u8>,
    bytes: AtomicUsize,
    requested: AtomicUsize,
}

impl NextWeights {
    /// Sets the start and length in bytes of the next product's weights.
    pub fn announce(&self, (start, bytes): (*const u8, usize)) {
        self.start.store(start.cast_mut(), Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.requested.store(0, Ordering::Relaxed);
    }

    /// Prefetches the next few bytes. Another product may be announced meanwhile: prefetching the
    /// wrong memory does no harm.
    pub fn prefetch_some(&self) {
        let others = rayon::current_num_threads().max(2) - 1;
        if self.requested.load(Ordering::Relaxed) < others * MAX_BYTES {
            let prefetched = self.requested.fetch_add(PIECE, Ordering::Relaxed);
            if let Some(offset) = piece_offset(prefetched, self.bytes.load(Ordering::Relaxed), others) {
                prefetch::<2, _>(self.start.load(Ordering::Relaxed).wrapping_add(offset), PIECE);
            }
        }
    }
}

/// Offset of the next piece after `prefetched` bytes. The weights are cut into equal shares, one
/// per thread. The busy thread that runs the step takes the first share itself, so pieces come from
/// the beginnings of the `others`, in turn.
fn piece_offset(prefetched: usize, bytes: usize, others: usize) -> Option<usize> {
    let share = bytes / (others + 1);
    let piece = prefetched / PIECE;
    let inside = piece / others * PIECE;
    (inside + PIECE <= share).then(|| (1 + piece % others) * share + inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_beginnings_of_all_shares_but_the_first() {
        let offsets = |bytes, others| -> Vec<_> { (0..6).map(|i| piece_offset(i * PIECE, bytes, others)).collect() };
        assert_eq!(offsets(4096, 1), [Some(2048), Some(3072), None, None, None, None]);
        assert_eq!(offsets(6144, 2), [Some(2048), Some(4096), Some(3072), Some(5120), None, None]);
        assert_eq!(offsets(100, 3), [None; 6]);
    }
}
