//! A client that locks a million ranges: granted up to a limit, refused with the version's own answer above it, in bounded
//! memory, while others lock as before.

mod common;
mod v40;

use common::lockd::Lockd;
use common::*;
use landfast_nfs::nlm::NlmStat;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_server::limits::{LOCKS_PER_CLIENT_MAX, LOCKS_PER_FILE_MAX};
use v40::*;

/// Ranges of one COMPOUND.
const AT_ONCE: usize = 1000;

/// Memory of this process, bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    statm.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a number") * 4096
}

fn range(i: usize) -> (u64, u64) {
    // Never side by side, so that two never become one.
    (2 * i as u64, 1)
}

fn lock(locker: Locker, (offset, length): (u64, u64)) -> ArgOp {
    ArgOp::Lock(LockArgs { locktype: LockType::Write, reclaim: false, offset, length, locker })
}

/// A client that may send a thousand operations at once, with a lock on the first range of a file.
async fn greedy(rig: &Rig, minor: u32) -> Client {
    let mut raw = rig.raw().await;
    raw.minor = minor;
    let ex = raw.exchange_id(format!("greedy {minor}").as_bytes(), 1).await;
    let mut args = session_args(ex.clientid, ex.sequenceid);
    args.fore_chan_attrs.max_operations = 2 * AT_ONCE as u32;
    let s = raw.create_session(args).await;
    let (session, fore) = (s.sessionid, s.fore_chan_attrs);
    let mut c = Client { raw, id: ex.clientid, session, seq: 0, cachethis: false, flags: s.flags, fore };
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    c
}

async fn first_lock(c: &mut Client, file: &str) -> (FileHandle, Stateid) {
    let (fh, open_stateid) = c.open(file, 3).await;
    let locker = Locker::New { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner: owner(0, b"l") };
    let res = c.last(vec![ArgOp::Putfh(fh.clone()), lock(locker, range(0))]).await;
    (fh, stateid_of(&res))
}

async fn so_many(minor: u32, wanted: usize) {
    let mut rig = Rig::new().await;
    rig.portmapper = lockd::portmapper_port().await;
    rig.restart().await;
    let mut c = greedy(&rig, minor).await;
    let before = resident();
    let mut granted = 0;
    let mut asked = 0;
    for file in ["f0", "f1", "f2"] {
        let (fh, stateid) = match granted < LOCKS_PER_CLIENT_MAX {
            true => first_lock(&mut c, file).await,
            false => break,
        };
        granted += 1;
        let lock_stateid = Stateid { seqid: 0, ..stateid };
        let mut next = 1;
        while asked < wanted {
            let locks = (next..next + AT_ONCE)
                .map(|i| lock(Locker::Existing { lock_stateid, lock_seqid: 0 }, range(i)));
            let ops = std::iter::once(ArgOp::Putfh(fh.clone())).chain(locks).collect();
            let res = c.run(ops).await;
            asked += AT_ONCE;
            let here = res.iter().filter(|r| r.op == OpNum::LOCK && r.status.is_ok()).count();
            (granted, next) = (granted + here, next + here);
            if here < AT_ONCE {
                assert_eq!(res.last().map(|r| r.status), Some(NfsStat::NFS4ERR_SERVERFAULT));
                let full = next == LOCKS_PER_FILE_MAX || granted == LOCKS_PER_CLIENT_MAX;
                assert!(full, "{next} in {file}, {granted} in all");
                // It does not give up: the rest of its million goes to the last file.
                if granted < LOCKS_PER_CLIENT_MAX {
                    break;
                }
            }
        }
        // NLM has the same table, and its own answer.
        if file == "f0" {
            let mut a = Lockd::new(&rig, "a", 2).await;
            let odd = a.bytes(&fh, 1, 2 * next as u64 + 1, 1);
            assert_eq!(a.lock(odd, true).await, NlmStat::DENIED_NOLOCKS);
        }
    }
    assert!(asked >= wanted, "{asked}");
    assert_eq!(granted, LOCKS_PER_CLIENT_MAX);
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "{} MiB", grown >> 20);
    // Others lock as before, also other ranges of another file.
    let mut d = rig.client(b"d").await;
    first_lock(&mut d, "other").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_million_ranges_on_versions_4_1_and_4_2() {
    // The limits are the same, and below both numbers.
    for (minor, wanted) in [(1, 150_000), (2, 1_000_000)] {
        so_many(minor, wanted).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_million_ranges_on_version_4_0() {
    let rig = Rig::new().await;
    let mut c = Client40::new(&rig, b"c").await;
    let (fh, open) = c.open("f", 3, 0).await;
    let seqid = c.next();
    let mut s = stateid_of(&c.on(&fh, c.new_lock(open, seqid, b"l", 1, range(0))).await);
    let (mut granted, mut asked, mut number) = (1, 1, 1);
    let mut refused = 0;
    while asked < 1_000_000 {
        // Each LOCK names the stateid that the one before it will give.
        let at = |k: usize| Stateid { seqid: s.seqid + k as u32, ..s };
        let locks = (0..AT_ONCE).map(|k| relock_op(at(k), number + 1 + k as u32, range(granted + k)));
        let ops = std::iter::once(ArgOp::Putfh(fh.clone())).chain(locks).collect();
        let res = c.run(ops).await;
        asked += AT_ONCE;
        let here = res.iter().filter(|r| r.op == OpNum::LOCK && r.status.is_ok()).count();
        if here > 0 {
            s = stateid_of(&res[here]);
        }
        (granted, number) = (granted + here, number + here as u32);
        if here < AT_ONCE {
            let status = res.last().expect("a result").status;
            assert!(landfast_nfs::v4::valid::is_valid(0, OpNum::LOCK, status), "{status}");
            // Which does not count (RFC 7530 section 9.1.7).
            assert_eq!(status, NfsStat::NFS4ERR_RESOURCE);
            refused += 1;
        }
    }
    assert_eq!(granted, LOCKS_PER_FILE_MAX);
    assert!(refused > 900, "{refused}");
    // All goes at once, and can be had again.
    let res = c.on(&fh, unlock_op(s, number + 1, (0, u64::MAX))).await;
    let s = stateid_of(&res);
    assert_eq!(c.on(&fh, relock_op(s, number + 2, range(7))).await.status, NfsStat::NFS4_OK);
}
