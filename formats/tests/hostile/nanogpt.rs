//! Checkpoints with wrong contents, and pickles that would call functions; and a right one in half
//! precision, which is made in the same way.

use ember_formats::Source;
use half::{bf16, f16};
use proptest::prelude::*;

use super::{all_refused, all_refused_beside, fixture, opened, opened_alone};

/// A zip of stored files, as `torch.save` would make it.
fn zip(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut bytes, mut central) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let (name, size) = (name.as_bytes(), (content.len() as u32).to_le_bytes());
        let start = (bytes.len() as u32).to_le_bytes();
        let shared = [&[0; 8][..], &[0; 4], &size, &size, &(name.len() as u16).to_le_bytes(), &[0; 2]].concat();
        central.extend([&b"PK\x01\x02\x14\x00\x14\x00"[..], &shared, &[0; 10], &start, name].concat());
        bytes.extend([&b"PK\x03\x04\x14\x00"[..], &shared, name, content].concat());
    }
    let count = (files.len() as u16).to_le_bytes();
    let [start, length] = [bytes.len() as u32, central.len() as u32].map(u32::to_le_bytes);
    [bytes, central, [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &length, &start, &[0; 2]].concat()].concat()
}

/// A checkpoint with only this pickle.
fn pickled(pickle: &[u8]) -> Vec<u8> {
    zip(&[("archive/data.pkl".to_owned(), pickle.to_vec())])
}

/// The files of a checkpoint.
fn files_of(checkpoint: &[u8]) -> Vec<(String, Vec<u8>)> {
    let archive = rawzip::ZipArchive::from_slice(checkpoint).unwrap();
    let mut entries = archive.entries();
    let mut files = Vec::new();
    while let Some(entry) = entries.next_entry().unwrap() {
        let name = String::from_utf8(entry.file_path().as_bytes().to_vec()).unwrap();
        files.push((name, archive.get_entry(entry.wayfinder()).unwrap().data().to_vec()));
    }
    files
}

/// The position of the first occurrence of `part`.
fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).unwrap()
}

/// The file with the first `old` replaced by `new`.
fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let at = find(bytes, old);
    [&bytes[..at], new, &bytes[at + old.len()..]].concat()
}

/// An eight-byte integer in a pickle.
fn number(number: i64) -> Vec<u8> {
    [&b"\x8a\x08"[..], &number.to_le_bytes()].concat()
}

/// A tensor's record: the offset of its values in the storage, its sizes and its strides.
fn record(offset: i64, sizes: &[i64], strides: &[i64]) -> Vec<u8> {
    let tuple =
        |numbers: &[i64]| [&b"("[..], &numbers.iter().copied().flat_map(number).collect::<Vec<_>>(), b"t"].concat();
    [number(offset), tuple(sizes), tuple(strides)].concat()
}

/// The token embedding's record, the first in the valid checkpoint's pickle: 10 rows of 16. The
/// pickle memoizes both tuples, and never uses them again.
const EMBEDDING: &[u8] = b"K\0K\x0aK\x10\x86q\x0aK\x10K\x01\x86q\x0b";

/// Pickles that would run code in Python.
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

/// The bytes of one of [`CALLS`], whose characters stand for one each.
fn bytes_of(call: &str) -> Vec<u8> {
    call.chars().map(|letter| letter as u8).collect()
}

/// A name is refused by itself, not for what else the pickle lacks. 0x69 would read a name and call
/// it at once.
#[test]
fn what_a_pickle_would_call_is_refused_by_its_name() {
    for call in CALLS {
        let line = opened_alone("ckpt.pt", &pickled(&bytes_of(call))).unwrap_err();
        assert!(line.contains(", which is refused") || line.contains("has the opcode 0x69"), "{line}");
    }
    // In a setting that nothing reads.
    let with = |setting: &[u8]| opened_alone("ckpt.pt", &repickled(b"X\x03\0\0\0out", setting));
    with(b"ccollections\nOrderedDict\n").unwrap();
    let line = with(b"cos\nsystem\n").unwrap_err();
    assert!(line.contains("asks for os.system, which is refused"), "{line}");
}

/// Each would be opened, or be refused for something else, without the check that is meant.
#[test]
fn a_lie_is_refused_for_what_it_is() {
    let good = fixture("nanogpt/ckpt.pt");
    for (old, new, reason) in [
        (&b"FloatStorage"[..], &b"ShortStorage"[..], "a weight is in a torch.ShortStorage"),
        (b"X\x05\0\0\0model", b"X\x05\0\0\0modex", "it holds no dictionary \"model\""),
        (b"model_args", b"model_argz", "it holds no dictionary \"model_args\""),
        (b"n_embd", b"n_embx", "its model_args lack n_embd"),
        (b"wpe.weight", b"wxe.weight", "tensor \"transformer.wxe.weight\" is not part of"),
        (b"ctorch._utils\n", b"cposix_utils_\n", "asks for posix_utils_._rebuild_tensor_v2, which is refused"),
    ] {
        let line = opened_alone("ckpt.pt", &replaced(&good, old, new)).unwrap_err();
        assert!(line.contains(reason), "{line}");
    }
}

#[test]
fn liars_are_refused() {
    let good = fixture("nanogpt/ckpt.pt");
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |what: &str, bytes: Vec<u8>| files.push((what.to_owned(), bytes));
    for length in [0, 1, 3, 4, 30, 100, 1000, 5000, 10_000, 20_000, good.len() - 100, good.len() - 22, good.len() - 1] {
        add(&format!("cut to {length} bytes"), good[..length].to_vec());
    }
    for call in CALLS {
        add(call, pickled(&bytes_of(call)));
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
    add("another file", zip(&[("archive/other.pkl".to_owned(), b"}.".to_vec())]));
    add("a file without its beginning", replaced(&good, b"PK\x03\x04", b"PK\x03\x05"));
    all_refused("ckpt.pt", files);
}

/// The valid checkpoint with `old` replaced by `new` in its pickle; the lengths may differ.
fn repickled(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut files = files_of(&fixture("nanogpt/ckpt.pt"));
    files[0].1 = replaced(&files[0].1, old, new);
    zip(&files)
}

/// The valid checkpoint with its numbers in another class of two bytes each.
fn narrowed(class: &[u8], number: impl Fn(f32) -> [u8; 2]) -> Vec<u8> {
    let mut files = files_of(&fixture("nanogpt/ckpt.pt"));
    files[0].1 = replaced(&files[0].1, b"FloatStorage", class);
    for (_, values) in files.iter_mut().filter(|(name, _)| name.starts_with("ckpt/data/")) {
        let wide = values.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        *values = wide.flat_map(&number).collect();
    }
    zip(&files)
}

#[test]
fn half_precision_is_read_in_its_own_type() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ckpt.pt");
    let values = |checkpoint: &[u8]| -> Vec<f32> {
        std::fs::write(&path, checkpoint).unwrap();
        let source = Source::open(&path).unwrap().unwrap();
        let model = source.model().unwrap();
        model.tensors.iter().flat_map(|tensor| tensor.values().unwrap().into_owned()).collect()
    };
    let whole = values(&fixture("nanogpt/ckpt.pt"));
    let half = values(&narrowed(b"HalfStorage", |value| f16::from_f32(value).to_le_bytes()));
    assert!(half.into_iter().eq(whole.iter().map(|value| f16::from_f32(*value).to_f32())));
    let half = values(&narrowed(b"BFloat16Storage", |value| bf16::from_f32(value).to_le_bytes()));
    assert!(half.into_iter().eq(whole.iter().map(|value| bf16::from_f32(*value).to_f32())));
}

/// A text in a pickle.
fn text(text: &str) -> Vec<u8> {
    [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

/// A pickle may refer to one value any number of times: copies would take far more than the file.
#[test]
fn what_is_long_and_named_often_is_not_copied() {
    let class = format!("{}Storage", "a".repeat(1000));
    let names = [text("torch"), b"q\0".to_vec(), text(&class), b"q\x01".to_vec(), b"h\0h\x01\x93".repeat(10_000)];
    let line = opened_alone("ckpt.pt", &pickled(&[&names.concat()[..], b"."].concat())).unwrap_err();
    assert!(line.contains("asks for torch.aaa") && line.contains(", which is refused"), "{line}");

    // A tensor of ten thousand sizes, all 1, and a thousand names for it.
    let storage = [&b"(X\x07\0\0\0storagectorch\nFloatStorage\n"[..], &text("0"), b"tQ"].concat();
    let sizes = [&b"("[..], &b"K\x01".repeat(10_000), b"tq\0"].concat();
    let tensor = [&b"ctorch._utils\n_rebuild_tensor_v2\n("[..], &storage, b"K\0", &sizes, b"h\0tRq\x01"].concat();
    let named: Vec<u8> = (0..1000).flat_map(|name| [text(&name.to_string()), b"h\x01".to_vec()].concat()).collect();
    let pickle = [&b"}"[..], &text("model"), b"}(", &text("first"), &tensor, &named, b"us."].concat();
    let files = [("archive/data.pkl".to_owned(), pickle), ("archive/data/0".to_owned(), vec![0; 4])];
    let line = opened_alone("ckpt.pt", &zip(&files)).unwrap_err();
    assert!(line.contains("a tensor of its pickle is not as torch.save writes it"), "{line}");
}

#[test]
fn tensors_that_lie_are_refused() {
    let good = record(0, &[10, 16], &[16, 1]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ckpt.pt");
    std::fs::write(&path, repickled(EMBEDDING, &good)).unwrap();
    opened(&path, &path, "the same numbers").unwrap();

    const MOST: i64 = i64::MAX;
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |what: &str, bytes: Vec<u8>| files.push((what.to_owned(), bytes));
    for sizes in [
        [11, 16],
        [16, 10],
        [5, 32],
        [10, 1 << 20],
        [1 << 32, 1 << 32],
        [1 << 59, 16],
        [MOST, MOST],
        [-1, 16],
        [10, i64::MIN],
        [0, MOST],
        [MOST, 0],
    ] {
        add(&format!("the sizes {sizes:?}"), repickled(EMBEDDING, &record(0, &sizes, &[sizes[1], 1])));
    }
    for sizes in [vec![], vec![160], vec![10, 16, 1], vec![10, 4, 4], vec![1; 1000]] {
        let mut strides = vec![1; sizes.len()];
        for at in (1..sizes.len()).rev() {
            strides[at - 1] = strides[at] * sizes[at];
        }
        add(&format!("{} dimensions", sizes.len()), repickled(EMBEDDING, &record(0, &sizes, &strides)));
    }
    for offset in [1, 16, 159, 160, 1 << 30, 1 << 61, 1 << 62, MOST / 4, MOST / 4 + 1, MOST, -1, -160, i64::MIN] {
        add(&format!("from value {offset} on"), repickled(EMBEDDING, &record(offset, &[10, 16], &[16, 1])));
    }
    for strides in
        [[0, 0], [0, 1], [16, 0], [1, 10], [1, 16], [15, 1], [17, 1], [-16, 1], [16, -1], [MOST, 1], [16, MOST]]
    {
        add(&format!("the strides {strides:?}"), repickled(EMBEDDING, &record(0, &[10, 16], &strides)));
    }
    for strides in [vec![], vec![16], vec![1], vec![16, 1, 1], vec![16; 1000]] {
        add(&format!("{} strides", strides.len()), repickled(EMBEDDING, &record(0, &[10, 16], &strides)));
    }
    for (what, old, new) in [
        ("values that are a text", &b"K\0K\x0aK\x10"[..], &b"X\x02\0\0\x0010K\x0aK\x10"[..]),
        ("sizes that are real", b"K\0K\x0aK\x10", b"K\0G\0\0\0\0\0\0\0\0K\x10"),
        ("a storage of nothing", b"X\x01\0\0\x000q", b"X\0\0\0\0q"),
        ("a storage that is not there", b"X\x01\0\0\x000q", b"X\x02\0\0\x0099q"),
        ("a storage elsewhere", b"X\x01\0\0\x000q", b"X\x0b\0\0\x00../data.pkl0q"),
        ("two norms in one storage", b"X\x01\0\0\x002q", b"X\x01\0\0\x005q"),
        ("positions in the embedding of tokens", b"X\x01\0\0\x001q", b"X\x01\0\0\x000q"),
        ("a matrix in another", b"X\x01\0\0\x006q", b"X\x01\0\0\x007q"),
    ] {
        add(what, repickled(old, new));
    }
    add("ten thousand sizes", repickled(EMBEDDING, &record(0, &[1; 10_000], &[])));
    all_refused("ckpt.pt", files);
}

/// The valid checkpoint's head is tied to its embedding; an untied head must not hide that two
/// other tensors overlap.
#[test]
fn tensors_that_share_their_values_are_refused_beside_a_head_of_its_own() {
    let mut files = files_of(&fixture("nanogpt/ckpt.pt"));
    let head = find(&files[0].1, b"_orig_mod.lm_head.weight");
    // The head gets the storage of the optimizer's first moments, which have the same size.
    let untied = replaced(&files[0].1[head..], b"h\x07h\x08", b"X\x02\0\0\x0010h\x08");
    files[0].1.splice(head.., untied);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ckpt.pt");
    std::fs::write(&path, zip(&files)).unwrap();
    opened(&path, &path, "a head of its own").unwrap();
    files[0].1 = replaced(&files[0].1, b"X\x01\0\0\x002q", b"X\x01\0\0\x005q");
    std::fs::write(&path, zip(&files)).unwrap();
    let line = opened(&path, &path, "two norms in one storage").unwrap_err();
    assert!(line.contains("overlap"), "{line}");
}

#[test]
fn directories_that_lie_are_refused() {
    let good = fixture("nanogpt/ckpt.pt");
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut put = |what: &str, at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        files.push((what.to_owned(), file));
    };
    let entry = |name: &str| {
        // A name occurs twice: before its file, and in the central directory after all files.
        let name = name.as_bytes();
        let list = find(&good, b"PK\x01\x02");
        list + find(&good[list..], &[name, b"PK"].concat()) - 46
    };
    let end = good.len() - 22;
    for name in ["ckpt/data.pkl", "ckpt/data/0", "ckpt/data/5"] {
        let entry = entry(name);
        for size in [0u32, 1, 63, 1 << 16, 1 << 31, u32::MAX - 1, u32::MAX] {
            put(&format!("{name} of {size} bytes"), entry + 20, &size.to_le_bytes());
        }
        for start in [1u32, 29, 48_000, good.len() as u32 - 4, good.len() as u32, 1 << 31, u32::MAX - 1, u32::MAX] {
            put(&format!("{name} at {start}"), entry + 42, &start.to_le_bytes());
        }
        put(&format!("{name} compressed"), entry + 10, &[8, 0]);
        for length in [0u16, 1, 200, u16::MAX] {
            put(&format!("{name}, whose name has {length} bytes"), entry + 28, &length.to_le_bytes());
        }
    }
    let start = |name: &str| <[u8; 4]>::try_from(&good[entry(name) + 42..][..4]).unwrap();
    put("two norms at one place", entry("ckpt/data/2") + 42, &start("ckpt/data/5"));
    put("a matrix at the place of another", entry("ckpt/data/6") + 42, &start("ckpt/data/7"));
    put("positions at the place of the embedding", entry("ckpt/data/1") + 42, &start("ckpt/data/0"));
    put("two files of one name", entry("ckpt/data/5") + 46, b"ckpt/data/2");
    for at in [1u32, 1 << 16, 1 << 31, u32::MAX - 1] {
        put(&format!("a list of files of {at} bytes"), end + 12, &at.to_le_bytes());
        put(&format!("a list of files at {at}"), end + 16, &at.to_le_bytes());
    }
    all_refused("ckpt.pt", files);
}

#[test]
fn tokenizers_that_lie_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("ckpt.pt");
    std::fs::write(&model, fixture("nanogpt/ckpt.pt")).unwrap();
    let meta = fixture("nanogpt/meta.pkl");
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |what: &str, bytes: Vec<u8>| files.push((what.to_owned(), bytes));
    for call in CALLS {
        add(call, bytes_of(call));
    }
    for length in (0..meta.len() - 1).step_by(5) {
        add(&format!("cut to {length} bytes"), meta[..length].to_vec());
    }
    add("no stoi", replaced(&meta, b"stoi", b"stoj"));
    for (what, stoi) in [
        ("that is a number", &b"K\x01"[..]),
        ("of nothing", b"}"),
        ("in itself", b"}q\0(X\x01\0\0\0ah\0u"),
        ("with a word", b"}(X\x02\0\0\0abK\0u"),
        ("with an empty text", b"}(X\0\0\0\0K\0u"),
        ("with an id that the model has not", b"}(X\x01\0\0\0aK\x0au"),
        ("with an id below zero", b"}(X\x01\0\0\0aJ\xff\xff\xff\xffu"),
        ("with an id that is a text", b"}(X\x01\0\0\0aX\x01\0\0\x000u"),
    ] {
        add(&format!("a stoi {what}"), [b"}X\x04\0\0\0stoi", stoi, b"s."].concat());
    }
    add("as many values as bytes", [vec![b'N'; 5 << 20], vec![b'.']].concat());
    all_refused_beside(&model, "meta.pkl", files);
}

proptest! {
    /// With a few bytes changed anywhere: an error's line or a model, and memory in proportion to
    /// the file's size.
    #[test]
    fn damage_is_survived(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<[u8; 2]>()), 1..8), early in any::<bool>()) {
        let mut bytes = fixture("nanogpt/ckpt.pt");
        // Half of the cases hit the pickle, which comes first.
        let reach = if early { 4000 } else { bytes.len() - 1 };
        for (at, other) in damage {
            let at = at.index(reach);
            bytes[at..at + 2].copy_from_slice(&other);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ckpt.pt");
        std::fs::write(&path, bytes).unwrap();
        let _ = opened(&path, &path, "damaged");
    }
}
