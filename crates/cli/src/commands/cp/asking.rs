//! `cp -i`: an existing file at the destination is asked about before its member passes; a member that was declined is
//! left out. An existing directory is listed once. Below a directory that does not exist nothing is looked up.

use super::super::ask::Answers;
use super::super::tool::Tool;
use super::super::{mode, quote};
use super::args::CpArgs;
use super::ends::{CopyTask, End};
use super::say::CopyOutput;
use landfast_client::archive::{ArchiveError, Kind, Member};
use landfast_client::fs::{Meta, Nfs, Original, Outcome};
use landfast_client::local;
use landfast_client::put::{Cause, DataError, MemberError, Members, SourceItem};
use landfast_nfs::v4::{FileHandle, NfsTime};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;

pub enum Dest {
    Here {
        root: PathBuf,
    },
    There {
        nfs: Nfs,
        /// The path from the server's root.
        root: Vec<u8>,
    },
}

#[derive(Clone)]
struct ExistingEntry {
    meta: Meta,
    fh: Option<FileHandle>,
}

/// What is known about the entries of a directory at the destination.
enum DirContents {
    /// It has no entries, or nothing can be put there.
    Nothing,
    Listed(HashMap<Box<[u8]>, ExistingEntry>),
    /// It could not be listed: each entry is looked up by itself.
    Unlisted,
}

enum Verdict {
    Passes,
    Agreed,
    Declined,
    Fails(MemberError),
}

/// Members of a copy, with a question before each that would overwrite something.
pub struct Asking {
    members: Box<dyn Members>,
    dest: Dest,
    runtime: Handle,
    say: Arc<CopyOutput>,
    answers: Arc<Answers>,
    stop: Arc<AtomicBool>,
    /// Existing files that are not older than the source stay, without a question.
    older: bool,
    /// With `-f` or `--remove-destination`: an existing file is replaced.
    replaces: bool,
    /// The directories on the path of the last member.
    dirs: Vec<(Vec<u8>, DirContents)>,
    declined: HashSet<Vec<u8>>,
    /// Members that have passed, kept if two sources can have one name: such a name is not asked about again.
    passed: Option<HashSet<Vec<u8>>>,
}

impl Asking {
    /// Must be called on a Tokio runtime.
    pub fn new(
        members: Box<dyn Members>,
        dest: Dest,
        (args, tasks): (&CpArgs, &[CopyTask]),
        (tool, say): (&Tool, &Arc<CopyOutput>),
    ) -> Asking {
        Asking {
            members,
            dest,
            runtime: Handle::current(),
            say: say.clone(),
            answers: tool.answers(),
            stop: tool.stop_flag(),
            // With `-i -u` only files that are older than their sources are asked about.
            older: args.update,
            replaces: args.force || args.remove_destination,
            dirs: Vec::new(),
            declined: HashSet::new(),
            passed: (tasks.len() > 1).then(HashSet::new),
        }
    }

    fn judge(&mut self, member: &Member, original: Option<&Original>) -> Verdict {
        let (above, name) = match member.path.iter().rposition(|b| *b == b'/') {
            Some(at) => (&member.path[..at], &member.path[at + 1..]),
            None => (&b""[..], &member.path[..]),
        };
        while self.dirs.pop_if(|(dir, _)| dir != above).is_some() {}
        let existing = match self.dirs.last() {
            // This is the destination itself, which exists.
            _ if member.path.is_empty() => return self.enter(member, None),
            Some((_, DirContents::Nothing)) => None,
            Some((_, DirContents::Listed(entries))) => entries.get(name).cloned(),
            Some((_, DirContents::Unlisted)) | None => self.look(&member.path),
        };
        if member.kind == Kind::Dir {
            return self.enter(member, Some(existing));
        }
        if member.kind == Kind::HardLink && self.declined.contains(&member.link) {
            let first = quote::shown(&self.say.dest(&member.link));
            return Verdict::Fails(MemberError::new(
                Cause::Other,
                format!("you did not want to overwrite {first}, which is the same file"),
            ));
        }
        if let Some(passed) = &mut self.passed
            && !passed.insert(member.path.clone())
        {
            return Verdict::Passes;
        }
        let Some(existing) = existing else { return Verdict::Passes };
        let modified = NfsTime { seconds: member.mtime.seconds, nseconds: member.mtime.nanos };
        let same = original.is_some_and(|o| (o.fsid, o.fileid) == (existing.meta.fsid, existing.meta.fileid));
        if same {
            return Verdict::Passes;
        }
        if self.older && existing.meta.modified >= modified || !self.agrees(&member.path, &existing) {
            self.declined.insert(member.path.clone());
            return Verdict::Declined;
        }
        Verdict::Agreed
    }

    /// Remembers what is in a directory that the copy enters. `existing`: what exists in its place; the outer `None`: it
    /// is the destination itself.
    fn enter(&mut self, member: &Member, existing: Option<Option<ExistingEntry>>) -> Verdict {
        let within = match (existing, &self.dest) {
            (Some(None), _) => DirContents::Nothing,
            (Some(Some(existing)), _) if !existing.meta.is_dir() => DirContents::Nothing,
            (_, Dest::Here { .. }) => DirContents::Unlisted,
            (_, Dest::There { nfs, root }) => {
                let path = below(root, &member.path);
                match self.runtime.block_on(nfs.listdir([path])).pop() {
                    Some(Outcome::Committed(entries)) => {
                        let named =
                            entries.into_iter().map(|e| (e.name, ExistingEntry { meta: e.meta, fh: e.fh }));
                        DirContents::Listed(named.collect())
                    }
                    // It cannot be listed; a look at each entry will tell.
                    _ => DirContents::Unlisted,
                }
            }
        };
        self.dirs.push((member.path.clone(), within));
        Verdict::Passes
    }

    fn look(&self, path: &[u8]) -> Option<ExistingEntry> {
        match &self.dest {
            Dest::Here { root } => {
                let meta = local::meta_of(&root.join(OsStr::from_bytes(path))).ok()?;
                Some(ExistingEntry { meta, fh: None })
            }
            Dest::There { nfs, root } => {
                match self.runtime.block_on(nfs.getattrs([below(root, path)])).pop() {
                    Some(Outcome::Committed(object)) => {
                        Some(ExistingEntry { meta: Meta::of(&object.attrs), fh: Some(object.fh) })
                    }
                    // It does not exist. If it exists after all, it stays: nobody agreed to overwrite it.
                    _ => None,
                }
            }
        }
    }

    fn agrees(&self, path: &[u8], existing: &ExistingEntry) -> bool {
        let dest = quote::shown(&self.say.dest(path));
        let question = if self.writable(path, existing) {
            format!("cp: overwrite {dest}? ")
        } else {
            let shown = mode::shown(existing.meta.kind, existing.meta.mode);
            let (mode, letters) = (existing.meta.mode & 0o7777, &shown[1..]);
            match self.replaces {
                true => format!("cp: replace {dest}, overriding mode {mode:04o} ({letters})? "),
                false => format!("cp: unwritable {dest} (mode {mode:04o}, {letters}); try anyway? "),
            }
        };
        // Earlier output comes before the question.
        self.say.flush();
        self.answers.ask(&question)
    }

    /// Root may write to everything. For a symbolic link the question does not apply.
    fn writable(&self, path: &[u8], existing: &ExistingEntry) -> bool {
        if existing.meta.is_link() {
            return true;
        }
        match (&self.dest, &existing.fh) {
            (Dest::Here { root }, _) => local::writable(&root.join(OsStr::from_bytes(path))),
            (Dest::There { nfs, .. }, Some(fh)) if nfs.session().options().identity.uid != 0 => {
                let asked = nfs.writable([(fh.clone(), existing.meta.kind)]);
                self.runtime.block_on(asked).pop() != Some(Outcome::Committed(false))
            }
            (Dest::There { .. }, _) => true,
        }
    }
}

impl Members for Asking {
    fn next_member(&mut self) -> Result<Option<SourceItem>, ArchiveError> {
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Ok(None);
            }
            let Some(given) = self.members.next_member()? else { return Ok(None) };
            let verdict = match &given {
                SourceItem::Member(member) => self.judge(member, None),
                SourceItem::Copy(member, original) => self.judge(member, Some(original)),
                _ => Verdict::Passes,
            };
            return Ok(Some(match (verdict, given) {
                (Verdict::Passes, given) => given,
                (Verdict::Agreed, given) => SourceItem::Agreed(Box::new(given)),
                (Verdict::Declined, _) => continue,
                (Verdict::Fails(why), SourceItem::Member(member) | SourceItem::Copy(member, _)) => {
                    SourceItem::Unreadable(member.path, why)
                }
                (Verdict::Fails(_), given) => given,
            }));
        }
    }

    fn data(&mut self, max: usize) -> Result<bytes::Bytes, DataError> {
        self.members.data(max)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), DataError> {
        self.members.skip(bytes)
    }
}

fn below(dir: &[u8], path: &[u8]) -> Vec<u8> {
    match (dir.is_empty(), path.is_empty()) {
        (true, _) => path.to_vec(),
        (_, true) => dir.to_vec(),
        _ => [dir, b"/", path].concat(),
    }
}

/// The source that is also standard input, if there is one.
pub fn answers_from(tasks: &[CopyTask]) -> Option<&End> {
    let input = std::fs::metadata("/proc/self/fd/0")
        .ok()
        .filter(|meta| meta.is_file() || meta.file_type().is_fifo())?;
    let id = |meta: &std::fs::Metadata| (meta.dev(), meta.ino());
    let sources = tasks.iter().map(|task| &task.source);
    let mut here = sources.filter(|source| match source {
        End::Here { path } => path.metadata().is_ok_and(|meta| id(&meta) == id(&input)),
        End::There { .. } => false,
    });
    here.next()
}
