//! The driver and its one device, which reports itself as an H200.

use crate::{driver::*, memory};
use std::ffi::{c_char, c_int, c_uint};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    unsafe { *version = 13000 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    unsafe { *count = 1 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Status {
    unsafe { *device = ordinal };
    if ordinal == 0 { SUCCESS } else { 101 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, bytes: c_int, _: c_int) -> Status {
    let text = c"NVIDIA H200 (softcuda)".to_bytes_with_nul();
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr() as *const c_char, name, text.len().min(bytes as usize)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(_: *mut c_char, _: c_int, _: c_int) -> Status {
    INVALID_VALUE
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _: c_int) -> Status {
    unsafe { *bytes = memory::TOTAL as usize };
    SUCCESS
}

/// The attributes of an H200.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, _: c_int) -> Status {
    let answer = match attribute {
        1 => 1024,
        2 | 3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => 49152,
        10 => 32,
        16 => 132,
        75 => 9,
        76 => 0,
        81 => 233472,
        97 => 232448,
        115 => 1,
        _ => {
            warn(&format!("attribute {attribute} was asked for"));
            0
        }
    };
    unsafe { *value = answer };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Pointer, _: c_int) -> Status {
    unsafe { *context = 0x1000 as Pointer };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Status {
    unsafe { (*least, *greatest) = (0, -5) };
    SUCCESS
}
