//! What both optimizers share: the rate of a step, and the moments of the gradients.

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor, TensorData};

use crate::error::OptimizerError;

/// Muon's kind of moment: the running mean of the gradient.
pub(super) const MOMENTUM: &str = "momentum";

/// How far a step goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) learning_rate: f64,
    /// The clipping factor of the gradients.
    pub(super) gradient_scale: f64,
}

/// The running means of gradients, flattened, keyed by the parameter's name and the kind: AdamW's
/// `first` and `second`, Muon's `momentum`.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments(BTreeMap<(String, &'static str), Tensor<1>>);

impl Moments {
    /// Takes out a moment of the parameter `name`; it is zero before the first step.
    pub(super) fn take<const D: usize>(&mut self, kind: &'static str, name: &str, parameter: &Tensor<D>) -> Tensor<1> {
        let zeros = || Tensor::zeros([parameter.dims().iter().product::<usize>()], &parameter.device());
        self.0.remove(&(name.to_owned(), kind)).unwrap_or_else(zeros)
    }

    pub(super) fn put(&mut self, kind: &'static str, name: &str, moment: Tensor<1>) {
        self.0.insert((name.to_owned(), kind), moment);
    }

    /// Number of values stored.
    pub(super) fn values(&self) -> usize {
        self.0.values().map(|moment| moment.dims()[0]).sum()
    }

    /// Every moment by name (`first.h.0...`), on the host: AdamW's, then Muon's.
    pub(super) fn stored(&self) -> Vec<(String, Vec<f32>)> {
        let values = |moment: &Tensor<1>| moment.clone().into_data().iter::<f32>().collect();
        let mut moments: Vec<_> = self.0.iter().collect();
        moments.sort_by_key(|((_, kind), _)| *kind == MOMENTUM); // false comes first
        moments.into_iter().map(|((name, kind), moment)| (format!("{kind}.{name}"), values(moment))).collect()
    }

    /// Restores the moment `kind` of the parameter `name`, which has `n` values.
    pub(super) fn restore(
        &mut self,
        kind: &'static str,
        name: &str,
        n: usize,
        stored: &mut BTreeMap<String, Vec<f32>>,
        device: &Device,
    ) -> Result<(), OptimizerError> {
        let values = stored.remove(&format!("{kind}.{name}")).unwrap_or_default();
        if values.len() != n {
            return Err(OptimizerError::NoMoment { kind, size: n, parameter: name.to_owned() });
        }
        self.put(kind, name, Tensor::from_data(TensorData::new(values, [n]), device));
        Ok(())
    }
}
