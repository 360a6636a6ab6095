//! The Hugging Face folder.
