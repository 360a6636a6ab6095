//! A Vulkan layer that makes an adapter report lower limits, or fail. `README.md` describes its
//! use, [`Wish`] the options.
//!
//! A layer sits between the program and the driver. The loader passes it the next layer's functions
//! when an instance or a device is created; it intercepts a few of them and forwards the rest
//! ("Architecture of the Vulkan Loader Interfaces", Khronos). It keeps the next layer's functions
//! only for the newest instance and device, so it works for programs that use one driver.

mod device;
mod instance;
mod next_layer;
mod times;
mod wish;

use std::ffi::{CStr, c_char};

use ash::vk;

use next_layer::{DEVICE, INSTANCE};
use wish::Wish;

/// The structure by which loader and layer negotiate the interface version.
#[repr(C)]
pub struct NegotiateLayerInterface {
    s_type: u32,
    next: *mut (),
    version: u32,
    instance_functions: Option<vk::PFN_vkGetInstanceProcAddr>,
    device_functions: Option<vk::PFN_vkGetDeviceProcAddr>,
    physical_device_functions: *const (),
}

/// # Safety
/// Called only by the loader, with a valid structure.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn vkNegotiateLoaderLayerInterfaceVersion(with: *mut NegotiateLayerInterface) -> vk::Result {
    // SAFETY: the loader passes a valid structure.
    let with = unsafe { &mut *with };
    with.version = with.version.min(2);
    with.instance_functions = Some(instance_function);
    with.device_functions = Some(device_function);
    with.physical_device_functions = std::ptr::null();
    Wish::get();
    vk::Result::SUCCESS
}

unsafe extern "system" fn instance_function(of: vk::Instance, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: the loader passes names as C strings.
    let wanted = unsafe { CStr::from_ptr(name) };
    if wanted == c"vkGetInstanceProcAddr" {
        // SAFETY: function pointers have the void type until they are cast back for the call.
        return unsafe {
            std::mem::transmute::<vk::PFN_vkGetInstanceProcAddr, vk::PFN_vkVoidFunction>(instance_function)
        };
    }
    let ours = instance::interceptor(wanted).or_else(|| device_interceptor(wanted));
    // SAFETY: the loader's arguments are passed on.
    ours.or_else(|| INSTANCE.functions().and_then(|next| unsafe { next(of, name) }))
}

unsafe extern "system" fn device_function(of: vk::Device, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: the loader passes names as C strings.
    let ours = device_interceptor(unsafe { CStr::from_ptr(name) });
    // SAFETY: the loader's arguments are passed on.
    ours.or_else(|| DEVICE.functions().and_then(|next| unsafe { next(of, name) }))
}

fn device_interceptor(name: &CStr) -> vk::PFN_vkVoidFunction {
    if name == c"vkGetDeviceProcAddr" {
        // SAFETY: function pointers have the void type until they are cast back for the call.
        return unsafe { std::mem::transmute::<vk::PFN_vkGetDeviceProcAddr, vk::PFN_vkVoidFunction>(device_function) };
    }
    device::interceptor(name)
}
