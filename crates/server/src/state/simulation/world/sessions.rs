//! Client IDs and sessions.

use super::super::rights::{Kind, Who};
use super::World;
use crate::state::clients::{CreateSession, ExchangeId};
use crate::state::identity::{Principal, Requester};
use crate::state::opens::{BOTH, READ};
use crate::state::sessions::NewSession;
use bytes::Bytes;
use landfast_nfs::v4::flags::{CREATE_SESSION4_FLAG_CONN_BACK_CHAN, CREATE_SESSION4_FLAG_PERSIST};
use landfast_nfs::v4::{ChannelAttrs, SessionId};
use landfast_rpc::OpaqueAuth;

impl World<'_> {
    pub(super) fn asks_for_session(&mut self, who: Who) {
        let p = &self.p.all[who];
        let by = Requester { principal: Principal { flavor: 1, uid: 0 }, addr: p.from };
        let ask = ExchangeId { owner: p.name.clone(), verifier: [p.verifier; 8], by, update: false };
        let (from, now) = (p.from, self.m.now);
        let st = &mut self.s.st;
        let Ok(mut notes) = st.room_for_client(now, from) else { return };
        let Ok(found) = st.exchange_id(now, &ask) else { return };
        if let Some(old) = found.replaced {
            notes.extend(st.remove_client(old));
        }
        let id = found.client;
        if st.clients.check_create_session(id, found.sequence, by) != Ok(CreateSession::New) {
            self.s.log.append(notes, None);
            return;
        }
        if let Some(old) = st.sessions.to_evict(id) {
            notes.extend(st.remove_session(&old));
        }
        let channel = ChannelAttrs {
            header_pad_size: 0,
            max_request_size: 4096,
            max_response_size: 4096,
            max_response_size_cached: 1024,
            max_operations: 8,
            max_requests: 2,
            rdma_ird: Vec::new(),
        };
        let Ok((fore, ended)) = st.room_for_session(now, &channel, from) else { return };
        notes.extend(ended);
        self.sessions += 1;
        let mut session: SessionId = [0; 16];
        session[..8].copy_from_slice(&id.to_be_bytes());
        session[8..].copy_from_slice(&self.sessions.to_be_bytes());
        let v = st.next_version();
        if let Some(old) = st.clients.created(id, now, Bytes::from_static(b"reply"), v) {
            notes.extend(st.succeed_client(now, id, old));
        }
        notes.extend(st.client_notes(id));
        let v = st.next_version();
        let flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN | CREATE_SESSION4_FLAG_PERSIST;
        let new = NewSession {
            id: session,
            client: id,
            fore,
            back: channel,
            callback_program: 1,
            flags,
            callback_cred: Some(OpaqueAuth::NONE),
        };
        st.sessions.insert(new, v, now);
        if let Some(mut s) = st.sessions.get_mut(&session) {
            s.used_from(from);
            if self.p.all[who].reached {
                s.bind_back(who as u64 + 1);
            }
            notes.extend(s.notes());
        }
        st.files.delegations.try_out(session);
        let group = self.s.log.append(notes, None);
        self.m.tells(|| format!("client {who} asks for a session, as {id:x}"));
        self.m.ids[who] = id;
        self.p.all[who].connecting = Some((group, session, id));
        self.p.all[who].asked.push(id);
    }

    /// Sessions whose replies the log allows.
    pub(super) fn connects(&mut self) {
        for who in 0..self.p.all.len() {
            let Some((group, session, id)) = self.p.all[who].connecting else { continue };
            if !self.s.log.is_durable(group) {
                continue;
            }
            let p = &mut self.p.all[who];
            p.connecting = None;
            if p.asleep {
                continue;
            }
            p.asked.clear();
            (p.session, p.sequences) = (Some(session), [0; 2]);
            if p.id == id {
                continue;
            }
            (p.id, p.complete, p.tests) = (id, false, false);
            p.recalled.clear();
            p.free.clear();
            p.again.clear();
            self.m.knows[who].doubts = false;
            self.m.tells(|| format!("client {who} is {id:x} now"));
            // Opens and locks are reclaimed. A delegation is not: what was open under it is opened.
            for right in self.m.rights.iter_mut().filter(|r| r.who == who) {
                right.reclaim = true;
                if let Kind::Delegation { write } = right.kind {
                    if std::mem::take(&mut right.beside_an_open) {
                        right.broken = None;
                    }
                    let access = if write { BOTH } else { READ };
                    right.kind = Kind::Open { owner: 9, access, deny: 0, known: access };
                    right.was_known = access;
                }
            }
            self.m.rights.retain(|r| r.who != who || !matches!(r.kind, Kind::Names { .. }));
        }
    }
}
