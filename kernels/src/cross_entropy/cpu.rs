//! Cross-entropy on the CPU: the loss and the gradient of the logits in one pass; the gradient
//! overwrites the logits.

use super::{CrossEntropy, Scaled};
use crate::cpu::prelude::*;

/// Rows of logits per task; losses are also summed in such chunks, so that the sum does not depend
/// on the number of threads.
const ROWS: usize = 16;

/// Values per task where the gradient is scaled.
const CHUNK: usize = 8192;

impl Operation<Flex, 1, 2> for CrossEntropy {
    /// The gradient, in the logits' memory.
    type Kept = FlexTensor;

    fn forward(&self, [logits]: [FlexTensor; 1]) -> ([FlexTensor; 2], FlexTensor) {
        let mut gradient = contiguous(logits);
        let [batch, time, vocab] = dims(&gradient);
        let rows = batch * time;
        self.check_targets([rows, vocab]);
        let logits = values_mut(&mut gradient);
        let (z_loss, smoothing) = (self.objective.z_loss as f32, self.objective.label_smoothing as f32);
        let losses: Vec<[f64; 2]> = logits
            .par_chunks_mut(ROWS * vocab)
            .zip(self.targets.par_chunks(ROWS))
            .map(|(logits, targets)| chunk(logits, targets, self.factor / rows as f32, z_loss, smoothing))
            .collect();
        let mean = |which: usize| losses.iter().map(|losses| losses[which]).sum::<f64>() / rows as f64;
        let means = [f64::from(self.factor) * mean(0), mean(1)];
        (means.map(|mean| tensor_of(vec![mean as f32], [1])), gradient)
    }

    fn backward(&self, gradient: FlexTensor, dy: FlexTensor) -> [FlexTensor; 1] {
        [Flex::scaled(gradient, dy)]
    }
}

impl Scaled for Flex {
    fn scaled(gradient: FlexTensor, dy: FlexTensor) -> FlexTensor {
        let factor: f32 = values(&contiguous(dy))[0];
        if factor == 1.0 {
            return gradient;
        }
        let dtype = gradient.dtype();
        let mut gradient = float32(gradient);
        values_mut(&mut gradient).par_chunks_mut(CHUNK).for_each(|chunk| chunk.iter_mut().for_each(|g| *g *= factor));
        cast(gradient, dtype.into())
    }
}

simd_versions! {
    // Returns the sums over the rows of the objective and of the cross-entropy. Each row of logits
    // becomes `weight * (softmax * (1 + 2 z ln(denominator)) - smoothed target)`.
    fn chunk(logits: &mut [f32], targets: &[u32], weight: f32, z_loss: f32, smoothing: f32) -> [f64; 2] {
        let vocab = logits.len() / targets.len();
        let evenly = smoothing / vocab as f32;
        let (mut extra, mut cross_entropy) = (0.0, 0.0);
        for (row, target) in logits.chunks_exact_mut(vocab).zip(targets) {
            let largest = simd::max(row);
            let shifted = row[*target as usize] - largest;
            // The target's logit relative to the mean.
            let above_mean = if smoothing > 0.0 {
                shifted - simd::sum([row], |[x]| x - largest) / vocab as f32
            } else {
                0.0
            };
            for x in row.iter_mut() {
                *x = simd::exp(*x - largest);
            }
            let total = simd::sum([row], |[x]| x);
            let log_denominator = total.ln() + largest;
            cross_entropy += (total.ln() - shifted) as f64;
            extra += (smoothing * above_mean + z_loss * log_denominator * log_denominator) as f64;
            let factor = weight / total * (1.0 + 2.0 * z_loss * log_denominator);
            for x in row.iter_mut() {
                *x *= factor;
            }
            if smoothing > 0.0 {
                for x in row.iter_mut() {
                    *x -= weight * evenly;
                }
            }
            row[*target as usize] -= weight * (1.0 - smoothing);
        }
        [cross_entropy + extra, cross_entropy]
    }
}
