//! A volume that was served without its log for a while, and then with it again: what that log knows of calls is out of date.

use crate::common;

use common::v3::{self as c3, V3};
use common::*;
use landfast_nfs::v3::{self, Call, FileHandle, NfsStat3};
use landfast_nfs::{PROGRAM, v4::NfsStat};
use landfast_rpc::conn::Target;
use landfast_volume::Durability;
use landfast_xdr::{Decode, Encode};

const XID: u32 = 4711;

async fn remove(c: &V3, dir: &FileHandle, name: &str) -> NfsStat3 {
    let call = Call::Remove(c3::at(dir, name));
    let to = Target { prog: PROGRAM, vers: v3::VERSION, proc: call.number() };
    let cred = c.cred.to_opaque();
    let reply = c.conn.call_as(XID, to, &cred, vec![call.to_bytes()], PATIENCE).await.expect("an answer");
    NfsStat3::from_bytes(reply.slice(..4)).expect("a status")
}

async fn served(rig: &mut Rig, durability: Durability) {
    rig.running.take().expect("a server").stop().await.expect("a clean stop");
    rig.durability = durability;
    rig.start().await;
}

/// `started` says whether the server with the log came as far as serving before the one that is asked; else it died just
/// before.
async fn old_replies_are_not_given(without: Durability, died_before: bool) {
    let mut rig = Rig::new().await;
    let c = V3::new(&rig).await;
    c.file("f").await;
    assert_eq!(remove(&c, &c.root, "f").await, NfsStat3::OK);
    let mut session = rig.client(b"session").await;
    assert_ok(&session.run(vec![landfast_nfs::v4::ArgOp::Putrootfh, mkdir("d")]).await);

    // The same log in between: both are known.
    served(&mut rig, Durability::Log).await;
    assert_eq!(remove(&V3::new(&rig).await, &c.root, "f").await, NfsStat3::OK, "the first reply");
    session.raw = rig.raw().await;
    assert_eq!(session.sequence_status().await, NfsStat::NFS4_OK);

    served(&mut rig, without).await;
    let c = V3::new(&rig).await;
    c.file("f").await;
    rig.running.take().expect("a server").stop().await.expect("a clean stop");
    rig.durability = Durability::Log;
    if died_before {
        // It opens, and goes before it serves anything.
        let options = landfast_volume::OpenOptions {
            log_size: 16 << 20,
            ..landfast_volume::OpenOptions::with_log(rig.export(), rig.dir.path().join("log"))
        };
        let (volume, recovery) = landfast_volume::Volume::open(options).expect("it opens");
        assert_eq!(recovery.notes, Vec::<Vec<u8>>::new(), "nothing of then is told");
        drop(volume);
    }
    rig.start().await;
    let c = V3::new(&rig).await;
    let told = remove(&c, &c.root, "f").await;
    let there = rig.export().join("f").exists();
    assert!(told == NfsStat3::OK && !there, "a new call got an old reply: {told:?}, there: {there}");
    session.raw = rig.raw().await;
    assert_eq!(session.sequence_status().await, NfsStat::NFS4ERR_BADSESSION, "a session of then");

    // From here on it is known again, also after a crash.
    rig.crash().await;
    c3_known(&V3::new(&rig).await, &c.root).await;
}

async fn c3_known(c: &V3, root: &FileHandle) {
    assert_eq!(remove(c, root, "f").await, NfsStat3::OK, "its first reply");
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_time_without_the_log_makes_its_replies_old() {
    for (without, died_before) in
        [(Durability::Sync, false), (Durability::Sync, true), (Durability::Unsafe, false)]
    {
        old_replies_are_not_given(without, died_before).await;
    }
}

/// What the test above needs to be worth anything: a server that believes an old log fails it.
#[cfg(debug_assertions)]
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_old_reply_is_seen() {
    let this = std::env::current_exe().expect("this program");
    let test = ["--exact", "log_again::a_time_without_the_log_makes_its_replies_old"];
    let run = std::process::Command::new(this)
        .args(test)
        .env("LANDFAST_BUG", "old-reply-kept")
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && told.contains("a new call got an old reply"), "{told}");
}
