//! The export goes away under the server: deleted, moved, unmounted. Each version and each protocol beside NFS gets an answer,
//! nothing is made where the export is not, and who does not need the tree is served as before.

use crate::common;
use crate::small;
use crate::v40;

use common::lockd::Lockd;
use common::v3::{self as three, V3};
use common::*;
use landfast_nfs::mount::MntRes;
use landfast_nfs::nlm::NlmStat;
use landfast_nfs::v3::args::{CreateHow as How3, MkdirArgs, ReaddirArgs};
use landfast_nfs::v3::types::StableHow as Stable3;
use landfast_nfs::v3::{Call, NfsStat3};
use landfast_nfs::v4::*;
use small::image::Kernel;
use small::on_an_image;
use std::process::Command;
use v40::Client40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_export_that_is_deleted_is_stale_for_version_3_mount_and_nlm() {
    let mut rig = Rig::new().await;
    rig.portmapper = lockd::portmapper_port().await;
    rig.restart().await;
    let c = V3::new(&rig).await;
    let mut zero = Client40::new(&rig, b"zero").await;
    let (fh, s) = zero.open("f", 3, 0).await;
    let f = landfast_nfs::v3::FileHandle(fh.0.clone());
    let d = c.dir("d").await;
    let mut a = Lockd::new(&rig, "a", 2).await;
    assert_eq!(a.lock(a.bytes(&fh, 1, 0, 1), true).await, NlmStat::GRANTED);
    std::fs::remove_dir_all(rig.export()).expect("the export is gone");
    let plain = three::mode(0o644);
    for dir in [&c.root, &d] {
        for call in [
            three::create(dir, "n", How3::Guarded(plain.clone())),
            Call::Mkdir(MkdirArgs { at: three::at(dir, "n"), attrs: plain.clone() }),
            Call::Remove(three::at(dir, "f")),
        ] {
            let number = call.number();
            let status = c.status(call).await;
            let gone = [NfsStat3::STALE, NfsStat3::NOENT, NfsStat3::IO];
            assert!(gone.contains(&status), "procedure {number} gave {status}");
        }
        let list =
            Call::Readdir(ReaddirArgs { dir: dir.clone(), cookie: 0, cookieverf: [0; 8], count: 4096 });
        let status = c.status(list).await;
        assert!(matches!(status, NfsStat3::STALE | NfsStat3::IO | NfsStat3::OK), "READDIR gave {status}");
    }
    // A file that somebody has open is there until it is closed.
    let status = c.status(Call::Getattr(f.clone())).await;
    assert!(matches!(status, NfsStat3::OK | NfsStat3::STALE), "{status}");
    let status = zero.status(vec![ArgOp::Putrootfh, mkdir("n")]).await;
    assert!(matches!(status, NfsStat::NFS4ERR_STALE | NfsStat::NFS4ERR_NOENT), "{status}");
    // Locks and opens are given back, clients renew, exports are listed; a mount has an answer.
    assert_eq!(a.unlock(a.bytes(&fh, 1, 0, 1)).await, NlmStat::GRANTED);
    let seqid = zero.next();
    assert_eq!(zero.on(&fh, v40::close_seq(s, seqid)).await.status, NfsStat::NFS4_OK);
    assert_eq!(zero.renew().await, NfsStat::NFS4_OK);
    assert!(c.mount(landfast_nfs::mount::proc::EXPORT, landfast_xdr::Bytes::new()).await.is_ok());
    let _: MntRes = c.mnt(b"/").await;
    assert!(!matches!(c.mnt(b"/d").await, MntRes::Ok(_)), "a directory that is gone is mounted");
    assert!(!rig.export().exists(), "nothing was made in its place");
}

/// Handles lead to objects, not to paths: who moves the directory moves nothing away from the clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_export_that_is_moved_is_served_where_it_went() {
    let mut rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let mut four = rig.client(b"c").await;
    let f = c.file("f").await;
    let elsewhere = rig.dir.path().join("elsewhere");
    std::fs::rename(rig.export(), &elsewhere).expect("moved");
    std::fs::create_dir(rig.export()).expect("another directory in its place");
    c.write(&f, 0, b"content", Stable3::FileSync).await;
    assert_ok(&four.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    assert_eq!(std::fs::read(elsewhere.join("f")).expect("the file"), b"content");
    assert!(elsewhere.join("d").is_dir());
    let strangers = std::fs::read_dir(rig.export()).expect("the other directory").count();
    assert_eq!(strangers, 0, "nothing is made in a directory that is not the export");
    // Back in its place after a crash, all is there.
    rig.running.take().expect("a server").abandon().await;
    std::fs::remove_dir(rig.export()).expect("the other directory goes");
    std::fs::rename(&elsewhere, rig.export()).expect("moved back");
    rig.start().await;
    let c = V3::new(&rig).await;
    assert_eq!(c.read(&f, 0, 100).await.data[..], b"content"[..]);
    c.lookup(&c.root, "d").await;
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_export_that_is_unmounted_is_served_until_the_server_stops() {
    let Some((image, mut rig)) = on_an_image(Kernel::Ext4).await else { return };
    let c = V3::new(&rig).await;
    let mut four = rig.client(b"c").await;
    let f = c.file("f").await;
    let lazily = Command::new("umount").arg("--lazy").arg(image.path()).output();
    assert!(lazily.is_ok_and(|o| o.status.success()), "umount");
    assert!(!rig.export().exists());
    // The filesystem lives as long as the server holds on to it: what is promised is on it, and nothing is beside it.
    c.write(&f, 0, b"content", Stable3::FileSync).await;
    assert_ok(&four.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    assert_eq!(c.read(&f, 0, 100).await.data[..], b"content"[..]);
    assert_eq!(std::fs::read_dir(image.path()).expect("the mount point").count(), 0);
    rig.running.take().expect("a server").stop().await.expect("a clean stop");
    // Mounted again, it is served again, with the same handles.
    drop(rig.running.take());
    let mut image = image;
    image.remount();
    rig.start().await;
    let c = V3::new(&rig).await;
    assert_eq!(c.read(&f, 0, 100).await.data[..], b"content"[..]);
    c.lookup(&c.root, "d").await;
    drop(rig);
    drop(image);
}
