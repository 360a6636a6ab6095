//! The points of a curve, of which there are never more than a screen can show.

/// Losses by the step; of very many, means of neighbours.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    points: Vec<(f64, f64)>,
    /// How many losses a point is the mean of.
    each: usize,
    /// Losses that do not make a point yet: their number, and the sum of them.
    waiting: (usize, f64),
}

/// The widest screens show four hundred.
const MOST: usize = 1000;

impl Curve {
    /// Adds a loss. One that is no number has no place on a curve.
    pub(super) fn add(&mut self, step: u64, loss: f64) {
        if !loss.is_finite() {
            return;
        }
        self.each = self.each.max(1);
        self.waiting = (self.waiting.0 + 1, self.waiting.1 + loss);
        if self.waiting.0 < self.each {
            return;
        }
        let (count, sum) = std::mem::take(&mut self.waiting);
        self.points.push((step as f64, sum / count as f64));
        if self.points.len() > MOST {
            let middle = |pair: &[(f64, f64)]| {
                (pair[pair.len() - 1].0, pair.iter().map(|point| point.1).sum::<f64>() / pair.len() as f64)
            };
            self.points = self.points.chunks(2).map(middle).collect();
            self.each *= 2;
        }
    }

    /// The step and the loss of each.
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
        assert!(points.len() <= MOST && points.len() > MOST / 3, "{}", points.len());
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1));
        for &(step, loss) in points {
            assert!((loss - (4.0 - step / 50_000.0)).abs() < 0.02, "{step}: {loss}");
        }
    }
}
