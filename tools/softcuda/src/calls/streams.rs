//! Streams and events.

use crate::driver::*;
use std::{
    ffi::{c_int, c_uint},
    time::Instant,
};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut Pointer, _: c_uint) -> Status {
    let mut driver = driver();
    driver.streams += 1;
    unsafe { *stream = (0x2000 + driver.streams) as Pointer };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut Pointer, flags: c_uint, _: c_int) -> Status {
    unsafe { cuStreamCreate(stream, flags) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(_: Pointer) -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: Pointer) -> Status {
    count_call("cuStreamSynchronize");
    if capturing(stream) {
        warn("cuStreamSynchronize of a stream that is recorded");
        return CAPTURE_UNSUPPORTED;
    }
    report();
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut Pointer, _: c_uint) -> Status {
    unsafe { *event = Box::into_raw(Box::new(Instant::now())) as Pointer };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: Pointer, _: Pointer) -> Status {
    count_call("cuEventRecord");
    unsafe { *(event as *mut Instant) = Instant::now() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(_: Pointer) -> Status {
    count_call("cuEventSynchronize");
    report();
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(ms: *mut f32, a: Pointer, b: Pointer) -> Status {
    unsafe { *ms = (*(b as *const Instant)).saturating_duration_since(*(a as *const Instant)).as_secs_f32() * 1e3 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(ms: *mut f32, a: Pointer, b: Pointer) -> Status {
    unsafe { cuEventElapsedTime(ms, a, b) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: Pointer) -> Status {
    drop(unsafe { Box::from_raw(event as *mut Instant) });
    SUCCESS
}
