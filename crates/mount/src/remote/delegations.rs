//! Write delegations of directories: GET_DIR_DELEGATION with bit 31 (docs/internals/write-directory-delegations.md), and their end.

use landfast_client::compound::Results;
use landfast_nfs::v4::args::GetDirDelegationArgs;
use landfast_nfs::v4::attr::{AttrValues, Bitmap, number};
use landfast_nfs::v4::flags::{ACCESS4_DELETE, ACCESS4_EXTEND, ACCESS4_MODIFY, NOTIFY4_WRITE_DELEGATION};
use landfast_nfs::v4::res::GetDirDelegationRes;
use landfast_nfs::v4::{ArgOp, FileHandle, NfsStat, OpNum, ResBody, Stateid};

use super::send::{Caller, Fault, Remote};
use crate::core::space::Needs;
use crate::limits::RETURNED_TOGETHER;

/// What changing names needs.
const CHANGE_NAMES: u32 = ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_DELETE;

/// What the server says when a delegation is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delegation {
    Write(Stateid),
    /// A delegation for reading only: to be returned.
    Read(Stateid),
    /// Not now.
    None,
    /// The server has no such thing.
    Never,
}

/// The operation that asks.
pub(super) fn ask_for_delegation() -> ArgOp {
    ArgOp::GetDirDelegation(GetDirDelegationArgs::new(Bitmap::of(&[NOTIFY4_WRITE_DELEGATION])))
}

/// Its result, and whether the COMPOUND goes on behind it.
pub(super) fn delegation(results: &mut Results) -> (Delegation, bool) {
    match results.take(OpNum::GET_DIR_DELEGATION).map_err(|e| e.status()) {
        Ok(ResBody::GetDirDelegation(GetDirDelegationRes::Given(given))) => {
            let given = match given.notifications.has(NOTIFY4_WRITE_DELEGATION) {
                true => Delegation::Write(given.stateid),
                false => Delegation::Read(given.stateid),
            };
            (given, true)
        }
        Ok(_) => (Delegation::None, true),
        Err(NfsStat::NFS4ERR_NOTSUPP | NfsStat::NFS4ERR_OP_ILLEGAL | NfsStat::NFS4ERR_INVAL) => {
            (Delegation::Never, false)
        }
        Err(_) => (Delegation::None, false),
    }
}

/// What is asked of an own directory, so that the server keeps space.
pub(super) const ROOM: Bitmap = Bitmap::of(&[number::FILES_AVAIL, number::FILES_TOTAL, number::SPACE_AVAIL]);

/// The space that a user has, if the server says.
pub(super) fn room_in(values: &AttrValues) -> Option<Needs> {
    let files = match values.files_total? {
        // As many as there is space for.
        0 => u64::MAX,
        _ => values.files_avail?,
    };
    Some(Needs { bytes: values.space_avail?, files })
}

/// The result of a GETATTR of [`ROOM`].
pub(super) fn room(results: &mut Results) -> Option<Needs> {
    room_in(&AttrValues::from_fattr(&results.getattr().ok()?).ok()?)
}

/// What ACCESS says.
fn changes_names(results: &mut Results) -> Result<bool, Fault> {
    let res = results.take(OpNum::ACCESS)?;
    Ok(matches!(res, ResBody::Access(res) if res.access & CHANGE_NAMES == CHANGE_NAMES))
}

impl Remote {
    /// Asks for a delegation of a directory that is there. Returns also whether `who` may change its names, and how much space he has.
    pub async fn delegate(
        &self,
        who: &Caller,
        dir: &FileHandle,
    ) -> Result<(Delegation, bool, Option<Needs>), Fault> {
        let ops = vec![
            ArgOp::Putfh(dir.clone()),
            ArgOp::Access(CHANGE_NAMES),
            ask_for_delegation(),
            ArgOp::Getattr(ROOM),
        ];
        // If a reply with a delegation is lost, the server asks for its return one day.
        let mut results = self.ask(who, ops).await?;
        results.take(OpNum::PUTFH)?;
        let may = changes_names(&mut results)?;
        let (given, _) = delegation(&mut results);
        Ok((given, may, room(&mut results)))
    }

    /// How much space a user has, of which the server keeps a part for him if the directory is this mount's own. `None`: it keeps none.
    pub async fn ask_for_room(&self, who: &Caller, dir: &FileHandle) -> Result<Option<Needs>, Fault> {
        let mut results = self.ask(who, vec![ArgOp::Putfh(dir.clone()), ArgOp::Getattr(ROOM)]).await?;
        results.take(OpNum::PUTFH)?;
        Ok(room(&mut results))
    }

    /// Whether the server lets `who` change the names of a directory.
    pub async fn may_change(&self, who: &Caller, dir: &FileHandle) -> Result<bool, Fault> {
        let mut results = self.ask(who, vec![ArgOp::Putfh(dir.clone()), ArgOp::Access(CHANGE_NAMES)]).await?;
        results.take(OpNum::PUTFH)?;
        changes_names(&mut results)
    }

    /// Returns delegations (RFC 8881 section 18.6). One that the server does not know any more is returned, too; one that it has revoked meanwhile
    /// is freed, so that it does not go on to say that something is revoked.
    pub async fn return_delegations(&self, all: &[(FileHandle, Stateid)]) {
        let own = self.own().clone();
        let mut left = all;
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(RETURNED_TOGETHER));
            let ops = now.iter().flat_map(|(dir, id)| [ArgOp::Putfh(dir.clone()), ArgOp::DelegReturn(*id)]);
            let done = match self.ask(&own, ops.collect()).await {
                Ok(mut results) => {
                    let each = |_: &&(FileHandle, Stateid)| {
                        results.take(OpNum::PUTFH).and_then(|_| results.take(OpNum::DELEGRETURN)).is_ok()
                    };
                    now.iter().take_while(each).count()
                }
                Err(e) => {
                    tracing::debug!("delegations were not returned: {}", e.errno());
                    now.len()
                }
            };
            // The one behind those that were returned cannot be: its directory, or it, is gone.
            if let Some((_, id)) = now.get(done) {
                let _ = self.ask(&own, vec![ArgOp::FreeStateid(*id)]).await;
            }
            left = if done < now.len() { &left[done + 1..] } else { later };
        }
    }

    /// Which of these delegations the server still has (RFC 8881 section 18.48). The others are told that they are known to be gone.
    pub async fn which_stand(&self, all: &[Stateid]) -> Result<Vec<bool>, Fault> {
        let own = self.own().clone();
        let mut stand = Vec::with_capacity(all.len());
        for part in all.chunks(RETURNED_TOGETHER) {
            let mut results = self.ask(&own, vec![ArgOp::TestStateid(part.to_vec())]).await?;
            let ResBody::TestStateid(statuses) = results.take(OpNum::TEST_STATEID)? else {
                return Err(Fault::Op(OpNum::TEST_STATEID, NfsStat::NFS4ERR_IO));
            };
            if statuses.len() != part.len() {
                return Err(Fault::Op(OpNum::TEST_STATEID, NfsStat::NFS4ERR_IO));
            }
            stand.extend(statuses.iter().map(|s| s.is_ok()));
            for (stateid, status) in part.iter().zip(&statuses) {
                if !status.is_ok() {
                    // It may be gone without that.
                    let _ = self.ask(&own, vec![ArgOp::FreeStateid(*stateid)]).await;
                }
            }
        }
        Ok(stand)
    }
}
