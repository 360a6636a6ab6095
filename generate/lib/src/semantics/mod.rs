//! The semantics of other stacks: they apply the same knobs in another order, with other rules and
//! defaults, so the same values give another distribution. This module measures the differences for
//! one token.
//!
//! It compares the same chains that [`Chain::new`](crate::processors::Chain::new) builds for a
//! stack.

mod compare;
mod explain;

pub use compare::{Cause, Difference, MAX_TOKENS, TokenDifference, compare};
pub use explain::explain;
