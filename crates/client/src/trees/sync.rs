//! Makes a tree on a server the same as a local tree or a tree on another server. It removes objects, sends what differs
//! through [`crate::put`], and sets attributes. A local source is sent as an archive.
//!
//! - Nothing is reported as done before the server has said that it is durable.
//! - A failure is reported with its reason, and the rest goes on.
//! - A file that could not be read to its end is removed again. Otherwise a later run could take it for equal to the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use landfast_nfs::v4::SetTime;
use landfast_nfs::v4::attr::AttrValues;
use serde::Serialize;
use tokio::sync::watch;

use super::contents::open;
use super::plan::{Plan, XattrChange};
use super::tree::{Node, Origin, Tree, last_name, parent_path};
use crate::archive::{ArchiveWriter, Compression, Compressor, Kind, Member, Time};
use crate::copy::{RemoteObject, RemoteOptions, RemoteTrees};
use crate::fs::AsNamed;
use crate::fs::{ItemError, Nfs, Outcome, Owner, ToRemove, Xattr, join};
use crate::limits::{ARCHIVE_WRITE_BUFFER, WHOLE_FILE_MAX};
use crate::put::{self, Cause, Existing, Progress, PutOptions, Source, Xattrs};
use crate::untar::Archive;

/// Receives the progress: what is durable, and what failed.
pub trait SyncProgress: Send + Sync {
    fn removed(&self, _path: &[u8]) {}
    /// The number of sent objects that are durable so far. When all are, [`SyncProgress::sent`] follows for each.
    fn arrived(&self, _objects: u64) {}
    /// An object is durable.
    fn sent(&self, _path: &[u8]) {}
    /// The attributes of an object that was not sent are durable.
    fn set(&self, _path: &[u8]) {}
    fn failed(&self, _path: &[u8], _why: &str) {}
    /// An object was not sent, or is incomplete. By default this is [`SyncProgress::failed`].
    fn unsent(&self, path: &[u8], why: &put::MemberError) {
        self.failed(path, &why.to_string());
    }
    /// Something that the user may want to change, though nothing has failed.
    fn warning(&self, _text: &str) {}
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct SyncReport {
    pub removed: u64,
    /// Objects of all kinds that were sent.
    pub sent: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Objects whose attributes alone were set.
    pub set: u64,
    pub failures: u64,
}

pub struct Target<'a> {
    /// The server on which `path` leads to the destination.
    pub nfs: &'a Nfs,
    pub path: Vec<u8>,
    /// Whether to set owners and groups.
    pub owners: bool,
    /// Whether to set extended attributes.
    pub xattrs: bool,
    /// When it becomes true, nothing new is started, and what is in flight is completed.
    pub stop: Option<watch::Receiver<bool>>,
}

impl Target<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| *stop.borrow())
    }

    async fn extract(
        &self,
        options: PutOptions,
        from: Source,
        collector: Arc<SentCollector>,
    ) -> Result<put::Report, put::FatalError> {
        let names = self.path.split(|b| *b == b'/').filter(|name| !name.is_empty());
        let path: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
        let options = PutOptions { stop: self.stop.clone(), ..options };
        put::start_in(options, self.nfs.session(), from, &path, collector).await?.go_on().await
    }
}

/// Carries out the plan. `error_text` turns an error into the caller's words. Fails only when nothing can be sent at all.
pub async fn sync(
    source: &Tree,
    dest: &Tree,
    plan: &Plan,
    target: &Target<'_>,
    progress: Arc<dyn SyncProgress>,
    error_text: impl Fn(&ItemError) -> String,
) -> Result<SyncReport, put::FatalError> {
    let mut report = SyncReport::default();
    remove(dest, plan, target, &*progress, &error_text, &mut report).await;
    if !plan.send.is_empty() && !target.is_stopped() {
        match send(source, plan, target, &progress, &mut report).await {
            Err(put::FatalError::Stopped) => {}
            done => done?,
        }
    }
    if target.is_stopped() {
        return Ok(report);
    }
    set_xattrs(plan, target, &*progress, &error_text, &mut report).await;
    set(source, plan, target, &*progress, &error_text, &mut report).await;
    Ok(report)
}

async fn remove(
    dest: &Tree,
    plan: &Plan,
    target: &Target<'_>,
    progress: &dyn SyncProgress,
    error_text: &impl Fn(&ItemError) -> String,
    report: &mut SyncReport,
) {
    let to_remove = plan.remove.iter().filter_map(|path| {
        let (node, parent) = (dest.nodes.get(path)?, dest.nodes.get(parent_path(path))?);
        Some(ToRemove {
            path: path.clone(),
            parent: parent.fh.clone()?,
            name: last_name(path).to_vec(),
            dir: node.fh.clone().filter(|_| node.meta.is_dir()),
            is_dir: node.meta.is_dir(),
            first_page: None,
        })
    });
    let to_remove: Vec<ToRemove> = to_remove.collect();
    target
        .nfs
        .remove_trees(to_remove, |removal| match removal.outcome.into_result() {
            Ok(()) => {
                report.removed += 1;
                progress.removed(&removal.path);
            }
            // The removal was not started. Do not report that for each object.
            Err(ItemError::NotExecuted(_)) if target.is_stopped() => {}
            Err(e) => {
                report.failures += 1;
                progress.failed(&removal.path, &error_text(&e));
            }
        })
        .await;
}

async fn send(
    source: &Tree,
    plan: &Plan,
    target: &Target<'_>,
    progress: &Arc<dyn SyncProgress>,
    report: &mut SyncReport,
) -> Result<(), put::FatalError> {
    let collector = Arc::new(SentCollector::new(progress.clone(), plan.touched.clone()));
    let options = PutOptions {
        same_permissions: Some(true),
        same_owner: Some(target.owners),
        existing: Existing::Replace,
        xattrs: if target.xattrs { Xattrs::Must } else { Xattrs::No },
        ..PutOptions::default()
    };
    match &source.origin {
        Origin::Local(top) => {
            send_packed(source, top.clone(), plan, (target, options), &collector, report).await
        }
        Origin::Server(nfs) => send_read(source, nfs, plan, (target, options), &collector, report).await,
        Origin::Archive => Ok(()),
    }
}

/// The objects that the plan sends, as they are read from a server.
pub(super) fn objects_to_send(source: &Tree, plan: &Plan) -> Vec<RemoteObject> {
    let object = |path: &Vec<u8>| {
        let Node { meta, text, fh, .. } = source.nodes.get(path)?.clone();
        Some(RemoteObject { name: path.clone(), meta, fh, text: Some(text) })
    };
    plan.send.iter().filter_map(object).collect()
}

/// Sends from another server, where files are read by their handles.
async fn send_read(
    source: &Tree,
    nfs: &Nfs,
    plan: &Plan,
    (target, options): (&Target<'_>, PutOptions),
    collector: &Arc<SentCollector>,
    report: &mut SyncReport,
) -> Result<(), put::FatalError> {
    let objects = objects_to_send(source, plan);
    let reading =
        RemoteOptions { links: true, xattrs: target.xattrs, exact: true, ..RemoteOptions::default() };
    let members = RemoteTrees::of(nfs, objects, reading, Box::new(AsNamed));
    let from = Source::members(Box::new(members));
    let extracted = target.extract(options, from, collector.clone()).await?;
    // A file that fits in one piece is not started before it has been read. So only larger ones can be incomplete.
    let large = |path: &&Vec<u8>| source.nodes.get(*path).is_some_and(|n| n.meta.size > WHOLE_FILE_MAX);
    let unread = collector.unread.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let broken: BTreeSet<&Vec<u8>> = unread.iter().filter(large).collect();
    account(&extracted, collector, target, &broken, report).await;
    Ok(())
}

/// Sends local files, as an archive.
async fn send_packed(
    source: &Tree,
    top: PathBuf,
    plan: &Plan,
    (target, options): (&Target<'_>, PutOptions),
    collector: &Arc<SentCollector>,
    report: &mut SyncReport,
) -> Result<(), put::FatalError> {
    let members: Vec<(Vec<u8>, Node)> =
        plan.send.iter().filter_map(|p| Some((p.clone(), source.nodes.get(p)?.clone()))).collect();
    let (reader, writer) = io::pipe().map_err(|e| put::FatalError::Reader(e.to_string()))?;
    let xattrs = target.xattrs;
    let packing = tokio::task::spawn_blocking(move || {
        let mut packer =
            Packer { top, xattrs, first: BTreeMap::new(), broken: Vec::new(), missing: Vec::new() };
        let end = packer.all(&members, BufWriter::with_capacity(ARCHIVE_WRITE_BUFFER, writer));
        (packer, end)
    });
    let from = Archive::reader(BufReader::new(reader)).into();
    let extracted = target.extract(options, from, collector.clone()).await;
    let (packer, _) = match packing.await {
        Ok(packed) => packed,
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(e) => return Err(put::FatalError::Reader(e.to_string())),
    };
    let extracted = extracted?;
    for (path, why) in packer.missing.iter().chain(&packer.broken) {
        report.failures += 1;
        collector.progress.failed(path, why);
    }
    let broken: BTreeSet<&Vec<u8>> = packer.broken.iter().map(|(path, _)| path).collect();
    account(&extracted, collector, target, &broken, report).await;
    Ok(())
}

/// Counts and reports what was sent, and removes incomplete files.
async fn account(
    extracted: &put::Report,
    collector: &SentCollector,
    target: &Target<'_>,
    broken: &BTreeSet<&Vec<u8>>,
    report: &mut SyncReport,
) {
    collector.report(extracted, broken, report);
    let spoilt = broken.iter().map(|path| join(&target.path, path));
    for (outcome, path) in target.nfs.remove(spoilt).await.into_iter().zip(broken) {
        if !matches!(outcome, Outcome::Committed(())) {
            collector.progress.failed(path, "what was sent of it could not be removed");
        }
    }
}

async fn set_xattrs(
    plan: &Plan,
    target: &Target<'_>,
    progress: &dyn SyncProgress,
    error_text: &impl Fn(&ItemError) -> String,
    report: &mut SyncReport,
) {
    let only: BTreeSet<&Vec<u8>> = plan.xattrs_only().collect();
    let changes = plan
        .xattrs
        .iter()
        .map(|XattrChange { path, set, remove }| (join(&target.path, path), set.clone(), remove.clone()));
    let changes: Vec<_> = changes.collect();
    for (change, outcome) in plan.xattrs.iter().zip(target.nfs.set_xattrs(changes).await) {
        match outcome.into_result() {
            Ok(()) if only.contains(&change.path) => {
                report.set += 1;
                progress.set(&change.path);
            }
            Ok(()) => {}
            Err(e) => {
                report.failures += 1;
                progress.failed(
                    &change.path,
                    &format!("its extended attributes are not set: {}", error_text(&e)),
                );
            }
        }
    }
}

async fn set(
    source: &Tree,
    plan: &Plan,
    target: &Target<'_>,
    progress: &dyn SyncProgress,
    error_text: &impl Fn(&ItemError) -> String,
    report: &mut SyncReport,
) {
    let attrs = plan.set.iter().filter_map(|path| {
        let meta = &source.nodes.get(path)?.meta;
        let owner = |owner: &Owner| target.owners.then(|| owner.wire());
        let attrs = AttrValues {
            mode: (!meta.is_link()).then_some(meta.mode),
            owner: owner(&meta.owner),
            owner_group: owner(&meta.group),
            time_modify_set: Some(SetTime::ClientTime(meta.modified)),
            ..AttrValues::default()
        };
        Some((join(&target.path, path), attrs))
    });
    let attrs: Vec<_> = attrs.collect();
    for (path, outcome) in plan.set.iter().zip(target.nfs.setattrs(attrs).await) {
        match outcome.into_result() {
            Ok(()) => {
                report.set += 1;
                progress.set(path);
            }
            Err(e) => {
                report.failures += 1;
                progress.failed(path, &error_text(&e));
            }
        }
    }
}

/// Collects the durable objects. They are reported later, because a file that broke off is durable too, but no success.
pub(super) struct SentCollector {
    progress: Arc<dyn SyncProgress>,
    /// Objects that are not reported ([`Plan::touched`]).
    touched: BTreeSet<Vec<u8>>,
    sent: Mutex<Vec<Vec<u8>>>,
    /// Objects that could not be read to their end.
    unread: Mutex<Vec<Vec<u8>>>,
}

impl SentCollector {
    pub(super) fn new(progress: Arc<dyn SyncProgress>, touched: BTreeSet<Vec<u8>>) -> SentCollector {
        SentCollector { progress, touched, sent: Mutex::default(), unread: Mutex::default() }
    }

    /// Counts and reports what was sent, except the incomplete files in `broken`.
    pub(super) fn report(&self, sent: &put::Report, broken: &BTreeSet<&Vec<u8>>, report: &mut SyncReport) {
        for path in self.sent.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if !broken.contains(path) {
                report.sent += 1;
                self.progress.sent(path);
            }
        }
        report.bytes += sent.bytes;
        report.failures += sent.failures;
        if let Some(why) = &sent.stopped {
            report.failures += 1;
            self.progress.failed(b"", why);
        }
    }
}

/// Turns a member's name into a path of the tree.
fn of_member(name: &[u8]) -> Vec<u8> {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    name.strip_suffix(b"/").unwrap_or(name).to_vec()
}

impl Progress for SentCollector {
    fn committed(&self, members: u64, _: u64) {
        self.progress.arrived(members);
    }

    fn stable(&self, path: &[u8]) {
        let path = of_member(path);
        if !self.touched.contains(&path) {
            self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(path);
        }
    }

    fn failed(&self, path: &[u8], why: &put::MemberError) {
        let path = of_member(path);
        self.progress.unsent(&path, why);
        if why.cause == Cause::Unread {
            self.unread.lock().unwrap_or_else(PoisonError::into_inner).push(path);
        }
    }

    fn warning(&self, text: &str) {
        self.progress.warning(text);
    }
}

/// Writes the archive that is sent.
struct Packer {
    top: PathBuf,
    xattrs: bool,
    /// For files with several names: the first name in the tree, and the name in the archive.
    first: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Files that were sent incomplete, and why.
    broken: Vec<(Vec<u8>, String)>,
    /// Objects or attributes that were not sent, and why.
    missing: Vec<(Vec<u8>, String)>,
}

impl Packer {
    fn all(&mut self, members: &[(Vec<u8>, Node)], out: impl io::Write) -> io::Result<()> {
        let mut archive = ArchiveWriter::new(Compressor::new(out, Compression::None)?);
        for (path, node) in members {
            self.one(&mut archive, path, node)?;
        }
        archive.finish().map(drop)
    }

    fn one<W: io::Write>(
        &mut self,
        archive: &mut ArchiveWriter<W>,
        path: &[u8],
        node: &Node,
    ) -> io::Result<()> {
        let Some(mut member) = member(path, node) else { return Ok(()) };
        let name = node.first.as_ref().and_then(|first| self.first.get(first));
        if let Some(name) = name {
            member.kind = Kind::HardLink;
            member.link = [b"./", &name[..]].concat();
            (member.size, member.stored) = (0, 0);
        }
        if member.kind == Kind::File {
            let opened = open_same(&self.top, path, node);
            let file = match opened {
                Ok(file) => file,
                Err(why) => {
                    self.missing.push((path.to_vec(), why));
                    return Ok(());
                }
            };
            if self.xattrs {
                member.xattrs = self.read_xattrs(path, crate::local::xattrs(&file));
            }
            let mut data = Padded { file, error: None, short: false };
            archive.member(&member, &mut data)?;
            let after = data.file.metadata();
            let why = match (data.error, after) {
                (Some(e), _) | (None, Err(e)) => Some(e.to_string()),
                _ if data.short => Some("it became shorter while it was read".to_owned()),
                (None, Ok(now)) if !is_as_listed(&now, node) => {
                    Some("it changed while it was read".to_owned())
                }
                _ => None,
            };
            if let Some(why) = why {
                self.broken.push((path.to_vec(), why));
                return Ok(());
            }
        } else {
            if self.xattrs && member.kind == Kind::Dir {
                let dir = open(&self.top, path);
                member.xattrs = self.read_xattrs(path, dir.and_then(|dir| crate::local::xattrs(&dir)));
            }
            archive.member(&member, io::empty())?;
        }
        if let (Some(first), true) = (&node.first, member.kind != Kind::HardLink) {
            self.first.insert(first.clone(), path.to_vec());
        }
        Ok(())
    }
}

impl Packer {
    /// User extended attributes under the names that archives use.
    fn read_xattrs(&mut self, path: &[u8], read: io::Result<Vec<Xattr>>) -> Vec<(Vec<u8>, Bytes)> {
        match read {
            Ok(xattrs) => crate::copy::named(xattrs),
            Err(e) => {
                let why = format!("its extended attributes cannot be read: {e}");
                self.missing.push((path.to_vec(), why));
                Vec::new()
            }
        }
    }
}

/// Opens the file, but only if it is still the one that was listed.
fn open_same(top: &Path, path: &[u8], node: &Node) -> Result<File, String> {
    let file = open(top, path).map_err(|e| e.to_string())?;
    let now = file.metadata().map_err(|e| e.to_string())?;
    match is_as_listed(&now, node) {
        true => Ok(file),
        false => Err("it has changed since it was listed".to_owned()),
    }
}

fn is_as_listed(now: &std::fs::Metadata, node: &Node) -> bool {
    let meta = &node.meta;
    now.is_file()
        && now.len() == meta.size
        && now.ino() == meta.fileid
        && (now.mtime(), now.mtime_nsec()) == (meta.modified.seconds, meta.modified.nseconds.into())
}

/// A file's data, with zeroes for what cannot be read. An archive cannot take back a member once its header is written.
struct Padded {
    file: File,
    error: Option<io::Error>,
    short: bool,
}

impl Read for Padded {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.error.is_none() && !self.short {
            match self.file.read(buf) {
                Ok(0) => self.short = !buf.is_empty(),
                Ok(n) => return Ok(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return Err(e),
                Err(e) => self.error = Some(e),
            }
        }
        buf.fill(0);
        Ok(buf.len())
    }
}

/// The object as an archive member. `None`: an archive cannot hold it.
fn member(path: &[u8], node: &Node) -> Option<Member> {
    let meta = &node.meta;
    let kind = Kind::of(meta.kind?).filter(|kind| *kind != Kind::Socket)?;
    let id = |owner: &Owner| match owner {
        Owner::Id(id) => *id,
        Owner::Name(_) => crate::fs::NOBODY,
    };
    let slash: &[u8] = if kind == Kind::Dir && !path.is_empty() { b"/" } else { b"" };
    Some(Member {
        path: [b"./", path, slash].concat(),
        kind,
        mode: meta.mode,
        uid: id(&meta.owner),
        gid: id(&meta.group),
        user: Vec::new(),
        group: Vec::new(),
        mtime: Time { seconds: meta.modified.seconds, nanos: meta.modified.nseconds },
        atime: None,
        link: if kind == Kind::Symlink { node.text.to_vec() } else { Vec::new() },
        device: if matches!(kind, Kind::Char | Kind::Block) { meta.rdev } else { (0, 0) },
        size: meta.size_of_file(),
        stored: meta.size_of_file(),
        sparse: None,
        xattrs: Vec::<(Vec<u8>, Bytes)>::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::ArchiveReader;
    use crate::archive::Filter;

    #[test]
    fn a_file_that_is_not_as_it_was_listed_is_not_sent_and_one_that_ends_too_soon_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["same", "longer", "other", "gone"] {
            std::fs::write(at(name), b"12345").unwrap();
        }
        let tree = Tree::local(dir.path(), &Filter::default(), &(Arc::new(|_| ()) as _));
        std::fs::write(at("longer"), b"123456").unwrap();
        std::fs::rename(at("other"), at("kept")).unwrap();
        std::fs::write(at("other"), b"12345").unwrap();
        std::fs::remove_file(at("gone")).unwrap();
        let members: Vec<_> = tree.nodes.iter().map(|(path, node)| (path.clone(), node.clone())).collect();
        let mut packer = Packer {
            top: dir.path().to_owned(),
            xattrs: false,
            first: BTreeMap::new(),
            broken: Vec::new(),
            missing: Vec::new(),
        };
        let mut bytes = Vec::new();
        packer.all(&members, &mut bytes).unwrap();
        let missing: Vec<_> = packer.missing.iter().map(|(path, _)| &path[..]).collect();
        assert_eq!((missing, packer.broken), (vec![&b"gone"[..], b"longer", b"other"], Vec::new()));
        let mut reader = ArchiveReader::new(&bytes[..]);
        let mut sent = Vec::new();
        while let Some(member) = reader.next_member().unwrap() {
            sent.push(member.path);
        }
        assert_eq!(sent, [&b"./"[..], b"./same"]);
        // One that becomes shorter under the reader's hands.
        let mut data = Padded { file: File::open(at("same")).unwrap(), error: None, short: false };
        let mut read = vec![1; 8];
        data.read_exact(&mut read).unwrap();
        assert_eq!((&read[..], data.short), (&b"12345\0\0\0"[..], true));
    }
}
