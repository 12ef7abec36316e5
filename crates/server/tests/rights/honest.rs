//! What honest clients do, and must go on to: several users on one session, modes that change under open files, files that only
//! their owner may use, root.

use super::victim::*;
use crate::common::{assert_ok, fattr, mode, read_op, write_op};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags::{OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE};
use landfast_nfs::v4::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

fn create(file_mode: u32) -> OpenHow {
    OpenHow::Create(CreateHow::Guarded(mode(file_mode)))
}

fn chmod(file_mode: u32) -> ArgOp {
    ArgOp::Setattr(SetattrArgs { stateid: Stateid::ANONYMOUS, attrs: mode(file_mode) })
}

fn put(fh: &FileHandle) -> ArgOp {
    ArgOp::Putfh(fh.clone())
}

fn commit() -> ArgOp {
    ArgOp::Commit(CommitArgs { offset: 0, count: 0 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn the_owner_goes_on_whatever_becomes_of_the_mode() {
    let rig = Rig::new("log").await;
    for minor in [0, 1, 2] {
        let mut wire = rig.from(HONEST).await;
        let mut party = Party::new(&mut wire, minor, format!("honest-{minor}").as_bytes()).await;
        for (begin, later) in [(0o444, 0o444), (0o644, 0o400), (0o600, 0), (0, 0)] {
            let file = format!("{minor}-{begin:o}-{later:o}");
            let opened = party.open(&mut wire, 1000, &file, OPEN4_SHARE_ACCESS_BOTH, create(begin)).await;
            let (fh, stateid, ..) = opened.expect("the file is made");
            let all = [
                vec![put(&fh), write_op(stateid, 0, b"one")],
                vec![put(&fh), chmod(later)],
                vec![put(&fh), write_op(stateid, 3, b"two"), read_op(stateid, 0, 100), commit()],
                vec![
                    put(&fh),
                    ArgOp::Setattr(SetattrArgs {
                        stateid,
                        attrs: fattr(AttrValues { size: Some(5), ..AttrValues::default() }),
                    }),
                ],
            ];
            for ops in all {
                assert_ok(&party.run(&mut wire, 1000, ops).await);
            }
            assert_eq!(std::fs::read(rig.path(&file)).expect("the file"), b"onetw");
            // Write-back of what another process has written under another open, or on behalf of root.
            let theirs = party.open(&mut wire, 0, &file, OPEN4_SHARE_ACCESS_BOTH, OpenHow::NoCreate).await;
            let (_, roots, ..) = theirs.expect("root opens it");
            for (uid, stateid) in [(1000, roots), (0, stateid)] {
                assert_ok(&party.run(&mut wire, uid, vec![put(&fh), write_op(stateid, 0, b"on")]).await);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn who_loses_the_right_loses_it_under_an_open_file_at_once_and_gets_it_back() {
    let rig = Rig::new("log").await;
    for minor in [0, 1, 2] {
        let mut wire = rig.from(HONEST).await;
        let mut party = Party::new(&mut wire, minor, format!("honest-{minor}").as_bytes()).await;
        let file = format!("shared-{minor}");
        let opened = party.open(&mut wire, 1000, &file, OPEN4_SHARE_ACCESS_BOTH, create(0o666)).await;
        let (fh, ..) = opened.expect("the file is made");
        let theirs = party.open(&mut wire, 2000, &file, OPEN4_SHARE_ACCESS_BOTH, OpenHow::NoCreate).await;
        let (_, stateid, ..) = theirs.expect("everybody may");
        let write = vec![put(&fh), write_op(stateid, 0, b"x")];
        let read = vec![put(&fh), read_op(stateid, 0, 1)];
        for (file_mode, reads, writes) in
            [(0o666, true, true), (0o644, true, false), (0o600, false, false), (0o606, true, true)]
        {
            assert_ok(&party.run(&mut wire, 1000, vec![put(&fh), chmod(file_mode)]).await);
            // Twice: what was found out a moment ago must not be worth more, either.
            for _ in 0..2 {
                let is = |allowed| if allowed { NfsStat::NFS4_OK } else { NfsStat::NFS4ERR_ACCESS };
                assert_eq!(party.status(&mut wire, 2000, write.clone()).await, is(writes), "{file_mode:o}");
                assert_eq!(party.status(&mut wire, 2000, read.clone()).await, is(reads), "{file_mode:o}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn several_users_of_one_session_each_have_their_own() {
    let rig = Rig::new("log").await;
    for minor in [0, 1, 2] {
        let mut wire = rig.from(HONEST).await;
        let mut party = Party::new(&mut wire, minor, format!("honest-{minor}").as_bytes()).await;
        let mut open = Vec::new();
        for uid in [1000, 2000, 0, 3000] {
            let file = format!("{minor}-of-{uid}");
            let opened = party.open(&mut wire, uid, &file, OPEN4_SHARE_ACCESS_BOTH, create(0o600)).await;
            open.push((uid, opened.expect("his own")));
        }
        for round in 0..3 {
            for (uid, (fh, stateid, ..)) in &open {
                let ops = vec![put(fh), write_op(*stateid, round, b"x"), read_op(*stateid, 0, 9)];
                assert_ok(&party.run(&mut wire, *uid, ops).await);
            }
        }
        // Root, which no rule squashes here, uses everybody's.
        for (_, (fh, stateid, ..)) in &open {
            let ops = vec![put(fh), write_op(*stateid, 0, b"x"), read_op(*stateid, 0, 9), commit()];
            assert_ok(&party.run(&mut wire, 0, ops).await);
        }
        // One user's program ends, and the client closes its files as another.
        for (_, (fh, stateid, _, seqid)) in open {
            let close = ArgOp::Close(CloseArgs { seqid: seqid + 1, open_stateid: stateid });
            assert_ok(&party.run(&mut wire, 4000, vec![put(&fh), close]).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_program_that_may_only_be_run_is_read_and_not_written() {
    let rig = Rig::new("log").await;
    std::fs::write(rig.path("program"), b"#!/bin/true").expect("a file");
    chown(rig.path("program"), Some(1000), Some(1000)).expect("an owner");
    std::fs::set_permissions(rig.path("program"), PermissionsExt::from_mode(0o711)).expect("a mode");
    for minor in [0, 1, 2] {
        let mut wire = rig.from(ROOT_SQUASH).await;
        let mut party = Party::new(&mut wire, minor, format!("honest-{minor}").as_bytes()).await;
        let opened = party.open(&mut wire, 2000, "program", OPEN4_SHARE_ACCESS_READ, OpenHow::NoCreate).await;
        let (fh, stateid, ..) = opened.expect("it may be run");
        for stateid in [stateid, Stateid::ANONYMOUS] {
            assert_ok(&party.run(&mut wire, 2000, vec![put(&fh), read_op(stateid, 0, 100)]).await);
            // A page of it for another user's process comes over this open, too.
            assert_ok(&party.run(&mut wire, 3000, vec![put(&fh), read_op(stateid, 0, 100)]).await);
        }
        let write = party.open(&mut wire, 2000, "program", OPEN4_SHARE_ACCESS_WRITE, OpenHow::NoCreate).await;
        assert_eq!(write.err(), Some(NfsStat::NFS4ERR_ACCESS));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_is_written_is_written_by_the_caller() {
    // The kernel takes set-user-ID away from a file that somebody writes who is not root: it must know who does.
    let rig = Rig::new("log").await;
    for minor in [0, 1, 2] {
        let mut wire = rig.from(HONEST).await;
        let mut party = Party::new(&mut wire, minor, format!("honest-{minor}").as_bytes()).await;
        let file = format!("program-{minor}");
        let opened = party.open(&mut wire, 0, &file, OPEN4_SHARE_ACCESS_BOTH, create(0o777)).await;
        let (fh, roots, ..) = opened.expect("root's");
        assert_ok(&party.run(&mut wire, 0, vec![put(&fh), chmod(0o4777)]).await);
        assert_ok(&party.run(&mut wire, 0, vec![put(&fh), write_op(roots, 0, b"root's")]).await);
        let mode = || std::fs::metadata(rig.path(&file)).expect("the file").mode() & 0o7777;
        assert_eq!(mode(), 0o4777, "root keeps it");
        assert_ok(&party.run(&mut wire, 1000, vec![put(&fh), write_op(roots, 0, b"mine, now")]).await);
        assert_eq!(mode(), 0o777);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn version_3_commits_for_who_may_write() {
    use landfast_nfs::v3::{self, Call, args::CommitArgs};
    use landfast_xdr::{Bytes, Encode};
    let rig = Rig::new("log").await;
    let mut wire = rig.from(HONEST).await;
    let mut party = Party::new(&mut wire, 1, b"honest").await;
    let opened = party.open(&mut wire, 1000, "file", OPEN4_SHARE_ACCESS_BOTH, create(0o640)).await;
    let fh: Bytes = opened.expect("the file is made").0.0;
    for (host, uid, status) in [
        (HONEST, 1000, 0),
        (HONEST, 0, 0),
        (HONEST, 2000, 13),
        (ROOT_SQUASH, 0, 13),
        (ALL_SQUASH, 1000, 13),
        (READ_ONLY, 1000, 30),
    ] {
        let call = Call::Commit(CommitArgs { file: v3::FileHandle(fh.clone()), offset: 0, count: 0 });
        let to = (landfast_nfs::PROGRAM, v3::VERSION, call.number());
        let res = rig.from(host).await.call(uid, to, &call.to_bytes()).await;
        assert_eq!(res[..4], u32::to_be_bytes(status), "by {uid} from {host}");
    }
}
