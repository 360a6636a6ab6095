#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

fn write(path: &Path, ids: &[u32], vocab_size: usize) {
    let mut writer = TokenWriter::create(path, vocab_size).unwrap();
    for piece in ids.chunks(7) {
        writer.push(piece).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn the_layout_is_the_documented_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.bin");
    write(&path, &[1, 258], 300);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(&bytes[..8], b"EMBERTOK");
    assert_eq!(bytes[12], 2);
    assert_eq!(bytes[16], 2);
    assert_eq!(&bytes[64..], [1, 0, 2, 1]);
}

#[test]
fn damage_is_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.bin");
    write(&path, &[1, 2, 3, 4], 70_000);
    let whole = std::fs::read(&path).unwrap();
    let open = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        TokenFile::open(&path).and_then(|file| file.verify())
    };
    assert!(open(&whole).is_ok());
    assert!(open(&whole[..whole.len() - 1]).unwrap_err().to_string().contains("says 4 ids"));
    assert!(open(&whole[..10]).unwrap_err().to_string().contains("not a token file"));
    assert!(open(&[]).is_err());
    for place in [0, 8, 12, 16, 24, 32, 40, 64, 79] {
        let mut broken = whole.clone();
        broken[place] ^= 1;
        assert!(open(&broken).is_err(), "a flipped bit at byte {place} went unseen");
    }
}

#[test]
fn an_id_outside_the_vocabulary_is_refused() {
    assert!(TokenFile::from_ids(&[0, 65], 65).is_err());
    assert!(TokenFile::from_ids(&[0, 70_000], 65_536).is_err());
}

#[test]
fn an_id_outside_the_vocabulary_is_seen_behind_a_right_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.bin");
    let payload: Vec<u8> = [3u16, 65, 4].into_iter().flat_map(u16::to_le_bytes).collect();
    std::fs::write(&path, [&header(3, 65, xxh3_64(&payload))[..], &payload].concat()).unwrap();
    let error = TokenFile::open(&path).unwrap().verify().unwrap_err().to_string();
    assert!(error.contains("holds the token id 65, but its vocabulary has only 65 ids"), "{error}");
}

#[test]
fn a_file_that_is_cut_short_while_it_is_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.bin");
    write(&path, &[7; 10_000], 65);
    let file = TokenFile::open(&path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(file.get(0..100, &mut Vec::new()).is_ok());
    for failed in [file.get(9_000..9_100, &mut Vec::new()), file.verify(), file.positions(1).map(drop)] {
        let error = failed.unwrap_err().to_string();
        assert!(error.ends_with("t.bin was truncated while it was in use; prepare the text again"), "{error}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        ids in proptest::collection::vec(0u32..60_000, 0..200), vocab_size in prop_oneof![Just(60_000usize), Just(100_000)],
        from in 0.0..1.0f64, to in 0.0..1.0f64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.bin");
        write(&path, &ids, vocab_size);
        let file = TokenFile::open(&path).unwrap();
        file.verify().unwrap();
        prop_assert_eq!(file.len(), ids.len());
        let (a, b) = ((from * ids.len() as f64) as usize, (to * ids.len() as f64) as usize);
        let mut read = Vec::new();
        file.get(a.min(b)..a.max(b), &mut read).unwrap();
        prop_assert_eq!(&read[..], &ids[a.min(b)..a.max(b)]);
        if let Some(&id) = ids.first() {
            let expected: Vec<u64> = (0..ids.len()).filter(|&i| ids[i] == id).map(|i| i as u64).collect();
            prop_assert_eq!(file.positions(id).unwrap(), expected);
        }
    }
}

#[test]
fn a_file_that_is_gone_on_with_is_the_same_as_one_written_in_one_go() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, begun] = ["whole", "begun"].map(|name| folder.path().join(name));
    for vocab_size in [300, 70_000] {
        let ids: Vec<u32> = (0..300_000).map(|place| (crate::random::mix(place) % 300) as u32).collect();
        write(&whole, &ids, vocab_size);
        let mut writer = TokenWriter::create(&begun, vocab_size).unwrap();
        writer.push(&ids[..200_000]).unwrap();
        let written = writer.written().unwrap();
        writer.push(&[1, 2, 3]).unwrap();
        writer.written().unwrap();
        assert!(TokenFile::open(&begun).is_err(), "its header comes last");
        let mut writer = TokenWriter::reopen(&begun, vocab_size, written).unwrap();
        writer.push(&ids[200_000..]).unwrap();
        writer.finish().unwrap();
        assert!(std::fs::read(&whole).unwrap() == std::fs::read(&begun).unwrap());
        let mut damaged = std::fs::read(&begun).unwrap();
        damaged[1000] ^= 1;
        std::fs::write(&begun, &damaged).unwrap();
        assert!(TokenWriter::reopen(&begun, vocab_size, written).is_err());
        std::fs::write(&begun, &damaged[..1000]).unwrap();
        assert!(TokenWriter::reopen(&begun, vocab_size, written).is_err());
    }
}
