//! Checks that the server's own files lie outside every export. Whoever can read a log reads what everybody wrote.
//! Whoever can write one writes what recovery believes. Whoever can write the configuration file is root.
//!
//! The check runs when a configuration is checked, before any volume is opened, and again when an export table is made.
//! An export whose directory or log cannot be looked at is not served: then nobody comes by anything in it.
//! An export's state directory lies inside it by design and is hidden from its clients; [`crate::reload::table`] makes
//! sure that no other export shows it.

use crate::config::ExportConfig;
use crate::exports::Served;
use landfast_volume::inside::{Directories, Inside};
use landfast_volume::{LogPlace, OpenError};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnFile {
    /// What it is, in words: `the log of /srv/data`.
    pub what: String,
    pub path: PathBuf,
}

impl OwnFile {
    pub fn new(what: impl Into<String>, path: &Path) -> OwnFile {
        OwnFile { what: what.into(), path: path.to_owned() }
    }

    pub fn config(path: &Path) -> OwnFile {
        OwnFile::new("the configuration file", path)
    }
}

fn of_log(export: &Path, log: Option<&LogPlace>) -> Vec<OwnFile> {
    let names = std::iter::once("the log").chain(std::iter::repeat("the log's mirror"));
    let paths = log.into_iter().flat_map(LogPlace::paths);
    names
        .zip(paths)
        .map(|(what, path)| OwnFile::new(format!("{what} of {}", export.display()), path))
        .collect()
}

/// Directories that are exported, and what lies in them.
pub struct Exported<'a> {
    paths: Vec<&'a Path>,
    directories: Directories,
}

impl<'a> Exported<'a> {
    pub fn new(exports: impl Iterator<Item = &'a Path>) -> Exported<'a> {
        let paths: Vec<_> = exports.collect();
        Exported { directories: Directories::open(paths.iter().copied()), paths }
    }

    /// Why a file may not be where it is, if clients of one of these directories could come by it. What cannot be looked at has no clients.
    ///
    /// # Errors
    /// The file could not be looked at.
    pub fn exposure(&self, own: &OwnFile) -> io::Result<Option<String>> {
        let found = self.directories.holding(&own.path)?;
        Ok(found.map(|(n, how)| words(own, self.paths[n], &how)))
    }
}

/// What a look at all exports and their logs has found. Exports are numbered in their order.
#[derive(Debug, Default)]
pub struct Looked {
    /// For each log that clients of an export could come by: whose it is, and why it may not be where it is.
    pub exposed: Vec<(usize, String)>,
    /// Exports whose directory or log could not be looked at, and why. They must not be served before they could.
    pub unseen: BTreeMap<usize, OpenError>,
}

/// Looks at the exports of a configuration.
pub fn look(exports: &[ExportConfig]) -> Looked {
    look_at(exports.iter().map(|e| (e.path.as_path(), e.path.as_path(), e.log.as_ref())))
}

/// Looks at volumes that are open: their logs may be others than those that a file names by now.
pub(crate) fn look_at_open(served: &[Served]) -> Looked {
    look_at(served.iter().map(|e| (e.path.as_path(), e.volume.dir(), e.volume.log_place())))
}

/// Of each export its path as messages have it, its directory and its log.
fn look_at<'a>(exports: impl Iterator<Item = (&'a Path, &'a Path, Option<&'a LogPlace>)>) -> Looked {
    let exports: Vec<_> = exports.collect();
    let exported = Exported::new(exports.iter().map(|(_, dir, _)| *dir));
    let mut looked = Looked::default();
    for (n, err) in exported.directories.unseen() {
        let what = exported.paths[n].display().to_string();
        looked.unseen.insert(n, OpenError::Io { what, err });
    }
    for (n, (path, _, log)) in exports.iter().enumerate() {
        for own in of_log(path, *log) {
            match exported.exposure(&own) {
                Ok(None) => {}
                Ok(Some(why)) => looked.exposed.push((n, why)),
                Err(err) => {
                    let what = format!("whether {} lies inside an export", own.path.display());
                    looked.unseen.entry(n).or_insert(OpenError::Io { what, err });
                }
            }
        }
    }
    looked
}

fn words(own: &OwnFile, export: &Path, how: &Inside) -> String {
    format!(
        "{} ({}) is not safe from the clients of the export {}: it {how}; put it where no export is",
        own.what,
        own.path.display(),
        export.display()
    )
}

/// The state directory of one export lies in another.
pub(crate) fn state_shown(of: &Path, export: &Path) -> String {
    format!(
        "the state directory {} lies inside the export {}, whose clients would see the keys and the state of {}: export another \
         directory, or mount nothing over .landfast",
        of.join(".landfast").display(),
        export.display(),
        of.display()
    )
}
