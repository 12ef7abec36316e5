//! Makes a tree on a server the same as a local tree or a tree on another server. It removes objects, sends what differs
//! through [`crate::put`], and sets attributes.
//!
//! - Nothing is reported as done before the server has said that it is durable.
//! - A failure is reported with its reason, and the rest goes on.
//! - A file that could not be read to its end is never equal to the source, whenever the run ends. A small one is not begun.
//!   A larger one lacks its last piece and its time until it is removed again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use landfast_nfs::v4::SetTime;
use landfast_nfs::v4::attr::AttrValues;
use serde::Serialize;
use tokio::sync::watch;

use super::contents::open;
use super::plan::{Plan, XattrChange};
use super::tree::{Node, Origin, Tree, last_name, parent_path};
use crate::archive::{ArchiveError, Kind, Member, Time};
use crate::copy::{RemoteObject, RemoteOptions, RemoteTrees, system_text};
use crate::fs::AsNamed;
use crate::fs::{ItemError, Meta, Nfs, Outcome, Owner, ToRemove, Xattr, join};
use crate::limits::WHOLE_FILE_MAX;
use crate::put::{
    self, Cause, DataError, Existing, MemberError, Members, Progress, PutOptions, Source, SourceItem, Xattrs,
};

/// The set-user-ID and set-group-ID bits.
const SET_ID: u32 = 0o6000;

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
    set((source, dest), plan, target, &*progress, &error_text, &mut report).await;
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
            send_local(source, top.clone(), plan, (target, options), &collector, report).await
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
    account(source, &extracted, collector, target, report).await;
    Ok(())
}

/// Sends local files.
async fn send_local(
    source: &Tree,
    top: PathBuf,
    plan: &Plan,
    (target, options): (&Target<'_>, PutOptions),
    collector: &Arc<SentCollector>,
    report: &mut SyncReport,
) -> Result<(), put::FatalError> {
    let objects = plan.send.iter().filter_map(|p| Some((p.clone(), source.nodes.get(p)?.clone())));
    let listed = Listed::new(top, objects, target.xattrs);
    let unread_xattrs = listed.unread_xattrs.clone();
    let from = Source::members(Box::new(listed));
    let extracted = target.extract(options, from, collector.clone()).await?;
    for (path, why) in lock(&unread_xattrs).iter() {
        report.failures += 1;
        collector.progress.failed(path, why);
    }
    account(source, &extracted, collector, target, report).await;
    Ok(())
}

/// Counts and reports what was sent, and removes incomplete files.
async fn account(
    source: &Tree,
    extracted: &put::Report,
    collector: &SentCollector,
    target: &Target<'_>,
    report: &mut SyncReport,
) {
    collector.report(extracted, report);
    // A file that fits in one piece is not begun before it has been read. So only larger ones can be incomplete.
    let large = |path: &&Vec<u8>| source.nodes.get(*path).is_some_and(|n| n.meta.size > WHOLE_FILE_MAX);
    let unread = lock(&collector.unread).clone();
    let broken: BTreeSet<&Vec<u8>> = unread.iter().filter(large).collect();
    let incomplete = broken.iter().map(|path| join(&target.path, path));
    for (outcome, path) in target.nfs.remove(incomplete).await.into_iter().zip(broken) {
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
    (source, dest): (&Tree, &Tree),
    plan: &Plan,
    target: &Target<'_>,
    progress: &dyn SyncProgress,
    error_text: &impl Fn(&ItemError) -> String,
    report: &mut SyncReport,
) {
    let attrs = plan.set.iter().filter_map(|path| {
        Some((
            join(&target.path, path),
            differing(&source.nodes.get(path)?.meta, &dest.nodes.get(path)?.meta, target.owners),
        ))
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

/// The attributes in which an object differs from the source, with the mode where a change of owner clears some of it.
fn differing(wanted: &Meta, there: &Meta, owners: bool) -> AttrValues {
    let owner = owners && wanted.owner != there.owner;
    let group = owners && wanted.group != there.group;
    let cleared = (owner || group) && wanted.mode & SET_ID != 0;
    let time = wanted.modified != there.modified;
    AttrValues {
        mode: (!wanted.is_link() && (cleared || wanted.mode != there.mode)).then_some(wanted.mode),
        owner: owner.then(|| wanted.owner.wire()),
        owner_group: group.then(|| wanted.group.wire()),
        time_modify_set: time.then_some(SetTime::ClientTime(wanted.modified)),
        ..AttrValues::default()
    }
}

/// Collects the durable objects, to report them at the end.
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

    /// Counts and reports what was sent.
    pub(super) fn report(&self, sent: &put::Report, report: &mut SyncReport) {
        for path in lock(&self.sent).iter() {
            report.sent += 1;
            self.progress.sent(path);
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
            lock(&self.sent).push(path);
        }
    }

    fn failed(&self, path: &[u8], why: &put::MemberError) {
        let path = of_member(path);
        self.progress.unsent(&path, why);
        if why.cause == Cause::Unread {
            lock(&self.unread).push(path);
        }
    }

    fn warning(&self, text: &str) {
        self.progress.warning(text);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Objects and errors by path.
type Unread = Vec<(Vec<u8>, String)>;

/// Local objects that were listed before, as members. A file that is not as it was listed is not given to its end.
struct Listed {
    top: PathBuf,
    xattrs: bool,
    objects: VecDeque<(Vec<u8>, Node)>,
    /// For files with several names: the first name in the tree, and the name of the member that has the data.
    first: BTreeMap<Vec<u8>, Vec<u8>>,
    reading: Option<Reading>,
    /// Objects that are sent without their extended attributes, and why.
    unread_xattrs: Arc<Mutex<Unread>>,
}

/// The file whose data is being read.
struct Reading {
    file: File,
    node: Node,
    /// Bytes that are still to be read.
    left: u64,
}

impl Listed {
    fn new(top: PathBuf, objects: impl IntoIterator<Item = (Vec<u8>, Node)>, xattrs: bool) -> Listed {
        let (objects, first) = (objects.into_iter().collect(), BTreeMap::new());
        Listed { top, xattrs, objects, first, reading: None, unread_xattrs: Arc::default() }
    }

    /// `None`: NFS cannot hold it.
    fn one(&mut self, path: &[u8], node: Node) -> Option<SourceItem> {
        let mut member = member(path, &node)?;
        if let Some(name) = node.first.as_ref().and_then(|first| self.first.get(first)) {
            member.kind = Kind::HardLink;
            member.link = [b"./", &name[..]].concat();
            (member.size, member.stored) = (0, 0);
        }
        match member.kind {
            Kind::File => {
                let file = match open_same(&self.top, path, &node) {
                    Ok(file) => file,
                    Err(why) => {
                        let why = MemberError::new(Cause::Unopened, why);
                        return Some(SourceItem::Unreadable(member.path, why));
                    }
                };
                if self.xattrs {
                    member.xattrs = self.read_xattrs(path, crate::local::xattrs(&file));
                }
                if let Some(first) = &node.first {
                    self.first.insert(first.clone(), path.to_vec());
                }
                self.reading = Some(Reading { file, left: member.stored, node });
            }
            Kind::Dir if self.xattrs => {
                let dir = open(&self.top, path);
                member.xattrs = self.read_xattrs(path, dir.and_then(|dir| crate::local::xattrs(&dir)));
            }
            _ => {}
        }
        Some(SourceItem::Member(member))
    }

    /// User extended attributes under the names that archives use.
    fn read_xattrs(&self, path: &[u8], read: io::Result<Vec<Xattr>>) -> Vec<(Vec<u8>, Bytes)> {
        match read {
            Ok(xattrs) => crate::copy::named(xattrs),
            Err(e) => {
                let why = format!("its extended attributes cannot be read: {}", system_text(&e));
                lock(&self.unread_xattrs).push((path.to_vec(), why));
                Vec::new()
            }
        }
    }
}

impl Members for Listed {
    fn next_member(&mut self) -> Result<Option<SourceItem>, ArchiveError> {
        self.reading = None;
        while let Some((path, node)) = self.objects.pop_front() {
            if let Some(item) = self.one(&path, node) {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    fn data(&mut self, max: usize) -> Result<Bytes, DataError> {
        let Some(reading) = &mut self.reading else { return Ok(Bytes::new()) };
        reading.read(max).map_err(|why| {
            // The next name of this file is tried by itself.
            if let Some(first) = &reading.node.first {
                self.first.remove(first);
            }
            DataError::Member(why)
        })
    }
}

impl Reading {
    /// The next bytes. The last ones only if the file is still as it was listed.
    fn read(&mut self, max: usize) -> Result<Bytes, String> {
        let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(max);
        let mut data = vec![0; n];
        self.file.read_exact(&mut data).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => "it became shorter while it was read".to_owned(),
            _ => system_text(&e),
        })?;
        self.left -= n as u64;
        if self.left == 0 && n > 0 {
            let now = self.file.metadata().map_err(|e| system_text(&e))?;
            if !is_as_listed(&now, &self.node) {
                return Err("it changed while it was read".to_owned());
            }
        }
        Ok(data.into())
    }
}

/// Opens the file, but only if it is still the one that was listed.
fn open_same(top: &Path, path: &[u8], node: &Node) -> Result<File, String> {
    let file = open(top, path).map_err(|e| system_text(&e))?;
    let now = file.metadata().map_err(|e| system_text(&e))?;
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

/// The object as a member. `None`: it is a socket, which is not sent.
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
    use crate::archive::Filter;

    fn listed(dir: &Path) -> Tree {
        Tree::local(dir, &Filter::default(), &(Arc::new(|_| ()) as _))
    }

    fn given(tree: &Tree, dir: &Path) -> Listed {
        let objects = tree.nodes.iter().map(|(path, node)| (path.clone(), node.clone()));
        Listed::new(dir.to_owned(), objects, false)
    }

    #[test]
    fn a_file_that_is_not_as_it_was_listed_is_not_given() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["same", "longer", "other", "gone"] {
            std::fs::write(at(name), b"12345").unwrap();
        }
        let tree = listed(dir.path());
        std::fs::write(at("longer"), b"123456").unwrap();
        std::fs::rename(at("other"), at("kept")).unwrap();
        std::fs::write(at("other"), b"12345").unwrap();
        std::fs::remove_file(at("gone")).unwrap();
        let mut members = given(&tree, dir.path());
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        while let Some(item) = members.next_member().unwrap() {
            match item {
                SourceItem::Member(member) => good.push((member.path, members.data(100).unwrap())),
                SourceItem::Unreadable(path, why) => bad.push((path, why.cause)),
                _ => unreachable!("nothing else is listed"),
            }
        }
        assert_eq!(good, [(b"./".to_vec(), Bytes::new()), (b"./same".to_vec(), Bytes::from("12345"))]);
        let names = ["./gone", "./longer", "./other"];
        assert_eq!(bad, names.map(|name| (name.as_bytes().to_vec(), Cause::Unopened)));
    }

    #[test]
    fn the_end_of_a_file_that_changes_while_it_is_read_is_not_given() {
        type Change = fn(&Path);
        let shorter: Change = |file| File::options().write(true).open(file).unwrap().set_len(5).unwrap();
        let touched: Change = |file| {
            let file = File::options().write(true).open(file).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        };
        let cases =
            [(shorter, "it became shorter while it was read"), (touched, "it changed while it was read")];
        for (change, said) in cases {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("a"), b"12345678").unwrap();
            std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
            let tree = listed(dir.path());
            let mut members = given(&tree, dir.path());
            assert!(matches!(members.next_member(), Ok(Some(SourceItem::Member(top))) if top.path == b"./"));
            assert!(matches!(members.next_member(), Ok(Some(SourceItem::Member(a))) if a.path == b"./a"));
            assert_eq!(members.data(4).unwrap(), "1234");
            change(&dir.path().join("a"));
            let end = members.data(4);
            assert!(matches!(&end, Err(DataError::Member(why)) if why == said), "{end:?}");
            // Its other name is no link to what was not sent.
            let next = members.next_member();
            assert!(matches!(&next, Ok(Some(SourceItem::Unreadable(b, _))) if b == b"./b"), "{next:?}");
        }
    }

    #[test]
    fn only_attributes_that_differ_are_set_and_the_mode_behind_an_owner() {
        let meta = |mode: u32, owner: u32| {
            let meta = Meta::of(&AttrValues { mode: Some(mode), ..AttrValues::default() });
            Meta { owner: Owner::Id(owner), group: Owner::Id(0), ..meta }
        };
        let set = |wanted: &Meta, there: &Meta| {
            let AttrValues { mode, owner, owner_group, time_modify_set, .. } = differing(wanted, there, true);
            (mode, owner.is_some(), owner_group.is_some(), time_modify_set.is_some())
        };
        assert_eq!(set(&meta(0o4755, 0), &meta(0o755, 0)), (Some(0o4755), false, false, false));
        assert_eq!(set(&meta(0o4755, 1), &meta(0o4755, 0)), (Some(0o4755), true, false, false));
        assert_eq!(set(&meta(0o755, 1), &meta(0o755, 0)), (None, true, false, false));
        let none = differing(&meta(0o4755, 1), &meta(0o4755, 0), false);
        assert_eq!(none, AttrValues::default());
    }
}
