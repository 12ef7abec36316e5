//! Indices into the tables of directories and of items.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DirId(pub(super) u32);

/// An item is a member that is being extracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ItemId(pub(super) u32);

impl ItemId {
    /// Stands for no item.
    pub(super) const NONE: ItemId = ItemId(u32::MAX);
}
