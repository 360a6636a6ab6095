//! Checkpoints that lie, and pickles that would call something.

use std::path::Path;

use proptest::prelude::*;

use super::{all_refused, fixture, opened};

/// A zip of one stored file, as `torch.save` would make it.
fn zip(name: &str, content: &[u8]) -> Vec<u8> {
    let (name, size) = (name.as_bytes(), (content.len() as u32).to_le_bytes());
    let shared = [&[0; 8][..], &[0; 4], &size, &size, &(name.len() as u16).to_le_bytes(), &[0; 2]].concat();
    let local = [&b"PK\x03\x04\x14\x00"[..], &shared, name, content].concat();
    let central = [&b"PK\x01\x02\x14\x00\x14\x00"[..], &shared, &[0; 14], name].concat();
    let [start, length] = [local.len() as u32, central.len() as u32].map(u32::to_le_bytes);
    let end = [&b"PK\x05\x06\x00\x00\x00\x00\x01\x00\x01\x00"[..], &length, &start, &[0; 2]].concat();
    [local, central, end].concat()
}

/// A checkpoint that is this pickle and nothing else.
fn pickled(pickle: &[u8]) -> Vec<u8> {
    zip("archive/data.pkl", pickle)
}

/// The file with `new` where `old` first stands.
fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
    let mut bytes = bytes.to_vec();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// Pickles that Python would run.
const CALLS: [&str; 16] = [
    "cos\nsystem\n(S'true'\ntR.",
    "\u{80}\u{2}cposix\nsystem\nX\u{4}\0\0\0true\u{85}R.",
    "cbuiltins\neval\n(X\u{3}\0\0\u{0}1+1tR.",
    "cbuiltins\nexec\n.",
    "c__builtin__\ngetattr\n.",
    "csubprocess\nPopen\n.",
    "ctorch.hub\nload\n.",
    "ctorch\nload\n.",
    "ctorch.jit\nScriptStorage\n.",
    "ctorch\nos.system.Storage\n.",
    "cnumpy.core.multiarray\n_reconstruct\n.",
    "c_codecs\nencode\n.",
    "(icollections\nOrderedDict\n.",
    "ccollections\ndeque\n.",
    "X\u{2}\0\0\0osX\u{6}\0\0\0system\u{93}.",
    "(X\u{4}\0\0\0trueios\nsystem\n.",
];

#[test]
fn liars_are_refused() {
    let good = fixture("nanogpt/ckpt.pt");
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |what: &str, bytes: Vec<u8>| files.push((what.to_owned(), bytes));
    for length in [0, 1, 3, 4, 30, 100, 1000, 5000, 10_000, 20_000, good.len() - 100, good.len() - 22, good.len() - 1] {
        add(&format!("cut to {length} bytes"), good[..length].to_vec());
    }
    for call in CALLS {
        // Each character is a byte of the pickle.
        add(call, pickled(&call.chars().map(|letter| letter as u8).collect::<Vec<u8>>()));
    }
    let deep = [vec![b'('; 10_000], vec![b't'; 10_000], vec![b'.']].concat();
    let itself = b"}q\0X\x05\0\0\0modelh\0sX\x0a\0\0\0model_argsh\0s.";
    for (what, pickle) in [
        ("no pickle", &b""[..]),
        ("no value", b"."),
        ("a number", b"K\x01."),
        ("an empty dictionary", b"}."),
        ("no end", b"}"),
        ("a long text", b"X\xff\xff\xff\xffabc."),
        ("a longer text", b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc."),
        ("a long number", b"\x8a\xff."),
        ("a place that was never noted", b"j\xff\xff\xff\xff."),
        ("a note of nothing", b"r\xff\xff\xff\xff."),
        ("a list that never began", b"t."),
        ("a tuple of nothing", b"\x87."),
        ("items of a number", b"K\x01K\x01K\x01s."),
        ("a list's end in a number", b"K\x01(K\x01e."),
        ("a call of a number", b"K\x01)R."),
        ("a tensor of nothing", b"ctorch._utils\n_rebuild_tensor_v2\n)R."),
        ("a parameter of nothing", b"ctorch._utils\n_rebuild_parameter\n)R."),
        ("a dictionary in itself", itself),
        ("deep tuples", &deep),
        ("a name without an end", b"cos"),
        ("an unknown opcode", b"\xff."),
        ("a value under a mark", b"K\x01(\x85."),
    ] {
        add(what, pickled(pickle));
    }
    add("another file", zip("archive/other.pkl", b"}."));
    for (what, old, new) in [
        ("another class of numbers", &b"FloatStorage"[..], &b"ShortStorage"[..]),
        ("no weights", b"X\x05\0\0\0model", b"X\x05\0\0\0modex"),
        ("no sizes", b"model_args", b"model_argz"),
        ("no n_embd", b"n_embd", b"n_embx"),
        ("another name", b"wpe.weight", b"wxe.weight"),
        ("a module of Python's", b"ctorch._utils\n", b"cposix_utils_\n"),
        ("a compressed file", b"PK\x03\x04", b"PK\x03\x05"),
    ] {
        add(what, replaced(&good, old, new));
    }
    all_refused("ckpt.pt", files);
}

#[test]
fn a_tokenizer_that_would_call_something_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ckpt.pt"), fixture("nanogpt/ckpt.pt")).unwrap();
    let meta = fixture("nanogpt/meta.pkl");
    let mut files: Vec<Vec<u8>> = CALLS.iter().map(|call| call.chars().map(|letter| letter as u8).collect()).collect();
    files.extend((0..meta.len() - 1).step_by(5).map(|length| meta[..length].to_vec()));
    files.push(replaced(&meta, b"stoi", b"stoj"));
    assert!(files.len() > 30);
    for bytes in files {
        std::fs::write(folder.path().join("meta.pkl"), bytes).unwrap();
        let line = super::read_all(&folder.path().join("ckpt.pt")).unwrap_err();
        assert!(line.contains("meta.pkl") && !line.contains('\n'), "{line}");
    }
}

proptest! {
    /// Whatever stands in a few places: a line or a model, and never more memory than the file bears
    /// out.
    #[test]
    fn damage_is_survived(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<[u8; 2]>()), 1..8), early in any::<bool>()) {
        let mut bytes = fixture("nanogpt/ckpt.pt");
        // Half of the time in the pickle, which comes first.
        let reach = if early { 4000 } else { bytes.len() - 1 };
        for (at, other) in damage {
            let at = at.index(reach);
            bytes[at..at + 2].copy_from_slice(&other);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ckpt.pt");
        std::fs::write(&path, bytes).unwrap();
        let _ = opened(Path::new(&path), "damaged");
    }
}
