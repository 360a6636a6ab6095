//! The preparation of a text.

use std::convert::Infallible;

use ember_data::look::look;
use ember_data::prepare::{Dataset, Input, PrepareOptions, Silent, diff, prepare};
use ember_data::sensitive::Masking;

use crate::harness::{Harness, check_file_error};
use crate::scratch;

pub const HARNESSES: &[Harness] = &[
    Harness { name: "prepare", longest: 1 << 12, read: text },
    Harness { name: "masking", longest: 1 << 11, read: masking },
];

/// Looks at a text, cleans, masks and splits it, and checks that the prepared result opens.
fn text(bytes: &[u8]) {
    let path = scratch::file("text.txt", bytes);
    let out = path.with_file_name("data");
    let options =
        PrepareOptions { inputs: vec![Input::Path(path)], out: out.clone(), mask: true, ..PrepareOptions::default() };
    check_file_error(look(&options, &Silent));
    check_file_error(diff(&options, &mut |_| {}));
    if check_file_error(prepare(&options, &Silent)).is_some() {
        check_file_error(Dataset::open(&out)).expect("what was prepared opens");
    }
}

/// Checks that masking does not depend on how the text is split into pieces.
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
