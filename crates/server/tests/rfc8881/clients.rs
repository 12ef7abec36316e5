//! EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION, DESTROY_CLIENTID, BIND_CONN_TO_SESSION, BACKCHANNEL_CTL (RFC 8881
//! sections 18.33 to 18.37, 18.50).

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags;
use landfast_nfs::v4::res::*;
use landfast_nfs::v4::*;
use landfast_xdr::{Bytes, Encode};

async fn exchange(raw: &Raw, args: ExchangeIdArgs) -> Result<ExchangeIdRes, NfsStat> {
    match raw.alone(ArgOp::ExchangeId(args)).await {
        ResOp { body: ResBody::ExchangeId(r), .. } => Ok(*r),
        failed => Err(failed.status),
    }
}

async fn session(raw: &Raw, args: CreateSessionArgs) -> Result<CreateSessionRes, NfsStat> {
    match raw.alone(ArgOp::CreateSession(args)).await {
        ResOp { body: ResBody::CreateSession(r), .. } => Ok(*r),
        failed => Err(failed.status),
    }
}

fn by(raw: &Raw, uid: u32) -> Raw {
    Raw { cred: user(uid), ..raw.clone() }
}

fn updating(name: &[u8], verifier: u8) -> ExchangeIdArgs {
    ExchangeIdArgs { flags: flags::EXCHGID4_FLAG_UPD_CONFIRMED_REC_A, ..exchange_args(name, verifier) }
}

/// The status of a lone SEQUENCE, the first on slot 7.
async fn probe(raw: &Raw, sessionid: SessionId) -> NfsStat {
    let args = SequenceArgs { sessionid, sequenceid: 1, slotid: 7, highest_slotid: 7, cachethis: false };
    raw.compound(vec![ArgOp::Sequence(args)]).await.status
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_35_3_flags_and_roles() {
    let rig = Rig::new().await;
    let mut raw = rig.raw().await;
    raw.minor = 1;
    let with = |bits: u32| ExchangeIdArgs { flags: bits, ..exchange_args(b"c", 1) };
    for bits in [
        0,
        flags::EXCHGID4_FLAG_USE_NON_PNFS,
        flags::EXCHGID4_FLAG_USE_PNFS_MDS,
        flags::EXCHGID4_FLAG_MASK_PNFS,
        flags::EXCHGID4_FLAG_SUPP_MOVED_REFER | flags::EXCHGID4_FLAG_BIND_PRINC_STATEID,
    ] {
        let got = exchange(&raw, with(bits)).await.expect("a client ID").flags;
        assert_eq!(got, flags::EXCHGID4_FLAG_USE_NON_PNFS, "asked with {bits:#x}");
    }
    // Bits of no meaning, bits of the reply, a bit of 4.2 in 4.1.
    for bits in [4, 8, 0x200, 0x8_0000, 0x2000_0000, flags::EXCHGID4_FLAG_CONFIRMED_R] {
        assert_eq!(exchange(&raw, with(bits)).await.err(), Some(NfsStat::NFS4ERR_INVAL), "{bits:#x}");
    }
    raw.minor = 2;
    assert!(exchange(&raw, with(flags::EXCHGID4_FLAG_SUPP_FENCE_OPS)).await.is_ok());
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_35_1_an_array_of_at_most_one_implementation() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let id = ImplId {
        domain: Bytes::from_static(b"example.org"),
        name: Bytes::from_static(b"test"),
        date: NfsTime::default(),
    };
    let with = |n: usize| ExchangeIdArgs { client_impl_id: vec![id.clone(); n], ..exchange_args(b"c", 1) };
    assert!(exchange(&raw, with(0)).await.is_ok() && exchange(&raw, with(1)).await.is_ok());
    assert_eq!(exchange(&raw, with(2)).await.err(), Some(NfsStat::NFS4ERR_BADXDR));
    // An owner of more than 1024 bytes is none.
    let long = exchange_args(&[b'x'; 1025], 1);
    assert_eq!(exchange(&raw, long).await.err(), Some(NfsStat::NFS4ERR_BADXDR));
    assert!(exchange(&raw, exchange_args(&[b'x'; 1024], 1)).await.is_ok());
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_35_4_cases_1_2_and_4_new_again_and_unconfirmed() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    // Case 4: whatever differs or not, an unconfirmed record is replaced.
    let mut last = exchange(&raw, exchange_args(b"c", 1)).await.expect("new").clientid;
    for (verifier, uid) in [(1, 0), (2, 0), (2, 7), (3, 8)] {
        let next = exchange(&by(&raw, uid), exchange_args(b"c", verifier)).await.expect("replaced");
        assert_ne!(next.clientid, last);
        assert_eq!(next.flags & flags::EXCHGID4_FLAG_CONFIRMED_R, 0);
        let old = session(&raw, session_args(last, 1)).await.err();
        assert_eq!(old, Some(NfsStat::NFS4ERR_STALE_CLIENTID));
        last = next.clientid;
    }
    let raw = by(&raw, 8);
    session(&raw, session_args(last, 1)).await.expect("confirmed");
    // Case 2: the same again finds the record.
    let same = exchange(&raw, exchange_args(b"c", 3)).await.expect("found");
    assert_eq!((same.clientid, same.flags >> 31), (last, 1));
    assert_eq!(exchange(&raw, exchange_args(b"c", 3)).await, Ok(same));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_35_4_case_3_collision() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let mut c = rig.client(b"c").await;
    for verifier in [1, 2] {
        let other = exchange(&by(&raw, 1111), exchange_args(b"c", verifier)).await;
        assert_eq!(other.err(), Some(NfsStat::NFS4ERR_CLID_INUSE), "there is a session");
    }
    c.open("f", 1).await;
    assert_eq!(c.raw.alone(ArgOp::DestroySession(c.session)).await.status, NfsStat::NFS4_OK);
    let other = exchange(&by(&raw, 1111), exchange_args(b"c", 1)).await;
    assert_eq!(other.err(), Some(NfsStat::NFS4ERR_CLID_INUSE), "there is an open");
    assert_eq!(rig.server().stats().clients, 1);
    // Without any state the record goes at once.
    let d = rig.client(b"d").await;
    assert_eq!(d.raw.alone(ArgOp::DestroySession(d.session)).await.status, NfsStat::NFS4_OK);
    let other = exchange(&by(&raw, 1111), exchange_args(b"d", 1)).await.expect("a client ID");
    assert_ne!(other.clientid, d.id);
    assert_eq!(session(&raw, session_args(d.id, 2)).await.err(), Some(NfsStat::NFS4ERR_STALE_CLIENTID));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_35_4_case_5_a_restarted_client() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let mut old = rig.client(b"c").await;
    old.open("f", 1).await;
    let new = exchange(&raw, exchange_args(b"c", 2)).await.expect("a new record");
    assert_ne!(new.clientid, old.id);
    // Until it is confirmed, the former instance goes on.
    assert_eq!(probe(&raw, old.session).await, NfsStat::NFS4_OK);
    assert_eq!(rig.server().stats().opens, 1);
    session(&raw, session_args(new.clientid, new.sequenceid)).await.expect("confirmed");
    assert_eq!(old.again(Vec::new()).await.status, NfsStat::NFS4ERR_BADSESSION);
    assert_eq!(session(&raw, session_args(old.id, 2)).await.err(), Some(NfsStat::NFS4ERR_STALE_CLIENTID));
    assert_eq!((rig.server().stats().opens, rig.server().stats().clients), (0, 1));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_35_4_cases_6_to_9_updates() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    // Case 7: nothing confirmed.
    assert_eq!(exchange(&raw, updating(b"c", 1)).await.err(), Some(NfsStat::NFS4ERR_NOENT));
    exchange(&raw, exchange_args(b"c", 1)).await.expect("unconfirmed");
    for (verifier, uid) in [(1, 0), (2, 0), (1, 7), (2, 7)] {
        let res = exchange(&by(&raw, uid), updating(b"c", verifier)).await;
        assert_eq!(res.err(), Some(NfsStat::NFS4ERR_NOENT));
    }
    let c = rig.client(b"c").await;
    // Case 6.
    let same = exchange(&raw, updating(b"c", 1)).await.expect("updated");
    assert_eq!((same.clientid, same.flags >> 31), (c.id, 1));
    // Case 8: another verifier; case 9: another principal.
    assert_eq!(exchange(&raw, updating(b"c", 2)).await.err(), Some(NfsStat::NFS4ERR_NOT_SAME));
    assert_eq!(exchange(&by(&raw, 7), updating(b"c", 1)).await.err(), Some(NfsStat::NFS4ERR_PERM));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_36_4_a_retried_create_session_gets_the_same_reply() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let ex = exchange(&raw, exchange_args(b"c", 1)).await.expect("new");
    let args = session_args(ex.clientid, ex.sequenceid);
    // The reply before the first is SEQ_MISORDERED, contrived.
    let before = CreateSessionArgs { sequence: ex.sequenceid.wrapping_sub(1), ..args.clone() };
    assert_eq!(session(&raw, before.clone()).await.err(), Some(NfsStat::NFS4ERR_SEQ_MISORDERED));
    let first = session(&raw, args.clone()).await.expect("a session");
    assert_eq!(first.sequence, args.sequence);
    assert_eq!(session(&raw, args.clone()).await, Ok(first.clone()));
    assert_eq!(rig.server().stats().sessions, 1);
    for sequence in [args.sequence + 2, args.sequence.wrapping_sub(1)] {
        let res = session(&raw, CreateSessionArgs { sequence, ..args.clone() }).await;
        assert_eq!(res.err(), Some(NfsStat::NFS4ERR_SEQ_MISORDERED));
    }
    // Inside a session as well: made there and replayed alone, and the other way round.
    let mut c = Client {
        raw: raw.clone(),
        id: ex.clientid,
        session: first.sessionid,
        seq: 0,
        cachethis: true,
        flags: 0,
        fore: first.fore_chan_attrs,
    };
    let next = CreateSessionArgs { sequence: args.sequence + 1, ..args };
    let inside = c.last(vec![ArgOp::CreateSession(next.clone())]).await;
    let ResBody::CreateSession(second) = inside.body else { panic!("CREATE_SESSION: {:?}", inside.status) };
    assert_eq!(session(&raw, next.clone()).await.as_ref(), Ok(&*second));
    let again = c.last(vec![ArgOp::CreateSession(next)]).await;
    assert_eq!(again.body, ResBody::CreateSession(second));
    assert_eq!(rig.server().stats().sessions, 2);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_36_3_principals() {
    let rig = Rig::new().await;
    let raw = by(&rig.raw().await, 500);
    let ex = exchange(&raw, exchange_args(b"c", 1)).await.expect("new");
    let args = session_args(ex.clientid, ex.sequenceid);
    for _ in 0..2 {
        let res = session(&by(&raw, 501), args.clone()).await;
        assert_eq!(res.err(), Some(NfsStat::NFS4ERR_CLID_INUSE), "before it is confirmed");
    }
    session(&raw, args.clone()).await.expect("confirmed");
    let next = CreateSessionArgs { sequence: args.sequence + 1, ..args.clone() };
    // RFC 8881 would let any principal; but then others fill a client's sessions, and a replay tells them the name of one.
    for args in [args, next.clone()] {
        let res = session(&by(&raw, 501), args).await;
        assert_eq!(res.err(), Some(NfsStat::NFS4ERR_CLID_INUSE), "afterwards, too");
    }
    assert!(session(&raw, next).await.is_ok());
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_36_3_channels() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let ex = exchange(&raw, exchange_args(b"c", 1)).await.expect("new");
    let args = session_args(ex.clientid, ex.sequenceid);
    let fore = |f: &dyn Fn(&mut ChannelAttrs)| {
        let mut args = args.clone();
        f(&mut args.fore_chan_attrs);
        args
    };
    let back = |f: &dyn Fn(&mut ChannelAttrs)| {
        let mut args = args.clone();
        f(&mut args.back_chan_attrs);
        args
    };
    for (bad, status) in [
        (fore(&|c| c.max_response_size = 0), NfsStat::NFS4ERR_TOOSMALL),
        (fore(&|c| c.max_request_size = 20), NfsStat::NFS4ERR_TOOSMALL),
        (back(&|c| c.max_request_size = 10), NfsStat::NFS4ERR_TOOSMALL),
        (back(&|c| c.max_response_size = 10), NfsStat::NFS4ERR_TOOSMALL),
        (back(&|c| c.max_operations = 1), NfsStat::NFS4ERR_TOOSMALL),
        (fore(&|c| c.rdma_ird = vec![13, 57]), NfsStat::NFS4ERR_BADXDR),
        (back(&|c| c.rdma_ird = vec![13, 57]), NfsStat::NFS4ERR_BADXDR),
        (CreateSessionArgs { flags: 0xf, ..args.clone() }, NfsStat::NFS4ERR_INVAL),
    ] {
        // A refused CREATE_SESSION does not move its sequence number.
        assert_eq!(session(&raw, bad).await.err(), Some(status));
    }
    let ask = fore(&|c| {
        (c.max_request_size, c.max_response_size, c.max_response_size_cached) = (u32::MAX, u32::MAX, 400);
        (c.max_operations, c.max_requests) = (u32::MAX, 500);
        c.rdma_ird = vec![57];
        c.header_pad_size = 8;
    });
    let got = session(&raw, ask).await.expect("a session").fore_chan_attrs;
    assert!(got.max_request_size >= 1 << 20 && got.max_request_size < u32::MAX);
    assert!(got.max_response_size >= 1 << 20 && got.max_response_size < u32::MAX);
    assert_eq!(got.max_response_size_cached, 400, "never more than asked for");
    assert!(got.max_operations >= 64 && got.max_requests >= 1 && got.max_requests < 500);
    assert_eq!((got.header_pad_size, got.rdma_ird.len()), (0, 0));
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_36_callback_security_of_every_kind() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let sys = |gids: Vec<u32>| {
        CallbackSecParms::Sys(AuthSysParms {
            stamp: 5,
            machine_name: Bytes::from_static(b"Random machine name"),
            uid: 7,
            gid: 11,
            gids,
        })
    };
    let gss = CallbackSecParms::Gss {
        service: 3,
        handle_from_server: Bytes::from_static(b"Handle from server"),
        handle_from_client: Bytes::from_static(b"Client handle"),
    };
    let kinds = [
        vec![],
        vec![CallbackSecParms::None, sys(vec![13, 17, 19]), gss.clone()],
        vec![CallbackSecParms::None, gss.clone(), sys(vec![])],
        vec![gss.clone()],
    ];
    let ex = exchange(&raw, exchange_args(b"c", 1)).await.expect("new");
    let mut last = None;
    for (sequence, sec_parms) in (ex.sequenceid..).zip(kinds) {
        let args = CreateSessionArgs { sec_parms, ..session_args(ex.clientid, sequence) };
        last = Some(session(&raw, args).await.expect("a session"));
    }
    let s = last.expect("a session");
    let mut c = Client {
        raw,
        id: ex.clientid,
        session: s.sessionid,
        seq: 0,
        cachethis: true,
        flags: 0,
        fore: s.fore_chan_attrs,
    };
    let ctl = |sec_parms| ArgOp::BackchannelCtl(BackchannelCtlArgs { cb_program: 0x4000_0001, sec_parms });
    assert_eq!(c.status(vec![ctl(vec![CallbackSecParms::None])]).await, NfsStat::NFS4_OK);
    assert_eq!(c.status(vec![ctl(vec![gss, sys(vec![])])]).await, NfsStat::NFS4_OK);
    let only_gss = CallbackSecParms::Gss {
        service: 1,
        handle_from_server: Bytes::new(),
        handle_from_client: Bytes::new(),
    };
    assert_eq!(c.status(vec![ctl(vec![only_gss])]).await, NfsStat::NFS4ERR_NOENT);
    let alone = c.raw.alone(ctl(vec![CallbackSecParms::None])).await;
    assert_eq!(alone.status, NfsStat::NFS4ERR_OP_NOT_IN_SESSION);
}

/// The server keeps what it is told here, and writes it into its log.
#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc5531_appendix_a_the_limits_of_auth_sys_hold_for_callback_security_too() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let sys = |name: usize, gids: usize| {
        vec![CallbackSecParms::Sys(AuthSysParms {
            stamp: 5,
            machine_name: Bytes::from(vec![b'm'; name]),
            uid: 7,
            gid: 11,
            gids: vec![13; gids],
        })]
    };
    let ex = exchange(&c.raw, exchange_args(b"other", 1)).await.expect("new");
    let create = |sec_parms| CreateSessionArgs { sec_parms, ..session_args(ex.clientid, ex.sequenceid) };
    let ctl = |sec_parms| ArgOp::BackchannelCtl(BackchannelCtlArgs { cb_program: 0x4000_0001, sec_parms });
    for (name, gids) in [(256, 0), (0, 17), (4 << 10, 0)] {
        let refused = session(&c.raw, create(sys(name, gids))).await.err();
        assert_eq!(refused, Some(NfsStat::NFS4ERR_BADXDR), "CREATE_SESSION: {name} bytes, {gids} groups");
        let refused = c.status(vec![ctl(sys(name, gids))]).await;
        assert_eq!(refused, NfsStat::NFS4ERR_BADXDR, "BACKCHANNEL_CTL: {name} bytes, {gids} groups");
    }
    assert!(session(&c.raw, create(sys(255, 16))).await.is_ok());
    assert_eq!(c.status(vec![ctl(sys(255, 16))]).await, NfsStat::NFS4_OK);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_50_3_a_client_id_that_is_in_use_is_not_destroyed() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let destroy = |id| ArgOp::DestroyClientid(id);
    assert_eq!(raw.alone(destroy(0)).await.status, NfsStat::NFS4ERR_STALE_CLIENTID);
    let unconfirmed = exchange(&raw, exchange_args(b"u", 1)).await.expect("new").clientid;
    assert_eq!(raw.alone(destroy(unconfirmed)).await.status, NfsStat::NFS4_OK);
    assert_eq!(raw.alone(destroy(unconfirmed)).await.status, NfsStat::NFS4ERR_STALE_CLIENTID);
    let mut c = rig.client(b"c").await;
    let unconfirmed = exchange(&raw, exchange_args(b"u", 1)).await.expect("new").clientid;
    assert_eq!(c.status(vec![destroy(unconfirmed)]).await, NfsStat::NFS4_OK, "from another's session");
    assert_eq!(c.status(vec![destroy(0)]).await, NfsStat::NFS4ERR_STALE_CLIENTID);
    assert_eq!(c.status(vec![destroy(c.id)]).await, NfsStat::NFS4ERR_CLIENTID_BUSY, "from its own");
    assert_eq!(raw.alone(destroy(c.id)).await.status, NfsStat::NFS4ERR_CLIENTID_BUSY, "an idle session");
    let two = raw.compound(vec![destroy(0), ArgOp::ReclaimComplete(true)]).await;
    assert_eq!(two.status, NfsStat::NFS4ERR_NOT_ONLY_OP);
    let (_, _) = c.open("f", 1).await;
    assert_eq!(raw.alone(ArgOp::DestroySession(c.session)).await.status, NfsStat::NFS4_OK);
    assert_eq!(raw.alone(destroy(c.id)).await.status, NfsStat::NFS4ERR_CLIENTID_BUSY, "an open");
    let d = rig.client(b"d").await;
    assert_eq!(raw.alone(ArgOp::DestroySession(d.session)).await.status, NfsStat::NFS4_OK);
    assert_eq!(raw.alone(destroy(d.id)).await.status, NfsStat::NFS4_OK);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_37_3_where_destroy_session_may_stand() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    let mut c = rig.client(b"c").await;
    let destroy = ArgOp::DestroySession(c.session);
    let res = raw.compound(vec![destroy.clone(), ArgOp::Putrootfh]).await;
    assert_eq!(res.status, NfsStat::NFS4ERR_NOT_ONLY_OP);
    assert_eq!(c.status(vec![destroy.clone(), ArgOp::Putrootfh]).await, NfsStat::NFS4ERR_NOT_ONLY_OP);
    // Another session may be destroyed in the middle.
    let other = session(&raw, session_args(c.id, 2)).await.expect("a second session");
    let middle = vec![ArgOp::DestroySession(other.sessionid), ArgOp::Putrootfh, ArgOp::Getfh];
    assert_ok(&c.run(middle).await);
    assert_eq!(probe(&raw, other.sessionid).await, NfsStat::NFS4ERR_BADSESSION);
    let last = c.run(vec![ArgOp::Putrootfh, destroy.clone()]).await;
    assert_ok(&last);
    assert_eq!(raw.alone(destroy).await.status, NfsStat::NFS4ERR_BADSESSION);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_34_a_connection_joins_a_session() {
    let rig = Rig::new().await;
    let c = rig.client(b"c").await;
    // A SEQUENCE on a connection that the session does not know yet binds it.
    let other = rig.raw().await;
    assert_eq!(probe(&other, c.session).await, NfsStat::NFS4_OK);
    let bind = |sessid, dir| {
        ArgOp::BindConnToSession(BindConnToSessionArgs { sessid, dir, use_conn_in_rdma_mode: false })
    };
    for (dir, got) in [
        (flags::CDFC4_FORE, flags::CDFS4_FORE),
        (flags::CDFC4_BACK, flags::CDFS4_BACK),
        (flags::CDFC4_FORE_OR_BOTH, flags::CDFS4_BOTH),
        (flags::CDFC4_BACK_OR_BOTH, flags::CDFS4_BOTH),
    ] {
        match other.alone(bind(c.session, dir)).await.body {
            ResBody::BindConnToSession(r) => {
                assert_eq!((r.sessid, r.dir, r.use_conn_in_rdma_mode), (c.session, got, false));
            }
            body => panic!("BIND_CONN_TO_SESSION gave {body:?}"),
        }
    }
    let mut unknown = c.session;
    unknown[0] ^= 1;
    assert_eq!(other.alone(bind(unknown, 1)).await.status, NfsStat::NFS4ERR_BADSESSION);
    let bad = other.alone(bind(c.session, 5)).await.status;
    assert!(matches!(bad, NfsStat::NFS4ERR_BADXDR | NfsStat::NFS4ERR_INVAL));
    let two = other.compound(vec![bind(c.session, 1), ArgOp::Putrootfh]).await;
    assert_eq!(two.status, NfsStat::NFS4ERR_NOT_ONLY_OP);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_46_3_a_session_says_that_no_connection_serves_its_back_channel() {
    let rig = Rig::new().await;
    // One that never asked for a back channel lacks none, whatever becomes of its connections.
    let mut plain = rig.client(b"plain").await;
    plain.raw = rig.raw().await;
    assert_eq!(plain.status_flags().await, 0);
    let [first, second, third] = [rig.raw().await, rig.raw().await, rig.raw().await];
    let ex = third.exchange_id(b"c", 1).await;
    let create = async |raw: &Raw, nth, back| {
        let mut args = session_args(ex.clientid, ex.sequenceid + nth);
        args.flags |= back;
        let session = raw.create_session(args).await.sessionid;
        Client { session, id: ex.clientid, seq: 0, raw: third.clone(), ..plain.clone() }
    };
    let back = flags::CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
    let mut one = create(&first, 0, back).await;
    let mut two = create(&second, 1, back).await;
    let mut without = create(&third, 2, 0).await;
    let bind = |sessid, dir| {
        ArgOp::BindConnToSession(BindConnToSessionArgs { sessid, dir, use_conn_in_rdma_mode: false })
    };
    let (down, all_down) = (flags::SEQ4_STATUS_CB_PATH_DOWN_SESSION, flags::SEQ4_STATUS_CB_PATH_DOWN);
    assert_eq!((one.status_flags().await, two.status_flags().await), (0, 0));
    // The server hears of the end of a connection when it comes to it.
    let becomes = async |client: &mut Client, flags| {
        let patience = std::time::Instant::now();
        while client.status_flags().await != flags {
            assert!(patience.elapsed() < PATIENCE, "never {flags:#x}");
        }
    };
    drop(first);
    becomes(&mut one, down).await;
    assert_eq!(two.status_flags().await, 0);
    drop(second);
    becomes(&mut two, down | all_down).await;
    assert_eq!(one.status_flags().await, down | all_down);
    // For requests only it is bound in vain; for callbacks as well that session is served again, and so the client.
    assert_ok(&[third.alone(bind(one.session, flags::CDFC4_FORE)).await]);
    assert_eq!(one.status_flags().await, down | all_down);
    assert_ok(&[third.alone(bind(one.session, flags::CDFC4_BACK_OR_BOTH)).await]);
    assert_eq!((one.status_flags().await, two.status_flags().await), (0, down));
    assert_ok(&[third.alone(bind(two.session, flags::CDFC4_BACK)).await]);
    assert_eq!((one.status_flags().await, two.status_flags().await), (0, 0));
    assert_eq!(without.status_flags().await, 0, "the session without one");
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_18_51_3_nothing_is_opened_before_reclaim_complete() {
    let rig = Rig::new().await;
    let mut c = Client::without_reclaim(rig.raw().await, b"c", 1).await;
    let create = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
    let open = vec![ArgOp::Putrootfh, open_op(b"o", "f", 3, 0, create.clone())];
    assert_eq!(c.status(open.clone()).await, NfsStat::NFS4ERR_GRACE);
    // That of one filesystem is not that of all; without a filehandle it is nothing.
    assert_eq!(c.status(vec![ArgOp::ReclaimComplete(true)]).await, NfsStat::NFS4ERR_NOFILEHANDLE);
    assert_ok(&c.run(vec![ArgOp::Putrootfh, ArgOp::ReclaimComplete(true)]).await);
    assert_eq!(c.status(open.clone()).await, NfsStat::NFS4ERR_GRACE);
    assert_ok(&c.run(vec![ArgOp::ReclaimComplete(false)]).await);
    assert_ok(&c.run(open.clone()).await);
    assert_eq!(c.status(vec![ArgOp::ReclaimComplete(false)]).await, NfsStat::NFS4ERR_COMPLETE_ALREADY);
    // Reclaiming afterwards is too late.
    let previous = ArgOp::Open(OpenArgs {
        seqid: 0,
        share_access: 3,
        share_deny: 0,
        owner: owner(0, b"o"),
        openhow: OpenHow::NoCreate,
        claim: OpenClaim::Previous(0),
    });
    let fh = c.handle(&["f"]).await;
    assert_eq!(c.status(vec![ArgOp::Putfh(fh), previous]).await, NfsStat::NFS4ERR_NO_GRACE);
    // A client that comes back in the same instance of the server has nothing to reclaim from an earlier one.
    let mut again = Client::without_reclaim(rig.raw().await, b"c", 2).await;
    let open = vec![ArgOp::Putrootfh, open_op(b"o", "g", 3, 0, create)];
    assert_ok(&again.run(open).await);
    assert_ok(&again.run(vec![ArgOp::ReclaimComplete(false)]).await);
}

#[tokio::test]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_client_owner_is_any_bytes() {
    let rig = Rig::new().await;
    let raw = rig.raw().await;
    for owner in [&b""[..], b"\0", b"\xff\xfe", b"a b\n"] {
        let args = exchange_args(owner, 1);
        assert_eq!(args.client_owner.owner_id.0.to_bytes().len() % 4, 0);
        assert!(exchange(&raw, args).await.is_ok(), "{owner:?}");
    }
}
