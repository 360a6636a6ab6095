//! A Vulkan layer that lets an adapter have less than it has, or fail: `README.md` says how, and
//! [`Wish`] what.
//!
//! A layer stands between the program and the driver. The loader hands it the next one's functions
//! when an instance and a device are made; it answers for the few that it changes and passes on the
//! rest ("Architecture of the Vulkan Loader Interfaces", Khronos). What it remembers of the next is
//! the newest instance's and device's: it is for programs that use one driver.

mod below;
mod device;
mod instance;
mod times;
mod wish;

use std::ffi::{CStr, c_char};

use ash::vk;

use below::{DEVICE, INSTANCE};
use wish::Wish;

/// What a layer and the loader tell each other first.
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
/// Called by the loader alone, with a structure of its own.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn vkNegotiateLoaderLayerInterfaceVersion(with: *mut NegotiateLayerInterface) -> vk::Result {
    // SAFETY: the loader's structure.
    let with = unsafe { &mut *with };
    with.version = with.version.min(2);
    with.instance_functions = Some(instance_function);
    with.device_functions = Some(device_function);
    with.physical_device_functions = std::ptr::null();
    Wish::get();
    vk::Result::SUCCESS
}

unsafe extern "system" fn instance_function(of: vk::Instance, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: names are C strings.
    let wanted = unsafe { CStr::from_ptr(name) };
    if wanted == c"vkGetInstanceProcAddr" {
        // SAFETY: all functions are void ones until they are called.
        return unsafe {
            std::mem::transmute::<vk::PFN_vkGetInstanceProcAddr, vk::PFN_vkVoidFunction>(instance_function)
        };
    }
    let ours = instance::ours(wanted).or_else(|| device_function_of_ours(wanted));
    // SAFETY: as the loader asked us.
    ours.or_else(|| INSTANCE.functions().and_then(|next| unsafe { next(of, name) }))
}

unsafe extern "system" fn device_function(of: vk::Device, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: names are C strings.
    let ours = device_function_of_ours(unsafe { CStr::from_ptr(name) });
    // SAFETY: as the loader asked us.
    ours.or_else(|| DEVICE.functions().and_then(|next| unsafe { next(of, name) }))
}

fn device_function_of_ours(name: &CStr) -> vk::PFN_vkVoidFunction {
    if name == c"vkGetDeviceProcAddr" {
        // SAFETY: all functions are void ones until they are called.
        return unsafe { std::mem::transmute::<vk::PFN_vkGetDeviceProcAddr, vk::PFN_vkVoidFunction>(device_function) };
    }
    device::ours(name)
}
