//! `find -delete`: removes what is queued, the deepest objects first, many in one request. It uses handles, so that
//! nobody can redirect it by putting something else in a directory's place.

use super::object::Object;
use crate::commands::operand::Place;
use crate::commands::tool::Tool;
use crate::commands::{message, quote};
use landfast_client::fs::{ItemError, Meta, ToRemove};
use landfast_nfs::v4::FileHandle;
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Clone)]
pub struct Location {
    /// The directory that holds it; `None`: it is a starting point.
    pub parent: Option<FileHandle>,
    pub place: Place,
    pub dot: bool,
    /// The index of its directory among the search's levels.
    pub level: Option<usize>,
}

/// An object that waits for its own deletion, or for one before it.
#[derive(Debug)]
pub struct Queued {
    path: Vec<u8>,
    start: Vec<u8>,
    depth: usize,
    meta: Meta,
    text: Option<Vec<u8>>,
    /// It is a directory in which nothing was found.
    pub empty_dir: bool,
    pub at: Location,
    pub asked: bool,
}

impl Queued {
    pub fn new(object: &Object<'_>, at: Location) -> Queued {
        Queued {
            path: object.path.to_vec(),
            start: object.start.to_vec(),
            depth: object.depth,
            meta: object.meta.clone(),
            text: object.text.map(<[u8]>::to_vec),
            empty_dir: object.empty_dir,
            at,
            asked: false,
        }
    }

    pub fn object(&self) -> Object<'_> {
        Object {
            path: &self.path,
            start: &self.start,
            depth: self.depth,
            meta: &self.meta,
            text: self.text.as_deref(),
            empty_dir: self.empty_dir,
        }
    }

    fn complain(&self, tool: &Tool, why: &str) {
        tool.complain(&format!("cannot delete {}: {why}", quote::shown(&self.path)));
    }

    /// Its directory and its name there. `None`: the reason was printed.
    async fn found(&self, tool: &Tool) -> Option<(FileHandle, Vec<u8>)> {
        let Location { parent, place, dot, .. } = &self.at;
        if self.depth > 0 {
            let name = self.path.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
            if parent.is_none() {
                self.complain(tool, "the server gave no handle of its directory");
            }
            return Some((parent.clone()?, name));
        }
        if *dot {
            self.complain(tool, "Invalid argument");
            return None;
        }
        let above = match place.split() {
            Some((above, name)) => tool.servers.look(&[above], false).await.pop().map(|o| (o, name.to_vec())),
            None => None,
        };
        match above {
            Some((Ok(above), name)) => Some((above.fh, name)),
            // With version 3 there is nothing above an export.
            _ => {
                self.complain(tool, "this is the top of the export");
                None
            }
        }
    }
}

/// Deletes what is to be deleted. Returns for each object whether it is gone; failures are printed.
pub async fn all(tool: &Tool, queue: &[Queued]) -> Vec<bool> {
    let mut gone = vec![false; queue.len()];
    // Entries are deleted before their directory.
    let mut by_depth: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (n, queued) in queue.iter().enumerate().filter(|(_, queued)| queued.asked) {
        by_depth.entry(queued.at.place.path.len() + queued.depth).or_default().push(n);
    }
    for numbers in by_depth.into_values().rev() {
        for (nfs, of_tree) in tool.servers.by_tree(numbers.iter().map(|n| &queue[*n].at.place)) {
            let (mut to_remove, mut by_path) = (Vec::new(), HashMap::<&[u8], Vec<usize>>::new());
            for n in of_tree.into_iter().map(|n| numbers[n]) {
                let Some((parent, name)) = queue[n].found(tool).await else { continue };
                let (path, is_dir) = (queue[n].path.clone(), queue[n].meta.is_dir());
                to_remove.push(ToRemove { path, parent, name, dir: None, is_dir, first_page: None });
                by_path.entry(&queue[n].path).or_default().push(n);
            }
            nfs.remove_trees(to_remove, |removal| {
                let numbers = by_path.get(&removal.path[..]).map(Vec::as_slice).unwrap_or_default();
                match removal.outcome.into_result() {
                    Ok(()) => numbers.iter().for_each(|n| gone[*n] = true),
                    // After an interruption the summary covers everything that was not started.
                    Err(ItemError::NotExecuted(_)) if tool.stopped() => {}
                    Err(e) => numbers.iter().take(1).for_each(|n| queue[*n].complain(tool, &message::of(&e))),
                }
            })
            .await;
        }
    }
    gone
}
