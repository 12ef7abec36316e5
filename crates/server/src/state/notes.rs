//! Notes: the form in which the state is written to the intent log.
//!
//! A note says how one thing is now, not what happened to it. Its version grows with each change of the state. So notes
//! may come in any order and more than once (a snapshot at a checkpoint repeats earlier notes): for each thing the
//! highest version counts. [`super::merge`] handles several logs. [`super::snapshot`] turns the whole state into notes,
//! [`super::restore`] turns notes into a state.

use super::call_key::CallKey;
use super::identity::Principal;
use bytes::Bytes;
use landfast_nfs::v4::{ChannelAttrs, SessionId, Verifier};
use serde::{Deserialize, Serialize};

/// Version of the notes' format. A log of another version is read as if it held no notes.
const FORMAT: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientNote {
    pub id: u64,
    pub owner: Vec<u8>,
    pub verifier: Verifier,
    pub principal: Principal,
    /// The sequence number of the next CREATE_SESSION.
    pub create_sequence: u32,
    /// The encoded result of the last CREATE_SESSION.
    pub create_reply: Option<Vec<u8>>,
    pub holds: bool,
    pub reclaim_complete: bool,
}

/// A confirmed client of NFSv4.0. Its client ID is stale after a restart. The note keeps its identity, and whether it
/// may have to reclaim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client40Note {
    pub id: u64,
    /// `nfs_client_id4.id`.
    pub owner: Vec<u8>,
    /// `nfs_client_id4.verifier`.
    pub verifier: Verifier,
    pub principal: Principal,
    pub holds: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNote {
    pub id: SessionId,
    pub client: u64,
    /// The fore channel: request, response, cached response, operations, slots.
    pub fore: [u32; 5],
    /// The back channel, in the same order.
    pub back: [u32; 5],
    pub callback_program: u32,
    /// `csr_flags`.
    pub flags: u32,
}

/// The back channel of a session. The note goes with its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackchannelNote {
    pub session: SessionId,
    /// The RPC credential for callbacks: flavor and body.
    pub cred: Option<(u32, Vec<u8>)>,
    pub asked: bool,
    /// Callbacks may have been sent, so after a restart the sequence numbers of its slots are unknown.
    pub called: bool,
}

/// The last modifying request of a slot, and its reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotNote {
    pub session: SessionId,
    pub slot: u32,
    pub sequence: u32,
    pub fingerprint: u64,
    pub reply: Option<KeptBytes>,
}

/// A reply inside a note. Its bytes are shared with the cache, so that creating a note copies no reply under the state
/// lock. In the log it is a sequence of bytes.
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NlmHostNote {
    pub id: u64,
    pub addr: std::net::IpAddr,
    pub name: Vec<u8>,
    pub holds: bool,
}

/// The addresses that a client calls from ([`super::identity`]). The note goes with its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddrsNote {
    pub client: u64,
    /// Oldest first.
    pub addrs: Vec<std::net::IpAddr>,
}

/// The files whose delegations were revoked from a client: it may reclaim nothing of them. The note goes with its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedNote {
    pub client: u64,
    /// Each with the number and the mark in the delegation's stateid; number 0: the client has freed that. An empty file: the client has opened it anew, and has
    /// not freed the stateid.
    pub files: Vec<(Vec<u8>, u64, u32)>,
}

/// Revoked delegations that a client has not freed, and that do not stand in its [`RevokedNote`]: of directories, and of files that it has opened anew. The note goes
/// with its client. A program from before it does not read it: such a client hears of nothing after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedStateidsNote {
    pub client: u64,
    /// The number and the mark in each stateid.
    pub stateids: Vec<(u64, u32)>,
}

/// What a delegation lets its holder do without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Right {
    /// Open and read the file.
    Read,
    /// Open, read and change it.
    Write,
    /// Trust what it knows of a directory: names and attributes (RFC 8881 section 10.9).
    Names,
    /// Change the names and attributes of a directory, too: no standard's (`docs/internals/write-directory-delegations.md`).
    ChangeNames,
}

impl Right {
    pub fn is_of_directory(self) -> bool {
        matches!(self, Right::Names | Right::ChangeNames)
    }

    /// Nobody else may have anything of the file or directory beside it.
    pub fn excludes_others(self) -> bool {
        matches!(self, Right::Write | Right::ChangeNames)
    }
}

/// A delegation. It stands in the log when its OPEN did, with what that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationNote {
    /// The number in its stateid, and the mark of the instance that gave it.
    pub id: u64,
    pub mark: u32,
    pub client: u64,
    pub file: Vec<u8>,
    /// The handle as the client knows it.
    pub fh: Vec<u8>,
    pub right: Right,
    pub times: bool,
    /// The OPEN: session, slot, sequence number, minor version.
    pub given_to: (SessionId, u32, u32, u32),
}

/// The byte-range locks of a lock owner on a file. The note follows each LOCK and LOCKU, in the same transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocksNote {
    /// The number in the stateid, and the mark of the instance that gave it.
    pub id: u64,
    pub mark: u32,
    pub client: u64,
    /// The lock owner.
    pub owner: Vec<u8>,
    pub file: Vec<u8>,
    pub seqid: u32,
    /// The open that they are under: number and mark, owner if known, access.
    pub open: (u64, u32, Option<Vec<u8>>, u8),
    /// First and last byte of each range, and whether it is exclusive.
    pub ranges: Vec<(u64, u64, bool)>,
}

impl LocksNote {
    /// What so many ranges take in the log, at most.
    pub(super) fn bytes_of_ranges(count: usize) -> u64 {
        const RANGE: u64 = 21;
        RANGE * count as u64
    }

    /// What it takes in the log, at most.
    pub(super) fn bytes(&self) -> u64 {
        const NUMBERS: usize = 80;
        let names = self.owner.len() + self.file.len() + self.open.2.as_ref().map_or(0, Vec::len);
        (NUMBERS + names) as u64 + LocksNote::bytes_of_ranges(self.ranges.len())
    }
}

/// An open that the server has to know after a restart, whether its client uses it or not ([`super::unlinked`]). It goes with its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenNote {
    /// The number in its stateid, and the mark of the instance that gave it.
    pub id: u64,
    pub mark: u32,
    pub client: u64,
    /// The open owner; empty if it is not known.
    pub owner: Vec<u8>,
    pub file: Vec<u8>,
    /// Its client was told that the file outlasts its last name.
    pub promised: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallNote {
    pub key: CallKey,
    pub reply: KeptBytes,
}

/// Identifies a log by its volume.
pub type LogId = [u8; 16];

/// The end of a snapshot as earlier programs wrote it, without other notes between its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteNote {
    pub server: [u8; 16],
    pub epoch: u32,
    /// The snapshot consists of this many notes before this one.
    pub count: u32,
}

/// The end of a snapshot. It says that at its version no client or session existed except those noted between
/// [`Note::Begins`] of the same version and this note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndsNote {
    /// The identity of the server whose state this is.
    pub server: [u8; 16],
    pub epoch: u32,
}

/// The present condition of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    Client(ClientNote),
    ClientGone(u64),
    Session(SessionNote),
    SessionGone(SessionId),
    Slot(SlotNote),
    Client40(Client40Note),
    /// This NLM host may hold something.
    NlmHost(NlmHostNote),
    /// This NLM host holds nothing any more.
    NlmHostGone(u64),
    /// End of a snapshot by an earlier program. Read, never written.
    Complete(CompleteNote),
    Call(CallNote),
    Backchannel(BackchannelNote),
    Addrs(AddrsNote),
    /// A snapshot begins here. Notes of requests may stand between its own.
    Begins,
    /// The snapshot ends here.
    Ends(EndsNote),
    Revoked(RevokedNote),
    Delegation(DelegationNote),
    /// This delegation has ended. Written with whatever is written next: a client that is asked for one that it has returned says that it
    /// does not know it.
    DelegationGone(u64),
    Locks(LocksNote),
    /// These locks are released or no longer in the log. Written before a CLOSE that releases some is answered; else with whatever is written next.
    LocksGone(u64),
    Open(OpenNote),
    /// This open has ended. Written before the CLOSE of a file without a name is answered; else with whatever is written next.
    OpenGone(u64),
    RevokedStateids(RevokedStateidsNote),
    /// This client went on after a restart, with opens that the server may not have known since. It goes with its client.
    WentOn(u64),
    /// The grace period was over before this client had said that it has reclaimed all: others may have been given what it has not. Until it says so, it reclaims
    /// nothing after a further restart (RFC 8881 section 8.4.3). It goes with its client.
    MissedGrace(u64),
    /// The logs that notes of this server may be in: each has some that no other has. None: whichever log says so has all. The newest counts.
    Logs(Vec<LogId>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    pub v: u64,
    pub note: Note,
}

/// Initial capacity for an encoded note; few need more.
const NOTE_BYTES_MOSTLY: usize = 512;

impl Stamped {
    pub fn to_bytes(&self) -> Vec<u8> {
        // Plain data into a growing vector: postcard's only possible error is "does not fit".
        let mut out = Vec::with_capacity(NOTE_BYTES_MOSTLY);
        out.push(FORMAT);
        landfast_volume::record::append(self, out).unwrap_or_default()
    }

    pub(super) fn reply_bytes(&self) -> usize {
        match &self.note {
            Note::Slot(slot) => slot.reply.as_ref().map_or(0, |reply| reply.0.len()),
            Note::Call(call) => call.reply.0.len(),
            _ => 0,
        }
    }

    /// Decodes it; `None` if the bytes are no note of this format version.
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
