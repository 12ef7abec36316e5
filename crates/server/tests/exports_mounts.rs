//! Mount points within an export: the export ends there, and what is mounted may be an export of its own.

use crate::common;

use common::v3::{V3, at};
use common::*;
use landfast_nfs::mount::MntRes;
use landfast_nfs::v3::{Call, NfsStat3};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::*;
use landfast_server::exports::Features;
use landfast_server::exports::rules::{ClientSpec, Rule, Rules};
use landfast_server::{Running, Served, Server, ServerConfig};
use landfast_volume::{Durability, OpenOptions, Volume};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A filesystem in memory on a directory; unmounted with this.
struct Mounted(PathBuf);

impl Mounted {
    fn on(dir: &Path) -> Mounted {
        let done = Command::new("mount").args(["-t", "tmpfs", "landfast-test"]).arg(dir).status();
        assert!(done.expect("mount").success());
        Mounted(dir.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(done.expect("umount").success());
    }
}

/// A directory with a mount point in it, and files on both sides.
fn place() -> (tempfile::TempDir, Mounted) {
    let dir =
        tempfile::Builder::new().prefix("landfast-mounts-").tempdir_in("/var/tmp").expect("a directory");
    let mnt = dir.path().join("outer/mnt");
    std::fs::create_dir_all(&mnt).expect("directories");
    std::fs::write(mnt.join("below"), b"").expect("a file");
    std::fs::write(dir.path().join("outer/plain"), b"").expect("a file");
    let mounted = Mounted::on(&mnt);
    std::fs::write(mnt.join("inside"), b"").expect("a file");
    (dir, mounted)
}

async fn serve(dir: &Path, exports: &[(&str, &str)]) -> Running {
    let served = exports.iter().map(|(path, name)| {
        let path = dir.join(path);
        let opened = Volume::open(OpenOptions::new(&path, Durability::Sync));
        let (volume, recovery) = opened.unwrap_or_else(|e| panic!("{e}"));
        let rules = Rules(vec![Rule::open(vec![ClientSpec::Anyone])]);
        Served {
            volume,
            recovery,
            path,
            name: name.into(),
            rules,
            manage_gids: false,
            features: Features::default(),
        }
    });
    let listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let config = ServerConfig { workers: 4, ..ServerConfig::of(served.collect(), vec![listen]) };
    Server::start(config).await.unwrap_or_else(|e| panic!("{e}"))
}

async fn listed(c: &mut Client, dir: &FileHandle) -> Vec<(String, Option<u32>)> {
    let ops = vec![ArgOp::Putfh(dir.clone()), readdir_op(0, 4096, 65536, &[n::RDATTR_ERROR, n::SIZE])];
    let ResBody::Readdir(page) = c.last(ops).await.body else { panic!("no entries") };
    assert!(page.eof);
    let values = |e: &landfast_nfs::v4::res::DirEntry| {
        AttrValues::from_fattr(&e.attrs).expect("values").rdattr_error.map(|s| s.0)
    };
    let mut all: Vec<_> =
        page.entries.iter().map(|e| (String::from_utf8_lossy(&e.name).into_owned(), values(e))).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_export_ends_at_a_mount_point() {
    let (dir, mounted) = place();
    let running = serve(dir.path(), &[("outer", "/")]).await;
    let mut c = Client::new(Raw::new(running.local_addr()).await, b"c").await;
    let root = c.handle(&[]).await;
    let here = |more: ArgOp| vec![ArgOp::Putfh(root.clone()), more];
    // The name is there, and leads nowhere.
    assert_eq!(
        listed(&mut c, &root).await,
        [("mnt".to_owned(), Some(NfsStat::NFS4ERR_ACCESS.0)), ("plain".to_owned(), Some(0))]
    );
    assert_eq!(c.status(here(ArgOp::Lookup(name("mnt")))).await, NfsStat::NFS4ERR_ACCESS);
    let open = open_op(b"o", "mnt", 1, 0, OpenHow::NoCreate);
    assert_eq!(c.status(here(open)).await, NfsStat::NFS4ERR_ACCESS);
    assert_eq!(c.status(here(mkdir("mnt"))).await, NfsStat::NFS4ERR_EXIST);
    assert_eq!(c.status(here(ArgOp::Remove(name("mnt")))).await, NfsStat::NFS4ERR_FILE_OPEN);
    let rename = ArgOp::Rename(RenameArgs { oldname: name("mnt"), newname: name("away") });
    let ops = vec![ArgOp::Putfh(root.clone()), ArgOp::Savefh, rename];
    assert_eq!(c.status(ops).await, NfsStat::NFS4ERR_FILE_OPEN);
    let mut three = V3::connect(running.local_addr()).await;
    three.root = three.mounted(b"/").await.handle;
    assert_eq!(three.status(Call::Lookup(at(&three.root, "mnt"))).await, NfsStat3::ACCES);
    assert_eq!(three.status(Call::Rmdir(at(&three.root, "mnt"))).await, NfsStat3::ACCES);
    let path = dir.path().join("outer/mnt");
    let path = path.to_str().expect("a path");
    assert!(!matches!(three.mnt(path.as_bytes()).await, MntRes::Ok(_)), "no handle of it by MOUNT either");
    let page = three.readdirplus(&three.root, 0, (4096, 16384)).await;
    let entry = page.entries.0.iter().find(|e| e.name == "mnt").expect("the name");
    assert!(entry.attrs.is_none() && entry.object.is_none());
    // What is below it is there again when nothing is mounted any more.
    drop(mounted);
    let below = c.handle(&["mnt"]).await;
    assert_eq!(listed(&mut c, &below).await, [("below".to_owned(), Some(0))]);
    // A handle from before leads to what it led to, not to what is mounted there now.
    let _mounted = Mounted::on(&dir.path().join("outer/mnt"));
    assert_eq!(listed(&mut c, &below).await, [("below".to_owned(), Some(0))]);
    running.stop().await.expect("a clean stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_is_mounted_in_an_export_may_be_an_export_of_its_own() {
    let (dir, _mounted) = place();
    let running = serve(dir.path(), &[("outer", "/outer"), ("outer/mnt", "/inner")]).await;
    let mut c = Client::new(Raw::new(running.local_addr()).await, b"c").await;
    let (outer, inner) = (c.handle(&["outer"]).await, c.handle(&["inner"]).await);
    assert_eq!(listed(&mut c, &inner).await, [("inside".to_owned(), Some(0))]);
    let cross = vec![ArgOp::Putfh(outer.clone()), ArgOp::Lookup(name("mnt"))];
    assert_eq!(c.status(cross).await, NfsStat::NFS4ERR_ACCESS, "each by its own name");
    let fsid = async |c: &mut Client, fh| c.attrs(fh, Bitmap::of(&[n::FSID])).await.fsid.expect("one");
    assert_ne!(fsid(&mut c, &outer).await, fsid(&mut c, &inner).await);
    // MOUNT finds the inner one by its path, too: the longest that is an export's.
    let mut three = V3::connect(running.local_addr()).await;
    let path = dir.path().join("outer/mnt");
    let path = path.to_str().expect("a path");
    for by in [path, "/inner"] {
        three.root = three.mounted(by.as_bytes()).await.handle;
        assert_eq!(three.status(Call::Lookup(at(&three.root, "inside"))).await, NfsStat3::OK, "{by}");
    }
    running.stop().await.expect("a clean stop");
}
