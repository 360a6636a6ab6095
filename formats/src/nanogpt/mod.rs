//! nanoGPT's `ckpt.pt`, and `meta.pkl` beside its data.
//!
//! A checkpoint is what `torch.save` writes: a zip whose file `data.pkl` is a pickle of dictionaries
//! (`pickle.rs`) in which tensors stand as records that name other files of the zip (`torch.rs`).
//! nanoGPT's linear layers are PyTorch's, `[out, in]`, where Hugging Face's GPT-2 has `[in, out]`;
//! `torch.compile` puts `_orig_mod.` before every name. Its GELU is the exact one.

mod pair;
mod pickle;
mod read;
mod torch;

pub use read::File;
