//! What a generated text has word for word from the training text: which stretches, where they
//! stand there, and how many of its runs of words are new.
//!
//! Some of every text stands in any other: common phrases do. So the same is measured of the
//! validation text, which people (or the stories' generator) wrote without looking at the training
//! text: what the model copies beyond that, it has by heart.

mod checked;
mod index;
mod novelty;
mod page;
mod spans;
mod training_text;

pub use checked::{Checked, Rule, Span, Together, beginning, check, together};
pub use novelty::Novel;
pub use page::{page, times, words_for};
pub use training_text::{Documents, LineOf, Place, TrainingText};
