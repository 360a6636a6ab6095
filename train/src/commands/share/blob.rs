//! The page's weights: one blob of bytes, and a table of the tensors in it. A matrix is stored as
//! `[outputs, inputs]`, so that the weights of one output are contiguous. Number formats and
//! rounding are those of the program's own matrix products ([`ember_kernels::packed`]).

use ember_model::folder::{StoredWeights, expected_tensors};
use ember_model::{GptConfig, WeightType};
use half::bf16;
use rayon::prelude::*;

use crate::prelude::*;

/// Number of weights of an output that share a scale.
const GROUP: usize = 32;

/// Number of outputs that the page computes together: the rows of an 8-bit matrix are padded to a
/// multiple of it.
const ROW_BLOCK: usize = 4;

/// Alignment of a tensor in bytes.
const ALIGNMENT: usize = 16;

/// A tensor's type, shape and position in the blob.
#[derive(Debug, PartialEq, Serialize)]
pub struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: WeightType,
    shape: Vec<usize>,
    offset: usize,
}

/// All tensors of a model.
pub struct Blob {
    /// The table.
    pub tensors: Vec<Entry>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Blob {
    /// Reads the tensors of a folder; matrices are stored in the type `weights`.
    ///
    /// # Errors
    /// When a tensor cannot be read, or holds a value that is not finite, which 8 bits would hide.
    pub fn of(stored: &StoredWeights, weights: WeightType, checkpoint: &Path) -> Result<Self> {
        let mut blob = Self { tensors: Vec::new(), bytes: Vec::new() };
        for (name, shape) in expected_tensors(&stored.config) {
            let values = stored.values(&name, &shape)?;
            ensure!(
                values.iter().all(|value| value.is_finite()),
                "{}: {name} is not finite: the weights are damaged, or their training diverged; use another checkpoint",
                checkpoint.display()
            );
            let kind = kind_of(&name, &shape, &stored.config, weights);
            if let &[n_in, n_out] = shape.as_slice()
                && name.starts_with("h.")
            {
                blob.push(name, kind, &transposed(&values, n_in), vec![n_out, n_in]);
            } else {
                blob.push(name, kind, &values, shape);
            }
        }
        Ok(blob)
    }

    fn push(&mut self, name: String, kind: WeightType, values: &[f32], shape: Vec<usize>) {
        self.tensors.push(Entry { name, kind, offset: self.bytes.len(), shape });
        match kind {
            WeightType::F32 => self.bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            WeightType::Bf16 => self.bytes.extend(values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes())),
            WeightType::Int8 => {
                let inputs = self.tensors.last().map_or(1, |entry| entry.shape[1]);
                self.bytes.extend(in_8_bits(values, inputs));
            }
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

/// The type of a tensor, as in decoding: `weights` for matrices used in products, else float32.
fn kind_of(name: &str, shape: &[usize], config: &GptConfig, weights: WeightType) -> WeightType {
    let only_looked_up = name == "wpe.weight" || name == "wte.weight" && !config.tied_head;
    if shape.len() == 1 || only_looked_up { WeightType::F32 } else { weights }
}

/// Transposes `[n_in, n_out]` to `[n_out, n_in]`.
fn transposed(values: &[f32], n_in: usize) -> Vec<f32> {
    let n_out = values.len() / n_in;
    (0..n_out)
        .into_par_iter()
        .flat_map_iter(|output| (0..n_in).map(move |input| values[input * n_out + output]))
        .collect()
}

/// Quantizes `[outputs, inputs]`: the rows padded to whole groups, then a scale for each group.
fn in_8_bits(values: &[f32], inputs: usize) -> Vec<u8> {
    let (outputs, groups) = (values.len() / inputs, inputs.div_ceil(GROUP));
    let padded_groups = outputs.next_multiple_of(ROW_BLOCK) * groups;
    let mut weights = vec![0u8; padded_groups * GROUP];
    let mut scales = vec![0u16; padded_groups];
    let rows = weights.par_chunks_mut(groups * GROUP).zip(scales.par_chunks_mut(groups)).zip(values.par_chunks(inputs));
    rows.for_each(|((weights, scales), values)| {
        for ((weights, scale), values) in weights.chunks_mut(GROUP).zip(scales).zip(values.chunks(GROUP)) {
            *scale = quantise(values, weights);
        }
    });
    weights.into_iter().chain(scales.into_iter().flat_map(u16::to_le_bytes)).collect()
}

/// Quantizes a group; returns its scale as a bfloat16, rounded up so that no weight exceeds 127.
fn quantise(values: &[f32], weights: &mut [u8]) -> u16 {
    let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let scale = (largest / 127.0).to_bits().wrapping_add(0xffff) >> 16;
    let inverse = if scale == 0 { 0.0 } else { 1.0 / f32::from_bits(scale << 16) };
    for (weight, value) in weights.iter_mut().zip(values) {
        *weight = (value * inverse).round_ties_even().clamp(-127.0, 127.0) as i32 as i8 as u8;
    }
    scale as u16
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ember_model::folder::{NamedTensor, Settings, write};

    #[test]
    fn weights_that_are_not_finite_make_no_page() {
        let config = GptConfig::new(5, 4, 1, 1, 4);
        for wrong in [f32::NAN, f32::INFINITY] {
            for (damaged, _) in expected_tensors(&config) {
                let tensor = |(name, shape): (String, Vec<usize>)| {
                    let mut values = vec![0.5; shape.iter().product()];
                    values[0] = if name == damaged { wrong } else { 0.5 };
                    NamedTensor { name, shape, values }
                };
                let tensors: Vec<_> = expected_tensors(&config).into_iter().map(tensor).collect();
                let folder = tempfile::tempdir().unwrap();
                write(folder.path(), &config, None, &Settings::new(), &tensors).unwrap();
                let stored = StoredWeights::of(folder.path()).unwrap();
                let error = Blob::of(&stored, WeightType::Int8, folder.path()).err().unwrap().to_string();
                let begins = format!("{}: {damaged} is not finite: ", folder.path().display());
                assert!(error.starts_with(&begins), "{error}");
            }
        }
    }

    #[test]
    fn rows_are_filled_up_to_groups_and_to_four() {
        let values: Vec<f32> = (0..3 * 40).map(|i| i as f32 - 60.0).collect();
        let bytes = in_8_bits(&values, 40);
        assert_eq!(bytes.len(), 4 * 2 * (GROUP + 2));
        let (weights, scales) = bytes.split_at(4 * 2 * GROUP);
        assert_eq!(weights[0] as i8, -127);
        assert!(weights[40..64].iter().chain(&weights[3 * 64..]).all(|&weight| weight == 0));
        // 60 / 127, rounded up to a bfloat16.
        let scale = f32::from_bits(u32::from(u16::from_le_bytes([scales[0], scales[1]])) << 16);
        assert!((60.0 / 127.0..60.0 / 127.0 * 1.01).contains(&scale));
    }

    #[test]
    fn rows_become_columns() {
        assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
