//! The optimizers' arithmetic on the CPU: one pass over parameter, gradient and moments, in place.

use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Flex, backend_extension};
use ember_model::kernels::flex::{contiguous, new, unfilled, values, values_mut};
use ember_model::kernels::simd;
use ember_model::simd_versions;
use rayon::prelude::*;

use super::muon::reach;
use super::orthogonal::orthogonalise;

/// Values one task takes; also the unit in which squares are summed.
const CHUNK: usize = 16_384;

/// The numbers of one step of AdamW for one parameter.
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

/// The numbers of one step of Muon for one matrix.
#[derive(Clone, Debug)]
pub struct MuonUpdate {
    /// Columns of each matrix that stands in it.
    pub widths: Vec<usize>,
    /// Decay of the momentum.
    pub momentum: f32,
    /// Muon's own learning rate.
    pub learning_rate: f32,
    /// What weight decay leaves of the matrix.
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
    /// Matrix and momentum `[in, out]` after one step.
    fn muon(
        matrix: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        momentum: FloatTensor<Self>,
        update: MuonUpdate,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
    /// `average + share (weights - average)`.
    fn average(average: FloatTensor<Self>, weights: FloatTensor<Self>, share: f32) -> FloatTensor<Self>;
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

    fn muon(
        matrix: FlexTensor,
        gradient: FlexTensor,
        momentum: FlexTensor,
        update: MuonUpdate,
    ) -> (FlexTensor, FlexTensor) {
        let columns = update.widths.iter().sum();
        let gradient = contiguous(gradient);
        let [mut matrix, mut momentum] = [matrix, momentum].map(contiguous);
        let mut direction = unfilled(values(&gradient).len());
        values_mut(&mut momentum)
            .par_chunks_mut(CHUNK)
            .zip(values(&gradient).par_chunks(CHUNK))
            .zip(direction.par_chunks_mut(CHUNK))
            .for_each(|((momentum, gradient), direction)| {
                nesterov(momentum, gradient, direction, update.momentum, update.scale);
            });
        let steps = orthogonal_parts(direction, columns, &update);
        values_mut(&mut matrix).par_chunks_mut(columns).enumerate().for_each(|(row, values)| {
            let mut rest = values;
            for (width, (part, step_size)) in update.widths.iter().copied().zip(&steps) {
                let (values, right) = rest.split_at_mut(width);
                decay_and_step(values, &part[row * width..(row + 1) * width], update.keep, *step_size);
                rest = right;
            }
        });
        (matrix, momentum)
    }

    fn average(average: FlexTensor, weights: FlexTensor, share: f32) -> FlexTensor {
        let (mut average, weights) = (contiguous(average), contiguous(weights));
        values_mut(&mut average)
            .par_chunks_mut(CHUNK)
            .zip(values(&weights).par_chunks(CHUNK))
            .for_each(|(average, weights)| approach(average, weights, share));
        average
    }

    fn sum_of_squares(gradient: FlexTensor) -> FlexTensor {
        let gradient = contiguous(gradient);
        let partial: Vec<f32> = values(&gradient).par_chunks(CHUNK).map(squares).collect();
        let total: f64 = partial.iter().map(|square| *square as f64).sum();
        new(vec![total as f32], [1])
    }
}

/// The parts of a direction with `columns` columns, each orthogonal, with what it is to be multiplied by.
fn orthogonal_parts(direction: Vec<f32>, columns: usize, update: &MuonUpdate) -> Vec<(Vec<f32>, f32)> {
    let n_in = direction.len() / columns;
    let step_size = |width| update.learning_rate * reach(n_in, width);
    let orthogonal = |mut part: Vec<f32>, width| {
        orthogonalise(&mut part, width);
        (part, step_size(width))
    };
    if update.widths.len() == 1 {
        return vec![orthogonal(direction, columns)];
    }
    let mut first = 0;
    let parts: Vec<(usize, usize)> = update
        .widths
        .iter()
        .map(|&width| {
            first += width;
            (first - width, width)
        })
        .collect();
    parts
        .into_par_iter()
        .map(|(first, width)| {
            let rows = direction.chunks_exact(columns).flat_map(|row| &row[first..first + width]);
            orthogonal(rows.copied().collect(), width)
        })
        .collect()
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

    fn nesterov(momentum: &mut [f32], gradient: &[f32], direction: &mut [f32], decay: f32, scale: f32) {
        for ((momentum, gradient), direction) in momentum.iter_mut().zip(gradient).zip(direction) {
            let share = (1.0 - decay) * (gradient * scale);
            *momentum = decay * *momentum + share;
            *direction = decay * *momentum + share;
        }
    }

    fn decay_and_step(matrix: &mut [f32], direction: &[f32], keep: f32, step_size: f32) {
        for (value, direction) in matrix.iter_mut().zip(direction) {
            *value = *value * keep - step_size * direction;
        }
    }

    fn approach(average: &mut [f32], weights: &[f32], share: f32) {
        for (average, weight) in average.iter_mut().zip(weights) {
            *average += share * (weight - *average);
        }
    }

    fn squares(values: &[f32]) -> f32 {
        simd::sum([values], |[x]| x * x)
    }
}
