//! The encodings of code page and character set numbers.

use encoding_rs::{Encoding, WINDOWS_1252};

/// The encoding of a Windows code page; Windows-1252 if it is unknown.
pub fn of_code_page(page: i32) -> &'static Encoding {
    let label = match page {
        932 => "shift_jis".to_owned(),
        936 => "gbk".to_owned(),
        949 => "euc-kr".to_owned(),
        950 => "big5".to_owned(),
        10000 => "macintosh".to_owned(),
        65001 => "utf-8".to_owned(),
        874 | 1250..=1258 => format!("windows-{page}"),
        _ => format!("ibm{page}"),
    };
    Encoding::for_label(label.as_bytes()).unwrap_or(WINDOWS_1252)
}

/// The encoding of a font's character set; `None` for the document's.
pub fn of_charset(set: i32) -> Option<&'static Encoding> {
    let page = match set {
        0 => 1252,
        77 => 10000,
        128 => 932,
        129 | 130 => 949,
        134 => 936,
        136 => 950,
        161 => 1253,
        162 => 1254,
        163 => 1258,
        177 => 1255,
        178 => 1256,
        186 => 1257,
        204 => 1251,
        222 => 874,
        238 => 1250,
        _ => return None,
    };
    Some(of_code_page(page))
}
