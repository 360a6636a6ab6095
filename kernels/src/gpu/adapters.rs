//! The adapters behind wgpu: those of Vulkan, DirectX 12 and Metal. OpenGL, which the runtime would
//! take where none of them is there, is left out: our kernels are tested on none of its drivers.

use burn::tensor::Device;
use cubecl::device::{WgpuBackend, WgpuDevice, WgpuDeviceKind};

/// What is asked for adapters, in this order.
const INTERFACES: &[WgpuBackend] = if cfg!(target_os = "macos") {
    &[WgpuBackend::Auto] // Metal, the only one there
} else {
    &[WgpuBackend::Vulkan, WgpuBackend::Dx12]
};

/// Cards, the faster kinds first.
const CARDS: [WgpuDeviceKind; 4] = [
    WgpuDeviceKind::DiscreteGpu(0),
    WgpuDeviceKind::IntegratedGpu(0),
    WgpuDeviceKind::VirtualGpu(0),
    WgpuDeviceKind::Other(0),
];

/// The adapters of the first interface that knows a card, or else that knows any, cards before
/// software; the others know the same ones. None was tried.
pub fn list() -> Vec<Device> {
    let of_interface = |interface: &WgpuBackend| {
        let of_kind = |kind: &WgpuDeviceKind| like(WgpuDevice::new(kind.clone()).on(*interface));
        (CARDS.iter().flat_map(of_kind).collect::<Vec<_>>(), of_kind(&WgpuDeviceKind::Cpu))
    };
    let mut software = Vec::new();
    for (cards, others) in INTERFACES.iter().map(of_interface) {
        if !cards.is_empty() {
            return cards.into_iter().chain(others).collect();
        }
        if software.is_empty() {
            software = others;
        }
    }
    software
}

/// All adapters of the kind and the interface of one, which need not be there.
fn like(one: WgpuDevice) -> Vec<Device> {
    let ids = cubecl::Device::enumerate(cubecl::Device::Wgpu(one).to_id());
    ids.into_iter().map(|id| Device::new(cubecl::Device::from_id(id))).collect()
}
