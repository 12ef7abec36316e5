//! How long a request is tried again: a sum of pauses, each twice as long as the one before.
//!
//! Only the pauses count. A server that is away answers nothing, so its absence does not count:
//! [`crate::SessionOptions::reconnect_patience`] limits that.

use std::time::Duration;

use tokio::time::sleep;

use crate::limits::{BACKOFF_MAX, BACKOFF_MIN, DELAY_PATIENCE};

#[derive(Debug)]
pub(crate) struct Patience {
    pause: Duration,
    left: Duration,
    begun: bool,
}

impl Patience {
    /// Patience for [`DELAY_PATIENCE`].
    pub(crate) fn new() -> Patience {
        Patience { pause: BACKOFF_MIN, left: DELAY_PATIENCE, begun: false }
    }

    /// The next pause, if any is left.
    fn next(&mut self) -> Option<Duration> {
        let pause = Some(self.pause).filter(|_| !self.left.is_zero())?;
        self.left = self.left.saturating_sub(pause);
        self.pause = (pause * 2).min(BACKOFF_MAX);
        Some(pause)
    }

    /// Pauses before another try. Returns `false` if the patience is at its end.
    pub(crate) async fn wait(&mut self) -> bool {
        match self.next() {
            Some(pause) => sleep(pause).await,
            None => return false,
        }
        true
    }

    /// As [`Patience::wait`], but the first try needs no pause.
    pub(crate) async fn turn(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true) || self.wait().await
    }

    /// Something succeeded: the next failure is a first one.
    pub(crate) fn progress(&mut self) {
        *self = Patience { begun: self.begun, ..Patience::new() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut patience = Patience::new();
        let pauses: Vec<Duration> = std::iter::from_fn(|| patience.next()).collect();
        let sum: Duration = pauses.iter().sum();
        assert!(sum >= DELAY_PATIENCE && sum < DELAY_PATIENCE + BACKOFF_MAX, "{sum:?}");
        assert!(pauses[0] == BACKOFF_MIN && pauses.windows(2).all(|two| two[0] <= two[1]));
        assert_eq!(pauses.last(), Some(&BACKOFF_MAX));
        patience.progress();
        assert_eq!(patience.next(), Some(BACKOFF_MIN));
    }

    #[tokio::test]
    async fn the_first_turn_comes_at_once() {
        let mut patience = Patience::new();
        patience.left = Duration::ZERO;
        assert!(patience.turn().await && !patience.turn().await && !patience.wait().await);
    }
}
