//! Filehandles: PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH, RESTOREFH (RFC 8881 sections 18.8, 18.19 to 18.21, 18.27,
//! 18.28), SECINFO and SECINFO_NO_NAME (18.29, 18.45).

use super::context::{Context, Fh, OpError, OpResult};
use crate::exports::Refused;
use crate::exports::pseudo::{self, Pseudo, Step};
use landfast_nfs::v4::flags::{AUTH_NONE, AUTH_SYS, SECINFO_STYLE4_CURRENT_FH, SECINFO_STYLE4_PARENT};
use landfast_nfs::v4::{FileHandle, NfsStat, ResBody, SecInfo, Stateid};

impl Context<'_> {
    /// PUTFH. Verifies the handle's signature before anything else is done with it.
    pub(super) fn putfh(&mut self, fh: &FileHandle) -> OpResult {
        let found = match self.exports.pseudo.resolve(&fh.0) {
            Some(dir) => Fh::Pseudo(dir),
            // A handle of this server's past, or of another server.
            None if Pseudo::is_pseudo(&fh.0) => return Err(NfsStat::NFS4ERR_STALE.into()),
            None => self.exports.object(&fh.0)?.into(),
        };
        self.may_be_set(&found)?;
        self.set_fh(found);
        Ok(ResBody::Empty)
    }

    pub(super) fn putrootfh(&mut self) -> OpResult {
        let root = self.server_root();
        self.may_be_set(&root)?;
        self.set_fh(root);
        Ok(ResBody::Empty)
    }

    /// Whether the caller may have this as its current filehandle, as far as the operation that sets it must decide.
    fn may_be_set(&self, fh: &Fh) -> Result<(), NfsStat> {
        match self.object(fh) {
            Err(NfsStat::NFS4ERR_WRONGSEC) if self.flavor_later => Ok(()),
            other => other.map(|_| ()),
        }
    }

    pub(super) fn getfh(&mut self) -> OpResult {
        Ok(ResBody::Getfh(FileHandle(self.wire(self.fh()?))))
    }

    pub(super) fn savefh(&mut self) -> OpResult {
        self.saved = Some((self.fh()?.clone(), self.stateid));
        Ok(ResBody::Empty)
    }

    pub(super) fn restorefh(&mut self) -> OpResult {
        let (fh, stateid) = self.saved.clone().ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)?;
        self.may_be_set(&fh)?;
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

    /// Where a step in the pseudo root leads; `None` for a caller that may not use what is there.
    /// Errors: `DELAY` while it is unknown whether the caller may, and for an export that cannot be served now.
    pub(super) fn step_to(&self, step: Step) -> Result<Option<Fh>, NfsStat> {
        match step {
            Step::Dir(dir) => {
                let mut not_yet = false;
                for place in self.exports.pseudo.exports_below(dir) {
                    let down = || self.exports.down_at(place).map(|d| d.access(&self.caller));
                    let served = self.exports.at(place).map(|e| self.access_to(e).map(|_| ()));
                    match served.or_else(down) {
                        Some(Ok(()) | Err(Refused::Flavor)) => return Ok(Some(Fh::Pseudo(dir))),
                        Some(Err(Refused::NotYet)) => not_yet = true,
                        Some(Err(Refused::Access)) | None => {}
                    }
                }
                if not_yet { Err(NfsStat::NFS4ERR_DELAY) } else { Ok(None) }
            }
            Step::Export { export, by_path } => {
                let Some(export) = self.exports.at(export) else {
                    // A caller that may use it waits until it can be served.
                    return match self.exports.down_at(export).map(|d| d.access(&self.caller)) {
                        Some(Ok(()) | Err(Refused::NotYet)) => Err(NfsStat::NFS4ERR_DELAY),
                        Some(Err(_)) | None => Ok(None),
                    };
                };
                match self.access_to(export) {
                    Ok(_) | Err(Refused::Flavor) => {
                        Ok(Some(Fh::Node { node: export.root.clone(), export: export.clone(), by_path }))
                    }
                    Err(Refused::NotYet) => Err(NfsStat::NFS4ERR_DELAY),
                    Err(Refused::Access) => Ok(None),
                }
            }
        }
    }

    /// SECINFO: the name must exist. Consumes the current filehandle.
    pub(super) fn secinfo(&mut self, name: &[u8]) -> OpResult {
        let here = self.fh()?.clone();
        let target = match self.object(&here) {
            // A caller with the wrong flavor for an export must not learn its names. Everything in it allows the same
            // flavors.
            Err(NfsStat::NFS4ERR_WRONGSEC) => here,
            _ => self.find(name).map_err(no_symlink)?,
        };
        Ok(self.flavors(&target))
    }

    /// SECINFO_NO_NAME consumes the current filehandle.
    pub(super) fn secinfo_no_name(&mut self, style: u32) -> OpResult {
        let here = self.fh()?.clone();
        let target = match style {
            SECINFO_STYLE4_CURRENT_FH => here,
            SECINFO_STYLE4_PARENT => match self.parent() {
                Err(f) if f.status == NfsStat::NFS4ERR_WRONGSEC => here,
                other => other.map_err(no_symlink)?,
            },
            _ => return Err(NfsStat::NFS4ERR_BADXDR.into()),
        };
        Ok(self.flavors(&target))
    }

    fn flavors(&mut self, of: &Fh) -> ResBody {
        // RFC 7530 section 16.31.4: in NFSv4.0 the filehandle stays.
        if self.minor > 0 {
            self.fh = None;
            self.stateid = Stateid::ANONYMOUS;
        }
        let (sys, none) = match of {
            Fh::Node { export, .. } => export.flavors(&self.caller),
            Fh::Pseudo(_) => (true, true),
        };
        let taken = [(sys, AUTH_SYS), (none, AUTH_NONE)];
        ResBody::Secinfo(taken.into_iter().filter(|(t, _)| *t).map(|(_, f)| SecInfo::Flavor(f)).collect())
    }
}

/// SECINFO and SECINFO_NO_NAME may not return `SYMLINK` (RFC 8881 section 15.2).
fn no_symlink(f: OpError) -> OpError {
    match f.status {
        NfsStat::NFS4ERR_SYMLINK => NfsStat::NFS4ERR_NOTDIR.into(),
        _ => f,
    }
}
