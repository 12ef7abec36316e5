//! Places in the tables of directories and of pieces of work.

/// A directory's place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DirId(pub(super) u32);

/// A piece of work's place in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ItemId(pub(super) u32);

impl ItemId {
    /// The place of none.
    pub(super) const NONE: ItemId = ItemId(u32::MAX);
}
