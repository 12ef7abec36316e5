//! Objects that lose a name or get another: the shell between the volume, which knows under its locks what a name leads to, and [`crate::state`], which knows the
//! delegations.
//!
//! A name is looked up once, by the volume. So what is asked about is what the operation is done to: nobody can put another object there in between.

use crate::looks::{Looker, Looks};
use crate::shared::Shared;
use crate::state::delegations::Touch;
use crate::state::notes::Stamped;
use crate::touches::{Touching, can_be_delegated};
use landfast_volume::{Error, Kind, Node};

/// A removal or a renaming, and the delegations in its way.
pub(crate) struct Renaming<'a> {
    pub(crate) sh: &'a Shared,
    pub(crate) by: Looker,
    /// The export gives write directory delegations.
    pub(crate) write_delegations: bool,
    pub(crate) looks: &'a mut Looks,
    pub(crate) touching: &'a mut Vec<Touching>,
    pub(crate) found: Found,
}

/// What was found under the volume's locks.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// A delegation of somebody else is in the way: nothing was done.
    pub(crate) in_the_way: bool,
    /// Clients that are gone, which the answer rests on.
    pub(crate) gone: Vec<Stamped>,
    /// The directories that were asked about.
    pub(crate) directories: Vec<Node>,
}

impl Renaming<'_> {
    /// For [`landfast_volume::Volume::remove_keeping`] and `rename_keeping`: announces what is done to the object until the operation ends, and makes
    /// sure that no delegation is in its way.
    /// Errors: `Busy` while one is.
    pub(crate) fn allows(&mut self, node: &Node) -> Result<(), Error> {
        let (kind, touch) = (node.kind(), Touch::Changes);
        if !can_be_delegated(kind) {
            return Ok(());
        }
        self.touching.push(self.sh.touches.begin_as(kind, touch, node.wire()));
        if kind == Kind::Dir {
            self.found.directories.push(node.clone());
            if self.write_delegations {
                self.sh.looks_into(node.wire(), self.by.client);
            }
        }
        if !self.sh.touches.any_in_the_way(kind, touch) {
            return Ok(());
        }
        let Some(gone) = self.looks.touch(&mut self.sh.state(), self.by, node.wire(), touch) else {
            self.found.in_the_way = true;
            return Err(Error::Busy);
        };
        self.found.gone.extend(gone);
        Ok(())
    }
}
