//! AdamW's arithmetic on the CPU: one pass over parameter, gradient and moments, in place.

use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex, backend_extension};
use ember_model::kernels::flex::{contiguous, new, values, values_mut};
use ember_model::kernels::simd;
use ember_model::simd_versions;
use rayon::prelude::*;

/// Values one task takes; also the unit in which squares are summed.
const CHUNK: usize = 16_384;

/// The numbers of one step for one parameter.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the denominator.
    pub epsilon: f32,
    /// Learning rate over the first moment's bias correction.
    pub step_size: f32,
    /// Root of the second moment's bias correction.
    pub root_correction: f32,
    /// What weight decay leaves of the parameter.
    pub keep: f32,
    /// What clipping leaves of the gradient.
    pub scale: f32,
}

/// Operations without a backward: nobody differentiates an optimizer.
#[backend_extension(Flex)]
pub trait OptimizerOps: Backend {
    /// Parameter, first and second moment after one step.
    fn adamw(
        parameter: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
        update: Update,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
    /// The sum of the squares of all values, `[1]`.
    fn sum_of_squares(gradient: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl OptimizerOps for Flex {
    fn adamw(
        parameter: FlexTensor,
        gradient: FlexTensor,
        first: FlexTensor,
        second: FlexTensor,
        update: Update,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let gradient = contiguous(gradient);
        let [mut parameter, mut first, mut second] = [parameter, first, second].map(contiguous);
        values_mut(&mut parameter)
            .par_chunks_mut(CHUNK)
            .zip(values(&gradient).par_chunks(CHUNK))
            .zip(values_mut(&mut first).par_chunks_mut(CHUNK))
            .zip(values_mut(&mut second).par_chunks_mut(CHUNK))
            .for_each(|(((parameter, gradient), first), second)| step(parameter, gradient, first, second, update));
        (parameter, first, second)
    }

    fn sum_of_squares(gradient: FlexTensor) -> FlexTensor {
        let gradient = contiguous(gradient);
        let partial: Vec<f32> = values(&gradient).par_chunks(CHUNK).map(squares).collect();
        let total: f64 = partial.iter().map(|square| *square as f64).sum();
        new(vec![total as f32], [1])
    }
}

simd_versions! {
    fn step(parameter: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32], update: Update) {
        let Update { beta1, beta2, epsilon, step_size, root_correction, keep, scale } = update;
        let correction = 1.0 / root_correction;
        for (((parameter, gradient), first), second) in parameter.iter_mut().zip(gradient).zip(first).zip(second) {
            let g = gradient * scale;
            *first = beta1 * *first + (1.0 - beta1) * g;
            *second = beta2 * *second + (1.0 - beta2) * g * g;
            *parameter = *parameter * keep - step_size * *first / (second.sqrt() * correction + epsilon);
        }
    }

    fn squares(values: &[f32]) -> f32 {
        simd::sum(values.len(), |i| values[i] * values[i])
    }
}
