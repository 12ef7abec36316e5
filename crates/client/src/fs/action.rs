//! What is done with the object of a path, as operations of a COMPOUND and what is to be read from their results.
//!
//! An action knows nothing of paths: [`super::item`] leads to the place and [`super::pack`] puts many into one
//! COMPOUND. An action may take several rounds; between them it says where the next one goes.

use bytes::Bytes;
use landfast_nfs::v4::{ArgOp, FileHandle};

use super::outcome::Failure;
use crate::compound::{OpError, Results};

/// What an action has the current filehandle at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// The directory above; the last name of the path is given to [`Action::ops`].
    Parent,
    /// The object itself.
    Object {
        /// A symbolic link that the path ends in is followed.
        follow: bool,
    },
}

/// Room for one segment in an otherwise empty COMPOUND.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// Operations, those that lead to the place not included.
    pub(super) ops: usize,
    /// Bytes of the request.
    pub(super) request: usize,
    /// Bytes of the reply.
    pub(super) reply: usize,
    /// Data may be anywhere in the request. See [`crate::session::Session::packs_data`].
    pub(super) packs_data: bool,
}

/// What came of one round.
#[derive(Debug)]
pub(super) enum Answer<T> {
    Done(T),
    /// Another round, at the same place.
    More,
    /// Another round, at the object of this handle, whatever the path.
    MoreAt(FileHandle),
    /// The path ends in a symbolic link, which is to be followed.
    Follow,
    /// The action has failed.
    Failed(Failure),
    /// What the server says may be of the second time that it was asked, after a lost reply.
    Unknown(OpError),
}

impl<T> Answer<T> {
    /// The same with another value.
    pub(super) fn map<U>(self, f: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Answer::Done(value) => Answer::Done(f(value)),
            Answer::More => Answer::More,
            Answer::MoreAt(fh) => Answer::MoreAt(fh),
            Answer::Follow => Answer::Follow,
            Answer::Unknown(e) => Answer::Unknown(e),
            Answer::Failed(failure) => Answer::Failed(failure),
        }
    }
}

/// What to do when a reply is lost for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterLostReply {
    /// To send it again does no harm, or the action will know the answer of a second time when it comes.
    Again,
    /// Nobody can tell whether it was executed.
    Unknown,
}

/// See the module.
pub(super) trait Action: Send + 'static {
    type Out: Send + 'static;

    /// Where it works.
    fn wants(&self) -> Wants;

    /// The operations of the next round. `name`: the path's last name, for [`Wants::Parent`]. The filehandle that the
    /// round began with must be the current one at the end if [`Action::stays`] says so.
    fn ops(&mut self, name: Option<&Bytes>, room: &Budget, out: &mut Vec<ArgOp>);

    /// Upper bound of the bytes of the results of `ops`.
    fn reply(&self, ops: &[ArgOp]) -> usize {
        ops.iter().map(crate::cost::result_bytes).sum()
    }

    /// Bytes of data that the server moves for the next round.
    fn moves(&self) -> u64 {
        0
    }

    /// The current filehandle is the same after the operations as before.
    fn stays(&self) -> bool {
        false
    }

    /// The server changes something by them.
    fn changes(&self) -> bool;

    /// Reads the results of the round's operations, all of them or up to the first that failed.
    fn answer(&mut self, results: &mut Results) -> Result<Answer<Self::Out>, OpError>;

    /// The reply to a round that [`Action::changes`] is lost.
    fn lost(&mut self) -> AfterLostReply {
        AfterLostReply::Unknown
    }
}
