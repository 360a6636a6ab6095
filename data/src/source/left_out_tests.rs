//! What is not read of a folder or an archive, and how that is reported.
#![allow(clippy::unwrap_used)]

use super::*;
use std::path::Path;

/// A folder of these files.
fn folder_of(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder
}

/// The files read of a folder, and the reports about the others, without the folder's name.
fn listed(folder: &Path) -> (Vec<String>, Vec<String>) {
    let mut listing = Listing::default();
    listing.add_path(folder).unwrap();
    for one in &listing.left_out {
        let again: LeftOut = serde_json::from_str(&serde_json::to_string(one).unwrap()).unwrap();
        assert_eq!(again, *one, "a manifest keeps it");
    }
    let short = |line: &str| line.replace(&format!("{}/", folder.display()), "");
    let files = listing.files.iter().map(|file| short(&file.name)).collect();
    (files, LeftOut::summary(&listing.left_out).iter().map(|line| short(line)).collect())
}

/// A tar archive of one file, and of links of these kinds to it.
fn tar_of(links: &[(&str, tar::EntryType)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    header.set_cksum();
    archive.append_data(&mut header, "one.txt", &b"one"[..]).unwrap();
    for (name, kind) in links {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_size(0);
        archive.append_link(&mut header, name, "one.txt").unwrap();
    }
    archive.into_inner().unwrap()
}

#[test]
fn packed_files_that_are_not_read_say_to_unpack_them() {
    let folder = folder_of(&[
        ("a.txt", b"text"),
        ("b.txt.xz", b"\xfd7zXZ\0\0\x04"),
        ("brotli.br", b"\x0b\x02\x80text\x03"),
        ("called-so.rar", &tar_of(&[])),
        ("latin1.br", b"cora\xe7\xe3o"),
        ("unnamed", b"BZh91AY&SY\x01\x02"),
        ("words.7z", b"a text by the name of an archive"),
    ]);
    let (files, reported) = listed(folder.path());
    assert_eq!(files, ["a.txt", "called-so.rar/one.txt", "latin1.br", "words.7z"]);
    let why = "is packed in an unsupported format; unpack it first (gzip, zstd, zip and tar are read)";
    assert_eq!(reported, [format!("3 packed files, the first: b.txt.xz {why}")]);
}

#[test]
fn flat_spreadsheets_slides_and_drawings_are_left_out_as_those_in_packages_are() {
    let flat = |kind: &str| {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<office:document office:version=\"1.3\" \
             office:mimetype=\"application/vnd.oasis.opendocument.{kind}\"><office:body><text:p>One</text:p>\
             </office:body></office:document>"
        )
    };
    let [sums, slides, drawing] = ["spreadsheet", "presentation", "graphics"].map(flat);
    let folder = folder_of(&[
        ("a.txt", b"text"),
        ("chart.fodg", drawing.as_bytes()),
        ("chart.odg", b"PK\x03\x04\0\0"),
        ("letter.fodt", flat("text").as_bytes()),
        ("notes.fods", b"a text by the name of a spreadsheet"),
        ("sums.fods", sums.as_bytes()),
        ("sums.xml", sums.as_bytes()),
        ("talk.fodp", slides.as_bytes()),
    ]);
    let (files, reported) = listed(folder.path());
    assert_eq!(files, ["a.txt", "letter.fodt", "notes.fods"]);
    let expected = [
        "2 spreadsheets, the first: sums.fods is a spreadsheet; save the sheet that has text as CSV",
        "1 file of slides: talk.fodp holds slides; save them as PDF",
        "2 drawings, the first: chart.fodg is a drawing; save it as PDF",
    ];
    assert_eq!(reported, expected);
}

#[cfg(unix)]
#[test]
fn links_to_nothing_and_those_in_archives_are_told() {
    let links = [("same.txt", tar::EntryType::Link), ("soft.txt", tar::EntryType::Symlink)];
    let folder = folder_of(&[("a.txt", b"text"), ("x.tar", &tar_of(&links))]);
    std::os::unix::fs::symlink("nothing.txt", folder.path().join("gone.txt")).unwrap();
    let (files, reported) = listed(folder.path());
    assert_eq!(files, ["a.txt", "x.tar/one.txt"]);
    assert_eq!(reported, ["3 links, the first: gone.txt is a link to a missing file"]);
}

#[test]
fn a_folder_of_nothing_but_what_git_ignores_says_so() {
    let folder = folder_of(&[(".gitignore", b"*\n"), ("a.txt", b"text"), ("b/c.txt", b"text"), (".hidden", b"text")]);
    let error = Listing::default().add_path(folder.path()).unwrap_err().to_string();
    let expected = "holds no file with text; give another folder (a .gitignore excludes 2 files)";
    assert_eq!(error, format!("{} {expected}", folder.path().display()));
}

/// The error's line for this file, named by itself.
fn refused(name: &str, bytes: &[u8]) -> String {
    let folder = folder_of(&[(name, bytes)]);
    let error = Listing::default().add_path(&folder.path().join(name)).unwrap_err();
    ember_host::file_error::with_causes(&error).replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn a_tar_archive_that_was_cut_off_is_damaged_and_nothing_of_it_is_read() {
    let archive_of = |files: usize, bytes: usize| {
        let mut archive = tar::Builder::new(Vec::new());
        for number in 0..files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes as u64);
            archive.append_data(&mut header, format!("{number}.txt"), &vec![b'a'; bytes][..]).unwrap();
        }
        archive.into_inner().unwrap()
    };
    let damaged = "cannot read x.tar as an archive; it is damaged: make it again";
    let many = archive_of(20, 10_240);
    assert_eq!(refused("x.tar", &many[..12 * 10_752 + 512 + 4096]), format!("{damaged}: it ends within 12.txt"));
    let large = archive_of(1, 1 << 20);
    assert_eq!(refused("x.tar", &large[..large.len() / 2]), format!("{damaged}: it ends within 0.txt"));
}

#[test]
fn a_name_in_a_tar_archive_that_would_fill_the_memory_is_refused() {
    let long = vec![b'a'; 5 << 20];
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(long.len() as u64);
    header.set_cksum();
    let mut archive = tar::Builder::new(Vec::new());
    archive.append(&header, &long[..]).unwrap();
    let line = refused("x.tar", &archive.into_inner().unwrap());
    assert!(line.ends_with("it is damaged: make it again: a part of it is too long"), "{line}");
}

#[test]
fn sparse_files_of_a_tar_archive_are_told_and_contiguous_ones_read() {
    let mut archive = tar::Builder::new(Vec::new());
    let header = || {
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header
    };
    let mut contiguous = header();
    contiguous.set_entry_type(tar::EntryType::contiguous());
    archive.append_data(&mut contiguous, "contiguous.txt", &b"one"[..]).unwrap();
    let mut sparse = header();
    sparse.set_entry_type(tar::EntryType::GNUSparse);
    let map = sparse.as_gnu_mut().unwrap();
    map.realsize = *b"00000000003\0";
    (map.sparse[0].offset, map.sparse[0].numbytes) = (*b"00000000000\0", *b"00000000003\0");
    archive.append_data(&mut sparse, "holes.txt", &b"two"[..]).unwrap();
    archive.append_pax_extensions([("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.minor", b"0")]).unwrap();
    archive.append_data(&mut header(), "more-holes.txt", &b"two"[..]).unwrap();
    let folder = folder_of(&[("x.tar", &archive.into_inner().unwrap())]);
    let (files, reported) = listed(folder.path());
    assert_eq!(files, ["x.tar/contiguous.txt"]);
    let why = "it is encrypted or compressed by an unsupported method, or sparse; unpack the archive";
    let first = "2 text files that cannot be used, the first: cannot open x.tar/holes.txt";
    assert_eq!(reported, [format!("{first}: {why}")]);
}
