//! The memory for preparing a text does not grow with the text, and a file cannot exhaust it.
//!
//! A separate test binary, because it counts every allocation of the process: so its tests run one
//! after the other.

#![allow(clippy::unwrap_used)]
#![allow(unsafe_code)] // an allocator that counts

use ember_data::prepare::{Dataset, Input, PrepareOptions, Silent, prepare};
use ember_data::random::mix;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed to the system's allocator unchanged; the default `realloc` uses
// these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Held by a test while it runs.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The peak of allocated bytes during `work`, beyond those allocated before, and its result.
fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    (PEAK.load(Relaxed) - before, result)
}

/// Writes words of a made-up language, a few of them frequent as in a real one, with `after`
/// following every so many words.
fn write_words(path: &Path, bytes: usize, after: &str) {
    let mut file = BufWriter::new(std::fs::File::create(path).unwrap());
    let mut written = 0;
    for i in 0u64.. {
        if written >= bytes {
            break;
        }
        let draw = mix(i);
        let rank = (draw >> 16) % (1 << (draw % 17));
        let name = mix(rank);
        let word: String = (0..2 + name % 7).map(|k| (b'a' + (mix(name ^ k) % 26) as u8) as char).collect();
        let end = if draw.is_multiple_of(101) { after } else { " " };
        written += word.len() + end.len();
        write!(file, "{word}{end}").unwrap();
    }
    file.into_inner().unwrap();
}

/// The peak of allocated bytes during preparation.
fn peak_heap(path: &Path, tokenizer: &str) -> usize {
    let options = PrepareOptions {
        inputs: vec![Input::Path(path.to_owned())],
        tokenizer: tokenizer.parse().unwrap(),
        out: path.with_extension("prepared"),
        ..PrepareOptions::default()
    };
    let (peak, manifest) = peak_of(|| prepare(&options, &Silent).unwrap());
    assert_eq!(manifest.report.bytes.iter().sum::<u64>(), manifest.sources[0].bytes);
    Dataset::open(&options.out).unwrap();
    peak
}

#[test]
fn fifty_megabytes_need_less_than_a_gibibyte_of_heap() {
    const MB: usize = 1_000_000;
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write_words(&path("documents"), 50 * MB, "\n<|endoftext|>");
    write_words(&path("line"), 50 * MB, " ");
    write_words(&path("two lines"), 100 * MB, " ");

    let documents = peak_heap(&path("documents"), "bpe:8192");
    let line = peak_heap(&path("line"), "bytes");
    let two_lines = peak_heap(&path("two lines"), "bytes");
    println!(
        "peak heap: documents {} MB, one line {} MB, twice as long {} MB",
        documents / MB,
        line / MB,
        two_lines / MB
    );
    assert!(documents < 1 << 30 && line < 1 << 30);
    // Holding the text in memory would fit into the gibibyte too, so a text twice as long must not
    // take more.
    assert!(two_lines < line + 10 * MB);
}

/// Writes a Word file whose text has at least so many bytes. It is no bomb by its compression, which
/// is that of any text.
#[cfg(feature = "readers")]
fn write_docx(path: &Path, bytes: usize) {
    let block: String = (0..50_000).map(|number| format!("<p><t>{number}</t></p>")).collect();
    let mut archive = rawzip::ZipArchiveWriter::new(std::fs::File::create(path).unwrap());
    let file = archive.new_file("word/document.xml").compression_method(rawzip::CompressionMethod::DEFLATE);
    let (mut entry, config) = file.start().unwrap();
    let encoder = flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::fast());
    let mut writer = config.wrap(encoder);
    for _ in 0..bytes.div_ceil(block.len()) {
        writer.write_all(block.as_bytes()).unwrap();
    }
    let (encoder, descriptor) = writer.finish().unwrap();
    encoder.finish().unwrap();
    entry.finish(descriptor).unwrap();
    archive.finish().unwrap();
}

#[cfg(feature = "readers")]
#[test]
fn a_part_that_unpacks_to_too_much_is_refused_before_it_is_in_memory() {
    use ember_data::source::{Error, Listing, ReadOptions, read};
    use std::sync::atomic::AtomicU64;

    const MIB: usize = 1 << 20;
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.docx");
    write_docx(&path, 130 * MIB);
    let mut listing = Listing::default();
    listing.add_path(&path).unwrap();
    let (options, read_bytes) = (ReadOptions::default(), AtomicU64::new(0));
    let (peak, result) = peak_of(|| read::<Error>(&listing.files[0], &options, &read_bytes, &mut |_| Ok(())));
    let line = result.unwrap_err().to_string();
    assert!(line.contains("holds more than 64 MiB"), "{line}");
    // The buffer doubles: when it has 64 MiB, one of 128 MiB comes beside it; the whole part would
    // take 128 MiB and 256 MiB.
    assert!(peak < 256 * MIB, "{} MiB", peak / MIB);
}
