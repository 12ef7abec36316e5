//! Where a page goes: whole, in place of what was there, or not at all; never in place of the capture.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// Where it goes.
#[derive(Debug)]
pub enum Place {
    /// A file: written beside it, and then put there.
    Beside(PathBuf),
    /// A device or a pipe, standard output among them.
    Into(File, PathBuf),
}

impl Place {
    /// Makes room for a page, before hours go into what is to be in it.
    ///
    /// # Errors
    /// It cannot be written there, or is one of the captures.
    pub fn prepare(path: &Path, captures: &[&Path]) -> Result<Place, String> {
        let why = |e: io::Error| format!("{}: cannot write the report there: {e}", path.display());
        // What a symbolic link points to is replaced, not the link.
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
        // Whether it can be, while nothing is lost yet.
        beside(&at).map_err(why)?;
        Ok(Place::Beside(at))
    }

    /// Writes it.
    ///
    /// # Errors
    /// It could not be written; what was there is as it was.
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

/// A file that goes away unless it is put into its place.
fn beside(at: &Path) -> io::Result<NamedTempFile> {
    let permissions = Permissions::from_mode(0o666);
    Builder::new().prefix(".landfast-report-").permissions(permissions).tempfile_in(directory(at))
}
