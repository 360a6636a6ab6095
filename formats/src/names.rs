//! Hugging Face's names of a model's tensors, with their shapes.

use crate::{Architecture, Shape};

/// All tensors of a model of this shape, in order: names and sizes, outermost dimension first.
pub fn tensors(shape: &Shape) -> Vec<(String, Vec<usize>)> {
    match shape.architecture {
        Architecture::Gpt2 => gpt2(shape),
        Architecture::Llama | Architecture::Qwen3 => llama(shape),
    }
}

/// GPT-2's tensors: matrices are `[in, out]`, and every layer has a bias.
fn gpt2(shape: &Shape) -> Vec<(String, Vec<usize>)> {
    let &Shape { vocab_size, context_length, n_embd, n_inner, .. } = shape;
    let mut all = vec![
        ("transformer.wte.weight".to_owned(), vec![vocab_size, n_embd]),
        ("transformer.wpe.weight".to_owned(), vec![context_length, n_embd]),
    ];
    for layer in 0..shape.n_layer {
        let mut both = |module: &str, weight: Vec<usize>| {
            let bias = weight[weight.len() - 1];
            all.push((format!("transformer.h.{layer}.{module}.weight"), weight));
            all.push((format!("transformer.h.{layer}.{module}.bias"), vec![bias]));
        };
        both("ln_1", vec![n_embd]);
        both("attn.c_attn", vec![n_embd, 3 * n_embd]);
        both("attn.c_proj", vec![n_embd, n_embd]);
        both("ln_2", vec![n_embd]);
        both("mlp.c_fc", vec![n_embd, n_inner]);
        both("mlp.c_proj", vec![n_inner, n_embd]);
    }
    all.push(("transformer.ln_f.weight".to_owned(), vec![n_embd]));
    all.push(("transformer.ln_f.bias".to_owned(), vec![n_embd]));
    with_head(all, shape)
}

/// Llama's and Qwen3's tensors: matrices are `[out, in]`.
fn llama(shape: &Shape) -> Vec<(String, Vec<usize>)> {
    let &Shape { vocab_size, head_size, n_embd, n_inner, .. } = shape;
    let (q, kv) = (shape.query_width(), shape.kv_width());
    let mut all = vec![("model.embed_tokens.weight".to_owned(), vec![vocab_size, n_embd])];
    for layer in 0..shape.n_layer {
        let name = |module: &str, kind: &str| format!("model.layers.{layer}.{module}.{kind}");
        let linear = |module: &str, out: usize, n_in: usize| {
            let weight = (name(module, "weight"), vec![out, n_in]);
            [Some(weight), shape.bias.then(|| (name(module, "bias"), vec![out]))].into_iter().flatten()
        };
        let norm = |module: &str, width: usize| (name(module, "weight"), vec![width]);
        all.push(norm("input_layernorm", n_embd));
        all.extend(linear("self_attn.q_proj", q, n_embd));
        all.extend(linear("self_attn.k_proj", kv, n_embd));
        all.extend(linear("self_attn.v_proj", kv, n_embd));
        if shape.architecture == Architecture::Qwen3 {
            all.push(norm("self_attn.q_norm", head_size));
            all.push(norm("self_attn.k_norm", head_size));
        }
        all.extend(linear("self_attn.o_proj", n_embd, q));
        all.push(norm("post_attention_layernorm", n_embd));
        all.extend(linear("mlp.gate_proj", n_inner, n_embd));
        all.extend(linear("mlp.up_proj", n_inner, n_embd));
        all.extend(linear("mlp.down_proj", n_embd, n_inner));
    }
    all.push(("model.norm.weight".to_owned(), vec![n_embd]));
    with_head(all, shape)
}

fn with_head(mut all: Vec<(String, Vec<usize>)>, shape: &Shape) -> Vec<(String, Vec<usize>)> {
    if !shape.tied_head {
        all.push(("lm_head.weight".to_owned(), vec![shape.vocab_size, shape.n_embd]));
    }
    all
}
