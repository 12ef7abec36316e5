//! The barrier between making objects and using them.
//!
//! First the objects made again become durable, then their rows in the remap table, and only then does any of them get a
//! name outside staging. So after a crash each of them is found either in staging, under the name of its old identity, or
//! through its row. It never stands at a place where it would be taken for a stranger.

use super::{Error, Run, io};
use crate::faults::{Bug, bug};
use crate::record::ObjId;
use crate::recover::tree::Tree;

impl<T: Tree> Run<'_, T> {
    /// Makes objects (old identity, new identity, fileid) durable, then their rows.
    pub(super) fn barrier(&mut self, made: Vec<(ObjId, ObjId, u64)>) -> Result<(), Error> {
        if made.is_empty() {
            return Ok(());
        }
        self.sync()?;
        let stage = self.tree.stage();
        if bug(Bug::LostRemapRow) {
            return Ok(());
        }
        match self.tree.save_rows(made).map_err(io("writing the remap table", &stage)) {
            Err(e) if e.is_full() => {
                self.make_room(e)?;
                // They are entered already.
                self.tree.save_rows(Vec::new()).map_err(io("writing the remap table", &stage))
            }
            done => done,
        }
    }
}
