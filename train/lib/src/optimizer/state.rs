//! What an optimizer remembers, on its way from a checkpoint back into tensors.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor, TensorData};

use super::Error;

/// The stored tensors of an optimizer by name, handed out once each.
pub(super) struct Stored<'a> {
    pub(super) tensors: BTreeMap<String, Vec<f32>>,
    pub(super) device: &'a Device,
}

impl Stored<'_> {
    /// What is stored as `kind` of the parameter `name`, which has `n` values.
    pub(super) fn take(&mut self, kind: &'static str, name: &str, n: usize) -> Result<Tensor<1>, Error> {
        let values = self.tensors.remove(&format!("{kind}.{name}")).unwrap_or_default();
        if values.len() != n {
            return Err(Error::NoMoment { kind, size: n, parameter: name.to_owned() });
        }
        Ok(Tensor::from_data(TensorData::new(values, [n]), self.device))
    }
}

/// The values of a flat tensor, on the host.
pub(super) fn flat_values(tensor: &Tensor<1>) -> Vec<f32> {
    tensor.clone().into_data().iter::<f32>().collect()
}
