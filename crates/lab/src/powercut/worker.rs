//! One client of the harness with its model. After a cut it repeats its last requests, and sends again what it wrote and did not
//! commit.

use super::check;
use super::found::{FoundObject, Tree};
use super::model::{Kind, Model, Unstable};
use super::moment::Acks;
use super::peer::{Peer, RetryOutcome};
use super::workload::Workload;
use crate::error::{Error, Result};
use crate::limits::REMOVED_HANDLES_MAX;
use crate::serial::{Action, Actor, Connect, Done, Session, v3};
use landfast_nfs::v4::{FileHandle, NfsStat};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Slots that an NFSv4 worker uses in turn; the last request of each is repeated after a cut.
const SLOTS: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V3,
    V41,
    V42,
}

pub struct Worker {
    pub dir: String,
    /// The tree that its acknowledged actions make.
    pub model: Model,
    pub acknowledged: u64,
    pub under_way: Option<Action>,
    /// The model with the action in flight, if only NFS can show whether it was done.
    either: Option<Model>,
    version: Version,
    workload: Box<dyn Workload>,
    removed: Vec<FileHandle>,
    wrong: Vec<String>,
    peer: Option<Peer>,
    verifier: Option<[u8; 8]>,
    /// The first xid of its next NFSv3 connection.
    xid: u32,
}

#[derive(Debug, Default)]
pub struct Findings {
    pub wrong: Vec<String>,
    pub repeated: u64,
    /// Requests in flight whose effect was on the disk before the log: the reply to the repetition said that it was done before.
    pub ahead: u64,
    pub handles: u64,
    pub objects: u64,
}

impl Worker {
    /// A client that works in `dir`, which is there.
    pub fn new(dir: String, version: Version, workload: Box<dyn Workload>, xid: u32) -> Self {
        Worker {
            dir,
            model: Model::new(),
            acknowledged: 0,
            under_way: None,
            either: None,
            version,
            workload,
            removed: Vec::new(),
            wrong: Vec::new(),
            peer: None,
            verifier: None,
            xid,
        }
    }

    /// Connects, and keeps all handles from before.
    pub fn connect(&mut self, addr: SocketAddr) -> Result<()> {
        let peer = self.new_peer(addr)?;
        self.peer = Some(peer);
        self.verifier = None;
        Ok(())
    }

    fn new_peer(&mut self, addr: SocketAddr) -> Result<Peer> {
        let mut peer = match self.version {
            Version::V3 => {
                self.xid = self.xid.wrapping_add(1 << 16);
                Peer::V3(Box::new(v3::Actor3::connect(addr, &self.dir, self.xid)?))
            }
            Version::V41 | Version::V42 => {
                let minor = if self.version == Version::V41 { 1 } else { 2 };
                let owner = format!("power cut {}", self.dir);
                let to = Connect { minor, slots: SLOTS, ..Connect::new(addr, owner) };
                // The same client as before the cut, started anew: the grace period ends when all have come back.
                let mut session = Session::connect(&to)?;
                let root = session.walk(&self.dir)?;
                Peer::V4(Box::new(Actor::new(session, root).with_lists()))
            }
        };
        for (path, id) in self.model.paths() {
            if let Some(fh) = self.model.object(id).and_then(|o| o.fh.clone()) {
                peer.remember(path, fh);
            }
        }
        Ok(peer)
    }

    /// Works until the connection breaks or the server refuses.
    pub fn work(&mut self, cut: &AtomicBool, acks: &Acks) {
        let Some(mut peer) = self.peer.take() else { return };
        loop {
            let action = self.workload.next(&self.model);
            match peer.act(&action) {
                Ok(done) => {
                    acks.note();
                    self.acknowledged += u64::from(action.is_durable());
                    if let Err(e) = self.acknowledge(&peer, &action, &done) {
                        self.wrong.push(e);
                    }
                }
                Err(e) => {
                    // A server whose disks have no power refuses; before the cut nothing may fail.
                    if !cut.load(Ordering::Acquire) {
                        self.wrong.push(format!("before the cut: {}: {e}", describe(&action)));
                    }
                    self.under_way = Some(action);
                    break;
                }
            }
        }
        self.peer = Some(peer);
    }

    fn acknowledge(&mut self, peer: &Peer, action: &Action, done: &Done) -> std::result::Result<(), String> {
        if let Some(verifier) = done.verifier
            && self.verifier.replace(verifier).is_some_and(|old| old != verifier)
        {
            return Err("the write verifier changed while the server ran".to_owned());
        }
        let id = self.model.apply(action).map_err(|e| e.to_string())?;
        let fh = path_of(action).and_then(|p| peer.known(p));
        let mut result = Ok(());
        if let Some(id) = id {
            let was = self.model.object(id).and_then(|o| o.change);
            self.model.learn(id, done.attrs.as_ref(), fh);
            let now = self.model.object(id).and_then(|o| o.change);
            if now < was {
                result = Err(format!("{}: change attribute {was:?} went back to {now:?}", describe(action)));
            }
        }
        for (dir, change) in &done.dirs {
            let object = self.model.find(dir).and_then(|id| self.model.object_mut(id));
            let Some(object) = object else { continue };
            if object.change.replace(*change).is_some_and(|was| was >= *change) {
                result = Err(format!("{}: the directory's change attribute does not grow", describe(action)));
            }
        }
        self.removed.extend(self.model.forget_unreachable());
        result
    }

    /// The first part of the verification: finds out which state the disk is in, repeats the last requests, connects again and sends
    /// again what may be lost.
    pub fn come_back(
        &mut self,
        addr: SocketAddr,
        disk: &Tree,
        unclean: bool,
        out: &mut Findings,
    ) -> Result<Option<Model>> {
        out.wrong.append(&mut self.wrong);
        let under_way = self.under_way.take();
        self.workload.interrupt();
        let before = self.model.clone();
        let variants = self.model.variants(under_way.as_ref()).map_err(|e| Error::Unable(e.to_string()))?;
        let which = match check::agree(&variants, disk) {
            Ok(which) => which,
            Err(e) => {
                let doing = under_way.as_ref().map_or("nothing".into(), describe);
                out.wrong.push(format!("{doing} under way: {e}"));
                return Ok(None);
            }
        };
        self.model = variants.into_iter().nth(which).unwrap_or_default();
        self.removed.extend(self.model.forget_unreachable());
        let skip = self.removed.len().saturating_sub(REMOVED_HANDLES_MAX);
        self.removed.drain(..skip);
        let unstable = self.model.unstable();
        adopt(&mut self.model, disk);
        self.either = None;
        let unseen = under_way.as_ref().filter(|action| !action.shows_on_disk());
        let settled = self.repeat(addr, under_way.as_ref(), which > 0, out)?;
        let mut peer = self.new_peer(addr)?;
        self.send_again(&mut peer, unstable, unclean, out)?;
        self.peer = Some(peer);
        // After that, so that both hold what was sent again.
        if let (Some(action), false) = (unseen, settled) {
            let mut other = self.model.clone();
            // What could not be done was not done.
            self.either = other.apply(action).is_ok().then_some(other);
        }
        Ok(Some(before))
    }

    /// Repeats the last requests as the client from before the cut. Returns whether the one in flight was answered.
    fn repeat(
        &mut self,
        addr: SocketAddr,
        action: Option<&Action>,
        there: bool,
        out: &mut Findings,
    ) -> Result<bool> {
        let Some(mut peer) = self.peer.take() else { return Ok(false) };
        let repeated = peer.repeat(addr, action)?;
        out.repeated += repeated.count;
        out.wrong.extend(repeated.wrong);
        // What is in hand when the power goes is written again as a whole.
        let Some(action) = action.filter(|a| !matches!(a, Action::Write { .. })) else { return Ok(false) };
        let settled = matches!(repeated.under_way, RetryOutcome::Done(_));
        let what = || format!("{} under way, repeated", describe(action));
        match repeated.under_way {
            RetryOutcome::Nothing => {}
            RetryOutcome::Done(done) => {
                if !there {
                    self.model.apply(action).map_err(|e| Error::Unable(e.to_string()))?;
                    self.removed.extend(self.model.forget_unreachable());
                }
                if let Some(id) = path_of(action).and_then(|p| self.model.find(p)) {
                    self.model.learn(id, done.attrs.as_ref(), None);
                }
            }
            RetryOutcome::Refused(status) if there && done_already(action, status) => out.ahead += 1,
            // It had opens: its session is not for anything new, and it has to reclaim.
            RetryOutcome::Refused(status) if is_session_gone(status) && there => out.ahead += 1,
            RetryOutcome::Refused(status) if is_session_gone(status) => {}
            RetryOutcome::Refused(status) => out.wrong.push(format!("{}: {status:?}", what())),
        }
        Ok(settled)
    }

    /// A client keeps what it wrote until a COMMIT with the same verifier (RFC 8881 section 18.32.3).
    fn send_again(
        &mut self,
        peer: &mut Peer,
        unstable: Vec<Unstable>,
        unclean: bool,
        out: &mut Findings,
    ) -> Result<()> {
        let old = self.verifier.take();
        for (id, pieces) in unstable {
            // A repeated request may have renamed or removed it.
            let Some((path, _)) = self.model.paths().into_iter().find(|(_, at)| *at == id) else { continue };
            let commit = Action::Commit { path: path.clone() };
            let now = peer.act(&commit)?.verifier;
            if now.is_some() && now == old {
                if unclean {
                    out.wrong.push("the write verifier is the same after an unclean start".to_owned());
                }
                continue;
            }
            for (offset, data) in pieces {
                let write = Action::Write { path: path.clone(), offset, data, stable: false };
                self.insist(peer, &write, out)?;
            }
            self.insist(peer, &commit, out)?;
        }
        Ok(())
    }

    fn insist(&mut self, peer: &mut Peer, action: &Action, out: &mut Findings) -> Result<()> {
        match peer.act(action) {
            Ok(done) => {
                out.wrong.extend(self.acknowledge(peer, action, &done).err());
                Ok(())
            }
            Err(e @ Error::Nfs { .. }) => {
                out.wrong.push(format!("{} after the restart: {e}", describe(action)));
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// The second part: what NFS shows, change attributes, handles.
    pub fn verify(
        &mut self,
        before: &Model,
        tree: &Tree,
        top: Option<&FoundObject>,
        out: &mut Findings,
    ) -> Result<()> {
        out.objects += tree.len() as u64;
        let allowed: Vec<Model> =
            [Some(self.model.clone()), self.either.take()].into_iter().flatten().collect();
        match check::agree(&allowed, tree) {
            Ok(which) => self.model = allowed.into_iter().nth(which).unwrap_or_default(),
            Err(e) => out.wrong.push(format!("over NFS: {e}")),
        }
        out.wrong.extend(check::changes(before, &mut self.model, tree, top).into_iter().take(5));
        let Some(mut peer) = self.peer.take() else { return Ok(()) };
        match check::handles(&self.model, tree, &self.removed, &mut peer) {
            Ok(tried) => out.handles += tried,
            Err(e) => out.wrong.push(e.to_string()),
        }
        // What the server says is the state from now on.
        adopt(&mut self.model, tree);
        Ok(())
    }
}

/// Whether a status says that an action had been done before.
fn done_already(action: &Action, status: NfsStat) -> bool {
    match action {
        Action::Create { .. } | Action::Make { .. } | Action::Link { .. } => status == NfsStat::NFS4ERR_EXIST,
        Action::Rename { .. } | Action::Remove { .. } => status == NfsStat::NFS4ERR_NOENT,
        Action::Xattr { value: None, .. } => status == NfsStat::NFS4ERR_NOXATTR,
        _ => false,
    }
}

/// Whether a client has to start over before it can do anything new.
fn is_session_gone(status: NfsStat) -> bool {
    matches!(
        status,
        NfsStat::NFS4ERR_DEADSESSION
            | NfsStat::NFS4ERR_BADSESSION
            | NfsStat::NFS4ERR_STALE_CLIENTID
            | NfsStat::NFS4ERR_BAD_STATEID
            | NfsStat::NFS4ERR_GRACE
            | NfsStat::NFS4ERR_DELAY
    )
}

/// The path under which an action's object is afterwards.
fn path_of(action: &Action) -> Option<&Vec<u8>> {
    match action {
        Action::Create { path, .. }
        | Action::Write { path, .. }
        | Action::Commit { path }
        | Action::Set { path, .. }
        | Action::Close { path }
        | Action::Xattr { path, .. }
        | Action::Acl { path, .. }
        | Action::Make { path, .. } => Some(path),
        Action::Link { to, .. } | Action::Rename { to, .. } => Some(to),
        Action::Remove { .. } => None,
    }
}

/// What an action is, without its data.
pub fn describe(action: &Action) -> String {
    let path = |p: &[u8]| p.escape_ascii().to_string();
    match action {
        Action::Create { path: p, .. } => format!("create {}", path(p)),
        Action::Write { path: p, offset, data, stable } => {
            let how = if *stable { "stable" } else { "unstable" };
            format!("{how} write of {} bytes at {offset} to {}", data.len(), path(p))
        }
        Action::Commit { path: p } => format!("commit {}", path(p)),
        Action::Set { path: p, change } => format!("set {change:?} of {}", path(p)),
        Action::Close { path: p } => format!("close {}", path(p)),
        Action::Xattr { path: p, name, value } => {
            format!(
                "{} attribute {} of {}",
                if value.is_some() { "set" } else { "remove" },
                path(name),
                path(p)
            )
        }
        Action::Acl { path: p, .. } => format!("set the access list of {}", path(p)),
        Action::Make { path: p, node, .. } => format!("make {node:?} {}", path(p)),
        Action::Link { from, to } => format!("link {} to {}", path(to), path(from)),
        Action::Rename { from, to } => format!("rename {} to {}", path(from), path(to)),
        Action::Remove { path: p } => format!("remove {}", path(p)),
    }
}

/// Takes the server's answer on what was in doubt as the state from now on.
fn adopt(model: &mut Model, tree: &Tree) {
    for (path, id) in model.paths() {
        let (Some(object), Some(found)) = (model.object_mut(id), tree.get(&path)) else { continue };
        object.mtime = Some(found.mtime);
        (object.mode, object.mode_known) = (found.mode, true);
        if let Kind::File(contents) = &mut object.kind {
            contents.stable = found.bytes.clone();
            contents.pending.clear();
        }
        let Some(wire) = &found.wire else { continue };
        object.acl = wire.acl.clone().or(object.acl.take());
        if let Some(xattrs) = &wire.xattrs {
            object.xattrs = xattrs.clone();
        }
    }
}
