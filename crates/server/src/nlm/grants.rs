//! NLM_GRANTED (C702): tells clients that they hold the lock that they waited for.
//!
//! The client holds the range before it is told. If GRANTED cannot have reached the client, the range is freed again. If it may have, the
//! client keeps the range, even without a reply: two holders would be worse than a lock that its client frees by its next LOCK, UNLOCK
//! or restart. A client that refuses GRANTED when it comes again may have heard it the first time. Each GRANTED is sent only if the client
//! still holds the range and has not been told.

use super::manager::Nlm;
use super::peers::Failed;
use crate::limits;
use crate::state::nlm::Waiter;
use landfast_nfs::nlm::{NlmStat, Res, TestArgs, proc};
use landfast_nfs::v4::Opaque1024;
use landfast_xdr::{Bytes, Decode, Encode};
use std::net::IpAddr;
use tokio::task::JoinSet;

/// Grants ranges that become free to those who wait for them. Never returns.
pub(super) async fn run(nlm: Nlm) {
    let mut telling = JoinSet::new();
    loop {
        tokio::select! {
            () = nlm.sh.freed() => {}
            Some(_) = telling.join_next() => continue,
        }
        let granted: Vec<(Waiter, IpAddr)> = {
            let mut st = nlm.sh.state();
            let granted = st.files.nlm_grant();
            granted.into_iter().filter_map(|w| st.hosts.get(w.host).map(|h| (w, h.addr))).collect()
        };
        for (waiter, addr) in granted {
            telling.spawn(tell(nlm.clone(), waiter, addr));
        }
    }
}

enum GrantReply {
    Accepted,
    Refused,
    /// The message cannot have reached it.
    NotDelivered,
    /// No reply; the message may have reached it.
    Unknown,
}

async fn tell(nlm: Nlm, waiter: Waiter, addr: IpAddr) {
    let id = waiter.id;
    if nlm.keep_host(waiter.host, Vec::new()).await.is_err() {
        return nlm.sh.state().files.nlm_refused(|_| true, id);
    }
    let mut perhaps = false;
    for pause in limits::NLM_GRANT_PAUSES {
        // The client may have retried meanwhile, unlocked, or cancelled.
        if !nlm.sh.state().files.nlm_granting(id) {
            return;
        }
        match once(&nlm, &waiter, addr, perhaps).await {
            GrantReply::Accepted => {
                nlm.sh.state().files.nlm_told(|_| true, id);
                return;
            }
            GrantReply::Refused => return nlm.sh.state().files.nlm_refused(|_| true, id),
            GrantReply::NotDelivered => {}
            GrantReply::Unknown => perhaps = true,
        }
        tokio::time::sleep(pause).await;
    }
    tracing::debug!("{addr} was not told that it has a lock, heard or not: {perhaps}");
    if perhaps {
        nlm.sh.state().files.nlm_told(|_| true, id);
    } else {
        nlm.sh.state().files.nlm_refused(|_| true, id);
    }
}

/// Sends GRANTED, `again` if the client may have heard it before.
async fn once(nlm: &Nlm, waiter: &Waiter, addr: IpAddr, again: bool) -> GrantReply {
    let args = TestArgs {
        cookie: Opaque1024(Bytes::copy_from_slice(&waiter.id.to_be_bytes())),
        exclusive: waiter.exclusive,
        lock: waiter.lock.clone(),
    };
    let _room = nlm.peers.wait_for_room().await;
    let wanted = || nlm.sh.state().files.nlm_sends(waiter.id, again);
    if waiter.by.message {
        // The reply comes as a call from the client.
        return match nlm.peers.message(addr, waiter.by, proc::GRANTED_MSG, args.to_bytes(), wanted).await {
            Ok(()) | Err(Failed::Unknown) => GrantReply::Unknown,
            Err(Failed::NotDelivered) => GrantReply::NotDelivered,
        };
    }
    match nlm.peers.granted(addr, waiter.by, args.to_bytes(), wanted).await {
        Ok(results) => match Res::from_bytes(results) {
            Ok(res) if res.stat == NlmStat::GRANTED => GrantReply::Accepted,
            Ok(_) => GrantReply::Refused,
            Err(_) => GrantReply::Unknown,
        },
        Err(Failed::Unknown) => GrantReply::Unknown,
        Err(Failed::NotDelivered) => GrantReply::NotDelivered,
    }
}
