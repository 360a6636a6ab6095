//! Draws the dashboard.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, Gauge, GraphType, Paragraph, Wrap};

use ember_cli::terminal::printable;
use ember_training::units::{bytes, duration, grouped, short};

use super::View;

/// Columns of the metrics panel beside the curves, and of a metric's name in it.
const METRICS_WIDTH: u16 = 38;
const NAME_WIDTH: usize = 13;
/// Number of notes shown, the latest.
const MAX_NOTES: usize = 2;
/// Lines of the sample, if there is room.
const SAMPLE_LINES: u16 = 8;

const TRAINING: Color = Color::Cyan;
const VALIDATION: Color = Color::Yellow;

impl View {
    /// Draws the whole dashboard.
    pub(super) fn draw(&self, frame: &mut Frame) {
        let latest = &self.notes[self.notes.len().saturating_sub(MAX_NOTES)..];
        // Word wrapping leaves lines partly empty: count on nine tenths of the width.
        let width = (usize::from(frame.area().width) * 9 / 10).max(1);
        let lines = |note: &String| note.chars().count().div_ceil(width) as u16;
        let notes = latest.iter().map(lines).sum::<u16>().min(frame.area().height / 4);
        let sample = SAMPLE_LINES.min(frame.area().height / 4) + 2;
        let [progress, middle, sample, notes, keys] = Layout::vertical([
            Constraint::Length(3),
            Constraint::Min(6),
            Constraint::Length(sample),
            Constraint::Length(notes),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.draw_progress(frame, progress);
        let width = if middle.width >= 2 * METRICS_WIDTH { METRICS_WIDTH } else { 0 };
        let [curves, metrics] = Layout::horizontal([Constraint::Min(20), Constraint::Length(width)]).areas(middle);
        self.draw_curves(frame, curves);
        if width > 0 {
            frame.render_widget(Paragraph::new(self.metrics()).block(Block::bordered().title(" Metrics ")), metrics);
        }
        self.draw_sample(frame, sample);
        let latest: Vec<Line> = latest.iter().map(|note| Line::from(printable(note)).yellow()).collect();
        frame.render_widget(Paragraph::new(latest).wrap(Wrap { trim: true }), notes);
        let help = if self.is_ending {
            "saving and quitting after this step"
        } else {
            "q  save and quit; `ember-train resume` continues"
        };
        frame.render_widget(Line::from(help).dim(), keys);
    }

    fn draw_progress(&self, frame: &mut Frame, area: Rect) {
        let (step, steps) = (self.step.step, self.step.max_steps);
        let done = if steps == 0 { 0.0 } else { (step as f64 / steps as f64).min(1.0) };
        let left = self.step.remaining_s.map(|left| format!(", {} left", duration(left))).unwrap_or_default();
        let label = format!("step {} of {}{left}", grouped(step), grouped(steps));
        let title = format!(" {} ", printable(&self.run));
        let gauge = Gauge::default().ratio(done).label(label).gauge_style(Style::new().fg(TRAINING)).use_unicode(true);
        frame.render_widget(gauge.block(Block::bordered().title(title)), area);
    }

    fn draw_curves(&self, frame: &mut Frame, area: Rect) {
        let [training, validation] = [self.training.points(), self.validation.points()];
        let block = Block::bordered().title(" Loss, nats per token ");
        let all = || training.iter().chain(validation);
        if all().next().is_none() {
            frame.render_widget(Paragraph::new("no step is reported yet").dim().block(block), area);
            return;
        }
        let min_and_max = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(value), max.max(value)))
        };
        let (first, last) = min_and_max(&mut all().map(|point| point.0));
        let (min, max) = min_and_max(&mut all().map(|point| point.1));
        // Widen the bounds: a single point has no width, a level curve no height.
        let (last, margin) = (last.max(first + 1.0), ((max - min) * 0.05).max(0.01));
        let bounds = [min - margin, max + margin];
        let dataset = |name, points, colour| {
            let line = Dataset::default().name(name).marker(Marker::Braille).graph_type(GraphType::Line);
            line.style(Style::new().fg(colour)).data(points)
        };
        let label = |value: f64| format!("{value:.2}");
        let x = Axis::default().bounds([first, last]).labels([grouped(first as u64), grouped(last as u64)]);
        let labels = [label(bounds[0]), label((bounds[0] + bounds[1]) / 2.0), label(bounds[1])];
        let y = Axis::default().bounds(bounds).labels(labels);
        let curves = vec![dataset("training", training, TRAINING), dataset("validation", validation, VALIDATION)];
        // No legend: the metrics panel names the curves in the same colours.
        let chart = Chart::new(curves).x_axis(x).y_axis(y).legend_position(None);
        frame.render_widget(chart.block(block), area);
    }

    /// The metrics, one per line.
    fn metrics(&self) -> Vec<Line<'static>> {
        let step = &self.step;
        let mut lines = Vec::new();
        let mut metric = |name: &str, value: String, colour: Option<Color>| {
            let style = colour.map_or(Style::new(), |colour| Style::new().fg(colour)).bold();
            lines.push(Line::from(vec![Span::from(format!("{name:<NAME_WIDTH$} ")).dim(), Span::styled(value, style)]));
        };
        if step.tokens > 0 {
            metric("training", format!("{:.4}", step.train_loss), Some(TRAINING));
        }
        if let Some(evaluation) = &self.evaluation {
            let best = if evaluation.is_best { ", the best" } else { "" };
            metric("validation", format!("{:.4}{best}", evaluation.val_loss), Some(VALIDATION));
            let optional = [
                ("averaged", evaluation.ema_val_loss),
                ("bits per byte", evaluation.bits_per_byte),
                ("n-grams", evaluation.ngram_loss),
                ("floor", evaluation.entropy_floor),
            ];
            for (name, value) in optional {
                if let Some(value) = value {
                    metric(name, format!("{value:.4}"), None);
                }
            }
        }
        if step.tokens > 0 {
            metric("tokens/s", short(step.tokens_per_s), None);
            metric("tokens", short(step.tokens as f64), None);
            metric("time", duration(step.elapsed_s), None);
            metric("learning rate", format!("{:.2e}", step.learning_rate), None);
            metric("gradient norm", format!("{:.3}", step.grad_norm), None);
        }
        if let Some(memory) = step.memory_bytes {
            metric("memory", bytes(memory), None);
        }
        if let Some(mfu) = step.mfu {
            metric("MFU", format!("{:.1}%", 100.0 * mfu), None);
        }
        lines
    }

    fn draw_sample(&self, frame: &mut Frame, area: Rect) {
        let (title, text) = match &self.sample {
            Some((step, text)) => (format!(" Sample of step {} ", grouped(*step)), printable(text)),
            None => (" Sample ".to_owned(), String::new()),
        };
        let text = Paragraph::new(text).wrap(Wrap { trim: false });
        frame.render_widget(text.block(Block::bordered().title(title)), area);
    }
}
