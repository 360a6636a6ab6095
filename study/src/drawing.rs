//! The common parts of pictures of losses: colours, a chart with axes, curves and legend, and
//! writing the file.

use std::path::Path;

use ember_host::output::write_output;
use plotters::coord::types::RangedCoordf64 as Axis;
use plotters::{
    chart::MeshStyle, coord::Shift, prelude::*, style::text_anchor::HPos, style::text_anchor::Pos,
    style::text_anchor::VPos,
};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::error::{Error, Result};

/// Widths left of the panels: the picture's edge, then the axis with its numbers and title.
pub(crate) const EDGE: u32 = 10;
pub(crate) const AXIS: u32 = 56;

pub(crate) const INK: RGBColor = RGBColor(38, 38, 44);
pub(crate) const GREY: RGBColor = RGBColor(112, 112, 120);
pub(crate) const GRID: RGBColor = RGBColor(232, 232, 236);
pub(crate) const AZURE: RGBColor = RGBColor(31, 111, 180);
pub(crate) const ORANGE: RGBColor = RGBColor(214, 93, 14);
pub(crate) const SEA_GREEN: RGBColor = RGBColor(46, 139, 87);
pub(crate) const PURPLE: RGBColor = RGBColor(136, 84, 168);
const CRIMSON: RGBColor = RGBColor(196, 49, 75);
pub(crate) const TEAL: RGBColor = RGBColor(0, 139, 139);
const OCHRE: RGBColor = RGBColor(150, 110, 20);
const SLATE: RGBColor = RGBColor(90, 90, 100);

/// Colours to tell curves apart.
pub(crate) const COLOURS: [RGBColor; 8] = [AZURE, ORANGE, SEA_GREEN, PURPLE, CRIMSON, TEAL, OCHRE, SLATE];

/// Largest number that is drawn: with a larger one, the ticks of an axis would be too far apart for
/// the details between them, and no such loss is of interest.
const HIGHEST: f64 = 1e9;

/// Whether a logged number can be drawn.
pub(crate) fn drawable(y: &f64) -> bool {
    y.abs() <= HIGHEST
}

pub(crate) type Points = Vec<(f64, f64)>;
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The drawing of `draw` on a white background, as SVG; `what` is its name in errors.
pub(crate) fn svg(what: &'static str, size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = root.fill(&WHITE).and_then(|()| draw(&root)).and_then(|()| root.present());
        drawn.map_err(|error| Error::Drawing { what, problem: error.to_string() })?;
    }
    Ok(svg)
}

/// Writes a picture to `out`, replacing it.
pub(crate) fn write_picture(what: &'static str, svg: &str, out: &Path) -> Result<()> {
    write_output(out, |file| file.write_all(svg.as_bytes())).map_err(|source| Error::Write { what, source })
}

pub(crate) fn font(size: i32, colour: &RGBColor) -> TextStyle<'static> {
    ("Helvetica, Arial, DejaVu Sans, sans-serif", size).into_font().color(colour)
}

/// As [`font`], vertically centred on its position, starting or ending there.
pub(crate) fn beside(side: HPos, size: i32, colour: &RGBColor) -> TextStyle<'static> {
    font(size, colour).pos(Pos::new(side, VPos::Center))
}

/// A chart whose curves are aligned with those of the charts above and below.
pub(crate) fn panel<'a, 'b>(area: &'a Area<'b>, right: u32) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin_right(right).margin_left(EDGE).set_label_area_size(LabelAreaPosition::Left, AXIS);
    builder
}

/// The lines and fonts of every chart's axes.
pub(crate) fn axes<'a, 'b, 'c>(chart: &'c mut Chart<'a, 'b>) -> MeshStyle<'a, 'c, Axis, Axis, SVGBackend<'b>> {
    let mut mesh = chart.configure_mesh();
    mesh.bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GREY)
        .label_style(font(12, &GREY))
        .axis_desc_style(font(13, &INK));
    mesh
}

/// A legend entry: a piece of the curve's line, with a dot if the curve has dots, and its name.
pub(crate) fn legend_entry(area: &Area<'_>, (x, y): (i32, i32), name: &str, line: ShapeStyle, has_dots: bool) -> Drawn {
    area.draw(&PathElement::new(vec![(x, y), (x + 22, y)], line))?;
    if has_dots {
        area.draw(&Circle::new((x + 11, y), 3, line.color.filled()))?;
    }
    area.draw(&Text::new(name.to_owned(), (x + 28, y), beside(HPos::Left, 13, &INK)))
}

/// The part of a curve that is not above `top`; a single point is drawn as a dot.
pub(crate) fn curve(chart: &mut Chart<'_, '_>, points: &[(f64, f64)], top: f64, line: ShapeStyle) -> Drawn {
    for piece in below(points, top) {
        match piece[..] {
            [only] => chart.draw_series([Circle::new(only, 3, line.color.filled())])?,
            _ => chart.draw_series(LineSeries::new(piece, line))?,
        };
    }
    Ok(())
}

/// The points of a curve, as dots.
pub(crate) fn dots(chart: &mut Chart<'_, '_>, points: &[(f64, f64)], top: f64, colour: RGBColor) -> Drawn {
    let shown = points.iter().filter(|point| point.1 <= top);
    chart.draw_series(shown.map(|point| Circle::new(*point, 3, colour.filled())))?;
    Ok(())
}

/// A moving average over each point and its neighbours, a fiftieth of the run to either side.
pub(crate) fn smooth(points: &[(f64, f64)]) -> Points {
    let reach = points.len() / 50;
    (0..points.len())
        .map(|i| {
            // Symmetric, or the ends of a falling curve would be drawn too low and too high.
            let reach = reach.min(i).min(points.len() - 1 - i);
            let near = &points[i - reach..=i + reach];
            (points[i].0, near.iter().map(|point| point.1).sum::<f64>() / near.len() as f64)
        })
        .collect()
}

/// The parts of a line at or below `top`, cut where it crosses: one piece per descent.
pub(crate) fn below(points: &[(f64, f64)], top: f64) -> Vec<Points> {
    let is_below = |point: &(f64, f64)| point.1 <= top;
    let mut pieces: Vec<Points> = Vec::new();
    let mut before = None;
    for &point in points {
        let from = before.replace(point);
        if is_below(&point) && !from.as_ref().is_some_and(is_below) {
            pieces.push(Points::new());
        }
        let crossing = from.filter(|from| is_below(from) != is_below(&point));
        let crossing = crossing.map(|from| (from.0 + (point.0 - from.0) * (top - from.1) / (point.1 - from.1), top));
        if let Some(piece) = pieces.last_mut() {
            piece.extend(crossing.into_iter().chain(Some(point).filter(is_below)));
        }
    }
    pieces
}

/// The number of ticks on an axis of steps or tokens up to `last`, so that all are whole numbers.
pub(crate) fn whole_ticks(last: f64) -> usize {
    (last as usize).saturating_add(1).clamp(2, 9)
}

/// The text, cut to at most this many columns.
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.width() <= columns {
        return text;
    }
    let mut taken = 0;
    let fits = |c: &char| {
        taken += c.width().unwrap_or(0);
        taken < columns
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// From here on, ticks are written with an exponent: without it they would be too wide.
const LARGE: f64 = 1e4;

/// A tick's number, with as many decimals as the axis needs.
pub(crate) fn decimals(y: f64, span: f64) -> String {
    if y.abs() >= LARGE {
        // Enough digits to tell it from the next tick.
        let places = (y.abs() / span).log10().ceil().clamp(0.0, 3.0) as usize + 1;
        return format!("{y:.places$e}");
    }
    let places = match span {
        ..0.01 => 4,
        ..0.1 => 3,
        ..1.0 => 2,
        _ => 1,
    };
    rounded(y, places)
}

/// A number with this many decimals; one that is rounded to 0 has no sign.
pub(crate) fn rounded(y: f64, places: usize) -> String {
    let text = format!("{y:.places$}");
    let is_zero = !text.contains(|character: char| matches!(character, '1'..='9'));
    if is_zero { text.trim_start_matches('-').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use itertools::Itertools;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn smoothing_keeps_a_straight_line() {
        let line: Points = (0..500).map(|i| (i as f64, 3.0 - 0.01 * i as f64)).collect();
        for (smooth, raw) in smooth(&line).iter().zip_eq(&line) {
            assert!((smooth.1 - raw.1).abs() < 1e-9);
        }
    }

    #[test]
    fn a_line_is_cut_where_it_crosses() {
        let pieces = below(&[(0.0, 3.0), (1.0, 1.0), (2.0, 1.0), (3.0, 3.0), (4.0, 1.0)], 2.0);
        assert_eq!(pieces, [vec![(0.5, 2.0), (1.0, 1.0), (2.0, 1.0), (2.5, 2.0)], vec![(3.5, 2.0), (4.0, 1.0)]]);
    }

    #[test]
    fn numbers_of_an_axis_differ_and_0_has_no_sign() {
        assert_eq!([0.0004, -0.0004, -0.0].map(|y| decimals(y, 0.0016)), ["0.0004", "-0.0004", "0.0000"]);
        assert_eq!([0.0621, -0.0004].map(|y| decimals(y, 0.05)), ["0.062", "0.000"]);
        assert_eq!([-0.6, -0.01, 12.0].map(|y| decimals(y, 20.0)), ["-0.6", "0.0", "12.0"]);
    }

    #[test]
    fn a_large_number_of_an_axis_is_no_wider_than_its_place() {
        assert_eq!([1e9, -2.5e8].map(|y| decimals(y, 2e9)), ["1.0e9", "-2.5e8"]);
        assert_eq!([12_000.0, 12_010.0].map(|y| decimals(y, 40.0)), ["1.2000e4", "1.2010e4"]);
    }

    #[test]
    fn a_long_text_is_cut_by_the_columns_that_it_takes() {
        assert_eq!(["runs", "a run\n", "stories"].map(|text| shortened(text, 6)), ["runs", "a run ", "stori…"]);
        assert_eq!(shortened("日記日記", 6), "日記…");
    }

    proptest! {
        #[test]
        fn what_is_below_is_drawn_and_nothing_else(heights in prop::collection::vec(0.0f64..4.0, 1..40)) {
            let points: Points = heights.iter().enumerate().map(|(i, y)| (i as f64, *y)).collect();
            let drawn = below(&points, 2.0).concat();
            prop_assert!(drawn.iter().all(|point| point.1 <= 2.0 + 1e-9));
            prop_assert!(points.iter().filter(|point| point.1 <= 2.0).all(|point| drawn.contains(point)));
        }
    }
}
