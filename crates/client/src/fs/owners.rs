//! Owners as numbers and names, as archives and other filesystems have them.

use super::Owner;

/// Maps owners to the numbers and names that an archive or a local file gets.
pub trait OwnerNames: Send + Sync {
    /// The number and the name of an owner; the name is empty if there is none.
    fn user(&self, owner: &Owner) -> (u32, Vec<u8>);
    fn group(&self, owner: &Owner) -> (u32, Vec<u8>);
}

/// Owners as the server gives them: a number has no name, and a name has nobody's number.
#[derive(Debug, Clone, Copy, Default)]
pub struct AsNamed;

/// The number for an owner of whom only a name is known.
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
