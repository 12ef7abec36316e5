//! Captures made by hand: what is found in them, whatever happened to them on their way.

#[allow(dead_code)]
mod wire;

use landfast_nfs::v3::args::WriteArgs;
use landfast_nfs::v3::types::{DirOp, StableHow};
use landfast_nfs::v4::args as a;
use landfast_nfs::v4::data::{CloneArgs, CopyArgs, IoAdviseArgs, NetLoc, RangeArgs, SeekArgs};
use landfast_nfs::v4::v40::{
    CallbackClient, ClientAddr, NfsClientId, OpenConfirmArgs, SetclientidArgs, SetclientidConfirmArgs,
};
use landfast_nfs::v4::{ArgOp, CompoundArgs, OpNum, Stateid};
use landfast_nfs::{PROGRAM, v3, v4};
use landfast_trace::frame::Passed;
use landfast_trace::skim::Outcome;
use landfast_trace::skim::facts::Class;
use landfast_trace::skim::v4::number;
use landfast_trace::source::{Capture, End, SourceError};
use landfast_trace::table::{Item, seconds};
use landfast_xdr::{Bytes, BytesMut, Encode};
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::{Captured, Seen, Wire, call, fragments, look, look_at, reply};

const MS: i64 = 1_000_000;

fn handle() -> v3::FileHandle {
    v3::FileHandle(Bytes::from_static(&[7; 32]))
}

fn lookup(xid: u32, name: &str) -> Vec<u8> {
    let args = DirOp { dir: handle(), name: Bytes::copy_from_slice(name.as_bytes()) };
    call(xid, PROGRAM, 3, v3::proc::LOOKUP, &args.to_bytes())
}

fn write(xid: u32, len: usize) -> Vec<u8> {
    let data = Bytes::from(vec![1; len]);
    let count = u32::try_from(len).expect("a length");
    let args = WriteArgs { file: handle(), offset: 0, count, stable: StableHow::FileSync, data };
    call(xid, PROGRAM, 3, v3::proc::WRITE, &args.to_bytes())
}

/// A reply of NFSv3 with a status and nothing else.
fn status(xid: u32, status: u32) -> Vec<u8> {
    reply(xid, &status.to_be_bytes())
}

fn compound(xid: u32, ops: Vec<ArgOp>) -> Vec<u8> {
    let announced = u32::try_from(ops.len()).expect("a count");
    let args = CompoundArgs { tag: Bytes::from_static(b"tag"), minor_version: 1, announced, ops };
    call(xid, PROGRAM, 4, 1, &args.to_bytes())
}

/// A reply to a COMPOUND: status and how many operations there are results of, without the results, which nobody reads.
fn done(xid: u32, status: u32, operations: u32) -> Vec<u8> {
    let mut body = BytesMut::new();
    status.encode(&mut body);
    Bytes::from_static(b"tag").encode(&mut body);
    operations.encode(&mut body);
    reply(xid, &body)
}

/// `calls` calls one after another, each answered after a millisecond: every third a WRITE of several segments.
fn work(wire: &mut Wire, calls: u32) {
    for xid in 1..=calls {
        wire.send(true, &if xid % 3 == 0 { write(xid, 5000) } else { lookup(xid, "name") });
        wire.wait(MS);
        wire.send(false, &status(xid, 0));
    }
}

fn matched(seen: &Seen) -> Vec<u32> {
    seen.answered.iter().map(|(call, _)| call.head.xid).collect()
}

#[test]
fn service_time_is_from_the_calls_last_segment_to_the_replys_last() {
    let mut wire = Wire::new(995);
    wire.open();
    let (first, last) = wire.send(true, &write(5, 64 << 10));
    wire.wait(7 * MS);
    wire.segment = 10;
    let (_, replied) = wire.send(false, &status(5, 0));
    let (totals, seen) = look(&wire.frames);
    assert_eq!((totals.calls_seen, totals.calls_matched, totals.rpc_connections), (1, 1, 1));
    let (place, row) = seen.table.rows().next().expect("a row");
    assert_eq!((place.name().as_str(), place.index(), row.calls), ("WRITE", 7, 1));
    assert_eq!(i64::try_from(row.sum_ns), Ok(replied - last));
    assert_eq!(
        (row.min_ns, row.max_ns, row.avg_ns()),
        (row.percentile_ns(50.0), row.percentile_ns(99.0), row.min_ns)
    );
    assert_eq!(seen.answered[0].0.times.first.ns, first);
    assert!(last - first > 40_000, "it took many segments");
    let line = &seen.lines[0];
    assert!(line.contains(" 10.0.0.2 -> 10.0.0.1 NFS "), "{line}");
    assert!(
        line.contains(" V3 WRITE Call, FH: 0x") && line.ends_with(" Offset: 0 Len: 65536 FILE_SYNC"),
        "{line}"
    );
}

#[test]
fn the_listing_is_tsharks() {
    let mut wire = Wire::new(700);
    wire.open();
    wire.send(true, &lookup(9, "testfile1"));
    wire.wait(2 * MS);
    wire.send(false, &status(9, 2));
    let handle = v4::FileHandle(Bytes::from_static(&[7; 32]));
    let ops = [ArgOp::Putfh(handle), ArgOp::Access(0x1f), ArgOp::Getattr(v4::Bitmap::default())];
    wire.send(true, &compound(10, ops.to_vec()));
    wire.send(false, &done(10, 13, 2));
    let (_, seen) = look(&wire.frames);
    let digest = format!("{:08x}", crc(&[7; 32]));
    let lengths: Vec<u32> = wire.frames.iter().map(|f| f.wire_len).collect();
    assert_eq!(
        seen.lines,
        [
            format!(
                "3 0.000001 0.000003 10.0.0.2 -> 10.0.0.1 NFS {} V3 LOOKUP Call, DH: 0x{digest}/testfile1",
                lengths[2]
            ),
            format!(
                "4 0.002001 0.002004 10.0.0.1 -> 10.0.0.2 NFS {} V3 LOOKUP Reply (Call In 3) Error: NFS3ERR_NOENT",
                lengths[3]
            ),
            format!(
                "5 0.000001 0.002005 10.0.0.2 -> 10.0.0.1 NFS {} V4 Call ACCESS FH: 0x{digest}, [Check: RD LU MD XT DL]",
                lengths[4]
            ),
            format!(
                "6 0.000001 0.002006 10.0.0.1 -> 10.0.0.2 NFS {} V4 Reply (Call In 5) ACCESS Status: NFS4ERR_ACCESS",
                lengths[5]
            ),
        ]
    );
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[test]
fn the_operations_behind_a_writes_data_are_found() {
    let mut wire = Wire::new(700);
    let data = Bytes::from(vec![9; 100_001]);
    let write =
        a::WriteArgs { stateid: Stateid::default(), offset: 3, stable: v4::StableHow::Unstable, data };
    let one = [
        ArgOp::Lookup(Bytes::from_static(b"x")),
        ArgOp::Write(write),
        ArgOp::Getattr(v4::Bitmap::default()),
        ArgOp::Close(a::CloseArgs { seqid: 0, open_stateid: Stateid::default() }),
    ];
    wire.open();
    wire.send(true, &compound(1, one.iter().cycle().take(40).cloned().collect()));
    wire.send(false, &done(1, 0, 40));
    let (totals, seen) = look(&wire.frames);
    let ops: Vec<OpNum> = seen.calls[0].head.ops.iter().map(|op| number(*op)).collect();
    let expected: Vec<OpNum> = one.iter().map(ArgOp::op).cycle().take(40).collect();
    assert_eq!((ops, totals.calls_matched), (expected, 1));
}

#[test]
fn the_main_operation_is_of_those_that_were_carried_out() {
    let name = || Bytes::from_static(b"x");
    let row = |ops: Vec<ArgOp>, done_of: u32| {
        let mut wire = Wire::new(700);
        wire.open();
        wire.send(true, &compound(1, ops));
        wire.send(false, &done(1, u32::from(done_of == 2) * 10, done_of));
        let (_, seen) = look(&wire.frames);
        let rows = seen.table.rows().filter(|(p, _)| matches!(p.item, Item::Operation(_)));
        rows.map(|(p, _)| p.name()).collect::<Vec<_>>()
    };
    let attrs = v4::Bitmap::default;
    let ops = vec![
        ArgOp::Putrootfh,
        ArgOp::Nverify(v4::Fattr::default()),
        ArgOp::Lookup(name()),
        ArgOp::Getattr(attrs()),
    ];
    assert_eq!(row(ops, 2), ["NVERIFY"]);
    assert_eq!(row(vec![ArgOp::Putrootfh, ArgOp::Getfh, ArgOp::Getattr(attrs())], 3), ["PUTROOTFH"]);
    assert_eq!(row(vec![ArgOp::Savefh, ArgOp::Getattr(attrs())], 2), ["GETATTR"]);
    assert_eq!(row(vec![ArgOp::Access(1), ArgOp::Getattr(attrs()), ArgOp::Remove(name())], 3), ["REMOVE"]);
}

fn bits(numbers: &[u32]) -> v4::Bitmap {
    let mut bits = v4::Bitmap::default();
    numbers.iter().for_each(|n| bits.set(*n));
    bits
}

/// Operations with arguments of every form that this repository can encode.
fn one_of_each() -> Vec<ArgOp> {
    let s = Stateid::default();
    let name = || Bytes::from_static(b"a name");
    let owner = || a::owner(1, b"owner");
    let attrs = || v4::Fattr { mask: bits(&[1, 33, 50]), values: vec![1; 21].into() };
    let sys = a::AuthSysParms { stamp: 1, machine_name: name(), uid: 0, gid: 0, gids: vec![1, 2, 3] };
    let security = || {
        vec![
            a::CallbackSecParms::None,
            a::CallbackSecParms::Sys(sys.clone()),
            a::CallbackSecParms::Gss { service: 1, handle_from_server: name(), handle_from_client: name() },
        ]
    };
    let ops = || a::StateProtectOps { must_enforce: bits(&[5, 60]), must_allow: v4::Bitmap::default() };
    let exchange = |state_protect| {
        ArgOp::ExchangeId(a::ExchangeIdArgs {
            client_owner: v4::ClientOwner { verifier: [0; 8], owner_id: v4::Opaque1024(name()) },
            flags: 0,
            state_protect,
            client_impl_id: vec![v4::ImplId { domain: name(), name: name(), date: v4::NfsTime::default() }],
        })
    };
    let ssv = a::StateProtectArgs::Ssv {
        ops: ops(),
        hash_algs: vec![name(), name()],
        encr_algs: vec![name()],
        window: 1,
        num_gss_handles: 2,
    };
    let channel = || v4::ChannelAttrs { rdma_ird: vec![1], ..v4::ChannelAttrs::default() };
    let lock = |locker| {
        ArgOp::Lock(a::LockArgs {
            locktype: v4::LockType::Write,
            reclaim: false,
            offset: 0,
            length: 1,
            locker,
        })
    };
    let open = |openhow, claim| {
        ArgOp::Open(a::OpenArgs { seqid: 0, share_access: 1, share_deny: 0, owner: owner(), openhow, claim })
    };
    let made = |how| open(a::OpenHow::Create(how), a::OpenClaim::Fh);
    let opened = |claim| open(a::OpenHow::NoCreate, claim);
    let create = |kind| ArgOp::Create(a::CreateArgs { kind, name: name(), attrs: attrs() });
    let range = || RangeArgs { stateid: s, offset: 0, length: 1 };
    let address = || ClientAddr { netid: name(), addr: name() };
    let copy = CopyArgs {
        src_stateid: s,
        dst_stateid: s,
        src_offset: 0,
        dst_offset: 0,
        count: 0,
        consecutive: true,
        synchronous: true,
        source_server: vec![NetLoc::Name(name()), NetLoc::Addr(address())],
    };
    let setclientid = SetclientidArgs {
        client: NfsClientId { verifier: [0; 8], id: v4::Opaque1024(name()) },
        callback: CallbackClient { program: 1, location: address() },
        callback_ident: 0,
    };
    vec![
        ArgOp::Access(1),
        ArgOp::Close(a::CloseArgs { seqid: 0, open_stateid: s }),
        ArgOp::Commit(a::CommitArgs { offset: 0, count: 0 }),
        create(a::CreateType::Dir),
        create(a::CreateType::Lnk(name())),
        create(a::CreateType::Chr(v4::SpecData::default())),
        ArgOp::DelegReturn(s),
        ArgOp::Getattr(bits(&[1, 33])),
        ArgOp::Getfh,
        ArgOp::Link(name()),
        lock(a::Locker::Existing { lock_stateid: s, lock_seqid: 0 }),
        lock(a::Locker::New { open_seqid: 0, open_stateid: s, lock_seqid: 0, lock_owner: owner() }),
        ArgOp::Lockt(a::LocktArgs { locktype: v4::LockType::Read, offset: 0, length: 1, owner: owner() }),
        ArgOp::Locku(a::LockuArgs {
            locktype: v4::LockType::Read,
            seqid: 0,
            lock_stateid: s,
            offset: 0,
            length: 1,
        }),
        ArgOp::Lookup(name()),
        ArgOp::Lookupp,
        ArgOp::Nverify(attrs()),
        opened(a::OpenClaim::Null(name())),
        opened(a::OpenClaim::Previous(1)),
        opened(a::OpenClaim::DelegateCur { delegate_stateid: s, file: name() }),
        opened(a::OpenClaim::DelegatePrev(name())),
        opened(a::OpenClaim::DelegCurFh(s)),
        opened(a::OpenClaim::DelegPrevFh),
        made(a::CreateHow::Unchecked(attrs())),
        made(a::CreateHow::Guarded(attrs())),
        made(a::CreateHow::Exclusive([0; 8])),
        made(a::CreateHow::Exclusive41 { verf: [0; 8], attrs: attrs() }),
        ArgOp::OpenDowngrade(a::OpenDowngradeArgs {
            open_stateid: s,
            seqid: 0,
            share_access: 1,
            share_deny: 0,
        }),
        ArgOp::Putfh(v4::FileHandle(name())),
        ArgOp::Putpubfh,
        ArgOp::Putrootfh,
        ArgOp::Read(a::ReadArgs { stateid: s, offset: 0, count: 1 }),
        ArgOp::Readdir(a::ReaddirArgs {
            cookie: 0,
            cookieverf: [0; 8],
            dircount: 1,
            maxcount: 1,
            attr_request: bits(&[1, 33]),
        }),
        ArgOp::Readlink,
        ArgOp::Remove(name()),
        ArgOp::Rename(a::RenameArgs { oldname: name(), newname: name() }),
        ArgOp::Restorefh,
        ArgOp::Savefh,
        ArgOp::Secinfo(name()),
        ArgOp::Setattr(a::SetattrArgs { stateid: s, attrs: attrs() }),
        ArgOp::Verify(attrs()),
        ArgOp::Write(a::WriteArgs {
            stateid: s,
            offset: 0,
            stable: v4::StableHow::FileSync,
            data: vec![1; 9].into(),
        }),
        ArgOp::BackchannelCtl(a::BackchannelCtlArgs { cb_program: 1, sec_parms: security() }),
        ArgOp::BindConnToSession(a::BindConnToSessionArgs {
            sessid: Default::default(),
            dir: 1,
            use_conn_in_rdma_mode: false,
        }),
        exchange(a::StateProtectArgs::None),
        exchange(a::StateProtectArgs::MachCred(ops())),
        exchange(ssv),
        ArgOp::CreateSession(a::CreateSessionArgs {
            clientid: 1,
            sequence: 1,
            flags: 0,
            fore_chan_attrs: channel(),
            back_chan_attrs: v4::ChannelAttrs::default(),
            cb_program: 1,
            sec_parms: security(),
        }),
        ArgOp::DestroySession(Default::default()),
        ArgOp::FreeStateid(s),
        ArgOp::SecinfoNoName(0),
        ArgOp::Sequence(a::SequenceArgs {
            sessionid: Default::default(),
            sequenceid: 1,
            slotid: 0,
            highest_slotid: 0,
            cachethis: true,
        }),
        ArgOp::TestStateid(vec![s, s]),
        ArgOp::DestroyClientid(1),
        ArgOp::ReclaimComplete(false),
        ArgOp::Allocate(range()),
        ArgOp::Copy(copy),
        ArgOp::Deallocate(range()),
        ArgOp::IoAdvise(IoAdviseArgs { stateid: s, offset: 0, count: 1, hints: bits(&[3]) }),
        ArgOp::OffloadCancel(s),
        ArgOp::OffloadStatus(s),
        ArgOp::ReadPlus(a::ReadArgs { stateid: s, offset: 0, count: 1 }),
        ArgOp::Getxattr(name()),
        ArgOp::Setxattr(a::SetxattrArgs { option: a::SetxattrOption::Either, key: name(), value: name() }),
        ArgOp::Listxattrs(a::ListxattrsArgs { cookie: 0, maxcount: 1 }),
        ArgOp::Removexattr(name()),
        ArgOp::Seek(SeekArgs { stateid: s, offset: 0, what: 0 }),
        ArgOp::Clone(CloneArgs { src_stateid: s, dst_stateid: s, src_offset: 0, dst_offset: 0, count: 1 }),
        ArgOp::Setclientid(setclientid),
        ArgOp::SetclientidConfirm(SetclientidConfirmArgs { clientid: 1, confirm: [0; 8] }),
        ArgOp::Renew(1),
        ArgOp::ReleaseLockowner(owner()),
        ArgOp::OpenConfirm(OpenConfirmArgs { open_stateid: s, seqid: 1 }),
    ]
}

#[test]
fn the_arguments_of_every_operation_end_where_they_end() {
    let ops = one_of_each();
    let expected: Vec<OpNum> = ops.iter().map(ArgOp::op).collect();
    for segment in [1448, 5, 60_000] {
        let mut wire = Wire::new(700);
        wire.segment = segment;
        wire.open();
        wire.send(true, &compound(1, ops.clone()));
        let (_, seen) = look(&wire.frames);
        let found: Vec<OpNum> = seen.calls[0].head.ops.iter().map(|op| number(*op)).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_capture_that_begins_or_ends_anywhere_loses_only_what_it_does_not_have() {
    let mut wire = Wire::new(995);
    wire.open();
    work(&mut wire, 30);
    let whole = matched(&look(&wire.frames).1);
    assert_eq!(whole.len(), 30);
    for from in 0..wire.frames.len() {
        let (totals, seen) = look(&wire.frames[from..]);
        let found = matched(&seen);
        assert!(whole.ends_with(&found), "{from}: {found:?}");
        // A call of one segment is found at once; one whose beginning is missing costs itself.
        let complete = wire.frames[from..].len() / 6 * 2;
        assert!(found.len() + 1 >= complete.saturating_sub(1), "{from}: {} of {complete}", found.len());
        assert_eq!(totals.calls_matched, found.len() as u64);
        let (_, seen) = look(&wire.frames[..from]);
        assert!(whole.starts_with(&matched(&seen)));
    }
}

#[test]
fn a_frame_that_is_missing_costs_its_own_call() {
    let mut wire = Wire::new(700);
    wire.open();
    work(&mut wire, 30);
    for lost in 2..wire.frames.len() {
        let rest: Vec<Captured> =
            wire.frames.iter().enumerate().filter(|(i, _)| *i != lost).map(|(_, f)| f.clone()).collect();
        let (totals, seen) = look(&rest);
        assert!(matched(&seen).len() >= 29, "without frame {lost}: {:?}", matched(&seen));
        assert!(totals.tcp.holes == 1 || lost >= wire.frames.len() - 2, "{lost}: {totals:?}");
    }
}

/// Over a long way a queue drops a burst, and a receive window of 4 MiB comes before it is sent again.
#[test]
fn a_burst_that_is_sent_again_behind_a_whole_window_is_no_hole() {
    let mut wire = Wire::new(700);
    wire.open();
    let begin = wire.frames.len();
    for xid in 1..=4 {
        wire.send(true, &write(xid, 1 << 20));
    }
    let ordered = wire.frames.split_off(begin);
    for at in [1, 500, 1000] {
        let (early, burst) = (&ordered[..at], &ordered[at..at + 450]);
        let order = [&wire.frames, early, &ordered[at + 450..], burst].concat();
        let mut late = wire.frames.len() as i64;
        let frames: Vec<Captured> = order
            .into_iter()
            .map(|f| {
                late += 1;
                Captured { ns: 1_000_000_000_000 + late * 10_000, ..f }
            })
            .collect();
        let (totals, seen) = look(&frames);
        assert_eq!((totals.tcp.holes, totals.calls_seen, seen.calls.len()), (0, 4, 4), "burst at {at}");
        assert!(totals.tcp.early > 1000);
    }
}

#[test]
fn frames_that_were_cut_short_keep_the_counts() {
    let mut wire = Wire::new(700);
    wire.open();
    work(&mut wire, 30);
    for snaplen in [128, 200, 1000] {
        let mut cut = wire.frames.clone();
        cut.iter_mut().for_each(|f| f.data.truncate(snaplen));
        let (totals, seen) = look(&cut);
        assert_eq!((totals.calls_seen, totals.calls_matched), (30, 30), "{snaplen}");
        // As tshark: from the first segment.
        let cut_call = seen.answered.iter().find(|(call, _)| call.head.xid == 3).expect("a WRITE");
        assert_eq!(cut_call.0.times.counted(), Some(cut_call.0.times.first));
        assert!(cut_call.0.times.last.expect("its end").ns > cut_call.0.times.first.ns);
        assert!(totals.cut_frames > 0);
    }
}

#[test]
fn an_operation_whose_arguments_were_cut_off_is_one_all_the_same() {
    let mut wire = Wire::new(700);
    let attrs = v4::Fattr { mask: bits(&[4]), values: vec![0; 300].into() };
    let ops = vec![
        ArgOp::Putrootfh,
        ArgOp::Setattr(a::SetattrArgs { stateid: Stateid::default(), attrs }),
        ArgOp::Getattr(v4::Bitmap::default()),
    ];
    wire.open();
    wire.send(true, &compound(1, ops));
    wire.send(false, &done(1, 0, 3));
    wire.frames.iter_mut().for_each(|f| f.data.truncate(200));
    let (totals, seen) = look(&wire.frames);
    let ops: Vec<OpNum> = seen.calls[0].head.ops.iter().map(|op| number(*op)).collect();
    assert_eq!((ops, totals.calls_matched), (vec![OpNum::PUTROOTFH, OpNum::SETATTR], 1));
    assert_eq!(seen.table.operations_unknown(), 0);
    // Of one operation less nobody knows what it was for.
    wire.frames.iter_mut().for_each(|f| f.data.truncate(150));
    let (totals, seen) = look(&wire.frames);
    assert_eq!(seen.calls[0].head.ops, [24]);
    assert_eq!((totals.calls_matched, seen.table.rows().count(), seen.table.operations_unknown()), (1, 1, 1));
}

#[test]
fn what_is_sent_again_is_counted_once() {
    let mut wire = Wire::new(700);
    wire.open();
    work(&mut wire, 9);
    // By TCP.
    let twice: Vec<Captured> = wire.frames.iter().flat_map(|f| [f.clone(), f.clone()]).collect();
    let (totals, seen) = look(&twice);
    assert_eq!((totals.calls_seen, matched(&seen).len()), (9, 9));
    // The same packets are copies; what is sent again has a number of its own.
    assert_eq!((totals.tcp.retransmitted, totals.copies), (0, wire.frames.len() as u64));
    let again = |f: &Captured| {
        let mut again = f.clone();
        again.data[18] ^= 0x40;
        [f.clone(), again]
    };
    let twice: Vec<Captured> = wire.frames.iter().flat_map(again).collect();
    let (totals, seen) = look(&twice);
    assert_eq!((totals.calls_seen, matched(&seen).len(), totals.copies), (9, 9, 0));
    assert_eq!(totals.tcp.retransmitted, wire.frames.len() as u64 - 2);
    // By RPC: one call unanswered before, one answered already.
    let (first, _) = wire.send(true, &lookup(50, "x"));
    wire.send(true, &lookup(50, "x"));
    wire.send(false, &status(50, 0));
    wire.send(true, &lookup(50, "x"));
    wire.send(false, &status(50, 0));
    let (totals, seen) = look(&wire.frames);
    assert_eq!((totals.calls_seen, totals.calls_matched), (10, 10));
    assert_eq!((totals.repeated_calls, totals.repeated_replies), (2, 1));
    assert_eq!(seen.answered[9].0.times.first.ns, first);
}

#[test]
fn the_same_ports_serve_one_connection_after_another() {
    let mut wire = Wire::new(700);
    wire.open();
    work(&mut wire, 5);
    let (sent, _) = wire.send(true, &lookup(70, "unanswered"));
    wire.seq = (5, 4_000_000_000);
    wire.open();
    // Sent again on the new connection, as clients do. Its time runs from the first.
    wire.send(true, &lookup(70, "unanswered"));
    wire.send(false, &status(70, 0));
    // Another program's calls may have numbers that were there before.
    wire.seq = (1_000_000_000, 5);
    wire.open();
    work(&mut wire, 5);
    wire.seq = (2_000_000_000, 3_000_000_000);
    // A beginning that was not captured.
    for xid in 80..90 {
        wire.send(true, &lookup(xid, "x"));
        wire.send(false, &status(xid, 0));
    }
    let (totals, seen) = look(&wire.frames);
    assert_eq!((totals.calls_seen, totals.repeated_calls), (21, 1));
    assert_eq!(matched(&seen).len(), 21);
    assert_eq!(seen.answered[5].0.times.first.ns, sent);
}

#[test]
fn calls_of_both_ends_have_their_own_numbers() {
    let mut wire = Wire::new(700);
    wire.open();
    wire.send(true, &compound(1, vec![ArgOp::Putrootfh]));
    // The server calls back under the same number, on the same connection.
    wire.send(false, &call(1, 0x4000_0000, 1, 1, &[0; 16]));
    wire.send(true, &reply(1, &[0; 12]));
    wire.send(false, &done(1, 0, 1));
    let (totals, seen) = look(&wire.frames);
    assert_eq!((totals.calls_matched, totals.other_calls, seen.answered.len()), (1, 1, 2));
    assert_eq!(seen.answered[0].0.head.kind.program.name(), "NFS CB");
}

#[test]
fn links_and_versions_of_ip() {
    let mut wire = Wire::new(700);
    wire.open();
    work(&mut wire, 6);
    let with = |link: i32, header: &dyn Fn(&[u8]) -> Vec<u8>| {
        let frames = wire.frames.iter().map(|f| {
            let data = header(&f.data[14..]);
            Captured { ns: f.ns, wire_len: u32::try_from(data.len()).expect("a frame"), data }
        });
        let frames = frames.collect::<Vec<_>>();
        assert_eq!(look_at(link, &frames).0.calls_matched, 6, "link layer {link}");
    };
    let behind = |header: Vec<u8>| move |ip: &[u8]| [&header[..], ip].concat();
    with(101, &behind(vec![]));
    with(0, &behind(vec![2, 0, 0, 0]));
    with(113, &behind([&[0; 14][..], &[8, 0]].concat()));
    with(276, &behind([&[8, 0][..], &[0; 18]].concat()));
    with(1, &behind([&[2; 12][..], &[0x81, 0, 0, 7, 8, 0]].concat()));
    with(1, &behind([&[2; 12][..], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0]].concat()));
    with(1, &|ip: &[u8]| {
        let tcp = &ip[20..];
        let len = u16::try_from(tcp.len()).expect("a packet").to_be_bytes();
        let (from, to) = (ip[15], ip[19]);
        let address = |last| [&[0xfd; 15][..], &[last]].concat();
        [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0], &len, &[6, 64], &address(from), &address(to), tcp]
            .concat()
    });
    assert_eq!(look_at(147, &wire.frames).0.passed.values().sum::<u64>(), wire.frames.len() as u64);
}

#[test]
fn records_of_several_fragments() {
    let mut wire = Wire::new(700);
    wire.open();
    let whole = write(1, 5000);
    let fragments = whole[4..].chunks(600);
    let last = fragments.len() - 1;
    for (i, fragment) in fragments.enumerate() {
        let mark = u32::try_from(fragment.len()).expect("a fragment") | if i == last { 1 << 31 } else { 0 };
        wire.send(true, &[&mark.to_be_bytes()[..], fragment].concat());
    }
    wire.send(false, &status(1, 0));
    wire.send(true, &lookup(2, "behind"));
    wire.send(false, &status(2, 0));
    let (totals, seen) = look(&wire.frames);
    assert_eq!((totals.calls_matched, totals.out_of_step, matched(&seen)), (2, 0, vec![1, 2]));
    assert_eq!(seen.calls[0].times.bytes, whole.len() as u64 - 4);
}

#[test]
fn rpc_by_datagrams() {
    let datagram = |up: bool, payload: &[u8]| {
        let ports = if up { [700u16, 2049] } else { [2049, 700] };
        let len = u16::try_from(8 + payload.len()).expect("a datagram");
        let mut data = vec![0x45, 0];
        data.extend((len + 20).to_be_bytes());
        data.extend([
            0,
            1,
            0,
            0,
            64,
            17,
            0,
            0,
            10,
            0,
            0,
            if up { 2 } else { 1 },
            10,
            0,
            0,
            if up { 1 } else { 2 },
        ]);
        data.extend(ports.iter().flat_map(|p| p.to_be_bytes()));
        data.extend(len.to_be_bytes());
        data.extend([0, 0]);
        data.extend(payload);
        let wire_len = u32::try_from(data.len()).expect("a frame");
        Captured { ns: if up { 5 } else { 1_000_005 }, data, wire_len }
    };
    // Without record marks; what is no RPC is nobody's.
    let frames = [
        datagram(true, b"no RPC at all"),
        datagram(true, &lookup(1, "x")[4..]),
        datagram(false, &status(1, 0)[4..]),
    ];
    let (totals, seen) = look_at(101, &frames);
    assert_eq!((totals.calls_matched, totals.rpc_connections, totals.connections), (1, 1, 0));
    assert_eq!(seen.table.rows().next().map(|(_, row)| row.sum_ns), Some(1_000_000));
}

/// RFC 791 section 3.2: what does not fit into a packet comes in several.
#[test]
fn datagrams_in_fragments() {
    let whole = write(1, 5000);
    let mut frames = fragments(true, 7, 0, &whole[4..], 1480);
    assert_eq!(frames.len(), 4);
    // Another client's datagram in between, a fragment before its time, and one twice.
    frames.splice(1..1, fragments(true, 8, 1, &lookup(2, "x")[4..], 1480));
    frames.swap(2, 3);
    frames.insert(4, frames[3].clone());
    frames.extend(fragments(false, 9, 1_000_003, &status(1, 0)[4..], 16));
    frames.extend(fragments(false, 10, 1_000_100, &status(2, 0)[4..], 1480));
    let (totals, seen) = look(&frames);
    assert_eq!((totals.calls_seen, totals.calls_matched, totals.copies), (2, 2, 1));
    assert_eq!(totals.passed, BTreeMap::new());
    let call = seen.calls.iter().find(|call| call.head.xid == 1).expect("the WRITE");
    assert_eq!((call.times.bytes, call.times.cut), (whole.len() as u64 - 4, false));
    // From the last fragment of the call to that of the reply.
    let took: Vec<_> = seen.table.rows().map(|(place, row)| (place.name(), row.sum_ns)).collect();
    let reply_last = fragments(false, 9, 1_000_003, &status(1, 0)[4..], 16).last().expect("one").ns;
    assert!(took.contains(&("WRITE".into(), u128::try_from(reply_last - 3).expect("later"))), "{took:?}");

    // One that is missing leaves the rest without a meaning.
    let mut frames = fragments(true, 7, 0, &whole[4..], 1480);
    frames.remove(2);
    frames.extend(fragments(true, 8, 9, &lookup(2, "x")[4..], 1480));
    let (totals, seen) = look(&frames);
    assert_eq!((totals.calls_seen, totals.passed[&Passed::Fragment]), (1, 3));
    assert_eq!(seen.calls[0].head.xid, 2);

    // Frames that were cut short: what it is, is known from the first.
    let mut frames = fragments(true, 7, 0, &whole[4..], 1480);
    frames.iter_mut().for_each(|frame| frame.data.truncate(250));
    frames.extend(fragments(false, 9, 1_000_003, &status(1, 0)[4..], 1480));
    let (totals, seen) = look(&frames);
    assert_eq!((totals.calls_matched, seen.calls[0].times.cut), (1, true));
    assert_eq!(seen.calls[0].times.bytes, whole.len() as u64 - 4);
}

/// RFC 1094 section 2.2: the numbers are others than those of version 3.
#[test]
fn procedures_of_version_2_have_their_names() {
    let mut wire = Wire::new(700);
    wire.open();
    let handle = [7; 32];
    let named = [&handle[..], &[0, 0, 0, 1, b'x', 0, 0, 0]].concat();
    let write = [&handle[..], &[0; 12], &[0, 0, 0, 4, 1, 2, 3, 4]].concat();
    let calls: [(u32, &[u8]); 5] = [(4, &named), (8, &write), (9, &named), (16, &handle), (17, &handle)];
    for (xid, (procedure, args)) in calls.into_iter().enumerate() {
        let xid = u32::try_from(xid).expect("few");
        wire.send(true, &call(xid, PROGRAM, 2, procedure, args));
        wire.wait(1_000_000);
        // Nothing of that name, the first time.
        wire.send(false, &reply(xid, &u32::to_be_bytes(if xid == 0 { 2 } else { 0 })));
    }
    let (totals, seen) = look(&wire.frames);
    assert_eq!(totals.calls_matched, 5);
    let names: Vec<_> = seen.table.rows().map(|(place, _)| place.name()).collect();
    assert_eq!(names, ["LOOKUP", "WRITE", "CREATE", "READDIR", "STATFS"]);
    let classes: Vec<Class> = seen.calls.iter().map(|call| call.head.facts.class).collect();
    assert_eq!(classes, [Class::Light, Class::StableWrite, Class::Metadata, Class::Fetch, Class::Light]);
    assert_eq!(seen.answered[0].1.head.outcome, Outcome::Done(Some(2)));
    assert!(seen.lines.iter().any(|line| line.contains("V2 WRITE Call")), "{:?}", seen.lines);
}

/// RFC 2203 section 5.3.1: with integrity the arguments stand behind a length and a sequence number, with privacy nobody reads them.
#[test]
fn calls_protected_by_rpcsec_gss() {
    let protected = |xid: u32, service: u32| {
        let plain = compound(xid, vec![ArgOp::Putrootfh, ArgOp::Remove(Bytes::from_static(b"x"))]);
        // Behind the mark: six words, AUTH_SYS with its length and 32 bytes, the verifier.
        let (head, args) = (&plain[4..28], &plain[4 + 24 + 40 + 8..]);
        let mut message = head.to_vec();
        for word in [6, 20, 1, 0, 9, service, 0, 6, 0] {
            message.extend(u32::to_be_bytes(word));
        }
        for word in [u32::try_from(args.len() + 4).expect("a length"), 9] {
            message.extend(u32::to_be_bytes(word));
        }
        if service == 3 {
            message.extend([0x5a; 64])
        } else {
            message.extend(args)
        }
        let mark = u32::try_from(message.len()).expect("a length") | 1 << 31;
        [&mark.to_be_bytes()[..], &message].concat()
    };
    for (service, names, encrypted) in [(2, vec!["COMPOUND", "REMOVE"], 0), (3, vec!["COMPOUND"], 1)] {
        let mut wire = Wire::new(700);
        wire.open();
        wire.send(true, &protected(1, service));
        let results = done(1, 0, 2);
        let body = [&[0, 0, 0, 40, 0, 0, 0, 9][..], &results[28..]].concat();
        wire.send(false, &reply(1, &body));
        let (totals, seen) = look(&wire.frames);
        assert_eq!((totals.calls_matched, totals.encrypted_calls), (1, encrypted), "service {service}");
        assert_eq!(seen.table.rows().map(|(p, _)| p.name()).collect::<Vec<_>>(), names);
    }
}

/// The frames as a file: pcap of either byte order and resolution, or pcapng.
fn file(frames: &[Captured], form: u8) -> Vec<u8> {
    let big = form == 1;
    let u32s = |words: &[u32]| -> Vec<u8> {
        words.iter().flat_map(|w| if big { w.to_be_bytes() } else { w.to_le_bytes() }).collect()
    };
    let lens = |f: &Captured| (u32::try_from(f.data.len()).expect("a frame"), f.wire_len);
    let mut out = Vec::new();
    if form < 3 {
        let magic = if form == 2 { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        out.extend(u32s(&[magic]));
        out.extend(if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] });
        out.extend(u32s(&[0, 0, 65535, 1]));
        for f in frames {
            let sub = (f.ns % 1_000_000_000) / if form == 2 { 1 } else { 1000 };
            let time = [f.ns / 1_000_000_000, sub].map(|t| u32::try_from(t).expect("a time"));
            out.extend(u32s(&[time[0], time[1], lens(f).0, lens(f).1]));
            out.extend(&f.data);
        }
    } else {
        out.extend(u32s(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]));
        // Nanoseconds.
        out.extend(u32s(&[1, 32, 1, 0, 0x0001_0009, 9, 0, 32]));
        for f in frames {
            let padded = f.data.len().next_multiple_of(4);
            let len = u32::try_from(32 + padded).expect("a block");
            let (high, low) = ((f.ns >> 32) as u32, f.ns as u32);
            out.extend(u32s(&[6, len, 0, high, low, lens(f).0, lens(f).1]));
            out.extend(&f.data);
            out.resize(out.len() + padded - f.data.len(), 0);
            out.extend(u32s(&[len]));
        }
    }
    out
}

/// A pipe that gives few bytes at a time.
struct Slow(std::io::Cursor<Vec<u8>>);

impl std::io::Read for Slow {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let few = buf.len().min(7);
        self.0.read(&mut buf[..few])
    }
}

fn read(bytes: Vec<u8>) -> Result<(End, Vec<Captured>), SourceError> {
    let mut frames = Vec::new();
    let end = Capture::open(Slow(std::io::Cursor::new(bytes)))?.each(|f| {
        frames.push(Captured { ns: f.ns, data: f.data.to_vec(), wire_len: f.wire_len });
    })?;
    Ok((end, frames))
}

#[test]
fn files_of_every_form_whole_cut_and_damaged() {
    let mut wire = Wire::new(700);
    wire.open();
    work(&mut wire, 9);
    for form in 0..4 {
        let whole = file(&wire.frames, form);
        let (end, frames) = read(whole.clone()).expect("a capture");
        assert_eq!((end, frames.len()), (End::Whole, wire.frames.len()));
        for (read, made) in frames.iter().zip(&wire.frames) {
            let exact = if form < 2 { made.ns / 1000 * 1000 } else { made.ns };
            assert_eq!((read.ns, &read.data, read.wire_len), (exact, &made.data, made.wire_len));
        }
        for cut in [whole.len() - 1, whole.len() / 2, whole.len() / 3] {
            let (end, frames) = read(whole[..cut].to_vec()).expect("a capture");
            assert_eq!(end, End::CutOff, "{form} {cut}");
            assert!(frames.len() < wire.frames.len() && frames.len() > wire.frames.len() / 6);
        }
        let mut damaged = whole.clone();
        let half = damaged.len() / 2;
        damaged[half..].fill(0xff);
        let (end, frames) = read(damaged).expect("a capture");
        assert!(end != End::Whole && frames.len() > wire.frames.len() / 6, "{form} {end:?}");
    }
    assert!(matches!(read(Vec::new()), Err(SourceError::Empty)));
    assert!(matches!(read(b"a text that is no capture at all".to_vec()), Err(SourceError::NotACapture)));
    assert!(matches!(read(vec![0xd4, 0xc3]), Err(SourceError::NotACapture)));
    assert!(matches!(read(vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0]), Err(SourceError::HeaderCutOff)));
}

#[test]
fn an_offset_of_times_is_in_the_byte_order_of_its_section() {
    for big in [false, true] {
        let u16s = |words: &[u16]| -> Vec<u8> {
            words.iter().flat_map(|w| if big { w.to_be_bytes() } else { w.to_le_bytes() }).collect()
        };
        let u32s = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|w| if big { w.to_be_bytes() } else { w.to_le_bytes() }).collect()
        };
        let offset = 1_700_000_000_i64;
        let offset = if big { offset.to_be_bytes() } else { offset.to_le_bytes() };
        let file = [
            u32s(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]),
            [u32s(&[1, 36]), u16s(&[1, 0]), u32s(&[0])].concat(),
            [u16s(&[14, 8]), offset.to_vec(), u16s(&[0, 0]), u32s(&[36])].concat(),
            [u32s(&[6, 36, 0, 0, 7, 4, 4]), vec![1; 4], u32s(&[36])].concat(),
        ];
        let (end, frames) = read(file.concat()).expect("a capture");
        assert_eq!((end, frames.len()), (End::Whole, 1));
        assert_eq!(frames[0].ns, 1_700_000_000_000_007_000, "big endian: {big}");
    }
}

#[test]
fn more_connections_than_are_followed() {
    let mut trace = landfast_trace::trace::Trace::new(Seen::default());
    let mut ports = 0;
    for server in 0..3u16 {
        for port in 1..=20_000 {
            let mut wire = Wire::new(port);
            wire.ports.1 = 10_000 + server;
            wire.now += i64::from(ports);
            wire.send(true, &lookup(1, "x"));
            wire.frames.iter().for_each(|f| trace.frame(&f.frame(1)));
            ports += 1;
        }
    }
    let (totals, _) = trace.finish();
    assert_eq!((totals.calls_seen, totals.connections), (60_000, 60_000));
    assert!(
        totals.forgotten >= 60_000 - u64::try_from(landfast_trace::limits::CONNECTIONS_MAX).expect("a count")
    );
}

#[test]
fn times_are_rounded_as_tshark_rounds() {
    assert_eq!(seconds(79_500), "0.000080");
    assert_eq!(seconds(79_499), "0.000079");
    assert_eq!(seconds(12_345_678_901), "12.345679");
}

proptest! {
    /// Frames doubled, left out, brought out of order and cut short, and bytes changed: never a crash, and of calls never more
    /// than there are (where no bytes were changed).
    #[test]
    fn whatever_happens_on_the_way(
        steps in proptest::collection::vec((0u8..6, any::<proptest::sample::Index>(), any::<u16>()), 0..40),
        segment in 20usize..3000,
    ) {
        let mut wire = Wire::new(995);
        wire.segment = segment;
        wire.open();
        work(&mut wire, 20);
        let mut frames = wire.frames.clone();
        let mut honest = true;
        for (step, at, how) in steps {
            let i = at.index(frames.len());
            match step {
                0 => { let again = frames[i].clone(); frames.insert(i, again); }
                1 => { let again = frames[i].clone(); frames.push(again); }
                2 if frames.len() > 1 => { frames.remove(i); }
                3 => { let j = (i + usize::from(how % 30)).min(frames.len() - 1); frames.swap(i, j); }
                4 => { let keep = usize::from(how) % 200; frames[i].data.truncate(keep); }
                5 if how % 3 == 0 => {
                    honest = false;
                    let data = &mut frames[i].data;
                    if !data.is_empty() { let j = usize::from(how) % data.len(); data[j] ^= (how >> 8) as u8 | 1; }
                }
                _ => {}
            }
        }
        let (totals, seen) = look(&frames);
        prop_assert!(totals.calls_matched <= totals.calls_seen);
        if honest {
            let mut found = matched(&seen);
            let all = found.len();
            found.sort_unstable();
            found.dedup();
            prop_assert_eq!(found.len(), all);
            prop_assert!(found.iter().all(|xid| (1..=20).contains(xid)), "{:?}", found);
        }
    }

    /// What is only doubled, or brought out of order in one direction by a little, is found whole.
    #[test]
    fn small_disorder_costs_nothing(swaps in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20)) {
        let mut wire = Wire::new(995);
        wire.segment = 300;
        wire.open();
        work(&mut wire, 20);
        let mut frames = wire.frames.clone();
        let up = |f: &Captured| f.data[29] == 2 && f.data.len() > 54;
        for at in swaps {
            let i = at.index(frames.len() - 1);
            if up(&frames[i]) && up(&frames[i + 1]) {
                let (a, b) = (frames[i].ns, frames[i + 1].ns);
                frames.swap(i, i + 1);
                (frames[i].ns, frames[i + 1].ns) = (a, b);
            }
        }
        let (_, seen) = look(&frames);
        prop_assert_eq!(matched(&seen), (1..=20).collect::<Vec<_>>());
        let (_, ordered) = look(&wire.frames);
        let sums = |seen: &Seen| seen.table.rows().map(|(_, r)| (r.calls, r.sum_ns)).collect::<Vec<_>>();
        prop_assert_eq!(sums(&seen), sums(&ordered));
    }
}
