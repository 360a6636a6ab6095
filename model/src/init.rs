//! Where a model's weights come from: a source of values by name, such as random initialisation.

use std::borrow::Cow;

use crate::error::Result;
use rand_chacha::{ChaCha8Rng, rand_core::Rng, rand_core::SeedableRng};
use rayon::prelude::*;

/// The initial values of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Init {
    /// Independent normal values with mean 0 and this standard deviation.
    Normal(f64),
    /// Every value the same.
    Constant(f32),
}

/// Supplies the values of parameters, by name.
pub trait ParameterSource {
    /// The values of the tensor `name`, in row-major order.
    ///
    /// # Errors
    /// When the source has no such tensor of that shape.
    fn values(&self, name: &str, shape: &[usize], init: Init) -> Result<Cow<'_, [f32]>>;
}

/// Draws every tensor from (seed, its name), so its initial values depend neither on the device nor
/// on other tensors.
pub struct Random {
    /// Tells this initialisation from all others.
    pub seed: u64,
}

/// Values that one task draws; even, because they are drawn in pairs.
const CHUNK: usize = 1 << 14;

/// 32-bit words that a value takes from the generator: one `u64`.
const WORDS: u128 = 2;

impl ParameterSource for Random {
    fn values(&self, name: &str, shape: &[usize], init: Init) -> Result<Cow<'_, [f32]>> {
        let n = shape.iter().product();
        let std = match init {
            Init::Constant(value) => return Ok(vec![value; n].into()),
            Init::Normal(std) => std,
        };
        let rng = ChaCha8Rng::seed_from_u64(self.seed ^ fnv1a(name));
        let mut values = vec![0.0; n];
        // Each task skips to its first value in the generator's stream, so the values do not depend
        // on how they are divided into tasks.
        values.par_chunks_mut(CHUNK).enumerate().for_each(|(task, values)| {
            let mut rng = rng.clone();
            rng.set_word_pos((task * CHUNK) as u128 * WORDS);
            for pair in values.chunks_mut(2) {
                let drawn = normal_pair(&mut rng).map(|z| (z * std) as f32);
                pair.copy_from_slice(&drawn[..pair.len()]);
            }
        });
        Ok(values.into())
    }
}

/// Two independent standard normal values (Box and Muller 1958).
fn normal_pair(rng: &mut ChaCha8Rng) -> [f64; 2] {
    // In (0, 1], so that the logarithm is finite.
    let mut uniform = || ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
    [radius * angle.cos(), radius * angle.sin()]
}

/// The 64-bit FNV-1a hash, never to be changed: a seed must mean the same model in every version.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn normal_values_have_the_right_moments_and_repeat() {
        let draw = |seed, name| Random { seed }.values(name, &[100, 1000], Init::Normal(0.02)).unwrap().into_owned();
        let values = draw(1, "a");
        let n = values.len() as f64;
        let mean = values.iter().map(|v| *v as f64).sum::<f64>() / n;
        let variance = values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / n;
        assert!(mean.abs() < 5.0 * 0.02 / n.sqrt(), "{mean}");
        assert!((variance / 0.0004 - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{variance}");
        let beyond_two = values.iter().filter(|v| v.abs() > 0.04).count() as f64 / n;
        assert!((beyond_two - 0.0455).abs() < 0.004, "{beyond_two}");
        assert_eq!(values, draw(1, "a"));
        assert_ne!(values, draw(2, "a"));
        assert_ne!(values, draw(1, "b"));
    }

    /// A seed must always give the same model, however the drawing is distributed.
    #[test]
    fn the_values_are_those_of_one_stream() {
        for n in [1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5] {
            let values = Random { seed: 3 }.values("wte.weight", &[n], Init::Normal(1.0)).unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(3 ^ fnv1a("wte.weight"));
            let stream: Vec<f32> = (0..n.div_ceil(2)).flat_map(|_| normal_pair(&mut rng)).map(|z| z as f32).collect();
            assert!(*values == stream[..n]);
        }
    }
}
