//! The formats that need the feature `readers`, and the code that only they share: zip packages,
//! XML, and text assembled from blocks.

mod chat_json;
mod csv;
mod docx;
mod epub;
mod html;
mod ipynb;
mod json_text;
mod latex;
mod mail;
mod mhtml;
mod odt;
mod package;
mod pdf;
mod prose;
mod rtf;
mod subtitles;
mod xml;

use crate::source::reader::Reader;

/// Their readers, in the order of [`Kind::all`](super::Kind::all).
pub static KINDS: &[&dyn Reader] = &[
    &csv::Csv,
    &docx::Docx,
    &odt::Odt,
    &odt::Flat,
    &rtf::Rtf,
    &epub::Epub,
    &pdf::Pdf,
    &html::Html,
    &mhtml::Mhtml,
    &latex::Latex,
    &ipynb::Notebook,
    &subtitles::Subtitles,
    &mail::Mbox,
    &mail::Mail,
    &chat_json::ChatJson,
];
