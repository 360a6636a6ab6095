//! The totals of `text`, printed after the texts.

use ember_data::numbers::{counted, grouped};
use ember_decoding::FinishReason;
use ember_decoding::completion::{Acceptance, Completion, Finding};
use ember_decoding::generator::Written;

/// Totals of the texts written so far.
#[derive(Default)]
pub(super) struct Totals {
    texts: usize,
    tokens: usize,
    seconds: f64,
    /// The distinct finish reasons.
    ended: Vec<FinishReason>,
    /// Why texts ended before their grammar was fulfilled, one reason for each.
    cut_off_by: Vec<FinishReason>,
    /// Texts that consist of an end token only.
    empty: usize,
    finding: Option<Finding>,
    drafts: Acceptance,
    slid: bool,
}

impl Totals {
    /// Adds these texts to the totals.
    pub(super) fn add(&mut self, answers: &[Written]) {
        self.seconds += answers.iter().map(|answer| answer.completion.seconds).fold(0.0, f64::max);
        for Written { completion, valid, .. } in answers {
            let Completion { ids, finish_reason, finding, slid, .. } = completion;
            self.texts += 1;
            self.tokens += ids.len();
            self.empty += usize::from(*finish_reason == FinishReason::Eos && ids.len() == 1);
            self.slid |= slid;
            // An exact search that was cut short counts with that reason.
            let reason = match finding {
                Some(Finding::Exact { cut_short: Some(reason), .. }) => reason,
                _ => finish_reason,
            };
            self.cut_off_by.extend((*valid == Some(false)).then_some(*reason));
            if !self.ended.contains(reason) {
                self.ended.push(*reason);
            }
            if let Some(Finding::Draft(acceptance)) = finding {
                self.drafts += *acceptance;
            }
            // One unproven text makes the whole result unproven.
            if finding.is_some() && !matches!(self.finding, Some(Finding::Exact { proven: false, .. })) {
                self.finding = finding.clone();
            }
        }
    }

    /// The summary lines, where `asked` texts were requested of a model with this context length.
    pub(super) fn lines(&self, asked: usize, context_length: usize) -> Vec<String> {
        let rate = grouped((self.tokens as f64 / self.seconds.max(1e-9)).round() as u64);
        let (tokens, seconds, ends) = (counted(grouped(self.tokens as u64), "token"), self.seconds, self.ends(asked));
        let mut lines = vec![format!("{tokens} in {seconds:.2} s, {rate} tokens/s; {ends}")];
        lines.extend(self.finding.as_ref().map(|finding| self.finding_line(finding)));
        if self.empty > 0 {
            let subject = self.subject(self.empty, "the text is", "texts are");
            lines.push(format!(
                "{subject} empty: the model chose its end token first; use --min-new-tokens 1 to get some text"
            ));
        }
        if !self.cut_off_by.is_empty() {
            let remedies = [
                (FinishReason::Length, "; raise --max-new-tokens"),
                (FinishReason::Time, "; raise --max-time"),
                (FinishReason::Stop, "; --stop ended it"),
            ];
            let is_one = |(reason, _): &&(FinishReason, &str)| self.cut_off_by.contains(reason);
            let advice: String = remedies.iter().filter(is_one).map(|(_, words)| *words).collect();
            let subject = self.subject(self.cut_off_by.len(), "the text", "texts");
            lines.push(format!("{subject} ended before the grammar was fulfilled, and is not valid{advice}"));
        }
        if self.slid {
            lines.push(format!(
                "the text outgrew the context of {context_length} tokens: each token beyond it cost a pass over the last \
                 {context_length}; --overflow stop ends there"
            ));
        }
        lines
    }

    /// How one text ended; for several, their number and whether they were interrupted.
    fn ends(&self, asked: usize) -> String {
        let words = |reason: &FinishReason| reason.words().to_owned();
        if asked <= 1 {
            return self.ended.iter().map(words).collect::<Vec<_>>().join(", ");
        }
        let interrupted = self.ended.iter().find(|&&reason| reason == FinishReason::Interrupted);
        let mut parts = vec![counted(self.texts, "text")];
        parts.extend(interrupted.map(words));
        match (asked.saturating_sub(self.texts), interrupted) {
            (0, _) => {}
            (missing, Some(_)) => parts.push(format!("{missing} of {asked} not started")),
            (_, None) => parts.push(format!("{asked} were asked for, but there are no more")),
        }
        parts.join(", ")
    }

    /// A line about the finding of an exact search or of drafts.
    fn finding_line(&self, finding: &Finding) -> String {
        match finding {
            Finding::Exact { proven: true, nodes, .. } => {
                format!("proven: no text is more probable ({} looked at)", counted(*nodes, "prefix"))
            }
            Finding::Exact { nodes, bound, cut_short, .. } => {
                let why = match cut_short {
                    Some(FinishReason::Time) => "raise --max-time",
                    Some(_) => "it was interrupted",
                    None => "raise --max-nodes, or lower --max-new-tokens",
                };
                let (looked_at, bound) = (counted(*nodes, "prefix"), bound.unwrap_or(0.0));
                let may_be = format!("a text with a log-probability of up to {bound:.4}");
                format!("not proven: after {looked_at} there may still be {may_be}; {why}")
            }
            Finding::Draft(_) => {
                let Acceptance { proposed, accepted, passes } = self.drafts;
                let share = 100.0 * self.drafts.rate();
                let [proposed, passes, tokens] =
                    [(proposed, "proposed token"), (passes, "pass"), (self.tokens, "token")]
                        .map(|(number, noun)| counted(number, noun));
                format!(
                    "drafts: {accepted} of {proposed} accepted ({share:.0}%), {passes} through the model for {tokens}"
                )
            }
        }
    }

    /// The subject of a sentence: `one` for a single text, else "count of all `several`".
    fn subject(&self, count: usize, one: &str, several: &str) -> String {
        if self.texts == 1 { one.to_owned() } else { format!("{count} of {} {several}", self.texts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text without tokens, but with how it ended and whether it is valid.
    fn ended(finish_reason: FinishReason, valid: bool) -> Written {
        let completion = Completion {
            ids: Vec::new(),
            tokens: Vec::new(),
            finish_reason,
            score: 0.0,
            seconds: 1.0,
            slid: false,
            finding: None,
        };
        Written { prompt: 0, number: 0, text: String::new(), completion, valid: Some(valid) }
    }

    #[test]
    fn the_advice_is_for_what_cut_off_the_invalid_texts() {
        let line = |answers: &[Written]| {
            let mut totals = Totals::default();
            totals.add(answers);
            totals.lines(answers.len(), 64).pop().unwrap_or_default()
        };
        let [cut, stopped] = [FinishReason::Length, FinishReason::Stop].map(|reason| ended(reason, false));
        let whole = ended(FinishReason::Stop, true);
        for (answers, subject, advice) in [
            (vec![cut.clone(), whole.clone()], "1 of 2", "raise --max-new-tokens"),
            (vec![whole.clone(), stopped.clone()], "1 of 2", "--stop ended it"),
            (vec![stopped, cut], "2 of 2", "raise --max-new-tokens; --stop ended it"),
        ] {
            let what = "texts ended before the grammar was fulfilled, and is not valid";
            assert_eq!(line(&answers), format!("{subject} {what}; {advice}"));
        }
        assert!(!line(&[whole]).contains("grammar was"));
    }
}
