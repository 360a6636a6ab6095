//! A loss curve with a bounded number of points.

/// Losses by step; a long curve keeps means of neighbours.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    points: Vec<(f64, f64)>,
    /// Number of losses averaged in each new point.
    losses_per_point: usize,
    /// Count and sum of the losses that do not make up a point yet.
    pending: (usize, f64),
}

/// Maximum number of points; the widest screens show four hundred.
const MAX_POINTS: usize = 1000;

impl Curve {
    /// Adds a loss; one that is not finite is skipped.
    pub(super) fn add(&mut self, step: u64, loss: f64) {
        if !loss.is_finite() {
            return;
        }
        self.losses_per_point = self.losses_per_point.max(1);
        self.pending = (self.pending.0 + 1, self.pending.1 + loss);
        if self.pending.0 < self.losses_per_point {
            return;
        }
        let (count, sum) = std::mem::take(&mut self.pending);
        self.points.push((step as f64, sum / count as f64));
        if self.points.len() > MAX_POINTS {
            let middle = |pair: &[(f64, f64)]| {
                (pair[pair.len() - 1].0, pair.iter().map(|point| point.1).sum::<f64>() / pair.len() as f64)
            };
            self.points = self.points.chunks(2).map(middle).collect();
            self.losses_per_point *= 2;
        }
    }

    /// The points as (step, loss).
    pub(super) fn points(&self) -> &[(f64, f64)] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_shape_in_few_points() {
        let mut curve = Curve::default();
        for step in 0..100_000 {
            curve.add(step, 4.0 - step as f64 / 50_000.0);
        }
        curve.add(100_000, f64::NAN);
        let points = curve.points();
        assert!(points.len() <= MAX_POINTS && points.len() > MAX_POINTS / 3, "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1));
        for &(step, loss) in points {
            assert!((loss - (4.0 - step / 50_000.0)).abs() < 0.02, "{step}: {loss}");
        }
    }
}
