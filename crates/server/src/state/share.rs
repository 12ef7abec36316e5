//! The share of an address in what all clients use.

/// Would an address that has `own` exceed its share with `more`? Its share is what is free: `max` less the `used` of all.
pub(super) fn is_over_its_share(used: usize, max: usize, more: usize, own: impl FnOnce() -> usize) -> bool {
    let free = max.saturating_sub(used);
    // If all together have less, `own` need not be counted.
    used + more > free && own() + more > free
}
