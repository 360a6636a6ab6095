//! The next layer, or the driver: its functions, as the loader names them when an instance or a
//! device is made.

use std::{collections::HashMap, ffi::CStr, ffi::c_void, mem::transmute_copy, sync::RwLock};

use ash::vk;

/// A structure in the chain that an instance or a device is made by, where the loader names the
/// next layer.
#[repr(C)]
struct LayerCreateInfo {
    s_type: vk::StructureType,
    next: *const c_void,
    function: u32,
    link: *mut Link,
}

/// The layer that comes next, and what comes after it.
#[repr(C)]
pub struct Link {
    next: *mut Link,
    pub instance_functions: vk::PFN_vkGetInstanceProcAddr,
    /// Of a device: its functions. Of an instance: nothing that is needed here.
    pub device_functions: vk::PFN_vkGetDeviceProcAddr,
}

/// Takes the next layer out of a chain, so that it finds the one after it there.
///
/// # Safety
/// `chain` is what the loader made.
pub unsafe fn take_link(chain: *const c_void, s_type: vk::StructureType) -> Option<&'static Link> {
    const LINK: u32 = 0;
    let mut at = chain as *mut LayerCreateInfo;
    while !at.is_null() {
        // SAFETY: each structure of a chain begins with its type and the next one's place.
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

/// The functions below.
pub struct Below<Functions>(RwLock<Option<(Functions, HashMap<&'static CStr, Function>)>>);

/// A function of any type.
type Function = unsafe extern "system" fn();

pub static INSTANCE: Below<vk::PFN_vkGetInstanceProcAddr> = Below(RwLock::new(None));
pub static DEVICE: Below<vk::PFN_vkGetDeviceProcAddr> = Below(RwLock::new(None));

impl<Functions: Copy> Below<Functions> {
    /// Remembers those of `names` that `find` finds: a handle may be gone when one is called.
    pub fn set(&self, functions: Functions, names: &[&'static CStr], find: impl Fn(&CStr) -> vk::PFN_vkVoidFunction) {
        let found = names.iter().filter_map(|name| Some((*name, find(name)?))).collect();
        *self.0.write().unwrap() = Some((functions, found));
    }

    /// What gives functions by name below.
    pub fn functions(&self) -> Option<Functions> {
        self.0.read().unwrap().as_ref().map(|(functions, _)| *functions)
    }

    /// The function of this name below.
    ///
    /// # Safety
    /// `F` is its type.
    pub unsafe fn function<F>(&self, name: &CStr) -> F {
        let below = self.0.read().unwrap();
        let function = below.as_ref().and_then(|(_, found)| found.get(name)).expect("below has it too");
        // SAFETY: a pointer to a function is what `F` is.
        unsafe { transmute_copy(function) }
    }
}
