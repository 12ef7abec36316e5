//! Notes whose change is in the state while no log has them yet.
//!
//! Several notes may say one thing together: these delegations are a client's, and it holds nothing that is not noted. A part of a snapshot that is
//! taken before their transaction is durable shows some of what they say, and may be durable alone, in the same log or in another one. So it has all of them.

use super::notes::Stamped;
use crate::limits;
use std::collections::HashSet;

#[derive(Debug, Default)]
pub struct Unwritten(Vec<Stamped>);

impl Unwritten {
    /// These are about to be written. Notes that no log took stay until there are too many: another log may get them with a snapshot.
    pub fn begin(&mut self, notes: &[Stamped]) {
        self.0.extend_from_slice(notes);
        let over = self.0.len().saturating_sub(limits::UNWRITTEN_NOTES_MAX.max(notes.len()));
        self.0.drain(..over);
    }

    /// A log has these. Several notes may have one version; they are written together.
    pub fn end(&mut self, notes: &[Stamped]) {
        if !self.0.is_empty() {
            let written: HashSet<u64> = notes.iter().map(|note| note.v).collect();
            self.0.retain(|note| !written.contains(&note.v));
        }
    }

    pub fn notes(&self) -> &[Stamped] {
        &self.0
    }
}
