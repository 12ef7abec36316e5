//! The oracle: one file system, as it is for programs. It knows nothing of how the mount works.
//!
//! Each directory has the history of its names, as programs made them. What the server has of it must always be one moment of that, never
//! an earlier one than before. A directory of which a delegation was taken away, or in which a change was refused, is *torn*: of it only
//! the weaker promises are checked until all clients have synchronized.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use landfast_nfs::v4::NfsTime;

use super::objects::{Id, Kind, Object, Tag};
use super::server::{Effect, ROOT, Server, Who};

/// A thing's number.
pub(crate) type Oid = usize;

pub(crate) const TOP: Oid = 0;

#[derive(Debug, Clone, Default)]
pub(crate) struct Dir {
    pub(crate) names: BTreeMap<Bytes, Oid>,
    /// Its names at each moment, and since when.
    history: Vec<(Duration, BTreeMap<Bytes, Tag>)>,
    /// The last moment that a client's programs have made.
    last: BTreeMap<Who, usize>,
    /// The moment that the server was seen to have reached.
    reached: usize,
    /// All that programs have made in it.
    made: Vec<Oid>,
    /// New files were held back in it while it was nobody's own: their names come in the order in which they are closed.
    loose: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    Dir(Dir),
    /// Everything that it has ever been, the last one being what it is.
    File(Vec<Vec<u8>>),
    Link(Bytes),
}

#[derive(Debug, Clone)]
pub(crate) struct Thing {
    pub(crate) body: Body,
    pub(crate) tag: Tag,
    pub(crate) mode: u32,
    /// The server's number, as soon as it has one.
    pub(crate) id: Option<Id>,
    /// Who made it.
    pub(crate) maker: Who,
    /// Whose program has written to it last.
    pub(crate) writer: Who,
    /// The time that a program has set, if nothing was written since.
    pub(crate) mtime: Option<NfsTime>,
    /// A program was told that data of it is lost, or that it could not be truncated, which may have been done.
    pub(crate) lost: bool,
    /// Who has it open.
    pub(crate) opens: Vec<Who>,
    /// For directories: where it is.
    pub(crate) place: Option<(Oid, Bytes)>,
}

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) things: Vec<Thing>,
    ids: BTreeMap<Id, Oid>,
    torn: BTreeSet<Oid>,
    /// Whose programs have removed or replaced what.
    grants: BTreeSet<(Who, Tag)>,
    /// What was seen that must not be.
    pub(crate) fault: Option<String>,
    pub(crate) checks: u64,
    pub(crate) tears: u64,
    next_tag: u32,
    /// Who has new files open that are held back in a directory.
    pub(crate) unseen: Vec<(Who, Oid)>,
}

impl Oracle {
    pub(crate) fn new() -> Oracle {
        let mut oracle = Oracle::default();
        let top = Thing {
            body: Body::Dir(Dir { history: vec![(Duration::ZERO, BTreeMap::new())], ..Dir::default() }),
            tag: 0o55,
            mode: 0o755,
            id: Some(ROOT),
            maker: 0,
            writer: 0,
            mtime: None,
            lost: false,
            opens: Vec::new(),
            place: None,
        };
        oracle.things.push(top);
        oracle.ids.insert(ROOT, TOP);
        oracle
    }

    pub(crate) fn fails(&mut self, what: String) {
        if self.fault.is_none() {
            self.fault = Some(what);
        }
    }

    /// A tag for something new.
    pub(crate) fn tag(&mut self) -> Tag {
        self.next_tag += 1;
        (self.next_tag & 0o77) as Tag
    }

    pub(crate) fn thing(&self, oid: Oid) -> &Thing {
        &self.things[oid]
    }

    pub(crate) fn thing_mut(&mut self, oid: Oid) -> &mut Thing {
        &mut self.things[oid]
    }

    pub(crate) fn dir(&self, oid: Oid) -> Option<&Dir> {
        match &self.things[oid].body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    fn dir_mut(&mut self, oid: Oid) -> Option<&mut Dir> {
        match &mut self.things[oid].body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    pub(crate) fn is_dir(&self, oid: Oid) -> bool {
        self.dir(oid).is_some()
    }

    pub(crate) fn named(&self, dir: Oid, name: &Bytes) -> Option<Oid> {
        self.dir(dir)?.names.get(name).copied()
    }

    /// All directories that can be reached.
    pub(crate) fn dirs(&self) -> Vec<Oid> {
        let mut all = vec![TOP];
        let mut at = 0;
        while let Some(oid) = all.get(at).copied() {
            at += 1;
            let below = self.dir(oid).into_iter().flat_map(|d| d.names.values().copied());
            all.extend(below.filter(|oid| self.is_dir(*oid)));
        }
        all
    }

    /// The names that lead to a directory.
    pub(crate) fn path(&self, oid: Oid) -> Vec<Bytes> {
        let (mut at, mut path) = (oid, Vec::new());
        while let Some((above, name)) = &self.things[at].place {
            path.push(name.clone());
            at = *above;
        }
        path.reverse();
        path
    }

    /// Whether nothing certain is known of a directory, or of one above it.
    pub(crate) fn is_torn(&self, oid: Oid) -> bool {
        let mut at = oid;
        loop {
            if self.torn.contains(&at) {
                return true;
            }
            match &self.things[at].place {
                Some((above, _)) => at = *above,
                None => return false,
            }
        }
    }

    /// A directory of which the server has other names, also a torn one.
    pub(crate) fn differs(&self, server: &Server) -> Option<String> {
        let differs = |oid: &Oid| {
            let found = self.things[*oid].id.map(|id| server.tags(id));
            let ours = self.snapshot(*oid);
            (found.as_ref() != Some(&ours)).then(|| {
                format!("{:?} is {ours:?} for programs and {found:?} at the server", self.path(*oid))
            })
        };
        self.dirs().iter().find_map(differs)
    }

    /// Directories below one of which nothing certain is known.
    pub(crate) fn torn_below(&self, top: Oid) -> Vec<Oid> {
        self.torn.iter().copied().filter(|oid| self.is_below(*oid, top)).collect()
    }

    pub(crate) fn tear(&mut self, oid: Oid) {
        self.tears += u64::from(self.torn.insert(oid));
    }

    fn is_loose(&self, oid: Oid) -> bool {
        self.dir(oid).is_some_and(|dir| dir.loose)
    }

    pub(crate) fn loosen(&mut self, oid: Oid) {
        if let Some(dir) = self.dir_mut(oid) {
            dir.loose = true;
        }
    }

    pub(crate) fn tear_id(&mut self, id: Id) {
        if let Some(oid) = self.ids.get(&id).copied() {
            self.tear(oid);
        }
    }

    pub(crate) fn is_below(&self, oid: Oid, top: Oid) -> bool {
        let mut at = oid;
        loop {
            if at == top {
                return true;
            }
            match &self.things[at].place {
                Some((above, _)) => at = *above,
                None => return false,
            }
        }
    }

    pub(crate) fn add(&mut self, body: Body, (tag, mode): (Tag, u32), maker: Who) -> Oid {
        let thing = Thing {
            body,
            tag,
            mode,
            id: None,
            maker,
            writer: maker,
            mtime: None,
            lost: false,
            opens: Vec::new(),
            place: None,
        };
        self.things.push(thing);
        self.things.len() - 1
    }

    fn snapshot(&self, dir: Oid) -> BTreeMap<Bytes, Tag> {
        let names = self.dir(dir).into_iter().flat_map(|d| d.names.iter());
        names.map(|(name, oid)| (name.clone(), self.things[*oid].tag)).collect()
    }

    fn note(&mut self, dir: Oid, (who, now): (Who, Duration)) {
        let names = self.snapshot(dir);
        let Some(dir) = self.dir_mut(dir) else { return };
        if dir.history.last().is_none_or(|(_, last)| *last != names) {
            dir.history.push((now, names));
        }
        dir.last.insert(who, dir.history.len() - 1);
    }

    /// A name is given to something.
    pub(crate) fn name(&mut self, dir: Oid, name: &Bytes, oid: Oid, at: (Who, Duration)) {
        if let Some(names) = self.dir_mut(dir) {
            names.names.insert(name.clone(), oid);
            names.made.push(oid);
        }
        if self.is_dir(oid) {
            self.things[oid].place = Some((dir, name.clone()));
            if self.dir(oid).is_some_and(|d| d.history.is_empty()) {
                self.note(oid, at);
            }
        }
        self.note(dir, at);
    }

    pub(crate) fn unname(&mut self, dir: Oid, name: &Bytes, at: (Who, Duration)) {
        if let Some(names) = self.dir_mut(dir) {
            names.names.remove(name);
        }
        self.note(dir, at);
    }

    pub(crate) fn rename(
        &mut self,
        (from, old): (Oid, &Bytes),
        (to, new): (Oid, &Bytes),
        at: (Who, Duration),
    ) {
        let Some(oid) = self.named(from, old) else { return };
        if self.named(to, new) == Some(oid) {
            return;
        }
        if let Some(names) = self.dir_mut(from) {
            names.names.remove(old);
        }
        if let Some(names) = self.dir_mut(to) {
            names.names.insert(new.clone(), oid);
            names.made.push(oid);
        }
        if self.is_dir(oid) {
            self.things[oid].place = Some((to, new.clone()));
        }
        self.note(from, at);
        self.note(to, at);
    }

    /// What a file is.
    pub(crate) fn content(&self, oid: Oid) -> &[u8] {
        match &self.things[oid].body {
            Body::File(versions) => versions.last().map_or(&[][..], Vec::as_slice),
            _ => &[],
        }
    }

    pub(crate) fn write(&mut self, who: Who, oid: Oid, offset: usize, data: &[u8]) {
        let mut content = self.content(oid).to_vec();
        content.resize(content.len().max(offset + data.len()), 0);
        content[offset..offset + data.len()].copy_from_slice(data);
        self.has_written(who, oid, content);
    }

    /// A program has changed a file's data.
    pub(crate) fn has_written(&mut self, who: Who, oid: Oid, content: Vec<u8>) {
        self.things[oid].writer = who;
        self.is_now(oid, content);
    }

    pub(crate) fn is_now(&mut self, oid: Oid, content: Vec<u8>) {
        self.things[oid].mtime = None;
        if let Body::File(versions) = &mut self.things[oid].body {
            versions.push(content);
        }
    }

    /// Whether the server has other data for a file than its programs have given it.
    pub(crate) fn is_changed(&self, oid: Oid, server: &Server) -> bool {
        let object = self.things[oid].id.and_then(|id| server.objects.get(&id));
        matches!(object.map(|o| &o.kind), Some(Kind::File { data, .. }) if data != self.content(oid))
    }

    /// A program of this client has removed or replaced what it saw under a name.
    pub(crate) fn grant(&mut self, who: Who, tag: Tag) {
        self.grants.insert((who, tag));
    }

    pub(crate) fn is_granted(&self, tag: Tag) -> bool {
        self.grants.iter().any(|(_, t)| *t == tag)
    }

    /// Takes what has happened at the server. `lenient`: a file that was open has lost its name in two steps.
    pub(crate) fn take(&mut self, effects: Vec<Effect>, lenient: bool) {
        for effect in effects {
            match effect {
                Effect::Made { dir, id, tag } => self.made(dir, id, tag),
                Effect::Names { who, dir, after } => {
                    let oid = self.ids.get(&dir).copied().filter(|oid| !self.is_loose(*oid));
                    let Some(oid) = oid.filter(|oid| !self.is_torn(*oid)) else { continue };
                    self.checks += 1;
                    let path = self.path(oid);
                    let Some(names) = self.dir_mut(oid) else { continue };
                    let later = names.history.iter().enumerate().skip(names.reached);
                    match later.clone().find(|(_, (_, then))| *then == after) {
                        Some((moment, _)) => names.reached = moment,
                        None if lenient => {}
                        None => {
                            let history: Vec<_> = later.map(|(_, (_, names))| names.clone()).collect();
                            self.fails(format!(
                                "{path:?} has at the server, by client {who}, what it never was for programs: {after:?}, which is none of {history:?}"
                            ));
                        }
                    }
                }
                Effect::Gone { who, tag, is_dir, id } => {
                    self.checks += 1;
                    if !self.grants.contains(&(who, tag)) {
                        let what = if is_dir { "directory" } else { "file" };
                        self.fails(format!(
                            "client {who} has removed or replaced the {what} {id} (tag {tag}) at the server, which none of its programs ever did"
                        ));
                    }
                    self.ids.remove(&id);
                }
                Effect::Refused { .. } | Effect::Revoked { .. } => {}
            }
        }
    }

    fn made(&mut self, dir: Id, id: Id, tag: Tag) {
        let Some(above) = self.ids.get(&dir).copied() else { return };
        let made = self.dir(above).map(|d| d.made.clone()).unwrap_or_default();
        let found =
            made.into_iter().rev().find(|oid| self.things[*oid].tag == tag && self.things[*oid].id.is_none());
        if let Some(oid) = found {
            self.things[oid].id = Some(id);
            self.ids.insert(id, oid);
        }
    }

    /// Directories that a client may have changed without the server's knowing.
    fn unsent(&self, who: Who, server: &Server) -> Vec<Oid> {
        let differs = |oid: &Oid| {
            let thing = &self.things[*oid];
            let Some(id) = thing.id else { return thing.maker == who };
            let holder = server.delegations.get(&id).map(|d| d.who);
            let others = self.unseen.iter().any(|(w, dir)| dir == oid && *w != who);
            let own = self.unseen.iter().any(|(w, dir)| dir == oid && *w == who);
            let ours = (thing.maker == who || own) && holder.is_none() && !others;
            holder == Some(who) || ours && server.tags(id) != self.snapshot(*oid)
        };
        self.dirs().into_iter().filter(differs).collect()
    }

    pub(crate) fn tear_all_of(&mut self, who: Who, server: &Server) {
        for dir in self.unsent(who, server) {
            self.tear(dir);
        }
    }

    /// A client is dead. What the server has of its directories must be one moment, not before `old`; then it is what they are.
    pub(crate) fn died(&mut self, who: Who, server: &mut Server, (old, now): (Option<Duration>, Duration)) {
        // The server has what it has of the files that were open: nobody sends it again.
        let open: BTreeSet<Id> =
            self.things.iter().filter(|t| t.opens.contains(&who)).filter_map(|t| t.id).collect();
        server.writes_back(|id| open.contains(&id));
        let server = &*server;
        for dir in self.unsent(who, server) {
            let Some(id) = self.things[dir].id else { continue };
            if !self.is_torn(dir) && !self.is_loose(dir) {
                self.checks += 1;
                self.check_moment(dir, server, id, old);
            }
        }
        // What is torn stays so: somebody else may have it in mind, too.
        for dir in self.unsent(who, server).into_iter().filter(|dir| !self.is_torn(*dir)).collect::<Vec<_>>()
        {
            if let Some(id) = self.things[dir].id.filter(|id| server.objects.contains_key(id)) {
                self.adopt(dir, id, server, now);
            }
        }
        for oid in 0..self.things.len() {
            let open = self.things[oid].opens.contains(&who);
            self.things[oid].opens.retain(|w| *w != who);
            let object = self.things[oid].id.filter(|_| open).and_then(|id| server.objects.get(&id));
            if let Some(Kind::File { data, .. }) = object.map(|o| &o.kind)
                && self.content(oid) != data.as_slice()
            {
                self.is_now(oid, data.clone());
            }
        }
    }

    fn check_moment(&mut self, dir: Oid, server: &Server, id: Id, old: Option<Duration>) {
        let found = server.tags(id);
        let Some(names) = self.dir(dir) else { return };
        let least = old.map_or(0, |old| names.history.iter().rposition(|(at, _)| *at <= old).unwrap_or(0));
        let from = least.max(names.reached);
        if !names.history.iter().skip(from).any(|(_, then)| *then == found) {
            let (path, history) = (self.path(dir), names.history.clone());
            self.fails(format!(
                "after the death of its client {path:?} is {found:?}, which is no moment from number {from} on of {history:?}"
            ));
        }
        self.check_whole(dir, server, id);
    }

    /// Each file that the server has is what it was for the programs at some moment.
    fn check_whole(&mut self, dir: Oid, server: &Server, id: Id) {
        let below = server.objects.get(&id).and_then(Object::names).into_iter().flatten();
        let mut wrong = None;
        // What was removed while it was open is no program's affair any more.
        for (name, id) in below.filter(|(name, _)| !name.starts_with(b".nfs")) {
            let Some(oid) = self.ids.get(id) else { continue };
            let (Some(Kind::File { data, .. }), Body::File(versions)) =
                (server.objects.get(id).map(|o| &o.kind), &self.things[*oid].body)
            else {
                continue;
            };
            if !versions.contains(data) {
                wrong =
                    Some(format!("{:?}/{name:?} has content that it never had: {data:?}", self.path(dir)));
            }
        }
        if let Some(wrong) = wrong {
            self.fails(wrong);
        }
    }

    /// A directory is what the server has of it.
    fn adopt(&mut self, dir: Oid, id: Id, server: &Server, now: Duration) {
        let found: Vec<(Bytes, Id)> = match server.objects.get(&id).and_then(Object::names) {
            Some(names) => names.iter().map(|(n, id)| (n.clone(), *id)).collect(),
            None => Vec::new(),
        };
        // Its holder keeps what programs set of it, as it keeps its names.
        if let Some(object) = server.objects.get(&id) {
            (self.things[dir].mode, self.things[dir].mtime) = (object.mode, None);
        }
        if let Some(names) = self.dir_mut(dir) {
            names.names.clear();
        }
        for (name, id) in found.into_iter().filter(|(name, _)| !name.starts_with(b".nfs")) {
            let Some(object) = server.objects.get(&id) else { continue };
            let (oid, new) = match self.ids.get(&id) {
                Some(oid) => (*oid, false),
                None => {
                    let body = match &object.kind {
                        Kind::Dir(_) => Body::Dir(Dir::default()),
                        Kind::File { .. } => Body::File(vec![Vec::new()]),
                        Kind::Link(text) => Body::Link(text.clone()),
                    };
                    let oid = self.add(body, (object.tag, object.mode), usize::MAX);
                    self.things[oid].id = Some(id);
                    self.ids.insert(id, oid);
                    (oid, true)
                }
            };
            self.things[oid].mode = object.mode;
            self.things[oid].mtime = None;
            if let Kind::File { data, .. } = &object.kind
                && self.content(oid) != data.as_slice()
            {
                self.is_now(oid, data.clone());
            }
            if let Some(names) = self.dir_mut(dir) {
                names.names.insert(name.clone(), oid);
            }
            if self.is_dir(oid) {
                self.things[oid].place = Some((dir, name));
                if new {
                    self.adopt(oid, id, server, now);
                }
            }
        }
        let names = self.snapshot(dir);
        if let Some(d) = self.dir_mut(dir) {
            (d.history, d.reached, d.loose) = (vec![(now, names)], 0, false);
            d.last.clear();
        }
    }

    /// Everything is what the server has.
    pub(crate) fn adopt_all(&mut self, server: &Server, now: Duration) {
        self.torn.clear();
        self.things.iter_mut().for_each(|thing| thing.lost = false);
        let mut dirs = vec![(TOP, ROOT)];
        while let Some((dir, id)) = dirs.pop() {
            self.adopt(dir, id, server, now);
            let below = self.dir(dir).into_iter().flat_map(|d| d.names.values().copied());
            let below: Vec<(Oid, Id)> = below
                .filter(|oid| self.is_dir(*oid))
                .filter_map(|oid| Some((oid, self.things[oid].id?)))
                .collect();
            dirs.extend(below);
        }
    }

    /// A directory in which a change is late: one that is older than `old`.
    pub(crate) fn late(&self, server: &Server, old: Duration) -> Option<String> {
        for oid in self.dirs().into_iter().filter(|oid| !self.is_torn(*oid)) {
            let (Some(dir), Some(id)) = (self.dir(oid), self.things[oid].id) else { continue };
            if dir.loose {
                continue;
            }
            let least = dir.history.iter().rposition(|(at, _)| *at <= old).unwrap_or(0);
            let found = server.tags(id);
            if !dir.history.iter().skip(least).any(|(_, then)| *then == found) {
                return Some(format!(
                    "{:?} is {found:?} at the server, which is older than {old:?}: {:?}",
                    self.path(oid),
                    dir.history
                ));
            }
        }
        None
    }

    /// Whether the server has a directory as it is for programs, with the content of what is in it. `below`: and all directories below that
    /// nobody but `who` holds.
    pub(crate) fn is_stable(
        &self,
        dir: Oid,
        server: &Server,
        (who, below): (Option<Who>, bool),
    ) -> Result<(), String> {
        if self.is_torn(dir) || self.unseen.iter().any(|(w, d)| *d == dir && Some(*w) != who) {
            return Ok(());
        }
        let path = self.path(dir);
        if self.things[dir].id.is_none() && who.is_some_and(|who| self.things[dir].maker != who) {
            return Ok(());
        }
        let id = self.things[dir].id.ok_or_else(|| format!("{path:?} is not on the server"))?;
        let (found, ours) = (server.tags(id), self.snapshot(dir));
        // What others have done since may still be theirs: the server has given them no delegation, and they have not heard of that yet.
        let least = who.and_then(|who| Some(*self.dir(dir)?.last.get(&who).unwrap_or(&0)));
        let since = |least: usize| {
            let moments = self.dir(dir).into_iter().flat_map(|d| d.history.iter().skip(least));
            moments.map(|(_, then)| then).any(|then| *then == found)
        };
        if found != ours && !least.is_some_and(since) {
            return Err(format!("{path:?} is {ours:?} for programs and {found:?} at the server"));
        }
        for oid in self.dir(dir).into_iter().flat_map(|d| d.names.values().copied()) {
            match &self.things[oid].body {
                // New files that are still open in directories below are no affair of fsync(2).
                Body::Dir(_) if below && self.unseen.iter().any(|(_, dir)| *dir == oid) => {}
                Body::Dir(_) if below => {
                    let holder =
                        self.things[oid].id.and_then(|id| server.delegations.get(&id)).map(|d| d.who);
                    if who.is_none() || holder.is_none_or(|holder| Some(holder) == who) {
                        self.is_stable(oid, server, (who, true))?;
                    }
                }
                Body::File(_) if self.is_to_be_stable(oid, (who, below)) => {
                    self.is_file_stable(oid, server)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// fsync(2) of a directory is not about data of files that are still open; `landfast sync` is.
    fn is_to_be_stable(&self, oid: Oid, (who, below): (Option<Who>, bool)) -> bool {
        let opens = &self.things[oid].opens;
        match who {
            None => true,
            Some(who) if self.things[oid].writer != who => false,
            Some(_) if below => opens.is_empty(),
            Some(who) => opens.iter().all(|w| *w == who),
        }
    }

    /// Whether the server has a file's data on its disk.
    pub(crate) fn is_file_stable(&self, oid: Oid, server: &Server) -> Result<(), String> {
        let thing = &self.things[oid];
        let object = thing.id.and_then(|id| server.objects.get(&id));
        let Some(Kind::File { stable, .. }) = object.map(|o| &o.kind) else {
            return Err(format!("the file with tag {} is not on the server", thing.tag));
        };
        if stable != self.content(oid) {
            return Err(format!(
                "the file with tag {} has {:?} on the server's disk and {:?} for programs",
                thing.tag,
                stable,
                self.content(oid)
            ));
        }
        let attributes = object.map(|o| (o.mode, o.mtime));
        if let Some((mode, mtime)) = attributes {
            if mode != thing.mode {
                return Err(format!(
                    "the file with tag {} has mode {mode:o}, not {:o}",
                    thing.tag, thing.mode
                ));
            }
            if thing.mtime.is_some_and(|t| t != mtime) {
                return Err(format!(
                    "the file with tag {} has the time {mtime:?}, not {:?}",
                    thing.tag, thing.mtime
                ));
            }
        }
        Ok(())
    }

    /// Whether a directory and its names are on the server's disk, and all above.
    pub(crate) fn is_reachable(&self, oid: Oid, dir: Oid, server: &Server) -> Result<(), String> {
        let (mut at, mut above) = (oid, dir);
        loop {
            let tag = self.things[at].tag;
            let id = self.things[above].id.ok_or("a directory above it is not on the server")?;
            if !server.tags(id).values().any(|t| *t == tag) {
                return Err(format!("it has no name in {:?} at the server", self.path(above)));
            }
            match &self.things[above].place {
                Some((next, _)) => (at, above) = (above, *next),
                None => return Ok(()),
            }
        }
    }
}
