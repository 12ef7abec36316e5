//! Trees of a server as members: walked and read ahead by tasks, given in their order.
//!
//! Small files are read many in one COMPOUND, by the handles that the walk gave, and several such calls are under way; a
//! large one is read in ranges. What is held of them is bounded by [`COPIED_AHEAD_BYTES`] and a large file's window; of the
//! tree, what was listed ahead. Holes are read as zeroes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use landfast_nfs::v4::{FileHandle, NfsTime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{member, named, unknown};
use crate::archive::{ArchiveError, Kind, Member};
use crate::fs::OwnerNames;
use crate::fs::server_copy::{CopyMethod, Original, ServerCopies};
use crate::fs::untaken::{Given, Untaken};
use crate::fs::{
    Fetched, FirstPage, ItemError, Meta, Nfs, Object, Outcome, Start, Step, WalkOptions, Wanted, Xattr, join,
};
use crate::limits::{
    COPIED_AHEAD_BYTES, COPIED_CALLS_MAX, COPIED_TOGETHER, COPIED_TOGETHER_BYTES, PIECE_BYTES,
    PIECES_PER_COMMIT, WALKED_AHEAD_MAX, WHOLE_FILE_MAX,
};
use crate::local::Links;
use crate::put::{Cause, DataError, MemberError, Members, SourceItem};
use crate::resume::{EarlierResult, Resume};

/// A tree or a single file to copy.
#[derive(Debug, Clone)]
pub struct RemoteStart {
    pub fh: FileHandle,
    pub meta: Meta,
    /// The first page of the listing, if it is known.
    pub first_page: Option<FirstPage>,
    /// Its path below the destination, with `/` between names. Empty: its contents go in the destination itself.
    pub name: Vec<u8>,
}

impl RemoteStart {
    pub fn of(object: Object, name: Vec<u8>) -> RemoteStart {
        RemoteStart { meta: Meta::of(&object.attrs), fh: object.fh, first_page: object.first_page, name }
    }
}

/// An object of a tree that was listed before.
#[derive(Debug, Clone)]
pub struct RemoteObject {
    /// Its path below the destination.
    pub name: Vec<u8>,
    pub meta: Meta,
    pub fh: Option<FileHandle>,
    /// The target of a symbolic link.
    pub text: Option<Bytes>,
}

#[derive(Debug, Clone, Default)]
pub struct RemoteOptions {
    /// Copy directories of other filesystems, but not what is in them.
    pub one_file_system: bool,
    /// Copy several names of one file as names of one file.
    pub links: bool,
    /// The destination is on the same server, which copies the files itself.
    pub copies: Option<Arc<ServerCopies>>,
    /// Copy extended attributes where the server has them.
    pub xattrs: bool,
    /// Report a file as failed if it differs from its listing after it was read.
    pub exact: bool,
    /// When it is set, no further members are given.
    pub stop: Arc<AtomicBool>,
    /// What an earlier run did is not read again.
    pub resume: Option<Arc<Resume>>,
}

pub struct RemoteTrees {
    given: mpsc::Receiver<Ready>,
    now: CurrentData,
}

/// The data of the last member.
enum CurrentData {
    None,
    Whole(Bytes),
    /// With the rest of the last piece, and how many bytes of the pieces to skip.
    Pieces(mpsc::Receiver<Result<Bytes, String>>, Bytes, u64),
}

/// A member with its data, or with the channel of its pieces.
enum Ready {
    Trouble(Vec<u8>, MemberError),
    Done(Vec<u8>),
    Whole(Box<Member>, Bytes),
    Copy(Box<(Member, Original)>),
    /// The pieces follow this many bytes, which an earlier run has copied.
    Pieces(Box<Member>, u64, mpsc::Receiver<Result<Bytes, String>>),
}

enum Walked {
    Object { path: Vec<u8>, meta: Meta, fh: Option<FileHandle>, text: Option<Bytes> },
    Unlisted(Vec<u8>, ItemError),
}

impl RemoteTrees {
    /// Starts are of one server and are given in this order. Must be called on a Tokio runtime.
    ///
    /// `who`: numbers for owners that the server gives as names.
    pub fn new(
        nfs: &Nfs,
        starts: Vec<RemoteStart>,
        options: RemoteOptions,
        who: Box<dyn OwnerNames>,
    ) -> RemoteTrees {
        // The walk waits while it holds too much.
        let (seen, walked) = mpsc::unbounded_channel();
        let stop = options.stop.clone();
        tokio::spawn(walk(nfs.clone(), starts, options.one_file_system, stop, seen));
        RemoteTrees::seen(nfs, walked, options, who)
    }

    /// These objects in their order: a directory before its contents. Must be called on a Tokio runtime.
    pub fn of(
        nfs: &Nfs,
        objects: impl IntoIterator<Item = RemoteObject>,
        options: RemoteOptions,
        who: Box<dyn OwnerNames>,
    ) -> RemoteTrees {
        let (seen, walked) = mpsc::unbounded_channel();
        for RemoteObject { name: path, meta, fh, text } in objects {
            // The receiver is in this function.
            let _ = seen.send((Walked::Object { path, meta, fh, text }, None));
        }
        RemoteTrees::seen(nfs, walked, options, who)
    }

    fn seen(
        nfs: &Nfs,
        walked: mpsc::UnboundedReceiver<Queued>,
        options: RemoteOptions,
        who: Box<dyn OwnerNames>,
    ) -> RemoteTrees {
        let (tell, given) = mpsc::channel(COPIED_TOGETHER);
        let mut reader = Reader {
            nfs: nfs.clone(),
            tell,
            under_way: VecDeque::new(),
            ahead: 0,
            members: Vec::new(),
            files: Vec::new(),
            bytes: 0,
            xattrs: options.xattrs,
            exact: options.exact,
            resume: options.resume.clone(),
        };
        // A receiver that is gone needs no more.
        tokio::spawn(async move { reader.run(options, walked, who).await.is_ok() });
        RemoteTrees { given, now: CurrentData::None }
    }
}

impl Members for RemoteTrees {
    fn next_member(&mut self) -> Result<Option<SourceItem>, ArchiveError> {
        self.now = CurrentData::None;
        Ok(self.given.blocking_recv().map(|ready| match ready {
            Ready::Trouble(path, why) => SourceItem::Unreadable(path, why),
            Ready::Done(path) => SourceItem::DoneEarlier(path),
            Ready::Whole(member, data) => {
                self.now = CurrentData::Whole(data);
                SourceItem::Member(*member)
            }
            Ready::Copy(copy) => SourceItem::Copy(copy.0, copy.1),
            Ready::Pieces(member, from, pieces) => {
                self.now = CurrentData::Pieces(pieces, Bytes::new(), from);
                SourceItem::Member(*member)
            }
        }))
    }

    fn data(&mut self, max: usize) -> Result<Bytes, DataError> {
        match &mut self.now {
            CurrentData::None => Ok(Bytes::new()),
            CurrentData::Whole(data) => Ok(data.split_to(max.min(data.len()))),
            CurrentData::Pieces(_, _, 1..) => {
                Err(DataError::Member("what was copied before is wanted again".into()))
            }
            CurrentData::Pieces(pieces, rest, 0) => {
                if rest.is_empty() {
                    match pieces.blocking_recv() {
                        Some(piece) => *rest = piece.map_err(DataError::Member)?,
                        None => return Ok(Bytes::new()),
                    }
                }
                Ok(rest.split_to(max.min(rest.len())))
            }
        }
    }

    /// Only what was not read is skipped.
    fn skip(&mut self, bytes: u64) -> Result<(), DataError> {
        match &mut self.now {
            CurrentData::Pieces(_, _, from) if *from == bytes => *from = 0,
            _ if bytes == 0 => {}
            _ => return Err(DataError::Member("other bytes were copied before".into())),
        }
        Ok(())
    }
}

/// An object that waits for its turn, and its share of [`WALKED_AHEAD_MAX`].
type Queued = (Walked, Option<Given>);

/// Sends the objects of the trees, depth first.
async fn walk(
    nfs: Nfs,
    starts: Vec<RemoteStart>,
    one_file_system: bool,
    stop: Arc<AtomicBool>,
    seen: mpsc::UnboundedSender<Queued>,
) {
    let untaken = Untaken::new(WALKED_AHEAD_MAX);
    // All that has come is sent; then the walk waits.
    let send = |what: Walked| seen.send((what, Some(untaken.give(1)))).map_err(drop);
    for RemoteStart { fh, meta, first_page, name } in starts {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let (is_dir, device) = (meta.is_dir(), meta.fsid);
        let text = match meta.is_link() {
            true => match nfs.readlinks_of([fh.clone()]).await.pop() {
                Some(Outcome::Committed(text)) => Some(text),
                _ => None,
            },
            false => None,
        };
        let object = Walked::Object { path: name.clone(), meta, fh: Some(fh.clone()), text };
        if send(object).is_err() {
            return;
        }
        if !is_dir {
            continue;
        }
        // The contents of a directory of another filesystem.
        let mut elsewhere: Option<Vec<u8>> = None;
        let options = WalkOptions { texts: true, parts: true, ..WalkOptions::default() };
        nfs.walk_within(&untaken, [Start { path: name, fh, first_page }], options, |step| {
            let sent = match step {
                Step::Entry { dir, entry, .. } => {
                    let path = join(&dir, &entry.name);
                    if elsewhere.as_ref().is_some_and(|top| below(top, &path)) {
                        return;
                    }
                    elsewhere = None;
                    if one_file_system && entry.meta.is_dir() && entry.meta.fsid != device {
                        elsewhere = Some(path.clone());
                    }
                    send(Walked::Object { path, meta: entry.meta, fh: entry.fh, text: entry.text })
                }
                Step::Unlisted { path, outcome } => match outcome.into_result() {
                    Err(e) => send(Walked::Unlisted(path, e)),
                    Ok(_) => Ok(()),
                },
                Step::Start(_) | Step::Left => Ok(()),
            };
            // The receiver is gone: the other listings are dropped.
            if sent.is_err() {
                stop.store(true, Ordering::Release);
            }
        })
        .await;
    }
}

fn below(dir: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.first() == Some(&b'/'))
}

enum Data {
    None,
    /// The index in what is read.
    Read(usize),
    Copy(Original),
    /// Only extended attributes are read: the server copies the data, or it is no file.
    Xattrs(usize, Option<Original>),
}

/// Data and extended attributes, and the size and time of modification after them.
type FileContents = (Bytes, Vec<Xattr>, Option<(u64, NfsTime)>);

/// A call in flight: what it reads, in order.
struct Batch {
    bytes: usize,
    members: Vec<(Member, Data)>,
    reading: JoinHandle<Vec<Outcome<FileContents>>>,
}

/// Reads files as they arrive and gives all members in their order.
struct Reader {
    nfs: Nfs,
    tell: mpsc::Sender<Ready>,
    under_way: VecDeque<Batch>,
    ahead: usize,
    /// Members of the next call.
    members: Vec<(Member, Data)>,
    files: Vec<Wanted>,
    bytes: usize,
    xattrs: bool,
    exact: bool,
    resume: Option<Arc<Resume>>,
}

/// The receiver is gone.
struct Abandoned;

impl Reader {
    async fn run(
        &mut self,
        options: RemoteOptions,
        mut walked: mpsc::UnboundedReceiver<Queued>,
        who: Box<dyn OwnerNames>,
    ) -> Result<(), Abandoned> {
        let mut links = Links::default();
        if let Some(resume) = &options.resume {
            resume.ready().await;
        }
        loop {
            let seen = match walked.try_recv() {
                Ok((seen, _)) => seen,
                // What is collected is sent before more is waited for.
                Err(_) if !self.members.is_empty() || !self.under_way.is_empty() => {
                    self.start();
                    self.finish().await?;
                    continue;
                }
                Err(_) => match walked.recv().await {
                    Some((seen, _)) => seen,
                    None => return Ok(()),
                },
            };
            if options.stop.load(Ordering::Acquire) {
                return self.drain().await;
            }
            match describe(seen, &options, &mut links, &*who) {
                Err((path, why)) => {
                    self.drain().await?;
                    self.tell.send(Ready::Trouble(path, why)).await.map_err(|_| Abandoned)?;
                }
                Ok((member, _)) if let Some(ready) = known(&member, &options) => {
                    self.drain().await?;
                    self.tell.send(ready).await.map_err(|_| Abandoned)?;
                }
                Ok((member, Some((fh, _)))) if member.kind == Kind::Dir => {
                    let data = self.wants(fh).map_or(Data::None, |n| Data::Xattrs(n, None));
                    self.members.push((member, data));
                }
                Ok((member, None)) => self.members.push((member, Data::None)),
                Ok((member, Some((fh, meta)))) => match self.original(&options, fh, &meta) {
                    Ok(original) => {
                        let data = match self.wants(original.fh.clone()) {
                            Some(n) => Data::Xattrs(n, Some(original)),
                            None => Data::Copy(original),
                        };
                        self.members.push((member, data));
                    }
                    Err(fh) if meta.size > WHOLE_FILE_MAX => {
                        self.drain().await?;
                        self.large(member, fh, meta.size).await?;
                    }
                    Err(fh) => {
                        self.members.push((member, Data::Read(self.files.len())));
                        self.files.push(Wanted { fh, bytes: meta.size, xattrs: self.xattrs });
                        self.bytes += meta.size as usize;
                    }
                },
            }
            if self.members.len() >= COPIED_TOGETHER || self.bytes >= COPIED_TOGETHER_BYTES {
                self.start();
                while self.ahead > COPIED_AHEAD_BYTES || self.under_way.len() > COPIED_CALLS_MAX {
                    self.finish().await?;
                }
            }
        }
    }

    /// Requests the extended attributes of an object, if they are wanted, and returns their index in what is read.
    fn wants(&mut self, fh: FileHandle) -> Option<usize> {
        if !self.xattrs {
            return None;
        }
        self.files.push(Wanted { fh, bytes: 0, xattrs: true });
        Some(self.files.len() - 1)
    }

    /// A file that the destination's server copies; otherwise returns its handle.
    fn original(&self, options: &RemoteOptions, fh: FileHandle, meta: &Meta) -> Result<Original, FileHandle> {
        let Some(copies) = options.copies.clone() else { return Err(fh) };
        if copies.way(meta.fsid, meta.size) == CopyMethod::Read {
            return Err(fh);
        }
        let Meta { size, fsid, fileid, .. } = *meta;
        Ok(Original { fh, size, fsid, fileid, nfs: self.nfs.clone(), copies })
    }

    /// Sends what is collected.
    fn start(&mut self) {
        if self.members.is_empty() {
            return;
        }
        let (nfs, files) = (self.nfs.clone(), std::mem::take(&mut self.files));
        let bytes = std::mem::take(&mut self.bytes);
        self.ahead += bytes;
        let (whole, exact) = (self.xattrs || self.exact, self.exact);
        let reading = tokio::spawn(async move {
            if whole {
                let found = |f: Fetched| (f.data, f.xattrs, exact.then_some((f.meta.size, f.meta.modified)));
                return nfs.fetch(files).await.into_iter().map(|o| o.map(found)).collect();
            }
            let all = nfs.read_files_of(files.into_iter().map(|wanted| (wanted.fh, wanted.bytes))).await;
            all.into_iter().map(|o| o.map(|data| (data, Vec::new(), None))).collect()
        });
        self.under_way.push_back(Batch { bytes, members: std::mem::take(&mut self.members), reading });
    }

    /// Gives what the oldest call has read.
    async fn finish(&mut self) -> Result<(), Abandoned> {
        let Some(batch) = self.under_way.pop_front() else { return Ok(()) };
        self.ahead -= batch.bytes;
        let read = batch.reading.await.unwrap_or_default();
        let mut read: Vec<_> = read.into_iter().map(|o| Some(o.into_result())).collect();
        for (mut member, data) in batch.members {
            let mut take = |n: usize| match read.get_mut(n).and_then(Option::take) {
                Some(read) => read,
                None => Err(ItemError::NotExecuted("its task has ended".into())),
            };
            let nothing = || Ok(FileContents::default());
            let (data, original) = match data {
                Data::None => (nothing(), None),
                Data::Read(n) => (take(n), None),
                Data::Copy(original) => (nothing(), Some(original)),
                Data::Xattrs(n, Some(original)) => (take(n), Some(original)),
                // A directory and its contents are given all the same.
                Data::Xattrs(n, None) => match take(n) {
                    Err(e) => {
                        let text = format!("its extended attributes cannot be read: {e}");
                        let why = MemberError::new(Cause::UnreadXattrs, text);
                        let why = MemberError { kind: Some(Kind::Dir), status: e.status(), ..why };
                        let unread = Ready::Trouble(member.path.clone(), why);
                        self.tell.send(unread).await.map_err(|_| Abandoned)?;
                        (nothing(), None)
                    }
                    read => (read, None),
                },
            };
            let ready = match (data, original) {
                (Ok((_, xattrs, _)), Some(original)) => {
                    member.xattrs = named(xattrs);
                    Ready::Copy(Box::new((member, original)))
                }
                (Ok((_, _, Some(now))), None) if member.kind == Kind::File && now != listed(&member) => {
                    Ready::Trouble(member.path, MemberError::new(Cause::Unread, CHANGED))
                }
                (Ok((data, xattrs, _)), None) => {
                    (member.size, member.stored) = (data.len() as u64, data.len() as u64);
                    member.xattrs = named(xattrs);
                    Ready::Whole(Box::new(member), data)
                }
                (Err(e), _) => Ready::Trouble(member.path, why(Cause::Unopened, &e)),
            };
            self.tell.send(ready).await.map_err(|_| Abandoned)?;
        }
        Ok(())
    }

    async fn drain(&mut self) -> Result<(), Abandoned> {
        self.start();
        while !self.under_way.is_empty() {
            self.finish().await?;
        }
        Ok(())
    }

    /// How a file differs from its listing, if it does.
    async fn other_than(&self, fh: &FileHandle, before: (u64, NfsTime)) -> Option<String> {
        let wanted = Wanted { fh: fh.clone(), bytes: 0, xattrs: false };
        match self.nfs.fetch([wanted]).await.pop().map(Outcome::into_result) {
            Some(Ok(now)) if (now.meta.size, now.meta.modified) == before => None,
            Some(Err(e)) => Some(e.to_string()),
            _ => Some(CHANGED.to_owned()),
        }
    }

    /// Reads a large file in ranges, several at a time.
    async fn large(&mut self, mut member: Member, fh: FileHandle, size: u64) -> Result<(), Abandoned> {
        if self.xattrs {
            let wanted = Wanted { fh: fh.clone(), bytes: 0, xattrs: true };
            let fetched = self.nfs.fetch([wanted]).await.pop().map(Outcome::into_result);
            match fetched {
                Some(Err(e)) => {
                    // As with a small file.
                    let unread = Ready::Trouble(member.path, why(Cause::Unopened, &e));
                    return self.tell.send(unread).await.map_err(|_| Abandoned);
                }
                fetched => {
                    member.xattrs = named(fetched.and_then(Result::ok).map(|f| f.xattrs).unwrap_or_default())
                }
            }
        }
        let before = listed(&member);
        let (send, pieces) = mpsc::channel(1);
        let mut at = self.resume.as_ref().map_or(0, |resume| resume.object_from(&member));
        self.tell.send(Ready::Pieces(Box::new(member), at, pieces)).await.map_err(|_| Abandoned)?;
        while at < size {
            let end = size.min(at + (PIECE_BYTES * PIECES_PER_COMMIT) as u64);
            let ranges: Vec<_> = (at..end)
                .step_by(PIECE_BYTES)
                .map(|from| (fh.clone(), from, (end - from).min(PIECE_BYTES as u64)))
                .collect();
            let lengths: Vec<u64> = ranges.iter().map(|r| r.2).collect();
            let read = self.nfs.read_of(ranges).await;
            // Checked before the last piece is given.
            let changed = match self.exact && end == size {
                true => self.other_than(&fh, before).await,
                false => None,
            };
            for (outcome, len) in read.into_iter().zip(lengths) {
                let piece = match (outcome.into_result(), &changed) {
                    (Ok(_), Some(why)) => Err(why.clone()),
                    (Ok(data), None) if data.len() as u64 == len => Ok(data),
                    (Ok(_), None) => Err("it became shorter while it was read".to_owned()),
                    (Err(e), _) => Err(e.to_string()),
                };
                let failed = piece.is_err();
                // The receiver is gone: it has given up the file.
                if send.send(piece).await.is_err() || failed {
                    return Ok(());
                }
            }
            at = end;
        }
        Ok(())
    }
}

/// The message for a file that is not the one that was listed.
const CHANGED: &str = "it changed while it was read";

fn listed(member: &Member) -> (u64, NfsTime) {
    (member.size, NfsTime { seconds: member.mtime.seconds, nseconds: member.mtime.nanos })
}

/// Describes a member, and names the file whose data is wanted.
#[allow(clippy::type_complexity)] // things of one object
fn describe(
    seen: Walked,
    options: &RemoteOptions,
    links: &mut Links,
    who: &dyn OwnerNames,
) -> Result<(Member, Option<(FileHandle, Meta)>), (Vec<u8>, MemberError)> {
    let (path, meta, fh, text) = match seen {
        Walked::Unlisted(path, e) => return Err((path, why(Cause::Unlisted, &e))),
        Walked::Object { path, meta, fh, text } => (path, meta, fh, text),
    };
    let Some(kind) = meta.kind.and_then(Kind::of) else {
        return Err((path, MemberError::new(Cause::Unseen, "the server does not say what it is")));
    };
    if kind == Kind::Symlink && text.is_none() {
        return Err((path, MemberError::new(Cause::Unseen, "the symbolic link cannot be read")));
    }
    let mut member = member(&path, kind, &meta, text.map(|t| t.to_vec()).unwrap_or_default(), who);
    if options.links
        && let Some(first) = links.earlier(&meta, &path).map_err(|e| (path.clone(), unknown(&e)))?
    {
        (member.kind, member.link) = (Kind::HardLink, first);
        return Ok((member, None));
    }
    if kind == Kind::Dir {
        return Ok((member, fh.map(|fh| (fh, meta))));
    }
    if kind != Kind::File {
        return Ok((member, None));
    }
    let Some(fh) = fh else {
        return Err((path, MemberError::new(Cause::Unopened, "the server gave no filehandle")));
    };
    (member.size, member.stored) = (meta.size, meta.size);
    Ok((member, Some((fh, meta))))
}

/// What an earlier run did with it; `None`: it must be copied.
fn known(member: &Member, options: &RemoteOptions) -> Option<Ready> {
    let resume = options.resume.as_ref().filter(|_| member.kind != Kind::Dir)?;
    match resume.object(member) {
        EarlierResult::Done => Some(Ready::Done(member.path.clone())),
        EarlierResult::JustMade => {
            let why = MemberError::new(Cause::JustMade, "this run has just made it");
            Some(Ready::Trouble(member.path.clone(), why))
        }
        EarlierResult::NotDone | EarlierResult::DoneTooSoon(_) => None,
    }
}

fn why(cause: Cause, e: &ItemError) -> MemberError {
    MemberError { status: e.status(), ..MemberError::new(cause, e.to_string()) }
}

#[cfg(test)]
mod tests {
    use landfast_nfs::v4::FileType;
    use landfast_nfs::v4::attr::AttrValues;

    use super::*;
    use crate::fs::{AsNamed, NOBODY};

    #[test]
    fn an_owner_that_nobody_here_knows_is_nobody_and_never_root() {
        let name = |name: &'static str| Some(Bytes::from_static(name.as_bytes()));
        let attrs = AttrValues {
            kind: Some(FileType::Reg),
            owner: name("ann@example.org"),
            owner_group: name("7"),
            ..AttrValues::default()
        };
        let seen = Walked::Object {
            path: b"f".to_vec(),
            meta: Meta::of(&attrs),
            fh: Some(FileHandle(Bytes::from_static(b"h"))),
            text: None,
        };
        let described = describe(seen, &RemoteOptions::default(), &mut Links::default(), &AsNamed);
        let (member, _) = described.unwrap_or_else(|(_, why)| panic!("{why}"));
        assert_eq!((member.uid, member.gid), (NOBODY, 7));
    }
}
