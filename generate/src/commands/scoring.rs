//! What scoring texts and answering questions have in common.

use std::ops::ControlFlow;

use super::progress::Progress;
use ember_host::interrupt::Interrupt;

/// Tokens that are computed, the alike in length together, before their results are shown.
pub(super) const SCORED_BETWEEN_RESULTS: usize = 1 << 16;

/// Hears how many more tokens are done, and says whether to go on.
pub(super) fn tokens_done(progress: &Progress, interrupt: &Interrupt) -> impl FnMut(usize) -> ControlFlow<()> {
    |tokens| {
        progress.advance(tokens);
        if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The first few words of a text, on one line.
pub(super) fn beginning(text: &str) -> String {
    const MOST: usize = 40;
    let line: String = text.chars().take(MOST).map(|c| if ['\n', '\r', '\t'].contains(&c) { ' ' } else { c }).collect();
    if text.chars().count() > MOST { format!("{line}...") } else { line }
}
