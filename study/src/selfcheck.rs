//! Whether a device computes what the CPU computes: the same numbers through every kernel, forward and backward, and through
//! whole models, on both.
//!
//! The reference is the CPU in float32. Two results differ by their largest difference as a share of the reference's largest
//! value, which is what rounding in a sum is measured against; what it may be follows from the type that products are computed in
//! ([`rounding`]). On the CPU itself float32 must give the same bits again.

mod kernels;
mod models;

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use ember_data::random;
use ember_host::panics::quietly;
use ember_model::device::{Selected, multiplies};
use ember_model::kernels::is_cpu;
use rand_chacha::rand_core::Rng;
use serde::Serialize;

/// How many roundings may add up in one kernel and its backward.
const IN_A_KERNEL: f64 = 8.0;
/// The same in a model of two blocks, and in some steps of it.
const IN_A_MODEL: f64 = 32.0;

/// One result of the device beside the CPU's.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The kernel, or the model and what of it, such as `layer_norm` or `gpt2: gradients`.
    pub what: String,
    /// What products are computed in on the device: `f32` or `bf16`.
    pub precision: &'static str,
    /// The largest difference over the largest value; `None` where there is no finite one.
    pub difference: Option<f64>,
    /// The most that rounding explains.
    pub tolerance: f64,
    /// Why there is nothing to compare: what the device failed with.
    pub problem: Option<String>,
}

impl Comparison {
    /// Whether rounding explains the difference.
    pub fn holds(&self) -> bool {
        self.difference.is_some_and(|difference| difference <= self.tolerance)
    }
}

/// What is computed, where, and in what.
struct Setting<'a> {
    device: &'a Device,
    precision: FloatDType,
    /// Half the distance of two neighbouring numbers at 1.
    rounding: f64,
}

/// On a device in a precision: for each part that is compared, lists of numbers.
type Computation<'a> = dyn Fn(&Device, FloatDType) -> Vec<Vec<Vec<f32>>> + 'a;

impl Setting<'_> {
    fn word(&self) -> &'static str {
        if self.precision == FloatDType::F32 { "f32" } else { "bf16" }
    }

    /// Computes on the CPU in float32 and on the device, and compares each list of numbers that comes out.
    fn compare(&self, name: &str, parts: &[&str], roundings: f64, compute: &Computation) -> Vec<Comparison> {
        let want = compute(&Device::flex(), FloatDType::F32);
        let got = quietly(|| compute(self.device, self.precision));
        let tolerance = roundings * self.rounding;
        let all = parts.iter().enumerate().map(|(i, part)| {
            let what = if part.is_empty() { name.to_owned() } else { format!("{name}: {part}") };
            let (difference, problem) = match &got {
                Ok(got) => (largest_difference(&got[i], &want[i]), None),
                Err(problem) => (None, Some(problem.to_string())),
            };
            Comparison { what, precision: self.word(), difference, tolerance, problem }
        });
        all.collect()
    }
}

/// Compares everything on `selected`; each comparison is also told to `tell` when it is made. Stops when `go_on` says so.
///
/// # Errors
/// What `tell` returns.
pub fn compare<E>(
    selected: &Selected,
    tell: &mut dyn FnMut(&Comparison) -> Result<(), E>,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<Comparison>, E> {
    let device = &selected.device;
    let mut all = Vec::new();
    for precision in [FloatDType::F32, FloatDType::BF16] {
        if precision != FloatDType::F32 && multiplies(device, precision).is_err() {
            continue;
        }
        let setting = Setting { device, precision, rounding: rounding(selected, precision) };
        for check in kernels::all().iter().map(Check::Kernel).chain(models::all().iter().map(Check::Model)) {
            if !go_on() {
                return Ok(all);
            }
            for comparison in check.run(&setting) {
                tell(&comparison)?;
                all.push(comparison);
            }
        }
    }
    Ok(all)
}

enum Check<'a> {
    Kernel(&'a kernels::Kernel),
    Model(&'a models::Model),
}

impl Check<'_> {
    fn run(&self, setting: &Setting) -> Vec<Comparison> {
        match self {
            Self::Kernel(kernel) => kernel.compare(setting),
            Self::Model(model) => model.compare(setting),
        }
    }
}

/// Half the distance between neighbouring numbers at 1, of the type that products are computed in.
fn rounding(selected: &Selected, precision: FloatDType) -> f64 {
    match precision {
        FloatDType::F32 if is_cpu(&selected.device) => 0.0,
        // TF32, which has 10 bits behind the point.
        FloatDType::F32 if selected.id.starts_with("cuda") => 2f64.powi(-11),
        // Sums of some hundred values, in another order: 2^-24 and a margin for the cancellation in them.
        FloatDType::F32 => 2f64.powi(-17),
        _ => 2f64.powi(-9),
    }
}

/// The largest of the lists' differences, each as a share of the reference's largest value.
fn largest_difference(got: &[Vec<f32>], want: &[Vec<f32>]) -> Option<f64> {
    if got.len() != want.len() {
        return None;
    }
    let of_list = |(got, want): (&Vec<f32>, &Vec<f32>)| {
        let largest = want.iter().fold(0.0, |largest: f64, value| largest.max(f64::from(value.abs())));
        let differences = got.iter().zip(want).map(|(got, want)| f64::from((got - want).abs()));
        // By hand, since `max` passes over what is no number.
        let difference = differences.fold(0.0, |most, next| if next > most || next.is_nan() { next } else { most });
        let share = if difference == 0.0 { 0.0 } else { difference / largest };
        (got.len() == want.len() && share.is_finite()).then_some(share)
    };
    got.iter().zip(want).map(of_list).try_fold(0.0, |most: f64, next| next.map(|next| most.max(next)))
}

/// So many values in [-1, 1), the same for the same name on every machine.
fn random_values(name: u64, count: usize) -> Vec<f32> {
    let mut rng = random::rng(1, &[name]);
    (0..count).map(|_| (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn tensor(values: Vec<f32>, shape: [usize; 3], device: &Device) -> Tensor<3> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ember_model::device::{DeviceChoice, select};

    #[test]
    fn what_is_missing_or_no_number_has_no_difference() {
        let want = [vec![1.0, 2.0], vec![4.0]];
        assert_eq!(largest_difference(&[vec![1.0, 2.5], vec![4.0]], &want), Some(0.25));
        assert_eq!(largest_difference(&[vec![1.0, 2.0]], &want), None);
        assert_eq!(largest_difference(&[vec![1.0], vec![4.0]], &want), None);
        assert_eq!(largest_difference(&[vec![1.0, f32::NAN], vec![4.0]], &want), None);
    }

    #[test]
    fn the_cpu_repeats_itself_and_rounds_as_bfloat16_does() {
        let selected = select(DeviceChoice::Cpu).unwrap();
        let all = compare(&selected, &mut |_| Ok::<_, ()>(()), &|| true).unwrap();
        assert!(all.iter().any(|one| one.precision == "bf16" && one.difference.unwrap() > 0.0));
        for one in &all {
            assert!(one.holds(), "{one:?}");
        }
    }

    #[test]
    fn what_is_no_number_or_missing_is_never_close() {
        let lists = |values: &[f32]| vec![values.to_vec()];
        assert_eq!(largest_difference(&lists(&[1.0, -2.0]), &lists(&[1.0, -2.5])), Some(0.2));
        assert_eq!(largest_difference(&lists(&[0.0]), &lists(&[0.0])), Some(0.0));
        assert_eq!(largest_difference(&lists(&[1.0, f32::NAN, 1.0]), &lists(&[1.0, 1.0, 1.0])), None);
        assert_eq!(largest_difference(&lists(&[f32::INFINITY]), &lists(&[1.0])), None);
        assert_eq!(largest_difference(&lists(&[1.0]), &lists(&[1.0, 1.0])), None);
        assert_eq!(largest_difference(&lists(&[1e-9]), &lists(&[0.0])), None);
    }
}
