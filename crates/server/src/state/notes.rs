//! Notes: the state as it is written to the intent log.
//!
//! A note says how one thing is now, not what happened to it, and carries a version that grows with each change of
//! the state. So notes may come in any order and more than once (a snapshot at a checkpoint says again what
//! earlier notes said): the highest version of each thing counts. Several logs: [`super::merge`].
//! [`super::snapshot`] turns the whole state into notes, [`super::restore`] turns notes into a state.

use super::call_key::CallKey;
use super::identity::Principal;
use bytes::Bytes;
use landfast_nfs::v4::{ChannelAttrs, SessionId, Verifier};
use serde::{Deserialize, Serialize};

/// The version of the notes' format; a log with another is read as if it held no notes.
const FORMAT: u8 = 1;

/// A confirmed client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientNote {
    /// The client ID.
    pub id: u64,
    /// `co_ownerid`.
    pub owner: Vec<u8>,
    /// `co_verifier`.
    pub verifier: Verifier,
    /// Who may speak for it.
    pub principal: Principal,
    /// The sequence number of the next CREATE_SESSION.
    pub create_sequence: u32,
    /// The encoded result of the last one.
    pub create_reply: Option<Vec<u8>>,
    /// It may hold opens or locks.
    pub holds: bool,
    /// It has sent RECLAIM_COMPLETE.
    pub reclaim_complete: bool,
}

/// A confirmed client of NFSv4.0. Its client ID is stale after a restart; what counts is who it is, and whether it may have
/// to reclaim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client40Note {
    /// The client ID.
    pub id: u64,
    /// `nfs_client_id4.id`.
    pub owner: Vec<u8>,
    /// `nfs_client_id4.verifier`.
    pub verifier: Verifier,
    /// Who may speak for it.
    pub principal: Principal,
    /// It may hold opens or locks.
    pub holds: bool,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNote {
    /// Its name.
    pub id: SessionId,
    /// Its client.
    pub client: u64,
    /// The fore channel: request, response, cached response, operations, slots.
    pub fore: [u32; 5],
    /// The back channel, in the same order.
    pub back: [u32; 5],
    /// The program number for callbacks.
    pub callback_program: u32,
    /// `csr_flags`.
    pub flags: u32,
}

/// What the log knows of a session's back channel. It goes with its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackNote {
    /// The session.
    pub session: SessionId,
    /// The callbacks' RPC credential, flavor and body.
    pub cred: Option<(u32, Vec<u8>)>,
    /// The client has asked for a back channel.
    pub asked: bool,
    /// Callbacks may have been sent: nobody knows the numbers of its slots after a restart.
    pub called: bool,
}

/// The last request of a slot that changed anything, and its reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotNote {
    /// The session.
    pub session: SessionId,
    /// Which slot.
    pub slot: u32,
    /// The request's sequence number.
    pub sequence: u32,
    /// Digest of the request.
    pub fingerprint: u64,
    /// The encoded COMPOUND result, if kept.
    pub reply: Option<KeptBytes>,
}

/// A reply as a note has it: shared with what keeps it, so that no note copies one under the state's lock. In the log it is a
/// sequence of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptBytes(pub Bytes);

impl Serialize for KeptBytes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for KeptBytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(KeptBytes(Vec::deserialize(from)?.into()))
    }
}

/// A host that locks by NLM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NlmHostNote {
    /// Its identity in the tables.
    pub id: u64,
    /// Its address.
    pub addr: std::net::IpAddr,
    /// What it calls itself.
    pub name: Vec<u8>,
    /// It may hold something.
    pub holds: bool,
}

/// Where a client calls from ([`super::identity`]). It goes with its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddrsNote {
    /// The client.
    pub client: u64,
    /// Its addresses, oldest first.
    pub addrs: Vec<std::net::IpAddr>,
}

/// A reply in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallNote {
    /// Which call.
    pub key: CallKey,
    /// The encoded results.
    pub reply: KeptBytes,
}

/// Names a log: the identity of its volume.
pub type LogId = [u8; 16];

/// The end of a snapshot as earlier programs took it, with nothing else between its notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteNote {
    /// See [`EndsNote`].
    pub server: [u8; 16],
    /// See [`EndsNote`].
    pub epoch: u32,
    /// So many notes before this one are the snapshot.
    pub count: u32,
}

/// The end of a snapshot: nothing that is a client or a session and does not stand between [`Note::Begins`] of the same version and
/// this one existed at that version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndsNote {
    /// The identity of the server whose state it is.
    pub server: [u8; 16],
    /// Which life of it.
    pub epoch: u32,
}

/// How one thing is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// This client is.
    Client(ClientNote),
    /// This client is no more.
    ClientGone(u64),
    /// This session is.
    Session(SessionNote),
    /// This session is no more.
    SessionGone(SessionId),
    /// A slot's last request.
    Slot(SlotNote),
    /// This client of NFSv4.0 is.
    Client40(Client40Note),
    /// This NLM host may hold something.
    NlmHost(NlmHostNote),
    /// It does not any more.
    NlmHostGone(u64),
    /// A snapshot of an earlier program ends here. Read, not written.
    Complete(CompleteNote),
    /// A call without a session, and its reply.
    Call(CallNote),
    /// The back channel of a session.
    Back(BackNote),
    /// Where a client calls from.
    Addrs(AddrsNote),
    /// A snapshot begins here; notes of requests may stand between its own.
    Begins,
    /// It ends here.
    Ends(EndsNote),
}

/// A note with the version of what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// The version.
    pub v: u64,
    /// What it says.
    pub note: Note,
}

/// Room for a note: few need more.
const NOTE_BYTES_MOSTLY: usize = 512;

impl Stamped {
    /// The form in the log.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Plain data into a growing vector: postcard has no error for it but "does not fit".
        let mut out = Vec::with_capacity(NOTE_BYTES_MOSTLY);
        out.push(FORMAT);
        landfast_volume::record::append(self, out).unwrap_or_default()
    }

    /// Bytes of the reply that it keeps.
    pub(super) fn reply_bytes(&self) -> usize {
        match &self.note {
            Note::Slot(slot) => slot.reply.as_ref().map_or(0, |reply| reply.0.len()),
            Note::Call(call) => call.reply.0.len(),
            _ => 0,
        }
    }

    /// Reads the form in the log; `None` for what is not (this version of) a note.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Stamped> {
        match bytes.split_first() {
            Some((&FORMAT, rest)) => postcard::from_bytes(rest).ok(),
            _ => None,
        }
    }
}

/// The five numbers of a channel that matter over TCP.
pub(super) fn channel_to_note(c: &ChannelAttrs) -> [u32; 5] {
    [c.max_request_size, c.max_response_size, c.max_response_size_cached, c.max_operations, c.max_requests]
}
