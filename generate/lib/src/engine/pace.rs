//! How much of the prompts that wait goes through the model beside the tokens that are written.

/// How many tokens of prompts make a step hardly twice as long as one that reads none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Seconds of a step that reads no prompt, and how many rows it wrote.
    step_s: f64,
    written: usize,
    /// Steps since then, which all read prompts.
    since: usize,
    /// Tokens of prompts for each second of such a step; 0 before any was seen.
    tokens_a_second: f64,
}

/// Share of what a step took in what is known of the next.
const NEWS: f64 = 0.3;

/// How long a step with prompts is to take, by one without: twice as long at most, and no two take
/// the same.
const LONGER: f64 = 1.8;

/// Tokens of prompts in a step while others are written, before anything is known.
const AT_FIRST: usize = 16;

/// After so many steps with prompts one without is due: the texts that are written have grown.
const STALE_AFTER: usize = 32;

impl Pace {
    /// Learns from a step in which so many rows were written, and so many tokens of prompts read.
    pub(super) fn took(&mut self, written: usize, of_prompts: usize, seconds: f64) {
        if of_prompts == 0 {
            let is_known = self.is_about(written);
            self.step_s = if is_known { self.step_s + NEWS * (seconds - self.step_s) } else { seconds };
            (self.written, self.since) = (written, 0);
            return;
        }
        self.since += 1;
        if self.step_s > 0.0 {
            // A prompt costs something for its length, too, however little of it is read: so the
            // budget goes a part of the way at a time, and never by what one token seems to cost.
            let closer = (LONGER * self.step_s / seconds).clamp(0.5, 2.0);
            // A prompt's last tokens may be few, and say nothing of how many there might be.
            if 2 * of_prompts >= self.budget() || closer < 1.0 {
                self.tokens_a_second = of_prompts as f64 / self.step_s * closer;
            }
        }
    }

    /// Whether what is known is of steps that write about so many rows.
    fn is_about(&self, written: usize) -> bool {
        4 * written.abs_diff(self.written) <= self.written
    }

    /// Whether too little is known of steps that write so many rows and read no prompt.
    pub(super) fn is_stale(&self, written: usize) -> bool {
        !self.is_about(written) || self.since >= STALE_AFTER
    }

    /// Tokens of prompts that may be read in a step while others are written.
    pub(super) fn budget(&self) -> usize {
        if self.tokens_a_second > 0.0 { (self.tokens_a_second * self.step_s) as usize } else { AT_FIRST }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a step takes that writes 15 rows and reads so much of a prompt, in seconds, where a
    /// prompt costs `length_s` whatever is read of it.
    fn step_s(of_prompts: usize, length_s: f64) -> f64 {
        0.020 + if of_prompts > 0 { length_s + 0.0007 * of_prompts as f64 } else { 0.0 }
    }

    fn after_steps(pace: &mut Pace, steps: usize, length_s: f64) -> f64 {
        for _ in 0..steps {
            let tokens = if pace.is_stale(15) { 0 } else { pace.budget() };
            pace.took(15, tokens, step_s(tokens, length_s));
        }
        step_s(pace.budget(), length_s)
    }

    #[test]
    fn a_step_that_reads_takes_hardly_twice_as_long_as_one_that_does_not() {
        let mut pace = Pace::default();
        assert!(pace.is_stale(15), "nothing is known yet");
        for length_s in [0.0, 0.005, 0.010, 0.002] {
            let seconds = after_steps(&mut pace, 40, length_s);
            assert!((0.032..0.040).contains(&seconds), "{seconds} with {length_s}");
        }
    }

    #[test]
    fn a_prompt_whose_length_costs_much_is_not_read_in_ever_smaller_pieces() {
        let mut pace = Pace::default();
        after_steps(&mut pace, 40, 0.012);
        assert!(pace.budget() >= 4, "{}", pace.budget());
    }

    #[test]
    fn a_late_step_changes_little() {
        let mut pace = Pace::default();
        after_steps(&mut pace, 20, 0.0);
        let before = pace.budget();
        pace.took(15, before, 1.0);
        assert!(pace.budget() * 2 >= before - 1);
        assert!((0.032..0.040).contains(&after_steps(&mut pace, 10, 0.0)));
    }

    #[test]
    fn other_rows_are_measured_anew() {
        let mut pace = Pace::default();
        after_steps(&mut pace, 20, 0.0);
        assert!(pace.is_stale(20) && !pace.is_stale(17));
        pace.took(60, 0, 0.080);
        assert!(!pace.is_stale(60) && pace.is_stale(15));
    }
}
