//! Several exports on one server: names, rules, flavors, handles, reload, state that survives in several logs.
//!
//! One machine is two clients: 127.0.0.1 and ::1.

use crate::common;

use common::lockd::text;
use common::v3::V3;
use common::*;
use landfast_nfs::mount::{self, ExportEntry, MntRes, MountStat};
use landfast_nfs::nlm::{self, Lock, NlmStat};
use landfast_nfs::nsm;
use landfast_nfs::v3;
use landfast_nfs::v3::types::List;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::*;
use landfast_rpc::conn::Target;
use landfast_rpc::{Credential, udp};
use landfast_server::config::{self, Config, ExportConfig};
use landfast_server::{ReloadError, Running, Server, ServerConfig};
use landfast_volume::{OpenError, OpenOptions, RecoveryReport, Volume};
use landfast_xdr::{Bytes, Decode, Encode};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn open(e: &ExportConfig) -> Result<(Volume, RecoveryReport), OpenError> {
    Volume::open(OpenOptions {
        log: e.log.clone(),
        log_size: e.log_size,
        ..OpenOptions::new(&e.path, e.durability)
    })
}

/// A file without which a volume that is open does not start; and where it is meanwhile.
fn marker(export: &Path) -> [PathBuf; 2] {
    ["marker", "aside"].map(|name| export.join(".landfast").join(name))
}

/// Opens a volume so that it does not start. The next one does.
pub(crate) fn open_broken(e: &ExportConfig) -> Result<(Volume, RecoveryReport), OpenError> {
    let [there, aside] = marker(&e.path);
    if aside.exists() {
        std::fs::rename(&aside, &there).expect("put back");
    }
    let opened = open(e);
    std::fs::rename(there, aside).expect("put aside");
    opened
}

/// A server as a configuration file says, in a directory of its own.
pub(crate) struct Many {
    dir: tempfile::TempDir,
    pub(crate) config: Config,
    pub(crate) running: Option<Running>,
}

impl Many {
    /// `exports`: name, and the rest of the table after path, name and log. One whose name begins with `sync` has no log, with `large` one of 64 MiB; one whose
    /// name begins with `held` gives delegations.
    pub(crate) async fn new(exports: &[(&str, &str)]) -> Many {
        let dir =
            tempfile::Builder::new().prefix("landfast-exports-").tempdir_in("/var/tmp").expect("a directory");
        let config = Many::config(dir.path(), exports);
        let mut many = Many { dir, config, running: None };
        many.start().await;
        many
    }

    fn config(dir: &Path, exports: &[(&str, &str)]) -> Config {
        let mut text = "listen = [\"127.0.0.1:0\", \"[::1]:0\"]\n".to_owned();
        for (name, rest) in exports {
            let path = dir.join(name);
            std::fs::create_dir_all(&path).expect("the directory");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("open to all");
            let (path, log) = (path.display(), dir.join(format!("{}.log", name.replace('/', "-"))));
            let name = name.replace('/', "-");
            text += &format!("[[export]]\npath = \"{path}\"\nname = \"/x/{name}\"\n");
            text += &if name.starts_with("sync") {
                "durability = \"sync\"\n".to_owned()
            } else {
                let size = if name.starts_with("large") { "64M" } else { "16M" };
                format!("log = {{ path = \"{}\", size = \"{size}\" }}\n", log.display())
            };
            if name.starts_with("held") {
                text += "delegations = \"write\"\nwrite_delegations = true\n";
            }
            text += &format!("clients = [{rest}]\n");
        }
        config::parse(&text).unwrap_or_else(|p| panic!("{p:?}"))
    }

    pub(crate) async fn start(&mut self) {
        let running = self.try_start().await.unwrap_or_else(|e| panic!("{e}"));
        self.running = Some(running);
    }

    /// Starts with what can be opened.
    async fn start_without(&mut self) {
        let (mut served, mut unavailable) = (Vec::new(), Vec::new());
        for e in &self.config.exports {
            match open(e) {
                Ok((volume, recovery)) => served.push(e.served(volume, recovery)),
                Err(err) => unavailable.push(e.unavailable(&err)),
            }
        }
        assert_eq!((served.len(), unavailable.len()), (1, 1));
        let config = ServerConfig {
            workers: 4,
            unavailable,
            metrics: Some(([127, 0, 0, 1], 0).into()),
            ..ServerConfig::of(served, self.config.listen.clone())
        };
        self.running = Some(Server::start(config).await.unwrap_or_else(|e| panic!("{e}")));
    }

    async fn try_start(&self) -> Result<Running, landfast_server::StartError> {
        let served = self.config.exports.iter().map(|e| {
            let (volume, recovery) = open(e).expect("the volume opens");
            e.served(volume, recovery)
        });
        let served = served.collect();
        Server::start(ServerConfig { workers: 4, ..ServerConfig::of(served, self.config.listen.clone()) })
            .await
    }

    pub(crate) fn server(&self) -> &Running {
        self.running.as_ref().expect("a server")
    }

    pub(crate) async fn reload(
        &mut self,
        exports: &[(&str, &str)],
    ) -> Result<landfast_server::Reloaded, ReloadError> {
        self.reload_with(exports, open).await
    }

    pub(crate) async fn reload_with(
        &mut self,
        exports: &[(&str, &str)],
        open: fn(&ExportConfig) -> Result<(Volume, RecoveryReport), OpenError>,
    ) -> Result<landfast_server::Reloaded, ReloadError> {
        let new = Many::config(self.dir.path(), exports);
        let done = self.server().reload(&self.config, &new, open).await?;
        self.config = new;
        Ok(done)
    }

    pub(crate) async fn v4(&self, owner: &[u8]) -> Client {
        Client::new(Raw::new(self.server().local_addrs()[0]).await, owner).await
    }

    async fn v6(&self, owner: &[u8]) -> Client {
        Client::new(Raw::new(self.server().local_addrs()[1]).await, owner).await
    }

    /// A call by datagram to each address, with what is answered.
    async fn datagrams(&self, prog: u32, vers: u32, proc: u32, args: impl Encode) -> Vec<Bytes> {
        let mut replies = Vec::new();
        for addr in self.server().local_addrs() {
            let (target, waits) = (Target { prog, vers, proc }, [Duration::from_secs(5); 4]);
            let reply = udp::call(*addr, target, &user(0).to_opaque(), &args.to_bytes(), &waits).await;
            replies.push(reply.unwrap_or_else(|e| panic!("{addr}: {e:?}")));
        }
        replies
    }

    pub(crate) async fn restart(&mut self) {
        self.running.take().expect("a server").stop().await.expect("a clean stop");
        self.start().await;
    }

    async fn stop(mut self) {
        self.running.take().expect("a server").stop().await.expect("a clean stop");
    }
}

pub(crate) const RW: &str = "{ from = \"*\", options = [\"rw\", \"no_root_squash\", \"insecure\"] }";

fn lookups(path: &[&str]) -> Vec<ArgOp> {
    std::iter::once(ArgOp::Putrootfh).chain(path.iter().map(|p| ArgOp::Lookup(name(p)))).collect()
}

fn then(mut ops: Vec<ArgOp>, more: impl IntoIterator<Item = ArgOp>) -> Vec<ArgOp> {
    ops.extend(more);
    ops
}

async fn list(c: &mut Client, path: &[&str]) -> Vec<String> {
    let ops = then(lookups(path), [readdir_op(0, 4096, 65536, &[n::FILEID, n::FSID])]);
    match c.last(ops).await.body {
        ResBody::Readdir(r) => {
            let mut all: Vec<_> =
                r.entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
            all.sort();
            all
        }
        other => panic!("READDIR gave {other:?}"),
    }
}

async fn owner(c: &mut Client, path: &[&str]) -> String {
    let fh = c.handle(path).await;
    let values = c.attrs(&fh, Bitmap::of(&[n::OWNER])).await;
    String::from_utf8_lossy(&values.owner.expect("an owner")).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn each_client_sees_what_it_may_use() {
    let both = "{ from = \"127.0.0.1\", options = [\"rw\", \"no_root_squash\", \"insecure\"] }, \
                { from = \"::1\", options = [\"insecure\"] }";
    let one = "{ from = \"127.0.0.0/8\", options = [\"rw\", \"insecure\"] }";
    let low = "{ from = \"*\", options = [\"rw\"] }";
    let many = Many::new(&[("both", both), ("one", one), ("low", low)]).await;
    let (mut a, mut b) = (many.v4(b"a").await, many.v6(b"b").await);
    assert_eq!(list(&mut a, &[]).await, ["x"]);
    assert_eq!(list(&mut a, &["x"]).await, ["both", "one"], "nobody here comes from a port below 1024");
    assert_eq!(list(&mut b, &["x"]).await, ["both"]);
    assert_eq!(b.status(lookups(&["x", "one"])).await, NfsStat::NFS4ERR_NOENT);
    let handle = a.handle(&["x", "one"]).await;
    let getattr = || vec![ArgOp::Putfh(handle.clone()), ArgOp::Getattr(Bitmap::of(&[n::TYPE]))];
    assert_eq!(a.status(getattr()).await, NfsStat::NFS4_OK);
    assert_eq!(b.status(getattr()).await, NfsStat::NFS4ERR_ACCESS);

    // Read-only for one of them.
    assert_ok(&a.run(then(lookups(&["x", "both"]), [mkdir("d")])).await);
    let at = || lookups(&["x", "both"]);
    assert_eq!(b.status(then(at(), [ArgOp::Lookup(name("d"))])).await, NfsStat::NFS4_OK);
    assert_eq!(b.status(then(at(), [mkdir("e")])).await, NfsStat::NFS4ERR_ROFS);
    assert_eq!(b.status(then(at(), [ArgOp::Remove(name("d"))])).await, NfsStat::NFS4ERR_ROFS);
    let set = ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(0o700) });
    assert_eq!(b.status(then(at(), [set])).await, NfsStat::NFS4ERR_ROFS);
    let how = || OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
    assert_eq!(b.status(then(at(), [open_op(b"o", "f", 2, 0, how())])).await, NfsStat::NFS4ERR_ROFS);
    assert_ok(&a.run(then(at(), [open_op(b"o", "f", 3, 0, how())])).await);
    let plain = || OpenHow::NoCreate;
    assert_eq!(b.status(then(at(), [open_op(b"o", "f", 2, 0, plain())])).await, NfsStat::NFS4ERR_ROFS);
    assert_eq!(b.status(then(at(), [open_op(b"o", "f", 1, 0, plain())])).await, NfsStat::NFS4_OK);
    match b.last(then(at(), [ArgOp::Access(0x3f)])).await.body {
        ResBody::Access(r) => {
            assert_eq!(r.access & (flags::ACCESS4_MODIFY | flags::ACCESS4_EXTEND | flags::ACCESS4_DELETE), 0)
        }
        other => panic!("ACCESS gave {other:?}"),
    }
    // Nothing is made in the pseudo root.
    assert_eq!(a.status(then(lookups(&["x"]), [mkdir("e")])).await, NfsStat::NFS4ERR_ROFS);
    many.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn squashed_callers_are_somebody_else() {
    let root = "{ from = \"*\", options = [\"rw\", \"insecure\"], anonuid = 77 }";
    let all = "{ from = \"*\", options = [\"rw\", \"all_squash\", \"insecure\"], anonuid = 1234, sec = [\"sys\", \"none\"] }";
    let many = Many::new(&[("root", root), ("all", all), ("none", RW)]).await;
    let mut c = many.v4(b"c").await;
    for export in ["root", "all", "none"] {
        c.raw.cred = user(0);
        assert_ok(&c.run(then(lookups(&["x", export]), [mkdir("by-root")])).await);
        c.raw.cred = user(1000);
        assert_ok(&c.run(then(lookups(&["x", export]), [mkdir("by-user")])).await);
    }
    assert_eq!(owner(&mut c, &["x", "root", "by-root"]).await, "77");
    assert_eq!(owner(&mut c, &["x", "root", "by-user"]).await, "1000");
    assert_eq!(owner(&mut c, &["x", "all", "by-root"]).await, "1234");
    assert_eq!(owner(&mut c, &["x", "all", "by-user"]).await, "1234");
    assert_eq!(owner(&mut c, &["x", "none", "by-root"]).await, "0");
    c.raw.cred = Credential::None;
    assert_ok(&c.run(then(lookups(&["x", "all"]), [mkdir("by-none")])).await);
    assert_eq!(owner(&mut c, &["x", "all", "by-none"]).await, "1234");
    many.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_2_6_3_1_wrongsec() {
    const WRONGSEC: NfsStat = NfsStat::NFS4ERR_WRONGSEC;
    let many = Many::new(&[("sys", RW)]).await;
    let mut c = many.v4(b"c").await;
    let fh = c.handle(&["x", "sys"]).await;
    let put = || ArgOp::Putfh(fh.clone());
    c.raw.cred = Credential::None;
    let getattr = || ArgOp::Getattr(Bitmap::of(&[n::TYPE]));
    let res = c.run(vec![put(), getattr()]).await;
    assert_eq!((res.len(), res[0].status), (1, WRONGSEC), "PUTFH itself, before anything else");
    assert_eq!(c.status(vec![put()]).await, NfsStat::NFS4_OK, "put filehandle + nothing");
    assert_eq!(c.status(vec![put(), ArgOp::Savefh]).await, NfsStat::NFS4_OK);
    assert_eq!(c.status(vec![put(), ArgOp::Putrootfh]).await, NfsStat::NFS4_OK, "two put filehandles");
    let res = c.run(vec![put(), ArgOp::Lookup(name("d"))]).await;
    assert_eq!((res.len(), res[1].status), (2, WRONGSEC), "LOOKUP says it");
    let res = c.run(vec![put(), open_op(b"o", "f", 1, 0, OpenHow::NoCreate)]).await;
    assert_eq!((res.len(), res[1].status), (2, WRONGSEC), "OPEN by name says it");
    assert_eq!(c.status(vec![put(), ArgOp::Lookupp]).await, NfsStat::NFS4_OK, "the pseudo root takes any");
    assert_eq!(c.status(lookups(&["x", "sys"])).await, WRONGSEC);
    let res = c.run(vec![put(), ArgOp::Savefh, ArgOp::Putrootfh, ArgOp::Restorefh, getattr()]).await;
    assert_eq!((res.len(), res[3].status), (4, WRONGSEC), "RESTOREFH is one, too");
    for ops in [
        vec![put(), ArgOp::SecinfoNoName(flags::SECINFO_STYLE4_CURRENT_FH)],
        vec![put(), ArgOp::Secinfo(name("d"))],
        then(lookups(&["x"]), [ArgOp::Secinfo(name("sys"))]),
    ] {
        match c.last(ops).await.body {
            ResBody::Secinfo(all) => assert_eq!(all, [SecInfo::Flavor(flags::AUTH_SYS)]),
            other => panic!("SECINFO gave {other:?}"),
        }
    }
    many.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_handle_of_one_export_opens_no_other() {
    let many = Many::new(&[("a", RW), ("b", RW)]).await;
    let mut c = many.v4(b"c").await;
    let (a, b) = (c.handle(&["x", "a"]).await, c.handle(&["x", "b"]).await);
    let mut forged = a.0.to_vec();
    forged[3..7].copy_from_slice(&b.0[3..7]);
    assert_eq!(c.status(vec![ArgOp::Putfh(FileHandle(forged.into()))]).await, NfsStat::NFS4ERR_BADHANDLE);
    let put = |fh: &FileHandle| ArgOp::Putfh(fh.clone());
    assert_ok(
        &c.run(vec![put(&a), open_op(b"o", "f", 3, 0, OpenHow::Create(CreateHow::Unchecked(mode(0o644))))])
            .await,
    );
    let f = c.handle(&["x", "a", "f"]).await;
    let link = vec![put(&f), ArgOp::Savefh, put(&b), ArgOp::Link(name("f"))];
    assert_eq!(c.status(link).await, NfsStat::NFS4ERR_XDEV);
    let rename = ArgOp::Rename(RenameArgs { oldname: name("f"), newname: name("f") });
    assert_eq!(c.status(vec![put(&a), ArgOp::Savefh, put(&b), rename]).await, NfsStat::NFS4ERR_XDEV);
    // One COMPOUND may change both, and its reply waits for both.
    assert_ok(&c.run(vec![put(&a), mkdir("d"), put(&b), mkdir("d"), put(&a), mkdir("e")]).await);
    // Above an export's root is the pseudo root's directory, and what is mounted is told from what it is mounted on.
    let above = c.last(vec![put(&a), ArgOp::Lookupp, ArgOp::Getfh]).await.body;
    assert_eq!(above, ResBody::Getfh(c.handle(&["x"]).await));
    let wanted = Bitmap::of(&[n::FSID, n::FILEID, n::MOUNTED_ON_FILEID]);
    let (root, x) = (c.attrs(&a, wanted).await, c.handle(&["x"]).await);
    let x = c.attrs(&x, wanted).await;
    assert_ne!(root.fsid, x.fsid);
    assert_ne!(root.fsid, c.attrs(&b, wanted).await.fsid);
    assert_ne!(root.fileid, root.mounted_on_fileid);
    many.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_export_within_another_is_refused() {
    let mut many = Many::new(&[("a", RW)]).await;
    let mut c = many.v4(b"c").await;
    match many.reload(&[("a", RW), ("a/inner", RW)]).await {
        Err(e @ ReloadError::Within { .. }) => assert!(e.to_string().contains("lies within"), "{e}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(list(&mut c, &["x"]).await, ["a"], "nothing has changed");
    many.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_reload_drops_no_client() {
    let mut many = Many::new(&[("a", RW), ("b", RW)]).await;
    let mut c = many.v4(b"c").await;
    let (a, b) = (c.handle(&["x", "a"]).await, c.handle(&["x", "b"]).await);
    let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
    let opened = c.run(vec![ArgOp::Putfh(b.clone()), open_op(b"o", "f", 3, 0, how), ArgOp::Getfh]).await;
    assert_ok(&opened);
    // Somebody is at work in both all the time.
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut load = Vec::new();
    for (i, fh) in [a.clone(), b.clone()].into_iter().enumerate() {
        let mut worker = many.v4(format!("worker {i}").as_bytes()).await;
        let stopped = stopped.clone();
        load.push(tokio::spawn(async move {
            let mut statuses = std::collections::HashMap::<NfsStat, usize>::new();
            let mut k = 0;
            while !*stopped.borrow() {
                k += 1;
                let made = worker.status(vec![ArgOp::Putfh(fh.clone()), mkdir(&format!("d{k}"))]).await;
                *statuses.entry(made).or_default() += 1;
            }
            statuses
        }));
    }
    // A bad one changes nothing.
    let missing = ExportConfig {
        path: "/var/tmp/landfast/no such directory".into(),
        name: "/y".into(),
        ..many.config.exports[0].clone()
    };
    let mut bad = many.config.clone();
    bad.exports.push(missing);
    bad.exports.remove(0);
    assert!(matches!(many.server().reload(&many.config, &bad, open).await, Err(ReloadError::Open { .. })));
    assert_eq!(list(&mut c, &["x"]).await, ["a", "b"]);

    // The first is read-only from now on, the second goes, a third comes.
    let ro = "{ from = \"*\", options = [\"insecure\", \"no_root_squash\"] }";
    let done = many.reload(&[("a", ro), ("c", RW)]).await.expect("taken");
    assert_eq!((done.added.len(), done.removed.len()), (1, 1));
    assert_eq!((done.needs_restart.len(), done.not_clean.clone()), (0, Vec::<String>::new()));
    assert_eq!(list(&mut c, &["x"]).await, ["a", "c"]);
    assert_eq!(c.status(vec![ArgOp::Putfh(a.clone()), mkdir("late")]).await, NfsStat::NFS4ERR_ROFS);
    assert_eq!(c.status(vec![ArgOp::Putfh(b.clone())]).await, NfsStat::NFS4ERR_STALE);
    assert_ok(&c.run(then(lookups(&["x", "c"]), [mkdir("d")])).await);
    assert_eq!(many.server().stats().opens, 0, "what was open on it is closed");
    stop.send(true).expect("workers");
    for (i, worker) in load.into_iter().enumerate() {
        let statuses = worker.await.expect("no connection was lost");
        let after = [NfsStat::NFS4ERR_ROFS, NfsStat::NFS4ERR_STALE][i];
        assert!(statuses.keys().all(|s| *s == NfsStat::NFS4_OK || *s == after), "{statuses:?}");
        assert!(statuses.contains_key(&NfsStat::NFS4_OK), "{statuses:?}");
    }
    // It is free, and was stopped cleanly; and it can come back, with the handles that clients hold.
    let done = many.reload(&[("a", RW), ("b", RW)]).await.expect("taken");
    assert_eq!((done.added.len(), done.removed.len()), (1, 1));
    assert_eq!(c.status(vec![ArgOp::Putfh(b), mkdir("again")]).await, NfsStat::NFS4_OK);
    assert_eq!(c.status(vec![ArgOp::Putfh(a), mkdir("again")]).await, NfsStat::NFS4_OK);
    many.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn replies_survive_a_crash_in_whichever_log() {
    let mut many = Many::new(&[("a", RW), ("b", RW)]).await;
    let mut c = many.v4(b"c").await;
    let (a, b) = (c.handle(&["x", "a"]).await, c.handle(&["x", "b"]).await);
    for dir in [&a, &b] {
        let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
        let make = [open_op(b"o", "f", 3, 0, how), close_op(Stateid::CURRENT)];
        assert_ok(&c.run(then(vec![ArgOp::Putfh(dir.clone())], make)).await);
    }
    for life in 0..4 {
        let (fh, other) = ([&a, &b][life % 2], [&b, &a][life % 2]);
        // The other volume, changed last, keeps nothing of that: the reply stands beside the directory.
        let unstable = ArgOp::Write(WriteArgs {
            stateid: Stateid::ANONYMOUS,
            offset: 0,
            stable: StableHow::Unstable,
            data: name("content"),
        });
        let ops = || {
            vec![
                ArgOp::Putfh(fh.clone()),
                mkdir(&format!("d{life}")),
                ArgOp::Putfh(other.clone()),
                ArgOp::Lookup(name("f")),
                unstable.clone(),
            ]
        };
        let first = c.run(ops()).await;
        assert_ok(&first);
        many.running.take().expect("a server").abandon().await;
        many.start().await;
        assert_eq!(many.server().restored().sessions, 1, "life {life}");
        c.raw.conn = Raw::new(many.server().local_addrs()[0]).await.conn;
        // The answer was lost: the same again gets the same, not EXIST.
        let again = c.again(ops()).await;
        assert_eq!(again.results[1..], first[..], "life {life}");
    }
    // Without one of the volumes the session goes on; what was on the other is not there.
    many.running.take().expect("a server").stop().await.expect("a clean stop");
    many.config.exports.remove(1);
    many.start().await;
    assert_eq!(many.server().restored().sessions, 1);
    many.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_5_2_export_lists_each_exports_clients_and_mnt_gives_what_it_takes() {
    let several = "{ from = [\"127.0.0.1\", \"192.168.7.0/24\"], options = [\"insecure\"] }, \
                   { from = [\"::1\", \"127.0.0.1\"], options = [\"insecure\"], sec = [\"none\"] }, \
                   { from = [\"build?.example.org\", \"@builders\"] }";
    let two = "{ from = \"127.0.0.1\", options = [\"insecure\"], sec = [\"none\", \"sys\"] }";
    let many = Many::new(&[("several", several), ("two", two), ("all", RW)]).await;
    let [v4, v6] = [many.server().local_addrs()[0], many.server().local_addrs()[1]];
    let (a, b) = (V3::connect(v4).await, V3::connect(v6).await);
    let list = a.mount(mount::proc::EXPORT, Bytes::new()).await.expect("exports");
    let list = List::<ExportEntry>::from_bytes(list).expect("a list").0;
    let row = |directory: &str, groups: &[&str]| ExportEntry {
        directory: name(directory),
        groups: List(groups.iter().map(|g| name(g)).collect()),
    };
    // What names the asker, and nothing of others.
    let one = ["127.0.0.1"];
    assert_eq!(list, [row("/x/several", &one), row("/x/two", &one), row("/x/all", &["*"])]);
    let list = b.mount(mount::proc::EXPORT, Bytes::new()).await.expect("exports");
    let list = List::<ExportEntry>::from_bytes(list).expect("a list").0;
    assert_eq!(list, [row("/x/several", &["::1"]), row("/x/all", &["*"])]);
    // By the rule of each; also where it does not take the flavor of this call.
    assert_eq!(a.mounted(b"/x/several").await.auth_flavors, [1]);
    assert_eq!(b.mounted(b"/x/several").await.auth_flavors, [0]);
    assert_eq!(a.mounted(b"/x/two").await.auth_flavors, [1, 0]);
    assert_eq!(b.mnt(b"/x/two").await, MntRes::Fail(MountStat::ACCES));
    many.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_stranger_does_not_hear_from_mnt_what_exports_are_called() {
    let many = Many::new(&[("one", "{ from = \"192.0.2.1\", options = [\"insecure\"] }")]).await;
    let stranger = V3::connect(many.server().local_addrs()[0]).await;
    for path in [&b"/x/one"[..], b"/x/one/below", b"/x/other", b"/x", b"/"] {
        assert_eq!(stranger.mnt(path).await, MntRes::Fail(MountStat::ACCES), "{}", path.escape_ascii());
    }
    many.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn the_lock_manager_takes_datagrams_at_each_address() {
    let many = Many::new(&[("one", RW)]).await;
    assert_eq!(
        many.datagrams(nlm::PROGRAM, nlm::VERSION, nlm::proc::NULL, ()).await,
        [Bytes::new(), Bytes::new()]
    );
    many.stop().await;
}

/// A whole file.
fn lock_args(file: &v3::FileHandle, exclusive: bool) -> nlm::LockArgs {
    nlm::LockArgs {
        cookie: text("c"),
        block: false,
        exclusive,
        lock: Lock {
            caller_name: text("host"),
            fh: Opaque1024(file.0.clone()),
            oh: text("1@host"),
            svid: 1,
            offset: 0,
            length: 0,
        },
        reclaim: false,
        state: 3,
    }
}

/// What the host at each address is told.
async fn lock_stats(many: &Many, proc: u32, args: impl Encode) -> Vec<NlmStat> {
    let replies = many.datagrams(nlm::PROGRAM, nlm::VERSION, proc, args).await;
    replies.into_iter().map(|r| nlm::Res::from_bytes(r).expect("a result").stat).collect()
}

/// There is no lease, so nobody else can free them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_host_that_no_rule_names_any_more_gives_up_its_locks() {
    let another = "{ from = \"192.0.2.1\", options = [\"rw\", \"insecure\"] }";
    // The rules of the export, while others admit it, and all rules.
    for (locked, other) in [(another, RW), (another, another)] {
        for how in [nlm::proc::UNLOCK, nlm::proc::FREE_ALL, nsm::proc::NOTIFY] {
            let mut many = Many::new(&[("a", RW), ("b", RW)]).await;
            let c = V3::connect(many.server().local_addrs()[0]).await;
            let mut at = c.clone();
            at.root = c.mounted(b"/x/a").await.handle;
            let file = at.file("f").await;
            let shared = lock_args(&file, false);
            assert_eq!(lock_stats(&many, nlm::proc::LOCK, shared.clone()).await, [NlmStat::GRANTED; 2]);
            many.reload(&[("a", locked), ("b", other)]).await.expect("taken");
            match how {
                nlm::proc::UNLOCK => {
                    let unlock = nlm::UnlockArgs { cookie: text("c"), lock: shared.lock };
                    assert_eq!(lock_stats(&many, how, unlock).await, [NlmStat::GRANTED; 2]);
                }
                nlm::proc::FREE_ALL => {
                    let args = nlm::Notify { name: text("host"), state: 5 };
                    many.datagrams(nlm::PROGRAM, nlm::VERSION, how, args).await;
                }
                _ => {
                    let args = nsm::StatChange { mon_name: text("host"), state: 5 };
                    many.datagrams(nsm::PROGRAM, nsm::VERSION, how, args).await;
                }
            }
            many.reload(&[("a", RW), ("b", RW)]).await.expect("taken");
            let exclusive = lock_args(&file, true);
            let told = lock_stats(&many, nlm::proc::LOCK, exclusive).await;
            assert_eq!(told, [NlmStat::GRANTED, NlmStat::DENIED], "{how}: nothing else is locked");
            many.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nlm_hosts_are_known_after_a_crash_where_only_some_exports_have_a_log() {
    let mut many = Many::new(&[("sync", RW), ("logged", RW)]).await;
    let c = V3::connect(many.server().local_addrs()[0]).await;
    let dir = c.mounted(b"/x/sync").await.handle;
    let mut at = c.clone();
    at.root = dir;
    let file = at.file("f").await;
    let lock = |reclaim, exclusive| nlm::LockArgs { reclaim, ..lock_args(&file, exclusive) };
    let ask = async |many: &Many, args| lock_stats(many, nlm::proc::LOCK, args).await;
    // 127.0.0.1 and ::1 are two hosts; both may read.
    assert_eq!(ask(&many, lock(false, false)).await, [NlmStat::GRANTED; 2]);
    many.running.take().expect("a server").abandon().await;
    many.start().await;
    assert_eq!(ask(&many, lock(false, false)).await, [NlmStat::DENIED_GRACE_PERIOD; 2]);
    assert_eq!(ask(&many, lock(true, false)).await, [NlmStat::GRANTED; 2]);
    many.stop().await;
}

/// What the metrics say.
fn metrics(of: &Running) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(of.metrics_addr().expect("metrics")).expect("connected");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_export_that_cannot_be_recovered_is_missed_by_its_own_clients_only() {
    let exports = [("a", RW), ("b", RW)];
    let mut many = Many::new(&exports).await;
    let mut c = many.v4(b"c").await;
    assert_ok(&c.run(then(lookups(&["x", "b"]), [mkdir("made")])).await);
    let (in_a, in_b) = (c.handle(&["x", "a"]).await, c.handle(&["x", "b", "made"]).await);
    many.running.take().expect("a server").abandon().await;
    // What was acknowledged stands in a log that is not to be read.
    let log = many.dir.path().join("b.log");
    let whole = std::fs::read(&log).expect("the log");
    std::fs::write(&log, vec![0xa5; whole.len()]).expect("damaged");
    many.start_without().await;
    let mut c = many.v4(b"d").await;
    assert_eq!(c.status(lookups(&["x", "a"])).await, NfsStat::NFS4_OK);
    assert_eq!(c.status(vec![ArgOp::Putfh(in_a.clone())]).await, NfsStat::NFS4_OK);
    // Its name and its handles ask to wait, to whoever may use it; who lists is kept waiting by nothing.
    assert_eq!(c.status(lookups(&["x", "b"])).await, NfsStat::NFS4ERR_DELAY);
    assert_eq!(c.status(vec![ArgOp::Putfh(in_b.clone())]).await, NfsStat::NFS4ERR_DELAY);
    assert_eq!(list(&mut c, &["x"]).await, ["a"]);
    let three = V3::connect(many.server().local_addrs()[0]).await;
    let getattr = || v3::Call::Getattr(v3::FileHandle(in_b.0.clone()));
    assert_eq!(three.status(getattr()).await, v3::NfsStat3::JUKEBOX);
    assert!(matches!(three.mnt(b"/x/b").await, MntRes::Fail(MountStat::SERVERFAULT)));
    assert!(matches!(three.mnt(b"/x/a").await, MntRes::Ok(_)));
    // A handle of nobody's is still one.
    let mut strange = in_b.0.to_vec();
    strange[3] ^= 1;
    let strange = FileHandle(strange.into());
    assert_eq!(c.status(vec![ArgOp::Putfh(strange)]).await, NfsStat::NFS4ERR_BADHANDLE);
    let (page, b) = (metrics(many.server()), many.dir.path().join("b"));
    for row in ["unavailable", "failed"] {
        let row = format!("landfast_volume_{row}{{export=\"{}\"}} 1", b.display());
        assert!(page.lines().any(|l| l == row), "{row} in {page}");
    }
    // A reload while it is not mended leaves it so, and takes the rest.
    let done = many.reload(&exports).await.expect("taken");
    assert!(matches!(&done.unavailable[..], [(path, _)] if *path == b), "{:?}", done.unavailable);
    assert_eq!(c.status(lookups(&["x", "b"])).await, NfsStat::NFS4ERR_DELAY);
    std::fs::write(&log, whole).expect("mended");
    let done = many.reload(&exports).await.expect("taken");
    assert_eq!((done.added, done.unavailable.len()), (vec![b], 0));
    assert_eq!(c.status(vec![ArgOp::Putfh(in_b.clone())]).await, NfsStat::NFS4_OK, "recovered");
    assert_eq!(three.status(getattr()).await, v3::NfsStat3::OK);
    assert_eq!(list(&mut c, &["x"]).await, ["a", "b"]);
    many.stop().await;
}

/// It can be opened, and then it takes no snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_export_that_does_not_start_is_missed_by_its_own_clients_only() {
    let exports = [("a", RW), ("b", RW)];
    let mut many = Many::new(&exports).await;
    let mut c = many.v4(b"c").await;
    assert_ok(&c.run(then(lookups(&["x", "b"]), [mkdir("made")])).await);
    let in_b = c.handle(&["x", "b", "made"]).await;
    many.running.take().expect("a server").abandon().await;
    let [a, b] = [0, 1].map(|n| &many.config.exports[n]);
    let served = [(a, open(a)), (b, open_broken(b))].map(|(e, opened)| {
        let (volume, recovery) = opened.expect("it opens");
        e.served(volume, recovery)
    });
    let (b, config) = (b.path.clone(), ServerConfig::of(served.into(), many.config.listen.clone()));
    many.running =
        Some(Server::start(ServerConfig { workers: 4, ..config }).await.expect("it starts with the other"));
    let goes_on = async |many: &Many, c: &mut Client| {
        assert_eq!((many.server().restored().sessions, many.server().restored().reclaiming), (1, 0));
        c.raw.conn = Raw::new(many.server().local_addrs()[0]).await.conn;
        assert_eq!(c.status(lookups(&["x", "a"])).await, NfsStat::NFS4_OK, "its session goes on");
    };
    goes_on(&many, &mut c).await;
    assert_eq!(c.status(lookups(&["x", "b"])).await, NfsStat::NFS4ERR_DELAY);
    assert_eq!(c.status(vec![ArgOp::Putfh(in_b.clone())]).await, NfsStat::NFS4ERR_DELAY);
    // A reload while it is not mended leaves it so, and takes the rest.
    let done = many.reload_with(&exports, open_broken).await.expect("taken");
    assert!(matches!(&done.unavailable[..], [(path, _)] if *path == b), "{:?}", done.unavailable);
    assert_eq!(c.status(vec![ArgOp::Putfh(in_b.clone())]).await, NfsStat::NFS4ERR_DELAY);
    // The log that is there has all that clients hold.
    many.running.take().expect("a server").abandon().await;
    let config = many.config.clone();
    many.config.exports.truncate(1);
    many.start().await;
    goes_on(&many, &mut c).await;
    many.running.take().expect("a server").stop().await.expect("a clean stop");
    many.config = config;
    let [there, aside] = marker(&b);
    std::fs::rename(aside, there).expect("mended");
    many.start().await;
    goes_on(&many, &mut c).await;
    assert_eq!(c.status(vec![ArgOp::Putfh(in_b)]).await, NfsStat::NFS4_OK);
    many.stop().await;
}

/// What clients hold stands in each log. How much that may be is decided at the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_reload_brings_in_no_log_that_what_clients_hold_may_not_fit_into() {
    let mut many = Many::new(&[("large", RW)]).await;
    let mut c = many.v4(b"c").await;
    match many.reload(&[("large", RW), ("b", RW)]).await {
        Err(e @ ReloadError::SmallLog { .. }) => {
            let words = e.to_string();
            let parts = ["/b: ", "at least 63 MiB", "landfast log resize", "restart"];
            assert!(parts.iter().all(|part| words.contains(part)), "{words}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(list(&mut c, &["x"]).await, ["large"], "nothing has changed");
    many.reload(&[("large", RW), ("large2", RW)]).await.expect("a log of the same size is taken");
    many.stop().await;

    // A log that cannot be read at the start counts, too.
    let exports = [("large", RW), ("b", RW)];
    let mut many = Many::new(&exports).await;
    many.running.take().expect("a server").stop().await.expect("a clean stop");
    let (log, aside) = (many.dir.path().join("b.log"), many.dir.path().join("aside"));
    std::fs::rename(&log, &aside).expect("taken away");
    std::fs::create_dir(&log).expect("something else in its place");
    many.start_without().await;
    std::fs::remove_dir(&log).expect("empty");
    std::fs::rename(&aside, &log).expect("put back");
    let done = many.reload(&exports).await.expect("taken");
    assert_eq!((done.added.len(), done.unavailable), (1, Vec::new()));
    many.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_unavailable_export_without_a_log_does_not_keep_a_reload_from_the_others() {
    let mut many = Many::new(&[("a", RW), ("sync", RW)]).await;
    many.running.take().expect("a server").stop().await.expect("a clean stop");
    let (there, aside) = (many.dir.path().join("sync"), many.dir.path().join("aside"));
    std::fs::rename(&there, &aside).expect("taken away");
    many.start_without().await;
    let config = many.config.clone();
    let done = many.server().reload(&config, &config, open).await.expect("taken");
    assert_eq!((done.added.len(), done.unavailable.len()), (0, 1));
    std::fs::rename(&aside, &there).expect("put back");
    let done = many.server().reload(&config, &config, open).await.expect("taken");
    assert_eq!((done.added, done.unavailable.len()), (vec![there], 0));
    many.stop().await;
}
