//! Requests: lists and texts that are too long are malformed, and what servers keep for long does not hold the record.

use super::args::*;
use super::callback::{CbCompoundRes, CbRes, OP_CB_RECALL};
use super::data::{CopyArgs, NetLoc};
use super::v40::{CallbackClient, ClientAddr, NfsClientId, SetclientidArgs};
use super::*;
use landfast_xdr::{Bytes, Decode, Encode, Reader};

fn bytes(len: usize) -> Bytes {
    Bytes::from(vec![b'x'; len])
}

fn sys(name: usize, gids: usize) -> CallbackSecParms {
    let gids = vec![3; gids];
    CallbackSecParms::Sys(AuthSysParms { stamp: 0, machine_name: bytes(name), uid: 1, gid: 2, gids })
}

fn backchannel_ctl(sec_parms: Vec<CallbackSecParms>) -> ArgOp {
    ArgOp::BackchannelCtl(BackchannelCtlArgs { cb_program: 1, sec_parms })
}

fn create_session(sec_parms: Vec<CallbackSecParms>, rdma_irds: usize) -> ArgOp {
    let channel = ChannelAttrs { rdma_ird: vec![7; rdma_irds], ..ChannelAttrs::default() };
    ArgOp::CreateSession(CreateSessionArgs {
        clientid: 1,
        sequence: 1,
        flags: 0,
        fore_chan_attrs: channel.clone(),
        back_chan_attrs: channel,
        cb_program: 1,
        sec_parms,
    })
}

fn exchange_id(state_protect: StateProtectArgs, impl_ids: usize) -> ArgOp {
    let id = ImplId { domain: bytes(1), name: bytes(1), date: NfsTime::default() };
    ArgOp::ExchangeId(ExchangeIdArgs {
        client_owner: ClientOwner { verifier: [0; 8], owner_id: Opaque1024(bytes(12)) },
        flags: 0,
        state_protect,
        client_impl_id: vec![id; impl_ids],
    })
}

fn ssv(hash: usize, encr: usize) -> StateProtectArgs {
    StateProtectArgs::Ssv {
        ops: StateProtectOps::default(),
        hash_algs: vec![Bytes::new(); hash],
        encr_algs: vec![Bytes::new(); encr],
        window: 1,
        num_gss_handles: 1,
    }
}

fn copy(servers: usize) -> ArgOp {
    ArgOp::Copy(CopyArgs {
        src_stateid: Stateid::ANONYMOUS,
        dst_stateid: Stateid::ANONYMOUS,
        src_offset: 0,
        dst_offset: 0,
        count: 0,
        consecutive: true,
        synchronous: true,
        source_server: vec![NetLoc::Name(Bytes::new()); servers],
    })
}

fn setclientid(netid: usize, addr: usize) -> ArgOp {
    let location = ClientAddr { netid: bytes(netid), addr: bytes(addr) };
    ArgOp::Setclientid(SetclientidArgs {
        client: NfsClientId { verifier: [0; 8], id: Opaque1024(bytes(12)) },
        callback: CallbackClient { program: 1, location },
        callback_ident: 1,
    })
}

#[test]
fn what_is_longer_than_its_limit_is_malformed() {
    let with = |n| vec![CallbackSecParms::None; n];
    let fits = [
        backchannel_ctl(vec![sys(limits::MACHINE_NAME_MAX, limits::AUTH_SYS_GIDS_MAX)]),
        backchannel_ctl(with(limits::SEC_PARMS_MAX)),
        create_session(with(limits::SEC_PARMS_MAX), limits::RDMA_IRDS_MAX),
        exchange_id(StateProtectArgs::None, limits::IMPL_IDS_MAX),
        exchange_id(ssv(limits::SSV_ALGORITHMS_MAX, limits::SSV_ALGORITHMS_MAX), 0),
        copy(limits::SOURCE_SERVERS_MAX),
        setclientid(limits::NETID_MAX, limits::UNIVERSAL_ADDRESS_MAX),
    ];
    for op in fits {
        assert_eq!(ArgOp::decode_lenient(&mut Reader::new(op.to_bytes())), Ok(op));
    }
    let too_long = [
        backchannel_ctl(vec![sys(limits::MACHINE_NAME_MAX + 1, 0)]),
        backchannel_ctl(vec![sys(0, limits::AUTH_SYS_GIDS_MAX + 1)]),
        backchannel_ctl(with(limits::SEC_PARMS_MAX + 1)),
        create_session(with(limits::SEC_PARMS_MAX + 1), 0),
        create_session(Vec::new(), limits::RDMA_IRDS_MAX + 1),
        exchange_id(StateProtectArgs::None, limits::IMPL_IDS_MAX + 1),
        exchange_id(ssv(limits::SSV_ALGORITHMS_MAX + 1, 0), 0),
        exchange_id(ssv(0, limits::SSV_ALGORITHMS_MAX + 1), 0),
        copy(limits::SOURCE_SERVERS_MAX + 1),
        setclientid(limits::NETID_MAX + 1, 0),
        setclientid(0, limits::UNIVERSAL_ADDRESS_MAX + 1),
    ];
    for op in too_long {
        let decoded = ArgOp::decode_lenient(&mut Reader::new(op.to_bytes()));
        assert_eq!(decoded, Ok(ArgOp::Malformed(op.op())), "{op:?}");
    }
}

#[test]
fn a_reply_to_a_callback_with_more_results_than_any_has_is_none() {
    let reply = |results| {
        let result = CbRes { op: OP_CB_RECALL, status: NfsStat::NFS4ERR_DELAY, sequence: None, attrs: None };
        let (status, tag) = (NfsStat::NFS4ERR_DELAY, Bytes::new());
        CbCompoundRes { status, tag, results: vec![result; results] }
    };
    let most = reply(limits::CB_RESULTS_MAX);
    assert_eq!(CbCompoundRes::from_bytes(most.to_bytes()), Ok(most));
    assert!(CbCompoundRes::from_bytes(reply(limits::CB_RESULTS_MAX + 1).to_bytes()).is_err());
}

#[test]
fn owners_and_names_do_not_share_the_memory_of_their_record() {
    let lies_in = |record: &Bytes, kept: &[&Bytes]| {
        let range = record.as_ptr_range();
        kept.iter().filter(|kept| range.contains(&kept.as_ptr())).count()
    };
    let open = ArgOp::Open(OpenArgs {
        seqid: 0,
        share_access: 1,
        share_deny: 0,
        owner: owner(1, b"twelve bytes"),
        openhow: OpenHow::NoCreate,
        claim: OpenClaim::Fh,
    });
    let lock = ArgOp::Lock(LockArgs {
        locktype: LockType::Read,
        reclaim: false,
        offset: 0,
        length: 1,
        locker: Locker::New {
            open_seqid: 0,
            open_stateid: Stateid::ANONYMOUS,
            lock_seqid: 0,
            lock_owner: owner(1, b"twelve bytes"),
        },
    });
    for op in [open, lock, exchange_id(StateProtectArgs::None, 0), setclientid(3, 20)] {
        let record = op.to_bytes();
        let kept = match ArgOp::decode_lenient(&mut Reader::new(record.clone())) {
            Ok(ArgOp::Open(a)) => vec![a.owner.owner.0],
            Ok(ArgOp::Lock(LockArgs { locker: Locker::New { lock_owner, .. }, .. })) => {
                vec![lock_owner.owner.0]
            }
            Ok(ArgOp::ExchangeId(a)) => vec![a.client_owner.owner_id.0],
            Ok(ArgOp::Setclientid(a)) => {
                let ClientAddr { netid, addr } = a.callback.location;
                vec![a.client.id.0, netid, addr]
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(lies_in(&record, &kept.iter().collect::<Vec<_>>()), 0, "{}", op.op());
    }
}
