//! `ember-train devices`: lists the devices; with `--check`, compares one's results with the CPU's.

use std::io::Write;

use ember_cli::{devices, terminal};
use ember_host::output::is_standard_output;
use ember_kernels::gpu::attention_report;
use ember_model::device;

use crate::prelude::*;
use ember_study::selfcheck::{self, Comparison};

/// Arguments of `devices`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ember-train devices                                           list the devices
  ember-train devices --check --device wgpu                     compare it with the CPU")]
pub struct DevicesArgs {
    /// Compare --device with the CPU: every kernel, forward and backward, and small models, in
    /// float32, bfloat16 and float16, where it supports them
    #[arg(long)]
    pub check: bool,

    /// Also write the results of --check as a Markdown page, for a bug report
    #[arg(long, value_name = "FILE", requires = "check", value_parser = output_file::report())]
    pub report: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When `--device` is not there, when it does not compute what the CPU computes, or when standard
/// output cannot be written to.
pub fn run(args: &DevicesArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    if !args.check {
        return devices::run(common);
    }
    let notes = Notes::new(common.quiet);
    let selected = match select(common, &notes) {
        Ok(selected) => selected,
        Err(error) => {
            // A report is needed most when the device cannot even be selected.
            if let Some(path) = &args.report {
                report(path, &page(&format!("nothing was checked: {error}"), &[]), &notes)?;
            }
            return Err(error.into());
        }
    };
    let mut out = terminal::stdout();
    // With the report on standard output, lines there would become part of it.
    let is_report_on_stdout = args.report.as_deref().is_some_and(is_standard_output);
    let mut print = |comparison: &Comparison| -> Result<()> {
        if is_report_on_stdout {
            notes.say(line(comparison));
            return Ok(());
        }
        match common.format {
            OutputFormat::Text => writeln!(out, "{}", line(comparison))?,
            OutputFormat::Json => write!(out, "{}", json_line(comparison)?)?,
        }
        Ok(out.flush()?)
    };
    let all = selfcheck::compare(&selected, &mut print, &|| !interrupt.requested())?;
    if interrupt.requested() {
        return Ok(Outcome::Interrupted);
    }
    attention_report().iter().for_each(|line| notes.say(line));
    let wrong: Vec<_> = all.iter().filter(|comparison| !comparison.holds).collect();
    if let Some(path) = &args.report {
        let right = format!("{} of {} comparisons with the CPU are right", all.len() - wrong.len(), all.len());
        report(path, &page(&format!("{} ({}): {right}", selected.id, selected.name), &all), &notes)?;
    }
    let Some(first) = wrong.first() else { return Ok(Outcome::Done) };
    bail!(
        "{} ({}) differs from the CPU by more than rounding in {} of {} (first in {} in {}); use --device cpu",
        selected.id,
        selected.name,
        wrong.len(),
        counted(all.len(), "comparison"),
        first.what,
        first.precision,
    )
}

fn report(path: &Path, page: &str, notes: &Notes) -> Result<()> {
    write_file(path, page)?;
    notes.say(format!("the page is in {}", path.display()));
    Ok(())
}

/// The bug report in Markdown: the program's version, the machine, the result of the check, the
/// devices, and the comparisons.
fn page(result: &str, all: &[Comparison]) -> String {
    let described = device::described();
    let devices = described.iter().map(devices::lines).collect::<Vec<_>>().join("\n");
    let mut page = format!(
        "# ember-train devices --check\n\n- ember-train {} on {} {}\n- {result}\n\n## Devices\n\n```text\n{devices}\n```\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
    );
    if !all.is_empty() {
        let comparisons = all.iter().map(line).collect::<Vec<_>>().join("\n");
        page += &format!("\n## Comparisons\n\n```text\n{comparisons}\n```\n");
    }
    page
}

fn line(comparison: &Comparison) -> String {
    let Comparison { what, precision, difference, tolerance, problem, holds, .. } = comparison;
    let difference = match (difference, problem) {
        (Some(difference), _) => format!("{difference:>8.1e} of at most {tolerance:.1e}"),
        (None, Some(problem)) => format!("failed: {problem}"),
        (None, None) => "no finite numbers".to_owned(),
    };
    let verdict = if *holds { "right" } else { "WRONG" };
    format!("{precision:<5} {what:<34} {verdict}  {difference}")
}
