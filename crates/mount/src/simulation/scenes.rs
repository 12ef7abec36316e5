//! Scenes on the model's server, without chance: what has gone wrong once, and what needs a reply to come late.

mod late;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use landfast_nfs::v4::{ArgOp, NfsStat, NfsTime, OpNum, SetTime};

use super::choices::Choices;
use super::objects::{Id, Kind, handle};
use super::server::{Effect, ROOT, Server, Trouble};
use super::wire::{Line, Net};
use crate::core::Ino;
use crate::core::attrs::Set;
use crate::errno::Errno;
use crate::fs::kernel::Kernel;
use crate::limits::{EXTENT_BYTES_MIN, UNCOMMITTED_PIECES_MAX};
use crate::options::Options;
use crate::remote::{Remote, Wire};

pub(super) const LEASE: Duration = Duration::from_secs(60);
pub(super) const TOP: Ino = crate::core::tree::ROOT;

pub(super) struct Scene {
    pub(super) net: Arc<Net>,
    pub(super) kernel: Kernel,
    /// Those of other machines.
    others: Vec<Kernel>,
    /// One more client, which has no mount.
    other: Line,
}

pub(super) fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Runs a scene with one mount. `way`: the longest time that a message is on its way, in milliseconds.
pub(super) fn scene<F: Future<Output = ()>>(local: bool, way: u64, play: impl FnOnce(Scene) -> F) {
    scene_of(1, local, way, play);
}

fn scene_of<F: Future<Output = ()>>(mounts: usize, local: bool, way: u64, play: impl FnOnce(Scene) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap();
    runtime.block_on(async {
        let server = Server::new(mounts + 1, LEASE, Trouble::default());
        let net = Arc::new(Net::new(server, Choices::new(1), (way, 0), false));
        let mut kernels = Vec::new();
        for who in 0..mounts {
            let line = Line::new(net.clone(), who);
            net.lines.lock().push(line.clone());
            let remote = Remote::over(Wire::Model(line), None);
            let values = net.server.lock().objects.get(&ROOT).map(|root| root.values(ROOT)).unwrap();
            let attrs = remote.attrs_of(&values).unwrap();
            let age = Duration::from_secs(30);
            let options = Options { local, flush_age: age, hold: age, ..Options::default() };
            kernels.push(Kernel::mount(remote, options, (handle(ROOT), attrs), who as u64).await);
        }
        let kernel = kernels.remove(0);
        let other = Line::new(net.clone(), mounts);
        let play = play(Scene { net, kernel, others: kernels, other });
        let end = tokio::time::timeout(Duration::from_secs(1000), play).await;
        end.expect("nobody waits for ever");
    });
    // Tasks of the mount go on for ever.
    runtime.shutdown_background();
}

impl Scene {
    /// A directory of the mount's own that the server knows.
    pub(super) async fn own_dir(&self, text: &str) -> Ino {
        let (dir, _) = self.kernel.mkdir(TOP, &name(text), 0o755).await.unwrap();
        self.kernel.fsync_dir(TOP).await.unwrap();
        assert!(self.kernel.is_own(dir));
        dir
    }

    pub(super) async fn file(&self, dir: Ino, text: &str, data: &[u8]) -> Ino {
        let (ino, fh) = self.kernel.create(dir, &name(text), 0o644).await.unwrap();
        self.kernel.write(fh, 0, data).await.unwrap();
        self.kernel.close(fh).await.unwrap();
        // The kernel does not wait for the end of a close; here, on one thread, that comes now.
        tokio::task::yield_now().await;
        ino
    }

    /// So many empty files, with names in their order.
    async fn files(&self, dir: Ino, count: usize) -> Vec<Ino> {
        let mut inos = Vec::new();
        for n in 0..count {
            inos.push(self.file(dir, &text(n), b"").await);
        }
        inos
    }

    pub(super) fn id(&self, path: &str) -> Option<Id> {
        let server = self.net.server.lock();
        let parts = path.split('/');
        parts
            .into_iter()
            .try_fold(ROOT, |dir, part| server.objects.get(&dir)?.names()?.get(part.as_bytes()).copied())
    }

    /// The other client looks a path up.
    pub(super) async fn looks(&self, path: &str) -> NfsStat {
        let names = path.split('/').map(|part| ArgOp::Lookup(name(part)));
        let ops = std::iter::once(ArgOp::Putfh(handle(ROOT))).chain(names).collect();
        self.other.compound(ops, true).await.unwrap().status
    }

    /// The server takes no change until the first one was refused.
    pub(super) async fn refuses_one(&self) {
        self.net.server.lock().trouble.full = 1000;
        let is_refused = || {
            let server = self.net.server.lock();
            server.effects.iter().any(|effect| matches!(effect, Effect::Refused { .. }))
        };
        while !is_refused() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.net.server.lock().trouble.full = 0;
    }

    /// The server loses what it knows of clients, and the mount finds that out. What waits is sent then.
    pub(super) async fn forgets_clients(&self, beside: impl FnOnce()) {
        let now = self.net.now();
        self.net.server.lock().cut(now, false);
        beside();
        self.kernel.lookup(TOP, &name("nothing")).await.unwrap();
    }

    /// What the server has in a file.
    pub(super) fn data(&self, path: &str) -> Option<Vec<u8>> {
        let id = self.id(path)?;
        match &self.net.server.lock().objects.get(&id)?.kind {
            Kind::File { data, .. } => Some(data.clone()),
            _ => None,
        }
    }

    /// Somebody whom the mount does not see makes a file.
    pub(super) fn theirs(&self, dir: &str, text: &str) -> Id {
        let dir = if dir.is_empty() { ROOT } else { self.id(dir).unwrap() };
        let data = b"theirs".to_vec();
        let kind = Kind::File { stable: data.clone(), data };
        self.net.server.lock().make(dir, &name(text), kind, 0o600, self.net.now())
    }
}

#[test]
fn data_that_is_written_behind_a_time_that_was_set_moves_it() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        let f = s.file(d, "f", b"old").await;
        s.kernel.fsync_dir(d).await.unwrap();
        let past = NfsTime { seconds: 7, nseconds: 0 };
        let set = Set { mtime: Some(SetTime::ClientTime(past)), ..Set::default() };
        s.kernel.setattr(f, &set).await.unwrap();
        let fh = s.kernel.open(f).await.unwrap();
        s.kernel.write(fh, 0, b"new").await.unwrap();
        s.kernel.close(fh).await.unwrap();
        s.kernel.fsync_dir(d).await.unwrap();
        assert_eq!(s.data("d/f").unwrap(), b"new");
        let id = s.id("d/f").unwrap();
        assert_ne!(s.net.server.lock().objects[&id].mtime, past);
    });
}

#[test]
fn a_file_that_is_made_once_more_is_not_the_one_that_has_replaced_it() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        s.file(d, "p", b"precious").await;
        s.kernel.fsync_dir(d).await.unwrap();
        // A program takes the name first, and then puts a file of before there.
        s.file(d, "x", b"x").await;
        s.kernel.rename((d, &name("p")), (d, &name("x"))).await.unwrap();
        *s.net.loses_reply.lock() = Some(OpNum::OPEN);
        s.kernel.fsync_dir(d).await.unwrap();
        assert_eq!((s.data("d/x").unwrap(), s.data("d/p")), (b"precious".to_vec(), None));
    });
}

#[test]
fn two_files_that_had_one_name_are_not_mixed_when_they_are_made_once_more() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        s.file(d, "a", b"before").await;
        s.kernel.fsync_dir(d).await.unwrap();
        s.file(d, "tmp", b"A").await;
        s.kernel.rename((d, &name("tmp")), (d, &name("a"))).await.unwrap();
        s.file(d, "tmp", b"BBBB").await;
        *s.net.loses_reply.lock() = Some(OpNum::OPEN);
        s.kernel.fsync_dir(d).await.unwrap();
        assert_eq!((s.data("d/a").unwrap(), s.data("d/tmp").unwrap()), (b"A".to_vec(), b"BBBB".to_vec()));
    });
}

#[test]
fn a_directory_that_could_not_be_made_is_never_stable() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        let (lost, _) = s.kernel.mkdir(d, &name("lost"), 0o755).await.unwrap();
        let (below, _) = s.kernel.mkdir(lost, &name("below"), 0o755).await.unwrap();
        s.net.server.lock().trouble.full = 1000;
        assert_eq!(s.kernel.fsync_dir(lost).await, Err(Errno(libc::ENOSPC)));
        for dir in [lost, below] {
            assert_eq!(s.kernel.fsync_dir(dir).await, Err(Errno::STALE));
        }
        assert_eq!(s.kernel.fsync_dir(d).await, Err(Errno(libc::ENOSPC)));
        s.kernel.fsync_dir(d).await.unwrap();
        // One that was removed before the server heard of it is no error.
        let (gone, _) = s.kernel.mkdir(d, &name("gone"), 0o755).await.unwrap();
        s.kernel.rmdir(d, &name("gone")).await.unwrap();
        s.kernel.fsync_dir(gone).await.unwrap();
    });
}

#[test]
fn mknod_returns_when_the_server_has_the_file_or_with_its_error() {
    for local in [true, false] {
        scene(local, 0, async |s| {
            let (d, _) = s.kernel.mkdir(TOP, &name("d"), 0o755).await.unwrap();
            s.kernel.mknod(d, &name("f"), 0o644).await.unwrap();
            assert_eq!(s.data("d/f").unwrap(), b"");
            s.net.server.lock().trouble.full = 1000;
            assert_eq!(s.kernel.mknod(d, &name("g"), 0o644).await, Err(Errno(libc::ENOSPC)));
        });
    }
}

#[test]
fn a_name_that_somebody_has_taken_before_our_file_is_neither_removed_nor_renamed_nor_replaced() {
    scene(false, 0, async |s| {
        for (text, change) in [("x", 0), ("y", 1), ("z", 2)] {
            s.kernel.lookup(TOP, &name(text)).await.unwrap();
            let (_, fh) = s.kernel.create(TOP, &name(text), 0o644).await.unwrap();
            let other = name("other");
            s.file(TOP, "other", b"other").await;
            let theirs = s.theirs("", text);
            let done = match change {
                0 => s.kernel.unlink(TOP, &name(text)).await,
                1 => s.kernel.rename((TOP, &name(text)), (TOP, &name("to"))).await,
                _ => s.kernel.rename((TOP, &other), (TOP, &name(text))).await,
            };
            assert_eq!(done, Err(Errno::EXIST), "{text}");
            assert_eq!(s.id(text), Some(theirs), "{text}");
            assert_eq!(s.kernel.close(fh).await, Err(Errno::EXIST));
            s.kernel.unlink(TOP, &other).await.unwrap();
        }
    });
}

#[test]
fn what_waits_in_a_directory_that_was_lost_replaces_nothing_though_it_is_asked_for_again() {
    scene(true, 0, async |s| {
        let (d, e) = (s.own_dir("d").await, s.own_dir("e").await);
        s.file(d, "q", b"ours").await;
        s.kernel.fsync_dir(d).await.unwrap();
        // A file that is open keeps what is behind it back.
        let (_, fh) = s.kernel.create(d, &name("open"), 0o644).await.unwrap();
        s.kernel.rename((d, &name("q")), (d, &name("r"))).await.unwrap();
        let now = s.net.now();
        s.net.server.lock().cut(now, false);
        let theirs = s.theirs("d", "r");
        // Another directory's changes find the new session.
        s.file(e, "f", b"").await;
        s.kernel.fsync_dir(e).await.unwrap();
        assert!(!s.kernel.is_own(d));
        let new = name("new");
        let (made, closed) = tokio::join!(s.kernel.mkdir(d, &new, 0o755), s.kernel.close(fh));
        assert!(made.is_ok() && closed.is_ok(), "{made:?} {closed:?}");
        let _ = s.kernel.fsync_dir(d).await;
        assert_eq!(s.id("d/r"), Some(theirs));
        assert!(s.id("d/open").is_some() && s.id("d/new").is_some());
    });
}

#[test]
fn what_is_written_while_its_file_is_made_is_below_its_directory() {
    scene(true, 60, async |s| {
        let d = s.own_dir("d").await;
        let (_, fh) = s.kernel.create(d, &name("f"), 0o644).await.unwrap();
        s.kernel.write(fh, 0, b"a").await.unwrap();
        let before = s.net.requests.load(Ordering::Relaxed);
        let writes = async {
            while s.net.requests.load(Ordering::Relaxed) == before {
                tokio::task::yield_now().await;
            }
            s.kernel.write(fh, 1, b"b").await.unwrap();
            assert_eq!(s.data("d/f"), None, "it is on its way");
        };
        let (made, ()) = tokio::join!(s.kernel.fsync_dir(d), writes);
        made.unwrap();
        s.kernel.fsync_dir(d).await.unwrap();
        assert_eq!(s.data("d/f").unwrap(), b"ab");
        s.kernel.close(fh).await.unwrap();
    });
}

#[test]
fn an_open_file_stays_though_memory_has_forgotten_its_name() {
    scene(false, 0, async |s| {
        let [first, second] = ["first", "second"].map(|text| {
            s.theirs("", text);
            name(text)
        });
        let open = async |name: &Bytes| {
            let (ino, _) = s.kernel.lookup(TOP, name).await.unwrap().unwrap();
            s.kernel.open(ino).await.unwrap()
        };
        let (one, two) = (open(&first).await, open(&second).await);
        // A change of somebody else's beside ours: all names are to be asked for anew.
        let busy = async |text: &str| {
            s.theirs("", &format!("{text} of theirs"));
            s.net.server.lock().objects.get_mut(&ROOT).unwrap().change += 1 << 32;
            s.file(TOP, text, b"ours").await
        };
        busy("new").await;
        busy("other").await;
        s.kernel.unlink(TOP, &first).await.unwrap();
        // The server has to have it still: what was read with its open is in memory.
        let is_there = async |fh| {
            s.kernel.write(fh, 6, b" and ours").await.unwrap();
            s.kernel.fsync(fh).await
        };
        assert_eq!(is_there(one).await, Ok(()));
        busy("another").await;
        s.kernel.rename((TOP, &name("new")), (TOP, &second)).await.unwrap();
        assert_eq!((s.data("first"), s.data("second").unwrap()), (None, b"ours".to_vec()));
        assert_eq!(is_there(two).await, Ok(()));
    });
}

#[test]
fn data_that_is_lost_is_not_shown_by_the_kernel_any_more() {
    scene(false, 0, async |s| {
        s.theirs("", "f");
        let (ino, _) = s.kernel.lookup(TOP, &name("f")).await.unwrap().unwrap();
        let fh = s.kernel.open(ino).await.unwrap();
        assert!(s.kernel.trusts_pages(ino), "nobody has changed it");
        s.kernel.write(fh, 0, b"ours").await.unwrap();
        s.net.server.lock().trouble.full = 1000;
        assert_eq!(s.kernel.close(fh).await, Err(Errno(libc::ENOSPC)));
        s.net.server.lock().trouble.full = 0;
        assert_eq!(s.data("f").unwrap(), b"theirs");
        assert!(!s.kernel.trusts_pages(ino), "what was written is in these pages");
    });
}

/// The name of one of [`Scene::files`].
fn text(n: usize) -> String {
    format!("f{n:04}")
}

#[test]
fn a_listing_goes_on_behind_many_names_that_are_gone() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        let inos = s.files(d, 1600).await;
        s.kernel.fsync_dir(d).await.unwrap();
        let mut first = true;
        let remove = async || {
            if !std::mem::take(&mut first) {
                return;
            }
            for (n, ino) in inos.iter().enumerate().take(1500).skip(400) {
                s.kernel.unlink(d, &name(&text(n))).await.unwrap();
                s.kernel.forget(*ino);
            }
            s.kernel.fsync_dir(d).await.unwrap();
        };
        let names = s.kernel.readdir_beside(d, remove).await.unwrap();
        for n in (0..400).chain(1500..1600) {
            assert!(names.contains(&name(&text(n))), "{}", text(n));
        }
    });
}

#[test]
fn a_listing_has_names_whose_nodes_are_forgotten_meanwhile() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        let inos = s.files(d, 1200).await;
        s.kernel.unlink(d, &name(&text(1100))).await.unwrap();
        s.kernel.fsync_dir(d).await.unwrap();
        let forget = async || inos.iter().for_each(|ino| s.kernel.forget(*ino));
        let names = s.kernel.readdir_beside(d, forget).await.unwrap();
        let all: Vec<Bytes> = (0..1200).filter(|n| *n != 1100).map(|n| name(&text(n))).collect();
        assert!(names == all, "{} of {}", names.len(), all.len());
    });
}

#[test]
fn a_synchronized_file_is_found_though_a_directory_above_it_has_a_new_name() {
    scene(true, 0, async |s| {
        let top = s.own_dir("top").await;
        let (old, _) = s.kernel.mkdir(top, &name("old"), 0o755).await.unwrap();
        let (d, _) = s.kernel.mkdir(old, &name("d"), 0o755).await.unwrap();
        s.kernel.fsync_dir(top).await.unwrap();
        let sync = async |text: &str| {
            let (_, fh) = s.kernel.create(d, &name(text), 0o644).await.unwrap();
            s.kernel.write(fh, 0, b"data").await.unwrap();
            s.kernel.fsync(fh).await.unwrap();
            s.kernel.close(fh).await.unwrap();
        };
        s.kernel.rename((top, &name("old")), (top, &name("new"))).await.unwrap();
        assert!(s.id("top/old").is_some(), "it waits");
        sync("file").await;
        // What a client that dies now leaves behind.
        assert_eq!(s.data("top/new/d/file").unwrap(), b"data");
        // The same of a directory that is synchronized.
        s.kernel.rename((top, &name("new")), (top, &name("newer"))).await.unwrap();
        s.kernel.mkdir(d, &name("e"), 0o755).await.unwrap();
        s.kernel.fsync_dir(d).await.unwrap();
        assert!(s.id("top/newer/d/e").is_some());
    });
}

#[test]
fn a_write_with_the_servers_answer_makes_no_old_pages_good() {
    scene(false, 0, async |s| {
        let id = s.theirs("", "f");
        let (ino, _) = s.kernel.lookup(TOP, &name("f")).await.unwrap().unwrap();
        let fh = s.kernel.open(ino).await.unwrap();
        let data = Bytes::from_static(b"ours");
        s.kernel.write_through(fh, 0, &data).await.unwrap();
        assert!(s.kernel.trusts_pages(ino), "nobody else has changed it");
        // Somebody else has, and this kernel's pages are those of before.
        if let Some(file) = s.net.server.lock().objects.get_mut(&id) {
            file.change += 1 << 32;
        }
        s.kernel.write_through(fh, 0, &data).await.unwrap();
        assert!(!s.kernel.trusts_pages(ino));
    });
}

#[test]
fn many_tiny_writes_are_counted_with_what_goes_with_them_and_committed_in_between() {
    scene(false, 0, async |s| {
        s.theirs("", "f");
        let (ino, _) = s.kernel.lookup(TOP, &name("f")).await.unwrap().unwrap();
        let fh = s.kernel.open(ino).await.unwrap();
        let count = 3 * UNCOMMITTED_PIECES_MAX;
        for n in 0..count {
            s.kernel.write(fh, 10 * n as u64, b"x").await.unwrap();
        }
        assert!(s.kernel.dirty_bytes() >= count as u64 * EXTENT_BYTES_MIN);
        s.kernel.fsync(fh).await.unwrap();
        assert!(s.net.server.lock().commits >= 3);
        let data = s.data("f").unwrap();
        assert!((0..count).all(|n| data[10 * n] == b'x'));
        assert_eq!(s.kernel.left_over(), None);
    });
}

#[test]
fn a_rename_to_a_name_that_nobody_has_is_one_request() {
    scene(false, 0, async |s| {
        for text in ["a", "open"] {
            s.theirs("", text);
        }
        let found = async |text: &str| s.kernel.lookup(TOP, &name(text)).await.unwrap();
        let (open, _) = found("open").await.unwrap();
        s.kernel.open(open).await.unwrap();
        // As the kernel asks before.
        assert!(found("a").await.is_some() && found("b").await.is_none());
        let before = s.net.requests.load(Ordering::Relaxed);
        s.kernel.rename((TOP, &name("a")), (TOP, &name("b"))).await.unwrap();
        assert_eq!(s.net.requests.load(Ordering::Relaxed) - before, 1);
    });
}

#[test]
fn a_directory_is_not_answered_for_when_its_return_was_executed_and_the_reply_is_lost() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        *s.net.loses_reply.lock() = Some(OpNum::DELEGRETURN);
        assert_eq!(s.looks("d/theirs").await, NfsStat::NFS4ERR_NOENT);
        assert!(s.net.loses_reply.lock().is_none(), "the delegation was returned");
        s.theirs("d", "theirs");
        assert!(s.kernel.lookup(d, &name("theirs")).await.unwrap().is_some());
        // It is asked for again once it is known to be returned, and given: the server has recalled it long ago.
        tokio::time::sleep(Duration::from_secs(100)).await;
        for text in ["a", "b", "c"] {
            s.file(d, text, b"").await;
        }
        assert!(s.kernel.is_own(d));
    });
}

#[test]
fn others_find_all_of_a_directory_below_that_the_server_gives_no_delegation_of() {
    // What comes first is chance.
    scene(true, 60, async |s| {
        for dir in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            s.net.server.lock().trouble.refused = 0;
            let d = s.own_dir(dir).await;
            s.net.server.lock().trouble.refused = 100;
            let (e, _) = s.kernel.mkdir(d, &name("e"), 0o755).await.unwrap();
            let (g, _) = s.kernel.mkdir(e, &name("g"), 0o755).await.unwrap();
            s.file(g, "f", b"f").await;
            let path = format!("{dir}/e/g/f");
            assert_eq!(s.looks(&path).await, NfsStat::NFS4_OK);
            assert_eq!(s.data(&path).unwrap(), b"f");
        }
    });
}

#[test]
fn a_directory_waits_for_what_is_below_though_the_kernel_has_forgotten_the_way() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        let (e, _) = s.kernel.mkdir(d, &name("e"), 0o755).await.unwrap();
        s.kernel.fsync_dir(TOP).await.unwrap();
        let f = s.file(e, "f", b"f").await;
        [f, e, d].into_iter().for_each(|ino| s.kernel.forget(ino));
        s.kernel.fsync_dir(TOP).await.unwrap();
        assert_eq!(s.data("d/e/f").unwrap(), b"f");
    });
}

#[test]
fn an_error_is_told_above_its_directory_and_nowhere_else_though_the_kernel_has_forgotten_the_way() {
    scene(true, 0, async |s| {
        let (d, other) = (s.own_dir("d").await, s.own_dir("other").await);
        let (e, _) = s.kernel.mkdir(d, &name("e"), 0o755).await.unwrap();
        s.kernel.fsync_dir(TOP).await.unwrap();
        s.net.server.lock().trouble.full = 1000;
        let f = s.file(e, "f", b"f").await;
        [f, e, d].into_iter().for_each(|ino| s.kernel.forget(ino));
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!((s.data("d/e/f"), s.kernel.on_its_way()), (None, 0));
        s.kernel.fsync_dir(other).await.unwrap();
        let (again, _) = s.kernel.lookup(TOP, &name("d")).await.unwrap().unwrap();
        assert_eq!(s.kernel.fsync_dir(again).await, Err(Errno(libc::ENOSPC)));
        s.kernel.fsync_dir(TOP).await.unwrap();
    });
}

#[test]
fn an_error_is_told_above_its_directory_where_that_was_moved_to() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        let (old, _) = s.kernel.mkdir(d, &name("old"), 0o755).await.unwrap();
        let (new, _) = s.kernel.mkdir(d, &name("new"), 0o755).await.unwrap();
        let (e, _) = s.kernel.mkdir(old, &name("e"), 0o755).await.unwrap();
        s.kernel.fsync_dir(TOP).await.unwrap();
        let f = s.file(e, "f", b"f").await;
        s.kernel.rename((old, &name("e")), (new, &name("e"))).await.unwrap();
        assert!(s.id("d/new/e").is_some() && s.data("d/new/e/f").is_none(), "the file waits");
        s.net.server.lock().trouble.full = 1000;
        [f, e, new, old].into_iter().for_each(|ino| s.kernel.forget(ino));
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!((s.data("d/new/e/f"), s.kernel.on_its_way()), (None, 0));
        let (again, _) = s.kernel.lookup(d, &name("new")).await.unwrap().unwrap();
        assert_eq!(s.kernel.fsync_dir(again).await, Err(Errno(libc::ENOSPC)));
    });
}

#[test]
fn the_loss_of_data_that_is_written_behind_a_creation_is_told_though_the_kernel_has_forgotten_the_way() {
    scene(true, 60, async |s| {
        let d = s.own_dir("d").await;
        let (e, _) = s.kernel.mkdir(d, &name("e"), 0o755).await.unwrap();
        s.kernel.fsync_dir(TOP).await.unwrap();
        let (f, fh) = s.kernel.create(e, &name("f"), 0o644).await.unwrap();
        s.kernel.write(fh, 0, b"a").await.unwrap();
        let before = s.net.requests.load(Ordering::Relaxed);
        let writes = async {
            while s.net.requests.load(Ordering::Relaxed) == before {
                tokio::task::yield_now().await;
            }
            s.kernel.write(fh, 1, b"b").await.unwrap();
            while s.data("d/e/f").is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            s.net.server.lock().trouble.full = 1000;
            [f, e, d].into_iter().for_each(|ino| s.kernel.forget(ino));
        };
        let (synced, ()) = tokio::join!(s.kernel.fsync(fh), writes);
        assert_eq!((synced, s.data("d/e/f").unwrap()), (Err(Errno(libc::ENOSPC)), b"a".to_vec()));
        s.kernel.release(fh);
        // Also when a directory that nothing keeps would have been given back.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (again, _) = s.kernel.lookup(TOP, &name("d")).await.unwrap().unwrap();
        assert_eq!(s.kernel.fsync_dir(again).await, Err(Errno(libc::ENOSPC)));
    });
}

#[test]
fn a_name_is_asked_for_when_the_server_has_heard_who_may_search_the_directory() {
    scene(true, 0, async |s| {
        let id = s.net.server.lock().old_dir(&name("d"), 0o755);
        s.theirs("d", "f");
        let (d, _) = s.kernel.lookup(TOP, &name("d")).await.unwrap().unwrap();
        for text in ["one", "two"] {
            s.kernel.mkdir(d, &name(text), 0o755).await.unwrap();
        }
        s.kernel.fsync_dir(d).await.unwrap();
        assert!(s.kernel.is_own(d));
        // Others may have changed the file, which they have found before.
        tokio::time::sleep(LEASE / 2).await;
        s.kernel.setattr(d, &Set { mode: Some(0o711), ..Set::default() }).await.unwrap();
        let mode = || s.net.server.lock().objects[&id].mode;
        assert_eq!(mode(), 0o755, "it waits");
        let before = s.net.requests.load(Ordering::Relaxed);
        s.kernel.lookup(d, &name("f")).await.unwrap().unwrap();
        assert!(s.net.requests.load(Ordering::Relaxed) > before, "memory does not answer");
        assert_eq!(mode(), 0o711);
    });
}

#[test]
fn a_directory_that_is_found_empty_late_is_not_this_mounts_own_when_it_is_removed_or_replaced() {
    for replaced in [false, true] {
        scene(true, 0, async |s| {
            let d = s.own_dir("d").await;
            s.own_dir("other").await;
            let (_, fh) = s.kernel.create(d, &name("f"), 0o644).await.unwrap();
            s.kernel.unlink(d, &name("f")).await.unwrap();
            s.kernel.flush(fh).await.unwrap();
            let changes = async {
                match replaced {
                    true => s.kernel.rename((TOP, &name("other")), (TOP, &name("d"))).await,
                    false => s.kernel.rmdir(TOP, &name("d")).await,
                }
            };
            let ends = async {
                // The server has found the hidden name.
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert!(s.kernel.is_own(d));
                s.kernel.release(fh);
            };
            let (done, ()) = tokio::join!(changes, ends);
            done.unwrap();
            assert_eq!(s.id("d").is_some(), replaced);
            assert!(!s.kernel.is_own(d));
        });
    }
}

#[test]
fn a_delegation_that_is_revoked_while_it_is_returned_is_freed() {
    scene(true, 0, async |s| {
        s.own_dir("d").await;
        let look = [ArgOp::Putfh(handle(ROOT)), ArgOp::Lookup(name("d")), ArgOp::Lookup(name("f"))];
        let looks = async || {
            let now = s.net.now();
            let recalls = {
                let mut server = s.net.server.lock();
                let _ = server.execute(1, &look, now, &mut Choices::new(1));
                std::mem::take(&mut server.recalls)
            };
            s.net.deliver(recalls);
        };
        looks().await;
        // The server takes nothing for longer than a lease, and then decides before it executes the return.
        s.net.server.lock().trouble.busy = 400;
        tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
        s.net.server.lock().trouble.busy = 0;
        looks().await;
        assert_eq!(s.net.server.lock().clients[0].revoked.len(), 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(s.net.server.lock().clients[0].revoked.is_empty());
    });
}
