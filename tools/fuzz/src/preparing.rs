//! A text on its way to tokens.

use std::convert::Infallible;

use ember_data::look::look;
use ember_data::prepare::{Dataset, Input, PrepareOptions, Silent, diff, prepare};
use ember_data::sensitive::Masking;

use crate::harness::{Harness, clear_file};
use crate::place;

pub const HARNESSES: &[Harness] = &[
    Harness { name: "prepare", longest: 1 << 12, read: text },
    Harness { name: "masking", longest: 1 << 11, read: masking },
];

/// A text that is looked at, cleaned, masked and split. What is prepared opens.
fn text(bytes: &[u8]) {
    let path = place::file("text.txt", bytes);
    let out = path.with_file_name("data");
    let options =
        PrepareOptions { inputs: vec![Input::Path(path)], out: out.clone(), mask: true, ..PrepareOptions::default() };
    clear_file(look(&options, &Silent));
    clear_file(diff(&options, &mut |_| {}));
    if clear_file(prepare(&options, &Silent)).is_some() {
        clear_file(Dataset::open(&out)).expect("what was prepared opens");
    }
}

/// What is masked does not depend on the pieces in which a text comes.
fn masking(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let whole = masked([text]);
    assert_eq!(whole, masked(text.split_inclusive(|character: char| !character.is_ascii_digit())));
    assert_eq!(whole, masked(text.split_inclusive(' ')));
}

fn masked<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
    let (mut masking, mut masked) = (Masking::default(), String::new());
    let mut sink = |text: &str| -> Result<(), Infallible> {
        masked += text;
        Ok(())
    };
    for piece in pieces {
        let Ok(()) = masking.add(piece, &mut sink);
    }
    let Ok(()) = masking.end_document(&mut sink);
    masked
}
