//! Where a new model's weights come from: drawn at random, or read from a checkpoint.

use anyhow::Result;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// How a parameter starts when nothing has been learned yet.
#[derive(Clone, Copy, Debug)]
pub enum Init {
    /// Independent normal values with mean 0 and this standard deviation.
    Normal(f64),
    /// Every value the same.
    Constant(f32),
}

/// Gives parameters their values, by name.
pub trait ParameterSource {
    /// The values of the tensor `name`, row after row.
    ///
    /// # Errors
    /// When the source has no such tensor of that shape.
    fn values(&mut self, name: &str, shape: &[usize], init: Init) -> Result<Vec<f32>>;
}

/// Draws every tensor from (seed, its name), so that a tensor's start depends neither on the device nor on the others.
pub struct Random {
    /// Names this initialisation among all others.
    pub seed: u64,
}

impl ParameterSource for Random {
    fn values(&mut self, name: &str, shape: &[usize], init: Init) -> Result<Vec<f32>> {
        let n = shape.iter().product();
        let std = match init {
            Init::Constant(value) => return Ok(vec![value; n]),
            Init::Normal(std) => std,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ fnv1a(name));
        let mut values = Vec::with_capacity(n + 1);
        while values.len() < n {
            values.extend(normal_pair(&mut rng).map(|z| (z * std) as f32));
        }
        values.truncate(n);
        Ok(values)
    }
}

/// Two independent standard normal values (Box and Muller 1958).
fn normal_pair(rng: &mut ChaCha8Rng) -> [f64; 2] {
    // In (0, 1], so that the logarithm is finite.
    let mut uniform = || ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
    [radius * angle.cos(), radius * angle.sin()]
}

/// The 64-bit FNV-1a hash, fixed for ever: a seed must mean the same model in every version.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn normal_values_have_the_right_moments_and_repeat() {
        let draw = |seed, name| Random { seed }.values(name, &[100, 1000], Init::Normal(0.02)).unwrap();
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
}
