//! What measures a model or a run, and changes neither.
//!
//! Of a run: its losses as a picture ([`plot`]), beside those of others ([`compare`]), and what it
//! wrote on the way ([`timeline`]). Of a model: what each way to use it costs ([`ledger`]), how fast it
//! trains ([`mod@bench`]), whether it goes astray on its own words ([`exposure`]), and what it has by heart
//! ([`copied`]). Of a text or a device, before anything is trained: what to train in a given time
//! ([`plan`]), the text as a page ([`look`]), and whether the device computes what the CPU does
//! ([`selfcheck`]). What their pages share is [`mod@page`].

mod batch;
pub mod bench;
pub mod compare;
pub mod copied;
mod drawing;
pub mod error;
pub mod exposure;
pub mod ledger;
pub mod look;
pub mod page;
pub mod plan;
pub mod plot;
pub mod selfcheck;
pub mod timeline;
