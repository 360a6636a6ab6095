//! Measures a model or a run, and changes neither.
//!
//! For a run: a picture of its losses ([`plot`]), a comparison with other runs ([`compare`]), and
//! the samples it wrote during training ([`timeline`]). For a model: the cost of each way to use it
//! ([`ledger`]), its training speed ([`mod@bench`]), how it fares on its own words ([`exposure`]),
//! and how much it copies from its training text ([`copied`]). For a text or a device, before
//! training: what to train in a given time ([`plan`]), the text as a page ([`look`]), and whether
//! the device computes what the CPU does ([`selfcheck`]). The pages share [`mod@page`]; what times
//! or measures steps of training takes them on a [`workbench`].

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
mod stepper;
pub mod timeline;
pub mod workbench;
