//! Reads reports of traces and probes, archives and directories.

use crate::input::{self, name, open};
use landfast_client::archive::{self, ArchiveReader, Kind};
use landfast_model::predict::{Tree, Version};
use landfast_model::{Terms, Work};
use serde::Deserialize;
use std::collections::HashSet;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const REPORT_BYTES_MAX: u64 = 64 << 20;

/// Files with several names that are remembered. Beyond that they are forgotten, and count again.
const LINKED_MAX: usize = 1 << 20;

/// The parts of a report of `trace` or `probe` that are used here.
#[derive(Debug, Deserialize)]
pub struct Measured {
    pub terms: Terms,
    pub work: Option<Work>,
    #[serde(default)]
    procedures: Vec<Procedure>,
}

#[derive(Debug, Deserialize)]
struct Procedure {
    version: Option<u32>,
    calls: Option<u64>,
}

impl Measured {
    pub fn typed(terms: Terms) -> Measured {
        Measured { terms, work: None, procedures: Vec::new() }
    }

    /// The version of most of its calls.
    pub fn version(&self) -> Option<Version> {
        let calls = |wanted: u32| -> u64 {
            let of = self.procedures.iter().filter(|p| p.version == Some(wanted));
            of.map(|p| p.calls.unwrap_or(0)).fold(0, u64::saturating_add)
        };
        match (calls(3), calls(4)) {
            (0, 0) => None,
            (three, four) => Some(if three > four { Version::V3 } else { Version::V4 }),
        }
    }
}

/// Reads the output of `landfast COMMAND --json`.
pub fn report(path: &Path, command: &str) -> Result<Measured, String> {
    let said = |e: &dyn std::fmt::Display| format!("{}: {e}", name(path));
    let text = input::read(path, REPORT_BYTES_MAX, "too long for a report")?;
    let wanted = format!("make it with: landfast {command} --json");
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| said(&format!("no JSON ({e}); {wanted}")))?;
    match value.get("terms") {
        None => return Err(said(&format!("it has no \"terms\"; {wanted}"))),
        Some(serde_json::Value::Null) => {
            return Err(said(
                &"the costs of a call are unknown, since too little was measured: its \"terms\" are null",
            ));
        }
        Some(_) => {}
    }
    serde_json::from_value(value).map_err(|e| said(&format!("{e}; {wanted}")))
}

pub fn archive(path: &Path, write_bytes: u64) -> Result<Tree, String> {
    let said = |e: &dyn std::fmt::Display| format!("{}: {e}", name(path));
    let (_, plain) = archive::open(open(path).map_err(|e| said(&e))?).map_err(|e| said(&e))?;
    let mut reader = ArchiveReader::new(plain);
    let mut tree = Tree::default();
    while let Some(member) = reader.next_member().map_err(|e| said(&e))? {
        match member.kind {
            // Holes are not written.
            Kind::File => tree.add_files(1, member.stored, write_bytes),
            Kind::Dir => tree.dirs += 1,
            Kind::Symlink => tree.symlinks += 1,
            Kind::HardLink => tree.hard_links += 1,
            Kind::Char | Kind::Block | Kind::Fifo | Kind::Socket => tree.others += 1,
        }
    }
    Ok(tree)
}

/// Counts what an archive of a directory would have. What cannot be read is passed to `complain` and left out.
pub fn directory(
    path: &Path,
    write_bytes: u64,
    mut complain: impl FnMut(&Path, io::Error),
) -> Result<Tree, String> {
    let top = std::fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if !top.is_dir() {
        return Err(format!("{}: not a directory", path.display()));
    }
    let mut tree = Tree { dirs: 1, ..Tree::default() };
    let mut linked = HashSet::new();
    let mut todo: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(dir) = todo.pop() {
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) => {
                complain(&dir, e);
                continue;
            }
        };
        for entry in entries {
            let found = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)));
            let (path, meta) = match found {
                Ok(found) => found,
                Err(e) => {
                    complain(&dir, e);
                    continue;
                }
            };
            let kind = meta.file_type();
            let several = !kind.is_dir() && meta.nlink() > 1;
            if several && !linked.insert((meta.dev(), meta.ino())) {
                tree.hard_links += 1;
            } else if kind.is_dir() {
                tree.dirs += 1;
                todo.push(path);
            } else if kind.is_symlink() {
                tree.symlinks += 1;
            } else if kind.is_file() {
                tree.add_files(1, meta.len(), write_bytes);
            } else if !kind.is_socket() {
                // tar leaves sockets out.
                tree.others += 1;
            }
            if linked.len() > LINKED_MAX {
                linked.clear();
            }
        }
    }
    Ok(tree)
}
