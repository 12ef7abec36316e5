//! Names: LOOKUP, LOOKUPP, CREATE, LINK, REMOVE, RENAME, READLINK (RFC 8881 sections 18.4, 18.9, 18.13, 18.14, 18.24 to
//! 18.26).

use super::context::{Context, Fh, Obj, OpError, OpResult, key, must_be_dir};
use crate::attr::{self, Purpose};
use crate::errors::{check_name, status, status_of_acls, status_of_names};
use crate::exports::pseudo::{self, PseudoDir, Step};
use crate::limits;
use crate::renamed::{Found, Renaming};
use crate::unlinked::Unlinking;
use landfast_nfs::v4::args::{CreateArgs, CreateType, RenameArgs};
use landfast_nfs::v4::attr::number::ACL;
use landfast_nfs::v4::res::{CreateRes, RenameRes};
use landfast_nfs::v4::{ChangeInfo, NfsStat, ResBody};
use landfast_volume::{Error, Kind, Node, Special, Tx};

pub(super) fn cinfo(c: landfast_volume::ChangeInfo) -> ChangeInfo {
    ChangeInfo { atomic: c.atomic, before: c.before, after: c.after }
}

impl Context<'_> {
    pub(super) fn find(&self, name: &[u8]) -> Result<Fh, OpError> {
        match self.fh()? {
            Fh::Node { .. } => {
                let dir = self.dir_or_symlink()?;
                check_name(name)?;
                match dir.volume().lookup(dir.cred(), &dir.node, name) {
                    Ok(node) => Ok(dir.to(node)),
                    Err(Error::NoEnt) => {
                        let step = self.on_own_path(&dir, name).ok_or(NfsStat::NFS4ERR_NOENT)?;
                        Ok(self.step_to(step)?.ok_or(NfsStat::NFS4ERR_NOENT)?)
                    }
                    Err(e) => Err(e.into()),
                }
            }
            Fh::Pseudo(dir) => {
                check_name(name)?;
                self.pseudo_entry(*dir, name)
            }
        }
    }

    fn pseudo_entry(&self, dir: PseudoDir, name: &[u8]) -> Result<Fh, OpError> {
        let step = self.exports.pseudo.entry(dir, name).ok_or(NfsStat::NFS4ERR_NOENT)?;
        let found = self.step_to(step)?;
        if let (None, Step::Export { export, .. }) = (&found, step)
            && let Some(export) = self.exports.at(export)
        {
            self.sh.refused_clients.log_export(&self.caller, export, true);
        }
        Ok(found.ok_or(NfsStat::NFS4ERR_NOENT)?)
    }

    /// A synthetic directory, or the export that is the root in its place.
    fn pseudo_fh(&self, dir: PseudoDir) -> Fh {
        if dir == pseudo::ROOT { self.server_root() } else { Fh::Pseudo(dir) }
    }

    /// Where the export's own path leads from a directory of an export that is the root: from the root itself, and from
    /// real directories that have the names of the path's first components and would otherwise hide it.
    fn on_own_path(&self, dir: &Obj, name: &[u8]) -> Option<Step> {
        let root = self.exports.root().filter(|root| !dir.by_path && root.id() == dir.export.id())?;
        let path = || self.exports.pseudo.own_path();
        if !path().any(|(part, _)| part == name) {
            return None;
        }
        let mut real = root.root.clone();
        for (part, step) in path() {
            if real == dir.node {
                return (part == name).then_some(step);
            }
            real = dir.volume().lookup(dir.cred(), &real, part).ok()?;
        }
        None
    }

    pub(super) fn parent(&self) -> Result<Fh, OpError> {
        match self.fh()? {
            // The directory above an export's root allows any flavor.
            Fh::Node { export, node, by_path: false } if *node == export.root => {
                let above = self.exports.pseudo.above(export.place);
                Ok(above.map_or(Err(NfsStat::NFS4ERR_NOENT), |a| Ok(self.pseudo_fh(a)))?)
            }
            Fh::Node { .. } => {
                let dir = self.dir_or_symlink()?;
                match dir.volume().lookup_parent(dir.cred(), &dir.node) {
                    Ok(node) => Ok(dir.to(node)),
                    Err(Error::NoEnt) if dir.by_path => Ok(self.server_root()),
                    Err(e) => Err(e.into()),
                }
            }
            Fh::Pseudo(dir) => match self.exports.pseudo.parent(*dir) {
                Some(above) => Ok(self.pseudo_fh(above)),
                None => Err(NfsStat::NFS4ERR_NOENT.into()),
            },
        }
    }

    pub(super) fn lookup(&mut self, name: &[u8]) -> OpResult {
        let found = self.find(name)?;
        self.object(&found)?;
        self.set_fh(found);
        Ok(ResBody::Empty)
    }

    pub(super) fn lookupp(&mut self) -> OpResult {
        let above = self.parent()?;
        self.object(&above)?;
        self.set_fh(above);
        Ok(ResBody::Empty)
    }

    pub(super) fn readlink(&mut self) -> OpResult {
        match self.object(self.fh()?)? {
            Some(o) if o.node.kind() == Kind::Symlink => {
                Ok(ResBody::Readlink(o.volume().readlink(o.cred(), &o.node)?))
            }
            _ => Err(NfsStat::NFS4ERR_WRONG_TYPE.into()),
        }
    }

    /// CREATE of anything but a regular file.
    pub(super) fn create(&mut self, a: &CreateArgs) -> OpResult {
        if let CreateType::Other(_) = a.kind {
            return Err(NfsStat::NFS4ERR_BADTYPE.into());
        }
        let dir = self.dir()?;
        check_name(&a.name)?;
        let attrs = attr::to_set(&a.attrs, self.minor, Purpose::Create)?;
        if attrs.size.is_some() {
            return Err(NfsStat::NFS4ERR_INVAL.into());
        }
        let kind = match &a.kind {
            CreateType::Lnk(_) => Kind::Symlink,
            CreateType::Dir => Kind::Dir,
            // None of the others treats ACLs specially.
            _ => Kind::Fifo,
        };
        let (v, cred, name) = (dir.volume(), dir.cred(), &a.name);
        let acls = attr::acls_to_set(&a.attrs, kind, attrs.uid.unwrap_or(cred.uid), dir.export.features)?;
        let special = match &a.kind {
            CreateType::Fifo => Some(Special::Fifo),
            CreateType::Sock => Some(Special::Socket),
            CreateType::Chr(d) => Some(Special::CharDev(d.major, d.minor)),
            CreateType::Blk(d) => Some(Special::BlockDev(d.major, d.minor)),
            CreateType::Dir | CreateType::Lnk(_) | CreateType::Other(_) => None,
        };
        dir.writable()?;
        self.leaves(&dir, 0)?;
        let made = match (&a.kind, special) {
            (_, Some(special)) => {
                v.mknod_with_acls(self.modify(&dir)?, cred, &dir.node, name, special, attrs, &acls)
            }
            (CreateType::Lnk(target), None) => {
                check_target(target)?;
                v.symlink(self.modify(&dir)?, cred, &dir.node, name, target, attrs)
            }
            _ => v.mkdir_with_acls(self.modify(&dir)?, cred, &dir.node, name, attrs, &acls),
        };
        let made = made.map_err(|e| if acls.is_empty() { status(e) } else { status_of_acls(e) })?;
        self.uses_room_of_a_name(&dir);
        if made.node.kind() == Kind::Dir && dir.export.features.write_delegations {
            self.made.push(key(&made.node));
        }
        self.set_fh(dir.to(made.node));
        let mut attrset = attr::set_mask(&made.attrs_set);
        if !acls.is_empty() {
            attrset.set(ACL);
        }
        Ok(ResBody::Create(CreateRes { cinfo: cinfo(made.dir_change), attrset }))
    }

    /// The saved object, to be linked or moved to the current one; an error across exports.
    fn saved_node(&self) -> Result<Obj, NfsStat> {
        let (fh, _) = self.saved.as_ref().ok_or(NfsStat::NFS4ERR_NOFILEHANDLE)?;
        // Checked before the flavor (RFC 8881 section 2.6.3.1.2).
        if let (Fh::Node { export: a, .. }, Fh::Node { export: b, .. }) = (fh, self.fh()?)
            && a.id() != b.id()
        {
            return Err(NfsStat::NFS4ERR_XDEV);
        }
        self.object(fh)?.ok_or(NfsStat::NFS4ERR_XDEV)
    }

    /// Names that clients may use to reclaim must not change during the grace period (RFC 8881 section 8.4.2.1).
    fn names_may_change(&self) -> Result<(), NfsStat> {
        if self.sh.state().grace.active(self.now) { Err(NfsStat::NFS4ERR_GRACE) } else { Ok(()) }
    }

    /// LINK: gives the saved object another name in the current directory.
    pub(super) fn link(&mut self, name: &[u8]) -> OpResult {
        let source = self.saved_node()?;
        let dir = self.dir()?;
        check_name(name)?;
        if source.node.kind() == Kind::Dir {
            return Err(NfsStat::NFS4ERR_ISDIR.into());
        }
        dir.writable()?;
        self.leaves(&dir, 0)?;
        let change = dir.volume().link(self.modify(&dir)?, dir.cred(), &source.node, &dir.node, name)?;
        self.uses_room_of_a_name(&dir);
        Ok(ResBody::Link(cinfo(change)))
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> OpResult {
        let dir = self.dir()?;
        check_name(name)?;
        self.names_may_change()?;
        dir.writable()?;
        let mut unlinking = Unlinking::new(self.sh, dir.volume());
        let held = |node: &Node| unlinking.held(node);
        let (tx, mut renaming) = self.renaming(&dir);
        let allows = |node: &Node| renaming.allows(node);
        let removed = dir.volume().remove_keeping(tx, dir.cred(), &dir.node, name, allows, held);
        let found = renaming.found;
        let kept = removed.as_ref().is_ok_and(|removed| removed.kept.is_some());
        self.note(unlinking.done(kept));
        if found.in_the_way {
            return Err(self.waits().into());
        }
        self.rests_on_gone(found.gone);
        let removed = removed.map_err(status_of_names)?;
        self.directories_may_be_gone(&dir, found.directories);
        Ok(ResBody::Remove(cinfo(removed.dir_change)))
    }

    /// The transaction of an operation on names in this directory, and what asks for delegations in its way.
    fn renaming(&mut self, dir: &Obj) -> (&mut Tx, Renaming<'_>) {
        let (sh, by, write_delegations) = (self.sh, self.looker(), dir.export.features.write_delegations);
        let (looks, touching) = (&mut self.looks, &mut self.touching);
        let renaming = Renaming { sh, by, write_delegations, looks, touching, found: Found::default() };
        (self.txs.of(&dir.export), renaming)
    }

    /// RENAME: from the saved directory to the current one.
    pub(super) fn rename(&mut self, a: &RenameArgs) -> OpResult {
        let from = self.saved_node()?;
        must_be_dir(&from.node)?;
        let to = self.dir()?;
        check_name(&a.oldname)?;
        check_name(&a.newname)?;
        self.names_may_change()?;
        to.writable()?;
        let mut unlinking = Unlinking::new(self.sh, to.volume());
        let (source, target) = ((&from.node, &a.oldname[..]), (&to.node, &a.newname[..]));
        let held = |node: &Node| unlinking.held(node);
        let (tx, mut renaming) = self.renaming(&to);
        let allows = |node: &Node| renaming.allows(node);
        let renamed = to.volume().rename_keeping(tx, to.cred(), source, target, allows, held);
        let found = renaming.found;
        let kept = renamed.as_ref().is_ok_and(|renamed| renamed.kept.is_some());
        self.note(unlinking.done(kept));
        if found.in_the_way {
            return Err(self.waits().into());
        }
        self.rests_on_gone(found.gone);
        let renamed = renamed.map_err(|e| match e {
            // RFC 8881 section 18.26.3: every mismatch with an existing target has one error.
            Error::NotEmpty | Error::IsDir | Error::NotDir => NfsStat::NFS4ERR_EXIST,
            e => status_of_names(e),
        })?;
        self.directories_may_be_gone(&to, found.directories);
        let (source_cinfo, target_cinfo) = (cinfo(renamed.source), cinfo(renamed.target));
        Ok(ResBody::Rename(RenameRes { source_cinfo, target_cinfo }))
    }
}

/// A symbolic link's target may be any text that could be a path.
fn check_target(target: &[u8]) -> Result<(), NfsStat> {
    match target {
        b"" => Err(NfsStat::NFS4ERR_INVAL),
        t if t.len() > limits::LINK_TARGET_MAX => Err(NfsStat::NFS4ERR_NAMETOOLONG),
        t if t.contains(&0) => Err(NfsStat::NFS4ERR_INVAL),
        _ => Ok(()),
    }
}
