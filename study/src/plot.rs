//! `loss.svg`: the losses of a run, for a person to look at.

use std::path::Path;

use ember_host::output;
use itertools::Itertools;
use plotters::{prelude::*, style::text_anchor::HPos};

use crate::drawing::{AXIS, AZURE, EDGE, GREY, INK, ORANGE, PURPLE, SEA_GREEN, TEAL};
use crate::drawing::{Area, Drawn, Points, drawable, shortened, smooth, svg, write_picture};
use crate::drawing::{axes, beside, curve, decimals, dots, font, legend_entry, panel, whole_ticks};
use crate::error::{Error, Result};
use ember_training::run::{report::Row, report::last_step};
use ember_training::units::{counted, duration, grouped, short};

const SIZE: (u32, u32) = (960, 600);
const HEADER: u32 = 92;
const RATE_PANEL: u32 = 130;
/// Columns available for the title.
const TITLE_COLUMNS: usize = 76;
/// Distance between the names of two horizontal lines.
const NAME_HEIGHT: i32 = 14;

/// Colour of the logged training losses; the other curves have colours that are easy to tell apart.
const RAW: RGBColor = RGBColor(178, 205, 232);
const EMA: RGBColor = RGBColor(196, 151, 40);
const TRAIN: RGBColor = AZURE;
const VAL: RGBColor = ORANGE;
const FLOOR: RGBColor = SEA_GREEN;
const FORGETFUL: RGBColor = PURPLE;

/// Draws the losses and the learning rate over the steps as SVG into `out`, replacing it.
///
/// `title` is the run's name; the numbers under it come from the last rows. The marks of the
/// built-in corpus are drawn if a row has them.
///
/// # Errors
/// When no row has a loss, or the file cannot be written; the error names it.
pub fn loss_svg(rows: &[Row], title: &str, out: &Path) -> Result<()> {
    write_picture("plot", &draw(rows, title)?, out)
}

/// As [`loss_svg`], into the `loss.svg` of a run's folder, which no user named: a pipe or a device
/// of that name is refused, since opening a pipe for writing would block.
///
/// # Errors
/// As [`loss_svg`], and when `out` exists and is not a regular file.
pub fn own_loss_svg(rows: &[Row], title: &str, out: &Path) -> Result<()> {
    if out.metadata().is_ok_and(|there| !there.is_file()) {
        let line = format!("cannot write {}: it is not a regular file", out.display());
        return Err(Error::Write { what: "plot", source: output::Error::Refused(line) });
    }
    loss_svg(rows, title, out)
}

fn draw(rows: &[Row], title: &str) -> Result<String> {
    let curves = Curves::of(rows);
    if curves.train.is_empty() && curves.val.is_empty() {
        return Err(Error::NothingToPlot);
    }
    svg("plot", SIZE, |root| {
        let (header, panels) = root.split_vertically(HEADER);
        let (losses, rates) = panels.split_vertically(SIZE.1 - HEADER - RATE_PANEL);
        heading(&header, title, &summary(rows), &curves)?;
        loss_panel(&losses, &curves)?;
        rate_panel(&rates, &curves, &step_axis(rows))
    })
}

/// The curves: x in steps, y in nats per token or, for the rate, its own unit.
struct Curves {
    train: Points,
    smooth: Points,
    val: Points,
    /// Validation loss of the averaged weights.
    ema: Points,
    rate: Points,
    /// Name, height and colour of the horizontal lines, from the highest.
    marks: Vec<(&'static str, f64, RGBColor)>,
    over_fits_from: Option<f64>,
    last_step: f64,
    low: f64,
    high: f64,
}

impl Curves {
    fn of(rows: &[Row]) -> Self {
        let curve = |value: fn(&Row) -> Option<f64>| -> Points {
            rows.iter().filter_map(|row| Some((row.step as f64, value(row).filter(drawable)?))).collect()
        };
        let (train, val) = (curve(|row| row.train_loss), curve(|row| row.val_loss));
        let ema = curve(|row| row.ema_val_loss);
        let marks = [
            ("n-grams", last(rows, |row| row.ngram_loss), TEAL),
            ("forgetful predictor", last(rows, |row| row.forgetful_loss), FORGETFUL),
            ("entropy floor", last(rows, |row| row.entropy_floor), FLOOR),
        ];
        let drawn = |(name, height, colour): (_, Option<f64>, _)| Some((name, height.filter(drawable)?, colour));
        let marks: Vec<_> = marks.into_iter().filter_map(drawn).sorted_by(|a, b| b.1.total_cmp(&a.1)).collect();

        let last_step = rows.iter().map(|row| row.step).max().unwrap_or(1).max(1) as f64;

        // The first steps fall from far above, and would squeeze everything of interest into the
        // lowest part of the picture: so curves may be cut off at the top, but not at the bottom.
        let mut heights: Vec<f64> = train.iter().map(|point| point.1).collect();
        heights.sort_by(f64::total_cmp);
        let usual = heights.get(heights.len() * 95 / 100);
        let settled = val.iter().skip_while(|point| point.0 < 0.02 * last_step).chain(val.last()).chain(ema.last());
        let lines = marks.iter().map(|mark| &mark.1);
        let high = settled.map(|point| &point.1).chain(lines.clone()).chain(usual).copied().fold(f64::MIN, f64::max);
        let evaluated = val.iter().chain(&ema).map(|point| &point.1);
        let low = evaluated.chain(lines).chain(heights.first()).copied().fold(f64::MAX, f64::min);
        let pad = 0.06 * (high - low).max(0.05);

        let (smooth, rate) = (smooth(&train), curve(|row| row.learning_rate));
        let over_fits_from = over_fits_from(rows, &smooth);
        Self { train, smooth, val, ema, rate, marks, over_fits_from, last_step, low: low - pad, high: high + pad }
    }

    /// Width right of the panels, with room for the names of any horizontal lines.
    fn right_margin(&self) -> u32 {
        if self.marks.is_empty() { 28 } else { 134 }
    }
}

/// The last numbers of a run, in one line.
fn summary(rows: &[Row]) -> String {
    let parts = [
        last_step(rows).map(|step| counted(grouped(step), "step")),
        last(rows, |row| row.tokens).map(|tokens| format!("{} tokens", short(tokens as f64))),
        last(rows, |row| row.elapsed_s).map(duration),
        last(rows, |row| row.train_loss).map(|loss| format!("train {loss:.3}")),
        last_val_loss(rows).map(|loss| format!("validation {loss:.3}")),
        best(rows).map(|(loss, step)| format!("best {loss:.3} at step {}", grouped(step))),
        lowest(rows, |row| row.bits_per_byte).map(|(bits, _)| format!("{bits:.3} bits per byte")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("  ·  ")
}

/// The value of the last row that has it.
pub(crate) fn last<T>(rows: &[Row], value: fn(&Row) -> Option<T>) -> Option<T> {
    rows.iter().rev().find_map(value)
}

/// The validation loss of the last evaluation; `None` if that was not finite, which JSON has as null:
/// an earlier one would say that a run is well that has diverged.
pub(crate) fn last_val_loss(rows: &[Row]) -> Option<f64> {
    let is_evaluation = |row: &&Row| row.eval_s.or(row.val_loss).is_some();
    rows.iter().rev().find(is_evaluation)?.val_loss
}

/// The lowest validation loss, and its step.
pub(crate) fn best(rows: &[Row]) -> Option<(f64, u64)> {
    lowest(rows, |row| row.val_loss)
}

/// The lowest value of all rows that have it, and its step.
pub(crate) fn lowest(rows: &[Row], value: fn(&Row) -> Option<f64>) -> Option<(f64, u64)> {
    rows.iter().filter_map(|row| Some((value(row)?, row.step))).min_by(|a, b| a.0.total_cmp(&b.0))
}

/// The step from which a run overfits: that of the lowest validation loss, if the last is higher by
/// a hundredth, while the `smooth` training loss is not. If that rose too, the run no longer
/// learns.
fn over_fits_from(rows: &[Row], smooth: &[(f64, f64)]) -> Option<f64> {
    const BY: f64 = 1.01;
    let (least, step) = best(rows)?;
    let turned = last_val_loss(rows)? > BY * least;
    let then = smooth.iter().rev().find(|point| point.0 <= step as f64).or(smooth.first())?.1;
    // The last points have few neighbours to average over.
    let now = smooth[smooth.len() - 1 - smooth.len() / 50].1;
    (turned && now < BY * then).then_some(step as f64)
}

/// The name of the x axis, with the number of tokens in a step if it is known.
fn step_axis(rows: &[Row]) -> String {
    match last(rows, |row| row.tokens.filter(|_| row.step > 0).map(|tokens| tokens / row.step)) {
        Some(tokens) => format!("optimizer step ({} tokens each)", grouped(tokens)),
        None => "optimizer step".into(),
    }
}

/// The run's name, its numbers, and the legend, which is here so that it covers no curve.
fn heading(area: &Area<'_>, title: &str, summary: &str, curves: &Curves) -> Drawn {
    let left = (EDGE + AXIS) as i32;
    area.draw(&Text::new(shortened(title, TITLE_COLUMNS), (left, 14), font(20, &INK)))?;
    area.draw(&Text::new(summary.to_string(), (left, 42), font(13, &GREY)))?;
    let entries = [
        ("train", RAW, 1, 56, !curves.train.is_empty()),
        ("train, smoothed", TRAIN, 2, 122, !curves.train.is_empty()),
        ("validation", VAL, 2, 90, !curves.val.is_empty()),
        ("of the average", EMA, 2, 110, !curves.ema.is_empty()),
    ];
    let (mut x, y) = (left, 74);
    for (name, colour, width, advance, _) in entries.into_iter().filter(|entry| entry.4) {
        legend_entry(area, (x, y), name, colour.stroke_width(width), name == "validation")?;
        x += 40 + advance;
    }
    Ok(())
}

fn loss_panel(area: &Area<'_>, curves: &Curves) -> Drawn {
    let mut chart = panel(area, curves.right_margin())
        .margin_top(4)
        .margin_bottom(10)
        .build_cartesian_2d(0.0..curves.last_step, curves.low..curves.high)?;
    axes(&mut chart)
        .disable_x_axis()
        .y_desc("loss (nats per token)")
        .x_labels(whole_ticks(curves.last_step))
        .y_labels(8)
        .y_label_formatter(&|y| decimals(*y, curves.high - curves.low))
        .draw()?;

    for (_, height, colour) in &curves.marks {
        let ends = [(0.0, *height), (curves.last_step, *height)];
        chart.draw_series(DashedLineSeries::new(ends, 5, 4, colour.stroke_width(1)))?;
    }
    if let Some(step) = curves.over_fits_from {
        let ends = [(step, curves.low), (step, curves.high)];
        chart.draw_series(DashedLineSeries::new(ends, 2, 4, GREY.stroke_width(1)))?;
    }
    for (points, colour, width) in
        [(&curves.train, RAW, 1), (&curves.smooth, TRAIN, 2), (&curves.ema, EMA, 2), (&curves.val, VAL, 2)]
    {
        curve(&mut chart, points, curves.high, colour.stroke_width(width))?;
    }
    dots(&mut chart, &curves.val, curves.high, VAL)?;

    let top = area.get_pixel_range().1.start;
    let fallen = curves.train.first().filter(|first| first.1 > curves.high);
    // Names that would overlap are moved apart, from the top down.
    let mut lowest = i32::MIN;
    for (name, height, colour) in &curves.marks {
        let (x, y) = chart.backend_coord(&(curves.last_step, *height));
        lowest = (y - top).max(lowest.saturating_add(NAME_HEIGHT));
        let text = format!("{name} {height:.3}");
        area.draw(&Text::new(text, (x + 8, lowest), beside(HPos::Left, 12, colour)))?;
    }
    if let Some(step) = curves.over_fits_from {
        // On the side with room for it, and below any text at the top.
        let (x, y) = chart.backend_coord(&(step, curves.high));
        let (side, x) = if step > 0.6 * curves.last_step { (HPos::Right, x - 8) } else { (HPos::Left, x + 8) };
        let down = if fallen.is_some() { 30 } else { 12 };
        area.draw(&Text::new("overfits from here", (x, y - top + down), beside(side, 12, &GREY)))?;
    }
    if let Some(first) = fallen {
        let (x, y) = chart.backend_coord(&(first.0, curves.high));
        let text = format!("from {:.2} at step {}", first.1, grouped(first.0 as u64));
        area.draw(&Text::new(text, (x + 40, y - top + 6), font(12, &GREY)))?;
    }
    Ok(())
}

fn rate_panel(area: &Area<'_>, curves: &Curves, x_title: &str) -> Drawn {
    let peak = curves.rate.iter().map(|point| point.1).fold(0.0, f64::max);
    let peak = if peak > 0.0 { peak } else { 1.0 };
    let mut chart = panel(area, curves.right_margin())
        .margin_bottom(6)
        .set_label_area_size(LabelAreaPosition::Bottom, 44)
        .build_cartesian_2d(0.0..curves.last_step, 0.0..1.1 * peak)?;
    axes(&mut chart)
        .x_desc(x_title)
        .y_desc("learning rate")
        .x_labels(whole_ticks(curves.last_step))
        .y_labels(3)
        .x_label_formatter(&|x| grouped(*x as u64))
        .y_label_formatter(&|y| if *y == 0.0 { "0".into() } else { format!("{y:.0e}") })
        .draw()?;
    curve(&mut chart, &curves.rate, 1.1 * peak, INK.stroke_width(1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ember_host::file_error::FileError;

    fn run() -> Vec<Row> {
        (1..=300u64)
            .map(|i| {
                let step = 10 * i;
                let loss = 1.2 + 5.7 * (-(step as f64) / 150.0).exp() + 0.05 * (i as f64 * 7.3).sin();
                Row {
                    step,
                    train_loss: Some(loss),
                    val_loss: i.is_multiple_of(25).then_some(loss + 0.04),
                    entropy_floor: i.is_multiple_of(25).then_some(1.07),
                    ngram_loss: i.is_multiple_of(25).then_some(2.2),
                    forgetful_loss: i.is_multiple_of(25).then_some(1.81),
                    learning_rate: Some(2e-3 * (1.0 - i as f64 / 300.0)),
                    tokens: Some(2_048 * step),
                    elapsed_s: Some(step as f64 / 12.0),
                    ..Row::default()
                }
            })
            .collect()
    }

    /// If EMBER_PLOT names a file, writes the picture there for inspection by eye.
    #[test]
    fn the_picture_says_what_it_shows() {
        let svg = draw(&run(), "stories <1> & more").unwrap();
        if let Some(path) = std::env::var_os("EMBER_PLOT") {
            std::fs::write(path, &svg).unwrap();
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        for text in [
            "stories &lt;1&gt; &amp; more",
            "3,000 steps  ·  6.14M tokens  ·  4m10s",
            "best 1.2",
            "loss (nats per token)",
            "learning rate",
            "optimizer step (2,048 tokens each)",
            "train, smoothed",
            "validation",
            "n-grams 2.200",
            "entropy floor 1.070",
            "forgetful predictor 1.810",
            "at step 10",
        ] {
            assert!(svg.contains(text), "{text} is not in the picture");
        }
    }

    #[test]
    fn a_run_that_learns_by_heart_says_from_where() {
        let turning = |row: Row| {
            let val_loss = row.val_loss.map(|loss| loss + (row.step as f64 / 1000.0 - 1.5).max(0.0));
            Row { val_loss, bits_per_byte: val_loss.map(|loss| loss / 2.0), entropy_floor: None, ..row }
        };
        let rows: Vec<Row> = run().into_iter().map(turning).collect();
        let svg = draw(&rows, "turning").unwrap();
        if let Some(path) = std::env::var_os("EMBER_PLOT") {
            std::fs::write(Path::new(&path).with_extension("turning.svg"), &svg).unwrap();
        }
        assert!(svg.contains("overfits from here") && svg.contains("bits per byte"));
        assert_eq!(Curves::of(&rows).over_fits_from, Some(1500.0));
        assert!(!draw(&run(), "well").unwrap().contains("overfits"));
    }

    #[test]
    fn a_run_that_diverges_learns_nothing_by_heart() {
        let rising = |row: Row| {
            let more = (row.step as f64 / 1000.0 - 1.5).max(0.0);
            let [train_loss, val_loss] = [row.train_loss, row.val_loss].map(|loss| loss.map(|loss| loss + more));
            Row { train_loss, val_loss, ..row }
        };
        let rows: Vec<Row> = run().into_iter().map(rising).collect();
        assert!(!draw(&rows, "diverging").unwrap().contains("overfits"));
    }

    #[test]
    fn no_loss_lies_below_the_picture() {
        let early = Row { step: 5, val_loss: Some(0.9), ..Row::default() };
        let average = Row { step: 2000, ema_val_loss: Some(0.8), ..Row::default() };
        let curves = Curves::of(&[vec![early], run(), vec![average]].concat());
        assert!(curves.low < 0.8 && curves.high < 4.0, "{} to {}", curves.low, curves.high);
    }

    #[test]
    fn a_step_whose_batch_was_skipped_is_not_among_the_steps() {
        let skipped = Row { step: 3001, skipped: Some(1), ..Row::default() };
        assert!(summary(&[run(), vec![skipped]].concat()).starts_with("3,000 steps"));
    }

    #[test]
    fn a_curve_of_one_point_is_a_dot() {
        let only = Row { step: 5, train_loss: Some(2.0), ..Row::default() };
        assert!(draw(&[only], "begun").unwrap().contains("<circle"));
    }

    #[test]
    fn the_steps_of_a_short_run_are_whole_numbers() {
        let rows = |steps: u64| -> Vec<Row> {
            (0..=steps).map(|step| Row { step, train_loss: Some(2.0 - step as f64 / 10.0), ..Row::default() }).collect()
        };
        for (steps, wanted) in [(1, vec!["0", "1"]), (3, vec!["0", "1", "2", "3"])] {
            let svg = draw(&rows(steps), "short").unwrap();
            let mut numbers: Vec<&str> = svg.lines().filter(|line| line.parse::<u64>().is_ok()).collect();
            assert_eq!(numbers.len(), wanted.len() + 1, "{numbers:?} with the 0 of the rate");
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers, wanted);
        }
    }

    #[test]
    fn the_names_of_lines_that_nearly_meet_stand_apart() {
        let rows: Vec<Row> = run().into_iter().map(|row| Row { ngram_loss: Some(1.8), ..row }).collect();
        let svg = draw(&rows, "near").unwrap();
        let height = |name: &str| -> i32 {
            let before = &svg[..svg.find(name).unwrap()];
            before.rsplit(" y=\"").next().unwrap().split('"').next().unwrap().parse().unwrap()
        };
        assert!(height("n-grams 1.8") >= height("forgetful predictor 1.81") + NAME_HEIGHT, "{svg}");
    }

    #[test]
    fn a_long_name_stays_in_the_picture() {
        let svg = draw(&run(), &"long name ".repeat(30)).unwrap();
        assert!(svg.contains('…') && !svg.contains(&"long name ".repeat(9)));
    }

    #[test]
    fn any_run_with_one_loss_has_a_picture_and_no_other_has() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("loss.svg");
        let one = Row { step: 0, val_loss: Some(4.2), ..Row::default() };
        let few: Vec<Row> = run().into_iter().take(6).map(|row| Row { entropy_floor: None, ..row }).collect();
        loss_svg(&few, "few", &out).unwrap();
        if let Some(path) = std::env::var_os("EMBER_PLOT") {
            std::fs::copy(&out, Path::new(&path).with_extension("few.svg")).unwrap();
        }
        loss_svg(std::slice::from_ref(&one), "one", &out).unwrap();
        assert!(std::fs::read_to_string(&out).unwrap().contains("validation 4.200"));
        let nan = Row { step: 1, train_loss: Some(f64::NAN), ..Row::default() };
        loss_svg(&[one.clone(), nan.clone()], "diverged", &out).unwrap();
        let far = |step, loss| Row { step, train_loss: Some(loss), val_loss: Some(loss), ..Row::default() };
        loss_svg(&[one, far(2, 1e308), far(3, -1e308), far(4, 1e9), far(5, 1e9)], "far", &out).unwrap();
        assert!(loss_svg(&[], "none", &out).is_err());
        assert!(loss_svg(&[nan], "diverged", &out).is_err());
        let refused = loss_svg(&few, "few", folder.path()).unwrap_err();
        assert_eq!(refused.to_string(), "the plot cannot be written; name another file");
        assert!(own_loss_svg(&few, "few", folder.path()).is_err());
        own_loss_svg(&few, "few", &out).unwrap();
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let file = FileError { doing: "cannot write", path: out, source: full };
        let full = Error::Write { what: "plot", source: file.into() };
        assert_eq!(full.to_string(), "the plot cannot be written; free some space");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_in_the_place_of_a_run_s_picture_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let [pipe, device] = ["pipe", "device"].map(|name| folder.path().join(name));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/null", &device).unwrap();
        for path in [pipe, device] {
            let Err(Error::Write { source, .. }) = own_loss_svg(&run(), "piped", &path) else {
                panic!("{} is written", path.display())
            };
            let line = format!("cannot write {}: it is not a regular file", path.display());
            assert_eq!(source.to_string(), line);
        }
    }
}
