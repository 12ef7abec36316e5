//! Real source archives: from Debian's packages that carry one, or any file.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::image;
use super::recipe;
use crate::proc::{command, run};

/// An archive that Debian packages.
struct Known {
    name: &'static str,
    package: &'static str,
    file: &'static str,
}

/// By size: about 1,500, 6,700 and 79,000 files.
const KNOWN: &[Known] = &[
    Known {
        name: "openvswitch",
        package: "openvswitch-source",
        file: "usr/src/openvswitch/openvswitch.tar.gz",
    },
    Known { name: "newlib", package: "newlib-source", file: "usr/src/newlib/newlib-3.3.0.tar.xz" },
    Known { name: "linux", package: "linux-source-6.1", file: "usr/src/linux-source-6.1.tar.xz" },
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
        let part = done.with_extension("part");
        let out = fs::File::create(&part).map_err(|e| format!("{}: {e}", part.display()))?;
        run(command(program, ["-dc"]).arg(archive).stdout(out))?;
        fs::rename(&part, &done).map_err(|e| format!("{}: {e}", done.display()))?;
    }
    Ok(done)
}

/// The program that decompresses what starts like this, or none.
fn decompressor(magic: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 4] =
        [(b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd")];
    known.iter().find(|(start, _)| magic.starts_with(start)).map(|(_, program)| *program)
}

#[cfg(test)]
mod tests {
    use super::decompressor;

    #[test]
    fn archives_are_known_by_their_content() {
        assert_eq!(decompressor(b"\xfd7zXZ\0rest"), Some("xz"));
        assert_eq!(decompressor(b"\x1f\x8b\x08"), Some("gzip"));
        assert_eq!(decompressor(b"openvs"), None);
        assert_eq!(decompressor(b""), None);
    }
}
