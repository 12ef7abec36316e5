//! Back-pressure: decides whether a request that modifies must be slowed or must wait. Pure.

use std::time::Duration;

use crate::limits::{PENDING_BATCHES_MAX, SLOW_DELAY_MAX, SLOW_PERCENT, WAIT_PERCENT};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    pub capacity: u64,
    /// Bytes of the ring that only a snapshot may use.
    pub reserve: u64,
    /// Bytes of the ring in use.
    pub used: u64,
    /// Bytes appended and not yet written.
    pub pending: u64,
    /// Size at which a batch takes no more transactions, in bytes.
    pub batch_max: u64,
    /// A checkpoint is under way or due, so waiting will free space.
    pub relief: bool,
}

/// What a request that modifies has to do first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    Go,
    /// Wait this long, or until space is freed.
    Slow(Duration),
    /// Wait until a batch has been written.
    AwaitDrain,
    /// Wait until a checkpoint has freed space.
    AwaitSpace,
}

/// Never asks to wait for something that will not happen.
pub fn pressure(fill: &Fill) -> Pressure {
    let usable = fill.capacity - fill.reserve;
    let full = (fill.used + fill.pending) * 100;
    if fill.relief && full >= usable * WAIT_PERCENT {
        return Pressure::AwaitSpace;
    }
    if fill.pending >= fill.batch_max * PENDING_BATCHES_MAX {
        return Pressure::AwaitDrain;
    }
    if fill.relief && full >= usable * SLOW_PERCENT {
        let above = full - usable * SLOW_PERCENT;
        let range = usable * (WAIT_PERCENT - SLOW_PERCENT);
        let nanos = SLOW_DELAY_MAX.as_nanos() as u64;
        return Pressure::Slow(Duration::from_nanos((nanos as u128 * above as u128 / range as u128) as u64));
    }
    Pressure::Go
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(used: u64, pending: u64) -> Fill {
        Fill { capacity: 1000, reserve: 0, used, pending, batch_max: 100, relief: true }
    }

    #[test]
    fn slows_above_three_quarters_and_waits_near_full() {
        assert_eq!(pressure(&fill(749, 0)), Pressure::Go);
        assert_eq!(pressure(&fill(750, 0)), Pressure::Slow(Duration::ZERO));
        assert_eq!(pressure(&fill(850, 0)), Pressure::Slow(SLOW_DELAY_MAX / 2));
        assert_eq!(pressure(&fill(949, 1)), Pressure::AwaitSpace);
        assert_eq!(pressure(&fill(0, 400)), Pressure::AwaitDrain);
    }

    #[test]
    fn does_not_wait_for_space_that_no_checkpoint_will_free() {
        assert_eq!(pressure(&Fill { relief: false, ..fill(990, 0) }), Pressure::Go);
    }
}
