//! A result of each operation, encoded and decoded.

use super::args::{StateProtectOps, owner};
use super::data::{CopyRequirements, CopyRes, OffloadStatusRes, SeekRes, WriteResponse};
use super::res::*;
use super::v40::{ClientAddr, SetclientidRes};
use super::*;
use landfast_xdr::{Bytes, BytesMut, Decode, Encode};

fn results() -> Vec<ResOp> {
    let stateid = Stateid { seqid: 1, other: [2; 12] };
    let cinfo = ChangeInfo { atomic: true, before: 3, after: 4 };
    let fattr = Fattr { mask: Bitmap::of(&[4]), values: Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 5]) };
    let text = Bytes::from_static(b"text");
    let opaque = Opaque1024(text.clone());
    let flavors =
        vec![SecInfo::Flavor(flags::AUTH_SYS), SecInfo::Gss { oid: text.clone(), qop: 6, service: 1 }];
    let channel = ChannelAttrs { max_requests: 7, ..ChannelAttrs::default() };
    let ace = NfsAce { kind: 0, flag: 0, access_mask: 8, who: text.clone() };
    let space_limit = SpaceLimit::Size(9);
    let delegation =
        OpenDelegation::Write(WriteDelegation { stateid, recall: false, space_limit, permissions: ace });
    let open = OpenRes { stateid, cinfo, rflags: 10, attrset: Bitmap::of(&[33]), delegation };
    let entries = vec![DirEntry { cookie: 11, name: text.clone(), attrs: fattr.clone() }];
    let contents = vec![
        ReadPlusContent::Data { offset: 0, data: text.clone() },
        ReadPlusContent::Hole { offset: 4, length: 12 },
    ];
    let exchange = ExchangeIdRes {
        clientid: 13,
        sequenceid: 14,
        flags: 15,
        state_protect: StateProtectRes::MachCred(StateProtectOps::default()),
        server_owner: ServerOwner { minor_id: 16, major_id: opaque.clone() },
        server_scope: opaque,
        server_impl_id: vec![ImplId { domain: text.clone(), name: text.clone(), date: NfsTime::default() }],
    };
    let create_session = CreateSessionRes {
        sessionid: [17; 16],
        sequence: 18,
        flags: 19,
        fore_chan_attrs: channel.clone(),
        back_chan_attrs: channel,
    };
    let sequence = SequenceRes {
        sessionid: [20; 16],
        sequenceid: 21,
        slotid: 22,
        highest_slotid: 23,
        target_highest_slotid: 24,
        status_flags: 25,
    };
    let (committed, writeverf) = (StableHow::FileSync, [26; 8]);
    let response = WriteResponse { callback_id: Some(stateid), count: 27, committed, writeverf };
    let requirements = CopyRequirements { consecutive: true, synchronous: false };
    let status = |op, status, body| ResOp { op, status, body };
    let denied = LockDenied { offset: 28, length: 29, locktype: LockType::Write, owner: owner(30, b"o") };
    let in_use = ClientAddr { netid: Bytes::from_static(b"tcp"), addr: text.clone() };
    let success = [
        (OpNum::ACCESS, ResBody::Access(AccessRes { supported: 31, access: 32 })),
        (OpNum::CLOSE, ResBody::Close(stateid)),
        (OpNum::COMMIT, ResBody::Commit(writeverf)),
        (OpNum::CREATE, ResBody::Create(CreateRes { cinfo, attrset: Bitmap::of(&[33]) })),
        (OpNum::GETATTR, ResBody::Getattr(fattr)),
        (OpNum::GETFH, ResBody::Getfh(FileHandle(text.clone()))),
        (OpNum::LINK, ResBody::Link(cinfo)),
        (OpNum::LOCK, ResBody::Lock(stateid)),
        (OpNum::LOCKU, ResBody::Locku(stateid)),
        (OpNum::OPEN, ResBody::Open(open)),
        (OpNum::OPEN_CONFIRM, ResBody::OpenConfirm(stateid)),
        (OpNum::OPEN_DOWNGRADE, ResBody::OpenDowngrade(stateid)),
        (OpNum::READ, ResBody::Read(ReadRes { eof: true, data: text.clone() })),
        (OpNum::READDIR, ResBody::Readdir(ReaddirRes { cookieverf: [34; 8], entries, eof: true })),
        (OpNum::READLINK, ResBody::Readlink(text.clone())),
        (OpNum::REMOVE, ResBody::Remove(cinfo)),
        (OpNum::RENAME, ResBody::Rename(RenameRes { source_cinfo: cinfo, target_cinfo: cinfo })),
        (OpNum::SECINFO, ResBody::Secinfo(flavors.clone())),
        (OpNum::SECINFO_NO_NAME, ResBody::Secinfo(flavors)),
        (OpNum::SETATTR, ResBody::Setattr(Bitmap::of(&[33]))),
        (OpNum::SETCLIENTID, ResBody::Setclientid(SetclientidRes { clientid: 35, confirm: [36; 8] })),
        (OpNum::WRITE, ResBody::Write(WriteRes { count: 37, committed, writeverf })),
        (
            OpNum::BIND_CONN_TO_SESSION,
            ResBody::BindConnToSession(BindConnToSessionRes {
                sessid: [38; 16],
                dir: 3,
                use_conn_in_rdma_mode: false,
            }),
        ),
        (OpNum::EXCHANGE_ID, ResBody::ExchangeId(Box::new(exchange))),
        (OpNum::CREATE_SESSION, ResBody::CreateSession(Box::new(create_session))),
        (OpNum::SEQUENCE, ResBody::Sequence(sequence)),
        (OpNum::TEST_STATEID, ResBody::TestStateid(vec![NfsStat::NFS4ERR_EXPIRED])),
        (OpNum::COPY, ResBody::Copy(CopyRes { response, requirements })),
        (OpNum::IO_ADVISE, ResBody::IoAdvise(Bitmap::of(&[1]))),
        (OpNum::OFFLOAD_STATUS, ResBody::OffloadStatus(OffloadStatusRes { count: 39, complete: None })),
        (OpNum::READ_PLUS, ResBody::ReadPlus(ReadPlusRes { eof: false, contents })),
        (OpNum::SEEK, ResBody::Seek(SeekRes { eof: true, offset: 40 })),
        (OpNum::GETXATTR, ResBody::Getxattr(text.clone())),
        (OpNum::SETXATTR, ResBody::Setxattr(cinfo)),
        (OpNum::LISTXATTRS, ResBody::Listxattrs(ListxattrsRes { cookie: 41, names: vec![text], eof: true })),
        (OpNum::REMOVEXATTR, ResBody::Removexattr(cinfo)),
    ];
    let mut all: Vec<ResOp> = success.into_iter().map(|(op, body)| ResOp::ok(op, body)).collect();
    all.extend([
        status(OpNum::SETATTR, NfsStat::NFS4ERR_PERM, ResBody::Setattr(Bitmap::default())),
        status(OpNum::LOCK, NfsStat::NFS4ERR_DENIED, ResBody::Denied(denied.clone())),
        status(OpNum::LOCKT, NfsStat::NFS4ERR_DENIED, ResBody::Denied(denied)),
        status(OpNum::SETCLIENTID, NfsStat::NFS4ERR_CLID_INUSE, ResBody::ClientInUse(in_use)),
        status(OpNum::COPY, NfsStat::NFS4ERR_OFFLOAD_NO_REQS, ResBody::CopyRequirements(requirements)),
    ]);
    all
}

#[test]
fn a_result_of_each_operation_round_trips() {
    let mut all = results();
    let given = DirDelegation {
        cookieverf: [42; 8],
        stateid: Stateid { seqid: 1, other: [43; 12] },
        notifications: Bitmap::of(&[1]),
        child_attributes: Bitmap::of(&[4]),
        dir_attributes: Bitmap::of(&[3]),
    };
    for res in [GetDirDelegationRes::Given(given), GetDirDelegationRes::Unavailable(true)] {
        all.push(ResOp::ok(OpNum::GET_DIR_DELEGATION, ResBody::GetDirDelegation(res)));
    }
    for op in (0..80).map(OpNum) {
        if !all.iter().any(|res| res.op == op && res.status.is_ok()) {
            all.push(ResOp::ok(op, ResBody::Empty));
        }
        if op != OpNum::SETATTR {
            all.push(ResOp { op, status: NfsStat::NFS4ERR_DELAY, body: ResBody::Empty });
        }
    }
    for res in all {
        assert_eq!(ResOp::from_bytes(res.to_bytes()), Ok(res));
    }
}

/// The bytes on the wire, as a checksum (FNV-1a) that was taken when each result was still encoded by hand.
#[test]
fn the_bytes_of_the_results_stay_as_they_are() {
    let mut bytes = BytesMut::new();
    for res in results() {
        res.encode(&mut bytes);
    }
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    assert_eq!((bytes.len(), sum), (1380, 6_338_566_553_423_381_565));
}
