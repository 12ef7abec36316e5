//! When the power goes: some random time after a random number of acknowledgements. Time alone would
//! mean little work on a busy machine, and much on an idle one.

use crate::limits::{CUT_AFTER_ACKS, CUT_PATIENCE, CUT_WITHIN};
use landfast_verify::rng::Rng;
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Counts acknowledgements; one can wait for a count.
#[derive(Default)]
pub struct Acks {
    count: Mutex<u64>,
    came: Condvar,
}

impl Acks {
    pub fn note(&self) {
        *self.count.lock() += 1;
        self.came.notify_one();
    }

    /// Waits until there are `count`, but not longer than [`CUT_PATIENCE`]: the clients may be stuck.
    pub fn wait(&self, count: u64) {
        let until = Instant::now() + CUT_PATIENCE;
        let mut now = self.count.lock();
        while *now < count && !self.came.wait_until(&mut now, until).timed_out() {}
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Moment {
    acks: u64,
    then: Duration,
}

impl Moment {
    pub fn random(rng: &mut Rng) -> Self {
        let micros = u64::try_from(CUT_WITHIN.as_micros()).unwrap_or(u64::MAX);
        Moment { acks: rng.below(CUT_AFTER_ACKS), then: Duration::from_micros(rng.below(micros)) }
    }

    pub fn wait(self, acks: &Acks) {
        acks.wait(self.acks);
        std::thread::sleep(self.then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_last_acknowledgement() {
        let acks = Acks::default();
        std::thread::scope(|s| {
            let waiting = s.spawn(|| acks.wait(3));
            (0..3).for_each(|_| acks.note());
            waiting.join().unwrap();
        });
        assert_eq!(*acks.count.lock(), 3);
    }
}
