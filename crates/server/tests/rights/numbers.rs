//! Client IDs, stateids and session IDs: who has some of them finds no other by them.

use super::victim::*;
use crate::common::mode;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags::OPEN4_SHARE_ACCESS_BOTH;
use landfast_nfs::v4::*;
use std::collections::HashSet;

/// How far an attacker looks from a number that he knows. Of the numbers of this test, 108 of 2^63, two lie so near to each
/// other by chance once in 90,000 runs of it.
const NEAR: u64 = 1 << 33;

fn number(s: &Stateid) -> u64 {
    u64::from_be_bytes(*s.other.last_chunk::<8>().expect("twelve bytes"))
}

fn assert_far_apart(what: &str, mut numbers: Vec<u64>) {
    numbers.sort_unstable();
    for pair in numbers.windows(2) {
        assert!(pair[1] - pair[0] > NEAR, "{what}: {:#x} and {:#x} are neighbours", pair[0], pair[1]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn no_number_is_found_by_its_neighbours_and_none_comes_again_after_a_restart() {
    let mut rig = Rig::with("log", 1).await;
    let mut seen = HashSet::new();
    let (mut clients, mut stateids, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
    for life in 0..3 {
        let mut wire = rig.from(HONEST).await;
        for minor in [0, 1, 2] {
            for n in 0..6 {
                let name = format!("client-{life}-{minor}-{n}");
                let mut party = Party::new(&mut wire, minor, name.as_bytes()).await;
                clients.push(party.id);
                if minor > 0 {
                    let end = *party.session.last_chunk::<8>().expect("sixteen bytes");
                    sessions.push(u64::from_be_bytes(end));
                    assert!(seen.insert(party.session.to_vec()), "a session ID comes again");
                }
                let how = OpenHow::Create(CreateHow::Guarded(mode(0o600)));
                let opened = party.open(&mut wire, 0, &name, OPEN4_SHARE_ACCESS_BOTH, how).await;
                let stateid = opened.expect("a file").1;
                stateids.push(number(&stateid));
                assert!(seen.insert(stateid.other.to_vec()), "a stateid comes again");
            }
        }
        if life == 0 { rig.crash().await } else { rig.restart().await }
    }
    assert_eq!(clients.iter().collect::<HashSet<_>>().len(), 54);
    assert_far_apart("client IDs", clients.clone());
    assert_far_apart("stateids", stateids.clone());
    assert_far_apart("session IDs", sessions);
    // Nor do clients' tell anything about stateids'.
    assert_far_apart("client IDs and stateids", [clients, stateids].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_the_log_has_kept_keeps_its_number() {
    let mut rig = Rig::new("log").await;
    let mut wire = rig.from(HONEST).await;
    let mut party = Party::new(&mut wire, 1, b"idle").await;
    rig.crash().await;
    // It held nothing, so its client ID and its session go on.
    let mut wire = rig.from(HONEST).await;
    assert_eq!(party.status(&mut wire, 0, vec![ArgOp::Putrootfh]).await, NfsStat::NFS4_OK);
    let res = wire.compound(0, 1, vec![ArgOp::ExchangeId(crate::common::exchange_args(b"idle", 1))]).await;
    let ResBody::ExchangeId(again) = &res.results[0].body else { panic!("{res:?}") };
    assert_eq!(again.clientid, party.id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc7530_9_1_7_a_retry_is_answered_to_its_sender_only() {
    let rig = Rig::new("log").await;
    let mut wire = rig.from(HONEST).await;
    let mut party = Party::new(&mut wire, 0, b"honest").await;
    let how = OpenHow::Create(CreateHow::Guarded(mode(0o600)));
    let first = party.open(&mut wire, 1000, "first", OPEN4_SHARE_ACCESS_BOTH, how.clone()).await;
    let (_, _, known, seqid) = first.expect("a file");
    let open = ArgOp::Open(OpenArgs {
        seqid: seqid + 1,
        share_access: OPEN4_SHARE_ACCESS_BOTH,
        share_deny: 0,
        owner: owner(party.id, known.as_bytes()),
        openhow: how,
        claim: OpenClaim::Null(crate::common::name("file")),
    });
    let ops = vec![ArgOp::Putrootfh, open];
    let opened = wire.compound(1000, 0, ops.clone()).await;
    assert_eq!(opened.status, NfsStat::NFS4_OK);
    let again = wire.compound(1000, 0, ops.clone()).await;
    assert_eq!(again.results[1], opened.results[1], "a retry");
    let stolen = wire.compound(2000, 0, ops).await;
    assert_eq!(stolen.status, NfsStat::NFS4ERR_BAD_SEQID);
}
