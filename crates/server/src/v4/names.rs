//! Names: LOOKUP, LOOKUPP, CREATE, LINK, REMOVE, RENAME, READLINK (RFC 8881 sections 18.4, 18.9, 18.13, 18.14, 18.24 to
//! 18.26).

use super::context::{Ctx, Done, Fh, must_be_dir};
use crate::attr::{self, Purpose};
use crate::errors::{check_name, status_of_names};
use crate::limits;
use landfast_nfs::v4::args::{CreateArgs, CreateType, RenameArgs};
use landfast_nfs::v4::res::{CreateRes, RenameRes};
use landfast_nfs::v4::{ChangeInfo, NfsStat, ResBody};
use landfast_volume::{Error, Kind, Node, Special};

/// A directory's change attribute on the wire.
pub(super) fn cinfo(c: landfast_volume::ChangeInfo) -> ChangeInfo {
    ChangeInfo { atomic: c.atomic, before: c.before, after: c.after }
}

impl Ctx<'_> {
    /// The object of a name in the current directory.
    pub(super) fn find(&self, name: &[u8]) -> Result<Fh, super::context::Fail> {
        match self.fh()? {
            Fh::Node { node, by_path } => {
                must_be_dir(node)?;
                check_name(name)?;
                match self.sh.volume.lookup(&self.cred, node, name) {
                    Ok(node) => Ok(Fh::Node { node, by_path: *by_path }),
                    Err(Error::NoEnt) if *node == self.sh.root && !by_path => {
                        let step = self.sh.pseudo.in_root(name).ok_or(NfsStat::NFS4ERR_NOENT)?;
                        Ok(self.step_to(step))
                    }
                    Err(e) => Err(e.into()),
                }
            }
            Fh::Pseudo(dir) => {
                check_name(name)?;
                match self.sh.pseudo.entry(*dir) {
                    Some((only, step)) if *only == name => Ok(self.step_to(step)),
                    _ => Err(NfsStat::NFS4ERR_NOENT.into()),
                }
            }
        }
    }

    /// The directory above the current one.
    pub(super) fn parent(&self) -> Result<Fh, super::context::Fail> {
        match self.fh()? {
            Fh::Node { node, by_path } => {
                must_be_dir(node)?;
                let above = self.sh.volume.lookup_parent(&self.cred, node);
                match above {
                    Ok(node) => Ok(Fh::Node { node, by_path: *by_path }),
                    Err(Error::NoEnt) if *by_path => {
                        Ok(Fh::Node { node: self.sh.root.clone(), by_path: false })
                    }
                    Err(e) => Err(e.into()),
                }
            }
            Fh::Pseudo(dir) => Ok(match self.sh.pseudo.parent(*dir) {
                Some(above) => Fh::Pseudo(above),
                None => Fh::Node { node: self.sh.root.clone(), by_path: false },
            }),
        }
    }

    /// LOOKUP.
    pub(super) fn lookup(&mut self, name: &[u8]) -> Done {
        let found = self.find(name)?;
        self.set_fh(found);
        Ok(ResBody::Empty)
    }

    /// LOOKUPP.
    pub(super) fn lookupp(&mut self) -> Done {
        let above = self.parent()?;
        self.set_fh(above);
        Ok(ResBody::Empty)
    }

    /// READLINK.
    pub(super) fn readlink(&mut self) -> Done {
        match self.fh()? {
            Fh::Node { node, .. } if node.kind() == Kind::Symlink => {
                Ok(ResBody::Readlink(self.sh.volume.readlink(&self.cred, node)?))
            }
            _ => Err(NfsStat::NFS4ERR_WRONG_TYPE.into()),
        }
    }

    /// CREATE: anything but a regular file.
    pub(super) fn create(&mut self, a: &CreateArgs) -> Done {
        if let CreateType::Other(_) = a.kind {
            return Err(NfsStat::NFS4ERR_BADTYPE.into());
        }
        let dir = self.dir()?;
        check_name(&a.name)?;
        let attrs = attr::to_set(&a.attrs, self.minor, Purpose::Create)?;
        if attrs.size.is_some() {
            return Err(NfsStat::NFS4ERR_INVAL.into());
        }
        let (v, cred, name) = (&self.sh.volume, &self.cred, &a.name);
        let special = match &a.kind {
            CreateType::Fifo => Some(Special::Fifo),
            CreateType::Sock => Some(Special::Socket),
            CreateType::Chr(d) => Some(Special::CharDev(d.specdata1, d.specdata2)),
            CreateType::Blk(d) => Some(Special::BlockDev(d.specdata1, d.specdata2)),
            CreateType::Dir | CreateType::Lnk(_) | CreateType::Other(_) => None,
        };
        let made = match (&a.kind, special) {
            (_, Some(special)) => v.mknod(&mut self.tx, cred, &dir, name, special, attrs)?,
            (CreateType::Lnk(target), None) => {
                check_target(target)?;
                v.symlink(&mut self.tx, cred, &dir, name, target, attrs)?
            }
            _ => v.mkdir(&mut self.tx, cred, &dir, name, attrs)?,
        };
        self.go(made.node);
        Ok(ResBody::Create(CreateRes {
            cinfo: cinfo(made.dir_change),
            attrset: attr::set_mask(&made.attrs_set),
        }))
    }

    fn saved_node(&self) -> Result<Node, NfsStat> {
        match self.saved.as_ref().ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)? {
            (Fh::Node { node, .. }, _) => Ok(node.clone()),
            (Fh::Pseudo(_), _) => Err(NfsStat::NFS4ERR_XDEV),
        }
    }

    /// Names that a client may reclaim by are not to go away before it could (RFC 8881 section 8.4.2.1).
    fn names_may_change(&self) -> Result<(), NfsStat> {
        if self.sh.state().grace.active(self.now) { Err(NfsStat::NFS4ERR_GRACE) } else { Ok(()) }
    }

    /// LINK: the saved object under a further name in the current directory.
    pub(super) fn link(&mut self, name: &[u8]) -> Done {
        let source = self.saved_node()?;
        let dir = self.dir()?;
        check_name(name)?;
        if source.kind() == Kind::Dir {
            return Err(NfsStat::NFS4ERR_ISDIR.into());
        }
        let change = self.sh.volume.link(&mut self.tx, &self.cred, &source, &dir, name)?;
        Ok(ResBody::Link(cinfo(change)))
    }

    /// REMOVE.
    pub(super) fn remove(&mut self, name: &[u8]) -> Done {
        let dir = self.dir()?;
        check_name(name)?;
        self.names_may_change()?;
        let change = self.sh.volume.remove(&mut self.tx, &self.cred, &dir, name).map_err(status_of_names)?;
        Ok(ResBody::Remove(cinfo(change)))
    }

    /// RENAME: from the saved directory to the current one.
    pub(super) fn rename(&mut self, a: &RenameArgs) -> Done {
        let from = self.saved_node()?;
        must_be_dir(&from)?;
        let to = self.dir()?;
        check_name(&a.oldname)?;
        check_name(&a.newname)?;
        self.names_may_change()?;
        let (source, target) =
            self.sh.volume.rename(&mut self.tx, &self.cred, &from, &a.oldname, &to, &a.newname).map_err(
                |e| match e {
                    // RFC 8881 section 18.26.3: what is there and does not fit has one error.
                    Error::NotEmpty | Error::IsDir | Error::NotDir => NfsStat::NFS4ERR_EXIST,
                    e => status_of_names(e),
                },
            )?;
        Ok(ResBody::Rename(RenameRes { source_cinfo: cinfo(source), target_cinfo: cinfo(target) }))
    }
}

/// A symbolic link's target is any text that a path could be.
fn check_target(target: &[u8]) -> Result<(), NfsStat> {
    match target {
        b"" => Err(NfsStat::NFS4ERR_INVAL),
        t if t.len() > limits::LINK_TARGET_MAX => Err(NfsStat::NFS4ERR_NAMETOOLONG),
        t if t.contains(&0) => Err(NfsStat::NFS4ERR_INVAL),
        _ => Ok(()),
    }
}
