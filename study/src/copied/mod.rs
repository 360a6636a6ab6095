//! What a generated text copies word for word from the training text: which stretches, where they
//! occur there, and how many of its n-grams are new.
//!
//! Every text shares some stretches with any other, such as common phrases. So the same is measured
//! for the validation text, which people (or the stories' generator) wrote without looking at the
//! training text: what the model copies beyond that, it has memorised.

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
