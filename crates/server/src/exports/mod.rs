//! The export table: which volumes are served, under which names, to whom.
//!
//! - [`pseudo`]: the names;
//! - [`unavailable`]: exports that cannot be served now;
//! - [`caller`], [`hosts`], [`rules`]: who calls, which hosts a rule names, who may use an export and as which user;
//! - `name_cache`: looks up names of addresses and groups of users in the background;
//! - `tx`: the transaction of one request, which may span several volumes.
//!
//! An [`Exports`] never changes: a reload replaces the server's table by a new one. Each request works with the table
//! that it began with. An [`Export`] that a reload keeps has the same volume and the same [`Export::id`] in both.
//!
//! All protocols do the following in this order:
//! 1. [`Exports::object`] turns a wire handle into an export and an object. A handle names its volume and is signed
//!    with that volume's key, so it opens no other.
//! 2. [`Export::access`] says what the caller may do there and as which user. No operation runs without the [`Access`]
//!    of its caller.

pub(crate) mod caller;
pub mod hosts;
pub(crate) mod name_cache;
mod number;
pub(crate) mod pseudo;
pub mod rules;
mod tx;
pub(crate) mod unavailable;

use crate::state::notes::{LogId, Stamped};
use bytes::Bytes;
pub(crate) use caller::{Access, Accesses, Caller, Refused};
use hosts::Asked;
use landfast_volume::{Durability, Error, Node, Receipt, RecoveryReport, Volume};
use number::{number_from, number_of};
use pseudo::{Pseudo, components};
use rules::{Found, Rules};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
pub(crate) use tx::{Receipts, Txs};
use unavailable::{Unavailable, UnavailableExport};

/// What clients see of an export's objects beside content and attributes. It is kept and applied in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Access control lists: the attribute `acl`, and NFSACL for NFSv3.
    pub acls: bool,
    /// Extended attributes (RFC 8276).
    pub xattrs: bool,
    pub delegations: Delegate,
    /// Clients are given delegations for writing directories, too (`docs/internals/write-directory-delegations.md`).
    pub write_delegations: bool,
}

/// Which delegations of an export's files clients are given (RFC 8881 section 10.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Delegate {
    #[default]
    Off,
    Read,
    /// For reading and writing.
    Write,
    /// The holder of one for writing answers for the file's times, too (RFC 9754).
    Times,
}

impl Delegate {
    pub const ALL: [(&'static str, Delegate); 4] = [
        ("off", Delegate::Off),
        ("read", Delegate::Read),
        ("write", Delegate::Write),
        ("times", Delegate::Times),
    ];

    /// Whether holders of delegations set their files' times in this minor version of NFSv4 (RFC 9754).
    pub fn sets_times(self, minor: u32) -> bool {
        self == Delegate::Times && minor >= 2
    }

    /// As the configuration file has it.
    pub fn name(self) -> &'static str {
        Delegate::ALL.iter().find(|(_, level)| *level == self).map_or("", |(name, _)| name)
    }
}

impl Default for Features {
    fn default() -> Features {
        Features { acls: true, xattrs: true, delegations: Delegate::Off, write_delegations: false }
    }
}

/// A volume and how it is served.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) volume: Volume,
    pub(crate) root: Node,
    pub(crate) path: PathBuf,
    pub(crate) rules: Rules,
    /// Take users' groups from this system instead of from the request.
    pub(crate) manage_gids: bool,
    pub(crate) features: Features,
    /// The components of its name in the pseudo root; empty when it is the root itself.
    pub(crate) name: Vec<Bytes>,
    pub(crate) place: usize,
    /// The fileid of the directory entry on which its root is mounted; `None` when it is the root of the server.
    pub(crate) mounted_on: Option<u64>,
}

impl Export {
    /// Identifies the volume: exports with the same id are the same volume.
    pub(crate) fn id(&self) -> LogId {
        self.volume.id()
    }

    /// Writes notes that belong to no effect into its log.
    pub(crate) fn write_down(&self, notes: &[Stamped]) -> Receipt {
        let mut tx = self.volume.tx();
        notes.iter().for_each(|note| tx.note(note.to_bytes()));
        tx.finish()
    }

    pub(crate) fn number(&self) -> u32 {
        number_from(&self.volume.id())
    }

    /// What the caller may do here; an error if it may do nothing.
    pub(crate) fn access(&self, caller: &Caller) -> Result<Access, Refused> {
        self.rules.access(caller, self.manage_gids)
    }

    /// Whether the caller may use AUTH_SYS and AUTH_NONE here, in this order.
    pub(crate) fn flavors(&self, caller: &Caller) -> (bool, bool) {
        match self.rules.find(caller.addr, caller.names.as_deref()) {
            Found::Rule(rule) => (rule.sys, rule.none),
            Found::None | Found::NeedsNames => (false, false),
        }
    }

    /// Whether each modifying operation waits for the disk.
    pub(crate) fn synced(&self) -> bool {
        self.volume.durability() == Durability::Sync
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) export: Arc<Export>,
    pub(crate) node: Node,
    /// The handle is one by path: see [`pseudo`].
    pub(crate) by_path: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TableError {
    /// Two names are equal, or one lies below another.
    Names,
    Number(PathBuf, PathBuf),
}

/// An opened volume and how to serve it.
#[derive(Debug, Clone)]
pub struct Served {
    pub volume: Volume,
    /// What recovery found; empty for a volume that is served already.
    pub recovery: RecoveryReport,
    pub path: PathBuf,
    /// Its name in the pseudo root; `/` when it is the only one and the root itself.
    pub name: PathBuf,
    pub rules: Rules,
    /// Take users' groups from this system instead of from the request.
    pub manage_gids: bool,
    pub features: Features,
}

impl Served {
    /// The same, where its volume cannot be served.
    pub(crate) fn unavailable(self, why: &dyn std::fmt::Display) -> Unavailable {
        Unavailable {
            path: self.path,
            name: self.name,
            rules: self.rules,
            manage_gids: self.manage_gids,
            log_bytes: self.volume.stats().log.map(|log| log.capacity),
            why: why.to_string(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Exports {
    all: Vec<Arc<Export>>,
    /// The places of the exports by the numbers of their volumes, which stand in handles.
    by_number: HashMap<u32, usize>,
    /// The synthetic directories above the exports.
    pub(crate) pseudo: Pseudo,
    /// The change attribute of all synthetic directories: the time at which the table was made.
    pub(crate) change: u64,
    /// Host names, patterns and netgroups of all rules.
    pub(crate) asked: Arc<Asked>,
    /// Numbers of volumes that this server no longer serves.
    former: Vec<u32>,
    /// Exports that cannot be served now. Their indexes follow those of the served ones.
    down: Vec<Arc<UnavailableExport>>,
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
}

impl Exports {
    /// Builds the table. A single export with the name `/` is the root; it can also be reached under its own path.
    /// Errors: Names that clash, or two volumes with the same number in their handles.
    pub(crate) fn new(
        served: Vec<Served>,
        unavailable: Vec<Unavailable>,
        server: [u8; 16],
        former: Vec<u32>,
    ) -> Result<Exports, TableError> {
        let down: Vec<_> = unavailable.into_iter().map(|of| Arc::new(UnavailableExport::new(of))).collect();
        let names = served.iter().map(|s| components(&s.name));
        let names: Vec<_> = names.chain(down.iter().map(|d| d.name.clone())).collect();
        let pseudo = match (&served[..], &names[..]) {
            ([one], [name]) if name.is_empty() => Pseudo::whole(&components(&one.path), server),
            _ => Pseudo::named(&names, server).map_err(|_| TableError::Names)?,
        };
        let mut all: Vec<Arc<Export>> = Vec::with_capacity(served.len());
        let mut by_number = HashMap::with_capacity(served.len());
        let mut asked = Asked::new();
        for (place, (s, name)) in served.into_iter().zip(names).enumerate() {
            asked.extend(s.rules.named().cloned());
            let export = Export {
                root: s.volume.root(),
                volume: s.volume,
                path: s.path,
                rules: s.rules,
                manage_gids: s.manage_gids,
                features: s.features,
                name,
                place,
                mounted_on: pseudo.mounted_on(place),
            };
            if let Some(other) = by_number.insert(export.number(), place) {
                return Err(TableError::Number(all[other].path.clone(), export.path));
            }
            all.push(Arc::new(export));
        }
        asked.extend(down.iter().flat_map(|d| d.of.rules.named()).cloned());
        let former = former.into_iter().filter(|n| !by_number.contains_key(n)).collect();
        Ok(Exports { all, by_number, pseudo, change: now_ns(), asked: Arc::new(asked), former, down })
    }

    /// Numbers of all volumes that were served so far.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let down = self.down.iter().filter_map(|d| d.number());
        self.all.iter().map(|e| e.number()).chain(down).chain(self.former.iter().copied()).collect()
    }

    pub(crate) fn needs_names(&self, addr: IpAddr) -> bool {
        !self.asked.is_empty() && self.rules().any(|rules| rules.find(addr, None) == Found::NeedsNames)
    }

    pub(crate) fn needs_groups(&self) -> bool {
        self.all.iter().any(|e| e.manage_gids)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.all.iter()
    }

    /// The rules of every export, including those that cannot be served now: their clients are waiting for them.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rules> {
        self.all.iter().map(|e| &e.rules).chain(self.down.iter().map(|d| &d.of.rules))
    }

    /// Whether the rules of every export treat this caller as they would treat it at address `from`. False where only a
    /// name lookup could tell.
    pub(crate) fn same_access_from(&self, caller: &Caller, from: IpAddr) -> bool {
        if from == caller.addr {
            return true;
        }
        let elsewhere = Caller { addr: from, names: None, ..caller.clone() };
        self.all.iter().all(|export| match (export.access(caller), export.access(&elsewhere)) {
            (Err(Refused::NotYet), _) | (_, Err(Refused::NotYet)) => false,
            (here, elsewhere) => here == elsewhere,
        })
    }

    pub(crate) fn down(&self) -> impl Iterator<Item = &Arc<UnavailableExport>> {
        self.down.iter()
    }

    pub(crate) fn down_at(&self, place: usize) -> Option<&Arc<UnavailableExport>> {
        self.down.get(place.checked_sub(self.all.len())?)
    }

    /// Finds an export that cannot be served now by its name in the pseudo root or by its path.
    pub(crate) fn down_by_name(&self, name: &[u8]) -> Option<&Arc<UnavailableExport>> {
        use std::os::unix::ffi::OsStrExt;
        let parts = components(Path::new(std::ffi::OsStr::from_bytes(name)));
        self.down
            .iter()
            .find(|d| d.name == parts)
            .or_else(|| self.down.iter().find(|d| components(&d.of.path) == parts))
    }

    /// The export that is the root of the server; `None` when the root is synthetic.
    pub(crate) fn root(&self) -> Option<&Arc<Export>> {
        self.all.first().filter(|e| e.name.is_empty())
    }

    pub(crate) fn at(&self, place: usize) -> Option<&Arc<Export>> {
        self.all.get(place)
    }

    /// The export whose volume this wire handle claims to come from. The signature is not checked.
    pub(crate) fn of_handle(&self, handle: &[u8]) -> Option<&Arc<Export>> {
        let handle = self.pseudo.strip(handle).unwrap_or(handle);
        let number = number_of(handle)?;
        self.all.get(*self.by_number.get(&number)?)
    }

    /// The object of a wire handle.
    ///
    /// # Errors
    /// - [`Error::BadHandle`]: no volume of this server made it.
    /// - [`Error::Stale`]: the object is gone, or a reload has removed its volume.
    /// - [`Error::Busy`]: its export cannot be served now, or that is possible.
    pub(crate) fn object(&self, handle: &[u8]) -> Result<Object, Error> {
        let (inner, by_path) = match self.pseudo.strip(handle) {
            Some(inner) => (inner, true),
            None => (handle, false),
        };
        let Some(export) = self.of_handle(inner) else {
            let may_come_back = |n| self.down.iter().any(|d| d.may_have(n));
            if number_of(inner).is_some_and(may_come_back) {
                return Err(Error::Busy);
            }
            let former = number_of(inner).is_some_and(|n| self.former.contains(&n));
            return Err(if former { Error::Stale } else { Error::BadHandle });
        };
        Ok(Object { export: export.clone(), node: export.volume.resolve(inner)?, by_path })
    }

    /// Finds an export by its name in the pseudo root or by its path: a client of MOUNT may use either.
    pub(crate) fn by_name(&self, name: &[u8]) -> Option<&Arc<Export>> {
        use std::os::unix::ffi::OsStrExt;
        let parts = components(Path::new(std::ffi::OsStr::from_bytes(name)));
        self.all
            .iter()
            .find(|e| e.name == parts)
            .or_else(|| self.all.iter().find(|e| components(&e.path) == parts))
    }

    /// The logs that take notes.
    pub(crate) fn logs(&self) -> Vec<LogId> {
        self.all.iter().filter(|e| e.volume.keeps_notes()).map(|e| e.id()).collect()
    }

    /// An export whose log takes the notes that belong to no export; `None` if no volume keeps notes.
    pub(crate) fn keeper(&self) -> Option<&Arc<Export>> {
        let keeps = || self.all.iter().filter(|e| e.volume.keeps_notes());
        keeps().find(|e| e.volume.failed().is_none()).or_else(|| keeps().next())
    }

    /// What an answer that rests on these removals has to write ([`crate::state::removals`]). If all logs have failed they cannot be kept, and reads go on
    /// without. Called without the state's lock.
    pub(crate) fn relied_on(&self, unsettled: Vec<Stamped>) -> Vec<Stamped> {
        let kept = unsettled.is_empty() || self.keeper().is_some_and(|e| e.volume.failed().is_none());
        if kept { unsettled } else { Vec::new() }
    }

    /// Whether any export gives delegations, of files or of directories.
    pub(crate) fn delegate(&self) -> bool {
        self.iter().any(|e| e.features.delegations > Delegate::Off || e.features.write_delegations)
    }

    /// Whether every volume keeps notes, those that cannot be served now included. Then no effect survives a crash without its reply.
    pub(crate) fn all_keep_notes(&self) -> bool {
        let down = || self.down.iter().all(|d| d.of.log_bytes.is_some());
        self.all.iter().all(|e| e.volume.keeps_notes()) && down()
    }

    /// Bytes of the smallest log, those of exports that cannot be served now included; `None` without one.
    pub(crate) fn smallest_log(&self) -> Option<u64> {
        let served = self.all.iter().filter_map(|e| e.volume.stats().log.map(|log| log.capacity));
        served.chain(self.down.iter().filter_map(|d| d.of.log_bytes)).min()
    }
}
