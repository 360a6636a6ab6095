//! Device memory: memory of this process, with a list of the allocations.

use std::{
    alloc::{Layout, alloc, dealloc},
    collections::BTreeMap,
    sync::{Arc, RwLock},
};

/// Begin and end of every allocation, sorted.
pub type Ranges = Arc<Vec<(u64, u64)>>;

static ALLOCATED: RwLock<BTreeMap<u64, u64>> = RwLock::new(BTreeMap::new());
/// Size of the device's memory; allocations beyond it are refused.
pub const TOTAL: u64 = 12 << 30;

fn layout(bytes: u64) -> Layout {
    Layout::from_size_align(bytes.max(1) as usize, 512).expect("a size that exists")
}

/// Allocates memory filled with NaN, so that reads of uninitialized memory show.
pub fn allocate(bytes: u64) -> Option<u64> {
    let mut allocated = ALLOCATED.write().unwrap();
    if allocated.values().sum::<u64>() + bytes > TOTAL {
        return None;
    }
    let at = unsafe { alloc(layout(bytes)) };
    if at.is_null() {
        return None;
    }
    unsafe { at.write_bytes(0xff, bytes as usize) };
    allocated.insert(at as u64, bytes);
    Some(at as u64)
}

pub fn free(at: u64) -> bool {
    match ALLOCATED.write().unwrap().remove(&at) {
        Some(bytes) => {
            unsafe { dealloc(at as *mut u8, layout(bytes)) };
            true
        }
        None => false,
    }
}

pub fn ranges() -> Ranges {
    Arc::new(ALLOCATED.read().unwrap().iter().map(|(at, bytes)| (*at, at + bytes)).collect())
}

/// The allocation that contains these bytes.
pub fn allocation_of(ranges: &[(u64, u64)], at: u64, bytes: u64) -> Option<(u64, u64)> {
    let i = ranges.partition_point(|(begin, _)| *begin <= at);
    let range = *ranges.get(i.checked_sub(1)?)?;
    (at + bytes <= range.1).then_some(range)
}
