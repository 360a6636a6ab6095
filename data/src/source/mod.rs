//! Text from where people keep it (being built).
