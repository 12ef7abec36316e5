//! Filehandles: PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH, RESTOREFH (RFC 8881 sections 18.8, 18.19 to 18.21, 18.27,
//! 18.28), SECINFO and SECINFO_NO_NAME (18.29, 18.45).

use super::context::{Ctx, Done, Fh};
use crate::pseudo::Step;
use landfast_nfs::v4::flags::{AUTH_SYS, SECINFO_STYLE4_CURRENT_FH, SECINFO_STYLE4_PARENT};
use landfast_nfs::v4::{FileHandle, NfsStat, ResBody, SecInfo, Stateid};

impl Ctx<'_> {
    /// PUTFH. The handle is proven before anything is done with it: a volume's handles are signed.
    pub(super) fn putfh(&mut self, fh: &FileHandle) -> Done {
        let found = match self.sh.pseudo.resolve(&fh.0) {
            Some(dir) => Fh::Pseudo(dir),
            None => match self.sh.pseudo.strip(&fh.0) {
                Some(inner) => Fh::Node { node: self.sh.volume.resolve(inner)?, by_path: true },
                None => Fh::Node { node: self.sh.volume.resolve(&fh.0)?, by_path: false },
            },
        };
        self.set_fh(found);
        Ok(ResBody::Empty)
    }

    /// PUTROOTFH and PUTPUBFH: the export's root is the root of the server.
    pub(super) fn putrootfh(&mut self) -> Done {
        self.set_fh(Fh::Node { node: self.sh.root.clone(), by_path: false });
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

    /// Where the pseudo root's step leads.
    pub(super) fn step_to(&self, step: Step) -> Fh {
        match step {
            Step::Dir(dir) => Fh::Pseudo(dir),
            Step::Export { by_path } => Fh::Node { node: self.sh.root.clone(), by_path },
        }
    }

    /// SECINFO: the name must exist; the current filehandle is consumed.
    pub(super) fn secinfo(&mut self, name: &[u8]) -> Done {
        self.find(name)?;
        Ok(self.flavors())
    }

    /// SECINFO_NO_NAME: the current filehandle is consumed.
    pub(super) fn secinfo_no_name(&mut self, style: u32) -> Done {
        match style {
            SECINFO_STYLE4_CURRENT_FH => {}
            SECINFO_STYLE4_PARENT => {
                self.parent()?;
            }
            _ => return Err(NfsStat::NFS4ERR_BADXDR.into()),
        }
        Ok(self.flavors())
    }

    fn flavors(&mut self) -> ResBody {
        self.fh = None;
        self.stateid = Stateid::ANONYMOUS;
        ResBody::Secinfo(vec![SecInfo::Flavor(AUTH_SYS)])
    }
}
