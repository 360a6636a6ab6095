//! Creates what the cases name: a run, and files and folders that are empty, broken, truncated or
//! mismatched.

use std::path::Path;

use super::super::{Place, root, small_run};

pub fn set_up(place: &Place) {
    place.train(&small_run(place, "a-run", 5)).succeeds();
    place.write("empty.txt", "");
    place.write("short.txt", "Hello.");
    place.write("-dash.txt", "Hello.");
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
    copy_folder(&checkpoint, &place.path("no-config"));
    std::fs::remove_file(place.path("no-config/checksums.json")).unwrap();
    std::fs::remove_file(place.path("no-config/config.json")).unwrap();
    copy_folder(&place.path("a-run"), &place.path("lost-config"));
    std::fs::remove_file(place.path("lost-config/config.toml")).unwrap();
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
    place.train("prepare count.txt --out tokens-of-bytes --tokenizer bytes").succeeds();
    copy_folder(&place.path("tokens-of-bytes"), &place.path("not-begun/data"));
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
