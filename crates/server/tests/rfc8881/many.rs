//! A thousand clients of one address, over one connection, as suites make them: whose leases are over together, and who
//! reclaim together (RFC 8881 sections 8.3, 8.4.2.1, 18.51.3; pynfs's COUR7 and REBT4c).

use crate::common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::flags::OPEN4_SHARE_DENY_WRITE;
use landfast_nfs::v4::*;

const CLIENTS: usize = 1000;

/// How many of them have a request under way.
const AT_ONCE: usize = 100;

/// A server with the log that servers have by default: a small one has room for fewer clients.
async fn rig(lease_seconds: u32) -> Rig {
    let dir =
        tempfile::Builder::new().prefix("landfast-server-").tempdir_in("/var/tmp").expect("a directory");
    std::fs::create_dir(dir.path().join("data")).expect("the export");
    let mut rig = Rig::stopped(dir, landfast_volume::Durability::Log, lease_seconds, None);
    rig.log_size = 256 << 20;
    rig.start().await;
    rig
}

/// Does this for each of them.
async fn each<T: Clone + Send + 'static, R: Send + 'static, F: Future<Output = R> + Send + 'static>(
    of: &[T],
    what: impl Fn(T) -> F,
) -> Vec<R> {
    let mut all = Vec::with_capacity(of.len());
    for some in of.chunks(AT_ONCE) {
        let mut doing = tokio::task::JoinSet::new();
        some.iter().cloned().for_each(|one| {
            doing.spawn(what(one));
        });
        all.extend(doing.join_all().await);
    }
    all
}

/// A thousand clients, and what each has open: `file` gives its name.
async fn clients(rig: &Rig, file: impl Fn(usize) -> String) -> Vec<(usize, Client, FileHandle)> {
    let raw = rig.raw().await;
    let named: Vec<_> = (0..CLIENTS).map(|i| (i, raw.clone(), file(i))).collect();
    each(&named, |(i, raw, file)| async move {
        let mut c = Client::new(raw, format!("client {i}").as_bytes()).await;
        let (fh, _) = c.open(&file, 2).await;
        (i, c, fh)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_3_a_thousand_clients_whose_leases_are_over_are_in_nobodys_way() {
    let rig = rig(1).await;
    let all = clients(&rig, |_| "f".to_owned()).await;
    let mut breaker = rig.client(b"breaker").await;
    let how = || vec![ArgOp::Putrootfh, open_op(b"o", "f", 1, OPEN4_SHARE_DENY_WRITE, OpenHow::NoCreate)];
    let patience = std::time::Instant::now();
    let status = loop {
        // The last of them may have opened the file within this second.
        match breaker.status(how()).await {
            NfsStat::NFS4ERR_SHARE_DENIED => assert!(patience.elapsed() < PATIENCE, "denied for ever"),
            status => break status,
        }
    };
    assert_eq!(status, NfsStat::NFS4_OK);
    let after = each(&all, |(_, c, _)| async move { c.again(Vec::new()).await.status }).await;
    assert!(after.iter().all(|status| *status == NfsStat::NFS4ERR_BADSESSION), "{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn rfc8881_8_4_2_1_a_thousand_clients_reclaim_and_half_of_them_twice() {
    let mut rig = rig(90).await;
    let all = clients(&rig, |i| format!("f{i}")).await;
    each(&all, |(i, mut c, _)| async move { c.deny(&format!("denied{i}")).await }).await;
    assert_eq!(rig.crash().await.reclaiming, CLIENTS);
    let conn = rig.raw().await.conn;
    let back: Vec<_> = all
        .into_iter()
        .map(|(i, mut c, fh)| {
            c.raw.conn = conn.clone();
            c.seq += 1;
            (i, c, fh)
        })
        .collect();
    let (first, second) = back.split_at(CLIENTS / 2);
    let reclaimed = |some| each(some, |(i, c, fh)| reclaim(i, c, fh));
    assert!(reclaimed(first).await.iter().all(|got| *got == Ok(())));
    // A second time all of it is too late.
    let late = Err((NfsStat::NFS4ERR_NO_GRACE, NfsStat::NFS4ERR_COMPLETE_ALREADY));
    let again = each(first, |(i, c, fh)| claim(i, c.raw, fh)).await;
    assert!(again.iter().all(|(got, _)| *got == late));
    // New opens wait for the other half.
    let mut one = again.into_iter().next().expect("a client").1;
    let open =
        |one: &Client| vec![ArgOp::Putrootfh, open_op(one.session.as_ref(), "f1", 1, 0, OpenHow::NoCreate)];
    let ops = open(&one);
    assert_eq!(one.status(ops).await, NfsStat::NFS4ERR_GRACE);
    assert!(reclaimed(second).await.iter().all(|got| *got == Ok(())));
    let ops = open(&one);
    assert_eq!(one.status(ops).await, NfsStat::NFS4_OK);
}

/// Whose session ended with the server makes itself known again, and reclaims what it had.
async fn reclaim(i: usize, mut c: Client, fh: FileHandle) -> Result<(), (NfsStat, NfsStat)> {
    assert_eq!(c.sequence_status().await, NfsStat::NFS4ERR_DEADSESSION, "client {i}");
    let old = c.raw.alone(ArgOp::CreateSession(session_args(c.id, 2))).await.status;
    assert_eq!(old, NfsStat::NFS4ERR_STALE_CLIENTID, "client {i}");
    claim(i, c.raw, fh).await.0
}

/// Reclaims an open in a new session, and says that this was all: the two statuses unless both are `OK`.
async fn claim(i: usize, raw: Raw, fh: FileHandle) -> (Result<(), (NfsStat, NfsStat)>, Client) {
    let mut c = Client::without_reclaim(raw, format!("client {i}").as_bytes(), 1).await;
    let previous = ArgOp::Open(OpenArgs {
        seqid: 0,
        share_access: 2,
        share_deny: 0,
        owner: owner(0, b"o"),
        openhow: OpenHow::NoCreate,
        claim: OpenClaim::Previous(0),
    });
    let open = c.status(vec![ArgOp::Putfh(fh), previous]).await;
    let complete = c.status(vec![ArgOp::ReclaimComplete(false)]).await;
    let both = if open.is_ok() && complete.is_ok() { Ok(()) } else { Err((open, complete)) };
    (both, c)
}
