//! By which right a directory is this mount's own. The states are in [`super::own`].

use landfast_nfs::v4::Stateid;

/// By which right a directory is this mount's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    New,
    Delegated(Stateid),
    Returning(Stateid),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    pub right: Right,
    /// Users who may change names here, as far as is known.
    pub users: Vec<u32>,
    /// When something was changed in it last, as a number that grows.
    pub used: u64,
}

impl Own {
    pub fn stateid(&self) -> Option<Stateid> {
        match self.right {
            Right::New => None,
            Right::Delegated(stateid) | Right::Returning(stateid) => Some(stateid),
        }
    }
}
