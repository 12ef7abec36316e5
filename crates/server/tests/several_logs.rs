//! A request that changes two exports with a log each, and a power cut that keeps only one log's part of it: its retry is told
//! what is so. A program of its own: flushes are held for the whole process.
#![cfg(debug_assertions)]

mod common;
mod small;

use common::back::{callable, with_back_channel_on};
use common::{Client, PATIENCE, Raw, mkdir, name, on};
use landfast_nfs::v4::args::{CallbackSecParms, GetDirDelegationArgs};
use landfast_nfs::v4::flags::{NOTIFY4_WRITE_DELEGATION, SEQ4_STATUS_RECALLABLE_STATE_REVOKED};
use landfast_nfs::v4::res::GetDirDelegationRes;
use landfast_nfs::v4::{ArgOp, Bitmap, CompoundRes, FileHandle, NfsStat, ResBody};
use landfast_nfs::{PROGRAM, v4};
use landfast_rpc::conn::Target;
use landfast_server::config::{self, Config, ExportConfig};
use landfast_server::{Running, Server, ServerConfig};
use landfast_volume::faults::hold;
use landfast_volume::{OpenError, OpenOptions, Volume};
use landfast_xdr::Decode;
use small::image::{Image, Kernel};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::time::interval;

/// The first two with a log each, the third without.
const EXPORTS: [&str; 3] = ["a", "b", "c"];
/// Which of two flushes is made first is chance; not to have met one of the two orders in so many is none.
const TRIES: usize = 64;

/// Flushes are held for the whole process: one test at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Two exports, each with its log, and one without.
struct Two {
    _alone: tokio::sync::MutexGuard<'static, ()>,
    dir: tempfile::TempDir,
    config: Config,
    running: Option<Running>,
    lease_seconds: u32,
}

impl Two {
    async fn new() -> Two {
        Two::with(90, None).await
    }

    /// With the first log here, the second export gives delegations of directories.
    async fn with(lease_seconds: u32, first_log: Option<PathBuf>) -> Two {
        let _alone = ALONE.lock().await;
        let dir =
            tempfile::Builder::new().prefix("landfast-two-").tempdir_in("/var/tmp").expect("a directory");
        let mut text = "listen = [\"127.0.0.1:0\"]\n".to_owned();
        for name in EXPORTS {
            let path = dir.path().join(name);
            let elsewhere = first_log.clone().filter(|_| name == EXPORTS[0]);
            let log = elsewhere.unwrap_or_else(|| dir.path().join(format!("{name}.log")));
            std::fs::create_dir(&path).expect("the directory");
            let how = match name {
                "c" => "durability = \"sync\"".to_owned(),
                "b" if first_log.is_some() => {
                    format!(
                        "write_delegations = true\nlog = {{ path = \"{}\", size = \"16M\" }}",
                        log.display()
                    )
                }
                _ => format!("log = {{ path = \"{}\", size = \"16M\" }}", log.display()),
            };
            text += &format!(
                "[[export]]\npath = \"{}\"\nname = \"/{name}\"\n{how}\n\
                 clients = [{{ from = \"*\", options = [\"rw\", \"no_root_squash\", \"insecure\"] }}]\n",
                path.display(),
            );
        }
        let config = config::parse(&text).unwrap_or_else(|p| panic!("{p:?}"));
        let mut two = Two { _alone, dir, config, running: None, lease_seconds };
        two.start().await;
        two
    }

    async fn start(&mut self) {
        let mut served = Vec::new();
        for e in &self.config.exports {
            let options = OpenOptions {
                log: e.log.clone(),
                log_size: 16 << 20,
                ..OpenOptions::new(&e.path, e.durability)
            };
            let begun = Instant::now();
            let (volume, recovery) = loop {
                match Volume::open(options.clone()) {
                    Err(OpenError::DirInUse { .. } | OpenError::Log(_)) if begun.elapsed() < PATIENCE => {
                        tokio::task::yield_now().await;
                    }
                    opened => break opened.expect("the volume opens"),
                }
            };
            served.push(e.served(volume, recovery));
        }
        let usual = ServerConfig::of(served, self.config.listen.clone());
        let config = ServerConfig { workers: 4, lease_seconds: self.lease_seconds, ..usual };
        self.running = Some(Server::start(config).await.unwrap_or_else(|e| panic!("{e}")));
    }

    fn server(&self) -> &Running {
        self.running.as_ref().expect("a server")
    }

    fn log(&self, export: usize) -> PathBuf {
        self.dir.path().join(format!("{}.log", EXPORTS[export]))
    }

    fn made(&self, export: usize, name: &str) -> PathBuf {
        self.dir.path().join(EXPORTS[export]).join(name)
    }

    fn flushes(&self, export: usize) -> u64 {
        let volumes = self.server().volumes();
        let path = self.log(export);
        let of = |v: &Volume| v.log_info().is_some_and(|info| info.contains(path.to_str().expect("a path")));
        let volume = volumes.iter().find(|v| of(v)).expect("the export's volume");
        volume.stats().log.expect("a log").batches
    }
}

/// Who asks for both changes in one COMPOUND, and again.
enum Asker {
    /// In a session.
    Session(Box<Client>),
    /// Without, under this transaction id.
    Xid(Raw, u32),
}

impl Asker {
    fn reconnect(&mut self, raw: Raw) {
        match self {
            Asker::Session(c) => c.raw = Raw { minor: c.raw.minor, ..raw },
            Asker::Xid(mine, _) => *mine = Raw { minor: 0, ..raw },
        }
    }

    fn next(&mut self) {
        match self {
            Asker::Session(c) => c.seq += 1,
            Asker::Xid(_, xid) => *xid += 1,
        }
    }

    async fn ask(&self, ops: Vec<ArgOp>) -> CompoundRes {
        match self {
            Asker::Session(c) => {
                let mut res = c.again(ops).await;
                assert_eq!(res.results.remove(0).status, NfsStat::NFS4_OK, "SEQUENCE");
                res
            }
            Asker::Xid(raw, xid) => {
                let to = Target { prog: PROGRAM, vers: v4::VERSION, proc: v4::PROC_COMPOUND };
                let cred = raw.cred.to_opaque();
                let reply = raw.conn.call_as(*xid, to, &cred, vec![raw.encode(ops)], PATIENCE).await;
                CompoundRes::from_bytes(reply.expect("an answer")).expect("a COMPOUND result")
            }
        }
    }

    fn again(&self) -> Asker {
        match self {
            Asker::Session(c) => Asker::Session(c.clone()),
            Asker::Xid(raw, xid) => Asker::Xid(raw.clone(), *xid),
        }
    }
}

type Roots = [FileHandle; 3];

/// The same directory made in these exports, one after the other.
fn made_in(roots: &Roots, exports: &[usize], name: &str) -> Vec<ArgOp> {
    exports.iter().flat_map(|export| [ArgOp::Putfh(roots[*export].clone()), mkdir(name)]).collect()
}

/// `lost` is the export whose log loses its part. With another client, that one has made there what is asked for.
async fn a_retry_is_told_what_is_so(
    two: &mut Two,
    asker: &mut Asker,
    mut other: Option<Asker>,
    roots: &Roots,
    lost: usize,
) {
    let kept = 1 - lost;
    let exports = if other.is_some() { [kept, lost] } else { [0, 1] };
    for attempt in 0..TRIES {
        let name = format!("{lost} {attempt}");
        asker.next();
        let held = hold("log.before-write");
        let before = [0, 1].map(|export| two.flushes(export));
        let others = other.as_mut().map(|other| {
            other.next();
            let (asking, ops) = (other.again(), made_in(roots, &[lost], &name));
            tokio::spawn(async move { asking.ask(ops).await })
        });
        let has = |flushes| tokio::task::block_in_place(|| held.has(flushes, PATIENCE));
        assert!(others.is_none() || has(1), "the other's directory is to be flushed");
        let (asking, ops) = (asker.again(), made_in(roots, &exports, &name));
        let asked = tokio::spawn(async move { asking.ask(ops).await });
        assert!(has(2), "both logs are to be flushed");
        held.pass_one();
        let begun = Instant::now();
        let first = loop {
            match [0, 1].map(|export| two.flushes(export) > before[export]) {
                [true, _] => break 0,
                [_, true] => break 1,
                _ => assert!(begun.elapsed() < PATIENCE, "one of the logs is flushed"),
            }
            tokio::task::yield_now().await;
        };
        assert!(!asked.is_finished(), "it waits for both logs");
        // What the logs have when the power goes now.
        let saved = [0, 1].map(|export| std::fs::read(two.log(export)).expect("a log"));
        tokio::task::block_in_place(|| drop(held));
        let exists = others.is_some();
        if let Some(others) = others {
            assert_eq!(others.await.expect("no panic").status, NfsStat::NFS4_OK);
        }
        let told = asked.await.expect("no panic").status;
        assert_eq!(told, if exists { NfsStat::NFS4ERR_EXIST } else { NfsStat::NFS4_OK });
        if first != kept {
            continue;
        }
        two.running.take().expect("a server").abandon().await;
        for (export, log) in saved.iter().enumerate() {
            std::fs::write(two.log(export), log).expect("a log");
        }
        // The filesystem had not written it either.
        std::fs::remove_dir(two.made(lost, &name)).expect("it was made");
        two.start().await;
        assert!(two.made(kept, &name).exists(), "what is in a log is there");
        asker.reconnect(Raw::new(two.server().local_addr()).await);
        let told = asker.ask(made_in(roots, &exports, &name)).await;
        let statuses: Vec<NfsStat> = told.results.iter().map(|r| r.status).collect();
        println!("without the log of {}: {statuses:?}", EXPORTS[lost]);
        // In order: the handle and the directory of each export; it ends at the first error.
        for (export, made) in exports.iter().zip(statuses.iter().skip(1).step_by(2)) {
            assert!(matches!(*made, NfsStat::NFS4_OK | NfsStat::NFS4ERR_EXIST), "{made:?}");
            let there = two.made(*export, &name).exists();
            assert!(there, "told {made:?} of what was lost: {name} in {}", EXPORTS[*export]);
        }
        // What was answered as a whole is kept as a whole.
        let name = format!("{name} whole");
        asker.next();
        let answered = asker.ask(made_in(roots, &exports, &name)).await;
        assert_eq!(answered.status, NfsStat::NFS4_OK);
        two.running.take().expect("a server").abandon().await;
        two.start().await;
        asker.reconnect(Raw::new(two.server().local_addr()).await);
        let told = asker.ask(made_in(roots, &exports, &name)).await;
        assert_eq!(told.status, NfsStat::NFS4_OK, "its retry is known");
        assert!(two.made(0, &name).exists() && two.made(1, &name).exists());
        return;
    }
    panic!("the log of {} was never flushed first", EXPORTS[kept]);
}

/// One that asks in this version, and the exports.
async fn asker(two: &Two, minor: u32, name: &[u8]) -> (Asker, Roots) {
    let raw = Raw::new(two.server().local_addr()).await;
    let mut client = Client::new(raw.clone(), name).await;
    let roots = [client.handle(&["a"]).await, client.handle(&["b"]).await, client.handle(&["c"]).await];
    let asker = match minor {
        0 => Asker::Xid(Raw { minor: 0, ..raw }, 7),
        _ => {
            client.raw.minor = minor;
            Asker::Session(client.into())
        }
    };
    (asker, roots)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_request_over_two_logs_is_retried_with_the_truth() {
    for minor in [0, 1, 2] {
        for lost in [0, 1] {
            let mut two = Two::new().await;
            let (mut asker, roots) = asker(&two, minor, b"client").await;
            a_retry_is_told_what_is_so(&mut two, &mut asker, None, &roots, lost).await;
            two.running.take().expect("a server").stop().await.expect("a clean stop");
        }
    }
}

/// What it is told of the second export is what another client has done there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_reply_that_tells_of_others_work_in_another_log_is_not_kept_before_that_is_stable() {
    for minor in [0, 1, 2] {
        for lost in [0, 1] {
            let mut two = Two::new().await;
            let (mut client, roots) = asker(&two, minor, b"client").await;
            let (other, _) = asker(&two, 1, b"other").await;
            a_retry_is_told_what_is_so(&mut two, &mut client, Some(other), &roots, lost).await;
            two.running.take().expect("a server").stop().await.expect("a clean stop");
        }
    }
}

/// The reply of a request that ends in an export without a log is kept by another one than those that it changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_third_log_has_the_reply_after_all_effects() {
    for minor in [0, 1, 2] {
        let mut two = Two::new().await;
        let (mut asker, roots) = asker(&two, minor, b"client").await;
        for attempt in 0..TRIES {
            asker.next();
            let held = hold("log.before-write");
            let before = [0, 1].map(|export| two.flushes(export));
            let (asking, ops) = (asker.again(), made_in(&roots, &[1, 2], &attempt.to_string()));
            let asked = tokio::spawn(async move { asking.ask(ops).await });
            assert!(tokio::task::block_in_place(|| held.has(1, PATIENCE)), "a log is to be flushed");
            held.pass_one();
            let begun = Instant::now();
            while two.flushes(1) == before[1] {
                assert_eq!(
                    two.flushes(0),
                    before[0],
                    "the reply is in the log of a, and not the effect in b"
                );
                assert!(begun.elapsed() < PATIENCE, "the log of b is flushed");
                tokio::task::yield_now().await;
            }
            assert!(!asked.is_finished(), "its reply is to be kept, too");
            tokio::task::block_in_place(|| drop(held));
            assert_eq!(asked.await.expect("no panic").status, NfsStat::NFS4_OK);
        }
        two.running.take().expect("a server").stop().await.expect("a clean stop");
    }
}

/// What the test above needs to be worth anything: a server that writes the reply down with the last of its effects fails it.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_reply_that_is_kept_early_is_seen() {
    let this = std::env::current_exe().expect("this program");
    let test = ["--exact", "a_request_over_two_logs_is_retried_with_the_truth"];
    let run =
        Command::new(this).args(test).env("LANDFAST_BUG", "reply-kept-early").output().expect("it runs");
    let told = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && told.contains("of what was lost"), "{told}");
}

/// The log that is to have a revocation fails with it; the next takes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_revocation_that_one_log_does_not_take_goes_into_another() {
    let Some(image) = Image::new(Kernel::Ext4) else { return };
    // The server writes down other things, too, five seconds after its start.
    let mut two = Two::with(4, Some(image.path().join("log"))).await;
    let (raw, mut heard) = callable(two.server().local_addr(), Vec::new()).await;
    let mut c = with_back_channel_on(raw, vec![CallbackSecParms::None]).await;
    let mut rival = Client::new(Raw::new(two.server().local_addr()).await, b"rival").await;
    let mut made = 0;
    let dir = loop {
        made += 1;
        assert!(made < 10_000, "no delegation is given");
        let asked = GetDirDelegationArgs::new(Bitmap::of(&[NOTIFY4_WRITE_DELEGATION]));
        let export = vec![ArgOp::Putrootfh, ArgOp::Lookup(name(EXPORTS[1])), mkdir(&format!("d{made}"))];
        let res = c.run([export, vec![ArgOp::GetDirDelegation(asked), ArgOp::Getfh]].concat()).await;
        match (&res[3].body, &res[4].body) {
            (ResBody::GetDirDelegation(GetDirDelegationRes::Given(_)), ResBody::Getfh(fh)) => {
                break fh.clone();
            }
            (ResBody::GetDirDelegation(_), _) => {}
            other => panic!("{other:?}"),
        }
    };
    let look = ArgOp::Lookup(name("n"));
    assert_eq!(on(&mut rival, &dir, look.clone()).await.status, NfsStat::NFS4ERR_DELAY);
    heard.recv().await.expect("a recall");
    let held = hold("log.before-write");
    let mut renews = interval(Duration::from_millis(100));
    while held.here() == 0 {
        assert_eq!(c.status_flags().await, 0);
        renews.tick().await;
    }
    image.breaks(true);
    drop(held);
    let until = Instant::now() + PATIENCE;
    while on(&mut rival, &dir, look.clone()).await.status == NfsStat::NFS4ERR_DELAY {
        assert!(Instant::now() < until, "it is not revoked");
        c.status_flags().await;
    }
    assert_eq!(c.status_flags().await, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    image.breaks(false);
    // With a log that has failed it says so.
    let _ = two.running.take().expect("a server").stop().await;
    drop(two);
    drop(image);
}

/// What SIGHUP has begun and SIGTERM breaks off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_reload_that_is_dropped_while_it_waits_costs_no_client_its_session() {
    let mut two = Two::new().await;
    let (mut asker, roots) = asker(&two, 1, b"client").await;
    asker.next();
    assert_eq!(asker.ask(made_in(&roots, &[0, 1], "first")).await.status, NfsStat::NFS4_OK);
    let mut more = two.config.clone();
    let path = two.dir.path().join("new");
    std::fs::create_dir(&path).expect("the directory");
    let (name, log) = ("/new".into(), Some(two.dir.path().join("new.log").into()));
    more.exports.push(ExportConfig { path, name, log, ..more.exports[0].clone() });
    let open = |e: &ExportConfig| {
        let options = OpenOptions { log_size: 16 << 20, ..OpenOptions::new(&e.path, e.durability) };
        Volume::open(OpenOptions { log: e.log.clone(), ..options })
    };
    let held = hold("recovery.emptied");
    let starts = async {
        while held.here() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = two.server().reload(&two.config, &more, open) => panic!("{done:?}"),
        () = starts => {}
    }
    drop(held);
    two.running.take().expect("a server").stop().await.expect("a clean stop");
    two.start().await;
    assert_eq!((two.server().restored().sessions, two.server().restored().reclaiming), (1, 0));
    asker.reconnect(Raw::new(two.server().local_addr()).await);
    asker.next();
    assert_eq!(asker.ask(made_in(&roots, &[0, 1], "second")).await.status, NfsStat::NFS4_OK);
    two.running.take().expect("a server").stop().await.expect("a clean stop");
}
