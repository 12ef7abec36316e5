//! Extended attributes: GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR (RFC 8276 section 8.4), from minor version 2.
//!
//! Where clients see none (`xattrs = false`), all four are `NOTSUPP`. A synthetic directory has none, but gets these
//! requests: clients learn from the root of a mount whether a server supports extended attributes.

use super::context::{Context, Obj, OpResult};
use super::names::cinfo;
use crate::errors::status;
use landfast_nfs::v4::args::{ListxattrsArgs, SetxattrArgs, SetxattrOption};
use landfast_nfs::v4::res::ListxattrsRes;
use landfast_nfs::v4::{NfsStat, ResBody};
use landfast_volume::{Error, SetXattr};
use landfast_xdr::padding;

/// Bytes of a LISTXATTRS result besides its names: cookie, count, end of list.
const LIST_AROUND: usize = 8 + 4 + 4;
const HEAD: usize = 8;

impl Context<'_> {
    /// GETXATTR. A value that is too large for the reply is `REP_TOO_BIG`, as every result is.
    pub(super) fn getxattr(&mut self, name: &[u8]) -> OpResult {
        let obj = self.object(self.fh()?)?.ok_or(NfsStat::NFS4ERR_NOXATTR)?;
        must_show_xattrs(&obj)?;
        let value = obj.volume().getxattr(obj.cred(), &obj.node, name).map_err(|e| match e {
            // RFC 8276 section 8.4.5 has no BADCHAR here.
            Error::NameChar => NfsStat::NFS4ERR_INVAL,
            e => status(e),
        })?;
        Ok(ResBody::Getxattr(value))
    }

    pub(super) fn setxattr(&mut self, a: &SetxattrArgs) -> OpResult {
        let obj = self.node()?;
        must_show_xattrs(&obj)?;
        let how = match a.option {
            SetxattrOption::Either => SetXattr::Either,
            SetxattrOption::Create => SetXattr::Create,
            SetxattrOption::Replace => SetXattr::Replace,
        };
        let change =
            obj.volume().setxattr(self.modify(&obj)?, obj.cred(), &obj.node, &a.key, &a.value, how)?;
        Ok(ResBody::Setxattr(cinfo(change)))
    }

    pub(super) fn removexattr(&mut self, name: &[u8]) -> OpResult {
        let obj = self.node()?;
        must_show_xattrs(&obj)?;
        let change = obj.volume().removexattr(self.modify(&obj)?, obj.cred(), &obj.node, name)?;
        Ok(ResBody::Removexattr(cinfo(change)))
    }

    pub(super) fn listxattrs(&mut self, a: &ListxattrsArgs) -> OpResult {
        let entries = match self.object(self.fh()?)? {
            Some(obj) => {
                must_show_xattrs(&obj)?;
                obj.volume().listxattrs(obj.cred(), &obj.node, a.cookie)?
            }
            None => Vec::new(),
        };
        let max = (a.maxcount as usize).min(self.room.saturating_sub(HEAD));
        let mut left = max.checked_sub(LIST_AROUND).ok_or(NfsStat::NFS4ERR_TOOSMALL)?;
        let mut list = ListxattrsRes { cookie: a.cookie, names: Vec::new(), eof: true };
        for entry in entries {
            let bytes = 4 + entry.name.len() + padding(entry.name.len());
            if bytes > left {
                if list.names.is_empty() {
                    return Err(NfsStat::NFS4ERR_TOOSMALL.into());
                }
                list.eof = false;
                break;
            }
            left -= bytes;
            list.cookie = entry.cookie;
            list.names.push(entry.name);
        }
        Ok(ResBody::Listxattrs(list))
    }
}

fn must_show_xattrs(obj: &Obj) -> Result<(), NfsStat> {
    if obj.export.features.xattrs { Ok(()) } else { Err(NfsStat::NFS4ERR_NOTSUPP) }
}
