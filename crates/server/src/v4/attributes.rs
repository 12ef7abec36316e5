//! Attributes: GETATTR, SETATTR, VERIFY, NVERIFY, ACCESS (RFC 8881 sections 18.1, 18.7, 18.15, 18.30, 18.31).

use super::context::{Ctx, Done, Fail, must_be_file};
use crate::attr::{self, Purpose};
use crate::state::opens::WRITE;
use landfast_nfs::v4::args::SetattrArgs;
use landfast_nfs::v4::flags::{
    ACCESS4_DELETE, ACCESS4_EXECUTE, ACCESS4_EXTEND, ACCESS4_LOOKUP, ACCESS4_MODIFY, ACCESS4_READ,
};
use landfast_nfs::v4::res::AccessRes;
use landfast_nfs::v4::{Bitmap, Fattr, NfsStat, ResBody};
use landfast_volume::{AccessMask, Kind};

impl Ctx<'_> {
    /// GETATTR.
    pub(super) fn getattr(&mut self, wanted: &Bitmap) -> Done {
        let wanted = attr::readable(wanted, self.minor)?;
        let subject = self.subject(self.fh()?)?;
        Ok(ResBody::Getattr(attr::values(self.sh, self.minor, &subject, &wanted)?))
    }

    /// SETATTR. The reply says what was set, also with an error (RFC 8881 section 18.30.3).
    pub(super) fn setattr(&mut self, a: &SetattrArgs) -> Done {
        let nothing = |status| Fail { status, body: Some(Box::new(ResBody::Setattr(Bitmap::default()))) };
        let obj = self.node().map_err(nothing)?;
        let attrs = attr::to_set(&a.attrs, self.minor, Purpose::Set).map_err(nothing)?;
        let file = match attrs.size {
            None => None,
            Some(_) => {
                must_be_file(&obj.node).map_err(|s| {
                    nothing(match s {
                        // RFC 7530 section 13.2 has it, RFC 8881 section 15.2 has not.
                        NfsStat::NFS4ERR_ISDIR if self.minor == 0 => s,
                        _ => NfsStat::NFS4ERR_INVAL,
                    })
                })?;
                self.opened(&obj, &a.stateid, WRITE).map_err(|f| nothing(f.status))?
            }
        };
        let tx = self.modify(&obj).map_err(nothing)?;
        match obj.volume().setattr(tx, obj.cred(), &obj.node, file.as_ref(), attrs) {
            Ok(set) => Ok(ResBody::Setattr(attr::set_mask(&set))),
            Err(e) => Err(nothing(crate::errors::status(e))),
        }
    }

    /// VERIFY and NVERIFY: `stop` is the status when the attributes are as they must not be.
    pub(super) fn verify(&mut self, given: &Fattr, stop: NfsStat) -> Done {
        attr::comparable(&given.mask, self.minor)?;
        let subject = self.subject(self.fh()?)?;
        let same = attr::values(self.sh, self.minor, &subject, &given.mask)?.values == given.values;
        if same == (stop == NfsStat::NFS4ERR_SAME) { Err(stop.into()) } else { Ok(ResBody::Empty) }
    }

    /// ACCESS.
    pub(super) fn access(&mut self, asked: u32) -> Done {
        let obj = self.object(self.fh()?)?;
        let dir = obj.as_ref().is_none_or(|o| o.node.kind() == Kind::Dir);
        let known = if dir {
            ACCESS4_READ | ACCESS4_LOOKUP | ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_DELETE
        } else {
            ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_EXECUTE
        };
        let supported = asked & known;
        let write = ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_DELETE;
        let execute = ACCESS4_LOOKUP | ACCESS4_EXECUTE;
        let Some(obj) = obj else {
            return Ok(ResBody::Access(AccessRes { supported, access: supported & !write }));
        };
        let mask = AccessMask {
            read: supported & ACCESS4_READ != 0,
            write: supported & write != 0 && !obj.access.read_only,
            execute: supported & execute != 0,
        };
        let has = obj.volume().access(obj.cred(), &obj.node, mask)?;
        let mut access = 0;
        for (granted, bits) in [(has.read, ACCESS4_READ), (has.write, write), (has.execute, execute)] {
            if granted {
                access |= supported & bits;
            }
        }
        Ok(ResBody::Access(AccessRes { supported, access }))
    }
}
