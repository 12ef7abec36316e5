//! The archive of the demo: a plain tar, which all clients get, and the first of its files as a tree for a client that copies.

use crate::error::{Context, Error, Result};
use crate::limits::DEMO_COPIED_FILES_MAX;
use crate::tarball::{self, Kind, Shape};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Archive {
    pub(super) name: String,
    pub(super) plain: PathBuf,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// Files of the archive as they are on this machine, for a client that copies one file after another.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) tree: PathBuf,
    /// Names below the tree, in the order of the archive.
    pub(super) files: Vec<String>,
    /// The directories that these need, each after the one that it is in.
    pub(super) dirs: Vec<String>,
}

impl Archive {
    pub(super) fn prepare(given: Option<&Path>, scratch: &Path) -> Result<Self> {
        let plain = scratch.join("archive.tar");
        let what = || format!("write {}", plain.display());
        let mut out = BufWriter::new(File::create(&plain).context(what)?);
        let name = match given {
            None => {
                let shape = Shape::default();
                tarball::write_random(shape, &mut out).context(what)?;
                format!("{} files of {} bytes, random", shape.files, shape.file_bytes)
            }
            Some(path) => {
                let file = File::open(path).context(|| format!("open {}", path.display()))?;
                let (_, mut tar) = landfast_client::archive::open(Box::new(file))
                    .map_err(|e| Error::Unable(format!("{}: {e}", path.display())))?;
                std::io::copy(&mut tar, &mut out).context(|| format!("decompress {}", path.display()))?;
                path.display().to_string()
            }
        };
        out.flush().context(what)?;
        drop(out);
        let (mut files, mut bytes) = (0, 0);
        let tar = File::open(&plain).context(what)?;
        tarball::read(BufReader::new(tar), |m| {
            if let Kind::File(data) = m.kind {
                files += 1;
                bytes += data.len() as u64;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if files == 0 {
            return Err(Error::Unable(format!("{name}: no regular file in it, nothing to measure")));
        }
        Ok(Archive { name, plain, files, bytes })
    }

    pub(super) fn open(&self) -> Result<BufReader<File>> {
        let file = File::open(&self.plain).context(|| format!("open {}", self.plain.display()))?;
        Ok(BufReader::new(file))
    }

    /// The archive's first files, at most so many, as an archive of their own in `scratch`.
    pub(super) fn first(&self, files: u64, scratch: &Path) -> Result<Archive> {
        let plain = scratch.join("first.tar");
        let what = || format!("write {}", plain.display());
        let mut out = BufWriter::new(File::create(&plain).context(what)?);
        let (files, bytes) = tarball::write_first(files, &self.plain, &mut out)?;
        out.flush().context(what)?;
        Ok(Archive { name: self.name.clone(), plain, files, bytes })
    }

    /// Makes the directory `tree` with the archive's first files, at most [`DEMO_COPIED_FILES_MAX`]. Names that a URL would have to
    /// escape are left out.
    pub(super) fn sources(&self, tree: PathBuf) -> Result<Sources> {
        let mut sources = Sources { tree, files: Vec::new(), dirs: Vec::new() };
        let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+".contains(b);
        tarball::read(self.open()?, |member| {
            let (Kind::File(data), true) = (&member.kind, member.path.iter().all(plain)) else {
                return Ok(ControlFlow::Continue(()));
            };
            let name = String::from_utf8_lossy(&member.path).into_owned();
            let at = sources.tree.join(&name);
            let dir = at.parent().unwrap_or(&sources.tree);
            std::fs::create_dir_all(dir)
                .and_then(|()| std::fs::write(&at, data))
                .context(|| format!("write {}", at.display()))?;
            for (i, _) in name.match_indices('/') {
                if !sources.dirs.iter().rev().any(|known| known == &name[..i]) {
                    sources.dirs.push(name[..i].to_owned());
                }
            }
            sources.files.push(name);
            Ok(match sources.files.len() < DEMO_COPIED_FILES_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })?;
        Ok(sources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_files_become_a_tree() {
        let dir = tempfile::tempdir().unwrap();
        let mut tar = tar::Builder::new(File::create(dir.path().join("given.tar")).unwrap());
        for (name, data) in [("a/b/c", "1"), ("a/with space", "2"), ("a/d", "33")] {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(data.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(1);
            header.set_uid(0);
            header.set_gid(0);
            tar.append_data(&mut header, name, data.as_bytes()).unwrap();
        }
        tar.finish().unwrap();
        let archive = Archive::prepare(Some(&dir.path().join("given.tar")), dir.path()).unwrap();
        assert_eq!((archive.files, archive.bytes), (3, 4));
        let sources = archive.sources(dir.path().join("tree")).unwrap();
        assert_eq!(sources.files, ["a/b/c", "a/d"]);
        assert_eq!(sources.dirs, ["a", "a/b"]);
        assert_eq!(std::fs::read(sources.tree.join("a/d")).unwrap(), b"33");
    }

    #[test]
    fn an_archive_without_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty.tar");
        tar::Builder::new(File::create(&empty).unwrap()).finish().unwrap();
        assert!(Archive::prepare(Some(&empty), dir.path()).is_err());
    }
}
