//! The lines of calls and replies, of every program that is listed.

#[allow(dead_code)]
mod wire;

use landfast_nfs::v4::callback::{CbCompoundArgs, CbOffloadArgs, CbOp, CbRes, CbSequenceArgs, CbSequenceRes};
use landfast_nfs::v4::data::WriteResponse;
use landfast_nfs::v4::res::{
    AccessRes, CreateRes, OpenDelegation, OpenRes, ReadDelegation, ReadRes, RenameRes, SequenceRes,
    SpaceLimit, WhyNone, WriteDelegation, WriteRes,
};
use landfast_nfs::v4::types::NfsAce;
use landfast_nfs::v4::{
    ArgOp, CompoundArgs, CompoundRes, NfsStat, OpNum, ResBody, ResOp, Stateid, args as a,
};
use landfast_nfs::{PROGRAM, mount, nfsacl, nlm, v3, v4};
use landfast_trace::analysis::Analysis;
use landfast_trace::trace::Trace;
use landfast_xdr::{Bytes, BytesMut, Encode};
use wire::{Wire, call, look, reply};

/// The checksum of this handle, as Wireshark has it.
const HANDLE: [u8; 32] = [7; 32];
const FH: &str = "FH: 0xa3d824cb";
const CALLBACKS: u32 = 0x4000_0000;

fn handle() -> v3::FileHandle {
    v3::FileHandle(Bytes::from_static(&HANDLE))
}

/// Wireshark's 0xd617.
fn stateid() -> Stateid {
    Stateid { seqid: 1, other: [0x11; 12] }
}

/// Each call with its reply, in segments of so many bytes: what the listing says of them, from the version on.
fn lines(messages: &[(Vec<u8>, Vec<u8>)], segment: usize) -> Vec<String> {
    let mut wire = Wire::new(700);
    wire.segment = segment;
    wire.open();
    for (call, reply) in messages {
        wire.send(true, call);
        wire.send(false, reply);
    }
    let (totals, seen) = look(&wire.frames);
    assert_eq!(totals.calls_matched + totals.other_calls, messages.len() as u64);
    let about = |line: &String| {
        let line = line.find(" V").map_or("", |at| &line[at + 1..]);
        match line.split_once(" (Call In ").and_then(|(from, rest)| Some((from, rest.split_once(')')?.1))) {
            Some((from, rest)) => format!("{from}{rest}"),
            None => line.to_owned(),
        }
    };
    seen.lines.iter().map(about).collect()
}

/// Whatever pieces the messages come in.
fn listed(messages: &[(Vec<u8>, Vec<u8>)], expected: &[&str]) {
    for segment in [1448, 5, 64] {
        assert_eq!(lines(messages, segment), expected, "in segments of {segment}");
    }
    messages.iter().for_each(|(call, reply)| damaged(call, reply));
}

/// Each word as something else, such as a length that lies: still a line a message, or none.
fn damaged(call: &[u8], reply: &[u8]) {
    for at in (4..call.len() + reply.len() - 3).step_by(4) {
        for word in [0, 1, 2, 3, 16, 10_044, 65_536, u32::MAX / 2, u32::MAX] {
            let mut both = [call, reply].concat();
            both[at..at + 4].copy_from_slice(&word.to_be_bytes());
            let mut wire = Wire::new(700);
            wire.open();
            wire.send(true, &both[..call.len()]);
            wire.send(false, &both[call.len()..]);
            let (_, seen) = look(&wire.frames);
            assert!(seen.lines.len() <= 2, "word {at} as {word}: {:?}", seen.lines);
            for line in &seen.lines {
                assert!(
                    !line.contains('\n') && line.len() < 2 * both.len() + 500,
                    "word {at} as {word}: {line}"
                );
            }
        }
    }
}

fn compound(xid: u32, ops: Vec<ArgOp>, results: Vec<ResOp>) -> (Vec<u8>, Vec<u8>) {
    let announced = u32::try_from(ops.len()).expect("a count");
    let args = CompoundArgs { tag: Bytes::from_static(b"a tag"), minor_version: 1, announced, ops };
    let status = results.last().map_or(NfsStat::NFS4_OK, |last| last.status);
    let res = CompoundRes { status, tag: Bytes::from_static(b"a tag"), results };
    (call(xid, PROGRAM, 4, 1, &args.to_bytes()), reply(xid, &res.to_bytes()))
}

fn ok(op: OpNum, body: ResBody) -> ResOp {
    ResOp { op, status: NfsStat::NFS4_OK, body }
}

fn putfh() -> (ArgOp, ResOp) {
    (ArgOp::Putfh(v4::FileHandle(Bytes::from_static(&HANDLE))), ok(OpNum::PUTFH, ResBody::Empty))
}

fn access(asked: u32, supported: u32, access: u32) -> (ArgOp, ResOp) {
    (ArgOp::Access(asked), ok(OpNum::ACCESS, ResBody::Access(AccessRes { supported, access })))
}

fn pairs(xid: u32, pairs: Vec<(ArgOp, ResOp)>) -> (Vec<u8>, Vec<u8>) {
    let (ops, results) = pairs.into_iter().unzip();
    compound(xid, ops, results)
}

fn bits(numbers: &[u32]) -> v4::Bitmap {
    let mut bits = v4::Bitmap::default();
    numbers.iter().for_each(|n| bits.set(*n));
    bits
}

fn opened(delegation: OpenDelegation) -> ResOp {
    let cinfo = v4::ChangeInfo { atomic: true, before: 1, after: 2 };
    ok(
        OpNum::OPEN,
        ResBody::Open(OpenRes { stateid: stateid(), cinfo, rflags: 4, attrset: bits(&[4, 33]), delegation }),
    )
}

fn open() -> ArgOp {
    let claim = a::OpenClaim::Null(Bytes::from_static(b"test1"));
    let openhow = a::OpenHow::NoCreate;
    ArgOp::Open(a::OpenArgs {
        seqid: 0,
        share_access: 1,
        share_deny: 0,
        owner: a::owner(1, b"owner"),
        openhow,
        claim,
    })
}

fn v3_access(xid: u32, asked: u32, allowed: u32) -> (Vec<u8>, Vec<u8>) {
    let mut args = BytesMut::new();
    handle().encode(&mut args);
    asked.encode(&mut args);
    let body: Vec<u8> = [0, 0, allowed].iter().flat_map(|w| w.to_be_bytes()).collect();
    (call(xid, PROGRAM, 3, v3::proc::ACCESS, &args), reply(xid, &body))
}

/// What only a listing reads makes no call another.
#[test]
fn a_listing_changes_no_count() {
    let mut wire = Wire::new(700);
    wire.open();
    wire.send(true, &v3_access(1, 1, 1).0);
    wire.seq = (5, 4_000_000_000);
    wire.open();
    let (again, answer) = v3_access(1, 2, 2);
    wire.send(true, &again);
    wire.send(false, &answer);
    let (listed, seen) = look(&wire.frames);
    let mut trace = Trace::new(Analysis::new());
    wire.frames.iter().for_each(|frame| trace.frame(&frame.frame(1)));
    assert_eq!((listed.calls_seen, listed.repeated_calls, seen.lines.len()), (1, 1, 3));
    assert_eq!(trace.finish().0, listed);
}

#[test]
fn what_access_found() {
    listed(
        &[
            v3_access(1, 0x1f, 3),
            v3_access(2, 0x1f, 0x1f),
            v3_access(3, 0x3f, 0),
            pairs(4, vec![putfh(), access(0x1f, 0x1f, 3)]),
            pairs(5, vec![putfh(), access(0x3f, 0x1f, 0x3), putfh()]),
            pairs(6, vec![putfh(), access(1, 1, 1), access(2, 2, 0)]),
        ],
        &[
            &format!("V3 ACCESS Call, {FH}, [Check: RD LU MD XT DL]"),
            "V3 ACCESS Reply, [Access Denied: MD XT DL], [Allowed: RD LU]",
            &format!("V3 ACCESS Call, {FH}, [Check: RD LU MD XT DL]"),
            "V3 ACCESS Reply, [Allowed: RD LU MD XT DL]",
            &format!("V3 ACCESS Call, {FH}, [Check: RD LU MD XT DL XE]"),
            "V3 ACCESS Reply, [Access Denied: RD LU MD XT DL XE]",
            &format!("V4 Call ACCESS {FH}, [Check: RD LU MD XT DL]"),
            "V4 Reply ACCESS, [Access Denied: MD XT DL], [Allowed: RD LU]",
            &format!("V4 Call ACCESS {FH}, [Check: RD LU MD XT DL XE]"),
            "V4 Reply ACCESS, [NOT Supported: XE], [Access Denied: MD XT DL], [Allowed: RD LU]",
            &format!("V4 Call ACCESS {FH}, [Check: RD] | ACCESS {FH}, [Check: LU]"),
            // Of two that ask about others nobody says which kinds the server does not know.
            "V4 Reply ACCESS, [Allowed: RD] | ACCESS, [Access Denied: LU]",
        ],
    );
}

#[test]
fn what_the_results_of_a_compound_say() {
    let write = |len: u32, committed| {
        let data = Bytes::from(vec![1; len as usize]);
        let args = a::WriteArgs { stateid: stateid(), offset: 0, stable: v4::StableHow::FileSync, data };
        let res = WriteRes { count: len, committed, writeverf: [9; 8] };
        (ArgOp::Write(args), ok(OpNum::WRITE, ResBody::Write(res)))
    };
    let read = (
        ArgOp::Read(a::ReadArgs { stateid: stateid(), offset: 5, count: 4000 }),
        ok(OpNum::READ, ResBody::Read(ReadRes { eof: true, data: vec![5; 3333].into() })),
    );
    let lock =
        a::LocktArgs { locktype: v4::LockType::Read, offset: 3, length: u64::MAX, owner: a::owner(1, b"x") };
    let failed = ResOp { op: OpNum::OPEN, status: NfsStat::NFS4ERR_NOENT, body: ResBody::Empty };
    listed(
        &[
            pairs(1, vec![putfh(), (open(), opened(OpenDelegation::None)), access(1, 1, 1)]),
            pairs(2, vec![putfh(), write(1024, v4::StableHow::FileSync)]),
            pairs(3, vec![putfh(), write(7, v4::StableHow::Unstable)]),
            pairs(4, vec![putfh(), read.clone(), write(1, v4::StableHow::DataSync)]),
            pairs(5, vec![putfh(), (ArgOp::Lockt(lock), ok(OpNum::LOCKT, ResBody::Empty))]),
            pairs(6, vec![putfh(), (open(), failed)]),
        ],
        &[
            "V4 Call OPEN DH: 0xa3d824cb/test1",
            "V4 Reply OPEN StateID: 0xd617",
            "V4 Call WRITE StateID: 0xd617 Offset: 0 Len: 1024 FILE_SYNC",
            "V4 Reply WRITE Len: 1024 FILE_SYNC",
            "V4 Call WRITE StateID: 0xd617 Offset: 0 Len: 7 FILE_SYNC",
            "V4 Reply WRITE Len: 7 UNSTABLE",
            "V4 Call READ StateID: 0xd617 Offset: 5 Len: 4000 | WRITE StateID: 0xd617 Offset: 0 Len: 1 FILE_SYNC",
            "V4 Reply READ Len: 3333 | WRITE Len: 1 DATA_SYNC",
            &format!("V4 Call LOCKT {FH} Offset: 3 Length: <End of File>"),
            "V4 Reply LOCKT",
            "V4 Call OPEN DH: 0xa3d824cb/test1",
            "V4 Reply OPEN Status: NFS4ERR_NOENT",
        ],
    );
}

/// What the WRITE behind each of these says shows that the results before ended where they end.
#[test]
fn results_end_where_they_end() {
    let s = stateid();
    let cinfo = v4::ChangeInfo { atomic: true, before: 1, after: 2 };
    let permissions = || NfsAce { kind: 0, flag: 0, access_mask: 7, who: Bytes::from_static(b"EVERYONE@") };
    let blocks = SpaceLimit::Blocks { num_blocks: 7, bytes_per_block: 512 };
    let write =
        |space_limit| WriteDelegation { stateid: s, recall: false, space_limit, permissions: permissions() };
    let read = || ReadDelegation { stateid: s, recall: true, permissions: permissions() };
    let sequence = SequenceRes {
        sessionid: Default::default(),
        sequenceid: 1,
        slotid: 0,
        highest_slotid: 1,
        target_highest_slotid: 1,
        status_flags: 0,
    };
    let attrs = v4::Fattr { mask: bits(&[1, 33, 50]), values: vec![1; 21].into() };
    let set = ResBody::Create(CreateRes { cinfo, attrset: bits(&[33]) });
    let rename = ResBody::Rename(RenameRes { source_cinfo: cinfo, target_cinfo: cinfo });
    let passed = vec![
        ok(OpNum::SEQUENCE, ResBody::Sequence(sequence)),
        ok(OpNum::PUTROOTFH, ResBody::Empty),
        ok(OpNum::GETFH, ResBody::Getfh(v4::FileHandle(Bytes::from_static(&HANDLE)))),
        ok(OpNum::GETATTR, ResBody::Getattr(attrs)),
        ok(OpNum::CREATE, set),
        ok(OpNum::SETATTR, ResBody::Setattr(bits(&[4, 33]))),
        ok(OpNum::RENAME, rename),
        ok(OpNum::REMOVE, ResBody::Remove(cinfo)),
        ok(OpNum::LINK, ResBody::Link(cinfo)),
        ok(OpNum::COMMIT, ResBody::Commit([1; 8])),
        ok(OpNum::CLOSE, ResBody::Close(s)),
        ok(OpNum::LOCK, ResBody::Lock(s)),
        ok(OpNum::LOCKU, ResBody::Locku(s)),
        ok(OpNum::LOCKT, ResBody::Empty),
        ok(OpNum::OPEN_CONFIRM, ResBody::OpenConfirm(s)),
        ok(OpNum::OPEN_DOWNGRADE, ResBody::OpenDowngrade(s)),
        ok(OpNum::READ, ResBody::Read(ReadRes { eof: false, data: vec![1; 5].into() })),
        ok(OpNum::READ, ResBody::Read(ReadRes { eof: false, data: vec![1; 100_001].into() })),
        ok(OpNum::DELEGRETURN, ResBody::Empty),
        ok(OpNum::ALLOCATE, ResBody::Empty),
        opened(OpenDelegation::None),
        opened(OpenDelegation::Read(read())),
        opened(OpenDelegation::ReadAttrs(read())),
        opened(OpenDelegation::Write(write(SpaceLimit::Size(5)))),
        opened(OpenDelegation::Write(write(blocks.clone()))),
        opened(OpenDelegation::WriteAttrs(write(blocks))),
        opened(OpenDelegation::NoneExt(WhyNone { why: 1, will_signal: true })),
        opened(OpenDelegation::NoneExt(WhyNone { why: 3, will_signal: false })),
    ];
    let written = WriteRes { count: 77, committed: v4::StableHow::FileSync, writeverf: [9; 8] };
    for result in passed {
        let op = result.op;
        let last = ok(OpNum::WRITE, ResBody::Write(written.clone()));
        // The call does not matter: its end was not captured.
        let found = lines(&[compound(1, vec![ArgOp::Putrootfh], vec![result, last])], 1448);
        assert!(found[1].ends_with("WRITE Len: 77 FILE_SYNC"), "{op}: {}", found[1]);
    }
}

/// Frames that were cut short: the names of the operations are those of the call.
#[test]
fn results_that_were_cut_off() {
    let (asked, answered) = pairs(1, vec![putfh(), (open(), opened(OpenDelegation::None)), access(1, 1, 1)]);
    let mut wire = Wire::new(700);
    wire.open();
    wire.send(true, &asked);
    let from = wire.frames.len();
    wire.send(false, &answered);
    let whole = wire.frames[from].data.len();
    let mut ends = Vec::new();
    for len in 54 + 28..=whole {
        let mut frames = wire.frames.clone();
        frames[from].data.truncate(len);
        let (_, seen) = look(&frames);
        let line = seen.lines.get(1).unwrap_or_else(|| panic!("no reply in {len} bytes"));
        ends.push(line.split_once("(Call In 3)").expect("a reply").1.to_owned());
    }
    ends.dedup();
    assert_eq!(ends, [" OPEN", " OPEN StateID: 0xd617"]);
}

#[test]
fn mount_and_access_lists() {
    let path = |path: &'static [u8]| Bytes::from_static(path).to_bytes();
    let mnt = |xid, version, name: &'static [u8], result: &[u8]| {
        (call(xid, mount::PROGRAM, version, mount::proc::MNT, &path(name)), reply(xid, result))
    };
    let mounted = mount::Mounted { handle: handle(), auth_flavors: vec![1, 390_003] };
    let failed = mount::MntRes::Fail(mount::MountStat::ACCES).to_bytes();
    let old = [&[0; 4][..], &HANDLE].concat();
    let umnt = (call(4, mount::PROGRAM, 3, mount::proc::UMNT, &path(b"/exp ort")), reply(4, &[]));
    let export = (call(5, mount::PROGRAM, 3, mount::proc::EXPORT, &[]), reply(5, &[0; 4]));
    let getacl = nfsacl::GetaclArgs { object: handle(), mask: 5 }.to_bytes();
    let setacl = nfsacl::SetaclArgs { object: handle(), lists: nfsacl::Lists::default() }.to_bytes();
    let acl = |xid, procedure, args: &[u8], result: &[u8]| {
        (call(xid, nfsacl::PROGRAM, nfsacl::VERSION, procedure, args), reply(xid, result))
    };
    listed(
        &[
            mnt(1, 3, b"/exp ort", &mount::MntRes::Ok(mounted).to_bytes()),
            mnt(2, 3, b"/no\nsuch", &failed),
            mnt(3, 1, b"/old", &old),
            umnt,
            export,
            acl(6, nfsacl::proc::GETACL, &getacl, &[0; 28]),
            acl(7, nfsacl::proc::SETACL, &setacl, &[0, 0, 0, 30, 0, 0, 0, 0]),
        ],
        &[
            "V3 MNT Call /exp ort",
            &format!("V3 MNT Reply, {FH}"),
            "V3 MNT Call /no\\nsuch",
            "V3 MNT Reply Error: MNT3ERR_ACCES",
            "V1 MNT Call /old",
            &format!("V1 MNT Reply, {FH}"),
            "V3 UMNT Call /exp ort",
            "V3 UMNT Reply",
            "V3 EXPORT Call",
            "V3 EXPORT Reply",
            &format!("V3 GETACL Call, {FH}"),
            "V3 GETACL Reply",
            &format!("V3 SETACL Call, {FH}"),
            "V3 SETACL Reply Error: NFS3ERR_ROFS",
        ],
    );
}

#[test]
fn locks() {
    let cookie = || v4::Opaque1024(Bytes::from_static(b"ck"));
    let obj = |b: &'static [u8]| v4::Opaque1024(Bytes::from_static(b));
    let lock = |offset, length| nlm::Lock {
        caller_name: obj(b"host"),
        fh: obj(&HANDLE),
        oh: obj(b"owner"),
        svid: 77,
        offset,
        length,
    };
    let nlm_call = |xid, procedure, args: &[u8], result: &[u8]| {
        (call(xid, nlm::PROGRAM, nlm::VERSION, procedure, args), reply(xid, result))
    };
    let res = |stat| nlm::Res { cookie: cookie(), stat }.to_bytes();
    let holder = nlm::Holder { exclusive: false, svid: -5, oh: obj(b"another"), offset: 0, length: 10 };
    let held = nlm::TestReply { stat: nlm::NlmStat::DENIED, holder: Some(holder) };
    let held = nlm::TestRes { cookie: cookie(), reply: held }.to_bytes();
    let test = nlm::TestArgs { cookie: cookie(), exclusive: true, lock: lock(100, 50) };
    let waits = |block, reclaim| nlm::LockArgs {
        cookie: cookie(),
        block,
        exclusive: block,
        lock: lock(0, 0),
        reclaim,
        state: 3,
    };
    let cancel = nlm::CancelArgs { cookie: cookie(), block: true, exclusive: true, lock: lock(0, 0) };
    let unlock = nlm::UnlockArgs { cookie: cookie(), lock: lock(100, u64::MAX) };
    let share = nlm::Share { caller_name: obj(b"host"), fh: obj(&HANDLE), oh: obj(b"o"), mode: 0, access: 1 };
    let share = nlm::ShareArgs { cookie: cookie(), share, reclaim: false };
    let shared = nlm::ShareRes { cookie: cookie(), stat: nlm::NlmStat::GRANTED, sequence: 0 };
    // Version 1: 32 bits for a place.
    let mut old = BytesMut::new();
    cookie().encode(&mut old);
    obj(b"host").encode(&mut old);
    obj(&HANDLE).encode(&mut old);
    obj(b"owner").encode(&mut old);
    [77u32, 100, 50].iter().for_each(|word| word.encode(&mut old));
    let old = (call(9, nlm::PROGRAM, 1, nlm::proc::UNLOCK, &old), reply(9, &res(nlm::NlmStat::GRANTED)));
    listed(
        &[
            nlm_call(1, nlm::proc::TEST, &test.to_bytes(), &held),
            nlm_call(2, nlm::proc::LOCK, &waits(true, false).to_bytes(), &res(nlm::NlmStat::BLOCKED)),
            nlm_call(3, nlm::proc::LOCK, &waits(false, true).to_bytes(), &res(nlm::NlmStat::GRANTED)),
            nlm_call(4, nlm::proc::CANCEL, &cancel.to_bytes(), &res(nlm::NlmStat::DENIED)),
            nlm_call(5, nlm::proc::UNLOCK, &unlock.to_bytes(), &res(nlm::NlmStat::DENIED_GRACE_PERIOD)),
            nlm_call(6, nlm::proc::GRANTED_RES, &res(nlm::NlmStat(99)), &[]),
            nlm_call(7, nlm::proc::UNLOCK_MSG, &unlock.to_bytes(), &[]),
            nlm_call(8, nlm::proc::SHARE, &share.to_bytes(), &shared.to_bytes()),
            old,
        ],
        &[
            &format!("V4 TEST Call, {FH} svid: 77 Offset: 100 Length: 50 EXCLUSIVE"),
            "V4 TEST Reply NLM_DENIED svid: -5 Offset: 0 Length: 10 SHARED",
            &format!("V4 LOCK Call, {FH} svid: 77 Offset: 0 Length: <End of File> EXCLUSIVE BLOCK"),
            "V4 LOCK Reply NLM_BLOCKED",
            &format!("V4 LOCK Call, {FH} svid: 77 Offset: 0 Length: <End of File> SHARED RECLAIM"),
            "V4 LOCK Reply",
            &format!("V4 CANCEL Call, {FH} svid: 77 Offset: 0 Length: <End of File> EXCLUSIVE BLOCK"),
            "V4 CANCEL Reply NLM_DENIED",
            &format!("V4 UNLOCK Call, {FH} svid: 77 Offset: 100 Length: {}", u64::MAX),
            "V4 UNLOCK Reply NLM_DENIED_GRACE_PERIOD",
            "V4 GRANTED_RES Call status 99",
            "V4 GRANTED_RES Reply",
            &format!("V4 UNLOCK_MSG Call, {FH} svid: 77 Offset: 100 Length: {}", u64::MAX),
            "V4 UNLOCK_MSG Reply",
            &format!("V4 SHARE Call, {FH}"),
            "V4 SHARE Reply",
            &format!("V1 UNLOCK Call, {FH} svid: 77 Offset: 100 Length: 50"),
            "V1 UNLOCK Reply",
        ],
    );
}

#[test]
fn callbacks() {
    let fh = || v4::FileHandle(Bytes::from_static(&HANDLE));
    let session = CbSequenceArgs {
        sessionid: Default::default(),
        sequenceid: 1,
        slotid: 0,
        highest_slotid: 0,
        cachethis: false,
        referring: Vec::new(),
    };
    let answered = CbSequenceRes {
        sessionid: Default::default(),
        sequenceid: 1,
        slotid: 0,
        highest_slotid: 0,
        target_highest_slotid: 0,
    };
    let sequence = CbRes { op: OpNum(11), status: NfsStat::NFS4_OK, sequence: Some(answered), attrs: None };
    let done = WriteResponse {
        callback_id: Some(stateid()),
        count: 1000,
        committed: v4::StableHow::FileSync,
        writeverf: [1; 8],
    };
    let offload = |outcome| CbOp::Offload(CbOffloadArgs { fh: fh(), stateid: stateid(), outcome });
    let callback = |xid: u32, ops: Vec<CbOp>, results: Vec<(u32, u32)>| {
        let args =
            CbCompoundArgs { tag: Bytes::from_static(b"tag"), minor_version: 2, callback_ident: 0, ops };
        let mut body = BytesMut::new();
        results.last().map_or(0, |last| last.1).encode(&mut body);
        Bytes::from_static(b"tag").encode(&mut body);
        (results.len() as u32 + 1).encode(&mut body);
        sequence.encode(&mut body);
        results.iter().for_each(|(op, status)| [*op, *status].iter().for_each(|word| word.encode(&mut body)));
        (call(xid, CALLBACKS, 1, 1, &args.to_bytes()), reply(xid, &body))
    };
    // Those which this repository does not send, word by word behind a CB_SEQUENCE with referring calls.
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_be_bytes()).collect() };
    let opaque = |bytes: &'static [u8]| Bytes::from_static(bytes).to_bytes();
    let raw = |xid: u32, op: u32, args: &[&[u8]], status: u32| {
        let referring = words(&[11, 0, 0, 0, 0, 1, 0, 0, 0, 1, 9, 9, 9, 9, 2, 1, 0, 2, 0]);
        let body = [&words(&[0, 1, 0, 3, 10, 7])[..], &referring, &words(&[op]), &args.concat()].concat();
        let answer =
            [&words(&[status, 0, 3, 10, 0])[..], &sequence.to_bytes(), &words(&[op, status])].concat();
        (call(xid, CALLBACKS, 1, 1, &body), reply(xid, &answer))
    };
    let (handle, state) = (opaque(&HANDLE), stateid().to_bytes());
    let all = [&words(&[0, 0])[..], &words(&[u32::MAX, u32::MAX])].concat();
    let before = "CB_RECALL_SLOT Highest slot: 7;CB_SEQUENCE;";
    let call_of = |rest: &str| format!("V1 CB_COMPOUND Call {before}{rest}");
    listed(
        &[
            (call(1, CALLBACKS, 1, 0, &[]), reply(1, &[])),
            callback(2, vec![CbOp::Sequence(session.clone()), offload(Ok(done))], vec![(15, 0)]),
            callback(
                3,
                vec![CbOp::Sequence(session), offload(Err((NfsStat::NFS4ERR_NOSPC, 5)))],
                vec![(15, 10008)],
            ),
            raw(4, 4, &[&state, &words(&[0]), &handle], 0),
            raw(5, 5, &[&words(&[1, 2, 1, 1]), &handle, &all, &state], 10060),
            raw(6, 5, &[&words(&[1, 2, 0, 3])], 0),
            raw(7, 8, &[&words(&[9, 1, 3])], 0),
            raw(8, 13, &[&handle, &words(&[0, 1]), &opaque(b"owner")], 0),
            raw(9, 6, &[&state, &handle, &words(&[1, 1, 1]), &opaque(b"list")], 0),
            raw(10, 99, &[], 10044),
        ],
        &[
            "V1 CB_NULL Call",
            "V1 CB_NULL Reply",
            &format!("V1 CB_COMPOUND Call CB_SEQUENCE;CB_OFFLOAD {FH} StateID: 0xd617 Len: 1000 FILE_SYNC"),
            "V1 CB_COMPOUND Reply CB_SEQUENCE;CB_OFFLOAD",
            &format!(
                "V1 CB_COMPOUND Call CB_SEQUENCE;CB_OFFLOAD {FH} StateID: 0xd617 Len: 5 Status: NFS4ERR_NOSPC"
            ),
            "V1 CB_COMPOUND Reply CB_SEQUENCE;CB_OFFLOAD Status: NFS4ERR_DELAY",
            &call_of(&format!("CB_RECALL StateID: 0xd617 {FH}")),
            "V1 CB_COMPOUND Reply CB_RECALL_SLOT;CB_SEQUENCE;CB_RECALL",
            &call_of(&format!(
                "CB_LAYOUTRECALL {FH} Offset: 0 Length: <End of File> StateID: 0xd617 (changed)"
            )),
            "V1 CB_COMPOUND Reply CB_RECALL_SLOT;CB_SEQUENCE;CB_LAYOUTRECALL Status: NFS4ERR_NOMATCHING_LAYOUT",
            &call_of("CB_LAYOUTRECALL of all"),
            "V1 CB_COMPOUND Reply CB_RECALL_SLOT;CB_SEQUENCE;CB_LAYOUTRECALL",
            &call_of("CB_RECALL_ANY Keep: 9"),
            "V1 CB_COMPOUND Reply CB_RECALL_SLOT;CB_SEQUENCE;CB_RECALL_ANY",
            &call_of(&format!("CB_NOTIFY_LOCK {FH}")),
            "V1 CB_COMPOUND Reply CB_RECALL_SLOT;CB_SEQUENCE;CB_NOTIFY_LOCK",
            &call_of(&format!("CB_NOTIFY StateID: 0xd617 {FH}")),
            "V1 CB_COMPOUND Reply CB_RECALL_SLOT;CB_SEQUENCE;CB_NOTIFY",
            &call_of("operation 99"),
            "V1 CB_COMPOUND Reply CB_RECALL_SLOT;CB_SEQUENCE;operation 99 Status: NFS4ERR_OP_ILLEGAL",
        ],
    );
}
