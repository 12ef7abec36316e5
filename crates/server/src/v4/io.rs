//! READ, WRITE, COMMIT (RFC 8881 sections 18.3, 18.22, 18.32).

use super::context::{Context, Obj, OpError, OpResult, key};
use crate::attr::FILE_SIZE_MAX;
use crate::limits;
use crate::reservations::Room;
use crate::stable;
use crate::state::opens::{READ, Share, WRITE};
use bytes::Bytes;
use landfast_nfs::v4::args::{CommitArgs, ReadArgs, WriteArgs};
use landfast_nfs::v4::res::{ReadRes, WriteRes};
use landfast_nfs::v4::{NfsStat, ResBody, Stateid};
use landfast_volume::{Keep, OpenFile, OpenMode};

/// Bytes of a READ result besides its data: number, status, end of file, length, padding.
const READ_AROUND: usize = 8 + 4 + 4 + 3;

/// The check for an access: the owner passes whatever the mode (RFC 8881 section 18.16.3), since the client checked the
/// mode when the file was opened.
pub(super) fn mode_for(want: Share) -> OpenMode {
    OpenMode { read: want & READ != 0, write: want & WRITE != 0, owner_override: true }
}

impl Context<'_> {
    /// The open file of a stateid, for `want`, if the caller has the right: a stateid tells whose open it is, not who
    /// presents it (contract C6). `None` if there is no suitable open; then the file is opened for the caller.
    pub(super) fn opened(
        &mut self,
        obj: &Obj,
        stateid: &Stateid,
        want: Share,
    ) -> Result<Option<OpenFile>, OpError> {
        let stateid = self.resolve_stateid(stateid, false)?;
        self.opened_as(obj, stateid, want)
    }

    /// [`Context::opened`] for a stateid that is already resolved.
    pub(super) fn opened_as(
        &mut self,
        obj: &Obj,
        stateid: Stateid,
        want: Share,
    ) -> Result<Option<OpenFile>, OpError> {
        let file = key(&obj.node);
        if stateid == Stateid::ANONYMOUS || stateid == Stateid::READ_BYPASS {
            if self.sh.state().grace.active(self.now) {
                return Err(NfsStat::NFS4ERR_GRACE.into());
            }
            if stateid == Stateid::ANONYMOUS || want == WRITE {
                let before = self.gone.len();
                self.clear_the_way(NfsStat::NFS4ERR_LOCKED, |st| st.files.check_anonymous(&file, want))?;
                // What is written may outlast a crash that the note of its holder's end does not, and the holder would reclaim what it
                // lost (RFC 8881 section 8.4.3, the first edge condition). So the log knows first.
                if want == WRITE && self.gone.len() > before {
                    return Err(NfsStat::NFS4ERR_DELAY.into());
                }
            }
            return Ok(None);
        }
        if self.minor == 0 {
            self.client40 = Some(self.sh.state().client_of_io40(self.now, &stateid)?);
        }
        let client = self.client()?;
        let opened = {
            let mut st = self.sh.state();
            st.may_use_in_grace(self.now, client, &file, &stateid, want)?;
            st.adopt(self.now, client, &file, &stateid, want)?;
            st.files.io(client, &file, &stateid, want)
        };
        let opened = match opened {
            Err(NfsStat::NFS4ERR_LOCKED) => {
                self.clear_the_way(NfsStat::NFS4ERR_LOCKED, |st| {
                    st.files.check_denied_read(client, &file, &stateid)
                })?;
                self.sh.state().files.io(client, &file, &stateid, want)
            }
            opened => opened,
        }?;
        Ok(match opened {
            Some(file) => Some(obj.volume().as_caller(obj.cred(), &file, mode_for(want))?),
            // The open allows it and keeps no descriptor.
            None if want == WRITE => Some(self.open_again(obj, want)?),
            None => None,
        })
    }

    /// The file, opened for the caller's access alone.
    fn open_again(&self, obj: &Obj, want: Share) -> Result<OpenFile, OpError> {
        let keep = if want == WRITE { Keep::IfAgain } else { Keep::Now };
        Ok(obj.volume().open_stateless(obj.cred(), &obj.node, mode_for(want), keep)?)
    }

    pub(super) fn file_for(&mut self, stateid: &Stateid, want: Share) -> Result<(Obj, OpenFile), OpError> {
        let obj = self.file()?;
        if want == WRITE {
            obj.writable()?;
        }
        if let Some(file) = self.opened(&obj, stateid, want)? {
            return Ok((obj, file));
        }
        let file = self.open_again(&obj, want)?;
        Ok((obj, file))
    }

    /// READ. Never more than the reply has room for.
    pub(super) fn read(&mut self, a: &ReadArgs) -> OpResult {
        let (obj, file) = self.file_for(&a.stateid, READ)?;
        let room = self.room.saturating_sub(READ_AROUND);
        let count = (a.count.min(limits::IO_BYTES_MAX) as usize).min(room) as u32;
        if a.count > 0 && count == 0 {
            return Err(NfsStat::NFS4ERR_REP_TOO_BIG.into());
        }
        // No file has data there, and no system call accepts such an offset.
        let before_end = FILE_SIZE_MAX.saturating_sub(a.offset);
        if before_end == 0 {
            return Ok(ResBody::Read(ReadRes { eof: true, data: Bytes::new() }));
        }
        let count = u64::from(count).min(before_end) as u32;
        let (data, eof) = obj.volume().read(&file, a.offset, count)?;
        Ok(ResBody::Read(ReadRes { eof, data }))
    }

    pub(super) fn write(&mut self, a: &WriteArgs) -> OpResult {
        let (obj, file) = self.file_for(&a.stateid, WRITE)?;
        // A request above the announced maximum is written in part: the client sends the rest again.
        let data = a.data.slice(..a.data.len().min(limits::IO_BYTES_MAX as usize));
        let stable = stable::asked(a.stable);
        if a.offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_SIZE_MAX) {
            return Err(NfsStat::NFS4ERR_FBIG.into());
        }
        let (count, committed) = if data.is_empty() {
            (0, stable)
        } else {
            let (kept, by, part) = (self.sh.space.any(), self.client().ok(), (a.offset, data.len()));
            if kept {
                self.sh.leaves_for_write(obj.volume(), obj.cred(), by, &file, part)?;
            }
            let (count, committed) = obj.volume().write(self.modify(&obj)?, &file, a.offset, data, stable)?;
            if kept {
                self.sh.space.uses(obj.volume(), by, Room { bytes: u64::from(count), files: 0 });
            }
            (count, committed)
        };
        Ok(ResBody::Write(WriteRes {
            count,
            committed: stable::answered(committed),
            writeverf: obj.volume().write_verifier(),
        }))
    }

    /// COMMIT: for who may write the file.
    pub(super) fn commit(&mut self, a: &CommitArgs) -> OpResult {
        let obj = self.file()?;
        if a.offset.checked_add(u64::from(a.count)).is_none() {
            return Err(NfsStat::NFS4ERR_INVAL.into());
        }
        obj.writable()?;
        obj.volume().may(obj.cred(), &obj.node, mode_for(WRITE))?;
        obj.volume().commit(self.modify(&obj)?, &obj.node, a.offset, u64::from(a.count))?;
        Ok(ResBody::Commit(obj.volume().write_verifier()))
    }
}
