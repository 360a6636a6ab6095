//! `cp.async`: asynchronous copies to shared memory. The data arrives at the latest moment allowed,
//! when the thread waits for it: a thread that reads too early sees the old contents.

use crate::{
    block::Block,
    lanes::{Outcome, members},
    ptx::*,
    warp::Warp,
};

pub struct AsyncCopy {
    to: u64,
    size: usize,
    values: [u8; 16],
}

impl Block<'_> {
    /// Copies `size` bytes, of which only the first `bytes` are read; the rest are zeros.
    pub fn copy_async(
        &mut self,
        warp: &mut Warp,
        to: &Address,
        from: &Address,
        size: usize,
        bytes: Src,
        mask: u32,
    ) -> Outcome<()> {
        let (targets, sources) = (self.addresses(warp, to), self.addresses(warp, from));
        let bytes = warp.word(bytes, self);
        if self.launch.profile {
            let reading = members(mask).filter(|lane| bytes[*lane] > 0).fold(0, |mask, lane| mask | 1 << lane);
            self.counts.touch(Space::Global, &sources, size as u64, reading);
            self.counts.touch(Space::Shared, &targets, size as u64, mask);
        }
        for lane in members(mask) {
            let (to, from, count) = (targets[lane], sources[lane], bytes[lane] as usize);
            if count > size {
                return Err(format!("{count} bytes of {size}"));
            }
            if !from.is_multiple_of(size as u64) {
                return Err(format!("address {from:#x} is not a multiple of {size}"));
            }
            self.aligned_pointer(warp, lane, Space::Shared, to, size as u64)?;
            let mut values = [0; 16];
            if count > 0 {
                let from = self.unaligned_pointer(warp, lane, Space::Global, from, count as u64)?;
                unsafe { std::ptr::copy_nonoverlapping(from, values.as_mut_ptr(), count) };
            }
            if let Some(races) = &mut self.races {
                races.begin_copy(warp.index, lane, to, size as u64);
            }
            warp.copies[lane].add(AsyncCopy { to, size, values });
        }
        Ok(())
    }

    pub fn commit_copies(&mut self, warp: &mut Warp, mask: u32) {
        members(mask).for_each(|lane| warp.copies[lane].commit());
    }

    /// Waits until at most `most` groups of each thread's copies are pending.
    pub fn await_copies(&mut self, warp: &mut Warp, most: usize, mask: u32) {
        for lane in members(mask) {
            for AsyncCopy { to, size, values } in warp.copies[lane].finish(most) {
                self.shared[to as usize..][..size].copy_from_slice(&values[..size]);
                if let Some(races) = &mut self.races {
                    races.end_copy(warp.index, lane, to, size as u64);
                }
            }
        }
    }
}
