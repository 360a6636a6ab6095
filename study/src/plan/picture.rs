//! The fit as a picture: the predicted and the measured loss of each run.

use std::{collections::BTreeSet, path::Path};

use plotters::prelude::*;

use super::fit::{Fit, Point};
use crate::drawing::{Area, COLOURS, Drawn, GREY, GRID, INK, axes, font, svg, write_picture};
use crate::error::Result;

const SIZE: (u32, u32) = (760, 640);

/// Draws every point twice into `out`, replacing it: by the fit to all points (filled), and by the
/// fit to the points of all other texts (a ring). On the diagonal a prediction is exact; on the two
/// thin lines it is a tenth off.
///
/// # Errors
/// When the file cannot be written; the error names it.
pub fn fit_svg(points: &[Point], fit: &Fit, out: &Path) -> Result<()> {
    write_picture("picture", &svg("fit", SIZE, |root| draw(points, fit, root))?, out)
}

fn draw(points: &[Point], fit: &Fit, root: &Area<'_>) -> Drawn {
    let losses = points.iter().map(|point| point.val_loss);
    let low = losses.clone().fold(f64::INFINITY, f64::min) * 0.85;
    let high = losses.fold(0.0, f64::max) * 1.12;
    let mut chart = ChartBuilder::on(root)
        .caption("Validation loss: predicted and measured", font(18, &BLACK))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(52)
        .build_cartesian_2d(low..high, low..high)?;
    axes(&mut chart)
        .label_style(font(13, &GREY))
        .x_desc("predicted (nats per token)")
        .y_desc("measured (nats per token)")
        .draw()?;
    for (off, width) in [(1.0, 2), (0.9, 1), (1.1, 1)] {
        let line = (0..=40).map(|i| low + (high - low) * f64::from(i) / 40.0).map(|x| (x, off * x));
        let inside: Vec<(f64, f64)> = line.filter(|(_, y)| (low..=high).contains(y)).collect();
        chart.draw_series(LineSeries::new(inside, GREY.stroke_width(width)))?;
    }
    let texts: BTreeSet<&str> = points.iter().map(|point| point.text.as_str()).collect();
    for (number, text) in texts.into_iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let of_text = || points.iter().enumerate().filter(|(_, point)| point.text == text);
        let at = |errors: &[f64], i: usize, point: &Point| (point.val_loss / (1.0 + errors[i]), point.val_loss);
        chart
            .draw_series(of_text().map(|(i, point)| Circle::new(at(&fit.residuals, i, point), 4, colour.filled())))?
            .label(text)
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
        chart.draw_series(of_text().map(|(i, point)| Circle::new(at(&fit.text_left_out, i, point), 5, colour)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .border_style(GRID)
        .background_style(WHITE)
        .label_font(font(13, &INK))
        .draw()
}
