//! The ranges of knobs, each with its wording for errors.

/// Division by smaller temperatures would take logits out of float32's range.
const LOWEST_TEMPERATURE: f64 = 1e-6;

/// Repetition penalties above this, or below its reciprocal, would take logits out of float32's
/// range.
const MAX_FACTOR: f64 = 1e3;

/// Thirty years; far larger values overflow clocks.
const MAX_SECONDS: f64 = 1e9;

/// The values that a knob may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Every value of the type: ids, strings, words, counts that may be 0.
    Any,
    /// From minus this number to plus this number.
    Within(u32),
    /// A factor or divisor of logits.
    Factor,
    /// Seconds, above 0 and few enough for any clock.
    Seconds,
    /// 0, which means greedy, or a divisor that keeps logits in float32's range.
    Temperature,
    /// A probability mass above 0, (0, 1].
    Mass,
    /// A share that may be 0, [0, 1].
    Share,
    /// A probability below which tokens are removed, [0, 1).
    Cutoff,
    /// A whole number from 1 up to this one.
    OneTo(usize),
    /// A whole number, at least 1.
    OneUp,
}

impl Range {
    /// Whether `number` lies within the range; NaN never does.
    pub fn contains(self, number: f64) -> bool {
        match self {
            Self::Any => !number.is_nan(),
            Self::Within(most) => number.abs() <= f64::from(most),
            // Compared as float32, the knob's type.
            Self::Factor => (1.0 / MAX_FACTOR) as f32 <= number as f32 && number <= MAX_FACTOR,
            Self::Seconds => number > 0.0 && number <= MAX_SECONDS,
            // Compared as float32, the knob's type.
            Self::Temperature => number == 0.0 || (number.is_finite() && number as f32 >= LOWEST_TEMPERATURE as f32),
            Self::Mass => number > 0.0 && number <= 1.0,
            Self::Share => (0.0..=1.0).contains(&number),
            Self::Cutoff => (0.0..1.0).contains(&number),
            Self::OneTo(most) => (1.0..=most as f64).contains(&number),
            Self::OneUp => number >= 1.0,
        }
    }

    /// The range in words that follow "it must be".
    pub fn words(self) -> String {
        match self {
            Self::Any => "a number".to_owned(),
            Self::Within(most) => format!("from -{most} to {most}"),
            Self::Factor => format!("from {} to {MAX_FACTOR}", 1.0 / MAX_FACTOR),
            Self::Seconds => format!("above 0 and at most {MAX_SECONDS}"),
            Self::Temperature => format!("0 (greedy) or a finite number from {LOWEST_TEMPERATURE} up"),
            Self::Mass => "above 0 and at most 1".to_owned(),
            Self::Share => "at least 0 and at most 1".to_owned(),
            Self::Cutoff => "at least 0 and below 1".to_owned(),
            Self::OneTo(most) => format!("from 1 to {most}"),
            Self::OneUp => "at least 1".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Range; 10] = [
        Range::Any,
        Range::Within(100),
        Range::Factor,
        Range::Seconds,
        Range::Temperature,
        Range::Mass,
        Range::Share,
        Range::Cutoff,
        Range::OneTo(8),
        Range::OneUp,
    ];

    #[test]
    fn borders_belong_where_the_words_say() {
        let cases = [
            (Range::Within(100), [-100.0, 0.0, 100.0], [-101.0, 101.0, f64::NEG_INFINITY]),
            (Range::Factor, [f64::from(0.001_f32), 1.0, 1e3], [0.0, 1e-40, 1001.0]),
            (Range::Seconds, [1e-3, 60.0, 1e9], [0.0, -1.0, f64::INFINITY]),
            (Range::Temperature, [0.0, 1e-6, 1e9], [-1.0, 1e-7, f64::INFINITY]),
            (Range::Mass, [1e-9, 0.5, 1.0], [0.0, -0.5, 1.01]),
            (Range::Share, [0.0, 0.5, 1.0], [-0.01, 1.01, f64::INFINITY]),
            (Range::Cutoff, [0.0, 0.5, 0.99], [-0.01, 1.0, f64::INFINITY]),
            (Range::OneTo(8), [1.0, 2.0, 8.0], [0.0, 9.0, f64::INFINITY]),
        ];
        for (range, inside, outside) in cases {
            assert!(inside.iter().all(|&number| range.contains(number)), "{range:?}");
            assert!(!outside.iter().any(|&number| range.contains(number)), "{range:?}");
        }
        assert!(Range::OneUp.contains(1.0) && !Range::OneUp.contains(0.0));
    }

    #[test]
    fn no_range_has_room_for_what_is_no_number() {
        assert!(!ALL.iter().any(|range| range.contains(f64::NAN)));
    }
}
