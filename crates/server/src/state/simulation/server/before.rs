//! What comes before an operation does anything: whoever is in its way is asked to go (`v4/touch.rs`, the first half of `v4/open.rs`).

use super::super::model::Model;
use super::super::op::Op;
use super::super::rights::{DIRECTORY, Effect, File};
use super::{Holders, Server, Work, key};
use crate::state::bugs::{Bug, bug};
use crate::state::delegations::Touch;
use crate::state::looking::Look;
use crate::state::opens::{Share, WRITE};
use landfast_nfs::v4::NfsStat;
use landfast_volume::Kind as FileKind;

impl Server {
    pub(super) fn clear(
        &mut self,
        m: &Model,
        holders: &dyn Holders,
        w: &mut Work,
        file: File,
        touch: Touch,
    ) -> Result<(), NfsStat> {
        let kind = if file == DIRECTORY { FileKind::Dir } else { FileKind::File };
        w.touching.push(self.touches.begin_as(kind, touch, &key(file)));
        if !self.touches.any_in_the_way(kind, touch) {
            return Ok(());
        }
        let may_wait = w.may_wait && w.notes.is_empty() && !w.modified;
        let clear = if touch == Touch::Looks {
            let since = match w.since {
                Some(since) => since,
                None => {
                    w.had = holders.size_at_holder(m, file);
                    *w.since.insert(self.st.files.questions_sent())
                }
            };
            match self.st.look(self.now, &key(file), w.by.client, since, may_wait) {
                Look::Clear => true,
                Look::Told(told) => {
                    w.told = Some(told);
                    true
                }
                Look::Waits(id) => {
                    w.waits.push((id, since));
                    false
                }
            }
        } else {
            let ids = self.st.recall_from_others(self.now, &key(file), w.by.client, touch);
            let clear = ids.is_empty();
            w.waits.extend(ids.into_iter().map(|id| (id, u64::MAX)));
            clear
        };
        if clear {
            w.notes.extend(self.st.removals.of_file(&key(file)));
            return Ok(());
        }
        w.parks = may_wait;
        Err(NfsStat::NFS4ERR_DELAY)
    }

    pub(super) fn at(&self, name: usize) -> Option<File> {
        self.names.get(name).copied().flatten()
    }

    /// What comes before an operation does anything.
    pub(super) fn before(
        &mut self,
        m: &mut Model,
        holders: &dyn Holders,
        w: &mut Work,
    ) -> Result<(), NfsStat> {
        let op = w.call.op.clone();
        match op {
            Op::Read { file, .. } => self.clear(m, holders, w, file, Touch::Reads),
            Op::Write { file, .. } | Op::SetAttributes { file } => {
                self.clear(m, holders, w, file, Touch::Changes)
            }
            Op::Look { file } => self.clear(m, holders, w, file, Touch::Looks),
            Op::TestLock { file, exclusive, .. } => {
                self.clear(m, holders, w, file, Touch::of_lock(exclusive))
            }
            Op::Lock { file, exclusive, .. } => self.clear(m, holders, w, file, Touch::of_lock(exclusive)),
            Op::Downgrade { file, access, .. } => {
                self.clear(m, holders, w, file, Touch::of_lock(access & WRITE != 0))
            }
            Op::Remove { name } => {
                let dir = self.clear(m, holders, w, DIRECTORY, Touch::Changes);
                self.clear_name(m, holders, w, name).and(dir)
            }
            Op::Rename { from, to } => {
                self.clear(m, holders, w, DIRECTORY, Touch::Changes)?;
                self.clear_name(m, holders, w, from)?;
                if bug(Bug::RenamedOverUnasked) { Ok(()) } else { self.clear_name(m, holders, w, to) }
            }
            Op::Open { name, access, deny, make, .. } => {
                if !bug(Bug::LookUnasked) {
                    self.clear(m, holders, w, DIRECTORY, Touch::Looks)?;
                }
                self.effect(m, w, DIRECTORY, Effect::Reads, "an OPEN by name");
                let client = w.by.client.unwrap_or(0);
                if self.st.must_wait_for_grace(client, self.now) {
                    return Err(NfsStat::NFS4ERR_GRACE);
                }
                match self.at(name) {
                    Some(file) => self.may_open(m, holders, w, file, access, deny, false),
                    None if make => {
                        self.clear(m, holders, w, DIRECTORY, Touch::Changes)?;
                        let (room, gone) = self.st.make_room_for_open(self.now, client, None, w.by.from);
                        w.notes.extend(gone);
                        room?;
                        self.files += 1;
                        self.sizes.push(0);
                        if let Some(place) = self.names.get_mut(name) {
                            *place = Some(self.files);
                        }
                        (w.modified, w.renamed, w.made) = (true, true, Some(self.files));
                        self.effect(m, w, DIRECTORY, Effect::Renames, "an OPEN that makes a file");
                        Ok(())
                    }
                    None => Err(NfsStat::NFS4ERR_NOENT),
                }
            }
            Op::OpenFile { file, access, deny, by, .. } => {
                let client = w.by.client.unwrap_or(0);
                match by {
                    None if self.st.must_wait_for_grace(client, self.now) => {
                        return Err(NfsStat::NFS4ERR_GRACE);
                    }
                    None => {}
                    Some(by) => {
                        self.st.files.find(client, &by)?;
                        let found = self.st.files.delegation(client, &key(file), &by);
                        let (given, _) = found.map_err(|_| NfsStat::NFS4ERR_INVAL)?;
                        if access & !given != 0 {
                            return Err(NfsStat::NFS4ERR_OPENMODE);
                        }
                    }
                }
                self.may_open(m, holders, w, file, access, deny, false)
            }
            Op::Reclaim { file, access, deny, .. } => {
                let client = w.by.client.unwrap_or(0);
                self.st.may_reclaim(client, self.now)?;
                if self.st.files.is_barred(client, &key(file)) {
                    return Err(NfsStat::NFS4ERR_RECLAIM_BAD);
                }
                self.may_open(m, holders, w, file, access, deny, true)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn clear_name(
        &mut self,
        m: &Model,
        holders: &dyn Holders,
        w: &mut Work,
        name: usize,
    ) -> Result<(), NfsStat> {
        self.at(name).map_or(Ok(()), |file| self.clear(m, holders, w, file, Touch::Changes))
    }

    #[allow(clippy::too_many_arguments)] // those of an OPEN
    pub(super) fn may_open(
        &mut self,
        m: &Model,
        holders: &dyn Holders,
        w: &mut Work,
        file: File,
        access: Share,
        deny: Share,
        reclaims: bool,
    ) -> Result<(), NfsStat> {
        let changes = access & WRITE != 0 || deny != 0;
        self.clear(m, holders, w, file, if changes { Touch::Changes } else { Touch::Reads })?;
        self.share(w, file, access, deny, reclaims)
    }

    pub(super) fn share(
        &mut self,
        w: &mut Work,
        file: File,
        access: Share,
        deny: Share,
        reclaims: bool,
    ) -> Result<(), NfsStat> {
        if deny != 0 && !reclaims && self.st.may_have_unknown_opens(self.now) {
            return Err(NfsStat::NFS4ERR_GRACE);
        }
        let done = loop {
            match self.st.files.check_share(&key(file), access, deny) {
                Ok(()) => break Ok(()),
                Err(who) if self.st.lapsed(who.client, self.now) => {
                    w.notes.extend(self.removes(who.client));
                }
                Err(_) => break Err(NfsStat::NFS4ERR_SHARE_DENIED),
            }
        };
        w.notes.extend(self.st.removals.unsettled());
        done
    }
}
