//! Reads what the server has at the names of the model, and behind the handles from before the cut.

use crate::blocking::nfs::{Attr, Fh, Nfs, patiently};
use crate::error::{Error, Meaning, Result};
use crate::judge::{FileKind, Handle, Observed, ObservedEntry, ObservedObject, plausible};
use crate::limits::{ENTRIES_MAX, FILE_BYTES_MAX};
use crate::model::{BASE, Id, Model, Node, Object};
use crate::op::unhex;
use crate::rounds::{self, Name, Round, XATTR_NEW, XATTR_OLD};
use std::collections::{BTreeMap, BTreeSet, HashMap};

type Listing = BTreeMap<String, (Fh, Attr)>;

/// Remembers what it has read, so that two models of one directory cost little more than one.
pub struct Observer<'a> {
    nfs: &'a mut dyn Nfs,
    base: Fh,
    listings: HashMap<Fh, Listing>,
    objects: HashMap<Fh, ObservedObject>,
    handles: HashMap<Fh, Option<Attr>>,
}

/// `None` if the object does not exist.
fn if_exists<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(e) if matches!(e.meaning(), Some(Meaning::NoEntry | Meaning::Stale)) => Ok(None),
        Err(e) => Err(e),
    }
}

impl<'a> Observer<'a> {
    pub fn new(nfs: &'a mut dyn Nfs, base: Fh) -> Observer<'a> {
        let (listings, objects, handles) = (HashMap::new(), HashMap::new(), HashMap::new());
        Observer { nfs, base, listings, objects, handles }
    }

    /// Reads everything that the model knows.
    pub fn observe(&mut self, model: &Model) -> Result<Observed> {
        let mut seen = Observed::default();
        self.walk(model, vec![(BASE, self.base.clone())], &mut seen)?;
        // What a lost directory held may still be found by its own handle.
        for (id, object) in model.objects() {
            if !seen.objects.contains_key(&id)
                && let Some(at) = self.locate(model, id, None, &mut seen)?
                && matches!(object.what, Node::Dir { .. })
            {
                self.walk(model, vec![(id, at)], &mut seen)?;
            }
        }
        Ok(seen)
    }

    /// The directory at these names below the one of the URL.
    pub fn below(&mut self, names: &[String]) -> Result<Option<Fh>> {
        let mut at = self.base.clone();
        for name in names {
            match if_exists(patiently(|| self.nfs.lookup(&at, name)))? {
                Some((fh, _)) => at = fh,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Reads the names of a round.
    pub fn round(&mut self, dir: &Fh, round: &Round) -> Result<rounds::ObservedNames> {
        let mut found = rounds::ObservedNames::default();
        let mut inside = None;
        for name in Name::ALL.into_iter().filter(|name| round.meeting.uses(*name)) {
            let dir = if name == Name::Inner { inside.clone() } else { Some(dir.clone()) };
            let Some(dir) = dir else { continue };
            let Some((fh, _)) = if_exists(patiently(|| self.nfs.lookup(&dir, &name.text(round.no))))? else {
                continue;
            };
            let Some(object) = self.object(&fh, None)? else { continue };
            let mut xattrs = BTreeSet::new();
            if object.kind == FileKind::File && round.looks_at_xattrs() {
                for name in [XATTR_NEW, XATTR_OLD] {
                    if if_exists(patiently(|| self.nfs.xattr(&fh, name)))?.flatten().is_some() {
                        xattrs.insert(name);
                    }
                }
            }
            if name == Name::D {
                inside = Some(fh);
            }
            let seen = rounds::ObservedFile {
                dir: object.kind == FileKind::Dir,
                symlink: object.kind == FileKind::Symlink,
                fileid: object.fileid,
                mode: object.mode,
                bytes: object.bytes,
                xattrs,
            };
            found.0.insert(name, seen);
        }
        Ok(found)
    }

    fn walk(&mut self, model: &Model, mut todo: Vec<(Id, Fh)>, seen: &mut Observed) -> Result<()> {
        while let Some((id, fh)) = todo.pop() {
            let Some(Object { what: Node::Dir { entries, shared }, .. }) = model.object(id) else { continue };
            let listing = if *shared {
                // The other names belong to other clients.
                self.some(&fh, entries.keys())?
            } else {
                self.listing(&fh)?
            };
            let entry = |(fh, a): &(Fh, Attr)| (ObservedEntry { kind: a.kind, fileid: a.fileid }, fh.clone());
            for (name, fact) in entries {
                let Some(child) = fact.value else { continue };
                if seen.objects.contains_key(&child) {
                    continue;
                }
                let named = listing.get(name).map(entry).filter(|(e, _)| plausible(model, child, e));
                if let Some(at) = self.locate(model, child, named.map(|(_, fh)| fh), seen)?
                    && matches!(model.object(child).map(|o| &o.what), Some(Node::Dir { .. }))
                {
                    todo.push((child, at));
                }
            }
            let entries = listing.iter().map(|(n, e)| (n.clone(), entry(e).0)).collect();
            // The directory itself was found by its parent; the one of the URL by the client.
            match seen.objects.get_mut(&id) {
                Some(found) => found.entries = entries,
                None => {
                    if let Some(mut found) = self.object(&fh, model.object(id))? {
                        found.entries = entries;
                        seen.objects.insert(id, found);
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds an object by the handle at its name, or by its own handle from before the cut. Returns the handle that works.
    fn locate(
        &mut self,
        model: &Model,
        id: Id,
        named: Option<Fh>,
        seen: &mut Observed,
    ) -> Result<Option<Fh>> {
        let Some(object) = model.object(id) else { return Ok(None) };
        let before = object.fh.as_deref().and_then(unhex);
        let leads = match &before {
            Some(fh) => {
                let attr = self.handle(fh)?;
                seen.handles.insert(id, attr.as_ref().map_or(Handle::Stale, |a| Handle::Leads(a.fileid)));
                attr.filter(|a| {
                    let entry = ObservedEntry { kind: a.kind, fileid: a.fileid };
                    Some(a.fileid) == object.fileid && plausible(model, id, &entry)
                })
            }
            None => None,
        };
        let Some(at) = named.or(before.filter(|_| leads.is_some())) else { return Ok(None) };
        match self.object(&at, Some(object))? {
            Some(found) => {
                seen.objects.insert(id, found);
                Ok(Some(at))
            }
            None => Ok(None),
        }
    }

    fn handle(&mut self, fh: &Fh) -> Result<Option<Attr>> {
        if let Some(known) = self.handles.get(fh) {
            return Ok(known.clone());
        }
        let attr = if_exists(patiently(|| self.nfs.getattr(fh)))?;
        self.handles.insert(fh.clone(), attr.clone());
        Ok(attr)
    }

    fn listing(&mut self, dir: &Fh) -> Result<Listing> {
        if let Some(known) = self.listings.get(dir) {
            return Ok(known.clone());
        }
        let names = if_exists(patiently(|| self.nfs.names(dir, ENTRIES_MAX)))?.unwrap_or_default();
        let listing = self.some(dir, names.iter())?;
        self.listings.insert(dir.clone(), listing.clone());
        Ok(listing)
    }

    fn some<'n>(&mut self, dir: &Fh, names: impl Iterator<Item = &'n String>) -> Result<Listing> {
        let mut listing = Listing::new();
        for name in names {
            if let Some(found) = if_exists(patiently(|| self.nfs.lookup(dir, name)))? {
                listing.insert(name.clone(), found);
            }
        }
        Ok(listing)
    }

    fn object(&mut self, fh: &Fh, object: Option<&Object>) -> Result<Option<ObservedObject>> {
        if !self.objects.contains_key(fh) {
            let Some(seen) = self.look(fh)? else { return Ok(None) };
            self.objects.insert(fh.clone(), seen);
        }
        let Some(mut seen) = self.objects.get(fh).cloned() else { return Ok(None) };
        for name in object.into_iter().flat_map(|o| o.xattrs.keys()) {
            if !seen.xattrs.contains_key(name) {
                let value = if_exists(patiently(|| self.nfs.xattr(fh, name)))?.flatten();
                seen.xattrs.insert(name.clone(), value);
            }
        }
        self.objects.insert(fh.clone(), seen.clone());
        Ok(Some(seen))
    }

    fn look(&mut self, fh: &Fh) -> Result<Option<ObservedObject>> {
        let Some(attr) = if_exists(patiently(|| self.nfs.getattr(fh)))? else { return Ok(None) };
        let mut seen = ObservedObject {
            kind: attr.kind,
            fileid: attr.fileid,
            mode: attr.mode,
            mtime: attr.mtime,
            bytes: Vec::new(),
            text: String::new(),
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
        };
        match attr.kind {
            FileKind::File => seen.bytes = self.read(fh, attr.size)?,
            FileKind::Symlink => {
                seen.text = if_exists(patiently(|| self.nfs.readlink(fh)))?.unwrap_or_default();
            }
            FileKind::Dir | FileKind::Other => {}
        }
        Ok(Some(seen))
    }

    fn read(&mut self, fh: &Fh, size: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // One byte more than our largest file is enough to see that a file is too long.
        let end = size.min(FILE_BYTES_MAX + 1);
        while (bytes.len() as u64) < end {
            let offset = bytes.len() as u64;
            let Some((data, eof)) =
                if_exists(patiently(|| self.nfs.read(fh, offset, (end - offset) as u32)))?
            else {
                break;
            };
            if data.is_empty() && !eof {
                return Err(Error::Nonsense("READ gives nothing before the end of the file".into()));
            }
            bytes.extend(data);
            if eof {
                break;
            }
        }
        Ok(bytes)
    }
}
