//! Whether a device computes what the CPU computes: runs the same numbers through every kernel,
//! forward and backward, and through whole models, on both.
//!
//! The reference is the CPU in float32. Two results are compared by their largest difference as a
//! share of the reference's largest value, which is how rounding in a sum scales; the tolerance
//! follows from the type that products are computed in (`rounding`). On the CPU itself, float32
//! must give the same bits again.

mod check;
mod kernels;
mod models;

use burn::tensor::FloatDType;
use ember_kernels::is_cpu;
use ember_model::device::{Selected, multiplies};

pub use check::Comparison;

/// Compares everything on `selected`, and passes each comparison to `tell` as soon as it is made.
/// Stops when `go_on` says so.
///
/// # Errors
/// The error of `tell`.
pub fn compare<E>(
    selected: &Selected,
    tell: &mut dyn FnMut(&Comparison) -> Result<(), E>,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<Comparison>, E> {
    let mut all = Vec::new();
    for precision in [FloatDType::F32, FloatDType::BF16, FloatDType::F16] {
        if precision != FloatDType::F32 && multiplies(&selected.device, precision).is_err() {
            continue;
        }
        let rounding = rounding(selected, precision);
        for check in kernels::all().into_iter().chain(models::all()) {
            if !go_on() {
                return Ok(all);
            }
            for comparison in check.compare(selected, precision, rounding) {
                tell(&comparison)?;
                all.push(comparison);
            }
        }
    }
    Ok(all)
}

/// Half the distance between neighbouring numbers at 1, of the type that products are computed in.
fn rounding(selected: &Selected, precision: FloatDType) -> f64 {
    match precision {
        FloatDType::F32 if is_cpu(&selected.device) => 0.0,
        // TF32, which has 10 fraction bits.
        FloatDType::F32 if selected.id.starts_with("cuda") => 2f64.powi(-11),
        // Sums of some hundred values in a different order: 2^-24, with a margin for cancellation.
        FloatDType::F32 => 2f64.powi(-17),
        FloatDType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-9),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::check::largest_difference;
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
            assert!(one.holds, "{one:?}");
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
