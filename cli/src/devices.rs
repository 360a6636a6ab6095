//! `ember-generate devices`: the devices that this program can compute on.

use std::{io::Write, iter};

use anyhow::Result;
use ember_model::device::{self, Described, Details, Selected};

use crate::program::{CommonArgs, Outcome};
use crate::terminal;

/// Writes every device with its details, the preferred first; `ember-train devices` does the same.
///
/// # Errors
/// When standard output cannot be written to.
pub fn run(common: &CommonArgs) -> Result<Outcome> {
    let mut out = terminal::stdout();
    for listed in device::described() {
        let text = || lines(&listed);
        common.format.write_line(&mut out, || serde_json::to_string(&listed), text)?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// A device's line, and below it those of its details.
pub fn lines(Described { device, details }: &Described) -> String {
    let first = format!("{:<8}  {}  {}", device.id, device.name, state(device));
    let details = details.iter().flat_map(Details::lines).map(|line| format!("{:<8}  {line}", ""));
    iter::once(first).chain(details).collect::<Vec<_>>().join("\n")
}

fn state(listed: &Selected) -> String {
    match (&listed.problem, listed.gpu || listed.id == "cpu") {
        (Some(problem), _) => format!("does not work: {problem}"),
        (None, true) => "works".to_owned(),
        (None, false) => "works, but computes on the processor; --device cpu is faster".to_owned(),
    }
}
