//! What an optimizer's parts are told of a step, and what they remember, on its way from a
//! checkpoint back into tensors.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor, TensorData};

use crate::error::OptimizerError;

/// One stored moment: name, values.
pub type StoredTensor = (String, Vec<f32>);

/// What a step is taken with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) learning_rate: f64,
    /// What clipping multiplies the gradients by.
    pub(super) gradient_scale: f64,
}

/// The stored tensors of an optimizer by name, handed out once each.
pub(super) struct Stored<'a> {
    pub(super) tensors: BTreeMap<String, Vec<f32>>,
    pub(super) device: &'a Device,
}

impl Stored<'_> {
    /// What is stored as `kind` of the parameter `name`, which has `n` values.
    pub(super) fn take(&mut self, kind: &'static str, name: &str, n: usize) -> Result<Tensor<1>, OptimizerError> {
        let values = self.tensors.remove(&format!("{kind}.{name}")).unwrap_or_default();
        if values.len() != n {
            return Err(OptimizerError::NoMoment { kind, size: n, parameter: name.to_owned() });
        }
        Ok(Tensor::from_data(TensorData::new(values, [n]), self.device))
    }
}

/// The values of a flat tensor, on the host.
pub(super) fn flat_values(tensor: &Tensor<1>) -> Vec<f32> {
    tensor.clone().into_data().iter::<f32>().collect()
}
