//! Where a page is written: it replaces the old file as a whole, or not at all, and never replaces the capture.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

#[derive(Debug)]
pub enum Place {
    /// A file: the page is written beside it, then renamed.
    Beside(PathBuf),
    /// A device or a pipe, also standard output.
    Into(File, PathBuf),
}

impl Place {
    /// Checks before the long work that the page can be written there, and that it is not one of the captures.
    pub fn prepare(path: &Path, captures: &[&Path]) -> Result<Place, String> {
        let why = |e: io::Error| format!("{}: cannot write the report there: {e}", path.display());
        // The target of a symbolic link is replaced, not the link.
        let at = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if let Ok(there) = fs::metadata(&at) {
            let is_it = |capture: &&Path| {
                fs::metadata(capture).is_ok_and(|c| (c.dev(), c.ino()) == (there.dev(), there.ino()))
            };
            let is_capture = captures.iter().any(is_it);
            if is_capture && there.is_file() {
                return Err(format!(
                    "{}: this is the capture; name another file for the report",
                    path.display()
                ));
            }
            let kind = there.file_type();
            if there.is_dir() {
                return Err(format!("{}: is a directory; name a file in it", path.display()));
            }
            if kind.is_char_device() || kind.is_fifo() || kind.is_block_device() || kind.is_socket() {
                return File::options()
                    .write(true)
                    .open(&at)
                    .map(|f| Place::Into(f, path.to_owned()))
                    .map_err(why);
            }
        }
        if !directory(&at).is_dir() {
            return Err(format!("{}: cannot write the report there: no such directory", path.display()));
        }
        // Tests whether a file can be made there, before any work is done.
        beside(&at).map_err(why)?;
        Ok(Place::Beside(at))
    }

    /// Writes the page. After a failure the old file is unchanged.
    pub fn write(self, page: &str) -> Result<(), String> {
        match self {
            Place::Into(mut file, path) => {
                file.write_all(page.as_bytes()).map_err(|e| format!("{}: {e}", path.display()))
            }
            Place::Beside(path) => {
                let written = beside(&path).and_then(|mut file| {
                    file.write_all(page.as_bytes())?;
                    file.as_file().sync_all()?;
                    file.persist(&path).map_err(|e| e.error)
                });
                written.map(drop).map_err(|e| format!("{}: {e}; the report was not written", path.display()))
            }
        }
    }
}

fn directory(at: &Path) -> &Path {
    at.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary file, which is removed unless it is renamed.
fn beside(at: &Path) -> io::Result<NamedTempFile> {
    let permissions = Permissions::from_mode(0o666);
    Builder::new().prefix(".landfast-report-").permissions(permissions).tempfile_in(directory(at))
}
