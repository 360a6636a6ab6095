//! The same knobs elsewhere: other stacks apply them in another order, with other rules and
//! defaults, so the same numbers give another distribution there. This module measures where they
//! part for one token.
//!
//! [`Chain::new`](crate::processors::Chain::new) builds a stack's chain; what is compared here are
//! those same chains.

mod compare;
mod explain;

pub use compare::{Cause, Difference, MOST_TOKENS, TokenDifference, compare};
pub use explain::explain;
