//! Typical-p: tokens about as surprising as one expects.

use std::cmp::Ordering;

use super::survivors::{Slices, Survivors, Walk, entropy, order, walk};
use super::{LogitsProcessor, Step};
use crate::softmax::highest;

/// Keeps the tokens whose surprise, -log p, is nearest to the expected one, the entropy, until their probability, summed in
/// float64 and rounded to float32, reaches the mass; and whatever is as far from it as the last of them
/// ([Meister et al. 2023, section 4](https://arxiv.org/abs/2202.00666); transformers `TypicalLogitsWarper`).
#[derive(Clone, Copy, Debug)]
pub struct TypicalP {
    /// The kept tokens' probability, in (0, 1].
    pub mass: f64,
    /// The least number of tokens that stay, at least 1.
    pub keep: usize,
}

impl LogitsProcessor for TypicalP {
    fn name(&self) -> &'static str {
        "typical-p"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        let Some(left) = Survivors::beyond(self.keep, logits) else { return };
        let typical = Typical::of(&left);
        let mass = self.mass as f32;
        let Some(last) = typical.walk(|kept| (kept as f32) < mass).stopped_at else { return };
        let furthest = typical.distances[last];
        let removed = typical.distances.iter().map(|&distance| distance > furthest).collect();
        left.remove_but(self.keep, removed, |a, b| typical.nearer(a, b), logits);
    }
}

/// Keeps the tokens nearest to the expected surprise until their probability exceeds the mass, of equally near ones the
/// lower ids first: llama.cpp's typical-p.
#[derive(Clone, Copy, Debug)]
pub struct TypicalPExactly {
    /// The kept tokens' probability, in (0, 1].
    pub mass: f64,
    /// The least number of tokens that stay, at least 1.
    pub keep: usize,
}

impl LogitsProcessor for TypicalPExactly {
    fn name(&self) -> &'static str {
        "typical-p"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        let Some(left) = Survivors::beyond(self.keep, logits) else { return };
        let typical = Typical::of(&left);
        let mass = self.mass as f32;
        let walk = typical.walk(|kept| kept as f32 <= mass);
        left.remove_but(self.keep, walk.rest(), |a, b| typical.nearer(a, b), logits);
    }
}

/// The survivors as this knob sees them.
struct Typical {
    probabilities: Vec<f32>,
    /// How far each one's surprise is from the expected one, in nats.
    distances: Vec<f32>,
}

impl Typical {
    fn of(left: &Survivors) -> Self {
        let probabilities = left.probabilities();
        let surprises = left.surprises(&probabilities);
        let expected = entropy(&probabilities, &surprises);
        Self { probabilities, distances: surprises.iter().map(|surprise| (surprise - expected).abs()).collect() }
    }

    fn nearer(&self, a: usize, b: usize) -> Ordering {
        order(self.distances[a], self.distances[b])
    }

    fn walk(&self, fits: impl Fn(f64) -> bool) -> Walk {
        let slices = Slices::up_to(highest(&self.distances));
        walk(&self.probabilities, |index| slices.outward(self.distances[index]), |a, b| self.nearer(a, b), fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::{kept, six};
    use crate::softmax::softmax;

    /// The entropy of 0.40, 0.30, 0.20, 0.05, 0.03, 0.02 is 1.383 nats; the surprises 0.916, 1.204, 1.609, 2.996, 3.507 and
    /// 3.912 are 0.467, 0.179, 0.226, 1.612, 2.123 and 2.529 from it: the order is 1, 2, 0, 3, 4, 5.
    #[test]
    fn the_typical_tokens_worked_by_hand() {
        let typical = |mass| kept(&TypicalP { mass, keep: 1 }, &six());
        assert_eq!(typical(0.29), [1]);
        assert_eq!(typical(0.31), [1, 2]);
        assert_eq!(typical(0.51), [0, 1, 2]);
        assert_eq!(typical(0.89), [0, 1, 2]);
        assert_eq!(typical(0.91), [0, 1, 2, 3]);
        assert_eq!(kept(&TypicalP { mass: 0.29, keep: 2 }, &six()), [1, 2]);
        assert_eq!(kept(&TypicalPExactly { mass: 0.31, keep: 1 }, &six()), [1, 2]);
    }

    /// Where the first token's probability is the mass itself, transformers has enough and llama.cpp wants more.
    #[test]
    fn a_mass_met_exactly() {
        let mass = f64::from(softmax(&six())[1]);
        assert_eq!(kept(&TypicalP { mass, keep: 1 }, &six()), [1]);
        assert_eq!(kept(&TypicalPExactly { mass, keep: 1 }, &six()), [1, 2]);
    }

    /// All are equally typical of an even distribution; so transformers keeps all, llama.cpp until the mass is exceeded.
    #[test]
    fn ties_stay_or_not() {
        assert_eq!(kept(&TypicalP { mass: 0.5, keep: 1 }, &[1.0; 4]), [0, 1, 2, 3]);
        assert_eq!(kept(&TypicalPExactly { mass: 0.5, keep: 1 }, &[1.0; 4]), [0, 1, 2]);
        assert_eq!(kept(&TypicalPExactly { mass: 0.2, keep: 2 }, &[1.0; 4]), [0, 1]);
    }
}
