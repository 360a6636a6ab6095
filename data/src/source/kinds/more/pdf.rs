//! PDF (ISO 32000): the text layer. Glyphs are mapped to characters, and these are assembled into
//! lines by their positions.

use crate::source::clean::{Clean, pages::join_pages};
use crate::source::event::{EventSink, Halt};
use crate::source::reader::{About, Reader, emit_document};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error};
use ember_host::panics::quietly;
use flate2::bufread::ZlibDecoder;
use hayro_interpret::font::{Glyph, GlyphRun};
use hayro_interpret::hayro_cmap::BfString;
use hayro_interpret::hayro_syntax::{Pdf as File, page::Page};
use hayro_interpret::kurbo::{Affine, BezPath, Point, Rect, Vec2};
use hayro_interpret::{
    BlendMode, ClipPath, Context, Device, DrawMode, DrawProps, Image, ImageDrawProps, InterpreterCache,
    InterpreterSettings, SoftMask, TransformExt, interpret_page,
};
use memchr::memmem;
use std::io::{BufRead, BufReader};
use std::panic::resume_unwind;

pub struct Pdf;

const ABOUT: About = About {
    id: "pdf",
    name: "PDF",
    endings: &[".pdf"],
    document: "a file: its text layer; scanned pages have none",
    without: "lines that repeat at the top and bottom of pages, page numbers, hyphens at line ends, pictures",
};

/// The largest file that is read, to bound the memory.
const LARGEST_BYTES: u64 = 256 << 20;

/// Limits against hostile files, which can draw the same again and again, or decompress to more
/// than the memory: glyphs on a page; drawings and bytes of text in a file; decompressed bytes of a
/// stream and of all streams.
const MAX_GLYPHS_A_PAGE: usize = 200_000;
const MAX_DRAWINGS: u64 = 50_000_000;
const MAX_BYTES: usize = 64 << 20;
const MAX_STREAM_BYTES: u64 = 128 << 20;
const MAX_STREAMS_BYTES: u64 = 8 << 30;

/// Distances in font sizes. A character continues the line of the one before if it is less than
/// `LINE_SHIFT` above or below it, and begins less than `OVERLAP` before its end; from right to
/// left, it may end at most `OVERLAP` after its start, and less than `RIGHT_TO_LEFT_GAP` before it.
const LINE_SHIFT: f64 = 0.5;
const OVERLAP: f64 = 0.5;
const RIGHT_TO_LEFT_GAP: f64 = 2.0;

/// Distances in font sizes: a wider gap in a line is a space, and one between lines an empty line.
const WORD_GAP: f64 = 0.15;
const PARAGRAPH_GAP: f64 = 1.8;

/// The most layers of nested compression.
const MAX_FILTERS: u32 = 4;

/// The stack of the thread that reads a file: the library reads nested forms recursively.
const STACK_BYTES: usize = 64 << 20;

impl Reader for Pdf {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn matches(&self, start: &Start) -> bool {
        start.bytes.starts_with(b"%PDF-")
    }

    fn is_text(&self) -> bool {
        false
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let bytes = content.whole_bytes(LARGEST_BYTES)?;
        let damaged = |why: String| Error::Unreadable {
            what: format!("{} as a PDF; it is damaged or locked: print it to a new PDF", content.name()),
            source: why.into(),
        };
        let read = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            let thread = thread.spawn_scoped(scope, || quietly(|| pages(bytes)));
            let thread = thread.map_err(|error| error.to_string())?;
            let read = thread.join().map_err(|_| "the reader failed".to_owned())?;
            read.map_err(|panic| panic.to_string())?
        });
        let (title, pages) = read.map_err(damaged)?;
        if pages.iter().all(|page| page.trim().is_empty()) {
            let what = "has no text layer: its pages are pictures; run OCR on it first, for example with ocrmypdf";
            return Err(Error::unusable(content.name(), what).into());
        }
        let text = match content.options.clean {
            Clean::Off => pages.concat(),
            _ => content.with_changes(|changes| join_pages(&pages, changes)),
        };
        emit_document(title.as_deref(), &text, sink)
    }
}

/// The title and the text of each page.
fn pages(bytes: Vec<u8>) -> Result<(Option<String>, Vec<String>), String> {
    ensure_no_bomb(&bytes)?;
    let pdf = File::new(bytes).map_err(|error| format!("{error:?}"))?;
    let title = pdf.metadata().title.as_deref().map(decode_string);
    let cache = InterpreterCache::new();
    let (mut pages, mut length, mut drawn) = (Vec::new(), 0, Drawn::default());
    for page in pdf.pages().iter() {
        let text = text_of(page, &pdf, &cache, &mut drawn);
        length += text.len();
        if length > MAX_BYTES {
            return Err(format!("more than {} MiB of text", MAX_BYTES >> 20));
        }
        pages.push(text);
    }
    Ok((title, pages))
}

/// Decodes a PDF string: UTF-16 or UTF-8 with a byte order mark, else nearly Latin-1.
fn decode_string(bytes: &[u8]) -> String {
    let (text, _, _) = encoding_rs::WINDOWS_1252.decode(bytes);
    text.into_owned()
}

fn text_of<'a>(page: &'a Page<'a>, pdf: &'a File, cache: &InterpreterCache<'a>, drawn: &mut Drawn) -> String {
    let (width, height) = page.render_dimensions();
    let area = Rect::new(0.0, 0.0, f64::from(width), f64::from(height));
    let mut context =
        Context::new(page.initial_transform(true).to_kurbo(), area, cache, pdf.xref(), InterpreterSettings::default());
    let mut layer = TextLayer { placed: Vec::new(), drawn };
    interpret_page(page, &mut context, &mut layer);
    layer.text()
}

/// Measures every zlib stream by decompressing it without keeping the result: the library holds a
/// whole decompressed stream in memory.
fn ensure_no_bomb(bytes: &[u8]) -> Result<(), String> {
    const STREAM: &[u8] = b"stream";
    let mut all = 0;
    let mut rest = bytes;
    while let Some(at) = memmem::find(rest, STREAM) {
        rest = &rest[at + STREAM.len()..];
        let content = rest.strip_prefix(b"\r").unwrap_or(rest);
        let content = content.strip_prefix(b"\n").unwrap_or(content);
        let mut layers = 0;
        while is_zlib(&mut decompressed(content, layers)) {
            layers += 1;
            let unpacked = length(&mut decompressed(content, layers));
            all += unpacked;
            if unpacked > MAX_STREAM_BYTES || all > MAX_STREAMS_BYTES || layers > MAX_FILTERS {
                return Err("it unpacks to more than any text would".to_owned());
            }
        }
    }
    Ok(())
}

/// The content, decompressed by zlib `layers` times.
fn decompressed(content: &[u8], layers: u32) -> Box<dyn BufRead + '_> {
    let mut content: Box<dyn BufRead + '_> = Box::new(content);
    for _ in 0..layers {
        content = Box::new(BufReader::new(ZlibDecoder::new(content)));
    }
    content
}

/// Whether the content begins with a zlib header (RFC 1950).
fn is_zlib(content: &mut dyn BufRead) -> bool {
    content.fill_buf().is_ok_and(|start| match start {
        [method, flags, ..] => method & 15 == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31),
        _ => false,
    })
}

/// The length of the content, up to the first error, and little beyond the limit.
fn length(content: &mut dyn BufRead) -> u64 {
    let mut bytes = 0;
    while let Ok(length @ 1..) = content.fill_buf().map(<[u8]>::len) {
        content.consume(length);
        bytes += length as u64;
        if bytes > MAX_STREAM_BYTES {
            break;
        }
    }
    bytes
}

/// The text of a glyph, and its position on the page.
struct PlacedText {
    text: String,
    /// Its start and end along its line, and the line's distance from the top.
    start: f64,
    end: f64,
    line: f64,
    size: f64,
}

/// What the file has drawn so far.
#[derive(Default)]
struct Drawn {
    drawings: u64,
    /// Bytes of the glyphs' text, of which a single glyph may have any number.
    text_bytes: usize,
}

/// Collects the characters of a page in drawing order.
struct TextLayer<'a> {
    placed: Vec<PlacedText>,
    drawn: &'a mut Drawn,
}

impl TextLayer<'_> {
    /// Counts drawings. The library's callbacks cannot return an error, so too many end in a panic,
    /// which the caller of the library catches.
    fn count_drawings(&mut self, drawings: usize) {
        self.drawn.drawings += drawings as u64;
        if self.drawn.drawings > MAX_DRAWINGS || self.placed.len() > MAX_GLYPHS_A_PAGE {
            resume_unwind(Box::new("it draws more than any text would".to_owned()));
        }
    }

    /// Counts the text of a glyph; too much ends as too many drawings do.
    fn count_text(&mut self, bytes: usize) {
        self.drawn.text_bytes += bytes;
        if self.drawn.text_bytes > MAX_BYTES {
            resume_unwind(Box::new(format!("more than {} MiB of text", MAX_BYTES >> 20)));
        }
    }

    /// The characters as lines, in drawing order, as poppler's `-raw`: programs write a page in
    /// reading order. A line ends where the next character does not follow on it.
    fn text(&self) -> String {
        let mut text = String::new();
        let mut rest = self.placed.as_slice();
        let mut last: Option<&PlacedText> = None;
        while let Some(first) = rest.first() {
            let length = 1 + rest.windows(2).take_while(|pair| pair[1].continues(&pair[0])).count();
            let (line, later) = rest.split_at(length);
            if last.is_some_and(|last| (first.line - last.line).abs() > PARAGRAPH_GAP * first.size.max(last.size)) {
                text.push('\n');
            }
            text.push_str(&line_text(line));
            text.push('\n');
            (rest, last) = (later, line.last());
        }
        text
    }
}

impl PlacedText {
    /// A character of this width. `to_page` maps glyph space, where 1000 units are the font's
    /// height, to the page.
    fn new(text: String, width: f64, to_page: Affine) -> Self {
        let start = to_page * Point::ZERO;
        let end = to_page * Point::new(width, 0.0);
        let up = to_page * Point::new(0.0, 1000.0) - start;
        let along = Vec2::new(-up.y, up.x);
        let size = up.hypot();
        // Positions are measured along the direction of the line, so that rotated text can be read.
        let (along, up) = match size > 0.0 {
            true => (along / size, up / size),
            false => (Vec2::new(1.0, 0.0), Vec2::new(0.0, -1.0)),
        };
        let along = if along.dot(end - start) < 0.0 { -along } else { along };
        let place = |point: Point| point.to_vec2().dot(along);
        Self { text, start: place(start), end: place(end), line: -start.to_vec2().dot(up), size }
    }

    /// Whether it continues the line of the character before: to the right of it, or to the left if
    /// either is of a right-to-left script.
    fn continues(&self, before: &Self) -> bool {
        let size = before.size.max(self.size).max(f64::EPSILON);
        let near = |gap: f64| (-OVERLAP * size..RIGHT_TO_LEFT_GAP * size).contains(&gap);
        let right_to_left = (self.is_right_to_left() || before.is_right_to_left()) && near(before.start - self.end);
        (self.line - before.line).abs() < LINE_SHIFT * size
            && (self.start > before.end - OVERLAP * size || right_to_left)
    }

    /// Whether its script is right-to-left: Hebrew, Arabic and related ones.
    fn is_right_to_left(&self) -> bool {
        self.text.starts_with(
            |first: char| matches!(first, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}'),
        )
    }

    /// Whether it is left-to-right even within a right-to-left line: a number or foreign word.
    fn is_left_to_right(&self) -> bool {
        self.text.starts_with(char::is_alphanumeric) && !self.is_right_to_left()
    }
}

/// The characters of a line in reading order, with a space at each wide gap.
fn line_text(line: &[PlacedText]) -> String {
    let right_to_left = line.iter().filter(|placed| placed.is_right_to_left()).count();
    if right_to_left * 2 <= line.iter().filter(|placed| placed.text != " ").count() {
        return spaced(line.iter());
    }
    // From right to left, except numbers and foreign words.
    let mut ordered: Vec<&PlacedText> = line.iter().collect();
    ordered.sort_by(|one, other| other.start.total_cmp(&one.start));
    for run in ordered.chunk_by_mut(|one, other| one.is_left_to_right() && other.is_left_to_right()) {
        run.reverse();
    }
    spaced(ordered.into_iter())
}

fn spaced<'a>(line: impl Iterator<Item = &'a PlacedText>) -> String {
    let mut text = String::new();
    let mut before: Option<&PlacedText> = None;
    for placed in line {
        let gap = before.map_or(0.0, |before| (placed.start - before.end).max(before.start - placed.end));
        if gap > WORD_GAP * placed.size && !text.ends_with(' ') && placed.text != " " {
            text.push(' ');
        }
        text.push_str(&placed.text);
        before = Some(placed);
    }
    text.truncate(text.trim_end_matches(' ').len());
    text
}

impl Device<'_> for TextLayer<'_> {
    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, '_>, props: DrawProps<'_>, _: &DrawMode) {
        self.count_drawings(1 + run.glyphs().len());
        for glyph in run.glyphs() {
            let text = match glyph.as_unicode() {
                Some(BfString::Char(character)) => character.to_string(),
                Some(BfString::String(text)) => text,
                None => continue,
            };
            self.count_text(text.len());
            let text: String = text.chars().filter(|character| !character.is_control()).collect();
            if text.is_empty() {
                continue;
            }
            let width = match &**glyph {
                Glyph::Outline(outline) => f64::from(outline.advance_width().unwrap_or(500.0)),
                Glyph::Type3(_) => 0.0,
            };
            self.placed.push(PlacedText::new(text, width, props.transform * glyph.transform()));
        }
    }

    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'_>, _: &DrawMode) {
        self.count_drawings(1);
    }

    fn push_clip_path(&mut self, _: &ClipPath) {
        self.count_drawings(1);
    }

    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'_>>, _: BlendMode) {
        self.count_drawings(1);
    }

    fn draw_image(&mut self, _: Image<'_, '_>, _: ImageDrawProps<'_>) {
        self.count_drawings(1);
    }

    fn pop_clip(&mut self) {}

    fn pop_transparency_group(&mut self) {}
}
