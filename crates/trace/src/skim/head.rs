//! What is known of a call or of a reply.

use super::facts::Facts;
use super::kind::Kind;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallHead {
    pub xid: u32,
    pub kind: Kind,
    /// Operations of a COMPOUND or CB_COMPOUND, numbered as in [`v4::number`].
    pub ops: Vec<u8>,
    /// What the call asks of the server, and which file it is about.
    pub facts: Facts,
    /// For a listing: what each operation, or the procedure, is about.
    pub shown: Vec<(u8, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Executed, with its status if the procedure has a readable one.
    Done(Option<u32>),
    /// Not accepted by the server, with `accept_stat`.
    NotTaken(u32),
    Denied,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyHead {
    pub xid: u32,
    pub outcome: Outcome,
    /// Number of executed operations of a COMPOUND or CB_COMPOUND. The last of them may have failed.
    pub operations: Option<u32>,
    /// Digest of the handle of the object that was found or created.
    pub handle: Option<u64>,
    /// For a listing: operations whose results were read, or the procedure, with the results.
    pub shown: Vec<(u8, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    Call(CallHead),
    Reply(ReplyHead),
}
