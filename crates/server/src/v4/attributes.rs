//! Attributes: GETATTR, SETATTR, VERIFY, NVERIFY, ACCESS (RFC 8881 sections 18.1, 18.7, 18.15, 18.30, 18.31).

use super::context::{Context, Obj, OpError, OpResult, key, must_be_file};
use super::io::mode_for;
use crate::attr::{self, Purpose};
use crate::errors::{status, status_of_acls};
use crate::reservations::Room;
use crate::shared::now;
use crate::state::asked::times_of_holder;
use crate::state::opens::{READ, WRITE};
use landfast_nfs::v4::args::SetattrArgs;
use landfast_nfs::v4::attr::number::{ACL, TIME_DELEG_ACCESS, TIME_DELEG_MODIFY};
use landfast_nfs::v4::flags::{
    ACCESS4_DELETE, ACCESS4_EXECUTE, ACCESS4_EXTEND, ACCESS4_LOOKUP, ACCESS4_MODIFY, ACCESS4_READ,
    ACCESS4_XALIST, ACCESS4_XAREAD, ACCESS4_XAWRITE,
};
use landfast_nfs::v4::res::AccessRes;
use landfast_nfs::v4::{Bitmap, Fattr, NfsStat, ResBody};
use landfast_volume::{AccessMask, Cred, Kind, SetAcls, SetAttrs, TimeSet};

impl Context<'_> {
    pub(super) fn getattr(&mut self, asked: &Bitmap) -> OpResult {
        let wanted = attr::readable(asked, self.minor)?;
        if let Some(obj) = self.object(self.fh()?)? {
            attr::not_delegated(asked, self.minor, obj.export.features.delegations)?;
        }
        let mut subject = self.subject(self.fh()?, &wanted)?;
        let mut wanted = wanted;
        if attr::asks_for_space(&wanted)
            && let Some(obj) = self.object(self.fh()?)?
        {
            match self.space_of(&obj, &wanted)? {
                Some(room) => subject.room = Some((room.bytes, room.files)),
                None => wanted = attr::without_space(&wanted),
            }
        }
        Ok(ResBody::Getattr(attr::values(self.sh, self.minor, &subject, &wanted)?))
    }

    /// What the caller has of the filesystem. A client that asks of a directory of which it has a write delegation is kept a part of that for
    /// a lease; `None`: nothing can be kept for it now.
    fn space_of(&self, obj: &Obj, wanted: &Bitmap) -> Result<Option<Room>, NfsStat> {
        let (client, space) = (self.client().ok(), &self.sh.space);
        let holder = client.filter(|client| {
            obj.export.features.write_delegations
                && attr::asks_for_all_space(wanted)
                && self.sh.state().files.has_whole_directory(*client, &key(&obj.node))
        });
        let (now, lease) = (self.sh.now(), u64::from(self.sh.lease_seconds) * 1000);
        let told = match holder {
            Some(client) => space.keep((now, now + lease), obj.volume(), obj.cred(), client),
            None => space.of_user(now, obj.volume(), obj.cred(), client).map(Some),
        };
        told.map_err(status)
    }

    /// SETATTR. The reply says what was set, also with an error (RFC 8881 section 18.30.3).
    pub(super) fn setattr(&mut self, a: &SetattrArgs) -> OpResult {
        let nothing = |status| OpError { status, body: Some(Box::new(ResBody::Setattr(Bitmap::default()))) };
        let obj = self.node().map_err(nothing)?;
        let purpose = if obj.export.features.delegations.sets_times(self.minor) {
            Purpose::SetByHolder
        } else {
            Purpose::Set
        };
        let mut attrs = attr::to_set(&a.attrs, self.minor, purpose).map_err(nothing)?;
        let delegated = self.take_delegated_times(&obj, a, &mut attrs).map_err(|f| nothing(f.status))?;
        let file = match attrs.size {
            None => None,
            Some(_) => {
                must_be_file(&obj.node).map_err(|s| {
                    nothing(match s {
                        // RFC 7530 section 13.2 lists it, RFC 8881 section 15.2 does not.
                        NfsStat::NFS4ERR_ISDIR if self.minor == 0 => s,
                        _ => NfsStat::NFS4ERR_INVAL,
                    })
                })?;
                self.opened(&obj, &a.stateid, WRITE).map_err(|f| nothing(f.status))?
            }
        };
        let acls = self.acls_to_set(&a.attrs, &obj, &attrs).map_err(nothing)?;
        let tx = self.modify(&obj).map_err(nothing)?;
        let mut done = Bitmap::default();
        if let Some(times) = delegated {
            if !times.is_empty() {
                // The delegation gives the right, as it does to whoever writes.
                obj.volume().setattr(tx, &Cred::root(), &obj.node, None, times)?;
            }
            done = attr::only_delegated_times(&a.attrs.mask);
        }
        if (acls.is_empty() && delegated.is_none()) || !attrs.is_empty() {
            let set = obj.volume().setattr(tx, obj.cred(), &obj.node, file.as_ref(), attrs);
            // If the filesystem lacks the feature: SETATTR has no `NOTSUPP`.
            done = done.or(&attr::set_mask(&set.map_err(|e| nothing(status_of_acls(e)))?));
        }
        if !acls.is_empty() {
            obj.volume().set_acls(tx, obj.cred(), &obj.node, &acls).map_err(|e| OpError {
                status: status_of_acls(e),
                body: Some(Box::new(ResBody::Setattr(done))),
            })?;
            done.set(ACL);
        }
        Ok(ResBody::Setattr(done))
    }

    /// Takes the times out that the holder of a delegation sets, after it has been checked that the caller is one.
    fn take_delegated_times(
        &self,
        obj: &Obj,
        a: &SetattrArgs,
        attrs: &mut SetAttrs,
    ) -> Result<Option<SetAttrs>, OpError> {
        let (any, write) = attr::delegated_times(&a.attrs);
        if !any {
            return Ok(None);
        }
        self.answers_for_times(obj, &a.stateid, write)?;
        obj.volume().may(obj.cred(), &obj.node, mode_for(if write { WRITE } else { READ }))?;
        // A time of his own choice sets the owner only, as without a delegation; of others it says that they have written or read.
        let found = obj.volume().getattr(&obj.node)?;
        let chosen = [0, found.uid].contains(&obj.cred().uid);
        let delegated = |set: &mut Option<TimeSet>, number| {
            let is_delegated = a.attrs.mask.has(number);
            if is_delegated { set.take() } else { None }
        };
        let atime = delegated(&mut attrs.atime, TIME_DELEG_ACCESS);
        let mtime = delegated(&mut attrs.mtime, TIME_DELEG_MODIFY);
        Ok(Some(times_of_holder(atime, mtime, &found, now(), chosen)))
    }

    /// The ACLs to set on an existing object, which gets the other attributes first.
    fn acls_to_set(&self, f: &Fattr, obj: &Obj, first: &SetAttrs) -> Result<SetAcls, NfsStat> {
        if !f.mask.has(ACL) {
            return Ok(SetAcls::default());
        }
        let owner = match first.uid {
            Some(uid) => uid,
            None => obj.volume().getattr(&obj.node).map_err(status)?.uid,
        };
        attr::acls_to_set(f, obj.node.kind(), owner, obj.export.features)
    }

    /// VERIFY and NVERIFY; `stop` is the status when the comparison fails.
    pub(super) fn verify(&mut self, given: &Fattr, stop: NfsStat) -> OpResult {
        attr::comparable(&given.mask, self.minor)?;
        self.object(self.fh()?)?;
        let subject = self.subject(self.fh()?, &given.mask)?;
        let found = attr::values(self.sh, self.minor, &subject, &given.mask)?;
        // Attributes that only other kinds of objects have, such as the ACL of a symbolic link.
        if !given.mask.minus(&found.mask).is_empty() {
            return Err(NfsStat::NFS4ERR_ATTRNOTSUPP.into());
        }
        let same = found.values == given.values;
        if same == (stop == NfsStat::NFS4ERR_SAME) { Err(stop.into()) } else { Ok(ResBody::Empty) }
    }

    pub(super) fn access(&mut self, asked: u32) -> OpResult {
        let obj = self.object(self.fh()?)?;
        let dir = obj.as_ref().is_none_or(|o| o.node.kind() == Kind::Dir);
        let mut known = if dir {
            ACCESS4_READ | ACCESS4_LOOKUP | ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_DELETE
        } else {
            ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_EXECUTE
        };
        // RFC 8276 section 8.5.
        let seen = obj.as_ref().is_none_or(|o| o.export.features.xattrs);
        let has_xattrs = seen && (dir || obj.as_ref().is_some_and(|o| o.node.kind() == Kind::File));
        if self.minor >= 2 && has_xattrs {
            known |= ACCESS4_XAREAD | ACCESS4_XAWRITE | ACCESS4_XALIST;
        }
        let supported = asked & known;
        let read = ACCESS4_READ | ACCESS4_XAREAD | ACCESS4_XALIST;
        let write = ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_DELETE | ACCESS4_XAWRITE;
        let execute = ACCESS4_LOOKUP | ACCESS4_EXECUTE;
        let Some(obj) = obj else {
            return Ok(ResBody::Access(AccessRes { supported, access: supported & !write }));
        };
        let mask = AccessMask {
            read: supported & read != 0,
            write: supported & write != 0 && !obj.access.read_only,
            execute: supported & execute != 0,
        };
        let has = obj.volume().access(obj.cred(), &obj.node, mask)?;
        let mut access = 0;
        for (granted, bits) in [(has.read, read), (has.write, write), (has.execute, execute)] {
            if granted {
                access |= supported & bits;
            }
        }
        Ok(ResBody::Access(AccessRes { supported, access }))
    }
}
