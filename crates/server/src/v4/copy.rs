//! COPY, CLONE, OFFLOAD_CANCEL, OFFLOAD_STATUS (RFC 7862 sections 4, 15.2, 15.8, 15.9, 15.13), within this server only.
//!
//! What COPY or its CB_OFFLOAD reports is durable: clients need no COMMIT.

use super::context::{Context, Obj, OpError, OpResult, is_special, key};
use super::io::mode_for;
use crate::limits;
use crate::offload::Offload;
use crate::state::opens::{READ, WRITE};
use landfast_nfs::v4::data::{
    CloneArgs, CopyArgs, CopyRequirements, CopyRes, OffloadStatusRes, WriteResponse,
};
use landfast_nfs::v4::{NfsStat, ResBody, StableHow, Stateid};
use landfast_rpc::share_of;
use landfast_volume::{Keep, Kind, OpenFile};

type Opened = (Obj, OpenFile);

impl Context<'_> {
    /// The two files of COPY and CLONE: source, then destination.
    fn both(&mut self, src_stateid: &Stateid, dst_stateid: &Stateid) -> Result<(Opened, Opened), OpError> {
        let (saved, saved_stateid) = self.saved.clone().ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)?;
        let source = self.object(&saved)?.ok_or(NfsStat::NFS4ERR_WRONG_TYPE)?;
        let dest = self.object(self.fh()?)?.ok_or(NfsStat::NFS4ERR_WRONG_TYPE)?;
        if source.node.kind() != Kind::File || dest.node.kind() != Kind::File {
            return Err(NfsStat::NFS4ERR_WRONG_TYPE.into());
        }
        // The current stateid was saved with the filehandle (RFC 8881 section 16.2.3.1.2).
        let src_stateid = match *src_stateid {
            Stateid::CURRENT if is_special(&saved_stateid) => {
                return Err(NfsStat::NFS4ERR_BAD_STATEID.into());
            }
            Stateid::CURRENT => Stateid { seqid: 0, other: saved_stateid.other },
            stateid => stateid,
        };
        let from = match self.opened_as(&source, src_stateid, READ)? {
            Some(file) => file,
            None => source.volume().open_stateless(source.cred(), &source.node, mode_for(READ), Keep::Now)?,
        };
        let (dest, to) = self.file_for(dst_stateid, WRITE)?;
        Ok(((source, from), (dest, to)))
    }

    pub(super) fn clone_file(&mut self, a: &CloneArgs) -> OpResult {
        let ((source, from), (dest, to)) = self.both(&a.src_stateid, &a.dst_stateid)?;
        let size = source.volume().getattr(&source.node)?.size;
        let count = count_of(size, a.src_offset, a.count)?;
        if key(&source.node) == key(&dest.node) && overlap(a.src_offset, a.dst_offset, count) {
            return Err(NfsStat::NFS4ERR_INVAL.into());
        }
        self.work.whole(count)?;
        // "To the end of the source" is passed on as such: only there does the kernel allow an odd length.
        dest.volume().clone_range(
            self.modify(&dest)?,
            &from,
            a.src_offset,
            &to,
            a.dst_offset,
            if a.count == 0 { 0 } else { count },
        )?;
        Ok(ResBody::Empty)
    }

    pub(super) fn copy(&mut self, a: &CopyArgs) -> OpResult {
        if !a.source_server.is_empty() {
            // A copy from another server. After `NOTSUPP`, which COPY does not have (RFC 7862 section 11.2), Linux
            // would stop copying altogether.
            return Err(NfsStat::NFS4ERR_OFFLOAD_DENIED.into());
        }
        let ((source, from), (dest, to)) = self.both(&a.src_stateid, &a.dst_stateid)?;
        if key(&source.node) == key(&dest.node) {
            return Err(NfsStat::NFS4ERR_INVAL.into());
        }
        let size = source.volume().getattr(&source.node)?.size;
        let count = count_of(size, a.src_offset, a.count)?;
        dest.writable()?;
        self.leaves(&dest, count)?;
        if !a.synchronous
            && count > limits::COPY_SYNC_BYTES
            && let Some(body) = self.offload(a, count, &dest, &from, &to)
        {
            return Ok(body);
        }
        let copied = if count == 0 {
            0
        } else {
            // May be shorter than asked for: the client continues from there. So no thread is busy for minutes, perhaps
            // for a client that is gone.
            let count = self.work.part(count)?;
            let (volume, reply_conn) = (dest.volume().clone(), self.work.reply_conn());
            let tx = self.modify(&dest)?;
            let wanted = || !reply_conn.is_closed();
            volume.copy_range_while(tx, (&from, a.src_offset), (&to, a.dst_offset), count, wanted)?
        };
        Ok(copied_body(None, copied, dest.volume().write_verifier(), true))
    }

    /// Lets a copy continue after the reply, if the client can be told of its end and there is room for one more.
    fn offload(
        &mut self,
        a: &CopyArgs,
        count: u64,
        dest: &Obj,
        from: &OpenFile,
        to: &OpenFile,
    ) -> Option<ResBody> {
        let session = self.session.clone()?;
        let permit = self.sh.copies_running.clone().try_acquire_owned().ok()?;
        let fh = self.wire(self.fh.as_ref()?);
        let (stateid, progress) = {
            let mut st = self.sh.state();
            if !st.sessions.get(&session.id)?.can_call_back() {
                return None;
            }
            let stateid = st.files.copy_stateid();
            let from = share_of(self.caller.addr);
            let progress = st.copies.insert(stateid, session.client, from, key(&dest.node))?;
            (stateid, progress)
        };
        let verifier = dest.volume().write_verifier();
        self.offloads.push(Offload {
            stateid,
            client: session.client,
            addr: self.caller.addr,
            session: session.id,
            minor: self.minor,
            fh,
            volume: dest.volume().clone(),
            source: from.clone(),
            source_offset: a.src_offset,
            dest: to.clone(),
            dest_offset: a.dst_offset,
            count,
            verifier,
            progress,
            permit,
            touching: std::mem::take(&mut self.touching),
        });
        Some(copied_body(Some(stateid), 0, verifier, false))
    }

    pub(super) fn offload_status(&mut self, stateid: &Stateid) -> OpResult {
        let (client, file) = (self.client()?, key(&self.file()?.node));
        let st = self.sh.state();
        let copy = st.copies.find(client, &file, stateid)?;
        Ok(ResBody::OffloadStatus(OffloadStatusRes { count: copy.progress.bytes(), complete: copy.ended }))
    }

    /// OFFLOAD_CANCEL. Nothing more is copied after the reply.
    pub(super) fn offload_cancel(&mut self, stateid: &Stateid) -> OpResult {
        let (client, file) = (self.client()?, key(&self.file()?.node));
        let progress = self.sh.state().copies.take(client, &file, stateid)?;
        progress.cancel_and_wait();
        Ok(ResBody::Empty)
    }
}

/// How many bytes a COPY or CLONE is about.
fn count_of(size: u64, offset: u64, count: u64) -> Result<u64, NfsStat> {
    let rest = size.checked_sub(offset).ok_or(NfsStat::NFS4ERR_INVAL)?;
    match count {
        0 => Ok(rest),
        n if n > rest => Err(NfsStat::NFS4ERR_INVAL),
        n => Ok(n),
    }
}

fn overlap(a: u64, b: u64, count: u64) -> bool {
    a.abs_diff(b) < count
}

fn copied_body(callback_id: Option<Stateid>, count: u64, writeverf: [u8; 8], synchronous: bool) -> ResBody {
    ResBody::Copy(CopyRes {
        response: WriteResponse { callback_id, count, committed: StableHow::FileSync, writeverf },
        requirements: CopyRequirements { consecutive: true, synchronous },
    })
}
