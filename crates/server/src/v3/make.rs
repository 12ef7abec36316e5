//! CREATE, MKDIR, SYMLINK, MKNOD (RFC 1813 sections 3.3.8 to 3.3.11).

use super::context::{Context, Obj, set_attrs};
use super::errors::{NameUse, check_name, status};
use crate::limits;
use crate::state::delegations::Touch;
use crate::state::opens::WRITE;
use landfast_nfs::v3::args::{CreateArgs, CreateHow, MkdirArgs, MknodArgs, MknodWhat, SymlinkArgs};
use landfast_nfs::v3::res::{MakeOk, MakeRes, PostOp};
use landfast_nfs::v3::types::DirOp;
use landfast_nfs::v3::{NfsStat3, Sattr};
use landfast_volume::{CreateHow as VolumeHow, Error, Kind, Node, OpenMode, SetAttrs, Special, Verifier};

impl Context<'_> {
    /// What all four have in common: the checks before, the reply after.
    fn make(&mut self, at: &DirOp, act: impl FnOnce(&mut Self, &Obj) -> Result<Node, NfsStat3>) -> MakeRes {
        let make = |ctx: &mut Self, dir: &Obj| {
            dir.must_be_dir()?;
            check_name(&at.name, NameUse::New)?;
            ctx.modify(dir)?;
            ctx.leaves(dir)?;
            let made = dir.to(act(ctx, dir)?);
            let attrs = ctx.attrs(&made);
            Ok((made, attrs))
        };
        let ok = |(made, attrs): (Obj, PostOp), dir| MakeOk { object: made.handle().ok(), attrs, dir };
        self.changing(&at.dir, make, ok)
    }

    pub(super) fn create(&mut self, a: &CreateArgs) -> MakeRes {
        let name = &a.at.name;
        self.make(&a.at, |ctx, dir| match &a.how {
            CreateHow::Unchecked(attrs) => ctx.create_or_take(dir, name, set_attrs(attrs)?),
            CreateHow::Guarded(attrs) => {
                ctx.create_new(dir, name, VolumeHow::Guarded(set_attrs(attrs)?)).map_err(status)
            }
            // The verifier is all that the file's times hold; SETATTR sets everything else.
            CreateHow::Exclusive(verf) => {
                let verifier = Verifier { create: *verf, instance: None };
                let how = VolumeHow::Exclusive { verifier, attrs: SetAttrs::default() };
                ctx.create_new(dir, name, how).map_err(status)
            }
        })
    }

    fn create_new(&mut self, dir: &Obj, name: &[u8], how: VolumeHow) -> Result<Node, Error> {
        let tx = self.txs.of(&dir.export);
        let made = dir.volume().create(tx, dir.cred(), &dir.node, name, how, OpenMode::READ)?;
        dir.volume().keep_for_first_write(dir.cred(), &made);
        Ok(made.node)
    }

    /// UNCHECKED: a regular file that is there will do. Of the attributes only the size is set then, and only by whom the
    /// file lets; nothing else is needed to find it there.
    fn create_or_take(&mut self, dir: &Obj, name: &[u8], attrs: SetAttrs) -> Result<Node, NfsStat3> {
        for _ in 0..limits::V3_CREATE_TRIES {
            match self.create_new(dir, name, VolumeHow::Guarded(attrs)) {
                Err(Error::Exists) => {}
                made => return made.map_err(status),
            }
            let there = match dir.volume().lookup(dir.cred(), &dir.node, name) {
                // Removed just now.
                Err(Error::NoEnt) => continue,
                found => dir.to(found.map_err(status)?),
            };
            self.modify(&there)?;
            if there.node.kind() != Kind::File {
                return Err(NfsStat3::EXIST);
            }
            self.touch(&there, Touch::Changes)?;
            if let Some(size) = attrs.size {
                self.not_denied(&there, WRITE)?;
                let size = SetAttrs { size: Some(size), ..SetAttrs::default() };
                let tx = self.txs.of(&there.export);
                there.volume().setattr(tx, there.cred(), &there.node, None, size).map_err(status)?;
            }
            return Ok(there.node);
        }
        Err(NfsStat3::JUKEBOX)
    }

    pub(super) fn mkdir(&mut self, a: &MkdirArgs) -> MakeRes {
        self.make(&a.at, |ctx, dir| {
            let attrs = unsized_attrs(&a.attrs)?;
            let tx = ctx.txs.of(&dir.export);
            let made = dir.volume().mkdir(tx, dir.cred(), &dir.node, &a.at.name, attrs).map_err(status)?;
            Ok(made.node)
        })
    }

    pub(super) fn symlink(&mut self, a: &SymlinkArgs) -> MakeRes {
        self.make(&a.at, |ctx, dir| {
            let attrs = unsized_attrs(&a.attrs)?;
            let tx = ctx.txs.of(&dir.export);
            let made = dir
                .volume()
                .symlink(tx, dir.cred(), &dir.node, &a.at.name, &a.target, attrs)
                .map_err(status)?;
            Ok(made.node)
        })
    }

    pub(super) fn mknod(&mut self, a: &MknodArgs) -> MakeRes {
        self.make(&a.at, |ctx, dir| {
            let (special, attrs) = match &a.what {
                MknodWhat::Chr(attrs, dev) => (Special::CharDev(dev.major, dev.minor), attrs),
                MknodWhat::Blk(attrs, dev) => (Special::BlockDev(dev.major, dev.minor), attrs),
                MknodWhat::Sock(attrs) => (Special::Socket, attrs),
                MknodWhat::Fifo(attrs) => (Special::Fifo, attrs),
                MknodWhat::Other(_) => return Err(NfsStat3::BADTYPE),
            };
            let attrs = unsized_attrs(attrs)?;
            let tx = ctx.txs.of(&dir.export);
            let made =
                dir.volume().mknod(tx, dir.cred(), &dir.node, &a.at.name, special, attrs).map_err(status)?;
            Ok(made.node)
        })
    }
}

/// Attributes of what has no size that could be set: one is ignored, as clients send one along.
fn unsized_attrs(attrs: &Sattr) -> Result<SetAttrs, NfsStat3> {
    Ok(SetAttrs { size: None, ..set_attrs(attrs)? })
}
