//! What the RFCs say that an operation MUST and SHOULD do and no other test shows (`clauses/musts.txt` has them all).

use crate::common::*;
use crate::v40::Client40;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::attr::number as n;
use landfast_nfs::v4::data::*;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;

const BOTH: u32 = 3;

fn rename(from: &str, to: &str) -> Vec<ArgOp> {
    let rename = RenameArgs { oldname: name(from), newname: name(to) };
    vec![ArgOp::Putrootfh, ArgOp::Savefh, ArgOp::Rename(rename)]
}

fn setattr(stateid: Stateid, values: AttrValues) -> ArgOp {
    ArgOp::Setattr(SetattrArgs { stateid, attrs: fattr(values) })
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_26_3_two_names_of_one_file_both_stay() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, s) = c.open("a", BOTH).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), close_op(s)]).await);
    let link = ArgOp::Link(name("b"));
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), ArgOp::Savefh, ArgOp::Putrootfh, link]).await);
    for (from, to) in [("a", "b"), ("b", "a")] {
        let res = c.last(rename(from, to)).await;
        let ResBody::Rename(r) = res.body else { panic!("RENAME gave {:?}", res.status) };
        assert_eq!(r.source_cinfo.before, r.source_cinfo.after, "nothing was done");
    }
    assert_eq!((c.handle(&["a"]).await, c.handle(&["b"]).await), (fh.clone(), fh.clone()));
    assert_eq!(c.attrs(&fh, Bitmap::of(&[n::NUMLINKS])).await.numlinks, Some(2));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_30_4_a_file_can_be_made_longer() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (fh, s) = c.open("f", BOTH).await;
    let put = ArgOp::Putfh(fh.clone());
    assert_ok(&c.run(vec![put.clone(), write_op(s, 0, b"data")]).await);
    let longer = AttrValues { size: Some(10), mode: Some(0o640), ..AttrValues::default() };
    let res = c.last(vec![put.clone(), setattr(s, longer)]).await;
    // Each attribute that was asked for and no other one, and then NFS4_OK.
    assert_eq!((res.status, res.body), (NfsStat::NFS4_OK, ResBody::Setattr(Bitmap::of(&[n::SIZE, n::MODE]))));
    let res = c.last(vec![put, read_op(s, 0, 100)]).await;
    assert!(matches!(&res.body, ResBody::Read(r) if r.data[..] == *b"data\0\0\0\0\0\0"), "{res:?}");
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_30_4_the_owner_may_set_the_owner_that_it_is() {
    let rig = Rig::new().await;
    std::fs::write(rig.export().join("f"), b"").expect("a file");
    std::os::unix::fs::chown(rig.export().join("f"), Some(1000), Some(1000)).expect("given away");
    let mut c = rig.client(b"c").await;
    c.raw.cred = user(1000);
    let fh = c.handle(&["f"]).await;
    let owner = |id: &str| AttrValues { owner: Some(name(id)), ..AttrValues::default() };
    let put = ArgOp::Putfh(fh);
    assert_ok(&c.run(vec![put.clone(), setattr(Stateid::ANONYMOUS, owner("1000"))]).await);
    let other = c.status(vec![put, setattr(Stateid::ANONYMOUS, owner("1001"))]).await;
    assert_eq!(other, NfsStat::NFS4ERR_PERM);
}

/// The fields that are there for version 4.0 mean nothing.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_16_3_and_18_10_3_the_client_id_and_the_seqids_of_owners_are_ignored() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let open = |seqid, clientid, openhow| {
        ArgOp::Open(OpenArgs {
            seqid,
            share_access: BOTH,
            share_deny: 0,
            owner: owner(clientid, b"o"),
            openhow,
            claim: OpenClaim::Null(name("f")),
        })
    };
    let mut stateids = Vec::new();
    for (seqid, clientid) in [(0, 0), (0, u64::MAX), (7, 1), (u32::MAX, 0)] {
        let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
        let res = c.last(vec![ArgOp::Putrootfh, open(seqid, clientid, how)]).await;
        let ResBody::Open(o) = res.body else { panic!("OPEN gave {:?}", res.status) };
        // Deprecated, and MUST NOT be returned.
        assert_eq!(o.rflags & landfast_nfs::v4::flags::OPEN4_RESULT_CONFIRM, 0);
        stateids.push(o.stateid);
    }
    assert!(stateids.iter().all(|s| s.other == stateids[0].other), "one owner, one open: {stateids:?}");
    let put = ArgOp::Putfh(c.handle(&["f"]).await);
    let open = stateids[3];
    let mut lock = Vec::new();
    for (open_seqid, lock_seqid, clientid, offset) in [(0, 0, 0, 0), (9, 4, u64::MAX, 10), (1, 1, 5, 20)] {
        let locker =
            Locker::New { open_seqid, open_stateid: open, lock_seqid, lock_owner: owner(clientid, b"l") };
        let args = LockArgs { locktype: LockType::Write, reclaim: false, offset, length: 5, locker };
        let res = c.last(vec![put.clone(), ArgOp::Lock(args)]).await;
        let ResBody::Lock(s) = res.body else { panic!("LOCK gave {:?}", res.status) };
        lock.push(s);
    }
    assert!(lock.iter().all(|s| s.other == lock[0].other), "one owner: {lock:?}");
    let locker = Locker::Existing { lock_stateid: lock[2], lock_seqid: 4711 };
    let args = LockArgs { locktype: LockType::Write, reclaim: false, offset: 30, length: 5, locker };
    assert_ok(&c.run(vec![put.clone(), ArgOp::Lock(args)]).await);
    // Who has a lock is said with its client ID.
    let mut other = rig.client(b"other").await;
    let test = LocktArgs { locktype: LockType::Read, offset: 0, length: 1, owner: owner(0, b"m") };
    let res = other.last(vec![put, ArgOp::Lockt(test)]).await;
    let ResBody::Denied(denied) = res.body else { panic!("LOCKT gave {:?}", res.status) };
    assert_eq!((denied.owner.clientid, &denied.owner.owner.0[..]), (c.id, &b"l"[..]));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_16_4_an_exclusive_create_is_for_its_owner_alone() {
    let rig = Rig::new().await;
    let mut c = Client::not_persistent(rig.raw().await, b"c").await;
    std::fs::set_permissions(rig.export(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("a mode");
    c.raw.cred = user(1000);
    let how = |verf| OpenHow::Create(CreateHow::Exclusive(verf));
    let open = |verf| vec![ArgOp::Putrootfh, open_op(b"o", "f", BOTH, 0, how(verf))];
    assert_ok(&c.run(open([1; 8])).await);
    let fh = c.handle(&["f"]).await;
    let v = c.attrs(&fh, Bitmap::of(&[n::MODE, n::OWNER])).await;
    assert_eq!(v.mode.expect("a mode") & 0o077, 0, "nobody but the owner");
    assert_eq!(v.owner, Some(name("1000")));
    // The verifier tells a retry from another file.
    assert_ok(&c.run(open([1; 8])).await);
    assert_eq!(c.status(open([2; 8])).await, NfsStat::NFS4ERR_EXIST);
    // On a session that outlasts the server it MUST be refused (section 18.16.3).
    let mut persistent = rig.client(b"p").await;
    let refused = vec![ArgOp::Putrootfh, open_op(b"o", "g", BOTH, 0, how([3; 8]))];
    assert_eq!(persistent.status(refused).await, NfsStat::NFS4ERR_INVAL);
    assert!(!rig.export().join("g").exists());
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_36_3_what_the_back_channel_may_do_is_the_clients_to_say() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let ex = raw.exchange_id(b"c", 1).await;
    let mut args = session_args(ex.clientid, ex.sequenceid);
    (args.back_chan_attrs.max_operations, args.back_chan_attrs.max_requests) = (5, 3);
    let asked = args.clone();
    let got = raw.create_session(args).await;
    let (back, of) = (got.back_chan_attrs, asked.back_chan_attrs);
    assert_eq!((back.max_operations, back.max_requests), (5, 3), "unchanged");
    assert!(back.max_request_size <= of.max_request_size);
    assert!(back.max_response_size <= of.max_response_size);
    assert!(back.max_response_size_cached <= of.max_response_size_cached);
    // No flag that was not asked for.
    assert_eq!(got.flags & !asked.flags, 0);
    assert_eq!(got.sequence, asked.sequence);
    // The first number of a slot is 1.
    for (sequenceid, status) in
        [(0, NfsStat::NFS4ERR_SEQ_MISORDERED), (2, NfsStat::NFS4ERR_SEQ_MISORDERED), (1, NfsStat::NFS4_OK)]
    {
        let args = SequenceArgs {
            sessionid: got.sessionid,
            sequenceid,
            slotid: 0,
            highest_slotid: 0,
            cachethis: false,
        };
        assert_eq!(raw.compound(vec![ArgOp::Sequence(args)]).await.status, status, "{sequenceid}");
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_46_3_a_sequence_that_is_refused_leaves_the_slot_as_it_was() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let first = c.run(vec![ArgOp::Putrootfh, mkdir("d")]).await;
    let at = |sequenceid| {
        let ArgOp::Sequence(args) = c.sequence() else { unreachable!() };
        ArgOp::Sequence(SequenceArgs { sequenceid, ..args })
    };
    for wrong in [c.seq + 2, c.seq.wrapping_sub(1), c.seq.wrapping_add(1 << 31)] {
        let res = c.raw.compound(vec![at(wrong), ArgOp::Putrootfh]).await;
        assert_eq!((res.status, res.results.len()), (NfsStat::NFS4ERR_SEQ_MISORDERED, 1), "{wrong}");
    }
    // Its last reply is there, and its next number is the next one; and what is answered is what was asked.
    let again = c.again(vec![ArgOp::Putrootfh, mkdir("d")]).await;
    assert_eq!(again.results[1..], first[..]);
    let ResBody::Sequence(s) = &again.results[0].body else { panic!("{again:?}") };
    assert_eq!((s.sessionid, s.slotid, s.sequenceid), (c.session, 0, c.seq));
    assert_eq!(c.status(vec![ArgOp::Putrootfh, mkdir("d")]).await, NfsStat::NFS4ERR_EXIST);
}

async fn filled(c: &mut Client, file: &str, data: &[u8]) -> (FileHandle, Stateid) {
    let (fh, stateid) = c.open(file, BOTH).await;
    assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), write_op(stateid, 0, data)]).await);
    (fh, stateid)
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_what_is_no_regular_file_is_neither_copied_nor_cloned_nor_cut() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (file, s) = filled(&mut c, "f", &[7; 100]).await;
    assert_ok(&c.run(vec![ArgOp::Putrootfh, mkdir("d")]).await);
    let link = CreateArgs { kind: CreateType::Lnk(name("f")), name: name("l"), attrs: mode(0o777) };
    assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::Create(link)]).await);
    let copy = ArgOp::Copy(CopyArgs {
        src_stateid: s,
        dst_stateid: s,
        src_offset: 0,
        dst_offset: 0,
        count: 1,
        consecutive: true,
        synchronous: true,
        source_server: Vec::new(),
    });
    let clone = CloneArgs { src_stateid: s, dst_stateid: s, src_offset: 0, dst_offset: 0, count: 0 };
    let range = RangeArgs { stateid: s, offset: 0, length: 10 };
    let wrong = NfsStat::NFS4ERR_WRONG_TYPE;
    for other in ["d", "l"] {
        let other = c.handle(&[other]).await;
        for op in [copy.clone(), ArgOp::Clone(clone.clone())] {
            for (from, to) in [(&file, &other), (&other, &file)] {
                let ops =
                    vec![ArgOp::Putfh(from.clone()), ArgOp::Savefh, ArgOp::Putfh(to.clone()), op.clone()];
                assert_eq!(c.status(ops).await, wrong, "{}", op.op());
            }
        }
        for op in [ArgOp::Allocate(range.clone()), ArgOp::Deallocate(range.clone())] {
            let number = op.op();
            assert_eq!(c.status(vec![ArgOp::Putfh(other.clone()), op]).await, wrong, "{number}");
        }
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_13_3_what_cannot_be_cloned() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let (file, s) = filled(&mut c, "f", &[7; 16384]).await;
    let (other, to) = filled(&mut c, "g", b"").await;
    let bad = Stateid { seqid: 1, other: [9; 12] };
    let args = |src_stateid, dst_stateid, src_offset, dst_offset, count| {
        ArgOp::Clone(CloneArgs { src_stateid, dst_stateid, src_offset, dst_offset, count })
    };
    let inval = NfsStat::NFS4ERR_INVAL;
    for (onto, op, status) in [
        // Beyond the source's end, in its offset and with its count.
        (&other, args(s, to, 16385, 0, 1), inval),
        (&other, args(s, to, 4096, 0, 16384), inval),
        // Onto itself where the ranges overlap.
        (&file, args(s, s, 0, 4096, 8192), inval),
        (&other, args(bad, to, 0, 0, 0), NfsStat::NFS4ERR_BAD_STATEID),
        (&other, args(s, bad, 0, 0, 0), NfsStat::NFS4ERR_BAD_STATEID),
    ] {
        let ops = vec![ArgOp::Putfh(file.clone()), ArgOp::Savefh, ArgOp::Putfh(onto.clone()), op.clone()];
        assert_eq!(c.status(ops).await, status, "{op:?}");
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_11_3_every_file_ends_with_a_hole() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    for (file, size) in [("empty", 0usize), ("small", 100), ("large", 256 << 10)] {
        let (fh, s) = filled(&mut c, file, &vec![7; size]).await;
        let seek = |offset, what| ArgOp::Seek(SeekArgs { stateid: s, offset, what });
        let put = ArgOp::Putfh(fh);
        let size = size as u64;
        let res = c.last(vec![put.clone(), seek(0, CONTENT_HOLE)]).await;
        let ResBody::Seek(found) = res.body else { panic!("SEEK in {file} gave {:?}", res.status) };
        assert_eq!(found.offset, size, "{file}");
        let beyond = c.status(vec![put, seek(size + 1, CONTENT_HOLE)]).await;
        assert_eq!(beyond, NfsStat::NFS4ERR_NXIO, "{file}");
    }
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_15_10_4_a_hole_reads_as_zeroes_by_read_too() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    c.cachethis = false;
    let (fh, s) = filled(&mut c, "f", &[7; 4096]).await;
    let put = ArgOp::Putfh(fh);
    assert_ok(&c.run(vec![put.clone(), write_op(s, 256 << 10, &[8; 4096])]).await);
    let zeroes = RangeArgs { stateid: s, offset: 0, length: 64 << 10 };
    assert_ok(&c.run(vec![put.clone(), ArgOp::Deallocate(zeroes)]).await);
    let mut whole = Vec::new();
    while whole.len() < 260 << 10 {
        let args = ReadPlusArgs { stateid: s, offset: whole.len() as u64, count: 128 << 10 };
        let res = c.last(vec![put.clone(), ArgOp::ReadPlus(args)]).await;
        let ResBody::ReadPlus(r) = res.body else { panic!("READ_PLUS gave {:?}", res.status) };
        assert!(!r.contents.is_empty());
        for content in r.contents {
            // Each begins where the one before ends.
            match content {
                ReadPlusContent::Data { offset, data } => {
                    assert_eq!(offset, whole.len() as u64);
                    whole.extend_from_slice(&data);
                }
                ReadPlusContent::Hole { offset, length } => {
                    assert_eq!(offset, whole.len() as u64);
                    whole.resize(whole.len() + length as usize, 0);
                }
            }
        }
    }
    for (at, chunk) in whole.chunks(64 << 10).enumerate() {
        let res = c.last(vec![put.clone(), read_op(s, (at << 16) as u64, 64 << 10)]).await;
        assert!(matches!(&res.body, ResBody::Read(r) if r.data[..] == *chunk), "at {at}: {:?}", res.status);
    }
    assert!(whole[..64 << 10].iter().all(|b| *b == 0), "what was deallocated");
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7862_13_optional_operations_that_this_server_lacks() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    for op in [OpNum::COPY_NOTIFY, OpNum::LAYOUTERROR, OpNum::LAYOUTSTATS, OpNum::WRITE_SAME] {
        let res = c.last(vec![ArgOp::Putrootfh, ArgOp::Other(op)]).await;
        assert_eq!((res.op, res.status), (op, NfsStat::NFS4ERR_NOTSUPP));
    }
}

/// A client of any minor version that holds nothing.
enum Any {
    Zero(Client40),
    Sessions(Box<Client>),
}

impl Any {
    async fn new(rig: &Rig, minor: u32) -> Any {
        if minor == 0 {
            return Any::Zero(Client40::new(rig, b"any").await);
        }
        let mut c = rig.client(b"any").await;
        c.raw.minor = minor;
        Any::Sessions(Box::new(c))
    }

    fn by(&mut self, uid: u32) {
        match self {
            Any::Zero(c) => c.raw.cred = user(uid),
            Any::Sessions(c) => c.raw.cred = user(uid),
        }
    }

    async fn last(&mut self, ops: Vec<ArgOp>) -> ResOp {
        match self {
            Any::Zero(c) => c.run(ops).await.pop().expect("a result"),
            Any::Sessions(c) => c.last(ops).await,
        }
    }
}

/// What [`rfc8881_15_2_and_rfc7530_13_2_errors_of_names_and_objects`] works with.
struct Objects {
    root: FileHandle,
    file: FileHandle,
    dir: FileHandle,
    /// Nobody but root may look into it, or read the file in it.
    private: FileHandle,
    secret: FileHandle,
    gone: FileHandle,
}

/// Every operation on a name in the current directory, with this name; `saved` is there for those that need one.
fn on_names(at: &FileHandle, saved: &FileHandle, n: &str) -> Vec<Vec<ArgOp>> {
    let here = ArgOp::Putfh(at.clone());
    let there = vec![ArgOp::Putfh(saved.clone()), ArgOp::Savefh, here.clone()];
    let from_here = vec![here.clone(), ArgOp::Savefh];
    let rename = |oldname: &str, newname: &str| {
        ArgOp::Rename(RenameArgs { oldname: name(oldname), newname: name(newname) })
    };
    vec![
        vec![here.clone(), ArgOp::Lookup(name(n))],
        vec![here.clone(), mkdir(n)],
        vec![here.clone(), ArgOp::Remove(name(n))],
        vec![here, ArgOp::Secinfo(name(n))],
        [from_here, vec![rename(n, "to")]].concat(),
        [there, vec![ArgOp::Link(name(n))]].concat(),
    ]
}

/// What is expected of operations: their names in what is wrong.
type Wanted = Vec<(Vec<ArgOp>, NfsStat)>;

fn of_names(o: &Objects) -> Wanted {
    let long = "x".repeat(256);
    let mut all = Wanted::new();
    for (n, status) in [
        ("", NfsStat::NFS4ERR_INVAL),
        (".", NfsStat::NFS4ERR_BADNAME),
        ("..", NfsStat::NFS4ERR_BADNAME),
        ("a/b", NfsStat::NFS4ERR_BADCHAR),
        (&long, NfsStat::NFS4ERR_NAMETOOLONG),
    ] {
        all.extend(on_names(&o.dir, &o.file, n).into_iter().map(|ops| (ops, status)));
    }
    all.extend(on_names(&o.file, &o.file, "x").into_iter().map(|ops| (ops, NfsStat::NFS4ERR_NOTDIR)));
    all.extend(on_names(&o.gone, &o.file, "x").into_iter().map(|ops| (ops, NfsStat::NFS4ERR_STALE)));
    for ops in on_names(&o.dir, &o.file, "none") {
        let looks = !matches!(ops.last(), Some(ArgOp::Create(_) | ArgOp::Link(_)));
        all.extend(looks.then_some((ops, NfsStat::NFS4ERR_NOENT)));
    }
    for ops in on_names(&o.root, &o.file, "f") {
        let makes = matches!(ops.last(), Some(ArgOp::Create(_) | ArgOp::Link(_)));
        all.extend(makes.then_some((ops, NfsStat::NFS4ERR_EXIST)));
    }
    all
}

fn of_objects(o: &Objects) -> Wanted {
    let put = |fh: &FileHandle| ArgOp::Putfh(fh.clone());
    let anonymous = Stateid::ANONYMOUS;
    let commit = ArgOp::Commit(CommitArgs { offset: 0, count: 0 });
    let size = |size| setattr(anonymous, AttrValues { size: Some(size), ..AttrValues::default() });
    let chmod = setattr(anonymous, AttrValues { mode: Some(0o600), ..AttrValues::default() });
    let chown =
        |who: &str| setattr(anonymous, AttrValues { owner: Some(name(who)), ..AttrValues::default() });
    let unsupported =
        Fattr { mask: Bitmap::of(&[14]), values: landfast_xdr::Bytes::from_static(&[0, 0, 0, 1]) };
    let made = |kind, attrs| ArgOp::Create(CreateArgs { kind, name: name("new"), attrs });
    let kind = |kind| fattr(AttrValues { kind: Some(kind), ..AttrValues::default() });
    let look = ArgOp::Getattr(Bitmap::of(&[n::TYPE]));
    let mut all = vec![
        (vec![put(&FileHandle(name("no handle of this server")))], NfsStat::NFS4ERR_BADHANDLE),
        (vec![put(&o.dir), read_op(anonymous, 0, 1)], NfsStat::NFS4ERR_ISDIR),
        (vec![put(&o.dir), write_op(anonymous, 0, b"x")], NfsStat::NFS4ERR_ISDIR),
        (vec![put(&o.dir), commit.clone()], NfsStat::NFS4ERR_ISDIR),
        (vec![put(&o.dir), ArgOp::Savefh, put(&o.root), ArgOp::Link(name("x"))], NfsStat::NFS4ERR_ISDIR),
        (vec![put(&o.root), ArgOp::Remove(name("full"))], NfsStat::NFS4ERR_NOTEMPTY),
        (vec![put(&o.file), ArgOp::Lookupp], NfsStat::NFS4ERR_NOTDIR),
        (vec![put(&o.root), ArgOp::Lookupp], NfsStat::NFS4ERR_NOENT),
        (vec![put(&o.file), readdir_op(0, 0, 4096, &[n::FILEID])], NfsStat::NFS4ERR_NOTDIR),
        (vec![put(&o.root), readdir_op(0, 0, 8, &[n::FILEID])], NfsStat::NFS4ERR_TOOSMALL),
        (vec![put(&o.file), size(u64::MAX)], NfsStat::NFS4ERR_FBIG),
        (vec![put(&o.file), write_op(anonymous, u64::MAX - 1, b"xyz")], NfsStat::NFS4ERR_FBIG),
        (vec![put(&o.file), chown("nobody here@nowhere")], NfsStat::NFS4ERR_BADOWNER),
        (vec![put(&o.root), made(CreateType::Other(9), Fattr::default())], NfsStat::NFS4ERR_BADTYPE),
        (vec![put(&o.root), made(CreateType::Dir, unsupported.clone())], NfsStat::NFS4ERR_ATTRNOTSUPP),
        (vec![put(&o.file), ArgOp::Verify(unsupported.clone())], NfsStat::NFS4ERR_ATTRNOTSUPP),
        (vec![put(&o.file), ArgOp::Nverify(unsupported)], NfsStat::NFS4ERR_ATTRNOTSUPP),
        (vec![put(&o.file), ArgOp::Verify(kind(FileType::Dir))], NfsStat::NFS4ERR_NOT_SAME),
        (vec![put(&o.file), ArgOp::Nverify(kind(FileType::Reg))], NfsStat::NFS4ERR_SAME),
        (vec![put(&o.file), ArgOp::Nverify(kind(FileType::Dir))], NfsStat::NFS4_OK),
        (vec![put(&o.file), ArgOp::Verify(kind(FileType::Reg))], NfsStat::NFS4_OK),
        (vec![put(&o.file), ArgOp::Access(1)], NfsStat::NFS4_OK),
    ];
    // Nothing has been chosen to work with.
    let name = || name("x");
    for op in [
        ArgOp::Access(1),
        commit.clone(),
        mkdir("x"),
        look.clone(),
        ArgOp::Getfh,
        ArgOp::Link(name()),
        ArgOp::Lookup(name()),
        ArgOp::Lookupp,
        ArgOp::Nverify(kind(FileType::Reg)),
        read_op(anonymous, 0, 1),
        readdir_op(0, 0, 4096, &[n::FILEID]),
        ArgOp::Readlink,
        ArgOp::Remove(name()),
        ArgOp::Rename(RenameArgs { oldname: name(), newname: name() }),
        ArgOp::Savefh,
        ArgOp::Secinfo(name()),
        chmod.clone(),
        ArgOp::Verify(kind(FileType::Reg)),
        write_op(anonymous, 0, b"x"),
    ] {
        all.push((vec![op], NfsStat::NFS4ERR_NOFILEHANDLE));
    }
    // What is there no more.
    for op in [ArgOp::Access(1), commit, look, read_op(anonymous, 0, 1), chmod, write_op(anonymous, 0, b"x")]
    {
        all.push((vec![put(&o.gone), op], NfsStat::NFS4ERR_STALE));
    }
    all
}

/// Of somebody who may not.
fn of_others(o: &Objects) -> Wanted {
    let put = |fh: &FileHandle| ArgOp::Putfh(fh.clone());
    let anonymous = Stateid::ANONYMOUS;
    let chmod = setattr(anonymous, AttrValues { mode: Some(0o666), ..AttrValues::default() });
    let mut all: Wanted =
        on_names(&o.private, &o.file, "x").into_iter().map(|ops| (ops, NfsStat::NFS4ERR_ACCESS)).collect();
    all.extend([
        (vec![put(&o.private), readdir_op(0, 0, 4096, &[n::FILEID])], NfsStat::NFS4ERR_ACCESS),
        (vec![put(&o.secret), read_op(anonymous, 0, 1)], NfsStat::NFS4ERR_ACCESS),
        (vec![put(&o.secret), write_op(anonymous, 0, b"x")], NfsStat::NFS4ERR_ACCESS),
        (vec![put(&o.secret), chmod], NfsStat::NFS4ERR_PERM),
    ]);
    all
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_15_2_and_rfc7530_13_2_errors_of_names_and_objects() {
    for minor in 0..=2 {
        let rig = Rig::new().await;
        let at = |path: &str| rig.export().join(path);
        for dir in ["d", "full", "full/in", "private"] {
            std::fs::create_dir(at(dir)).expect("a directory");
        }
        for file in ["f", "private/secret", "gone"] {
            std::fs::write(at(file), b"data").expect("a file");
        }
        for path in ["private", "private/secret"] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(at(path), mode).expect("a mode");
        }
        let mut maker = rig.client(b"maker").await;
        let o = Objects {
            root: maker.handle(&[]).await,
            file: maker.handle(&["f"]).await,
            dir: maker.handle(&["d"]).await,
            private: maker.handle(&["private"]).await,
            secret: maker.handle(&["private", "secret"]).await,
            gone: maker.handle(&["gone"]).await,
        };
        assert_ok(&maker.run(vec![ArgOp::Putrootfh, ArgOp::Remove(name("gone"))]).await);
        let mut c = Any::new(&rig, minor).await;
        let mut wrong = Vec::new();
        for (uid, wanted) in [(0, of_names(&o)), (0, of_objects(&o)), (1000, of_others(&o))] {
            c.by(uid);
            for (ops, status) in wanted {
                let what = format!("{:?}", ops.last());
                let got = c.last(ops).await;
                if got.status != status {
                    wrong.push(format!("4.{minor} {}: {} and not {status} for {what}", got.op, got.status));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(std::fs::read(at("f")).expect("the file"), b"data");
    }
}
