// Measures the speed of the page's engine on this machine, with made-up weights of typical model sizes.
//
//     node tools/page/share-speed.mjs

import { engine } from "./share-engine.mjs";

const SIZES = [
  ["gpt2, 10.6 million", { n_layer: 6, n_embd: 384, n_head: 6, n_kv_head: 6, n_inner: 1536, vocab_size: 65, context_length: 256, positions: "learned", norm: "layernorm", mlp: "gelu" }],
  ["llama, 30 million", { n_layer: 8, n_embd: 512, n_head: 8, n_kv_head: 4, n_inner: 1408, vocab_size: 8192, context_length: 512, positions: "rotary", norm: "rmsnorm", mlp: "swiglu" }],
];
const TOKENS = 64;

/** A matrix of 8-bit integers in the blob's format. */
function madeUp([outputs, inputs]) {
  const [room, groups] = [Math.ceil(outputs / 4) * 4, Math.ceil(inputs / 32)];
  const bytes = new Uint8Array(room * groups * 34);
  const weights = new Int8Array(bytes.buffer, 0, room * groups * 32);
  weights.forEach((_, i) => { weights[i] = (i * 7919) % 255 - 127; });
  new Uint16Array(bytes.buffer, room * groups * 32).fill(0x3900); // about 1/8192
  return engine.readMatrix(bytes.buffer, 0, "int8", [outputs, inputs]);
}

function modelOf(shape) {
  const config = { head_size: shape.n_embd / shape.n_head, norm_epsilon: 1e-5, rope_theta: 10000, ...shape };
  const { n_embd, n_inner, head_size, n_head, n_kv_head } = config;
  const shapes = {
    "wte.weight": [config.vocab_size, n_embd], "attn.c_attn.weight": [(n_head + 2 * n_kv_head) * head_size, n_embd], "attn.c_proj.weight": [n_embd, n_head * head_size],
    "mlp.c_fc.weight": [n_inner * (config.mlp === "swiglu" ? 2 : 1), n_embd], "mlp.c_proj.weight": [n_embd, n_inner],
    "wpe.weight": config.positions === "learned" ? [config.context_length, n_embd] : null,
  };
  return engine.newModel(config, (name) => {
    const part = name.replace(/^h\.\d+\./, "");
    if (shapes[part]) return madeUp(shapes[part]);
    return /^ln_.*weight$/.test(part) ? new Float32Array(n_embd).fill(1) : null;
  });
}

for (const [name, shape] of SIZES) {
  const model = modelOf(shape);
  const write = (count) => {
    for (let i = 0; i < count; i++) engine.logitsOf(model, engine.readToken(model, i % 64));
  };
  write(16);
  const started = performance.now();
  write(TOKENS);
  console.log(`${name}: ${(TOKENS / (performance.now() - started) * 1000).toFixed(0)} tokens a second`);
}
