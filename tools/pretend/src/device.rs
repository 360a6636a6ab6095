//! Simulated device failures: out of memory, a refused kernel, a lost device.

use std::collections::HashMap;
use std::ffi::CStr;
use std::mem::transmute;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use ash::vk::{self, Handle};

use crate::next_layer::DEVICE;
use crate::times::{Work, timed};
use crate::wish::Wish;

/// The next layer's functions that are called here.
pub const NAMES: &[&CStr] = &[
    c"vkAllocateMemory",
    c"vkFreeMemory",
    c"vkQueueSubmit",
    c"vkWaitForFences",
    c"vkWaitSemaphores",
    c"vkCreateShaderModule",
    c"vkCreateComputePipelines",
];

/// This layer's function of that name, if it intercepts it.
pub fn interceptor(name: &CStr) -> vk::PFN_vkVoidFunction {
    // SAFETY: function pointers have the void type until they are cast back for the call.
    unsafe {
        Some(match name.to_bytes() {
            b"vkAllocateMemory" => transmute::<vk::PFN_vkAllocateMemory, unsafe extern "system" fn()>(allocate),
            b"vkFreeMemory" => transmute::<vk::PFN_vkFreeMemory, unsafe extern "system" fn()>(free),
            b"vkQueueSubmit" => transmute::<vk::PFN_vkQueueSubmit, unsafe extern "system" fn()>(submit),
            b"vkWaitForFences" => transmute::<vk::PFN_vkWaitForFences, unsafe extern "system" fn()>(wait_for_fences),
            b"vkWaitSemaphores" => transmute::<vk::PFN_vkWaitSemaphores, unsafe extern "system" fn()>(wait_semaphores),
            b"vkCreateShaderModule" => {
                transmute::<vk::PFN_vkCreateShaderModule, unsafe extern "system" fn()>(create_shader)
            }
            b"vkCreateComputePipelines" => {
                transmute::<vk::PFN_vkCreateComputePipelines, unsafe extern "system" fn()>(create_pipelines)
            }
            _ => return None,
        })
    }
}

/// Number of submissions so far.
static SUBMITTED: AtomicU64 = AtomicU64::new(0);

/// Sizes in bytes of the current allocations, by handle.
static ALLOCATED: LazyLock<Mutex<HashMap<u64, u64>>> = LazyLock::new(Mutex::default);

// SAFETY of all functions below: the program calls them with valid arguments, as the Vulkan
// specification requires, and they pass these on.

unsafe extern "system" fn allocate(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    let mut allocated = ALLOCATED.lock().unwrap();
    unsafe {
        let (wish, bytes) = (Wish::get(), (*info).allocation_size);
        let taken = wish.taken.is_some_and(|from| SUBMITTED.load(Ordering::SeqCst) >= from);
        if taken || wish.memory.is_some_and(|most| allocated.values().sum::<u64>() + bytes > most) {
            return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
        }
        let next: vk::PFN_vkAllocateMemory = DEVICE.function(c"vkAllocateMemory");
        let result = next(device, info, allocator, memory);
        if result == vk::Result::SUCCESS {
            allocated.insert((*memory).as_raw(), bytes);
        }
        result
    }
}

unsafe extern "system" fn free(
    device: vk::Device,
    memory: vk::DeviceMemory,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    ALLOCATED.lock().unwrap().remove(&memory.as_raw());
    unsafe {
        let next: vk::PFN_vkFreeMemory = DEVICE.function(c"vkFreeMemory");
        next(device, memory, allocator);
    }
}

unsafe extern "system" fn submit(
    queue: vk::Queue,
    count: u32,
    submissions: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    let wish = Wish::get();
    if wish.after.as_ref().is_none_or(|file| file.exists()) {
        let number = SUBMITTED.fetch_add(1, Ordering::SeqCst);
        if wish.lost.is_some_and(|lost| number >= lost) {
            return vk::Result::ERROR_DEVICE_LOST;
        }
    }
    unsafe {
        let next: vk::PFN_vkQueueSubmit = DEVICE.function(c"vkQueueSubmit");
        timed(Work::Other, || next(queue, count, submissions, fence))
    }
}

unsafe extern "system" fn wait_for_fences(
    device: vk::Device,
    count: u32,
    fences: *const vk::Fence,
    all: vk::Bool32,
    nanoseconds: u64,
) -> vk::Result {
    unsafe {
        let next: vk::PFN_vkWaitForFences = DEVICE.function(c"vkWaitForFences");
        timed(Work::Other, || next(device, count, fences, all, nanoseconds))
    }
}

unsafe extern "system" fn wait_semaphores(
    device: vk::Device,
    info: *const vk::SemaphoreWaitInfo<'_>,
    nanoseconds: u64,
) -> vk::Result {
    unsafe {
        let next: vk::PFN_vkWaitSemaphores = DEVICE.function(c"vkWaitSemaphores");
        timed(Work::Other, || next(device, info, nanoseconds))
    }
}

unsafe extern "system" fn create_shader(
    device: vk::Device,
    info: *const vk::ShaderModuleCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    shader: *mut vk::ShaderModule,
) -> vk::Result {
    unsafe {
        let next: vk::PFN_vkCreateShaderModule = DEVICE.function(c"vkCreateShaderModule");
        timed(Work::Compiling, || next(device, info, allocator, shader))
    }
}

unsafe extern "system" fn create_pipelines(
    device: vk::Device,
    cache: vk::PipelineCache,
    count: u32,
    infos: *const vk::ComputePipelineCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    pipelines: *mut vk::Pipeline,
) -> vk::Result {
    unsafe {
        let mut names =
            slice::from_raw_parts(infos, count as usize).iter().map(|info| CStr::from_ptr(info.stage.p_name));
        if let Some(word) = &Wish::get().refused
            && names.any(|name| name.to_string_lossy().contains(word.as_str()))
        {
            return vk::Result::ERROR_UNKNOWN;
        }
        let next: vk::PFN_vkCreateComputePipelines = DEVICE.function(c"vkCreateComputePipelines");
        timed(Work::Compiling, || next(device, cache, count, infos, allocator, pipelines))
    }
}
