//! The share that one address has of what all clients use.

/// Whether an address that has `own` would have more than its share with `more`: more than is free then. `used` is what all have, of `max`.
pub(super) fn is_over_its_share(used: usize, max: usize, more: usize, own: impl FnOnce() -> usize) -> bool {
    let free = max.saturating_sub(used);
    // Where all together have less, so has each.
    used + more > free && own() + more > free
}
