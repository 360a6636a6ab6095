//! The adapters behind wgpu: those of Vulkan, DirectX 12 and Metal. OpenGL, the runtime's fallback,
//! is left out: our kernels are not tested on any of its drivers.

use burn::tensor::Device;
use cubecl::device::WgpuDeviceKind::{Cpu, DiscreteGpu, IntegratedGpu, Other, VirtualGpu};
use cubecl::device::{WgpuBackend, WgpuDevice, WgpuDeviceKind};
use cubecl::wgpu::wgpu::{self, Backends, DeviceType, Features, Instance, InstanceDescriptor};
use cubecl_environment::future::block_on;

use super::Adapter;

/// The interfaces that are asked for adapters, in this order.
const INTERFACES: &[WgpuBackend] = if cfg!(target_os = "macos") {
    &[WgpuBackend::Auto] // Metal, the only interface
} else {
    &[WgpuBackend::Vulkan, WgpuBackend::Dx12]
};

/// The adapters of the first interface that has a card, or else of the first that has any, cards
/// before software; other interfaces would list the same ones. They are not opened: for an open
/// device a thread of the runtime polls for work until the program ends, which takes a tenth of a
/// core when idle.
pub fn list() -> Vec<(Device, Adapter)> {
    let of = |(device, adapter)| (Device::new(cubecl::Device::Wgpu(device)), Adapter::of(&adapter));
    found().into_iter().map(of).collect()
}

/// The adapters of [`list`], with the runtime's identifiers.
fn found() -> Vec<(WgpuDevice, wgpu::Adapter)> {
    let mut software = Vec::new();
    for interface in INTERFACES {
        let adapters = on(*interface);
        if adapters.iter().any(|(device, _)| device.kind != Cpu) {
            return adapters;
        }
        if software.is_empty() {
            software = adapters;
        }
    }
    software
}

/// The adapters of an interface. Each call loads all drivers.
fn on(interface: WgpuBackend) -> Vec<(WgpuDevice, wgpu::Adapter)> {
    let backends = match interface {
        WgpuBackend::Vulkan => Backends::VULKAN,
        WgpuBackend::Dx12 => Backends::DX12,
        _ => Backends::METAL,
    };
    let without_display = InstanceDescriptor::new_without_display_handle();
    let instance = Instance::new(InstanceDescriptor { backends, ..without_display });
    let mut adapters = block_on(instance.enumerate_adapters(backends));
    adapters.sort_by_key(|adapter| sort_key(adapter.get_info().device_type));
    let kinds: Vec<DeviceType> = adapters.iter().map(|adapter| adapter.get_info().device_type).collect();
    // The runtime numbers the adapters of each kind separately, in this order.
    let number = |at: usize| kinds[..at].iter().filter(|kind| **kind == kinds[at]).count();
    let device = |at: usize| WgpuDevice::new(runtime_kind(kinds[at], number(at))).on(interface);
    adapters.into_iter().enumerate().map(|(at, adapter)| (device(at), adapter)).collect()
}

/// Sort key of a kind of adapter: cards first, faster kinds before slower ones, then software.
fn sort_key(kind: DeviceType) -> usize {
    let kinds = [DeviceType::DiscreteGpu, DeviceType::IntegratedGpu, DeviceType::VirtualGpu, DeviceType::Other];
    kinds.iter().position(|other| *other == kind).unwrap_or(kinds.len())
}

/// The runtime's identifier of adapter `number` of a kind.
fn runtime_kind(kind: DeviceType, number: usize) -> WgpuDeviceKind {
    match kind {
        DeviceType::DiscreteGpu => DiscreteGpu(number),
        DeviceType::IntegratedGpu => IntegratedGpu(number),
        DeviceType::VirtualGpu => VirtualGpu(number),
        DeviceType::Other => Other(number),
        DeviceType::Cpu => Cpu,
    }
}

impl Adapter {
    fn of(adapter: &wgpu::Adapter) -> Self {
        let (info, features) = (adapter.get_info(), adapter.features());
        Self {
            name: info.name,
            is_card: info.device_type != DeviceType::Cpu,
            interface: format!("{:?}", info.backend),
            driver: [info.driver, info.driver_info].join(" ").trim().to_owned(),
            memory_bytes: memory_bytes(adapter),
            subgroups: features
                .contains(Features::SUBGROUP)
                .then_some([info.subgroup_min_size, info.subgroup_max_size]),
            float16: features.contains(Features::SHADER_F16),
        }
    }
}

/// Asks Vulkan directly for its memory heaps, because wgpu does not report memory sizes.
#[cfg(not(target_os = "macos"))]
fn memory_bytes(adapter: &wgpu::Adapter) -> Option<u64> {
    /// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`.
    const DEVICE_LOCAL: u32 = 1;
    // SAFETY: the handles are only read, and live as long as the adapter.
    let heaps = unsafe {
        let adapter = adapter.as_hal::<wgpu::hal::api::Vulkan>()?;
        let instance = adapter.shared_instance().raw_instance();
        instance.get_physical_device_memory_properties(adapter.raw_physical_device())
    };
    let heaps = &heaps.memory_heaps[..heaps.memory_heap_count as usize];
    heaps.iter().filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0).map(|heap| heap.size).max()
}

/// wgpu does not report Metal's memory size.
#[cfg(target_os = "macos")]
fn memory_bytes(_: &wgpu::Adapter) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use ember_host::panics::quietly;

    #[test]
    fn adapters_say_what_the_runtime_says_of_them() {
        for (device, adapter) in list() {
            let Ok(Some(identity)) = quietly(|| device.identity()) else { continue }; // it cannot be opened
            assert_eq!((adapter.name, adapter.is_card), (identity.name, identity.physical.is_some()));
        }
    }
}
