//! `rm -i`: depth first, one object after another, each removed after its question was answered. A directory is listed
//! before the question about it, and the entries of that listing are asked about.

use super::super::ask::Answers;
use super::super::object::{below, kind_name};
use super::super::tool::Tool;
use super::super::{message, quote};
use super::args::RmArgs;
use super::say;
use landfast_client::fs::{Entry, ItemError, Meta, Nfs, Outcome, Start, ToRemove, WalkOptions};
use landfast_nfs::v4::{FileHandle, NfsStat};
use std::sync::Arc;

pub struct Candidate {
    /// The object with everything below it.
    pub tree: ToRemove,
    fh: Option<FileHandle>,
    meta: Meta,
    /// Whether it is writable, once that was asked.
    writable: Option<bool>,
}

impl Candidate {
    pub fn new(tree: ToRemove, fh: FileHandle, meta: Meta) -> Candidate {
        Candidate { tree, fh: Some(fh), meta, writable: None }
    }

    fn entry(&self, (entry, writable): (Entry, bool)) -> Option<Candidate> {
        let tree = ToRemove {
            path: below(&self.tree.path, &entry.name),
            parent: self.fh.clone()?,
            name: entry.name.to_vec(),
            dir: None,
            is_dir: entry.meta.is_dir(),
            first_page: None,
        };
        Some(Candidate { tree, fh: entry.fh, meta: entry.meta, writable: Some(writable) })
    }
}

/// Removes what the user agrees to. Returns how many objects are gone.
pub async fn remove(tool: &mut Tool, args: &RmArgs, nfs: Nfs, top: Candidate) -> u64 {
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

struct Level {
    found: Candidate,
    entries: std::vec::IntoIter<(Entry, bool)>,
    /// Something in it stays, and therefore the directory stays, too.
    stays: bool,
}

enum Step {
    Enter(Box<Level>),
    Done(Removed),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Removed {
    Gone,
    /// The answer was no. The question about its directory is asked all the same, as in GNU's.
    Declined,
    /// It stays for another reason; its directory stays, too, without a question.
    Stays,
}

impl Asking<'_> {
    async fn tree(&mut self, top: Candidate) {
        let mut levels: Vec<Box<Level>> = Vec::new();
        let mut now = Some(top);
        while !self.tool.stopped() {
            let settled = match now.take() {
                Some(found) => match self.begin(found).await {
                    Step::Enter(level) => {
                        levels.push(level);
                        None
                    }
                    Step::Done(settled) => Some(settled),
                },
                None => match levels.pop() {
                    None => return,
                    Some(level) if level.stays => Some(Removed::Stays),
                    Some(level) => Some(self.one(&level.found).await),
                },
            };
            let Some(level) = levels.last_mut() else { return };
            level.stays |= settled == Some(Removed::Stays);
            now = level.entries.next().and_then(|entry| level.found.entry(entry));
        }
    }

    async fn begin(&mut self, mut found: Candidate) -> Step {
        if found.writable.is_none() {
            found.writable = self.writable([(found.fh.clone(), found.meta.clone())].into()).await.pop();
        }
        let entries = match &found.fh {
            Some(fh) if found.meta.is_dir() => self.entries(&found.tree.path, fh).await,
            _ => return Step::Done(self.one(&found).await),
        };
        let empty = entries.as_ref().is_ok_and(Vec::is_empty);
        if !empty && !self.args.recursive {
            let why = message::of_status(NfsStat::NFS4ERR_NOTEMPTY);
            self.tool.complain(&format!("cannot remove {}: {why}", quote::shown(&found.tree.path)));
            return Step::Done(Removed::Stays);
        }
        if empty {
            return Step::Done(match self.one(&found).await {
                Removed::Gone => Removed::Gone,
                Removed::Declined | Removed::Stays => Removed::Stays,
            });
        }
        if !self.ask("descend into", &found, "directory") {
            return Step::Done(Removed::Stays);
        }
        let entries = match entries {
            Ok(entries) => entries,
            Err(e) => {
                let name = quote::shown(&found.tree.path);
                self.tool.complain(&format!("cannot open directory {name}: {}", message::of(&e)));
                return Step::Done(Removed::Stays);
            }
        };
        let objects = entries.iter().map(|entry| (entry.fh.clone(), entry.meta.clone())).collect();
        let writable = self.writable(objects).await;
        let entries: Vec<_> = entries.into_iter().zip(writable).collect();
        Step::Enter(Box::new(Level { found, entries: entries.into_iter(), stays: false }))
    }

    async fn one(&mut self, found: &Candidate) -> Removed {
        let kind = match found.meta.kind.map_or("weird file", kind_name) {
            "regular file" if found.meta.size == 0 => "regular empty file",
            kind => kind,
        };
        if !self.ask("remove", found, kind) {
            return Removed::Declined;
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
        if gone { Removed::Gone } else { Removed::Stays }
    }

    fn ask(&mut self, what: &str, found: &Candidate, kind: &str) -> bool {
        // Earlier output comes before the question.
        self.tool.flush();
        let protected = if found.writable == Some(false) { "write-protected " } else { "" };
        let name = quote::shown(&found.tree.path);
        let question = format!("rm: {what} {protected}{kind} {name}? ");
        tokio::task::block_in_place(|| self.answers.ask(&question))
    }

    async fn entries(&self, path: &[u8], fh: &FileHandle) -> Result<Vec<Entry>, ItemError> {
        let mut entries = Ok(Vec::new());
        let start = Start::new(path, fh.clone());
        let options = WalkOptions { depth_max: 0, ..WalkOptions::default() };
        self.nfs.walk_from([start], options, |listing| entries = listing.entries.into_result()).await;
        entries
    }

    /// Which objects are writable. For root everything counts as writable, whatever the server makes of root; for a
    /// symbolic link the question does not apply.
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
