//! Memory: allocation, release, copies.

use crate::{driver::*, memory};
use std::ffi::{c_uint, c_void};

unsafe fn allocate(at: *mut u64, bytes: usize) -> Status {
    match memory::allocate(bytes as u64) {
        Some(address) => {
            unsafe { *at = address };
            SUCCESS
        }
        None => OUT_OF_MEMORY,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(at: *mut u64, bytes: usize) -> Status {
    count_call("cuMemAlloc_v2");
    if bytes == 0 {
        return INVALID_VALUE;
    }
    if refused_while_capturing("cuMemAlloc") {
        return CAPTURE_UNSUPPORTED;
    }
    unsafe { allocate(at, bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(at: *mut u64, bytes: usize, stream: Pointer) -> Status {
    count_call("cuMemAllocAsync");
    if record(stream, Node::Memory) {
        warn("an allocation is recorded");
    }
    unsafe { allocate(at, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(at: u64) -> Status {
    count_call("cuMemFree_v2");
    if refused_while_capturing("cuMemFree") {
        return CAPTURE_UNSUPPORTED;
    }
    if memory::free(at) { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(at: u64, stream: Pointer) -> Status {
    count_call("cuMemFreeAsync");
    if record(stream, Node::Memory) {
        warn("a release of memory is recorded");
    }
    if memory::free(at) { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(at: *mut Pointer, bytes: usize) -> Status {
    count_call("cuMemAllocHost_v2");
    if refused_while_capturing("cuMemAllocHost") {
        return CAPTURE_UNSUPPORTED;
    }
    let mut block = vec![0u64; bytes.div_ceil(8) + 2].into_boxed_slice();
    let address = block.as_mut_ptr();
    std::mem::forget(block);
    unsafe {
        *address = bytes.div_ceil(8) as u64 + 2;
        *at = address.add(2) as Pointer;
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(at: Pointer) -> Status {
    unsafe {
        let address = (at as *mut u64).sub(2);
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(address, *address as usize)));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Pointer) -> Status {
    count_call("cuMemcpyHtoDAsync_v2");
    if std::env::var_os("SOFTCUDA_LOG").is_some() {
        eprintln!("upload to {to:x} {bytes} {from:x}", from = from as u64);
    }
    unsafe { perform_or_record(stream, Node::Copy { to, from: from as u64, bytes }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Pointer) -> Status {
    count_call("cuMemcpyDtoHAsync_v2");
    unsafe { perform_or_record(stream, Node::Copy { to: to as u64, from, bytes }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Pointer) -> Status {
    count_call("cuMemcpyDtoDAsync_v2");
    if std::env::var_os("SOFTCUDA_LOG").is_some() {
        eprintln!("copy {from:x} to {to:x} {bytes}", from = { from });
    }
    unsafe { perform_or_record(stream, Node::Copy { to, from, bytes }) }
}

/// `CUDA_MEMCPY2D`; only plain memory is supported, no arrays.
#[repr(C)]
pub struct Rectangle {
    source_x: usize,
    source_y: usize,
    source_kind: c_uint,
    source_host: u64,
    source_device: u64,
    source_array: u64,
    source_pitch: usize,
    target_x: usize,
    target_y: usize,
    target_kind: c_uint,
    target_host: u64,
    target_device: u64,
    target_array: u64,
    target_pitch: usize,
    bytes: usize,
    rows: usize,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(copy: *const Rectangle, stream: Pointer) -> Status {
    count_call("cuMemcpy2DAsync_v2");
    let copy = unsafe { &*copy };
    let from = if copy.source_kind == 1 { copy.source_host } else { copy.source_device };
    let to = if copy.target_kind == 1 { copy.target_host } else { copy.target_device };
    for row in 0..copy.rows {
        let from = from + ((copy.source_y + row) * copy.source_pitch + copy.source_x) as u64;
        let to = to + ((copy.target_y + row) * copy.target_pitch + copy.target_x) as u64;
        unsafe { perform_or_record(stream, Node::Copy { to, from, bytes: copy.bytes }) };
    }
    SUCCESS
}
