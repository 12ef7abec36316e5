//! Owners as archives and other filesystems have them: numbers and names.

use super::Owner;

/// Maps owners to the numbers and names that an archive or a local file gets.
pub trait OwnerNames: Send + Sync {
    /// The number and the name of an owner; empty: it has no name.
    fn user(&self, owner: &Owner) -> (u32, Vec<u8>);
    /// The same of a group.
    fn group(&self, owner: &Owner) -> (u32, Vec<u8>);
}

/// Owners as the server names them: numbers without names, and nobody's number for names.
#[derive(Debug, Clone, Copy, Default)]
pub struct AsNamed;

/// The number that stands for an owner of whom only a name is known.
pub const NOBODY: u32 = 65534;

impl OwnerNames for AsNamed {
    fn user(&self, owner: &Owner) -> (u32, Vec<u8>) {
        match owner {
            Owner::Id(id) => (*id, Vec::new()),
            Owner::Name(name) => (NOBODY, name.split(|b| *b == b'@').next().unwrap_or_default().to_vec()),
        }
    }

    fn group(&self, owner: &Owner) -> (u32, Vec<u8>) {
        self.user(owner)
    }
}
