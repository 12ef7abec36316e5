//! Limits how much disk work a COMPOUND may cause. A request to copy, clone, reserve or free space takes a few bytes,
//! whatever its size. So each COMPOUND may cause [`limits::COMPOUND_WORK_BYTES`] of it, and none is begun for a client
//! that is gone. A client that wants more asks again, and waits for its turn again ([`crate::pool`]).

use crate::limits;
use landfast_nfs::v4::NfsStat;
use landfast_rpc::ConnInfo;

/// What is left to one COMPOUND.
pub(crate) struct Allowance<'a> {
    reply_conn: &'a ConnInfo,
    left: u64,
}

impl<'a> Allowance<'a> {
    pub(crate) fn new(reply_conn: &'a ConnInfo) -> Allowance<'a> {
        Allowance { reply_conn, left: limits::COMPOUND_WORK_BYTES }
    }

    /// The connection of whoever waits for it: closed when nobody does.
    pub(crate) fn reply_conn(&self) -> &'a ConnInfo {
        self.reply_conn
    }

    /// Takes what there is of `wanted` bytes, for work that may be done in part; at least one byte where any is wanted.
    /// Errors: `DELAY`: nothing is left, or nobody waits for it any more.
    pub(crate) fn part(&mut self, wanted: u64) -> Result<u64, NfsStat> {
        let part = wanted.min(self.left);
        self.whole(part)?;
        Ok(part)
    }

    /// Takes `bytes`, for work that is done as a whole or not at all: the first is done whatever its size.
    pub(crate) fn whole(&mut self, bytes: u64) -> Result<(), NfsStat> {
        if self.left == 0 || self.reply_conn.is_closed() {
            return Err(NfsStat::NFS4ERR_DELAY);
        }
        self.left = self.left.saturating_sub(bytes.max(limits::COMPOUND_WORK_MIN));
        Ok(())
    }
}
