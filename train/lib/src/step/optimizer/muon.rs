//! Muon ([Jordan et al. 2024](https://kellerjordan.github.io/posts/muon/)): momentum whose
//! direction is made orthogonal, so that a step moves a matrix equally far along each of its
//! singular directions, the weak ones too.
//!
//! Muon steps the matrices of the blocks; AdamW steps embeddings, the head and vectors. A matrix
//! that holds several (queries, keys and values in `c_attn`; gate and hidden layer in SwiGLU's
//! `c_fc`) is orthogonalised part by part, as separate matrices would be. The conventions are those
//! of `torch.optim.Muon` with `adjust_lr_fn = "original"`: a part `[in, out]` moves by the learning
//! rate times `sqrt(max(1, out / in))`, so that one rate suits every width ([Bernstein
//! 2025](https://jeremybernste.in/writing/deriving-muon)), and decays by the learning rate itself.
//! PyTorch orthogonalises in bfloat16. Here a run in bfloat16 does so on the CPU, where such
//! products are summed in float32; everything else is float32.

use burn::tensor::{FloatDType, Tensor};
use ember_kernels::gpu::tensor::{cube, float32, from_cube};
use ember_kernels::optimizer::{MuonUpdate, gpu::own, gpu_muon::MuonStep, muon};
use ember_model::GptConfig;

use super::state::{MOMENTUM, Moments, Rate};

/// Muon's hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonConfig {
    /// Muon's learning rate divided by AdamW's: both follow one schedule.
    pub relative_rate: f64,
    /// Decay of the mean of the gradients.
    pub momentum: f64,
    /// Each step shrinks a matrix by this share of it times Muon's learning rate.
    pub weight_decay: f64,
    /// The type of the orthogonalisation's matrix products: bfloat16 or else float32.
    pub precision: FloatDType,
}

impl MuonConfig {
    /// Updates the matrix `name` `[in, out]` of a model of this shape, on the CPU.
    pub(super) fn update(
        self,
        moments: &mut Moments,
        name: &str,
        matrix: Tensor<2>,
        gradient: Tensor<2>,
        shape: &GptConfig,
        rate: Rate,
    ) -> Tensor<2> {
        let [n_in, n_out] = matrix.dims();
        let momentum = moments.take(MOMENTUM, name, &matrix).reshape([n_in, n_out]);
        let [matrix, momentum] = muon(matrix, gradient, momentum, &parts(shape, name, n_out), self.scalars(rate));
        moments.put(MOMENTUM, name, momentum.reshape([n_in * n_out]));
        matrix
    }

    /// The matrix on a GPU, and its part of the step that
    /// [`muon`](ember_kernels::optimizer::gpu_muon::muon) will take, which changes the matrix in
    /// place.
    pub(super) fn prepare(
        self,
        moments: &mut Moments,
        name: &str,
        matrix: Tensor<2>,
        gradient: Tensor<2>,
        shape: &GptConfig,
    ) -> (Tensor<2>, MuonStep) {
        let widths = parts(shape, name, matrix.dims()[1]);
        let momentum = own(moments.take(MOMENTUM, name, &matrix));
        moments.put(MOMENTUM, name, from_cube(momentum.clone()));
        let (matrix, gradient) = (own(matrix), float32(cube(gradient)));
        (from_cube(matrix.clone()), MuonStep { matrix, gradient, momentum, widths })
    }

    /// The scalars of a step.
    pub(super) fn scalars(self, rate: Rate) -> MuonUpdate {
        let learning_rate = rate.learning_rate * self.relative_rate;
        MuonUpdate {
            momentum: self.momentum as f32,
            learning_rate: learning_rate as f32,
            keep: (1.0 - learning_rate * self.weight_decay) as f32,
            scale: rate.gradient_scale as f32,
            precision: self.precision,
        }
    }
}

/// The widths of the matrices concatenated in the matrix `name`, which has `n_out` columns.
fn parts(shape: &GptConfig, name: &str, n_out: usize) -> Vec<usize> {
    shape.operations().parts(name).map_or_else(|| vec![n_out], <[usize]>::to_vec)
}

#[cfg(test)]
mod tests {
    use ember_kernels::Heads;
    use ember_model::MlpKind;

    use super::*;

    #[test]
    fn joint_matrices_have_the_parts_of_their_shape() {
        let mut shape = GptConfig::new(10, 8, 1, 4, 32);
        assert_eq!(parts(&shape, "h.0.attn.c_attn.weight", 96), [32, 32, 32]);
        assert_eq!(parts(&shape, "h.0.mlp.c_fc.weight", 128), [128]);
        assert_eq!(parts(&shape, "h.0.attn.c_proj.weight", 32), [32]);
        (shape.n_kv_head, shape.mlp, shape.n_inner) = (1, MlpKind::SwiGlu, 64);
        let Heads { head_size, .. } = shape.heads();
        assert_eq!(parts(&shape, "h.0.attn.c_attn.weight", 48), [32, head_size, head_size]);
        assert_eq!(parts(&shape, "h.0.mlp.c_fc.weight", 128), [64, 64]);
    }
}
