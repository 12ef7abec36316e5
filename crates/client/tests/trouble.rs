//! `untar` while connections are cut and the server restarts.

mod common;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use common::proxy::Proxy;
use common::{Rig, shell, tree};
use landfast_client::put::{Progress, PutOptions, Report, Silent, Tuning};
use landfast_client::untar::{Archive, run};
use tokio::sync::Notify;

const MANY: &str = r"
    mkdir t; for d in $(seq 10); do mkdir t/d$d; for f in $(seq 40); do printf $d.$f > t/d$d/f$f; done; ln t/d$d/f1 t/d$d/h; done
    head -c 3000000 /dev/urandom > t/large; ln -s x t/d1/s; tar --format=posix -cf a.tar t
";

fn small_compounds() -> PutOptions {
    let tuning = Tuning { members_per_compound: 8, compounds_in_flight: 4, ..Tuning::default() };
    PutOptions { tuning, ..PutOptions::default() }
}

const VERSIONS: [&str; 4] = ["4.2", "4.1", "4.0", "3"];

fn check(report: &Report, work: &Path, rig: &Rig) {
    assert!(report.complete(), "{:?} {:?}", report.stopped, report.failed);
    assert_eq!(
        (report.counts.files, report.counts.hard_links, report.counts.symlinks, report.counts.dirs),
        (401, 10, 1, 11)
    );
    assert_eq!(tree(&work.join("t")), tree(&rig.dest().join("t")));
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn cut_connections_cost_a_retransmission_and_no_file() {
    for version in VERSIONS {
        let rig = Rig::new().await;
        let work = rig.work();
        shell(&work, MANY);
        let proxy = Proxy::cutting(rig.addr(), 1000).await;
        let url = format!("nfs://{}{}?version={version}", proxy.addr, rig.top(version)).parse().unwrap();
        let source = Archive::file(work.join("a.tar"));
        let report = run(small_compounds(), source, &url, Arc::new(Silent)).await.unwrap();
        assert!(proxy.cuts() > 3, "{version}: {} cuts", proxy.cuts());
        assert!(report.retransmissions > 0 && report.session_renewals == 0, "{version}: {report:?}");
        check(&report, &work, &rig);
        rig.stop().await;
    }
}

/// Says when so many members are done.
struct When {
    members: u64,
    reached: Notify,
}

impl Progress for When {
    fn committed(&self, members: u64, _bytes: u64) {
        if members >= self.members {
            self.reached.notify_one();
        }
    }
}

/// Bytes of the archive that come only when they are let through.
const HELD_BACK: usize = 64 << 10;

/// An archive whose end comes only when it is let through.
struct HeldBack {
    archive: std::io::Cursor<Vec<u8>>,
    let_through: std::sync::mpsc::Receiver<()>,
}

impl Read for HeldBack {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let (at, held) = (self.archive.position() as usize, self.archive.get_ref().len() - HELD_BACK);
        if at == held {
            // A sender that has gone lets through as well.
            let _ = self.let_through.recv();
        }
        let end = if at < held { out.len().min(held - at) } else { out.len() };
        Read::read(&mut self.archive, &mut out[..end])
    }
}

/// The server ends while the archive is not yet read to its end, so the restart is in the middle of the work for certain.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_server_restart_costs_no_file() {
    for (version, clean) in VERSIONS.map(|v| (v, false)).into_iter().chain([("4.2", true)]) {
        let mut rig = Rig::new().await;
        rig.short_grace_for(version);
        let work = rig.work();
        shell(&work, MANY);
        let addr = rig.addr();
        let url = format!("nfs://{addr}{}?version={version}", rig.top(version)).parse().unwrap();
        let when = Arc::new(When { members: 100, reached: Notify::new() });
        let archive = std::io::Cursor::new(std::fs::read(work.join("a.tar")).unwrap());
        let (rest, let_through) = std::sync::mpsc::channel();
        let source = Archive::reader(HeldBack { archive, let_through });
        let progress = when.clone();
        let untar = tokio::spawn(async move { run(small_compounds(), source, &url, progress).await });
        when.reached.notified().await;
        let running = rig.running.take().unwrap();
        match clean {
            true => drop(running.stop().await.unwrap()),
            false => running.abandon().await,
        }
        rig.start(addr).await;
        assert!(!untar.is_finished());
        drop(rest);
        let report = untar.await.unwrap().unwrap();
        check(&report, &work, &rig);
        rig.stop().await;
    }
}

/// Without a log the server forgets sessions: what was under way is looked at again.
#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_restart_that_loses_sessions() {
    let mut rig = Rig::with(landfast_volume::Durability::Sync).await;
    let work = rig.work();
    shell(&work, MANY);
    let addr = rig.addr();
    let url = format!("nfs://{addr}/dest").parse().unwrap();
    let when = Arc::new(When { members: 60, reached: Notify::new() });
    let (source, progress) = (Archive::file(work.join("a.tar")), when.clone());
    let untar = tokio::spawn(async move { run(small_compounds(), source, &url, progress).await });
    when.reached.notified().await;
    rig.running.take().unwrap().abandon().await;
    rig.start(addr).await;
    let report = untar.await.unwrap().unwrap();
    assert!(report.session_renewals > 0, "{report:?}");
    check(&report, &work, &rig);
    rig.stop().await;
}
