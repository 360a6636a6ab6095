//! How fast a session learns.

use std::time::Instant;

/// Speed since the last report, and since this session began.
pub struct Speedometer {
    began: Instant,
    tokens_at_start: u64,
    last: Instant,
    tokens_at_last: u64,
    /// Seconds of the sessions before.
    before_s: f64,
}

impl Speedometer {
    /// From here on, `tokens` being learned from already, in `before_s` seconds.
    pub fn new(tokens: u64, before_s: f64) -> Self {
        let now = Instant::now();
        Self { began: now, tokens_at_start: tokens, last: now, tokens_at_last: tokens, before_s }
    }

    /// Seconds of all sessions.
    pub fn elapsed_s(&self) -> f64 {
        self.before_s + self.began.elapsed().as_secs_f64()
    }

    /// Tokens a second since the last call.
    pub fn since_last(&mut self, tokens: u64) -> f64 {
        let now = Instant::now();
        let rate = (tokens - self.tokens_at_last) as f64 / (now - self.last).as_secs_f64().max(1e-9);
        (self.last, self.tokens_at_last) = (now, tokens);
        rate
    }

    /// Tokens a second of this session, evaluations and saves included.
    pub fn overall(&self, tokens: u64) -> f64 {
        (tokens - self.tokens_at_start) as f64 / self.began.elapsed().as_secs_f64().max(1e-9)
    }
}
