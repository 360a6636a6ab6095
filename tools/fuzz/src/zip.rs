//! Zip archives around the part under test.

use std::io::Write;

use rawzip::{CompressionMethod, ZipArchive, ZipArchiveWriter};

/// A zip archive of these files, uncompressed.
pub fn of(files: &[(&str, &[u8])]) -> Vec<u8> {
    write(files).expect("memory can be written")
}

fn write(files: &[(&str, &[u8])]) -> Result<Vec<u8>, rawzip::Error> {
    let mut bytes = Vec::new();
    let mut archive = ZipArchiveWriter::new(&mut bytes);
    for (name, content) in files {
        let (mut entry, config) = archive.new_file(name).compression_method(CompressionMethod::STORE).start()?;
        let mut writer = config.wrap(&mut entry);
        writer.write_all(content)?;
        let (_, descriptor) = writer.finish()?;
        entry.finish(descriptor)?;
    }
    archive.finish()?;
    Ok(bytes)
}

/// The files of an uncompressed archive.
pub fn files_of(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    read(archive).expect("it is a whole archive")
}

fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, rawzip::Error> {
    let archive = ZipArchive::from_slice(bytes)?;
    let mut files = Vec::new();
    let mut entries = archive.entries();
    while let Some(entry) = entries.next_entry()? {
        let name = String::from_utf8_lossy(entry.file_path().as_ref()).into_owned();
        files.push((name, archive.get_entry(entry.wayfinder())?.data().to_vec()));
    }
    Ok(files)
}
