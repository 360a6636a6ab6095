//! A CUDA driver without a GPU: as much of the driver's interface as cubecl uses, with kernels' PTX
//! run on the CPU.
//!
//! It says whether kernels compute what they should, touch only what is theirs, and meet at
//! barriers; it says nothing about time. In the environment: `SOFTCUDA_RACES=1` watches shared
//! memory, `SOFTCUDA_PROFILE=FILE` writes what each kernel did and how often the driver was called,
//! `SOFTCUDA_LOG=1` tells of every launch and copy, and `SOFTCUDA_SAMPLE=4:matmul_entry` runs only
//! four blocks of each launch of such kernels, for profiles of sizes that would take too long: the
//! numbers are wrong then. `SOFTCUDA_PTX=FOLDER` keeps the PTX of every kernel, for `ptxas -v`.

#![allow(non_snake_case, clippy::missing_safety_doc)]

mod access;
mod arithmetic;
mod block;
mod copy;
mod driver;
mod execute;
mod lanes;
mod matrix;
mod memory;
mod number;
mod parse;
mod pending;
mod profile;
mod ptx;
mod races;
mod reconverge;
#[cfg(test)]
mod tests;
mod warp;
mod warpgroup;

use driver::*;
use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    time::Instant,
};

const SUCCESS: Status = 0;
const INVALID_VALUE: Status = 1;
const OUT_OF_MEMORY: Status = 2;
const INVALID_PTX: Status = 218;
const NOT_FOUND: Status = 500;
const LAUNCH_FAILED: Status = 719;
const CAPTURE_UNSUPPORTED: Status = 900;

macro_rules! does_nothing {
    ($($name:ident($($arg:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($(_: $arg),*) -> Status { SUCCESS }
    )* };
}

does_nothing! {
    cuInit(c_uint);
    cuCtxSetCurrent(Pointer);
    cuStreamWaitEvent(Pointer, Pointer, c_uint);
    cuGraphUpload(Pointer, Pointer);
}

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

/// An H200's.
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
            complain(&format!("attribute {attribute} was asked for"));
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
    called("cuStreamSynchronize");
    if capturing(stream) {
        complain("cuStreamSynchronize of a stream that is recorded");
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
    called("cuEventRecord");
    unsafe { *(event as *mut Instant) = Instant::now() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(_: Pointer) -> Status {
    called("cuEventSynchronize");
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

unsafe fn hand_out(at: *mut u64, bytes: usize) -> Status {
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
    called("cuMemAlloc_v2");
    if bytes == 0 {
        return INVALID_VALUE;
    }
    if refused_while_recording("cuMemAlloc") {
        return CAPTURE_UNSUPPORTED;
    }
    unsafe { hand_out(at, bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(at: *mut u64, bytes: usize, stream: Pointer) -> Status {
    called("cuMemAllocAsync");
    if record(stream, Node::Memory) {
        complain("an allocation is recorded");
    }
    unsafe { hand_out(at, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(at: u64) -> Status {
    called("cuMemFree_v2");
    if refused_while_recording("cuMemFree") {
        return CAPTURE_UNSUPPORTED;
    }
    if memory::free(at) { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(at: u64, stream: Pointer) -> Status {
    called("cuMemFreeAsync");
    if record(stream, Node::Memory) {
        complain("a release of memory is recorded");
    }
    if memory::free(at) { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(at: *mut Pointer, bytes: usize) -> Status {
    called("cuMemAllocHost_v2");
    if refused_while_recording("cuMemAllocHost") {
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
    called("cuMemcpyHtoDAsync_v2");
    if std::env::var_os("SOFTCUDA_LOG").is_some() {
        eprintln!("upload to {to:x} {bytes} {from:x}", from = from as u64);
    }
    unsafe { now_or_later(stream, Node::Copy { to, from: from as u64, bytes }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Pointer) -> Status {
    called("cuMemcpyDtoHAsync_v2");
    unsafe { now_or_later(stream, Node::Copy { to: to as u64, from, bytes }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Pointer) -> Status {
    called("cuMemcpyDtoDAsync_v2");
    if std::env::var_os("SOFTCUDA_LOG").is_some() {
        eprintln!("copy {from:x} to {to:x} {bytes}", from = { from });
    }
    unsafe { now_or_later(stream, Node::Copy { to, from, bytes }) }
}

/// `CUDA_MEMCPY2D`, of which only sides that are plain memory occur.
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
    called("cuMemcpy2DAsync_v2");
    let copy = unsafe { &*copy };
    let from = if copy.source_kind == 1 { copy.source_host } else { copy.source_device };
    let to = if copy.target_kind == 1 { copy.target_host } else { copy.target_device };
    for row in 0..copy.rows {
        let from = from + ((copy.source_y + row) * copy.source_pitch + copy.source_x) as u64;
        let to = to + ((copy.target_y + row) * copy.target_pitch + copy.target_x) as u64;
        unsafe { now_or_later(stream, Node::Copy { to, from, bytes: copy.bytes }) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut Pointer, image: *const c_void) -> Status {
    called("cuModuleLoadData");
    let text = unsafe { CStr::from_ptr(image as *const c_char) }.to_string_lossy();
    let kernel = text.split(".entry ").nth(1).and_then(|after| after.split('(').next()).unwrap_or("no kernel");
    if refused_while_recording(&format!("cuModuleLoadData of {}", kernel.trim())) {
        return CAPTURE_UNSUPPORTED;
    }
    match parse::parse(&text) {
        Ok(parsed) => {
            if let (Some(folder), Some(kernel)) = (std::env::var_os("SOFTCUDA_PTX"), parsed.kernels.first()) {
                let _ =
                    std::fs::write(std::path::Path::new(&folder).join(format!("{}.ptx", kernel.name)), text.as_bytes());
            }
            unsafe { *module = Box::into_raw(Box::new(parsed)) as Pointer };
            SUCCESS
        }
        Err(error) => {
            complain(&format!("PTX that is not understood: {error}"));
            INVALID_PTX
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut Pointer, module: Pointer, name: *const c_char) -> Status {
    let module: &'static ptx::Module = unsafe { &*(module as *const ptx::Module) };
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    match module.kernels.iter().position(|k| k.name == name) {
        Some(index) => {
            unsafe { *function = Box::into_raw(Box::new(Function { module, index, shared_most: 49152 })) as Pointer };
            SUCCESS
        }
        None => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(function: Pointer, attribute: c_uint, value: c_int) -> Status {
    if attribute == 8 {
        if value > 232448 {
            complain(&format!("{value} bytes of shared memory are too many"));
            return INVALID_VALUE;
        }
        unsafe { (*(function as *mut Function)).shared_most = value.max(49152) as usize };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: Pointer,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: Pointer,
    arguments: *const *const u8,
    _: Pointer,
) -> Status {
    called("cuLaunchKernel");
    let f = unsafe { &*(function as *const Function) };
    let kernel = &f.module.kernels[f.index];
    let refused = if gx == 0 || gy == 0 || gz == 0 || gy > 65535 || gz > 65535 {
        Some(format!("a grid of {gx} x {gy} x {gz}"))
    } else if bx * by * bz > 1024 || bz > 64 {
        Some(format!("blocks of {bx} x {by} x {bz}"))
    } else if kernel.threads.is_some_and(|t| t != (bx, by, bz)) {
        Some(format!("blocks of {bx} x {by} x {bz}, compiled for {:?}", kernel.threads))
    } else if kernel.shared + shared as usize > f.shared_most {
        Some(format!("{shared} bytes of shared memory, {} allowed", f.shared_most))
    } else {
        None
    };
    if let Some(what) = refused {
        complain(&format!("{}: {what}", kernel.name));
        return INVALID_VALUE;
    }
    let mut params = vec![0u8; kernel.params.last().map_or(0, |(at, size)| at + size)];
    for (i, (at, size)) in kernel.params.iter().enumerate() {
        unsafe { std::ptr::copy_nonoverlapping(*arguments.add(i), params.as_mut_ptr().add(*at), *size) };
    }
    if std::env::var_os("SOFTCUDA_LOG").is_some() {
        eprintln!(
            "launch {} on {stream:?} grid {gx} {gy} {gz} block {bx} params {:x?}",
            kernel.name,
            params
                .chunks(8)
                .map(|c| {
                    let mut b = [0u8; 8];
                    b[..c.len()].copy_from_slice(c);
                    u64::from_le_bytes(b)
                })
                .collect::<Vec<_>>()
        );
    }
    let node = Node::Kernel {
        function: function as usize,
        params,
        grid: (gx, gy, gz),
        block: (bx, by, bz),
        shared: shared as usize,
    };
    unsafe { now_or_later(stream, node) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: Pointer, _: c_uint) -> Status {
    let mut driver = driver();
    if driver.capture.is_some() {
        return CAPTURE_UNSUPPORTED;
    }
    driver.capture = Some((stream as usize, Vec::new()));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(_: Pointer, graph: *mut Pointer) -> Status {
    called("cuStreamEndCapture");
    match driver().capture.take() {
        Some((_, nodes)) => {
            unsafe { *graph = Box::into_raw(Box::new(nodes)) as Pointer };
            SUCCESS
        }
        None => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetNodes(graph: Pointer, nodes: *mut Pointer, count: *mut usize) -> Status {
    let list = unsafe { &*(graph as *const Vec<Node>) };
    unsafe {
        if !nodes.is_null() {
            for (i, node) in list.iter().take(*count).enumerate() {
                *nodes.add(i) = node as *const Node as Pointer;
            }
        }
        *count = list.len();
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetType(node: Pointer, kind: *mut c_uint) -> Status {
    unsafe {
        *kind = match &*(node as *const Node) {
            Node::Kernel { .. } => 0,
            Node::Copy { .. } => 1,
            Node::Memory => 10,
        };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(exec: *mut Pointer, graph: Pointer, _: u64) -> Status {
    let nodes = unsafe { (*(graph as *const Vec<Node>)).clone() };
    unsafe { *exec = Box::into_raw(Box::new(nodes)) as Pointer };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: Pointer) -> Status {
    drop(unsafe { Box::from_raw(graph as *mut Vec<Node>) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(exec: Pointer) -> Status {
    unsafe { cuGraphDestroy(exec) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(exec: Pointer, stream: Pointer) -> Status {
    called("cuGraphLaunch");
    let nodes = unsafe { &*(exec as *const Vec<Node>) };
    for node in nodes {
        let status = unsafe { now_or_later(stream, node.clone()) };
        if status != SUCCESS {
            return status;
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(_: Status, text: *mut *const c_char) -> Status {
    unsafe { *text = c"softcuda".as_ptr() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_: Status, text: *mut *const c_char) -> Status {
    unsafe { *text = c"an error of softcuda, told above".as_ptr() };
    SUCCESS
}
