//! Filehandles: PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH, RESTOREFH (RFC 8881 sections 18.8, 18.19 to 18.21, 18.27,
//! 18.28), SECINFO and SECINFO_NO_NAME (18.29, 18.45).

use super::context::{Ctx, Done, Fail, Fh};
use crate::exports::pseudo::{self, Pseudo, Step};
use crate::exports::{Export, Refused};
use landfast_nfs::v4::flags::{AUTH_SYS, SECINFO_STYLE4_CURRENT_FH, SECINFO_STYLE4_PARENT};
use landfast_nfs::v4::{FileHandle, NfsStat, ResBody, SecInfo, Stateid};
use std::sync::Arc;

impl Ctx<'_> {
    /// PUTFH. The handle is proven before anything is done with it: a volume's handles are signed.
    pub(super) fn putfh(&mut self, fh: &FileHandle) -> Done {
        let found = match self.exports.pseudo_dir(&fh.0) {
            Some(dir) => Fh::Pseudo(dir),
            // Of this server once, or of another.
            None if Pseudo::is_pseudo(&fh.0) => return Err(NfsStat::NFS4ERR_STALE.into()),
            None => self.exports.object(&fh.0)?.into(),
        };
        self.object(&found)?;
        self.set_fh(found);
        Ok(ResBody::Empty)
    }

    /// PUTROOTFH and PUTPUBFH.
    pub(super) fn putrootfh(&mut self) -> Done {
        let root = self.server_root();
        self.object(&root)?;
        self.set_fh(root);
        Ok(ResBody::Empty)
    }

    /// GETFH.
    pub(super) fn getfh(&mut self) -> Done {
        Ok(ResBody::Getfh(FileHandle(self.wire(self.fh()?))))
    }

    /// SAVEFH: with the current stateid.
    pub(super) fn savefh(&mut self) -> Done {
        self.saved = Some((self.fh()?.clone(), self.stateid));
        Ok(ResBody::Empty)
    }

    /// RESTOREFH: with the saved stateid.
    pub(super) fn restorefh(&mut self) -> Done {
        let (fh, stateid) = self.saved.clone().ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)?;
        self.fh = Some(fh);
        self.stateid = stateid;
        Ok(ResBody::Empty)
    }

    /// The root of the server: an export's, or a synthetic one.
    pub(super) fn server_root(&self) -> Fh {
        match self.exports.root() {
            Some(e) => Fh::Node { export: e.clone(), node: e.root.clone(), by_path: false },
            None => Fh::Pseudo(pseudo::ROOT),
        }
    }

    /// Where a step in the pseudo root leads; nowhere for a caller that may not use what is there.
    pub(super) fn step_to(&self, step: Step) -> Option<Fh> {
        let usable = |e: &Arc<Export>| self.access_to(e) != Err(Refused::Access);
        match step {
            Step::Dir(dir) => {
                let below = self.exports.pseudo.exports_below(dir);
                let any = below.into_iter().filter_map(|place| self.exports.at(place)).any(usable);
                any.then_some(Fh::Pseudo(dir))
            }
            Step::Export { export, by_path } => {
                let export = self.exports.at(export).filter(|e| usable(e))?.clone();
                Some(Fh::Node { node: export.root.clone(), export, by_path })
            }
        }
    }

    /// SECINFO: the name must exist; the current filehandle is consumed.
    pub(super) fn secinfo(&mut self, name: &[u8]) -> Done {
        self.find(name).map_err(no_symlink)?;
        Ok(self.flavors())
    }

    /// SECINFO_NO_NAME: the current filehandle is consumed.
    pub(super) fn secinfo_no_name(&mut self, style: u32) -> Done {
        match style {
            SECINFO_STYLE4_CURRENT_FH => {}
            SECINFO_STYLE4_PARENT => {
                self.parent().map_err(no_symlink)?;
            }
            _ => return Err(NfsStat::NFS4ERR_BADXDR.into()),
        }
        Ok(self.flavors())
    }

    fn flavors(&mut self) -> ResBody {
        // RFC 7530 section 16.31.4: in NFSv4.0 the filehandle stays.
        if self.minor > 0 {
            self.fh = None;
            self.stateid = Stateid::ANONYMOUS;
        }
        ResBody::Secinfo(vec![SecInfo::Flavor(AUTH_SYS)])
    }
}

/// SECINFO and SECINFO_NO_NAME do not say `SYMLINK` (RFC 8881 section 15.2).
fn no_symlink(f: Fail) -> Fail {
    match f.status {
        NfsStat::NFS4ERR_SYMLINK => NfsStat::NFS4ERR_NOTDIR.into(),
        _ => f,
    }
}
