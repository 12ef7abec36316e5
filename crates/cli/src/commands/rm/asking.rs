//! `rm -i`: depth first, an object after another, each when it was asked about. The listing of a directory that is asked about is
//! that of which the entries are then asked about.

use super::super::ask::Answers;
use super::super::object::{below, kind_name};
use super::super::tool::Tool;
use super::super::{message, quote};
use super::args::RmArgs;
use super::say;
use landfast_client::fs::{Entry, ItemError, Meta, Nfs, Outcome, Start, ToRemove, WalkOptions};
use landfast_nfs::v4::{FileHandle, NfsStat};
use std::sync::Arc;

/// An object that may go.
pub struct Found {
    /// As it is removed, with all below it.
    pub tree: ToRemove,
    fh: Option<FileHandle>,
    meta: Meta,
    /// Whether it may be written to, once that was asked.
    writable: Option<bool>,
}

impl Found {
    /// An operand.
    pub fn new(tree: ToRemove, fh: FileHandle, meta: Meta) -> Found {
        Found { tree, fh: Some(fh), meta, writable: None }
    }

    /// An entry of the directory that this is.
    fn entry(&self, (entry, writable): (Entry, bool)) -> Option<Found> {
        let tree = ToRemove {
            path: below(&self.tree.path, &entry.name),
            parent: self.fh.clone()?,
            name: entry.name.to_vec(),
            dir: None,
            is_dir: entry.meta.is_dir(),
            first_page: None,
        };
        Some(Found { tree, fh: entry.fh, meta: entry.meta, writable: Some(writable) })
    }
}

/// Removes what may go of a tree: how many objects.
pub async fn remove(tool: &mut Tool, args: &RmArgs, nfs: Nfs, top: Found) -> u64 {
    let answers = tool.answers();
    let mut asking = Asking { tool, args, nfs, answers, removed: 0 };
    asking.tree(top).await;
    asking.removed
}

struct Asking<'a> {
    tool: &'a mut Tool,
    args: &'a RmArgs,
    nfs: Nfs,
    answers: Arc<Answers>,
    removed: u64,
}

/// A directory whose entries are asked about.
struct Level {
    found: Found,
    entries: std::vec::IntoIter<(Entry, bool)>,
    /// Something in it stays, and so does it.
    stays: bool,
}

/// What was made of an object that came.
enum Begun {
    Below(Box<Level>),
    Settled(Settled),
}

/// What became of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settled {
    Gone,
    /// As asked. The directory that it is in is asked about all the same, as with GNU's.
    Declined,
    /// So its directory stays, too, and is not asked about.
    Stays,
}

impl Asking<'_> {
    async fn tree(&mut self, top: Found) {
        let mut levels: Vec<Box<Level>> = Vec::new();
        let mut now = Some(top);
        while !self.tool.stopped() {
            let settled = match now.take() {
                Some(found) => match self.begin(found).await {
                    Begun::Below(level) => {
                        levels.push(level);
                        None
                    }
                    Begun::Settled(settled) => Some(settled),
                },
                None => match levels.pop() {
                    None => return,
                    Some(level) if level.stays => Some(Settled::Stays),
                    Some(level) => Some(self.one(&level.found).await),
                },
            };
            let Some(level) = levels.last_mut() else { return };
            level.stays |= settled == Some(Settled::Stays);
            now = level.entries.next().and_then(|entry| level.found.entry(entry));
        }
    }

    async fn begin(&mut self, mut found: Found) -> Begun {
        if found.writable.is_none() {
            found.writable = self.writable([(found.fh.clone(), found.meta.clone())].into()).await.pop();
        }
        let entries = match &found.fh {
            Some(fh) if found.meta.is_dir() => self.entries(&found.tree.path, fh).await,
            _ => return Begun::Settled(self.one(&found).await),
        };
        let empty = entries.as_ref().is_ok_and(Vec::is_empty);
        if !empty && !self.args.recursive {
            let why = message::of_status(NfsStat::NFS4ERR_NOTEMPTY);
            self.tool.complain(&format!("cannot remove {}: {why}", quote::shown(&found.tree.path)));
            return Begun::Settled(Settled::Stays);
        }
        if empty {
            return Begun::Settled(match self.one(&found).await {
                Settled::Gone => Settled::Gone,
                Settled::Declined | Settled::Stays => Settled::Stays,
            });
        }
        if !self.ask("descend into", &found, "directory") {
            return Begun::Settled(Settled::Stays);
        }
        let entries = match entries {
            Ok(entries) => entries,
            Err(e) => {
                let name = quote::shown(&found.tree.path);
                self.tool.complain(&format!("cannot open directory {name}: {}", message::of(&e)));
                return Begun::Settled(Settled::Stays);
            }
        };
        let objects = entries.iter().map(|entry| (entry.fh.clone(), entry.meta.clone())).collect();
        let writable = self.writable(objects).await;
        let entries: Vec<_> = entries.into_iter().zip(writable).collect();
        Begun::Below(Box::new(Level { found, entries: entries.into_iter(), stays: false }))
    }

    /// Asks about one object and removes it.
    async fn one(&mut self, found: &Found) -> Settled {
        let kind = match found.meta.kind.map_or("weird file", kind_name) {
            "regular file" if found.meta.size == 0 => "regular empty file",
            kind => kind,
        };
        if !self.ask("remove", found, kind) {
            return Settled::Declined;
        }
        let mut gone = false;
        let (tool, verbose) = (&mut *self.tool, self.args.verbose);
        let tree = ToRemove { dir: None, ..found.tree.clone() };
        self.nfs
            .remove_trees([tree], |removal| match removal.outcome {
                Outcome::Committed(()) => {
                    gone = true;
                    say::removed(tool, &removal, verbose);
                }
                _ => say::failed(tool, removal),
            })
            .await;
        self.removed += u64::from(gone);
        if gone { Settled::Gone } else { Settled::Stays }
    }

    fn ask(&mut self, what: &str, found: &Found, kind: &str) -> bool {
        // What was said so far comes first.
        self.tool.flush();
        let protected = if found.writable == Some(false) { "write-protected " } else { "" };
        let name = quote::shown(&found.tree.path);
        let question = format!("rm: {what} {protected}{kind} {name}? ");
        tokio::task::block_in_place(|| self.answers.ask(&question))
    }

    /// All entries of a directory.
    async fn entries(&self, path: &[u8], fh: &FileHandle) -> Result<Vec<Entry>, ItemError> {
        let mut entries = Ok(Vec::new());
        let start = Start::new(path, fh.clone());
        let options = WalkOptions { depth_max: 0, ..WalkOptions::default() };
        self.nfs.walk_from([start], options, |listing| entries = listing.entries.into_result()).await;
        entries
    }

    /// Which of these may be written to. To root nothing is write-protected, whatever the server makes of root, and to a symbolic
    /// link that does not apply.
    async fn writable(&self, objects: Vec<(Option<FileHandle>, Meta)>) -> Vec<bool> {
        let mut writable = vec![true; objects.len()];
        if self.nfs.session().options().identity.uid == 0 {
            return writable;
        }
        let asked = objects.into_iter().enumerate().filter(|(_, (_, meta))| !meta.is_link());
        let (numbers, asked): (Vec<usize>, Vec<_>) =
            asked.filter_map(|(n, (fh, meta))| Some((n, (fh?, meta.kind)))).unzip();
        for (n, outcome) in numbers.into_iter().zip(self.nfs.writable(asked).await) {
            writable[n] = !matches!(outcome, Outcome::Committed(false));
        }
        writable
    }
}
