//! A scene for each deliberate bug that the simulation is to see: it passes without the bug, and fails with it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use landfast_nfs::v4::{NfsStat, OpNum};

use super::scenes::{Scene, TOP, name, scene};
use super::server::Effect;
use crate::core::Ino;
use crate::core::bugs::Bug;
use crate::errno::Errno;

/// The scenes.
pub(super) const ALL: [(Bug, fn()); 16] = [
    (Bug::FoldedAcross, folded_across),
    (Bug::FoldedSent, folded_sent),
    (Bug::DirBeforeNames, dir_before_names),
    (Bug::AbandonedKept, abandoned_kept),
    (Bug::RemovesAnything, removes_anything),
    (Bug::ReplacesAnything, replaces_anything),
    (Bug::ReturnedEarly, returned_early),
    (Bug::RecallUnheeded, recall_unheeded),
    (Bug::Untested, untested),
    (Bug::DamageIgnored, damage_ignored),
    (Bug::DataDropped, data_dropped),
    (Bug::BelowUnsynced, below_unsynced),
    (Bug::FailureUntold, failure_untold),
    (Bug::NeverDone, never_done),
    (Bug::AgeForgotten, age_forgotten),
    (Bug::AdoptsAnything, adopts_anything),
];

impl Scene {
    /// A directory of the mount's own with a file that the server has.
    async fn with_file(&self, text: &str) -> (Ino, Ino) {
        let dir = self.own_dir("d").await;
        let file = self.file(dir, text, text.as_bytes()).await;
        self.kernel.fsync_dir(dir).await.unwrap();
        (dir, file)
    }

    async fn renames(&self, dir: Ino, from: &str, to: &str) {
        self.kernel.rename((dir, &name(from)), (dir, &name(to))).await.unwrap();
    }
}

fn folded_across() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        s.net.server.lock().effects.clear();
        for text in ["a", "b"] {
            s.file(d, text, b"").await;
        }
        s.renames(d, "a", "c").await;
        s.kernel.fsync_dir(d).await.unwrap();
        let effects = std::mem::take(&mut s.net.server.lock().effects);
        let first = effects.into_iter().find_map(|effect| match effect {
            Effect::Names { after, .. } => Some(after.into_keys().collect::<Vec<Bytes>>()),
            _ => None,
        });
        assert_eq!(first.unwrap(), [name("a")]);
    });
}

fn folded_sent() {
    scene(true, 60, async |s| {
        let d = s.own_dir("d").await;
        s.file(d, "f", b"f").await;
        let before = s.net.requests.load(Ordering::Relaxed);
        let removes = async {
            while s.net.requests.load(Ordering::Relaxed) == before {
                tokio::task::yield_now().await;
            }
            s.kernel.unlink(d, &name("f")).await.unwrap();
        };
        let (done, ()) = tokio::join!(s.kernel.fsync_dir(d), removes);
        done.unwrap();
        s.kernel.fsync_dir(d).await.unwrap();
        assert_eq!(s.data("d/f"), None);
    });
}

fn dir_before_names() {
    // Two requests are on their way together, and which comes first is chance.
    scene(true, 60, async |s| {
        let d = s.own_dir("d").await;
        for _ in 0..20 {
            let (e, _) = s.kernel.mkdir(d, &name("e"), 0o755).await.unwrap();
            s.file(e, "f", b"").await;
            s.kernel.fsync_dir(d).await.unwrap();
            s.kernel.unlink(e, &name("f")).await.unwrap();
            s.kernel.rmdir(d, &name("e")).await.unwrap();
            s.kernel.fsync_dir(d).await.unwrap();
            assert_eq!(s.id("d/e"), None);
        }
    });
}

fn abandoned_kept() {
    scene(true, 60, async |s| {
        let d = s.own_dir("d").await;
        let (e, _) = s.kernel.mkdir(d, &name("e"), 0o755).await.unwrap();
        s.file(e, "f", b"f").await;
        let (done, ()) = tokio::join!(s.kernel.fsync_dir(d), s.refuses_one());
        assert_eq!(done, Err(Errno(libc::ENOSPC)));
        assert_eq!(s.kernel.on_its_way(), 0);
        let told = s.kernel.sync().await;
        assert!(told.iter().any(|line| line.starts_with("d/e/f: ")), "{told:?}");
    });
}

fn removes_anything() {
    scene(true, 0, async |s| {
        let (d, _) = s.with_file("f").await;
        s.kernel.unlink(d, &name("f")).await.unwrap();
        s.forgets_clients(|| _ = s.theirs("d", "f")).await;
        assert!(s.kernel.fsync_dir(d).await.is_err());
        assert_eq!(s.data("d/f").unwrap(), b"theirs");
    });
}

fn replaces_anything() {
    scene(true, 0, async |s| {
        let (d, _) = s.with_file("f").await;
        s.renames(d, "f", "to").await;
        s.forgets_clients(|| _ = s.theirs("d", "to")).await;
        assert_eq!(s.kernel.fsync_dir(d).await, Err(Errno::EXIST));
        assert_eq!(s.data("d/to").unwrap(), b"theirs");
    });
}

fn returned_early() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        s.file(d, "f", b"f").await;
        assert_eq!(s.looks("d/f").await, NfsStat::NFS4_OK);
    });
}

fn recall_unheeded() {
    scene(true, 60, async |s| {
        let d = s.own_dir("d").await;
        s.file(d, "f", b"f").await;
        let before = s.net.recalls.load(Ordering::Relaxed);
        let makes = async {
            while s.net.recalls.load(Ordering::Relaxed) == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // The mount has heard of it, and sends the file.
            tokio::time::sleep(Duration::from_millis(61)).await;
            s.kernel.mkdir(d, &name("late"), 0o755).await.unwrap();
        };
        let (looked, ()) = tokio::join!(s.looks("d/f"), makes);
        assert_eq!((looked, s.looks("d/late").await), (NfsStat::NFS4_OK, NfsStat::NFS4_OK));
    });
}

fn untested() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        s.forgets_clients(|| _ = s.theirs("d", "f")).await;
        s.kernel.mkdir(TOP, &name("e"), 0o755).await.unwrap();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(s.kernel.lookup(d, &name("f")).await.unwrap().is_some());
    });
}

fn damage_ignored() {
    scene(true, 60, async |s| {
        let (d, _) = s.with_file("a").await;
        s.file(d, "c", b"c").await;
        s.kernel.fsync_dir(d).await.unwrap();
        s.renames(d, "a", "b").await;
        s.renames(d, "c", "a").await;
        let (done, ()) = tokio::join!(s.kernel.fsync_dir(d), s.refuses_one());
        assert!(done.is_err());
        assert_eq!((s.data("d/a").unwrap(), s.data("d/c").unwrap()), (b"a".to_vec(), b"c".to_vec()));
    });
}

fn data_dropped() {
    scene(true, 60, async |s| {
        let d = s.own_dir("d").await;
        for text in ["a", "b"] {
            s.file(d, text, text.as_bytes()).await;
        }
        let (done, ()) = tokio::join!(s.kernel.fsync_dir(d), s.refuses_one());
        assert_eq!(done, Err(Errno(libc::ENOSPC)));
        assert_eq!((s.data("d/a"), s.data("d/b").unwrap()), (None, b"b".to_vec()));
    });
}

fn below_unsynced() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        s.file(d, "f", b"f").await;
        s.kernel.fsync_dir(TOP).await.unwrap();
        assert_eq!(s.data("d/f").unwrap(), b"f");
    });
}

fn failure_untold() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        s.file(d, "f", b"f").await;
        s.net.server.lock().trouble.full = 1000;
        let told = s.kernel.sync().await;
        assert!(told.iter().any(|line| line.starts_with("d/f: ")), "{told:?}");
    });
}

fn never_done() {
    scene(true, 0, async |s| {
        let (d, _) = s.with_file("f").await;
        s.renames(d, "f", "to").await;
        // What has the old name now is not to follow.
        s.file(d, "f", b"new").await;
        *s.net.loses_reply.lock() = Some(OpNum::RENAME);
        s.kernel.fsync_dir(d).await.unwrap();
        assert_eq!((s.data("d/f").unwrap(), s.data("d/to").unwrap()), (b"new".to_vec(), b"f".to_vec()));
    });
}

fn age_forgotten() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        s.file(d, "f", b"f").await;
        tokio::time::sleep(Duration::from_secs(32)).await;
        assert_eq!(s.data("d/f").unwrap(), b"f");
    });
}

fn adopts_anything() {
    scene(true, 0, async |s| {
        let d = s.own_dir("d").await;
        s.file(d, "f", b"ours").await;
        s.forgets_clients(|| _ = s.theirs("d", "f")).await;
        assert_eq!(s.kernel.fsync_dir(d).await, Err(Errno::EXIST));
        assert_eq!(s.data("d/f").unwrap(), b"theirs");
    });
}
