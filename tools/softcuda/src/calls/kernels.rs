//! Modules, the kernels in them, and their launches.

use crate::{driver::*, parse, ptx};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut Pointer, image: *const c_void) -> Status {
    count_call("cuModuleLoadData");
    let text = unsafe { CStr::from_ptr(image as *const c_char) }.to_string_lossy();
    let kernel = text.split(".entry ").nth(1).and_then(|after| after.split('(').next()).unwrap_or("no kernel");
    if refused_while_capturing(&format!("cuModuleLoadData of {}", kernel.trim())) {
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
            warn(&format!("PTX that is not understood: {error}"));
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
            unsafe { *function = Box::into_raw(Box::new(Function { module, index, max_shared: 49152 })) as Pointer };
            SUCCESS
        }
        None => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(function: Pointer, attribute: c_uint, value: c_int) -> Status {
    if attribute == 8 {
        if value > 232448 {
            warn(&format!("{value} bytes of shared memory are too many"));
            return INVALID_VALUE;
        }
        unsafe { (*(function as *mut Function)).max_shared = value.max(49152) as usize };
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
    count_call("cuLaunchKernel");
    let f = unsafe { &*(function as *const Function) };
    let kernel = &f.module.kernels[f.index];
    let refused = if gx == 0 || gy == 0 || gz == 0 || gy > 65535 || gz > 65535 {
        Some(format!("a grid of {gx} x {gy} x {gz}"))
    } else if bx * by * bz > 1024 || bz > 64 {
        Some(format!("blocks of {bx} x {by} x {bz}"))
    } else if kernel.threads.is_some_and(|t| t != (bx, by, bz)) {
        Some(format!("blocks of {bx} x {by} x {bz}, compiled for {:?}", kernel.threads))
    } else if kernel.shared + shared as usize > f.max_shared {
        Some(format!("{shared} bytes of shared memory, {} allowed", f.max_shared))
    } else {
        None
    };
    if let Some(what) = refused {
        warn(&format!("{}: {what}", kernel.name));
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
    unsafe { perform_or_record(stream, node) }
}
