//! The functions of the next layer or the driver, which the loader provides when an instance or a
//! device is created.

use std::{collections::HashMap, ffi::CStr, ffi::c_void, mem::transmute_copy, sync::RwLock};

use ash::vk;

/// The structure in the `pNext` chain of a create call in which the loader names the next layer.
#[repr(C)]
struct LayerCreateInfo {
    s_type: vk::StructureType,
    next: *const c_void,
    function: u32,
    link: *mut Link,
}

/// A layer in the loader's list of layers.
#[repr(C)]
pub struct Link {
    next: *mut Link,
    pub instance_functions: vk::PFN_vkGetInstanceProcAddr,
    /// The device's functions; not used for an instance.
    pub device_functions: vk::PFN_vkGetDeviceProcAddr,
}

/// Removes the next layer from a chain, so that the next layer finds its successor there.
///
/// # Safety
/// `chain` is a chain made by the loader.
pub unsafe fn take_link(chain: *const c_void, s_type: vk::StructureType) -> Option<&'static Link> {
    const LINK: u32 = 0;
    let mut at = chain as *mut LayerCreateInfo;
    while !at.is_null() {
        // SAFETY: each structure of a chain begins with its type and a pointer to the next.
        unsafe {
            if (*at).s_type == s_type && (*at).function == LINK {
                let link = (*at).link;
                (*at).link = (*link).next;
                return Some(&*link);
            }
            at = (*at).next as *mut LayerCreateInfo;
        }
    }
    None
}

/// The functions of the next layer.
pub struct NextLayer<Functions>(RwLock<Option<(Functions, HashMap<&'static CStr, Function>)>>);

/// A function of any type.
type Function = unsafe extern "system" fn();

pub static INSTANCE: NextLayer<vk::PFN_vkGetInstanceProcAddr> = NextLayer(RwLock::new(None));
pub static DEVICE: NextLayer<vk::PFN_vkGetDeviceProcAddr> = NextLayer(RwLock::new(None));

impl<Functions: Copy> NextLayer<Functions> {
    /// Stores those of `names` that `find` finds now: later the handle may no longer exist.
    pub fn set(&self, functions: Functions, names: &[&'static CStr], find: impl Fn(&CStr) -> vk::PFN_vkVoidFunction) {
        let found = names.iter().filter_map(|name| Some((*name, find(name)?))).collect();
        *self.0.write().unwrap() = Some((functions, found));
    }

    /// The next layer's function that looks up functions by name.
    pub fn functions(&self) -> Option<Functions> {
        self.0.read().unwrap().as_ref().map(|(functions, _)| *functions)
    }

    /// The next layer's function of this name.
    ///
    /// # Safety
    /// `F` is its type.
    pub unsafe fn function<F>(&self, name: &CStr) -> F {
        let next = self.0.read().unwrap();
        let function = next.as_ref().and_then(|(_, found)| found.get(name)).expect("below has it too");
        // SAFETY: `F` is a function pointer type.
        unsafe { transmute_copy(function) }
    }
}
