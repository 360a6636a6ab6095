//! The kinds that a build without the feature `readers` leaves out, with the libraries that they
//! stand on, and what only they share: zip archives of parts, XML, and text put together from blocks.

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

/// A reader each, as [`Kind::all`](super::Kind::all) has them.
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
