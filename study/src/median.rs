//! The median, which a few odd measurements do not move.

/// The number in the middle, or the mean of the two that are; `None` without any.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let above = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len().is_multiple_of(2) { (sorted[sorted.len() / 2 - 1] + above) / 2.0 } else { above })
}
