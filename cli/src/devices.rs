//! `ember-generate devices`: what this program can compute on.

use std::io::Write;

use anyhow::Result;
use ember_model::device::{self, Selected};

use crate::program::{CommonArgs, Outcome};
use crate::terminal;

/// Writes every device, the preferred first, one a line; `ember-train devices` is the same.
///
/// # Errors
/// When standard output cannot be written to.
pub fn run(common: &CommonArgs) -> Result<Outcome> {
    let mut out = terminal::stdout();
    for listed in device::list() {
        let text = || format!("{:<8}  {}  {}", listed.id, listed.name, state(&listed));
        common.format.write_line(&mut out, || serde_json::to_string(&listed), text)?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

fn state(listed: &Selected) -> String {
    match (&listed.problem, listed.gpu || listed.id == "cpu") {
        (Some(problem), _) => format!("does not work: {problem}"),
        (None, true) => "works".to_owned(),
        (None, false) => "works, but computes on the processor; --device cpu is faster".to_owned(),
    }
}
