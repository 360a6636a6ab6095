//! Several runs in one picture: training losses pale, validation losses strong, one colour per run;
//! below, as the legend, each run's figures and what its configuration differs in.

use ember_host::names::Names;
use ember_training::run::init::initial_checkpoint_name;
use plotters::{prelude::*, style::text_anchor::HPos};
use toml::Value;

use super::chart::letter;
use super::{Axis, Record, Scale, Summary, differences, heights, note, table::HEADINGS, table::cut, table::figures};
use crate::drawing::{self, AXIS, Area, COLOURS, Drawn, EDGE, GREY, INK, Points};
use crate::drawing::{axes, beside, curve, decimals, dots, legend_entry, panel, whole_ticks};
use crate::error::{Error, Result};

const WIDTH: u32 = 960;
const HEADER: u32 = 36;
const PANEL: u32 = 460;
/// Height of the legend's lines.
const LINE: u32 = 18;
/// Maximal length of the legend's lines in characters, so that they fit into the picture.
const LINE_CHARACTERS: usize = 128;
/// The right ends of the legend's columns; of the first, its left end.
const COLUMNS: [i32; 9] = [96, 388, 476, 540, 658, 728, 808, 866, 940];
/// The keys whose values are paths, which the legend shows without folders: they are private.
const PATHS: [&str; 3] = ["init", "text", "tokenizer"];

/// The curves of one run in axis coordinates: training losses, validation losses.
type Curves = [Points; 2];

/// The picture as SVG.
///
/// # Errors
/// When no loss can be drawn over this axis or on this scale, or the drawing library fails.
pub fn svg(runs: &[Record], axis: Axis, scale: Scale) -> Result<String> {
    let place = |run: &Record| [run.training(axis), run.validation(axis)].map(|points| scale.place(&points));
    let curves: Vec<Curves> = runs.iter().map(place).collect();
    if curves.iter().flatten().all(Vec::is_empty) {
        let has_losses = |run: &Record| !run.training(axis).is_empty() || !run.validation(axis).is_empty();
        let is_too_low = runs.iter().any(has_losses);
        return Err(if is_too_low { Error::NoLogarithm } else { Error::NoAxis(axis.title()) });
    }
    let notes = notes(runs);
    let lines: u32 = 1 + notes.iter().map(|lines| 1 + lines.len() as u32).sum::<u32>();
    drawing::svg("plot", (WIDTH, HEADER + PANEL + LINE * (lines + 1)), |root| {
        let (header, rest) = root.split_vertically(HEADER);
        let (panel, legend) = rest.split_vertically(PANEL);
        heading(&header, note(runs))?;
        losses(&panel, &curves, axis, scale)?;
        figures_of(&legend, runs, &notes)
    })
}

/// Each run's differences, in lines that fit.
fn notes(runs: &[Record]) -> Vec<Vec<String>> {
    let differences = differences(runs);
    let paths = runs.iter().flat_map(|run| PATHS.into_iter().filter_map(move |key| run.config.get(key)));
    let names = Names::new(paths.flat_map(strings));
    let of = |run: &Record| {
        let mut lines: Vec<String> = Vec::new();
        for key in differences.keys() {
            let Some(value) = run.config.get(key) else { continue };
            let note = format!("{key} = {}", cut(&shown(key, value, &names)));
            match lines.last_mut() {
                Some(line) if line.chars().count() + note.chars().count() + 3 <= LINE_CHARACTERS => {
                    line.push_str(" · ");
                    line.push_str(&note);
                }
                _ => lines.push(note),
            }
        }
        lines
    };
    runs.iter().map(of).collect()
}

/// The strings of a value that is one, or a list of some.
fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        value => value.as_str().into_iter().collect(),
    }
}

/// A value as in a configuration, but files and checkpoints without their folders.
fn shown(key: &str, value: &Value, names: &Names<'_>) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(|value| shown(key, value, names)).collect();
            format!("[{}]", values.join(", "))
        }
        Value::String(path) if PATHS.contains(&key) => {
            let name = if key == "init" { initial_checkpoint_name(path) } else { Some(names.of(path).to_owned()) };
            Value::from(name.unwrap_or_default()).to_string()
        }
        value => value.to_string(),
    }
}

fn heading(area: &Area<'_>, note: Option<&str>) -> Drawn {
    let (left, y) = ((EDGE + AXIS) as i32, 20);
    legend_entry(area, (left, y), "validation", GREY.stroke_width(2), true)?;
    legend_entry(area, (left + 118, y), "train, smoothed", GREY.mix(0.4).stroke_width(2), false)?;
    area.draw(&Text::new(note.unwrap_or_default().to_owned(), (left + 262, y), beside(HPos::Left, 12, &GREY)))
}

fn losses(area: &Area<'_>, curves: &[Curves], axis: Axis, scale: Scale) -> Drawn {
    let all = curves.iter().flatten();
    let last = all.clone().flatten().map(|point| point.0).fold(0.0, f64::max).max(1e-9);
    let (low, high) = heights(all, scale);
    let ticks = if axis == Axis::Time { 9 } else { whole_ticks(last) };
    let mut chart =
        panel(area, 28).set_label_area_size(LabelAreaPosition::Bottom, 44).build_cartesian_2d(0.0..last, low..high)?;
    axes(&mut chart)
        .x_desc(axis.title())
        .y_desc("loss (nats per token)")
        .x_labels(ticks)
        .y_labels(8)
        .x_label_formatter(&|x| axis.label(*x))
        .y_label_formatter(&|y| decimals(scale.loss(*y), scale.loss(high) - scale.loss(low)))
        .draw()?;
    for (run, [train, _]) in curves.iter().enumerate() {
        curve(&mut chart, train, high, colour(run).mix(0.4).stroke_width(2))?;
    }
    for (run, [_, val]) in curves.iter().enumerate() {
        curve(&mut chart, val, high, colour(run).stroke_width(2))?;
        dots(&mut chart, val, high, colour(run))?;
    }
    let top = area.get_pixel_range().1.start;
    for (run, [train, val]) in curves.iter().enumerate().filter(|_| curves.len() > COLOURS.len()) {
        if let Some(end) = val.last().or(train.last()).filter(|point| point.1 <= high) {
            let (x, y) = chart.backend_coord(end);
            let name = letter(run).to_string();
            area.draw(&Text::new(name, (x + 5, y - top), beside(HPos::Left, 12, &colour(run))))?;
        }
    }
    Ok(())
}

/// The legend: a line of figures for each run, and its differences below.
fn figures_of(area: &Area<'_>, runs: &[Record], notes: &[Vec<String>]) -> Drawn {
    let mut y = LINE as i32;
    cells(area, &HEADINGS.map(String::from), y, &GREY)?;
    // A record's own name may be its path, which is private.
    let whole_path = |run: &Record| run.path.canonicalize().unwrap_or_else(|_| run.path.clone());
    let paths: Vec<String> = runs.iter().map(|run| whole_path(run).display().to_string()).collect();
    let names = Names::new(paths.iter().map(String::as_str));
    for (run, ((record, path), notes)) in runs.iter().zip(&paths).zip(notes).enumerate() {
        y += LINE as i32;
        let [left, ..] = COLUMNS;
        area.draw(&PathElement::new(vec![(left - 30, y), (left - 8, y)], colour(run).stroke_width(3)))?;
        if runs.len() > COLOURS.len() {
            let name = letter(run).to_string();
            area.draw(&Text::new(name, (left - 44, y), beside(HPos::Left, 12, &colour(run))))?;
        }
        cells(area, &figures(&Summary { run: names.of(path).to_owned(), ..record.summary() }), y, &INK)?;
        for note in notes {
            y += LINE as i32;
            area.draw(&Text::new(note.clone(), (left, y), beside(HPos::Left, 12, &GREY)))?;
        }
    }
    Ok(())
}

fn cells(area: &Area<'_>, cells: &[String; 9], y: i32, ink: &RGBColor) -> Drawn {
    for (column, (cell, x)) in cells.iter().zip(COLUMNS).enumerate() {
        let side = if column == 0 { HPos::Left } else { HPos::Right };
        area.draw(&Text::new(cut(cell), (x, y), beside(side, 13, ink)))?;
    }
    Ok(())
}

/// Colours repeat if there are more runs than colours: then a letter beside each curve
/// distinguishes the runs.
fn colour(run: usize) -> RGBColor {
    COLOURS[run % COLOURS.len()]
}
