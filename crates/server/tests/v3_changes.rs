//! What NFS version 3 changes, clause by clause (RFC 1813).

use crate::common;

use common::v3::*;
use common::{Client, PATIENCE, Rig, assert_ok, close_op, open_op};
use landfast_nfs::v3::args::*;
use landfast_nfs::v3::res::*;
use landfast_nfs::v3::types::*;
use landfast_nfs::v3::{Call, FileHandle, NfsStat3, Res, Sattr, Time, WccAttr, WccData};
use landfast_nfs::v4::flags::{OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_DENY_WRITE};
use landfast_nfs::v4::{self as nfs4, ArgOp, NfsStat};
use landfast_xdr::Bytes;

macro_rules! on_a_server {
    ($(async fn $name:ident($rig:ident, $c:ident) $body:block)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        #[cfg_attr(not(root), ignore = "needs root")]
        async fn $name() {
            let $rig = Rig::new().await;
            let $c = V3::new(&$rig).await;
            $body
        }
    )*};
}

fn wcc_of(a: &landfast_nfs::v3::Fattr) -> Option<WccAttr> {
    Some(WccAttr { size: a.size, mtime: a.mtime, ctime: a.ctime })
}

fn sized(size: u64) -> Sattr {
    Sattr { size: Some(size), ..Sattr::default() }
}

on_a_server! {
    async fn rfc1813_3_3_2_setattr(_rig, c) {
        let fh = c.file("f").await;
        let when = Time { seconds: 1_000_000, nseconds: 7 };
        let all = Sattr {
            mode: Some(0o4711),
            uid: Some(5),
            gid: Some(6),
            size: Some(77),
            atime: SetTime::Client(when),
            mtime: SetTime::Client(when),
        };
        let before = c.attrs(&fh).await;
        let wcc = c.ok::<WccData, WccData>(setattr(&fh, all)).await;
        assert_eq!(wcc.before, wcc_of(&before));
        let a = wcc.after.expect("attributes");
        assert_eq!((a.mode, a.uid, a.gid, a.size, a.atime, a.mtime), (0o4711, 5, 6, 77, when, when));
        assert_eq!(c.attrs(&fh).await, a);
        let now = Sattr { mtime: SetTime::Server, ..Sattr::default() };
        let a = c.ok::<WccData, WccData>(setattr(&fh, now)).await.after.expect("attributes");
        assert!(a.mtime.seconds > 1_600_000_000 && a.atime == when);
        assert_eq!(c.by(1000).status(setattr(&fh, mode(0o777))).await, NfsStat3::PERM);
        assert_eq!(c.status(setattr(&c.root, sized(0))).await, NfsStat3::ISDIR);
        let nobody = Sattr { uid: Some(u32::MAX), ..Sattr::default() };
        assert_eq!(c.status(setattr(&fh, nobody)).await, NfsStat3::INVAL);
        assert_eq!(c.status(setattr(&fh, sized(u64::MAX))).await, NfsStat3::FBIG);
    }

    async fn rfc1813_3_3_2_a_guard_is_the_ctime(_rig, c) {
        let fh = c.file("f").await;
        let now = c.attrs(&fh).await;
        let guarded = |guard, bits| {
            Call::Setattr(SetattrArgs { object: fh.clone(), attrs: mode(bits), guard: Some(guard) })
        };
        let other = Time { seconds: now.ctime.seconds - 1, ..now.ctime };
        match c.call::<WccData, WccData>(guarded(other, 0o600)).await {
            Res::Fail(NfsStat3::NOT_SYNC, wcc) => assert_eq!(wcc.after, Some(now.clone())),
            other => panic!("{other:?}"),
        }
        assert_eq!(c.status(guarded(now.ctime, 0o600)).await, NfsStat3::OK);
        assert_eq!(c.attrs(&fh).await.mode, 0o600);
    }

    async fn rfc1813_3_3_7_writes_and_their_stability(_rig, c) {
        let fh = c.file("f").await;
        let before = c.attrs(&fh).await;
        let w = c.write(&fh, 0, b"abc", StableHow::FileSync).await;
        assert_eq!((w.count, w.committed), (3, StableHow::FileSync));
        assert_eq!(w.wcc.before, wcc_of(&before));
        assert_eq!(w.wcc.after, Some(c.attrs(&fh).await));
        let w = c.write(&fh, 3, b"def", StableHow::DataSync).await;
        assert_ne!(w.committed, StableHow::Unstable, "never less than was asked for");
        let before = c.attrs(&fh).await;
        let u = c.write(&fh, 6, b"ghi", StableHow::Unstable).await;
        assert_eq!((u.count, u.committed, u.verf), (3, StableHow::Unstable, w.verf));
        assert_eq!(u.wcc.before, wcc_of(&before));
        assert_eq!(u.wcc.after.map(|a| a.size), Some(9));
        let commit = |offset, count| Call::Commit(CommitArgs { file: fh.clone(), offset, count });
        assert_eq!(c.ok::<CommitOk, WccData>(commit(0, 0)).await.verf, w.verf);
        assert_eq!(c.status(commit(u64::MAX, 1)).await, NfsStat3::INVAL);
        assert_eq!(c.read(&fh, 0, 100).await.data, "abcdefghi");
        let big = vec![7u8; (1 << 20) + 5];
        let w = c.write(&fh, 0, &big, StableHow::FileSync).await;
        assert_eq!((w.count, w.committed), (1 << 20, StableHow::FileSync), "as much as FSINFO says");
        assert_eq!(c.write(&fh, 0, b"", StableHow::FileSync).await.count, 0);
        assert_eq!(c.status(write(&fh, i64::MAX as u64, b"x", StableHow::FileSync)).await, NfsStat3::FBIG);
        assert_eq!(c.status(write(&c.root, 0, b"x", StableHow::FileSync)).await, NfsStat3::ISDIR);
        let lie = WriteArgs {
            file: fh.clone(),
            offset: 0,
            count: 9,
            stable: StableHow::FileSync,
            data: Bytes::from_static(b"xyz"),
        };
        assert_eq!(c.status(Call::Write(lie)).await, NfsStat3::INVAL);
    }

    async fn rfc1813_3_3_7_a_write_takes_set_uid_away(_rig, c) {
        assert_eq!(c.status(setattr(&c.root, mode(0o777))).await, NfsStat3::OK);
        let owner = c.by(1000);
        let fh = owner.file("f").await;
        for stable in [StableHow::FileSync, StableHow::Unstable] {
            assert_eq!(owner.status(setattr(&fh, mode(0o4755))).await, NfsStat3::OK);
            assert_eq!(c.attrs(&fh).await.mode, 0o4755);
            owner.write(&fh, 0, b"x", stable).await;
            assert_eq!(c.attrs(&fh).await.mode, 0o755);
        }
    }

    async fn rfc1813_3_3_8_create_in_its_three_ways(_rig, c) {
        let before = c.attrs(&c.root).await;
        let made = c.make(create(&c.root, "f", CreateHow::Guarded(mode(0o640)))).await;
        assert_eq!(made.dir.before, wcc_of(&before));
        assert_eq!(made.dir.after, Some(c.attrs(&c.root).await));
        let fh = made.object.expect("a handle");
        assert_eq!(made.attrs, Some(c.attrs(&fh).await));
        assert_eq!(made.attrs.expect("attributes").mode, 0o640);
        match c.call::<MakeOk, WccData>(create(&c.root, "f", CreateHow::Guarded(mode(0o600)))).await {
            Res::Fail(NfsStat3::EXIST, wcc) => assert!(wcc.before.is_none() && wcc.after.is_some()),
            other => panic!("{other:?}"),
        }
        c.write(&fh, 0, b"data", StableHow::FileSync).await;
        let unchecked = |attrs| create(&c.root, "f", CreateHow::Unchecked(attrs));
        let made = c.make(unchecked(mode(0o777))).await;
        let attrs = made.attrs.expect("attributes");
        assert_eq!((made.object.as_ref(), attrs.mode, attrs.size), (Some(&fh), 0o640, 4), "as it was");
        assert_eq!(c.make(unchecked(sized(0))).await.attrs.expect("attributes").size, 0);
        assert_eq!(c.by(1000).status(unchecked(sized(0))).await, NfsStat3::ACCES, "who may not write");
        let new = c.make(create(&c.root, "g", CreateHow::Unchecked(Sattr { size: Some(9), ..mode(0o600) }))).await;
        assert_eq!(new.attrs.expect("attributes").size, 9);
        c.dir("d").await;
        assert_eq!(c.status(create(&c.root, "d", CreateHow::Unchecked(mode(0o600)))).await, NfsStat3::EXIST);
        for (n, status) in [
            (".", NfsStat3::EXIST),
            ("..", NfsStat3::EXIST),
            ("", NfsStat3::ACCES),
            ("a/b", NfsStat3::ACCES),
            (&"x".repeat(256), NfsStat3::NAMETOOLONG),
        ] {
            assert_eq!(c.status(create(&c.root, n, CreateHow::Guarded(mode(0o600)))).await, status, "{n:?}");
        }
        assert_eq!(c.by(1000).status(create(&c.root, "n", CreateHow::Guarded(mode(0o600)))).await, NfsStat3::ACCES);
        assert_eq!(c.status(create(&fh, "n", CreateHow::Guarded(mode(0o600)))).await, NfsStat3::NOTDIR);
    }

    async fn rfc1813_3_3_8_an_exclusive_create_can_be_repeated(_rig, c) {
        let how = |verf| create(&c.root, "f", CreateHow::Exclusive(verf));
        let verf = [0xff, 1, 2, 3, 0x80, 5, 6, 7];
        let first = c.make(how(verf)).await.object.expect("a handle");
        let again = c.make(how(verf)).await;
        assert_eq!(again.object.expect("a handle"), first);
        for byte in 0..8 {
            for bit in [0x01, 0x80] {
                let mut other = verf;
                other[byte] ^= bit;
                assert_eq!(c.status(how(other)).await, NfsStat3::EXIST, "byte {byte}, bit {bit}");
            }
        }
        // The client sets what the verifier stood in for.
        assert_eq!(c.status(setattr(&first, Sattr { mtime: SetTime::Server, ..mode(0o644) })).await, NfsStat3::OK);
        assert_eq!(c.status(how(verf)).await, NfsStat3::EXIST);
    }

    async fn rfc1813_3_3_9_to_11_directories_links_and_special_files(_rig, c) {
        let before = c.attrs(&c.root).await;
        let made = c.make(Call::Mkdir(MkdirArgs { at: at(&c.root, "d"), attrs: mode(0o751) })).await;
        assert_eq!(made.dir.before, wcc_of(&before));
        let attrs = made.attrs.expect("attributes");
        assert_eq!((attrs.file_type, attrs.mode, attrs.nlink), (FileType::Dir, 0o751, 2));
        let again = Call::Mkdir(MkdirArgs { at: at(&c.root, "d"), attrs: mode(0o700) });
        assert_eq!(c.status(again).await, NfsStat3::EXIST);
        let symlink = |n: &str, target: &[u8]| {
            let target = Bytes::copy_from_slice(target);
            Call::Symlink(SymlinkArgs { at: at(&c.root, n), attrs: mode(0o777), target })
        };
        assert_eq!(c.make(symlink("l", b"t")).await.attrs.expect("attributes").size, 1);
        // Its mode is left alone, and what else is asked for is done (RFC 1813 section 3.3.2 has no NOTSUPP).
        let link = c.lookup(&c.root, "l").await.object;
        let before = c.attrs(&link).await;
        assert_eq!(c.status(setattr(&link, mode(0o600))).await, NfsStat3::OK);
        assert_eq!(c.status(setattr(&link, Sattr { uid: Some(7), ..mode(0o600) })).await, NfsStat3::OK);
        let now = c.attrs(&link).await;
        assert_eq!((now.mode, now.uid), (before.mode, 7));
        assert_eq!(c.status(symlink("m", b"")).await, NfsStat3::INVAL);
        assert_eq!(c.status(symlink("m", b"a\0b")).await, NfsStat3::INVAL);
        assert_eq!(c.status(symlink("m", &[b'x'; 5000])).await, NfsStat3::NAMETOOLONG);
        let mknod = |n: &str, what| Call::Mknod(MknodArgs { at: at(&c.root, n), what });
        let dev = SpecData { major: 1, minor: 3 };
        let made = c.make(mknod("null", MknodWhat::Chr(mode(0o666), dev))).await.attrs.expect("attributes");
        assert_eq!((made.file_type, made.rdev), (FileType::Chr, dev));
        let made = c.make(mknod("blk", MknodWhat::Blk(mode(0o600), dev))).await.attrs.expect("attributes");
        assert_eq!((made.file_type, made.rdev), (FileType::Blk, dev));
        let made = c.make(mknod("sock", MknodWhat::Sock(mode(0o600)))).await.attrs.expect("attributes");
        assert_eq!((made.file_type, made.rdev), (FileType::Sock, SpecData::default()));
        assert_eq!(c.status(mknod("r", MknodWhat::Other(FileType::Reg))).await, NfsStat3::BADTYPE);
        assert_eq!(c.status(mknod("r", MknodWhat::Other(FileType::Dir))).await, NfsStat3::BADTYPE);
    }

    async fn rfc1813_3_3_12_and_13_remove_and_rmdir(_rig, c) {
        c.file("f").await;
        let dir = c.dir("d").await;
        c.make(create(&dir, "inside", CreateHow::Guarded(mode(0o600)))).await;
        let remove = |n: &str| Call::Remove(at(&c.root, n));
        let rmdir = |n: &str| Call::Rmdir(at(&c.root, n));
        assert_eq!(c.status(remove("d")).await, NfsStat3::ISDIR);
        assert_eq!(c.status(rmdir("f")).await, NfsStat3::NOTDIR);
        assert_eq!(c.status(rmdir("d")).await, NfsStat3::NOTEMPTY);
        assert_eq!(c.status(rmdir(".")).await, NfsStat3::INVAL);
        assert_eq!(c.status(rmdir("..")).await, NfsStat3::EXIST);
        assert_eq!(c.status(remove("absent")).await, NfsStat3::NOENT);
        assert_eq!(c.by(1000).status(remove("f")).await, NfsStat3::ACCES);
        let before = c.attrs(&c.root).await;
        let wcc = c.ok::<WccData, WccData>(remove("f")).await;
        assert_eq!((wcc.before, wcc.after), (wcc_of(&before), Some(c.attrs(&c.root).await)));
        assert_eq!(c.status(Call::Remove(at(&dir, "inside"))).await, NfsStat3::OK);
        assert_eq!(c.status(rmdir("d")).await, NfsStat3::OK);
        assert_eq!(c.status(Call::Lookup(at(&dir, "x"))).await, NfsStat3::STALE);
    }

    async fn rfc1813_3_3_14_rename(_rig, c) {
        let f = c.file("f").await;
        let dir = c.dir("d").await;
        let rename = |from: (&FileHandle, &str), to: (&FileHandle, &str)| {
            Call::Rename(RenameArgs { from: at(from.0, from.1), to: at(to.0, to.1) })
        };
        let (root_before, dir_before) = (c.attrs(&c.root).await, c.attrs(&dir).await);
        let wcc = c.ok::<RenameWcc, RenameWcc>(rename((&c.root, "f"), (&dir, "g"))).await;
        assert_eq!((wcc.from.before, wcc.to.before), (wcc_of(&root_before), wcc_of(&dir_before)));
        assert_eq!((wcc.from.after, wcc.to.after), (Some(c.attrs(&c.root).await), Some(c.attrs(&dir).await)));
        assert_eq!(c.lookup(&dir, "g").await.object, f);
        c.file("other").await;
        assert_eq!(c.status(rename((&c.root, "other"), (&dir, "g"))).await, NfsStat3::OK, "it is replaced");
        assert_eq!(c.status(Call::Getattr(f)).await, NfsStat3::STALE);
        assert_eq!(c.status(rename((&c.root, "absent"), (&dir, "x"))).await, NfsStat3::NOENT);
        assert_eq!(c.status(rename((&c.root, "."), (&dir, "x"))).await, NfsStat3::INVAL);
        assert_eq!(c.status(rename((&dir, "g"), (&dir, ".."))).await, NfsStat3::INVAL);
        assert_eq!(c.status(rename((&c.root, "d"), (&dir, "in-itself"))).await, NfsStat3::INVAL);
        let empty = c.dir("empty").await;
        assert_eq!(c.status(rename((&c.root, "empty"), (&c.root, "d"))).await, NfsStat3::NOTEMPTY);
        assert_eq!(c.status(rename((&c.root, "empty"), (&dir, "g"))).await, NfsStat3::NOTDIR);
        assert_eq!(c.status(rename((&dir, "g"), (&c.root, "empty"))).await, NfsStat3::ISDIR);
        assert_eq!(c.lookup(&c.root, "empty").await.object, empty);
    }

    async fn rfc1813_3_3_15_link(_rig, c) {
        let f = c.file("f").await;
        let dir = c.dir("d").await;
        let link = |file: &FileHandle, n: &str| {
            Call::Link(LinkArgs { file: file.clone(), link: at(&dir, n) })
        };
        let before = c.attrs(&dir).await;
        let done = c.ok::<LinkWcc, LinkWcc>(link(&f, "l")).await;
        assert_eq!(done.attrs.expect("attributes").nlink, 2);
        assert_eq!(done.dir.before, wcc_of(&before));
        assert_eq!(c.lookup(&dir, "l").await.object, f);
        assert_eq!(c.status(link(&f, "l")).await, NfsStat3::EXIST);
        assert_eq!(c.status(link(&dir, "x")).await, NfsStat3::ISDIR);
        assert_eq!(c.status(link(&f, "..")).await, NfsStat3::EXIST);
    }

    async fn names_are_bytes(_rig, c) {
        let odd = Bytes::from_static(&[0xff, b'\n', 0x80]);
        let at = DirOp { dir: c.root.clone(), name: odd.clone() };
        c.make(Call::Create(CreateArgs { at: at.clone(), how: CreateHow::Guarded(mode(0o644)) })).await;
        let page = c.readdir(&c.root, 0, 4096).await;
        assert!(page.entries.0.iter().any(|e| e.name == odd));
        assert_eq!(c.status(Call::Remove(at)).await, NfsStat3::OK);
    }

    async fn rfc8881_9_9_what_an_open_of_version_4_denies_is_denied(rig, c) {
        let fh = c.file("f").await;
        let mut v4 = rig.client(b"holder").await;
        let how = nfs4::args::OpenHow::NoCreate;
        let open = open_op(b"o", "f", OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_DENY_WRITE, how);
        let res = v4.run(vec![ArgOp::Putrootfh, open]).await;
        assert_ok(&res);
        let stateid = match &res[1].body {
            nfs4::ResBody::Open(o) => o.stateid,
            other => panic!("OPEN gave {other:?}"),
        };
        assert_eq!(c.status(write(&fh, 0, b"x", StableHow::FileSync)).await, NfsStat3::ACCES);
        assert_eq!(c.status(setattr(&fh, sized(0))).await, NfsStat3::ACCES);
        assert_eq!(c.status(setattr(&fh, mode(0o600))).await, NfsStat3::OK);
        c.read(&fh, 0, 1).await;
        let handle = nfs4::FileHandle(fh.0.clone());
        assert_eq!(v4.status(vec![ArgOp::Putfh(handle), close_op(stateid)]).await, NfsStat::NFS4_OK);
        c.write(&fh, 0, b"x", StableHow::FileSync).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc1813_4_8_the_verifier_changes_when_unstable_data_may_be_lost() {
    let mut rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let fh = c.file("f").await;
    let first = c.write(&fh, 0, b"abc", StableHow::Unstable).await.verf;
    rig.crash().await;
    let c = V3 { root: c.root.clone(), ..V3::connect(rig.addr()).await };
    let again = c.write(&fh, 0, b"abc", StableHow::Unstable).await.verf;
    assert_ne!(again, first, "the handle still works, and the client sends its data again");
    let commit = Call::Commit(CommitArgs { file: fh.clone(), offset: 0, count: 0 });
    assert_eq!(c.ok::<CommitOk, WccData>(commit).await.verf, again);
}

/// What an open of version 4 denies is in no log: until its client has reclaimed it, nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_4_2_1_what_may_have_been_denied_waits_for_who_may_reclaim() {
    let mut rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let fh = c.file("f").await;
    rig.client(b"holder").await.deny("f").await;
    assert_eq!(rig.crash().await.reclaiming, 1);
    let c = V3 { root: c.root.clone(), ..V3::connect(rig.addr()).await };
    let written = || write(&fh, 0, b"x", StableHow::FileSync);
    for call in [
        written(),
        setattr(&fh, sized(0)),
        create(&c.root, "f", CreateHow::Unchecked(sized(0))),
        Call::Read(ReadArgs { file: fh.clone(), offset: 0, count: 1 }),
    ] {
        assert_eq!(c.status(call.clone()).await, NfsStat3::JUKEBOX, "{call:?}");
    }
    assert_eq!(c.status(setattr(&fh, mode(0o600))).await, NfsStat3::OK);
    let mut v4 = Client::without_reclaim(rig.raw().await, b"holder", 1).await;
    let reclaim = ArgOp::Open(nfs4::args::OpenArgs {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_READ,
        share_deny: OPEN4_SHARE_DENY_WRITE,
        owner: nfs4::args::owner(0, b"denies"),
        openhow: nfs4::args::OpenHow::NoCreate,
        claim: nfs4::args::OpenClaim::Previous(0),
    });
    let handle = ArgOp::Putfh(nfs4::FileHandle(fh.0.clone()));
    assert_ok(&v4.run(vec![handle, reclaim]).await);
    assert_eq!(c.status(written()).await, NfsStat3::JUKEBOX, "it may reclaim more");
    assert_ok(&v4.run(vec![ArgOp::ReclaimComplete(false)]).await);
    assert_eq!(c.status(written()).await, NfsStat3::ACCES);
    c.read(&fh, 0, 1).await;
}

/// The data may be stable before the note in the log is, and then the holder would reclaim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_4_3_what_was_denied_is_written_when_the_log_knows_that_its_holder_is_gone() {
    let rig = Rig::with(landfast_volume::Durability::Log, 1).await;
    let c = V3::new(&rig).await;
    for file in ["written", "set", "made"] {
        let fh = c.file(file).await;
        let call = || match file {
            "set" => setattr(&fh, sized(0)),
            "made" => create(&c.root, file, CreateHow::Unchecked(sized(0))),
            _ => write(&fh, 0, b"x", StableHow::FileSync),
        };
        rig.client(file.as_bytes()).await.deny(file).await;
        let gone = tokio::time::timeout(PATIENCE, async {
            loop {
                match c.status(call()).await {
                    NfsStat3::ACCES => tokio::task::yield_now().await,
                    other => break other,
                }
            }
        });
        assert_eq!(gone.await.expect("its lease ends"), NfsStat3::JUKEBOX, "{file}");
        assert_eq!(c.status(call()).await, NfsStat3::OK, "{file}");
    }
}
