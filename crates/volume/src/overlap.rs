//! Whether volumes have objects in common. Then two logs would record one object, and recovery could not know which is right.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::error::Error;
use crate::inside::Directories;
use crate::options::Durability;
use crate::volume::Volume;

/// What two volumes have in common; their numbers among those that were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// The directory of `inner` is that of `outer` or lies below it on the same filesystem. The filesystem's own tree counts, through
    /// whichever mount the directory was reached.
    Within { inner: usize, outer: usize },
    /// The state directory of `of` lies in the directory of `by`, whose clients would see it: a volume hides only its own.
    ShowsState { of: usize, by: usize },
}

impl Volume {
    /// The first overlap of these volumes. The time grows with their number, not with its square. A volume that was `compared` earlier, when its
    /// disk still worked, is left out if it cannot be looked at now.
    ///
    /// # Errors
    /// The number of another volume that could not be looked at, and why.
    pub fn overlap(
        volumes: &[&Volume],
        compared: impl Fn(usize) -> bool,
    ) -> Result<Option<Overlap>, (usize, Error)> {
        let mut all = Directories::default();
        let mut seen = Vec::with_capacity(volumes.len());
        for (n, volume) in volumes.iter().enumerate() {
            volume.assume_root().map_err(|e| (n, e))?;
            match all.add(n, &volume.0.mount) {
                Ok(()) => seen.push(n),
                Err(_) if compared(n) => {}
                Err(e) => return Err((n, e.into())),
            }
        }
        for n in seen {
            let volume = volumes[n];
            let other = |dir| match all.above(dir) {
                Ok(found) => Ok(found.into_iter().find(|at| volumes[*at].id() != volume.id())),
                Err(_) if compared(n) => Ok(None),
                Err(e) => Err((n, e.into())),
            };
            if let Some(outer) = other(&volume.0.mount)? {
                return Ok(Some(Overlap::Within { inner: n, outer }));
            }
            if let Some(by) = other(&volume.0.state_dir)? {
                return Ok(Some(Overlap::ShowsState { of: n, by }));
            }
        }
        Ok(None)
    }

    /// The first two of these volumes that are on one filesystem, where one of them has a log. A file could have names in both (a hard
    /// link that somebody made locally), and each log knows only what was done through its own volume.
    pub fn on_one_filesystem(volumes: &[&Volume]) -> Option<(usize, usize)> {
        // For each filesystem its first volume, and its first one with a log.
        let mut seen: HashMap<(u32, u32), (usize, Option<usize>)> = HashMap::new();
        for (n, volume) in volumes.iter().enumerate() {
            let logs = volume.durability() == Durability::Log;
            match seen.entry(volume.0.device) {
                Entry::Vacant(first) => _ = first.insert((n, logs.then_some(n))),
                Entry::Occupied(mut known) => match known.get_mut() {
                    (first, _) if logs => return Some((*first, n)),
                    (_, Some(logged)) => return Some((*logged, n)),
                    _ => {}
                },
            }
        }
        None
    }
}
