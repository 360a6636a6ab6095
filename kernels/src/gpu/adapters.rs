//! The adapters behind wgpu: those of Vulkan, DirectX 12 and Metal. OpenGL, which the runtime would
//! take where none of them is there, is left out: our kernels are tested on none of its drivers.

use burn::tensor::Device;
use cubecl::device::WgpuDeviceKind::{Cpu, DiscreteGpu, IntegratedGpu, Other, VirtualGpu};
use cubecl::device::{WgpuBackend, WgpuDevice, WgpuDeviceKind};

/// What is asked for adapters, in this order.
const INTERFACES: &[WgpuBackend] = if cfg!(target_os = "macos") {
    &[WgpuBackend::Auto] // Metal, the only one there
} else {
    &[WgpuBackend::Vulkan, WgpuBackend::Dx12]
};

/// Cards, the faster kinds first, and then software.
const KINDS: [WgpuDeviceKind; 5] = [DiscreteGpu(0), IntegratedGpu(0), VirtualGpu(0), Other(0), Cpu];

/// The adapters of the first interface that knows a card, or else that knows any, cards before
/// software; the others know the same ones. None was tried.
pub fn list() -> Vec<Device> {
    let of = |interface: &WgpuBackend, kinds: &[WgpuDeviceKind]| -> Vec<Device> {
        kinds.iter().flat_map(|kind| like(WgpuDevice::new(kind.clone()).on(*interface))).collect()
    };
    let with = |kinds: &[WgpuDeviceKind]| INTERFACES.iter().find(|interface| !of(interface, kinds).is_empty());
    let interface = with(&KINDS[..KINDS.len() - 1]).or_else(|| with(&KINDS));
    interface.map(|interface| of(interface, &KINDS)).unwrap_or_default()
}

/// All adapters of the kind and the interface of one, which need not be there.
fn like(one: WgpuDevice) -> Vec<Device> {
    let ids = cubecl::Device::enumerate(cubecl::Device::Wgpu(one).to_id());
    ids.into_iter().map(|id| Device::new(cubecl::Device::from_id(id))).collect()
}
