//! Real source archives: from Debian's packages that carry one, or any file.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::image;
use super::recipe;
use crate::proc::{command, run};

struct PackagedArchive {
    name: &'static str,
    package: &'static str,
    file: &'static str,
}

/// By size: about 1,500, 6,700 and 79,000 files.
const KNOWN: &[PackagedArchive] = &[
    PackagedArchive {
        name: "openvswitch",
        package: "openvswitch-source",
        file: "usr/src/openvswitch/openvswitch.tar.gz",
    },
    PackagedArchive { name: "newlib", package: "newlib-source", file: "usr/src/newlib/newlib-3.3.0.tar.xz" },
    PackagedArchive { name: "linux", package: "linux-source-6.1", file: "usr/src/linux-source-6.1.tar.xz" },
];

/// The archive of this name (`openvswitch`, `newlib`, `linux`), as packaged, or the file of this name.
pub fn find(name: &str) -> Result<PathBuf, String> {
    match KNOWN.iter().find(|known| known.name == name) {
        Some(known) => Ok(image::unpack_newest(known.package)?.join(known.file)),
        None if Path::new(name).is_file() => Ok(PathBuf::from(name)),
        None => {
            let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
            Err(format!("{name}: no such file, and none of {}", names.join(", ")))
        }
    }
}

/// The same archive without compression, cached: the guest has better things to do than to decompress.
pub fn plain(archive: &Path) -> Result<PathBuf, String> {
    let mut magic = [0; 6];
    let got = fs::File::open(archive)
        .and_then(|mut file| file.read(&mut magic))
        .map_err(|e| format!("{}: {e}", archive.display()))?;
    let Some(program) = decompressor(&magic[..got]) else { return Ok(archive.to_owned()) };
    let meta = fs::metadata(archive).map_err(|e| format!("{}: {e}", archive.display()))?;
    let path = archive.display().to_string();
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let key = recipe::key(&[&path, &meta.len().to_string()]);
    let done =
        image::cache_dir().join(format!("plain-{key}-{}.tar", name.split('.').next().unwrap_or_default()));
    if !done.is_file() {
        let part = done.with_extension(format!("part-{}", std::process::id()));
        let out = fs::File::create(&part).map_err(|e| format!("{}: {e}", part.display()))?;
        run(command(program, ["-dc"]).arg(archive).stdout(out))?;
        fs::rename(&part, &done).map_err(|e| format!("{}: {e}", done.display()))?;
    }
    Ok(done)
}

/// The start of a plain archive with so many files (all, without a number), cached.
pub fn first_files(plain: &Path, files: Option<u64>) -> Result<PathBuf, String> {
    let Some(files) = files else { return Ok(plain.to_owned()) };
    let done = plain.with_extension(format!("{files}.tar"));
    if !done.is_file() {
        let cut = || -> std::io::Result<()> {
            let bytes = fs::read(plain)?;
            let end = end_of(&bytes, files);
            let part = plain.with_extension(format!("part-{}", std::process::id()));
            fs::write(&part, [&bytes[..end], &[0; 2 * BLOCK]].concat())?;
            fs::rename(&part, &done)
        };
        cut().map_err(|e| format!("{}: {e}", done.display()))?;
    }
    Ok(done)
}

/// Bytes of a block of a tar archive.
const BLOCK: usize = 512;

/// Where the members end that come up to this number of regular files; the archive's end if there are not so many.
fn end_of(tar: &[u8], files: u64) -> usize {
    let (mut at, mut seen) = (0, 0);
    while let Some(header) = tar.get(at..at + BLOCK).filter(|header| header[0] != 0) {
        if seen == files {
            return at;
        }
        // Type and size (octal) of the member; names that are too long for a header are members of their own.
        seen += u64::from(matches!(header[156], b'0' | 0));
        let digits = header[124..136].iter().filter(|byte| byte.is_ascii_digit());
        let size = digits.fold(0, |size: usize, digit| size.saturating_mul(8) + usize::from(digit - b'0'));
        at = size.div_ceil(BLOCK).saturating_mul(BLOCK).saturating_add(at + BLOCK);
    }
    at.min(tar.len())
}

/// The program that decompresses what starts like this, or none.
fn decompressor(magic: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 4] =
        [(b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];
    known.iter().find(|(start, _)| magic.starts_with(start)).map(|(_, program)| *program)
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, decompressor, end_of};

    fn member(kind: u8, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK + size.next_multiple_of(BLOCK)];
        bytes[0] = b'n';
        bytes[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        bytes[156] = kind;
        bytes
    }

    #[test]
    fn an_archive_is_cut_after_whole_members() {
        let members =
            [member(b'5', 0), member(b'0', 700), member(b'2', 0), member(b'0', 512), member(b'0', 1)];
        let tar = [members.concat(), vec![0; 2 * BLOCK]].concat();
        // Blocks: the directory 1, then 3, 1, 2, 2.
        for (files, blocks) in [(0, 0), (1, 4), (2, 7), (3, 9), (4, 9)] {
            assert_eq!(end_of(&tar, files), blocks * BLOCK, "{files} files");
        }
    }

    #[test]
    fn archives_are_known_by_their_content() {
        assert_eq!(decompressor(b"\xfd7zXZ\0rest"), Some("xz"));
        assert_eq!(decompressor(b"\x1f\x8b\x08"), Some("gzip"));
        assert_eq!(decompressor(b"openvs"), None);
        assert_eq!(decompressor(b""), None);
    }
}
