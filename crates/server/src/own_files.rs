//! Checks that the server's own files lie outside every export. Whoever can read a log reads what everybody wrote.
//! Whoever can write one writes what recovery believes. Whoever can write the configuration file is root.
//!
//! The check runs when a configuration is checked, before any volume is opened, and again when an export table is made.
//! An export's state directory lies inside it by design and is hidden from its clients; [`crate::reload::table`] makes
//! sure that no other export shows it.

use crate::config::ExportConfig;
use crate::exports::Served;
use landfast_volume::LogPlace;
use landfast_volume::inside::{Directories, Inside};
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

pub fn of_export(e: &ExportConfig) -> Vec<OwnFile> {
    of_log(&e.path, e.log.as_ref())
}

/// [`exposed`] for volumes that are open: their logs may be others than those that a file names by now.
pub(crate) fn exposed_of(served: &[Served]) -> Option<String> {
    let own = |e: &Served| of_log(&e.path, e.volume.log_place());
    let own: Vec<_> = served.iter().flat_map(own).collect();
    exposed(served.iter().map(|e| e.volume.dir()), &own)
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

    /// Why a file may not be where it is, if clients of one of these directories could come by it.
    ///
    /// # Errors
    /// It could not be looked at.
    pub fn exposure(&self, own: &OwnFile) -> io::Result<Option<String>> {
        let found = self.directories.holding(&own.path)?;
        Ok(found.map(|(n, how)| words(own, self.paths[n], &how)))
    }
}

/// The first of these files that is exposed, or that cannot be looked at.
pub(crate) fn exposed<'a>(exports: impl Iterator<Item = &'a Path>, all: &[OwnFile]) -> Option<String> {
    let exported = Exported::new(exports);
    all.iter().find_map(|own| match exported.exposure(own) {
        Ok(why) => why,
        Err(e) => Some(format!(
            "{} ({}): cannot see whether it lies inside an export: {e}",
            own.what,
            own.path.display()
        )),
    })
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
