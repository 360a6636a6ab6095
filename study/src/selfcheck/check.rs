//! A computation that runs on the CPU and on a device, and the comparison of the two results.

use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use ember_data::random;
use ember_host::panics::quietly;
use ember_model::device::Selected;
use rand_chacha::rand_core::Rng;
use serde::Serialize;

/// The comparison of one result with the CPU's.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The device, as [`DeviceChoice`](ember_model::device::DeviceChoice) writes it.
    pub device: String,
    /// The kernel, or the model and its part, such as `layer_norm` or `gpt2: gradients`.
    pub what: String,
    /// The type that products are computed in on the device: `f32`, `bf16` or `f16`.
    pub precision: &'static str,
    /// The largest difference divided by the largest value; `None` if that is not finite.
    pub difference: Option<f64>,
    /// The largest difference that rounding explains.
    pub tolerance: f64,
    /// The device's failure, if there is nothing to compare.
    pub problem: Option<String>,
    /// Whether rounding explains the difference.
    pub holds: bool,
}

/// For each part of a check, its lists of numbers, such as one for each parameter.
pub(super) type Results = Vec<Vec<Vec<f32>>>;

/// The computation on a device in a precision.
type Compute = dyn Fn(&Device, FloatDType) -> Results;

/// A kernel or a model to check.
pub(super) struct Check {
    pub(super) name: &'static str,
    /// The parts that are compared separately; a kernel has one part without a name.
    pub(super) parts: &'static [&'static str],
    /// How many roundings may add up in it.
    pub(super) roundings: f64,
    pub(super) compute: Box<Compute>,
}

impl Check {
    /// Computes on the CPU in float32 and on the device in `precision`, and compares each resulting
    /// list of numbers; `rounding` is half the distance between neighbouring numbers at 1.
    pub(super) fn compare(&self, selected: &Selected, precision: FloatDType, rounding: f64) -> Vec<Comparison> {
        let want = (self.compute)(&Device::flex(), FloatDType::F32);
        let got = quietly(|| (self.compute)(&selected.device, precision));
        let tolerance = self.roundings * rounding;
        let precision = match precision {
            FloatDType::F32 => "f32",
            FloatDType::F16 => "f16",
            _ => "bf16",
        };
        let all = self.parts.iter().enumerate().map(|(i, part)| {
            let what = if part.is_empty() { self.name.to_owned() } else { format!("{}: {part}", self.name) };
            let (difference, problem) = match &got {
                Ok(got) if got[i].len() < want[i].len() => {
                    (None, Some(format!("{} of {} results were returned", got[i].len(), want[i].len())))
                }
                Ok(got) => (largest_difference(&got[i], &want[i]), None),
                Err(problem) => (None, Some(problem.to_string())),
            };
            let (device, holds) = (selected.id.clone(), difference.is_some_and(|difference| difference <= tolerance));
            Comparison { device, what, precision, difference, tolerance, problem, holds }
        });
        all.collect()
    }
}

/// The largest of the lists' differences, each as a share of the reference's largest value.
pub(super) fn largest_difference(got: &[Vec<f32>], want: &[Vec<f32>]) -> Option<f64> {
    if got.len() != want.len() {
        return None;
    }
    let of_list = |(got, want): (&Vec<f32>, &Vec<f32>)| {
        let largest = want.iter().fold(0.0, |largest: f64, value| largest.max(f64::from(value.abs())));
        let differences = got.iter().zip(want).map(|(got, want)| f64::from((got - want).abs()));
        // Not `f64::max`, which ignores NaN.
        let difference = differences.fold(0.0, |most, next| if next > most || next.is_nan() { next } else { most });
        let share = if difference == 0.0 { 0.0 } else { difference / largest };
        (got.len() == want.len() && share.is_finite()).then_some(share)
    };
    got.iter().zip(want).map(of_list).try_fold(0.0, |most: f64, next| next.map(|next| most.max(next)))
}

/// `count` values in [-1, 1), the same for the same name on every machine.
pub(super) fn random_values(name: u64, count: usize) -> Vec<f32> {
    let mut rng = random::rng(1, &[name]);
    (0..count).map(|_| (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

pub(super) fn tensor(values: Vec<f32>, shape: [usize; 3], device: &Device) -> Tensor<3> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

pub(super) fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ember_model::device::{DeviceChoice, select};

    use super::*;

    /// The result of a check with these lists from the CPU and from the "device".
    fn compared(lists: [Vec<Vec<f32>>; 2]) -> Comparison {
        let calls = Cell::new(0);
        let compute = move |_: &Device, _: FloatDType| vec![lists[calls.replace(1)].clone()];
        let check = Check { name: "sum", parts: &[""], roundings: 4.0, compute: Box::new(compute) };
        let cpu = select(DeviceChoice::Cpu).expect("the CPU is always there");
        check.compare(&cpu, FloatDType::F32, 0.25).swap_remove(0)
    }

    #[test]
    fn a_difference_is_held_against_the_roundings_and_a_missing_result_is_said() {
        let near = compared([vec![vec![2.0], vec![1.0]], vec![vec![3.0], vec![1.0]]]);
        assert_eq!((near.difference, near.tolerance, near.holds, near.problem), (Some(0.5), 1.0, true, None));
        let missing = compared([vec![vec![1.0], vec![2.0]], vec![vec![1.0]]]);
        assert_eq!((missing.holds, missing.problem.as_deref()), (false, Some("1 of 2 results were returned")));
    }
}
