//! nanoGPT's `ckpt.pt`, and `meta.pkl` beside its data.
//!
//! A checkpoint is written by `torch.save`: a zip whose file `data.pkl` is a pickle of dictionaries
//! (`pickle.rs`) in which tensors are records that refer to other files of the zip (`torch.rs`).
//! nanoGPT's linear layers are PyTorch's, `[out, in]`, whereas Hugging Face's GPT-2 has
//! `[in, out]`. `torch.compile` prefixes every name with `_orig_mod.`. Its GELU is exact.

mod pair;
mod pickle;
mod read;
mod torch;

pub use read::File;
