//! The prompt budget: how many prompt tokens to prefill in a step beside the decoding rows.

/// Learns how many prompt tokens make a step almost twice as long as a pure decode step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Seconds of a pure decode step, smoothed, and its number of rows.
    step_s: f64,
    decode_rows: usize,
    /// Steps since the last pure decode step.
    steps_since: usize,
    /// Prompt tokens per second of a pure decode step; 0 until measured.
    tokens_a_second: f64,
}

/// Weight of the newest measurement in the moving average of a step's time.
const SMOOTHING: f64 = 0.3;

/// Target time of a step with prompts, relative to one without. The limit is 2; the margin allows
/// for variation between steps.
const TARGET_RATIO: f64 = 1.8;

/// Budget before anything is measured.
const INITIAL_BUDGET: usize = 16;

/// Steps with prompts after which a pure decode step is due: the texts have grown meanwhile.
const STALE_AFTER: usize = 32;

impl Pace {
    /// Records the time of a step with this many decoding rows and prompt tokens.
    pub(super) fn record(&mut self, decode_rows: usize, prompt_tokens: usize, seconds: f64) {
        if prompt_tokens == 0 {
            let is_known = self.is_about(decode_rows);
            self.step_s = if is_known { self.step_s + SMOOTHING * (seconds - self.step_s) } else { seconds };
            (self.decode_rows, self.steps_since) = (decode_rows, 0);
            return;
        }
        self.steps_since += 1;
        if self.step_s > 0.0 {
            // A prompt also has a cost that depends on its length, however little of it is read. So
            // the budget is scaled a bounded factor at a time, not computed from a cost per token.
            let factor = (TARGET_RATIO * self.step_s / seconds).clamp(0.5, 2.0);
            // A prompt's last piece may be small, and says nothing of what a full budget costs.
            if 2 * prompt_tokens >= self.budget() || factor < 1.0 {
                self.tokens_a_second = prompt_tokens as f64 / self.step_s * factor;
            }
        }
    }

    /// Whether the last measurement is of a step with about this many decoding rows.
    fn is_about(&self, decode_rows: usize) -> bool {
        4 * decode_rows.abs_diff(self.decode_rows) <= self.decode_rows
    }

    /// Whether a pure decode step with this many rows has to be measured again.
    fn is_stale(&self, decode_rows: usize) -> bool {
        !self.is_about(decode_rows) || self.steps_since >= STALE_AFTER
    }

    /// Whether the next step, with this many decoding rows, should run no prefill, to be measured.
    /// Never twice in succession: where the number of rows alternates, no prompt would be read.
    pub(super) fn needs_pure_step(&self, decode_rows: usize) -> bool {
        let was_pure = self.step_s > 0.0 && self.steps_since == 0;
        self.is_stale(decode_rows) && !was_pure
    }

    /// How many prompt tokens may be prefilled in a step while other rows decode.
    pub(super) fn budget(&self) -> usize {
        if self.tokens_a_second > 0.0 { (self.tokens_a_second * self.step_s) as usize } else { INITIAL_BUDGET }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of a step with 15 decoding rows and this many prompt tokens, if a prompt costs
    /// `length_s` however little of it is read.
    fn step_s(of_prompts: usize, length_s: f64) -> f64 {
        0.020 + if of_prompts > 0 { length_s + 0.0007 * of_prompts as f64 } else { 0.0 }
    }

    fn after_steps(pace: &mut Pace, steps: usize, length_s: f64) -> f64 {
        for _ in 0..steps {
            let tokens = if pace.is_stale(15) { 0 } else { pace.budget() };
            pace.record(15, tokens, step_s(tokens, length_s));
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
        pace.record(15, before, 1.0);
        assert!(pace.budget() * 2 >= before - 1);
        assert!((0.032..0.040).contains(&after_steps(&mut pace, 10, 0.0)));
    }

    #[test]
    fn prompts_are_read_where_the_number_of_rows_alternates() {
        let mut pace = Pace::default();
        let mut read = 0;
        for step in 0..20 {
            let rows = if step % 2 == 0 { 1 } else { 5 };
            let tokens = if pace.needs_pure_step(rows) { 0 } else { pace.budget() };
            pace.record(rows, tokens, step_s(tokens, 0.0));
            read += usize::from(tokens > 0);
        }
        assert!(read >= 10, "in {read} of 20 steps");
    }

    #[test]
    fn other_rows_are_measured_anew() {
        let mut pace = Pace::default();
        after_steps(&mut pace, 20, 0.0);
        assert!(pace.is_stale(20) && !pace.is_stale(17));
        pace.record(60, 0, 0.080);
        assert!(!pace.is_stale(60) && pace.is_stale(15));
    }
}
