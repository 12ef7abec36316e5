//! What is one client's, asked for by another one; and what is a host's, asked for by one of its users.

use super::victim::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;

/// Callbacks are the host's: one of its users does not say where they go, as he binds no connection for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_user_of_a_session_does_not_change_its_callbacks() {
    let rig = Rig::new("unsafe").await;
    let mut wire = rig.from(HONEST).await;
    for minor in [1, 2] {
        let mut host = Party::new(&mut wire, minor, format!("host-{minor}").as_bytes()).await;
        let ctl = || {
            let sec_parms = vec![CallbackSecParms::None];
            vec![ArgOp::BackchannelCtl(BackchannelCtlArgs { cb_program: 0x4000_0099, sec_parms })]
        };
        assert_eq!(host.status(&mut wire, 0, ctl()).await, NfsStat::NFS4_OK);
        assert_eq!(host.status(&mut wire, 1000, ctl()).await, NfsStat::NFS4ERR_INVAL, "4.{minor}");
        let bind = BindConnToSessionArgs { sessid: host.session, dir: 3, use_conn_in_rdma_mode: false };
        let res = wire.compound(1000, minor, vec![ArgOp::BindConnToSession(bind)]).await;
        assert_eq!(res.status, NfsStat::NFS4ERR_BADSESSION, "4.{minor}");
    }
}

/// Whether all has been reclaimed is the host's to say: one of its users who says so would take from the others what they had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_user_of_a_session_does_not_end_the_hosts_reclaims() {
    let rig = Rig::new("unsafe").await;
    let mut wire = rig.from(HONEST).await;
    for minor in [1, 2] {
        let mut host = Party::begin(&mut wire, minor, format!("host-{minor}").as_bytes()).await;
        let complete = || vec![ArgOp::ReclaimComplete(false)];
        assert_eq!(host.status(&mut wire, 1000, complete()).await, NfsStat::NFS4ERR_INVAL, "4.{minor}");
        assert_eq!(
            host.status(&mut wire, 0, complete()).await,
            NfsStat::NFS4_OK,
            "4.{minor}: it was not done"
        );
        let again = host.status(&mut wire, 0, complete()).await;
        assert_eq!(again, NfsStat::NFS4ERR_COMPLETE_ALREADY, "4.{minor}");
    }
}

/// A reply that is kept for a retry is told to the user who asked for it, from where he has the same rights: not to another user of the
/// session, and not to an address that is given less, even if it repeats all of the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_kept_reply_is_told_to_nobody_who_might_not_have_asked() {
    let rig = Rig::new("unsafe").await;
    let mut wire = rig.from(HONEST).await;
    for minor in [1, 2] {
        let mut honest = Party::new(&mut wire, minor, format!("honest-{minor}").as_bytes()).await;
        let common = honest.file_for_all(&mut wire, &format!("c{minor}")).await;
        let victim = Victim::new(&mut honest, &mut wire, (0, 0o600), &common).await;
        let sequence = SequenceArgs {
            sessionid: honest.session,
            sequenceid: 1,
            slotid: 1,
            highest_slotid: 1,
            cachethis: true,
        };
        let read = ReadArgs { stateid: victim.open, offset: 0, count: 100 };
        let ask = || {
            vec![
                ArgOp::Sequence(sequence.clone()),
                ArgOp::Putfh(victim.fh.clone()),
                ArgOp::Read(read.clone()),
            ]
        };
        let told = wire.compound(0, minor, ask()).await;
        assert!(matches!(told.results.last().map(|r| &r.body), Some(ResBody::Read(_))), "{told:?}");
        assert_eq!(wire.compound(0, minor, ask()).await, told, "4.{minor}: the retry of who asked");
        for (host, uid) in [(HONEST, 1000), (ROOT_SQUASH, 0), (ALL_SQUASH, 0), (READ_ONLY, 0)] {
            let res = rig.from(host).await.compound(uid, minor, ask()).await;
            assert_eq!(res.status, NfsStat::NFS4ERR_SEQ_FALSE_RETRY, "4.{minor}, {uid} from {host}");
            assert_eq!(res.results.len(), 1);
        }
        assert_eq!(wire.compound(0, minor, ask()).await, told, "4.{minor}: and again");
    }
}

/// Another client's stateids are no stateids: whether there is such a one is not told either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn another_clients_stateids_are_told_from_none_by_nobody() {
    let rig = Rig::new("unsafe").await;
    let mut wire = rig.from(HONEST).await;
    for minor in [1, 2] {
        let mut honest = Party::new(&mut wire, minor, format!("honest-{minor}").as_bytes()).await;
        let mut other = Party::new(&mut wire, minor, format!("other-{minor}").as_bytes()).await;
        let common = honest.file_for_all(&mut wire, &format!("common-{minor}")).await;
        let victim = Victim::new(&mut honest, &mut wire, (0, 0o600), &common).await;
        let made_up = Stateid { seqid: 1, other: [0x5a; 12] };
        let test = ArgOp::TestStateid(vec![victim.open, victim.lock, made_up]);
        let res = other.run(&mut wire, 0, vec![test.clone()]).await;
        let ResBody::TestStateid(told) = &res[0].body else { panic!("{res:?}") };
        assert_eq!(told[..], [NfsStat::NFS4ERR_BAD_STATEID; 3], "4.{minor}");
        for stateid in [victim.open, victim.lock, made_up] {
            let free = vec![ArgOp::FreeStateid(stateid)];
            assert_eq!(other.status(&mut wire, 0, free).await, NfsStat::NFS4ERR_BAD_STATEID, "4.{minor}");
        }
        let res = honest.run(&mut wire, 0, vec![test]).await;
        let ResBody::TestStateid(told) = &res[0].body else { panic!("{res:?}") };
        assert_eq!(told[..2], [NfsStat::NFS4_OK; 2], "4.{minor}: what is there goes on");
    }
}
