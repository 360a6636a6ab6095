//! The forward pass over new tokens that come after what a cache holds.

use burn::tensor::{Int, Tensor, TensorData};

use crate::kernels::{self, CachedAttention};
use crate::{Gpt, KvCache};

impl Gpt {
    /// Logits `[new positions, vocab_size]` of tokens that come after what `cache` holds,
    /// `tokens[row]` after its row; adds them to it. Rows may have any number of new tokens, none
    /// included; the positions come out row after row.
    pub fn forward_cached(&self, tokens: &[&[u32]], cache: &mut KvCache) -> Tensor<2> {
        kernels::step(&self.device(), || self.rows_of_logits(self.hidden_cached(tokens, cache)))
    }

    /// As [`Self::forward_cached`], but only for the last `counts[row]` of each row's new tokens,
    /// `[sum of counts, vocab_size]`: generation needs no others.
    pub fn forward_cached_last(&self, tokens: &[&[u32]], counts: &[usize], cache: &mut KvCache) -> Tensor<2> {
        kernels::step(&self.device(), || {
            let hidden = self.hidden_cached(tokens, cache);
            if tokens.iter().zip(counts).all(|(new, &count)| new.len() == count) {
                return self.rows_of_logits(hidden);
            }
            let mut last = Vec::new();
            let mut end = 0;
            for (new, &count) in tokens.iter().zip(counts) {
                end += new.len();
                last.extend((end - count) as i32..end as i32);
            }
            let last = Tensor::from_data(TensorData::from(last.as_slice()), &hidden.device());
            self.rows_of_logits(hidden.select(1, last))
        })
    }

    /// The residual stream `[1, new positions, n_embd]`. New positions of all rows stand side by
    /// side, whatever their number in each: all but attention treats every position by itself.
    fn hidden_cached(&self, tokens: &[&[u32]], cache: &mut KvCache) -> Tensor<3> {
        let device = self.device();
        let row = |numbers: Vec<i32>| -> Tensor<2, Int> {
            let count = numbers.len();
            Tensor::from_data(TensorData::new(numbers, [1, count]), &device)
        };
        let places = tokens.iter().enumerate().flat_map(|(row, new)| (0..new.len()).map(move |i| (row, i)));
        let positions: Vec<usize> = places.map(|(row, i)| cache.len(row) + i).collect();
        let mut x = self.wte.forward(row(tokens.iter().copied().flatten().map(|&id| id as i32).collect())); // [1, new positions, n_embd]
        if let Some(wpe) = &self.wpe {
            x = x + wpe.forward(row(positions.iter().map(|&position| position as i32).collect()));
        }
        let pass = self.pass(self.rotary(positions.into_iter(), &device));
        let counts: Vec<usize> = tokens.iter().map(|new| new.len()).collect();
        let rows = CachedAttention::new(cache.reserve(&counts), &device);
        for (layer, block) in self.h.iter().enumerate() {
            x = block.forward(x, &pass, |qkv| cache.attend(layer, qkv, &rows));
        }
        self.final_norm(x)
    }

    /// Logits `[positions, vocab_size]` of `hidden` `[1, positions, n_embd]`.
    pub(crate) fn rows_of_logits(&self, hidden: Tensor<3>) -> Tensor<2> {
        let positions = hidden.dims()[1];
        self.logits(hidden).reshape([positions, self.config.vocab_size])
    }
}
