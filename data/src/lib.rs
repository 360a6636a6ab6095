//! Ember.
