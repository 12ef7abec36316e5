//! Changes by others: an administrator who removed, moved or made something in the exported directory, while it was served or
//! since.
//!
//! No crash leaves such a state, so recovery can recognise it: an object is missing that was certainly on disk, an entry
//! names something that the log never knew there, or a directory is at a place that the log does not know. Recovery
//! resolves each case so that nothing is deleted and no acknowledged change vanishes silently:
//! - what exists locally stays where it is, or is kept in `lost+found`;
//! - what was removed stays removed;
//! - what belongs into a removed directory goes to `lost+found`.

use bytes::Bytes;

use super::{Error, Run, io, staging_name, surprise};
use crate::faults::{Bug, bug};
use crate::limits::{DEPTH_MAX, NAME_BYTES_MAX, RECOVERY_LINES_MAX};
use crate::record::ObjId;
use crate::recover::tree::Tree;

impl<T: Tree> Run<'_, T> {
    /// Notes a case that no crash leaves and its resolution; if strict, stops there.
    pub(super) fn concede(
        &mut self,
        what: &'static str,
        obj: &ObjId,
        at: Option<(&ObjId, &Bytes)>,
        done: &str,
    ) -> Result<(), Error> {
        if self.strict || bug(Bug::StrangerStops) {
            return Err(surprise(what, obj, at.map(|(_, name)| name)));
        }
        if self.local.len() >= RECOVERY_LINES_MAX {
            self.local_more += 1;
            return Ok(());
        }
        let path = match at {
            Some((dir, name)) => self.path_of_entry(dir, name),
            None => self.path_of(obj),
        };
        self.local.push(format!("{path}: {what}; {done}"));
        Ok(())
    }

    /// Reports which objects are gone that a crash cannot have lost.
    pub(super) fn concede_the_gone(&mut self) -> Result<(), Error> {
        let gone = |id: &ObjId| !self.now.contains_key(id);
        let mut lost: Vec<_> =
            self.sorted(|id, _| gone(id)).into_iter().map(|(id, plan)| (id.clone(), plan)).collect();
        // Directories first: their contents are not worth a line each.
        lost.sort_by_key(|(_, plan)| !plan.is_dir);
        for (id, plan) in lost {
            let what = match (&plan.birth, plan.relies_on_disk) {
                (None, _) => "an object older than the log is missing",
                (Some(_), true) => "a file is missing whose data the disk had confirmed",
                (Some(_), false) => "an object is missing that the disk had",
            };
            self.concede(what, &id, None, "it stays removed, with what the log has about it")?;
        }
        Ok(())
    }

    pub(super) fn located(&mut self, error: Error) -> Error {
        match error {
            Error::Io { what, obj, path: None, why } => {
                let path = Some(self.path_of(&obj));
                Error::Io { what, obj, path, why }
            }
            Error::Surprise { what, obj, path: None, name } => {
                let path = Some(self.path_of(&obj));
                Error::Surprise { what, obj, path, name }
            }
            other => other,
        }
    }

    /// The path of an object below the volume's root: where it is, or where the log saw it last.
    pub(super) fn path_of(&mut self, obj: &ObjId) -> String {
        let now = self.now.get(obj).map_or_else(|| obj.clone(), |now| now.id.clone());
        if let Some(path) = self.place_on_disk(&now) {
            return if path.is_empty() { ".".to_owned() } else { path };
        }
        let (mut parts, mut obj) = (Vec::new(), obj.clone());
        for _ in 0..DEPTH_MAX {
            let logged = self.logged(&obj).cloned().unwrap_or_else(|| obj.clone());
            let place = self.fold.objects.get(&logged).and_then(|plan| plan.place.clone());
            let place = place.or_else(|| self.places.get(&logged).cloned());
            let Some((dir, name)) = place else { break };
            parts.push(shown(&name));
            let now = self.now.get(&dir).map_or_else(|| dir.clone(), |now| now.id.clone());
            match self.place_on_disk(&now) {
                Some(path) => {
                    if !path.is_empty() {
                        parts.push(path);
                    }
                    parts.reverse();
                    return parts.join("/");
                }
                None => obj = dir,
            }
        }
        // The log knows no name above this: it may be the root of a subtree, or the rest of the log has no more.
        let number = obj.kh.ino().map_or_else(|| obj.to_string(), |ino| format!("inode {ino}"));
        parts.push(format!("(what the log has no name of, {number})"));
        parts.reverse();
        parts.join("/")
    }

    /// The path of a directory, unless it is a place that means nothing to people.
    fn place_on_disk(&mut self, dir: &ObjId) -> Option<String> {
        let path = self.tree.path(dir).ok()??;
        let stage = self.tree.stage();
        let stage = self.tree.path(&stage).ok()??;
        (!path.starts_with(&stage)).then_some(path)
    }

    fn path_of_entry(&mut self, dir: &ObjId, name: &Bytes) -> String {
        match self.path_of(dir) {
            dir if dir == "." => shown(name),
            dir => format!("{dir}/{}", shown(name)),
        }
    }

    /// Moves an object to `lost+found`, under its identity and its former name.
    pub(super) fn keep_in_lost_found(
        &mut self,
        why: &str,
        (dir, name): (&ObjId, &Bytes),
        found: &ObjId,
        called: &[u8],
    ) -> Result<String, Error> {
        let lost = self.tree.lost_found();
        let mut n = 0u32;
        loop {
            let mut to = staging_name(why, found).to_vec();
            if n > 0 {
                to.extend_from_slice(format!("-{n}").as_bytes());
            }
            to.push(b'-');
            to.extend_from_slice(called);
            to.truncate(NAME_BYTES_MAX);
            if self.tree.lookup(&lost, &to).map_err(io("looking into lost+found", found))?.is_none() {
                self.tree
                    .rename((dir, name), (&lost, &to))
                    .map_err(io("moving an object to lost+found", found))?;
                return Ok(format!(".landfast/lost+found/{}", shown(&to)));
            }
            n += 1;
        }
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_debug().to_string()
}
