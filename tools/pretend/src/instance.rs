//! Lowers the limits and features that an adapter reports.

use std::{ffi::CStr, ffi::c_void, mem::transmute};

use ash::vk;

use crate::next_layer::{DEVICE, INSTANCE, take_link};
use crate::{device, wish::Wish};

/// The next layer's functions that are called here.
const NAMES: &[&CStr] = &[
    c"vkCreateDevice",
    c"vkGetPhysicalDeviceProperties",
    c"vkGetPhysicalDeviceProperties2",
    c"vkGetPhysicalDeviceFeatures2",
    c"vkGetPhysicalDeviceMemoryProperties",
    c"vkGetPhysicalDeviceMemoryProperties2",
];

/// This layer's function of that name, if it intercepts it.
pub fn interceptor(name: &CStr) -> vk::PFN_vkVoidFunction {
    // SAFETY: function pointers have the void type until they are cast back for the call.
    unsafe {
        Some(match name.to_bytes() {
            b"vkCreateInstance" => transmute::<vk::PFN_vkCreateInstance, unsafe extern "system" fn()>(create_instance),
            b"vkCreateDevice" => transmute::<vk::PFN_vkCreateDevice, unsafe extern "system" fn()>(create_device),
            b"vkGetPhysicalDeviceProperties" => {
                transmute::<vk::PFN_vkGetPhysicalDeviceProperties, unsafe extern "system" fn()>(properties)
            }
            b"vkGetPhysicalDeviceProperties2" | b"vkGetPhysicalDeviceProperties2KHR" => {
                transmute::<vk::PFN_vkGetPhysicalDeviceProperties2, unsafe extern "system" fn()>(properties2)
            }
            b"vkGetPhysicalDeviceFeatures2" | b"vkGetPhysicalDeviceFeatures2KHR" => {
                transmute::<vk::PFN_vkGetPhysicalDeviceFeatures2, unsafe extern "system" fn()>(features2)
            }
            b"vkGetPhysicalDeviceMemoryProperties" => {
                transmute::<vk::PFN_vkGetPhysicalDeviceMemoryProperties, unsafe extern "system" fn()>(memory)
            }
            b"vkGetPhysicalDeviceMemoryProperties2" | b"vkGetPhysicalDeviceMemoryProperties2KHR" => {
                transmute::<vk::PFN_vkGetPhysicalDeviceMemoryProperties2, unsafe extern "system" fn()>(memory2)
            }
            _ => return None,
        })
    }
}

// SAFETY of all functions below: the program calls them with valid arguments, as the Vulkan
// specification requires, and they pass these on.

unsafe extern "system" fn create_instance(
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    instance: *mut vk::Instance,
) -> vk::Result {
    unsafe {
        let Some(link) = take_link((*info).p_next, vk::StructureType::LOADER_INSTANCE_CREATE_INFO) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let Some(create) = (link.instance_functions)(vk::Instance::null(), c"vkCreateInstance".as_ptr()) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let functions = link.instance_functions;
        let result =
            transmute::<unsafe extern "system" fn(), vk::PFN_vkCreateInstance>(create)(info, allocator, instance);
        if result == vk::Result::SUCCESS {
            INSTANCE.set(functions, NAMES, |name| functions(*instance, name.as_ptr()));
        }
        result
    }
}

unsafe extern "system" fn create_device(
    adapter: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    device: *mut vk::Device,
) -> vk::Result {
    unsafe {
        let Some(link) = take_link((*info).p_next, vk::StructureType::LOADER_DEVICE_CREATE_INFO) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let functions = link.device_functions;
        let create: vk::PFN_vkCreateDevice = INSTANCE.function(c"vkCreateDevice");
        let result = create(adapter, info, allocator, device);
        if result == vk::Result::SUCCESS {
            DEVICE.set(functions, device::NAMES, |name| functions(*device, name.as_ptr()));
        }
        result
    }
}

unsafe extern "system" fn properties(adapter: vk::PhysicalDevice, properties: *mut vk::PhysicalDeviceProperties) {
    unsafe {
        let next: vk::PFN_vkGetPhysicalDeviceProperties = INSTANCE.function(c"vkGetPhysicalDeviceProperties");
        next(adapter, properties);
        reduce_limits(&mut *properties, Wish::get());
    }
}

unsafe extern "system" fn properties2(adapter: vk::PhysicalDevice, properties: *mut vk::PhysicalDeviceProperties2<'_>) {
    let wish = Wish::get();
    unsafe {
        let next: vk::PFN_vkGetPhysicalDeviceProperties2 = INSTANCE.function(c"vkGetPhysicalDeviceProperties2");
        next(adapter, properties);
        reduce_limits(&mut (*properties).properties, wish);
        for_each_structure((*properties).p_next, |s_type, structure| match s_type {
            vk::StructureType::PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES => {
                let structure = structure as *mut vk::PhysicalDeviceMaintenance3Properties<'_>;
                lower(&mut (*structure).max_memory_allocation_size, wish.buffer);
            }
            vk::StructureType::PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES => {
                let structure = structure as *mut vk::PhysicalDeviceMaintenance4Properties<'_>;
                lower(&mut (*structure).max_buffer_size, wish.buffer);
            }
            vk::StructureType::PHYSICAL_DEVICE_SUBGROUP_PROPERTIES => {
                let structure = structure as *mut vk::PhysicalDeviceSubgroupProperties<'_>;
                if wish.no_subgroups {
                    (*structure).supported_operations = vk::SubgroupFeatureFlags::empty();
                }
                (*structure).subgroup_size = wish.subgroup.unwrap_or((*structure).subgroup_size);
            }
            vk::StructureType::PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES => {
                let structure = structure as *mut vk::PhysicalDeviceSubgroupSizeControlProperties<'_>;
                (*structure).min_subgroup_size = wish.subgroup.unwrap_or((*structure).min_subgroup_size);
                (*structure).max_subgroup_size = wish.subgroup.unwrap_or((*structure).max_subgroup_size);
            }
            _ => (),
        });
    }
}

/// Lowers the limits and changes the device type as `wish` says.
fn reduce_limits(properties: &mut vk::PhysicalDeviceProperties, wish: &Wish) {
    let limits = &mut properties.limits;
    lower(&mut limits.max_compute_shared_memory_size, wish.shared);
    lower(&mut limits.max_compute_work_group_invocations, wish.invocations);
    limits.max_compute_work_group_size.iter_mut().for_each(|side| lower(side, wish.invocations));
    limits.max_compute_work_group_count.iter_mut().for_each(|count| lower(count, wish.groups));
    lower(&mut limits.max_per_stage_descriptor_storage_buffers, wish.buffers);
    // This limit is for all stages together; a program assumes two stages.
    lower(&mut limits.max_descriptor_set_storage_buffers, wish.buffers.map(|buffers| 2 * buffers));
    lower(&mut limits.max_storage_buffer_range, wish.binding);
    if wish.card {
        properties.device_type = vk::PhysicalDeviceType::DISCRETE_GPU;
    }
}

unsafe extern "system" fn features2(adapter: vk::PhysicalDevice, features: *mut vk::PhysicalDeviceFeatures2<'_>) {
    unsafe {
        let next: vk::PFN_vkGetPhysicalDeviceFeatures2 = INSTANCE.function(c"vkGetPhysicalDeviceFeatures2");
        next(adapter, features);
        let wish = Wish::get();
        if wish.no_wide_numbers {
            (*features).features.shader_int64 = vk::FALSE;
            (*features).features.shader_float64 = vk::FALSE;
        }
        for_each_structure((*features).p_next, |s_type, structure| match s_type {
            vk::StructureType::PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT if wish.no_float_atomics => {
                let structure = structure as *mut vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT<'_>;
                (*structure).shader_buffer_float32_atomics = vk::FALSE;
                (*structure).shader_buffer_float32_atomic_add = vk::FALSE;
            }
            vk::StructureType::PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES if wish.no_float16 => {
                (*(structure as *mut vk::PhysicalDeviceShaderFloat16Int8Features<'_>)).shader_float16 = vk::FALSE;
            }
            vk::StructureType::PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES if wish.no_float16 => {
                let structure = structure as *mut vk::PhysicalDevice16BitStorageFeatures<'_>;
                (*structure).storage_buffer16_bit_access = vk::FALSE;
                (*structure).uniform_and_storage_buffer16_bit_access = vk::FALSE;
            }
            _ => (),
        });
    }
}

unsafe extern "system" fn memory(adapter: vk::PhysicalDevice, memory: *mut vk::PhysicalDeviceMemoryProperties) {
    unsafe {
        let next: vk::PFN_vkGetPhysicalDeviceMemoryProperties =
            INSTANCE.function(c"vkGetPhysicalDeviceMemoryProperties");
        next(adapter, memory);
        (*memory).memory_heaps.iter_mut().for_each(|heap| lower(&mut heap.size, Wish::get().memory));
    }
}

unsafe extern "system" fn memory2(adapter: vk::PhysicalDevice, memory: *mut vk::PhysicalDeviceMemoryProperties2<'_>) {
    unsafe {
        let next: vk::PFN_vkGetPhysicalDeviceMemoryProperties2 =
            INSTANCE.function(c"vkGetPhysicalDeviceMemoryProperties2");
        next(adapter, memory);
        let heaps = &mut (*memory).memory_properties.memory_heaps;
        heaps.iter_mut().for_each(|heap| lower(&mut heap.size, Wish::get().memory));
    }
}

/// Calls `f` with each structure of a chain and its type.
///
/// # Safety
/// `chain` is a chain of Vulkan's structures.
unsafe fn for_each_structure(chain: *mut c_void, mut f: impl FnMut(vk::StructureType, *mut c_void)) {
    let mut at = chain as *mut vk::BaseOutStructure<'_>;
    while !at.is_null() {
        // SAFETY: each structure of a chain begins with its type and a pointer to the next.
        unsafe {
            f((*at).s_type, at as *mut c_void);
            at = (*at).p_next;
        }
    }
}

fn lower<T: Ord + Copy>(limit: &mut T, most: Option<T>) {
    *limit = most.map_or(*limit, |most| most.min(*limit));
}
