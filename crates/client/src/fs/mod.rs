//! Files and directories by their paths, many in one call.
//!
//! [`Nfs`] is a server's tree as a client sees it. Its calls take vectors and give one [`Outcome`] an item; they resolve
//! whole paths within the COMPOUND that does the work, pack as many items into one as the server takes, and have as many
//! COMPOUNDs under way as there are slots. A vector is not a transaction: items are independent, and two items of one call
//! that depend on each other (a directory and what goes into it) may be executed in either order.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use landfast_client::fs::{NewFile, Nfs};
//!
//! let nfs = Nfs::connect(&"nfs://server/export/work".parse()?).await?;
//! nfs.mkdirs(["logs"], 0o755).await;
//! let files = (0..100).map(|n| NewFile::new(format!("logs/{n}"), format!("line {n}\n")));
//! for outcome in nfs.write_files(files).await {
//!     outcome.into_result()?; // on the server's stable storage
//! }
//! # Ok(()) }
//! ```
//!
//! | room | subject |
//! |---|---|
//! | `path`, `dirs` | paths as steps; directories that are known already (pure) |
//! | `item` | one item on its way: symbolic links, long paths (pure) |
//! | `action`; `attrs`, `names`, `list`, `data` | what is done at the end of the way (pure) |
//! | `fetch` | objects by their handles, with data and extended attributes (pure, and its calls) |
//! | `server_copy` | files copied by the server |
//! | `step`, `open_file` | one request at a time; a file that is open while it is written |
//! | `meta`, `tree` | attributes in little memory; what walks and removals of trees do next (pure) |
//! | `owners` | owners as archives have them (pure) |
//! | `order` | listings that come in any order, as a depth-first walk (pure) |
//! | `pack` | many segments in one COMPOUND (pure) |
//! | `queue`, `ahead` | what is sent next, and how far listings run ahead (pure) |
//! | `run`, `together`, `shared` | the loop around them, for each action; what all calls share |
//! | `xattrs` | extended attributes, set and removed |
//! | `writes` | files queued, and made stable together |

mod action;
mod ahead;
pub(crate) mod attrs;
mod data;
mod dirs;
mod fetch;
mod item;
mod list;
mod meta;
mod names;
pub(crate) mod open_file;
mod order;
mod outcome;
mod owners;
mod pack;
mod path;
mod queue;
mod run;
pub(crate) mod server_copy;
mod shared;
pub(crate) mod step;
mod together;
mod tree;
pub(crate) mod untaken;
mod writes;
mod xattrs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use landfast_nfs::v4::args::CreateType;
use landfast_nfs::v4::attr::{AttrValues, Bitmap};
use landfast_nfs::v4::flags::{ACCESS4_DELETE, ACCESS4_EXTEND, ACCESS4_MODIFY};
use landfast_nfs::v4::{ArgOp, FileHandle, FileType};
use tokio::sync::{OnceCell, watch};

use crate::compound::fattr;
use crate::here::Here;
use crate::limits::{REMOVED_AHEAD_MAX, WALKED_EARLY_MAX};
use crate::ops;
use crate::session::{Session, SessionError, SessionOptions, SessionStats};
use crate::url::NfsUrl;
use action::{Action, Wants};
use ahead::Ahead;
pub use fetch::{Fetched, Wanted, Xattr};
use item::Item;
pub use list::FirstPage;
use meta::LOOKED;
pub use meta::{Entry, Meta, Owner};
pub use order::{InOrder, Step};
pub use outcome::{Failure, ItemError, Outcome};
pub use owners::{AsNamed, NOBODY, OwnerNames};
use pack::Capacity;
use path::above;
pub(crate) use path::join;
pub(crate) use server_copy::CopyError;
pub use server_copy::{Original, Reflink, ServerCopies};
use shared::Shared;
pub(crate) use step::StepError;
use together::Together;
pub use tree::{Listing, Removal, Start, ToRemove, WalkOptions};
use tree::{Removals, Walk};
use untaken::Untaken;
pub use writes::Writes;

/// A tree on a server. Cheap to clone; clones share one session.
#[derive(Clone)]
pub struct Nfs {
    shared: Arc<Shared>,
}

#[derive(Debug, Clone)]
pub struct NewFile {
    pub path: Vec<u8>,
    pub data: Bytes,
    /// The permission bits of a new file.
    pub mode: u32,
    /// An existing file is an error. Otherwise it is overwritten and keeps its mode.
    pub exclusive: bool,
    /// Attributes to set after the data, such as [`AttrValues::time_modify_set`].
    pub finish: AttrValues,
}

impl NewFile {
    /// A file with mode 0644.
    pub fn new(path: impl Into<Vec<u8>>, data: impl Into<Bytes>) -> NewFile {
        NewFile {
            path: path.into(),
            data: data.into(),
            mode: 0o644,
            exclusive: false,
            finish: AttrValues::default(),
        }
    }
}

/// An object and its attributes: [`ops::STAT`] and its time of creation.
#[derive(Debug, Clone)]
pub struct Object {
    pub fh: FileHandle,
    pub attrs: AttrValues,
    /// The first page of a directory's listing, if it was requested and could be read.
    pub first_page: Option<FirstPage>,
}

impl Nfs {
    /// Connects to the server of `url` as this process. Paths begin at the directory that it names. Fails when the
    /// server cannot be reached, or the path does not lead to a directory.
    pub async fn connect(url: &NfsUrl) -> Result<Nfs, ops::Error> {
        Nfs::with(Session::connect(SessionOptions::for_url(url)).await?, &url.path).await
    }

    /// As [`Nfs::connect`], over an existing session. Fails when `path` does not lead to a directory.
    pub async fn with(session: Session, path: &[Vec<u8>]) -> Result<Nfs, ops::Error> {
        let (top, _) = ops::resolve(&session, path).await?;
        Ok(Nfs::new(session, ArgOp::Putfh(top)))
    }

    /// The tree of the whole server: paths begin at its root. With NFSv3 a path leads to the export in it.
    pub fn rooted(session: Session) -> Nfs {
        Nfs::new(session, ArgOp::Putrootfh)
    }

    fn new(session: Session, top: ArgOp) -> Nfs {
        let members = if session.is_sequential() { 1 } else { usize::MAX };
        let shared = Shared {
            capacity: Mutex::new(Capacity::new(&session.limits(), members, session.packs_data())),
            session,
            top,
            dirs: Mutex::default(),
            numbers: AtomicU64::new(0),
            copies: OnceCell::new(),
            stop: watch::Sender::new(false),
        };
        Nfs { shared: Arc::new(shared) }
    }

    /// From now on nothing new is started. Calls end with what is in flight; items that were not started are
    /// [`Outcome::NotExecuted`].
    pub fn stop(&self) {
        self.shared.stop.send_replace(true);
    }

    /// Ends the session. A session that is only dropped stays on the server until its lease expires, and a server gives
    /// a client a limited number (Landfast: 16).
    pub async fn disconnect(self) {
        self.shared.session.clone().destroy().await;
    }

    pub fn session(&self) -> &Session {
        &self.shared.session
    }

    pub fn stats(&self) -> SessionStats {
        self.shared.session.stats()
    }

    /// Attributes of objects; of symbolic links themselves.
    pub async fn getattrs<P: AsRef<[u8]>>(&self, paths: impl IntoIterator<Item = P>) -> Vec<Outcome<Object>> {
        self.look(paths, LOOKED, false).await
    }

    /// As [`Nfs::getattrs`], through symbolic links.
    pub async fn getattrs_followed<P: AsRef<[u8]>>(
        &self,
        paths: impl IntoIterator<Item = P>,
    ) -> Vec<Outcome<Object>> {
        self.look(paths, LOOKED, true).await
    }

    async fn look<P: AsRef<[u8]>>(
        &self,
        paths: impl IntoIterator<Item = P>,
        mask: Bitmap,
        follow: bool,
    ) -> Vec<Outcome<Object>> {
        let items = paths.into_iter().map(|p| Item::new(p.as_ref(), attrs::Getattrs { mask, follow }));
        let found = self.all(items).await;
        found.into_iter().map(|o| o.map(|(fh, attrs)| Object { fh, attrs, first_page: None })).collect()
    }

    /// As [`Nfs::getattrs`] of one object (`follow`: [`Nfs::getattrs_followed`]). Of a directory it also reads the
    /// first page of the listing, for [`Start::first_page`].
    pub async fn look_into(&self, path: &[u8], follow: bool) -> Outcome<Object> {
        let found = self.all([Item::new(path, list::LookInto { follow })]).await.pop();
        let found = found.unwrap_or_else(|| Outcome::NotExecuted(SessionError::Ended.to_string()));
        found.map(|(fh, attrs, first_page)| Object { fh, attrs, first_page })
    }

    /// Sets attributes of objects; of symbolic links themselves.
    pub async fn setattrs<P: AsRef<[u8]>>(
        &self,
        paths: impl IntoIterator<Item = (P, AttrValues)>,
    ) -> Vec<Outcome<()>> {
        let items =
            paths.into_iter().map(|(path, attrs)| Item::new(path.as_ref(), attrs::Setattrs::new(&attrs)));
        self.all(items).await
    }

    /// Targets of symbolic links.
    pub async fn readlinks<P: AsRef<[u8]>>(&self, paths: impl IntoIterator<Item = P>) -> Vec<Outcome<Bytes>> {
        self.all(paths.into_iter().map(|p| Item::new(p.as_ref(), attrs::Readlink))).await
    }

    /// As [`Nfs::readlinks`], of objects with known handles.
    pub async fn readlinks_of(&self, links: impl IntoIterator<Item = FileHandle>) -> Vec<Outcome<Bytes>> {
        self.all(links.into_iter().map(|fh| Item::at(fh, attrs::Readlink))).await
    }

    /// Which of these objects the caller may write to (a file's data, a directory's names), as the server sees it
    /// (ACCESS, RFC 8881 section 18.1).
    pub async fn writable(
        &self,
        objects: impl IntoIterator<Item = (FileHandle, Option<FileType>)>,
    ) -> Vec<Outcome<bool>> {
        let rights = |kind| match kind {
            Some(FileType::Dir) => ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_DELETE,
            Some(FileType::Reg) => ACCESS4_MODIFY | ACCESS4_EXTEND,
            _ => ACCESS4_MODIFY,
        };
        let (objects, rights): (Vec<_>, Vec<u32>) =
            objects.into_iter().map(|(fh, kind)| (fh, rights(kind))).unzip();
        let items =
            objects.into_iter().zip(&rights).map(|(fh, r)| Item::at(fh, attrs::Access { rights: *r }));
        let have = self.all(items).await;
        have.into_iter().zip(rights).map(|(o, wanted)| o.map(|have| have == wanted)).collect()
    }

    /// Makes directories. An existing name is an error.
    pub async fn mkdir<P: AsRef<[u8]>>(
        &self,
        paths: impl IntoIterator<Item = P>,
        mode: u32,
    ) -> Vec<Outcome<()>> {
        self.make(paths.into_iter().map(|p| (p, CreateType::Dir)), Some(mode), false).await
    }

    /// Makes directories and their missing parents (`mkdir -p`).
    pub async fn mkdirs<P: AsRef<[u8]>>(
        &self,
        paths: impl IntoIterator<Item = P>,
        mode: u32,
    ) -> Vec<Outcome<()>> {
        // For each path its parents from the top, and itself.
        let chains: Vec<Vec<Vec<u8>>> = paths.into_iter().map(|path| above(path.as_ref())).collect();
        let mut made: BTreeMap<&[u8], Outcome<()>> = BTreeMap::new();
        // Level by level: parents first.
        for depth in 0..chains.iter().map(Vec::len).max().unwrap_or(0) {
            let level: BTreeSet<&[u8]> =
                chains.iter().filter_map(|chain| chain.get(depth)).map(Vec::as_slice).collect();
            let outcomes = self.make(level.iter().map(|p| (p, CreateType::Dir)), Some(mode), true).await;
            made.extend(level.into_iter().zip(outcomes));
        }
        let failed = |chain: &Vec<Vec<u8>>| {
            let mut outcomes = chain.iter().filter_map(|path| made.get(path.as_slice()));
            outcomes.find(|outcome| !matches!(outcome, Outcome::Committed(()))).cloned()
        };
        chains.iter().map(|chain| failed(chain).unwrap_or(Outcome::Committed(()))).collect()
    }

    /// Makes directories, each with its mode, and returns whether each was made. An existing one is an error; with
    /// `or_exists` it counts as not made.
    pub async fn mkdir_each<P: AsRef<[u8]>>(
        &self,
        dirs: impl IntoIterator<Item = (P, u32)>,
        or_exists: bool,
    ) -> Vec<Outcome<bool>> {
        let items = dirs.into_iter().map(|(path, mode)| {
            let attrs = fattr(&AttrValues { mode: Some(mode), ..AttrValues::default() });
            let make = names::Make { kind: CreateType::Dir, attrs, or_exists, exists: false, lost: false };
            Item::new(path.as_ref(), make)
        });
        self.all(items).await.into_iter().map(|o| o.map(|made| made.is_some())).collect()
    }

    /// Makes symbolic links: paths and targets.
    pub async fn symlinks<P: AsRef<[u8]>>(
        &self,
        links: impl IntoIterator<Item = (P, Bytes)>,
    ) -> Vec<Outcome<()>> {
        self.make(links.into_iter().map(|(p, text)| (p, CreateType::Lnk(text))), None, false).await
    }

    async fn make<P: AsRef<[u8]>>(
        &self,
        what: impl IntoIterator<Item = (P, CreateType)>,
        mode: Option<u32>,
        or_exists: bool,
    ) -> Vec<Outcome<()>> {
        let attrs = fattr(&AttrValues { mode, ..AttrValues::default() });
        let items = what.into_iter().map(|(path, kind)| {
            Item::new(
                path.as_ref(),
                names::Make { kind, attrs: attrs.clone(), or_exists, exists: false, lost: false },
            )
        });
        self.all(items).await.into_iter().map(|o| o.map(drop)).collect()
    }

    pub async fn remove<P: AsRef<[u8]>>(&self, paths: impl IntoIterator<Item = P>) -> Vec<Outcome<()>> {
        let removed = self.remove_as(paths, false).await;
        removed.into_iter().map(|o| o.map(drop)).collect()
    }

    async fn remove_as<P: AsRef<[u8]>>(
        &self,
        paths: impl IntoIterator<Item = P>,
        or_missing: bool,
    ) -> Vec<Outcome<bool>> {
        let items: Vec<_> = paths
            .into_iter()
            .map(|p| Item::new(p.as_ref(), names::Remove { or_missing, lost: false }))
            .collect();
        self.forget(&items);
        self.all(items).await
    }

    /// Renames objects: from, to. An existing object at the new name is replaced.
    pub async fn rename<P: AsRef<[u8]>>(&self, pairs: impl IntoIterator<Item = (P, P)>) -> Vec<Outcome<()>> {
        let items: Vec<_> = pairs
            .into_iter()
            .map(|(from, to)| {
                let name = from.as_ref().rsplit(|b| *b == b'/').find(|n| !n.is_empty()).unwrap_or_default();
                let action = names::Rename { from: Bytes::copy_from_slice(name) };
                Item::new(to.as_ref(), action).with_source(from.as_ref(), Wants::Parent)
            })
            .collect();
        self.forget(&items);
        self.all(items).await
    }

    /// Adds names to objects: existing path, new path. Of a symbolic link, to the link itself.
    pub async fn link<P: AsRef<[u8]>>(&self, pairs: impl IntoIterator<Item = (P, P)>) -> Vec<Outcome<()>> {
        let items = pairs.into_iter().map(|(from, to)| {
            Item::new(to.as_ref(), names::Link::default())
                .with_source(from.as_ref(), Wants::Object { follow: false })
        });
        self.all(items).await
    }

    /// Writes whole files. Committed: all of the file is on the server's stable storage.
    pub async fn write_files(&self, files: impl IntoIterator<Item = NewFile>) -> Vec<Outcome<FileHandle>> {
        let items = files.into_iter().map(|file| {
            let number = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
            let mut create = AttrValues { mode: Some(file.mode & 0o7777), ..AttrValues::default() };
            create.size = (!file.exclusive).then_some(0);
            let (create, finish) = (fattr(&create), fattr(&file.finish));
            Item::new(&file.path, data::Write::new(file.data, create, finish, file.exclusive, number))
        });
        self.all(items).await
    }

    /// A queue of whole files, which become stable together with [`Writes::sync`].
    pub fn writes(&self) -> Writes {
        Writes::new(self.clone())
    }

    /// Reads whole files, through symbolic links.
    pub async fn read_files<P: AsRef<[u8]>>(
        &self,
        paths: impl IntoIterator<Item = P>,
    ) -> Vec<Outcome<Bytes>> {
        self.all(paths.into_iter().map(|p| Item::new(p.as_ref(), data::Read::whole()))).await
    }

    /// Reads whole files with known handles and sizes. A file that has grown is read to its end.
    pub async fn read_files_of(
        &self,
        files: impl IntoIterator<Item = (FileHandle, u64)>,
    ) -> Vec<Outcome<Bytes>> {
        self.all(files.into_iter().map(|(fh, size)| Item::at(fh, data::Read::whole_of(size)))).await
    }

    /// Reads parts of files: path, offset, length. A part may be shorter at the end of the file.
    pub async fn read<P: AsRef<[u8]>>(
        &self,
        parts: impl IntoIterator<Item = (P, u64, u64)>,
    ) -> Vec<Outcome<Bytes>> {
        let items = parts
            .into_iter()
            .map(|(path, offset, count)| Item::new(path.as_ref(), data::Read::range(offset, count)));
        self.all(items).await
    }

    /// The entries of directories with attributes, in the server's order. Follows a symbolic link at the end of a path.
    pub async fn listdir<P: AsRef<[u8]>>(
        &self,
        paths: impl IntoIterator<Item = P>,
    ) -> Vec<Outcome<Vec<Entry>>> {
        let items = paths.into_iter().map(|p| Item::new(p.as_ref(), list::List::new(meta::LISTED, true)));
        self.all(items).await.into_iter().map(|o| o.map(|listed| listed.entries)).collect()
    }

    /// Walks everything below directories. `visit` gets each directory when its listing is complete, in no particular
    /// order. A directory that cannot be listed does not stop the others. Symbolic links are followed only at the end
    /// of `paths`.
    pub async fn walk<P: AsRef<[u8]>>(
        &self,
        paths: impl IntoIterator<Item = P>,
        options: WalkOptions,
        visit: impl FnMut(Listing),
    ) {
        let mut walk = Walk::new(options);
        let items: Vec<_> = paths.into_iter().map(|path| walk.start_at(path.as_ref())).collect();
        self.go(walk, (items, Vec::new()), (&Ahead::new(WALKED_EARLY_MAX), None), visit).await;
    }

    /// As [`Nfs::walk`], from directories with known handles.
    pub async fn walk_from(
        &self,
        starts: impl IntoIterator<Item = Start>,
        options: WalkOptions,
        visit: impl FnMut(Listing),
    ) {
        let mut walk = Walk::new(options);
        let calls = walk.start(starts);
        self.go(walk, calls, (&Ahead::new(WALKED_EARLY_MAX), None), visit).await;
    }

    /// As [`Nfs::walk_from`]. `visit` returns how many entries its owner holds until others have come. While these are many,
    /// the walk asks for nothing but what is next in its own order.
    pub async fn walk_held(
        &self,
        starts: impl IntoIterator<Item = Start>,
        options: WalkOptions,
        mut visit: impl FnMut(Listing) -> usize,
    ) {
        let mut walk = Walk::new(options);
        let calls = walk.start(starts);
        let ahead = Ahead::new(WALKED_EARLY_MAX);
        self.go(walk, calls, (&ahead, None), |listing| ahead.holds(visit(listing))).await;
    }

    /// Walks everything below directories with known handles, depth first. `each` gets every step in this order. What comes
    /// before its turn is held; while that is much, the walk asks for nothing but what is next.
    pub async fn walk_in_order(
        &self,
        starts: impl IntoIterator<Item = Start>,
        options: WalkOptions,
        each: impl FnMut(Step),
    ) {
        self.go_in_order(starts, options, None, each).await;
    }

    /// As [`Nfs::walk_in_order`], but pauses while the consumer has too much that it has not taken.
    pub(crate) async fn walk_within(
        &self,
        untaken: &Untaken,
        starts: impl IntoIterator<Item = Start>,
        options: WalkOptions,
        each: impl FnMut(Step),
    ) {
        self.go_in_order(starts, options, Some(untaken), each).await;
    }

    async fn go_in_order(
        &self,
        starts: impl IntoIterator<Item = Start>,
        options: WalkOptions,
        untaken: Option<&Untaken>,
        mut each: impl FnMut(Step),
    ) {
        let mut walk = Walk::new(options);
        let starts: Vec<Start> = starts.into_iter().collect();
        let mut order = InOrder::new(starts.len());
        let calls = walk.start(starts);
        let ahead = Ahead::new(WALKED_EARLY_MAX);
        self.go(walk, calls, (&ahead, untaken), |listing| {
            order.came(listing);
            while let Some(step) = order.next() {
                each(step);
            }
            ahead.holds(order.held());
        })
        .await;
    }

    async fn go(
        &self,
        mut walk: Walk,
        (items, done): (Vec<Item<tree::Visit>>, Vec<Listing>),
        (ahead, untaken): (&Ahead, Option<&Untaken>),
        mut visit: impl FnMut(Listing),
    ) {
        done.into_iter().for_each(&mut visit);
        run::run_gathered(&self.shared, items, run::Bounds { ahead, untaken }, |number, _, outcome, more| {
            if let Some(listing) = walk.visited(number, outcome, more) {
                ahead.brought(listing.len());
                visit(listing);
            }
        })
        .await;
    }

    /// Removes trees with all their contents (`rm -r`), from below, many entries in one COMPOUND. `tell` gets each
    /// object. An object that is already gone counts as removed.
    pub async fn remove_trees(
        &self,
        trees: impl IntoIterator<Item = ToRemove>,
        mut tell: impl FnMut(Removal),
    ) {
        let mut removals = Removals::default();
        let mut items = Vec::new();
        trees.into_iter().for_each(|tree| removals.start(tree, &mut items, &mut tell));
        self.shared.dirs().clear();
        let ahead = Ahead::new(REMOVED_AHEAD_MAX);
        run::run_gathered(
            &self.shared,
            items,
            run::Bounds { ahead: &ahead, untaken: None },
            |number, _, outcome, more| {
                if let Outcome::Committed(tree::Visited::Entries(listed)) = &outcome {
                    ahead.brought(listed.entries.len());
                }
                removals.visited(number, outcome, more, &mut tell);
                ahead.holds(removals.requested());
            },
        )
        .await;
    }

    /// Forgets directories that are about to be renamed or removed.
    fn forget<A: Action>(&self, items: &[Item<A>]) {
        let mut dirs = self.shared.dirs();
        for path in items.iter().flat_map(Item::paths) {
            dirs.forget(path);
        }
    }

    /// Runs items and returns their results in the same order.
    fn all<A: Together>(&self, items: impl IntoIterator<Item = Item<A>>) -> Here<'_, Vec<Outcome<A::Out>>> {
        A::all(&self.shared, items.into_iter().collect())
    }
}
