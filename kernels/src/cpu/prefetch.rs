//! The weights that the next product of a decoding step will read. A thread with nothing to do, at
//! the end of a product or while another normalises a row, asks memory for the first of them, so
//! that memory is not idle too.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::simd::prefetch;

/// Bytes that are asked for before the thread looks for work again.
const PIECE: usize = 1024;

/// Most bytes that are asked for of each thread's share: they wait in a second-level cache, and not
/// alone. With more than two threads they may wait in another's, from where they still come sooner
/// than from memory.
const MOST: usize = 256 * 1024;

/// What comes next in this process. Two models that run at once overwrite each other's, which costs
/// them no more than the time gained.
pub static NEXT_WEIGHTS: NextWeights =
    NextWeights { start: AtomicPtr::new(ptr::null_mut()), bytes: AtomicUsize::new(0), requested: AtomicUsize::new(0) };

/// A stretch of memory, and how much of it has been asked for.
#[derive(Debug)]
pub struct NextWeights {
    start: AtomicPtr<u8>,
    bytes: AtomicUsize,
    requested: AtomicUsize,
}

impl NextWeights {
    /// Says where the next product's weights begin, and how many bytes they are.
    pub fn announce(&self, (start, bytes): (*const u8, usize)) {
        self.start.store(start.cast_mut(), Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.requested.store(0, Ordering::Relaxed);
    }

    /// Asks for the next few. Another product may be announced in between: to ask for the wrong
    /// memory does no harm.
    pub fn prefetch_some(&self) {
        let others = rayon::current_num_threads().max(2) - 1;
        if self.requested.load(Ordering::Relaxed) < others * MOST {
            let asked = self.requested.fetch_add(PIECE, Ordering::Relaxed);
            if let Some(place) = place(asked, self.bytes.load(Ordering::Relaxed), others) {
                prefetch::<2, _>(self.start.load(Ordering::Relaxed).wrapping_add(place), PIECE);
            }
        }
    }
}

/// Where the piece stands that is asked for after `asked` bytes. The weights are cut into equal
/// shares; the thread that runs the step is busy and will take the first itself, so pieces are from
/// the beginnings of the `others`, in turn.
fn place(asked: usize, bytes: usize, others: usize) -> Option<usize> {
    let share = bytes / (others + 1);
    let piece = asked / PIECE;
    let inside = piece / others * PIECE;
    (inside + PIECE <= share).then(|| (1 + piece % others) * share + inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_beginnings_of_all_shares_but_the_first() {
        let places = |bytes, others| -> Vec<_> { (0..6).map(|i| place(i * PIECE, bytes, others)).collect() };
        assert_eq!(places(4096, 1), [Some(2048), Some(3072), None, None, None, None]);
        assert_eq!(places(6144, 2), [Some(2048), Some(4096), Some(3072), Some(5120), None, None]);
        assert_eq!(places(100, 3), [None; 6]);
    }
}
