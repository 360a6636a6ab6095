//! The adapters behind wgpu: those of Vulkan, DirectX 12 and Metal. OpenGL, which the runtime would
//! take where none of them is there, is left out: our kernels are tested on none of its drivers.

use burn::tensor::Device;
use cubecl::device::WgpuDeviceKind::{Cpu, DiscreteGpu, IntegratedGpu, Other, VirtualGpu};
use cubecl::device::{WgpuBackend, WgpuDevice, WgpuDeviceKind};
use cubecl::wgpu::wgpu::{self, Backends, DeviceType, Features, Instance, InstanceDescriptor};
use cubecl_environment::future::block_on;
use serde::Serialize;

/// What is asked for adapters, in this order.
const INTERFACES: &[WgpuBackend] = if cfg!(target_os = "macos") {
    &[WgpuBackend::Auto] // Metal, the only one there
} else {
    &[WgpuBackend::Vulkan, WgpuBackend::Dx12]
};

/// Cards, the faster kinds first, and then software.
const KINDS: [WgpuDeviceKind; 5] = [DiscreteGpu(0), IntegratedGpu(0), VirtualGpu(0), Other(0), Cpu];

/// What an adapter says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Adapter {
    /// Its interface: Vulkan, Dx12, Metal.
    pub interface: String,
    /// Its driver and that one's version, where it names them.
    pub driver: String,
    /// Sizes of its subgroups, the least and the most, where kernels can use them.
    pub subgroups: Option<[u32; 2]>,
    /// Whether kernels can compute in float16.
    pub float16: bool,
}

/// The adapters of the first interface that knows a card, or else that knows any, cards before
/// software; the others know the same ones. None was tried.
pub fn list() -> Vec<Device> {
    interface().map(|interface| of(interface, &KINDS)).unwrap_or_default()
}

/// What each of [`list`] says of itself.
pub fn said() -> Vec<Adapter> {
    let Some(interface) = interface() else { return Vec::new() };
    let backends = match interface {
        WgpuBackend::Vulkan => Backends::VULKAN,
        WgpuBackend::Dx12 => Backends::DX12,
        _ => Backends::METAL,
    };
    let without_display = InstanceDescriptor::new_without_display_handle();
    let instance = Instance::new(InstanceDescriptor { backends, ..without_display });
    let mut found = block_on(instance.enumerate_adapters(backends));
    let kinds = [DeviceType::DiscreteGpu, DeviceType::IntegratedGpu, DeviceType::VirtualGpu, DeviceType::Other];
    found.sort_by_key(|adapter| {
        kinds.iter().position(|kind| *kind == adapter.get_info().device_type).unwrap_or(kinds.len())
    });
    found.iter().map(Adapter::of).collect()
}

impl Adapter {
    fn of(adapter: &wgpu::Adapter) -> Self {
        let (info, features) = (adapter.get_info(), adapter.features());
        Self {
            interface: format!("{:?}", info.backend),
            driver: [info.driver, info.driver_info].join(" ").trim().to_owned(),
            subgroups: features
                .contains(Features::SUBGROUP)
                .then_some([info.subgroup_min_size, info.subgroup_max_size]),
            float16: features.contains(Features::SHADER_F16),
        }
    }
}

/// The interface that is asked.
fn interface() -> Option<WgpuBackend> {
    let with = |kinds: &[WgpuDeviceKind]| INTERFACES.iter().find(|interface| !of(**interface, kinds).is_empty());
    with(&KINDS[..KINDS.len() - 1]).or_else(|| with(&KINDS)).copied()
}

fn of(interface: WgpuBackend, kinds: &[WgpuDeviceKind]) -> Vec<Device> {
    kinds.iter().flat_map(|kind| like(WgpuDevice::new(kind.clone()).on(interface))).collect()
}

/// All adapters of the kind and the interface of one, which need not be there.
fn like(one: WgpuDevice) -> Vec<Device> {
    let ids = cubecl::Device::enumerate(cubecl::Device::Wgpu(one).to_id());
    ids.into_iter().map(|id| Device::new(cubecl::Device::from_id(id))).collect()
}
