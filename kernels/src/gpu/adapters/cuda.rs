//! The GPUs of CUDA's driver.

use burn::tensor::{Device, DeviceType};
use cudarc::driver::{DriverError, result, sys};

use super::Adapter;

/// The GPUs in the order of their numbers, without opening them. One that its driver cannot
/// describe is `unnamed`.
///
/// # Panics
/// If CUDA's driver is missing.
pub fn list() -> Vec<(Device, Adapter)> {
    let devices = Device::enumerate(DeviceType::Cuda).into_vec().into_iter().enumerate();
    devices.map(|(number, device)| (device, adapter(number).unwrap_or_else(|_| unnamed()))).collect()
}

fn adapter(number: usize) -> Result<Adapter, DriverError> {
    result::init()?;
    let device = result::device::get(number as i32)?;
    let (mut version, mut place) = (0, [0; 32]);
    // SAFETY: the driver is initialised; it writes its version to a number, and the card's PCI bus
    // id to a buffer of the given length. The device is one of the driver's.
    let (is_card, memory) = unsafe {
        sys::cuDriverGetVersion(&mut version).result()?;
        let sits = sys::cuDeviceGetPCIBusId(place.as_mut_ptr(), place.len() as i32, device);
        (sits.result().is_ok(), result::device::total_mem(device))
    };
    Ok(Adapter {
        name: result::device::get_name(device)?,
        is_card,
        driver: format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        memory_bytes: memory.ok().map(|bytes| bytes as u64),
        ..unnamed()
    })
}

fn unnamed() -> Adapter {
    Adapter {
        name: "unnamed".to_owned(),
        is_card: false,
        interface: "CUDA".to_owned(),
        driver: String::new(),
        memory_bytes: None,
        subgroups: Some([32; 2]),
        float16: true,
    }
}
