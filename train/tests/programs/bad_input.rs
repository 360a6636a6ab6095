//! Every kind of bad input gets one clear line, in `docs/bad-input.md`: what is typed, the exit
//! code and the line, kept word for word. After a change of words, `EMBER_BLESS=1 cargo test
//! --release -p ember-train --test programs bad_input` writes the page again; read what changed.

use std::fmt::Write as _;
use std::path::Path;

use super::{Place, SMALL, root, small_run};

/// What is typed, with `~` for a space inside an argument. `SMALL` stands for the settings of a
/// small run.
const CASES: &[(&str, &str)] = &[
    // Text
    ("ember-train", "run missing.txt SMALL"),
    ("ember-train", "run empty.txt SMALL"),
    ("ember-train", "run empty-folder SMALL"),
    ("ember-train", "run binary.txt SMALL"),
    ("ember-train", "run damaged.txt SMALL"),
    ("ember-train", "run half-utf16.txt SMALL"),
    ("ember-train", "run short.txt SMALL"),
    ("ember-train", "run broken.jsonl SMALL"),
    ("ember-train", "run other-field.jsonl SMALL"),
    ("ember-train", "run broken.txt.gz SMALL"),
    ("ember-train", "run broken.parquet SMALL"),
    ("ember-train", "run unusable SMALL"),
    ("ember-train", "run a-run SMALL"),
    ("ember-train", "run - --out from-nothing SMALL"),
    ("ember-train", "look EMPTY"),
    ("ember-train", "run EMPTY SMALL"),
    // Configuration
    ("ember-train", "run count.txt --config missing.toml"),
    ("ember-train", "run count.txt --config broken.toml"),
    ("ember-train", "run count.txt --config /dev/zero"),
    ("ember-train", "run count.txt --set learning_rat=1"),
    ("ember-train", "run count.txt --set n_layers=4"),
    ("ember-train", "run count.txt --set n_layer=0"),
    ("ember-train", "run count.txt --set n_layer=many"),
    ("ember-train", "run count.txt --max_iters=20"),
    ("ember-train", "runs --max_iters=20"),
    ("ember-train", "run count.txt --n-layer 4"),
    ("ember-train", "run count.txt --mintues 5"),
    ("ember-train", "rum count.txt"),
    ("ember-train", "resume"),
    ("ember-train", "run count.txt --seed 1 --seed 2"),
    ("ember-train", "run count.txt --set n_embd"),
    ("ember-train", "run count.txt --set n_embd=30 --set n_head=4 --device cpu"),
    ("ember-train", "run count.txt --set architecture=gpt2 --set positions=rotary --device cpu"),
    // What no text could make right, before it is looked for
    ("ember-train", "run missing.txt --set n_embd=64 --set n_head=7 --device cpu"),
    ("ember-train", "run missing.txt --set batch_size=4 --set micro_batch=3 --device cpu"),
    ("ember-train", "run missing.txt --set min_learning_rate=0.5 --device cpu"),
    (
        "ember-train",
        "run missing.txt --set n_layer=12 --set n_embd=768 --set precision=f32 --memory-limit 500MB --device cpu",
    ),
    ("ember-train", "run missing.txt --minutes 1 --set n_embd=64 --set n_head=7 --device cpu"),
    ("ember-train", "run missing.txt --init a-run --set n_layer=3 --device cpu"),
    ("ember-train", "verify-resume missing.txt --set n_embd=64 --set n_head=7 --device cpu"),
    ("ember-train", "plan missing.txt --set n_embd=64 --set n_head=7 --device cpu"),
    ("ember-train", "plan missing.txt --out nowhere/plan.toml --device cpu"),
    ("ember-train", "run count.txt --set architecture=qwen3 --set bias=true --device cpu"),
    ("ember-train", "run count.txt --set architecture=llama --set n_head=4 --set n_kv_head=3 --device cpu"),
    ("ember-train", "run count.txt --set architecture=llama --set n_head=2 --set n_embd=6 --device cpu"),
    ("ember-train", "run count.txt --set context_length=1000000 --device cpu"),
    ("ember-train", "run count.txt --set tokenizer=wordpiece --device cpu"),
    ("ember-train", "run count.txt --set dropout=1 --device cpu"),
    ("ember-train", "run count.txt --set optimizer=sgd --device cpu"),
    ("ember-train", "run count.txt --set muon_momentum=1 --device cpu"),
    ("ember-train", "run count.txt --set schedule=linear --device cpu"),
    ("ember-train", "run count.txt --set decay_fraction=0 --device cpu"),
    ("ember-train", "run count.txt --set ema_decay=1 --device cpu"),
    ("ember-train", "run count.txt --set precision=bf17 --device cpu"),
    ("ember-train", "run count.txt --memory-limit lots --device cpu"),
    ("ember-train", "run count.txt --set precision=f32 --memory-limit 1MB SMALL"),
    ("ember-train", "run count.txt --device gpu"),
    ("ember-train", "run count.txt --device cuda"),
    ("ember-train", "run count.txt --device wgpu:x"),
    ("ember-train", "run count.txt --threads 0"),
    ("ember-train", "run count.txt --seed many"),
    ("ember-train", "run count.txt --seed 18446744073709551615"),
    ("ember-train", "prepare count.txt --out tokens --val-fraction 1.5"),
    ("ember-train", "prepare count.txt --out tokens --val-fraction 0.9"),
    ("ember-train", "prepare --out tokens --stories 1"),
    ("ember-train", "prepare count.txt --out tokens --keep-every=-1"),
    ("ember-train", "prepare count.txt --out tokens --tokenizer bpe:many"),
    ("ember-train", "prepare count.txt --out tokens --tokenizer large-id.json"),
    ("ember-train", "prepare count.txt --out tokens --tokenizer no-tokenizer"),
    ("ember-train", "prepare tokens-of-bytes --out tokens"),
    ("ember-train", "prepare count.txt --out count.txt"),
    ("ember-train", "prepare count.txt --out no-tokenizer"),
    ("ember-train", "prepare count.txt --out nowhere/.."),
    ("ember-train", "prepare count.txt --out tokens --stories 5"),
    ("ember-train", "prepare count.txt --out tokens --tokenizer /dev/zero"),
    ("ember-train", "prepare unusable --out unusable"),
    // A checkpoint to begin from
    ("ember-train", "run count.txt --init missing SMALL"),
    ("ember-train", "run count.txt --init empty-folder SMALL"),
    ("ember-train", "run count.txt --init EMPTY SMALL"),
    ("ember-train", "run count.txt --init truncated SMALL"),
    ("ember-train", "run count.txt --init no-tokenizer SMALL"),
    ("ember-train", "run count.txt --init wide-tokenizer SMALL"),
    ("ember-train", "run count.txt --init a-run --set n_layer=3 --device cpu"),
    ("ember-train", "run count.txt --init a-run --set architecture=llama --device cpu"),
    ("ember-train", "run count.txt --init a-run --set context_length=64 --device cpu"),
    ("ember-train", "run count.txt --init a-run --set tokenizer=bytes --device cpu"),
    ("ember-train", "run cafe.txt --init a-run --device cpu"),
    ("ember-train", "run tokens-of-bytes --init a-run --device cpu"),
    ("ember-train", "run tokens-of-bytes --set mask=true SMALL"),
    ("ember-train", "plan tokens-of-bytes --set mask=true --device cpu"),
    ("ember-train", "run count.txt --set sample_prompts=caf\u{e9} SMALL"),
    // Plans and promises of time
    ("ember-train", "run count.txt --minutes 5 --set max_steps=100 --device cpu"),
    ("ember-train", "run --minutes 5 --set ~max_steps~=~100 --device cpu"),
    ("ember-train", "run count.txt --minutes 0"),
    ("ember-train", "run count.txt --minutes 0.001 --device cpu"),
    ("ember-train", "plan count.txt --minutes soon"),
    ("ember-train", "plan count.txt --minutes 1000000"),
    ("ember-train", "plan count.txt --memory-limit much"),
    ("ember-train", "plan missing.txt"),
    ("ember-train", "plan count.txt --set init=a-run"),
    ("ember-train", "plan count.txt --set architecture=gpt2 --set norm=rmsnorm --device cpu"),
    // Folders
    ("ember-train", "run count.txt --out a-run SMALL"),
    ("ember-train", "run count.txt --out count.txt SMALL"),
    ("ember-train", "run count.txt --out no-tokenizer SMALL"),
    ("ember-train", "run count.txt --out nowhere/.. SMALL"),
    ("ember-train", "resume missing"),
    ("ember-train", "resume empty-folder"),
    ("ember-train", "resume flipped --device cpu"),
    ("ember-train", "resume a-run --seed 3"),
    ("ember-train", "resume a-run --set n_layer=3 --device cpu"),
    ("ember-train", "resume a-run --set max_steps=4 --device cpu"),
    ("ember-train", "resume a-run --set precision=auto --device cpu"),
    ("ember-train", "resume a-run --set sample_prompts=caf\u{e9} --device cpu"),
    ("ember-train", "resume other-optimizer --device cpu"),
    ("ember-train", "resume no-average --device cpu"),
    ("ember-train", "verify-resume missing.txt --device cpu"),
    ("ember-train", "verify-resume count.txt --steps 0 --device cpu"),
    ("ember-train", "verify-resume count.txt --set max_steps=5 --device cpu"),
    ("ember-train", "run count.txt --set learning_rate=1 --set weight_decay=10 --device cpu"),
    // Checkpoints
    ("ember-generate", "text one"),
    ("ember-generate", "text one --from missing"),
    ("ember-generate", "text one --from empty-folder"),
    ("ember-generate", "text one --from truncated"),
    ("ember-generate", "text --prompt-ids 1,2 --from mistral --device cpu"),
    ("ember-generate", "text --prompt-ids 1,2 --from scaled-rope --device cpu"),
    ("ember-generate", "text one --from no-tokenizer"),
    ("ember-generate", "text one --from flipped"),
    ("ember-generate", "text one --from a-run --weights q4"),
    // Files of other programs
    ("ember-generate", "text one --from truncated.gguf"),
    ("ember-generate", "text one --from calls.pt"),
    ("ember-generate", "text one --from short.bin"),
    ("ember-generate", "text one --from short.txt"),
    ("ember-generate", "text one two --from a-run"),
    ("ember-generate", "text one --from a-run --temprature 1"),
    ("ember-generate", "text one --from a-run --max_tokens 5"),
    ("ember-generate", "text --prompt one --from a-run"),
    ("ember-generate", "serve --from a-run --max_tokens 5"),
    ("ember-generate", "score --text one --from a-run"),
    ("ember-generate", "text one --from a-run --temperature"),
    ("ember-generate", "convert a-run"),
    ("ember-generate", "convert a-run --to onnx --out model.onnx"),
    ("ember-generate", "convert a-run --to gguf --out -"),
    ("ember-generate", "convert a-run --to gguf --out empty-folder"),
    ("ember-generate", "convert a-run --to llama2c --out model.bin"),
    ("ember-generate", "convert a-run --to hf --out model --type q8_0"),
    ("ember-generate", "convert a-run --to hf --out no-tokenizer"),
    ("ember-generate", "convert truncated --to gguf --out model.gguf"),
    ("ember-generate", "convert no-tokenizer --to gguf --out no-tokenizer/model.safetensors"),
    ("ember-generate", "convert llama.gguf --to gguf --out llama.gguf --type f16"),
    // Knobs
    ("ember-generate", "text one --from a-run --temperature -1"),
    ("ember-generate", "text one --from a-run --temperature warm"),
    ("ember-generate", "text one --from a-run --top-p 1.5"),
    ("ember-generate", "text one --from a-run --top-k -2"),
    ("ember-generate", "text one --from a-run --max-new-tokens 0"),
    ("ember-generate", "text one --from a-run --strategy greedy --temperature 0.7"),
    ("ember-generate", "text one --from a-run --strategy fancy"),
    ("ember-generate", "text one --from a-run --min-p 2"),
    ("ember-generate", "text one --from a-run --typical-p 0"),
    ("ember-generate", "text one --from a-run --epsilon-cutoff 1"),
    ("ember-generate", "text one --from a-run --eta-cutoff -0.1"),
    ("ember-generate", "text one --from a-run --repetition-penalty 0"),
    ("ember-generate", "text one --from a-run --repetition-penalty 1e-40"),
    ("ember-generate", "text one --from a-run --presence-penalty nan"),
    ("ember-generate", "text one --from a-run --frequency-penalty inf"),
    ("ember-generate", "text one --from a-run --no-repeat-ngram-size 1.5"),
    ("ember-generate", "text one --from a-run --num-beams 0"),
    ("ember-generate", "text one --from a-run --num-beams 4 --length-penalty inf"),
    ("ember-generate", "text one --from a-run --num-beams 4 --early-stopping maybe"),
    ("ember-generate", "text one --from a-run --num-beams 4 --length-penalty=-1e30"),
    ("ember-generate", "text one --from a-run --strategy greedy --length-penalty 2"),
    ("ember-generate", "text one --from a-run --strategy beam"),
    ("ember-generate", "text one --from a-run --strategy sample --num-beams 4"),
    ("ember-generate", "text one --from a-run --num-beams 4 --num-beam-groups 3 --diversity-penalty 1"),
    ("ember-generate", "text one --from a-run --num-beams 4 --num-beam-groups 2"),
    ("ember-generate", "text one --from a-run --num-beams 4 --num-beam-groups 2 --diversity-penalty 1 --top-p 0.9"),
    ("ember-generate", "text one --from a-run --num-beams 2 --num-return-sequences 3"),
    ("ember-generate", "text one --from a-run --strategy greedy --num-return-sequences 2"),
    ("ember-generate", "text one --from a-run --top-k 2 --num-return-sequences 0"),
    ("ember-generate", "text one --from a-run --min-new-tokens 9 --max-new-tokens 4"),
    ("ember-generate", "text one --from a-run --max-time 0"),
    ("ember-generate", "text one --from a-run --strategy exact --max-nodes 0"),
    ("ember-generate", "text one --from a-run --max-nodes 10"),
    ("ember-generate", "text one --from a-run --bad-words EMPTY"),
    ("ember-generate", "text one --from a-run --bad-words cab"),
    ("ember-generate", "text one --from a-run --bad-words-ids 1,9999"),
    ("ember-generate", "text one --from a-run --bad-words-ids 1,x"),
    ("ember-generate", "text one --from a-run --suppress 9999"),
    ("ember-generate", "text one --from a-run --logit-bias 5"),
    ("ember-generate", "text one --from a-run --logit-bias 9999=1"),
    ("ember-generate", "text one --from a-run --logit-bias 5=3e38"),
    ("ember-generate", "text one --from a-run --logit-bias 5=1 --logit-bias 5=2"),
    ("ember-generate", "text one --from a-run --draft-tokens 4"),
    ("ember-generate", "text one --from a-run --prompt-lookup --num-beams 2"),
    ("ember-generate", "text one --from a-run --prompt-lookup --trace steps.jsonl"),
    ("ember-generate", "text one --from a-run --stream --format json"),
    ("ember-generate", "text one --from a-run --logprobs 3"),
    ("ember-generate", "text one --from a-run --semantics llamacpp --num-beams 2"),
    ("ember-generate", "text one --from a-run --semantics mlx --top-p 0.9"),
    ("ember-generate", "text --from a-run --explain-semantics"),
    ("ember-generate", "text one --from wrong-knob"),
    ("ember-generate", "text one --from a-run --stop EMPTY"),
    ("ember-generate", "text --from a-run --prompt-ids 1,2,9999"),
    ("ember-generate", "text --from a-run --prompt-ids 1,x"),
    ("ember-generate", "text caf\u{e9} --from a-run"),
    ("ember-generate", "text one --from a-run --suppress -1"),
    ("ember-generate", "text one --from a-run --num-beams 2 --explain-semantics"),
    ("ember-generate", "text one --from a-run --draft missing"),
    // Forms
    ("ember-generate", "text one --from a-run --json-schema missing.json"),
    ("ember-generate", "text one --from a-run --json-schema broken.jsonl"),
    ("ember-generate", "text one --from a-run --regex ("),
    ("ember-generate", "text one --from a-run --regex [0-9]+"),
    ("ember-generate", "text one --from a-run --grammar short.txt"),
    // Prompts, traces and pages
    ("ember-generate", "text --from a-run --prompts missing.txt"),
    ("ember-generate", "text --from a-run --prompts empty.txt"),
    ("ember-generate", "text --from a-run --prompts latin1.txt"),
    ("ember-generate", "text --from a-run --prompts broken.jsonl"),
    ("ember-generate", "text --from a-run --prompts other-field.jsonl"),
    ("ember-generate", "text --from a-run --prompts large-id.jsonl"),
    ("ember-generate", "text --from a-run --prompt-ids EMPTY"),
    ("ember-generate", "text one --from a-run --trace empty.txt"),
    ("ember-generate", "text one --from a-run --trace missing/trace.jsonl"),
    ("ember-generate", "replay missing.jsonl"),
    ("ember-generate", "replay empty.txt"),
    ("ember-generate", "replay short.txt"),
    ("ember-generate", "replay no-tokens.jsonl"),
    ("ember-generate", "replay no-steps.jsonl"),
    ("ember-generate", "replay no-steps.jsonl --seed 9"),
    ("ember-generate", "text one --from a-run --save-config empty-folder"),
    ("ember-generate", "text one --from a-run --save-config no-tokenizer/config.json"),
    ("ember-generate", "explain one --from a-run --top-p 2"),
    ("ember-generate", "explain one --from a-run --max-new-tokens 5000"),
    ("ember-generate", "explain one --from a-run --steps 24"),
    ("ember-generate", "explain one --from a-run --tui"),
    ("ember-generate", "explain one --from a-run --format json --html a.html"),
    ("ember-generate", "explain one --from a-run --html empty-folder"),
    ("ember-generate", "explain one --from a-run --html missing/a.html"),
    ("ember-generate", "explain one --from a-run --html no-tokenizer/config.json"),
    ("ember-generate", "explain --from a-run --prompt-ids 99999"),
    // Scores and measures
    ("ember-generate", "score EMPTY --from a-run"),
    ("ember-generate", "score --from a-run --choices other-field.jsonl"),
    ("ember-generate", "score --from a-run --lines missing.txt"),
    ("ember-generate", "score one~and --from a-run --stride 99"),
    ("ember-generate", "bench --shape 2x2x32x65x64 --batch 0 --device cpu"),
    ("ember-generate", "bench --shape 2x2x32x65x64 --prompt 60 --new-tokens 5 --device cpu"),
    ("ember-generate", "bench --shape 2x2x32x65x1 --device cpu"),
    ("ember-train", "share missing --html page.html"),
    ("ember-train", "share a-run"),
    ("ember-train", "share a-run --html page.html --weights f32"),
    ("ember-train", "share a-run --html empty-folder --skip-copied --quiet"),
    ("ember-train", "share truncated --html page.html --quiet"),
    ("ember-train", "share no-tokenizer --html page.html --quiet"),
    ("ember-train", "share lowercase --html page.html --quiet"),
    ("ember-train", "copied missing.txt a-run"),
    ("ember-train", "copied count.txt missing"),
    ("ember-train", "copied count.txt a-run --field body"),
    ("ember-train", "copied count.txt truncated"),
    ("ember-train", "exposure missing"),
    ("ember-train", "exposure a-run --prefix 32"),
    ("ember-train", "exposure a-run --loop-tokens 10"),
    ("ember-train", "compare missing"),
    ("ember-train", "compare a-run empty-folder"),
    ("ember-train", "compare torn"),
    ("ember-train", "compare unlogged"),
    ("ember-train", "compare a-run --svg a-run/metrics.jsonl"),
    ("ember-train", "runs missing"),
    ("ember-train", "runs empty-folder"),
    ("ember-train", "runs remove missing"),
    ("ember-train", "runs remove empty-folder"),
    ("ember-train", "runs remove with-notes --yes"),
    ("ember-train", "timeline missing"),
    ("ember-train", "timeline empty-folder"),
    ("ember-train", "timeline a-run --prompt 7"),
    ("ember-train", "timeline a-run --last 0"),
    ("ember-train", "ledger --device cpu"),
    ("ember-train", "ledger missing --device cpu"),
    ("ember-train", "ledger a-run --time 1000 --device cpu"),
    ("ember-train", "ledger --config missing.toml --device cpu"),
    ("ember-train", "ledger a-run --set n_layer=1"),
    ("ember-train", "ledger a-run --html count.txt"),
    ("ember-train", "ledger --config stories-cpu --set tokenizer=mine.json --device cpu"),
    ("ember-train", "ledger --config stories-cpu --new-tokens 96 --device cpu"),
    ("ember-train", "ledger --config stories-cpu --batch-size 0 --device cpu"),
    ("ember-train", "bench --shape 4x4 --device cpu"),
    ("ember-train", "bench --shape 2x3x32x65x64 --device cpu"),
    ("ember-train", "bench --shape 2x2x32x65x64 --batch 0 --device cpu"),
    ("ember-train", "bench --shape 2x2x32x65x64 --steps 0 --device cpu"),
    ("ember-train", "bench --shape 2x2x32x65x64 --set micro_batch=5 --device cpu"),
    ("ember-train", "bench --shape 2x2x32x65x64 --set precision=f32 --memory-limit 1MB --device cpu"),
    ("ember-train", "bench --shape 2x2x32x65x64 --set init=a-run --device cpu"),
    ("ember-train", "bench --shape 2x2x32x65x64 --from a-run --device cpu"),
    ("ember-train", "bench --from missing --device cpu"),
    ("ember-train", "bench --from truncated --device cpu"),
    ("ember-train", "bench --config missing.toml --device cpu"),
    // Serving
    ("ember-generate", "serve --from missing"),
    ("ember-generate", "serve --from a-run --host nowhere --device cpu"),
    ("ember-generate", "serve --from a-run --host 0.0.0.0 --device cpu"),
    ("ember-generate", "serve --from a-run --api-key-file missing --device cpu"),
    ("ember-generate", "serve --from a-run --api-key-file empty.txt --device cpu"),
    ("ember-generate", "serve --from a-run --log-requests count.txt --device cpu"),
    ("ember-generate", "serve --model a-run --device cpu"),
    ("ember-generate", "serve --model a=missing --device cpu"),
    ("ember-generate", "serve --from no-tokenizer --checkpoints --device cpu"),
    ("ember-generate", "serve --from a-run --tokens-per-step 1 --device cpu"),
    ("ember-generate", "serve --from truncated --device cpu"),
];

fn set_up(place: &Place) {
    place.train(&small_run(place, "a-run", 5)).well();
    place.write("empty.txt", "");
    place.write("short.txt", "Hello.");
    place.write("binary.txt", [0u8, 159, 146, 150, 0, 1, 2, 3].repeat(100));
    place.write("latin1.txt", b"caf\xe9 au lait\n".repeat(50));
    let utf16: Vec<u8> = "\u{feff}words".encode_utf16().flat_map(u16::to_le_bytes).collect();
    place.write("half-utf16.txt", &utf16[..utf16.len() - 1]);
    let damaged = ["café au lait\n".repeat(50).as_bytes(), b"\xff\n"].concat();
    place.write("damaged.txt", &damaged);
    place.write("unusable/damaged.txt", &damaged);
    place.write("unusable/other-field.jsonl", "{\"content\": \"one\", \"id\": 1}\n");
    place.write("unusable/third-field.jsonl", "{\"body\": \"one\"}\n");
    place.write("unusable/nothing", "");
    place.write(
        "large-id.json",
        "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"one\": 4294967295}, \"unk_token\": \"one\"}}",
    );
    place.write("broken.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\n");
    place.write("other-field.jsonl", "{\"content\": \"one\", \"id\": 1}\n");
    place.write("large-id.jsonl", "{\"prompt\": \"one\"}\n{\"prompt_ids\": [1, 4294967296]}\n");
    let header = |config: &str| {
        r#"{"event": "run", "version": "", "checkpoint": "a-run", "weights": "", "device": "cpu", "grammar": null,
            "config": CONFIG, "prompts": [{"prompt": "one", "prompt_ids": [1]}], "batches": [[[0], 0, 1]]}"#
            .replace('\n', "")
            .replace("CONFIG", config)
    };
    let step = r#"{"event": "choice", "prompt_index": 0, "sequence_index": 0, "step": 0}"#;
    place.write("no-tokens.jsonl", format!("{}\n{step}\n", header("{\"max_new_tokens\": 0}")));
    place.write("no-steps.jsonl", header("{}"));
    place.write("broken.txt.gz", b"\x1f\x8b\x08\x00 this is not gzip");
    place.write("broken.parquet", "PAR1 this is not parquet");
    place.write("broken.toml", "n_layer = \n");
    std::fs::create_dir(place.path("empty-folder")).unwrap();

    let foreign = |name: &str| std::fs::read(root().join("formats/tests/fixtures").join(name)).unwrap();
    place.write("truncated.gguf", &foreign("llama/f32.gguf")[..5000]);
    place.write("llama.gguf", foreign("llama/f32.gguf"));
    let (torch, posix) = (b"ctorch._utils\n", b"cposix\nsystem\n");
    let mut calls = foreign("nanogpt/ckpt.pt");
    let at = calls.windows(torch.len()).position(|window| window == torch).unwrap();
    calls[at..at + posix.len()].copy_from_slice(posix);
    place.write("calls.pt", calls);
    place.write("short.bin", &foreign("llama2c/v0/model.bin")[..5000]);

    let checkpoint = place.path("a-run/checkpoints/step-00000005");
    copy_folder(&checkpoint, &place.path("truncated"));
    let weights = place.path("truncated/model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    copy_folder(&checkpoint, &place.path("no-tokenizer"));
    std::fs::remove_file(place.path("no-tokenizer/checksums.json")).unwrap();
    std::fs::remove_file(place.path("no-tokenizer/tokenizer.json")).unwrap();
    copy_folder(&checkpoint, &place.path("lowercase"));
    std::fs::remove_file(place.path("lowercase/checksums.json")).unwrap();
    let tokenizer = std::fs::read_to_string(place.path("lowercase/tokenizer.json")).unwrap();
    let lowercase = tokenizer.replace("\"normalizer\":null", "\"normalizer\":{\"type\": \"Lowercase\"}");
    assert!(lowercase != tokenizer, "{tokenizer}");
    place.write("lowercase/tokenizer.json", lowercase);
    copy_folder(&checkpoint, &place.path("wrong-knob"));
    std::fs::remove_file(place.path("wrong-knob/checksums.json")).unwrap();
    place.write("wrong-knob/generation_config.json", "{\"top_p\": 2}");
    for (name, was, is) in [
        ("other-optimizer", "optimizer = \"muon\"", "optimizer = \"adamw\""),
        ("no-average", "ema_decay = 0.0", "ema_decay = 0.9"),
    ] {
        copy_folder(&place.path("a-run"), &place.path(name));
        let config = std::fs::read_to_string(place.path("a-run/config.toml")).unwrap();
        assert!(config.contains(was), "{config}");
        place.write(&format!("{name}/config.toml"), config.replace(was, is));
    }
    let scaled = "{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}}";
    place.write("scaled-rope/config.json", scaled);
    place.write("mistral/config.json", "{\"model_type\": \"mistral\", \"hidden_size\": 8}");
    place.write("cafe.txt", "one caf\u{e9} and two caf\u{e9}s\n".repeat(100));
    place.train("prepare count.txt --out tokens-of-bytes --tokenizer bytes").well();
    copy_folder(&checkpoint, &place.path("wide-tokenizer"));
    std::fs::remove_file(place.path("wide-tokenizer/checksums.json")).unwrap();
    std::fs::copy(place.path("tokens-of-bytes/tokenizer.json"), place.path("wide-tokenizer/tokenizer.json")).unwrap();
    copy_folder(&place.path("a-run"), &place.path("with-notes"));
    place.write("with-notes/checkpoints/notes.txt", "mine");
    place.write("torn/metrics.jsonl", "{\"step\":1}\n{\"st\n{\"step\":2}\n");
    place.write("unlogged/metrics.jsonl", "{\"step\":0,\"run\":{}}\n");
    copy_folder(&place.path("a-run"), &place.path("flipped"));
    let weights = place.path("flipped/checkpoints/step-00000005/model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let last = bytes.len() - 100;
    bytes[last] ^= 4;
    std::fs::write(&weights, bytes).unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn bad_input_gets_the_line_that_the_page_shows() {
    let place = Place::new();
    set_up(&place);
    let mut page = String::from(
        "# Bad input, and the line it gets\n\nWritten and checked by `train/tests/programs/bad_input.rs`. `SMALL` stands for the settings of a \
         small run, `EMPTY` for an empty\nargument. Exit code 1: it could not be done. 2: it was asked for wrongly.\n\n\
         | typed | exit | line |\n|---|---|---|\n",
    );
    for (program, arguments) in CASES {
        let before = listing(place.0.path());
        let expanded = arguments.replace("SMALL", SMALL);
        let mut command = place.command(program, "");
        command.args(
            expanded
                .split_whitespace()
                .map(|word| if word == "EMPTY" { String::new() } else { word.replace('~', " ") }),
        );
        let ran = super::Ran::from(command.output().unwrap());
        let typed = format!("{program} {arguments}");
        assert!(matches!(ran.code, Some(1 | 2)), "{typed}: exit {:?}\n{}\n{}", ran.code, ran.out, ran.err);
        let errors: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("error: ")).collect();
        let [line] = errors[..] else { panic!("{typed}: not one line of error in\n{}", ran.err) };
        assert_eq!(ran.err.lines().last(), Some(line), "{typed}: more below the line");
        for never in ["panicked", "RUST_BACKTRACE", "internal error", "backtrace"] {
            assert!(!ran.err.contains(never), "{typed}: {}", ran.err);
        }
        assert_eq!(before, listing(place.0.path()), "{typed}: left files behind or took some away");
        writeln!(page, "| `{typed}` | {} | {} |", ran.code.unwrap(), line.replace('|', "\\|")).unwrap();
    }
    let path = root().join("docs/bad-input.md");
    if std::env::var_os("EMBER_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    for (now, kept) in page.lines().zip(kept.lines()) {
        assert_eq!(now, kept, "docs/bad-input.md shows another line");
    }
    assert_eq!(page.lines().count(), kept.lines().count());
}

/// Every file below a folder, locks aside.
fn listing(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with(".lock") {
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    found
}
