//! Vectored calls while replies are lost and the server restarts: nothing twice, nothing lost, and what cannot be known is
//! said to be unknown.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use common::proxy::Proxy;
use common::{Rig, shell};
use landfast_client::fs::{NewFile, Nfs, Outcome};
use landfast_client::{NfsUrl, Session, SessionLimits, SessionOptions};
use landfast_nfs::v4::ArgOp;
use landfast_volume::Durability;

const VERSIONS: [&str; 4] = ["4.2", "4.1", "4.0", "3"];
const EACH: usize = 30;

async fn connect(url: &str) -> Nfs {
    let url: NfsUrl = url.parse().unwrap();
    let options = SessionOptions::for_url(&url);
    // Several COMPOUNDs for each call.
    let ask = SessionLimits { ops: 40, ..options.ask };
    Nfs::with(Session::connect(SessionOptions { ask, ..options }).await.unwrap(), &url.path).await.unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Replies are lost.
    Cut,
    /// And the server is killed and started again, with its log.
    Restart,
    /// The same, and it has forgotten everybody.
    Amnesia,
}

/// Names with what became of them: whether that is known, when it is known to be done.
fn judge<T: std::fmt::Debug>(what: &str, outcomes: &[Outcome<T>], may_be_unknown: bool) -> Vec<bool> {
    let known = outcomes.iter().map(|outcome| match outcome {
        Outcome::Committed(_) => true,
        Outcome::Unknown(_) if may_be_unknown => false,
        // EXIST or NOENT here would be our own first time.
        other => panic!("{what}: {other:?} of {outcomes:?}"),
    });
    known.collect()
}

async fn changes_under(version: &str, trouble: Trouble, hold_after: u64) {
    let durability = if trouble == Trouble::Amnesia { Durability::Sync } else { Durability::Log };
    let mut rig = Rig::with(durability).await;
    let addr = rig.addr();
    rig.short_grace_for(version);
    shell(
        &rig.dest(),
        "mkdir old new; echo x > target; for n in $(seq 0 29); do echo $n > old/r$n; echo $n > old/s$n; done",
    );
    let proxy = Proxy::holding(addr).await;
    let nfs = connect(&format!("nfs://{}{}?version={version}", proxy.addr, rig.top(version))).await;
    proxy.hold_after(hold_after);
    let name = |kind: &str, n: usize| format!("{kind}{n}");
    let work = {
        let nfs = nfs.clone();
        tokio::spawn(async move {
            let exclusive =
                |n| NewFile { exclusive: true, ..NewFile::new(name("new/e", n), name("data", n)) };
            let over = |n| NewFile::new(name("new/w", n), name("data", n));
            let (mut exclusives, mut writes) = (nfs.clone().writes(), nfs.clone().writes());
            for n in 0..EACH {
                exclusives.add(exclusive(n)).await;
                writes.add(over(n)).await;
            }
            tokio::join!(
                exclusives.sync(),
                writes.sync(),
                nfs.mkdir((0..EACH).map(|n| name("new/d", n)), 0o755),
                nfs.remove((0..EACH).map(|n| name("old/r", n))),
                nfs.rename((0..EACH).map(|n| (name("old/s", n), name("new/s", n)))),
                nfs.link((0..EACH).map(|n| ("target".to_owned(), name("new/l", n)))),
                nfs.symlinks((0..EACH).map(|n| (name("new/y", n), "text".into()))),
            )
        })
    };
    proxy.held().await;
    if trouble != Trouble::Cut {
        rig.running.take().unwrap().abandon().await;
        rig.start(addr).await;
    }
    proxy.lose();
    let (exclusives, writes, dirs, removed, renamed, links, symlinks) = work.await.unwrap();
    // What the server was killed over may be on its disk without a reply in its log.
    let killed = trouble != Trouble::Cut;
    let (old, new) = (rig.dest().join("old"), rig.dest().join("new"));
    let at = |kind: &str, n: usize| new.join(format!("{kind}{n}"));
    let done = judge(&format!("{version}: exclusive"), &exclusives, killed);
    for n in (0..EACH).filter(|n| done[*n]) {
        assert_eq!(fs::read(at("e", n)).unwrap(), format!("data{n}").as_bytes());
    }
    judge(&format!("{version}: write"), &writes, false);
    for n in 0..EACH {
        assert_eq!(fs::read(at("w", n)).unwrap(), format!("data{n}").as_bytes());
    }
    for (n, known) in judge(&format!("{version}: mkdir"), &dirs, killed).into_iter().enumerate() {
        assert!(!known || at("d", n).is_dir());
    }
    for (n, known) in judge(&format!("{version}: remove"), &removed, killed).into_iter().enumerate() {
        assert!(!known || !old.join(format!("r{n}")).exists());
    }
    for (n, known) in judge(&format!("{version}: rename"), &renamed, killed).into_iter().enumerate() {
        let (there, here) = (at("s", n).exists(), old.join(format!("s{n}")).exists());
        assert!(there != here && (!known || there));
    }
    let linked = judge(&format!("{version}: link"), &links, killed).into_iter().enumerate();
    let names = linked.filter(|(n, known)| {
        assert!(!known || at("l", *n).exists());
        at("l", *n).exists()
    });
    let names = names.count() as u64;
    assert_eq!(fs::metadata(rig.dest().join("target")).unwrap().nlink(), 1 + names);
    for (n, known) in judge(&format!("{version}: symlink"), &symlinks, killed).into_iter().enumerate() {
        assert!(!known || fs::read_link(at("y", n)).unwrap().to_str() == Some("text"));
    }
    assert!(nfs.stats().retransmissions > 0);
    nfs.session().clone().destroy().await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn lost_replies_change_nothing() {
    for (version, hold_after) in VERSIONS.into_iter().zip([4000, 0, 0, 4000]) {
        changes_under(version, Trouble::Cut, hold_after).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_restart_in_the_middle() {
    for (version, hold_after) in VERSIONS.into_iter().zip([0, 4000, 4000, 0]) {
        changes_under(version, Trouble::Restart, hold_after).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_restart_after_which_nobody_is_known() {
    for (version, hold_after) in VERSIONS.into_iter().zip([0, 4000, 4000, 0]) {
        changes_under(version, Trouble::Amnesia, hold_after).await;
    }
}

/// Files are queued in any number; each has its outcome, also those that cannot be written.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn queued_files_are_stable_after_one_sync() {
    for version in VERSIONS {
        let mut rig = Rig::new().await;
        let addr = rig.addr();
        rig.short_grace_for(version);
        let proxy = Proxy::holding(addr).await;
        let nfs = connect(&format!("nfs://{}{}?version={version}", proxy.addr, rig.top(version))).await;
        proxy.hold_after(3000);
        let mut writes = nfs.writes();
        for n in 0..200 {
            let dir = if n % 50 == 49 { "none/" } else { "" };
            assert_eq!(writes.add(NewFile::new(format!("{dir}f{n}"), format!("data {n}"))).await, n);
        }
        // One that takes several WRITEs and a COMMIT, while the server goes and loses what is not stable.
        let large: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
        writes.add(NewFile::new("large", large.clone())).await;
        let syncing = tokio::spawn(async move { (writes.sync().await, writes) });
        proxy.held().await;
        rig.running.take().unwrap().abandon().await;
        rig.start(addr).await;
        proxy.lose();
        let (outcomes, mut writes) = syncing.await.unwrap();
        assert_eq!(outcomes.len(), 201);
        for (n, outcome) in outcomes.iter().enumerate() {
            match outcome {
                Outcome::Committed(_) if n % 50 != 49 => {}
                Outcome::Failed(_) if n % 50 == 49 => {}
                other => panic!("{version}: {n}: {other:?}"),
            }
        }
        for n in (0..200).filter(|n| n % 50 != 49) {
            assert_eq!(fs::read(rig.dest().join(format!("f{n}"))).unwrap(), format!("data {n}").as_bytes());
        }
        assert!(fs::read(rig.dest().join("large")).unwrap() == large, "{version}");
        assert!(writes.is_empty() && writes.sync().await.is_empty());
        writes.add(NewFile::new("later", "x")).await;
        assert!(matches!(writes.sync().await[..], [Outcome::Committed(_)]));
        rig.stop().await;
    }
}

/// `nconnect` in the URL: so many connections, one of them for MOUNT in version 3.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn the_url_says_how_many_connections() {
    let rig = Rig::new().await;
    for (version, count, connections) in [("4.2", 5, 5), ("4.1", 1, 1), ("4.0", 4, 4), ("3", 3, 4)] {
        let proxy = Proxy::holding(rig.addr()).await;
        let top = rig.top(version);
        let nfs = connect(&format!("nfs://{}{top}?version={version}&nconnect={count}", proxy.addr)).await;
        let all: Vec<_> = (0..64)
            .map(|_| {
                let session = nfs.session().clone();
                let ops = vec![ArgOp::Putrootfh, ArgOp::Getattr(landfast_client::ops::STAT)];
                tokio::spawn(async move { session.compound(ops, false).await })
            })
            .collect();
        for one in all {
            one.await.unwrap().unwrap();
        }
        assert_eq!(proxy.connections(), connections, "{version}");
        nfs.session().clone().destroy().await;
    }
    rig.stop().await;
}
