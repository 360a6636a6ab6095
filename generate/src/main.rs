//! Ember.
fn main() {}
