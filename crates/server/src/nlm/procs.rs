//! The procedures of NLM version 4 (RFC 1813 section 6.2; C702 chapters 10 and 14).

use super::manager::Nlm;
use crate::attr::FILE_SIZE_MAX;
use crate::exports::Caller;
use crate::exports::caller::{Admission, Refused};
use crate::exports::name_cache::Wait;
use crate::limits;
use crate::shared::Shared;
use crate::state::State;
use crate::state::delegations::Touch;
use crate::state::locks::{Denied, LockError};
use crate::state::nlm::{self, Host, LockRequest, RequestForm};
use crate::state::notes::Stamped;
use crate::state::opens::{FileKey, READ, Share as Rights, ShareConflict, WRITE};
use crate::state::ranges::Span;
use crate::touches::Touching;
use bytes::Bytes;
use landfast_nfs::nlm::{
    CancelArgs, Holder, Lock, LockArgs, NetObj, NlmStat, Notify, Res, ShareArgs, ShareRes, TestArgs,
    TestReply, TestRes, UnlockArgs, proc,
};
use landfast_nfs::v4::Opaque1024;
use landfast_rpc::conn::{CallHeader, Response};
use landfast_rpc::{AuthStat, share_of};
use landfast_volume::{Error, OpenMode};
use landfast_xdr::{Decode, Encode};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use tokio::time::{Instant, timeout_at};

struct NlmCaller {
    peer: SocketAddr,
    by: RequestForm,
    caller: Caller,
    bytes: usize,
}

/// Bytes of the head of a reply (RFC 5531 section 9).
const REPLY_HEAD: usize = 24;

/// The asynchronous answer that belongs to a message, and the procedure that the message stands for.
fn message(proc: u32) -> Option<(u32, u32)> {
    match proc {
        proc::TEST_MSG => Some((proc::TEST, proc::TEST_RES)),
        proc::LOCK_MSG => Some((proc::LOCK, proc::LOCK_RES)),
        proc::CANCEL_MSG => Some((proc::CANCEL, proc::CANCEL_RES)),
        proc::UNLOCK_MSG => Some((proc::UNLOCK, proc::UNLOCK_RES)),
        proc::GRANTED_MSG => Some((proc::GRANTED, proc::GRANTED_RES)),
        _ => None,
    }
}

impl Nlm {
    pub(super) async fn lock_manager(
        &self,
        peer: SocketAddr,
        by: RequestForm,
        call: CallHeader,
        body: Bytes,
    ) -> Response {
        let bytes = call.message_bytes;
        let wait = if by.udp { Wait::No } else { Wait::ALittle };
        let caller = self.sh.caller(peer, call.cred, wait).await;
        let Some((same, answer)) = message(call.proc) else {
            return self.procedure(&NlmCaller { peer, by, caller, bytes }, call.proc, body).await;
        };
        let by = RequestForm { message: true, ..by };
        match self.procedure(&NlmCaller { peer, by, caller, bytes }, same, body).await {
            Response::Success(results) => {
                self.answer(peer, by, answer, results);
                Response::Success(Bytes::new())
            }
            other => other,
        }
    }

    /// Sends the answer to an asynchronous message. If too many are in flight it is not sent; the client asks again.
    fn answer(&self, peer: SocketAddr, by: RequestForm, proc: u32, results: Bytes) {
        let Some(room) = self.peers.room() else {
            tracing::debug!("no answer to a message of {peer}: too many are being sent");
            return;
        };
        let peers = self.peers.clone();
        tokio::spawn(async move {
            if let Err(e) = peers.message(peer.ip().to_canonical(), by, proc, results, || true).await {
                tracing::debug!("no answer to a message of {peer}: {e:?}");
            }
            drop(room);
        });
    }

    async fn procedure(&self, from: &NlmCaller, proc: u32, body: Bytes) -> Response {
        fn args<T: Decode>(body: Bytes) -> Result<T, Response> {
            T::from_bytes(body).map_err(|_| Response::GarbageArgs)
        }
        let count = |stat| self.sh.counters.nlm(proc, stat);
        let res = |cookie: NetObj, stat: NlmStat| {
            count(stat);
            Response::Success(Res { cookie, stat }.to_bytes())
        };
        let done: Result<Response, Response> = async {
            Ok(match proc {
                proc::NULL => Response::Success(Bytes::new()),
                proc::TEST => {
                    let a: TestArgs = args(body)?;
                    let reply =
                        self.test(from, &a).await.unwrap_or_else(|stat| TestReply { stat, holder: None });
                    count(reply.stat);
                    Response::Success(from.fitting(TestRes { cookie: a.cookie, reply }))
                }
                proc::LOCK | proc::NM_LOCK => {
                    let a: LockArgs = args(body)?;
                    let stat = self.lock(from, &a, proc == proc::LOCK).await;
                    res(a.cookie, stat.unwrap_or_else(|stat| stat))
                }
                proc::CANCEL => {
                    let a: CancelArgs = args(body)?;
                    let stat = self.cancel(from, &a).await;
                    res(a.cookie, stat)
                }
                proc::UNLOCK => {
                    let a: UnlockArgs = args(body)?;
                    let stat = self.unlock(from, &a).await;
                    res(a.cookie, stat)
                }
                // This server asks nobody for locks.
                proc::GRANTED => res(args::<TestArgs>(body)?.cookie, NlmStat::DENIED),
                proc::TEST_RES | proc::LOCK_RES | proc::CANCEL_RES | proc::UNLOCK_RES => {
                    Response::Success(Bytes::new())
                }
                proc::GRANTED_RES => {
                    self.granted_res(from, &args(body)?);
                    count(NlmStat::GRANTED);
                    Response::Success(Bytes::new())
                }
                proc::SHARE | proc::UNSHARE => {
                    let a: ShareArgs = args(body)?;
                    let stat = if proc == proc::SHARE {
                        self.share(from, &a).await.unwrap_or_else(|stat| stat)
                    } else {
                        self.unshare(from, &a).await.unwrap_or_else(|stat| stat)
                    };
                    count(stat);
                    Response::Success(ShareRes { cookie: a.cookie, stat, sequence: 0 }.to_bytes())
                }
                proc::FREE_ALL => {
                    let a: Notify = args(body)?;
                    self.restarted(from.peer, &a.name.0, None).await;
                    count(NlmStat::GRANTED);
                    Response::Success(Bytes::new())
                }
                _ => Response::ProcUnavail,
            })
        }
        .await;
        done.unwrap_or_else(|failed| failed)
    }

    /// Announces what a request does to a file, and waits a while for delegations that are in its way.
    /// Errors: `DENIED_GRACE_PERIOD`, after which clients ask again.
    async fn clear_of_delegations(&self, file: &FileKey, touch: Touch) -> Result<Touching, NlmStat> {
        let touching = self.sh.touches.begin(file);
        if !self.sh.touches.any_delegation() {
            return Ok(touching);
        }
        let until = Instant::now() + limits::RECALL_WAIT;
        loop {
            let mut ended = pin!(self.sh.delegation_ended().notified());
            ended.as_mut().enable();
            if self.sh.state().clear_delegations(self.sh.now(), file, None, touch) {
                return Ok(touching);
            }
            timeout_at(until, ended).await.map_err(|_| NlmStat::DENIED_GRACE_PERIOD)?;
        }
    }

    async fn test(&self, from: &NlmCaller, a: &TestArgs) -> Result<TestReply, NlmStat> {
        let span = span(&a.lock)?;
        let file = file_to_lock(&self.sh, from, &a.lock.fh)?;
        let _touching = self.clear_of_delegations(&file, Touch::of_lock(a.exclusive)).await?;
        let now = self.sh.now();
        let owner = nlm::owner(a.lock.svid, &a.lock.oh.0);
        let mut notes = Vec::new();
        let (reply, unsettled) = {
            let mut st = self.sh.state();
            if st.grace.active(now) {
                return Err(NlmStat::DENIED_GRACE_PERIOD);
            }
            // An unknown host holds nothing, so no locks count as its own.
            let host = st.hosts.find(from.peer.ip().to_canonical(), &a.lock.caller_name.0).unwrap_or(0);
            let reply = loop {
                match st.files.lock_test(host, &file, &owner, a.exclusive, span) {
                    None => break TestReply { stat: NlmStat::GRANTED, holder: None },
                    Some(d) if st.lapsed(d.client, now) => notes.extend(st.remove_client(d.client)),
                    Some(d) => break TestReply { stat: NlmStat::DENIED, holder: Some(holder(&d)) },
                }
            };
            (reply, st.removals.unsettled())
        };
        notes.extend(self.sh.exports().relied_on(unsettled));
        // If the log does not take the note, nothing may be promised to this client.
        if let Err(e) = self.keep(notes).await {
            tracing::error!("the log took no record of a client that is gone: {e}");
        }
        Ok(reply)
    }

    async fn lock(&self, from: &NlmCaller, a: &LockArgs, monitored: bool) -> Result<NlmStat, NlmStat> {
        let span = span(&a.lock)?;
        let file = file_to_lock(&self.sh, from, &a.lock.fh)?;
        let _touching = self.clear_of_delegations(&file, Touch::of_lock(a.exclusive)).await?;
        let (host, mut notes) = self.host(from, &a.lock.caller_name, a.reclaim, Some(a.state))?;
        let owner = nlm::owner(a.lock.svid, &a.lock.oh.0);
        let ask =
            LockRequest { host, from: share_of(from.peer.ip()), owner, file, span, exclusive: a.exclusive };
        let (stat, before, unsettled) = {
            let (mut st, now) = (self.sh.state(), self.sh.now());
            let before = st.files.nlm_held(&ask);
            let stat = loop {
                match st.files.nlm_lock(&ask) {
                    Ok(()) => break NlmStat::GRANTED,
                    Err(LockError::Denied(d)) if st.lapsed(d.client, now) => {
                        notes.extend(st.remove_client(d.client));
                    }
                    Err(LockError::Denied(_)) if a.block => {
                        let LockRequest { host, owner, file, span, exclusive, .. } = &ask;
                        if st.files.would_deadlock(*host, owner, file, *exclusive, *span) {
                            // It may be waiting already: end that.
                            st.files.nlm_cancel(&ask);
                            break NlmStat::DEADLCK;
                        }
                        let waits = st.files.nlm_wait(ask.clone(), a.lock.clone(), from.by);
                        break if waits.is_ok() { NlmStat::BLOCKED } else { NlmStat::DENIED_NOLOCKS };
                    }
                    Err(LockError::Denied(_)) => break NlmStat::DENIED,
                    Err(LockError::Status(_)) => break NlmStat::DENIED_NOLOCKS,
                }
            };
            (stat, before, st.removals.unsettled())
        };
        notes.extend(self.sh.exports().relied_on(unsettled));
        let kept = if stat == NlmStat::GRANTED && monitored {
            self.keep_host(host, notes).await
        } else {
            self.keep(notes).await
        };
        if stat == NlmStat::GRANTED {
            let mut st = self.sh.state();
            is_still_there(&st, host)?;
            if kept.is_err() {
                // Nothing may be promised any more.
                st.files.nlm_give_back(&ask, &before);
                return Err(NlmStat::DENIED_NOLOCKS);
            }
        }
        Ok(stat)
    }

    /// The host that makes a claim, in this state of its status monitor if it says so, and whether it may now.
    fn host(
        &self,
        from: &NlmCaller,
        name: &NetObj,
        reclaim: bool,
        state: Option<i32>,
    ) -> Result<(u64, Vec<Stamped>), NlmStat> {
        let addr = from.peer.ip().to_canonical();
        let now = self.sh.now();
        let mut st = self.sh.state();
        if if reclaim { !st.grace.may_reclaim(now) } else { st.grace.active(now) } {
            return Err(NlmStat::DENIED_GRACE_PERIOD);
        }
        let (host, note) = st.nlm_host(addr, &name.0, now).map_err(|_| NlmStat::DENIED_NOLOCKS)?;
        // It cannot reclaim what the server does not know it to have held.
        if reclaim && st.hosts.get(host).is_none_or(|h| !h.restored) {
            return Err(NlmStat::DENIED);
        }
        st.nlm_asks_in(host, state, now);
        Ok((host, note.into_iter().collect()))
    }

    /// The hosts that a caller may speak for: those of this name at its address; and, if it is `admitted`, those of this name at another
    /// address, if the name resolves to both addresses (a host with several addresses may call from any of them).
    async fn hosts_named(&self, peer: SocketAddr, admitted: bool, same: impl Fn(&Host) -> bool) -> Vec<u64> {
        let addr = peer.ip().to_canonical();
        let named: Vec<(u64, IpAddr, Bytes)> = {
            let st = self.sh.state();
            let hosts = st.hosts.iter().filter(|h| same(h) && (admitted || h.addr == addr));
            hosts.map(|h| (h.id, h.addr, h.name.clone())).collect()
        };
        let (mut found, mut asked) = (Vec::new(), HashMap::new());
        for (id, at, name) in named {
            if at != addr {
                // Many hosts may have one name, such as `localhost`; it is resolved once.
                if !asked.contains_key(&name) {
                    let leads_to = self.sh.addresses_of_host(addr, &name).await;
                    asked.insert(name.clone(), leads_to);
                }
                let both = asked.get(&name).is_some_and(|to| to.contains(&at) && to.contains(&addr));
                if !both {
                    continue;
                }
            }
            found.push(id);
        }
        found
    }

    /// Whether a caller may give up what it holds in the export of this handle; and whether the rules there admit it. Whom they do not name any
    /// more gives up what was taken from its own address.
    fn allowed(&self, from: &NlmCaller, fh: &NetObj) -> Result<bool, NlmStat> {
        let exports = self.sh.exports();
        // A handle of no export holds nothing.
        let Some(export) = exports.of_handle(&fh.0) else { return Ok(false) };
        let Caller { addr, port, names, .. } = &from.caller;
        match export.rules.admits(*addr, *port, names.as_deref()) {
            Admission::Taken => Ok(true),
            // Clients ask again.
            Admission::NotYet => Err(NlmStat::DENIED_GRACE_PERIOD),
            Admission::Refused(AuthStat::BADCRED) => Ok(false),
            Admission::Refused(_) => Err(NlmStat::DENIED_NOLOCKS),
        }
    }

    /// The requests that an operation without a new claim concerns; empty if its host is unknown and so holds nothing.
    async fn known(
        &self,
        from: &NlmCaller,
        lock: &Lock,
        exclusive: bool,
    ) -> Result<Vec<LockRequest>, NlmStat> {
        let span = span(lock)?;
        let admitted = self.allowed(from, &lock.fh)?;
        let name = &lock.caller_name.0;
        let hosts = self.hosts_named(from.peer, admitted, |h| h.name == *name).await;
        let owner = nlm::owner(lock.svid, &lock.oh.0);
        let file = named_file(&self.sh, &lock.fh);
        let share = share_of(from.peer.ip());
        let ask = |host| LockRequest {
            host,
            from: share,
            owner: owner.clone(),
            file: file.clone(),
            span,
            exclusive,
        };
        Ok(hosts.into_iter().map(ask).collect())
    }

    async fn cancel(&self, from: &NlmCaller, a: &CancelArgs) -> NlmStat {
        match self.known(from, &a.lock, a.exclusive).await {
            Ok(asks) => {
                let mut st = self.sh.state();
                let cancelled = asks.iter().filter(|ask| st.files.nlm_cancel(ask)).count();
                if cancelled > 0 { NlmStat::GRANTED } else { NlmStat::DENIED }
            }
            Err(stat) => stat,
        }
    }

    /// UNLOCK, also of what is not locked. The file may be gone.
    async fn unlock(&self, from: &NlmCaller, a: &UnlockArgs) -> NlmStat {
        match self.known(from, &a.lock, false).await {
            Ok(asks) => {
                let mut st = self.sh.state();
                let failed = asks.iter().filter(|ask| st.files.nlm_unlock(ask).is_err()).count();
                if failed > 0 { NlmStat::DENIED_NOLOCKS } else { NlmStat::GRANTED }
            }
            Err(stat) => stat,
        }
    }

    /// The answer to a GRANTED_MSG of this server.
    fn granted_res(&self, from: &NlmCaller, a: &Res) {
        let Some(id) = a.cookie.0.first_chunk::<8>().map(|b| u64::from_be_bytes(*b)) else { return };
        let addr = from.peer.ip().to_canonical();
        let mut st = self.sh.state();
        let st = &mut *st;
        let theirs = |host| st.hosts.get(host).is_some_and(|h| h.addr == addr);
        if a.stat == NlmStat::GRANTED {
            st.files.nlm_told(theirs, id);
        } else {
            st.files.nlm_refused(theirs, id);
        }
    }

    async fn share(&self, from: &NlmCaller, a: &ShareArgs) -> Result<NlmStat, NlmStat> {
        let (access, deny) = match (rights(a.share.access), rights(a.share.mode)) {
            (Some(access), Some(deny)) => (access, deny),
            _ => return Err(NlmStat::FAILED),
        };
        let file = file_to_lock(&self.sh, from, &a.share.fh)?;
        let _touching =
            self.clear_of_delegations(&file, Touch::of_lock(access & WRITE != 0 || deny != 0)).await?;
        let (host, mut notes) = self.host(from, &a.share.caller_name, a.reclaim, None)?;
        let oh = &a.share.oh.0;
        let by = (host, share_of(from.peer.ip()));
        let (stat, before, unsettled) = {
            let (mut st, now) = (self.sh.state(), self.sh.now());
            let before = st.files.nlm_shared(host, oh, &file);
            let stat = loop {
                if deny != 0 && !a.reclaim && st.may_have_unknown_opens(now) {
                    break NlmStat::DENIED_GRACE_PERIOD;
                }
                match st.files.nlm_share(by, oh, &file, access, deny) {
                    Ok(Ok(())) => break NlmStat::GRANTED,
                    Ok(Err(ShareConflict { client })) if st.lapsed(client, now) => {
                        notes.extend(st.remove_client(client));
                    }
                    Ok(Err(_)) => break NlmStat::DENIED,
                    Err(_) => break NlmStat::DENIED_NOLOCKS,
                }
            };
            (stat, before, st.removals.unsettled())
        };
        notes.extend(self.sh.exports().relied_on(unsettled));
        let kept = match stat {
            NlmStat::GRANTED => self.keep_host(host, notes).await,
            _ => self.keep(notes).await,
        };
        if stat == NlmStat::GRANTED {
            let mut st = self.sh.state();
            is_still_there(&st, host)?;
            if kept.is_err() {
                st.files.nlm_share_back(by, oh, &file, before);
                return Err(NlmStat::DENIED_NOLOCKS);
            }
        }
        Ok(stat)
    }

    /// UNSHARE, also of what is not reserved.
    async fn unshare(&self, from: &NlmCaller, a: &ShareArgs) -> Result<NlmStat, NlmStat> {
        let admitted = self.allowed(from, &a.share.fh)?;
        let name = &a.share.caller_name.0;
        let hosts = self.hosts_named(from.peer, admitted, |h| h.name == *name).await;
        let file = named_file(&self.sh, &a.share.fh);
        let mut st = self.sh.state();
        hosts.iter().for_each(|host| st.files.nlm_unshare(*host, &a.share.oh.0, &file));
        Ok(NlmStat::GRANTED)
    }

    /// A host reports that it has restarted, with the state of its status monitor if that is who says so: it holds nothing
    /// that it had before.
    pub(super) async fn restarted(&self, peer: SocketAddr, name: &[u8], state: Option<i32>) {
        let addr = peer.ip().to_canonical();
        let admitted = !matches!(self.sh.admission(peer, Wait::No).await, Admission::Refused(_));
        let hosts = self.hosts_named(peer, admitted, |h| h.is_called(name, addr)).await;
        let notes: Vec<Stamped> = {
            let mut st = self.sh.state();
            match state {
                Some(state) => st.nlm_restarted((addr, name), state, hosts, self.sh.now()),
                None => hosts.into_iter().filter_map(|host| st.nlm_free(host)).collect(),
            }
        };
        if let Err(e) = self.keep(notes).await {
            tracing::error!("the log took no record of a lock client that is gone: {e}");
        }
    }
}

impl NlmCaller {
    /// The encoded result of a TEST. By datagram it is no longer than the call: the sender's address may be forged, and
    /// its real owner must not receive more than was sent. If there is no room, the end of the holder's name is cut.
    fn fitting(&self, mut res: TestRes) -> Bytes {
        let whole = res.to_bytes();
        let over = (REPLY_HEAD + whole.len()).saturating_sub(self.bytes);
        match &mut res.reply.holder {
            Some(holder) if self.by.udp && over > 0 => {
                let oh = &mut holder.oh.0;
                oh.truncate(oh.len().next_multiple_of(4).saturating_sub(over.next_multiple_of(4)));
                res.to_bytes()
            }
            _ => whole,
        }
    }
}

/// A host that has restarted while the log was waited for holds nothing, whatever it was granted: it asks again.
fn is_still_there<F>(st: &State<F>, host: u64) -> Result<(), NlmStat> {
    if st.hosts.get(host).is_some() { Ok(()) } else { Err(NlmStat::DENIED_GRACE_PERIOD) }
}

/// `fsh4_mode` and `fsh4_access` are bits of reading and writing.
fn rights(bits: u32) -> Option<Rights> {
    (bits <= u32::from(READ | WRITE)).then_some(bits as Rights)
}

/// The bytes meant: length 0 reaches to the end (RFC 1813 section 6.1.4); bytes that no file can have get `FBIG`.
fn span(lock: &Lock) -> Result<Span, NlmStat> {
    let end = lock.offset.checked_add(lock.length.saturating_sub(1));
    if lock.offset > FILE_SIZE_MAX || end.is_none_or(|end| end > FILE_SIZE_MAX) {
        return Err(NlmStat::FBIG);
    }
    let length = if lock.length == 0 { u64::MAX } else { lock.length };
    Span::new(lock.offset, length).map_err(|_| NlmStat::FBIG)
}

fn holder(d: &Denied) -> Holder {
    let (svid, oh) = nlm::holder(d);
    Holder {
        exclusive: d.exclusive,
        svid,
        oh: Opaque1024(oh),
        offset: d.span.offset(),
        length: if d.span.to_the_end() { 0 } else { d.span.length() },
    }
}

/// The file that a handle names, which the caller may read or owns.
fn file_to_lock(sh: &Shared, from: &NlmCaller, fh: &NetObj) -> Result<FileKey, NlmStat> {
    let object = sh.exports().object(&fh.0).map_err(|e| match e {
        // Its export cannot be served now: the client asks again.
        Error::Busy => NlmStat::DENIED_GRACE_PERIOD,
        e => stat(e),
    })?;
    let access = object.export.access(&from.caller).map_err(|refused| match refused {
        Refused::NotYet => NlmStat::DENIED_GRACE_PERIOD,
        Refused::Access | Refused::Flavor => NlmStat::DENIED,
    })?;
    let mode = OpenMode { read: true, write: false, owner_override: true };
    object.export.volume.open_file(&access.cred, &object.node, mode).map_err(stat)?;
    Ok(object.node.fh())
}

/// The file that a handle names; it may be gone.
fn named_file(sh: &Shared, fh: &NetObj) -> FileKey {
    match sh.exports().pseudo.strip(&fh.0) {
        Some(handle) => Bytes::copy_from_slice(handle),
        None => fh.0.clone(),
    }
}

fn stat(e: Error) -> NlmStat {
    match e {
        Error::BadHandle | Error::Stale => NlmStat::STALE_FH,
        Error::ReadOnly => NlmStat::ROFS,
        Error::Access | Error::Perm => NlmStat::DENIED,
        Error::Busy | Error::Resources => NlmStat::DENIED_NOLOCKS,
        _ => NlmStat::FAILED,
    }
}
