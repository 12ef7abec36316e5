//! What is done with the object of a path: the operations, and how their results are read.
//!
//! An action knows nothing of paths. [`super::item`] leads to the place, and [`super::pack`] puts many items in one
//! COMPOUND. An action may take several rounds and says where each next one goes.

use bytes::Bytes;
use landfast_nfs::v4::{ArgOp, FileHandle};

use super::outcome::Failure;
use crate::compound::{OpError, Results};

/// Where the current filehandle must be for an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// The parent directory. [`Action::ops`] gets the last name of the path.
    Parent,
    Object {
        /// Follow a symbolic link at the end of the path.
        follow: bool,
    },
}

/// What one segment may take up in an otherwise empty COMPOUND.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// Operations, without those that lead to the place.
    pub(super) ops: usize,
    pub(super) request: usize,
    pub(super) reply: usize,
    /// Data may stand anywhere in the request. See [`crate::session::Session::packs_data`].
    pub(super) packs_data: bool,
}

/// The result of one round.
#[derive(Debug)]
pub(super) enum Answer<T> {
    Done(T),
    /// Another round at the same place.
    More,
    /// Another round at this object, whatever the path.
    MoreAt(FileHandle),
    /// The path ends in a symbolic link that is to be followed.
    Follow,
    Failed(Failure),
    /// The server's answer may belong to a second execution, after a lost reply.
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
