//! GETATTR, SETATTR, ACCESS (RFC 1813 sections 3.3.1, 3.3.2, 3.3.4).

use super::context::{Context, Obj, fattr, set_attrs, timestamp};
use super::errors::status;
use crate::state::opens::WRITE;
use landfast_nfs::v3::access::{DELETE, EXECUTE, EXTEND, LOOKUP, MODIFY, READ};
use landfast_nfs::v3::args::{AccessArgs, SetattrArgs};
use landfast_nfs::v3::res::{AccessOk, AccessRes, GetattrRes, SetattrRes};
use landfast_nfs::v3::{FileHandle, NfsStat3, Res};
use landfast_volume::{AccessMask, Guard, Kind};

impl Context<'_> {
    pub(super) fn getattr(&mut self, object: &FileHandle) -> GetattrRes {
        let attrs = self.obj(object).and_then(|obj| self.look(&obj).map_err(status));
        match attrs {
            Ok(attrs) => Res::Ok(fattr(&attrs)),
            Err(status) => Res::Fail(status, ()),
        }
    }

    pub(super) fn setattr(&mut self, a: &SetattrArgs) -> SetattrRes {
        self.changing(&a.object, |ctx, obj| ctx.set(obj, a), |(), wcc| wcc)
    }

    fn set(&mut self, obj: &Obj, a: &SetattrArgs) -> Result<(), NfsStat3> {
        let attrs = set_attrs(&a.attrs)?;
        let guard = a.guard.map(timestamp).transpose()?.map(Guard::Ctime);
        if attrs.size.is_some() {
            obj.must_be_file()?;
            self.not_denied(obj, WRITE)?;
        }
        let tx = self.modify(obj)?;
        match obj.volume().setattr_guarded(tx, obj.cred(), &obj.node, None, attrs, guard) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(NfsStat3::NOT_SYNC),
            Err(e) => Err(status(e)),
        }
    }

    pub(super) fn access(&mut self, a: &AccessArgs) -> AccessRes {
        self.reading(&a.object, |ctx, obj| {
            let access = granted(obj, a.access)?;
            Ok(AccessOk { attrs: ctx.attrs(obj), access })
        })
    }
}

/// Which of the bits asked for the caller has.
fn granted(obj: &Obj, asked: u32) -> Result<u32, NfsStat3> {
    let known = if obj.node.kind() == Kind::Dir {
        READ | LOOKUP | MODIFY | EXTEND | DELETE
    } else {
        READ | MODIFY | EXTEND | EXECUTE
    };
    let (write, execute) = (MODIFY | EXTEND | DELETE, LOOKUP | EXECUTE);
    let asked = asked & known & if obj.access.read_only { !write } else { u32::MAX };
    let mask =
        AccessMask { read: asked & READ != 0, write: asked & write != 0, execute: asked & execute != 0 };
    let has = obj.volume().access(obj.cred(), &obj.node, mask).map_err(status)?;
    let bits = [(has.read, READ), (has.write, write), (has.execute, execute)];
    Ok(bits.iter().filter(|(granted, _)| *granted).fold(0, |all, (_, bits)| all | (asked & bits)))
}
