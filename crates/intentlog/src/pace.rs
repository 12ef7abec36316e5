//! Decides when a batch waits for company: for more transactions to join it. Pure: time is an argument.
//!
//! Clients that each wait for a reply split into cohorts: while the batch of one cohort is flushed, the next batch collects,
//! and often a single request is flushed alone although others are about to arrive. So a batch with at most half of the
//! transactions that recently ran together waits for more. (Of two equal cohorts, too, one waits. Otherwise they would take
//! turns for ever, and each operation would wait for two flushes.) A transaction that joins saves the rest of a flush that it would
//! have missed; the `n` that are there pay with their wait. A wait for the next one of more than 1 / (`n` + 1) of a flush
//! costs more than it saves. So the wait ends when none joins within that time, and after three quarters of a flush at most.
//!
//! Batches tell how many transactions run together: when one is acknowledged, the clients with a transaction in it and those
//! with one in the next batch are all at work. None is counted twice, because a client that waits for the first batch cannot
//! be in the second. Below [`COMPANY_MIN`] nothing waits: one client is never delayed, and one that is left alone waits once. Where most waits are in vain,
//! because the round trip is longer than the longest wait, only one in [`COMPANY_TRIES`] is made.

use std::time::{Duration, Instant};

use crate::limits::{
    COMPANY_MIN, COMPANY_TRIES, COMPANY_VAIN_PERCENT, COMPANY_WAIT_MAX, COMPANY_WAIT_MIN, RECENT_COMPANY,
};

/// How many transactions recently ran together, and whether waiting for them was worth while.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Company {
    most: u64,
    /// Recent waits that none joined, in thousandths.
    vain: u32,
    /// Waits left out since the last one, because most are in vain.
    passed: u32,
}

impl Company {
    /// A batch of `answered` transactions is durable, `behind` are in the next.
    pub(crate) fn answered(&mut self, answered: u64, behind: u64) {
        self.most = self.most.max(answered + behind);
    }

    pub(crate) fn dissolve(&mut self) {
        *self = Company::default();
    }

    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// Whether a batch with `here` transactions is to wait for more.
    pub(crate) fn waits(&mut self, here: u64) -> bool {
        let enough = 2 * here > self.most;
        if self.most < COMPANY_MIN || here == 0 || enough {
            return false;
        }
        if self.vain > 10 * COMPANY_VAIN_PERCENT && self.passed + 1 < COMPANY_TRIES {
            self.passed += 1;
            return false;
        }
        self.passed = 0;
        true
    }

    /// A wait that began with `before` transactions ended with `here`. Lowers the expected number if fewer came; later
    /// batches raise it again.
    pub(crate) fn waited(&mut self, before: u64, here: u64) {
        self.most -= self.most.saturating_sub(here).div_ceil(4);
        let vain = if here > before { 0 } else { 1000 };
        self.vain = (self.vain * (RECENT_COMPANY - 1) + vain) / RECENT_COMPANY;
    }
}

/// One batch's wait.
#[derive(Debug, Clone)]
pub(crate) struct Gathering {
    flush: Duration,
    /// Transactions at the beginning of the current part.
    seen: u64,
    /// The end of the current part, and of the whole wait.
    until: Instant,
    end: Instant,
}

impl Gathering {
    /// Begins at `now` with `here` transactions on a device whose flushes take `flush`; `None`: it is too fast to wait.
    pub(crate) fn begin(now: Instant, here: u64, flush: Duration) -> Option<Gathering> {
        let end = now + (flush * 3 / 4).min(COMPANY_WAIT_MAX);
        let until = Self::part(now, here, flush, end)?;
        Some(Gathering { flush, seen: here, until, end })
    }

    /// Until when to wait, with `here` transactions at `now`; `None`: it is over.
    pub(crate) fn until(&mut self, now: Instant, here: u64) -> Option<Instant> {
        if now >= self.until {
            if here == self.seen {
                return None;
            }
            self.seen = here;
            self.until = Self::part(now, here, self.flush, self.end)?;
        }
        Some(self.until)
    }

    fn part(now: Instant, here: u64, flush: Duration, end: Instant) -> Option<Instant> {
        let part = flush / u32::try_from(here + 1).unwrap_or(u32::MAX);
        let until = end.min(now + part);
        (until >= now + COMPANY_WAIT_MIN).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: Duration = Duration::from_micros(240);

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn company(of: u64) -> Company {
        let mut company = Company::default();
        company.answered(of, 0);
        company
    }

    #[test]
    fn one_never_waits_and_of_two_the_first_waits_once_for_who_is_gone() {
        let mut company = Company::default();
        company.answered(1, 0);
        assert!(!company.waits(1));
        for (answered, behind) in [(1, 1), (2, 0)] {
            company.answered(answered, behind);
            assert!(company.waits(1) && !company.waits(2));
            company.waited(1, 1);
            assert!(!company.waits(1));
            company.answered(1, 0);
            assert!(!company.waits(1));
        }
    }

    #[test]
    fn at_most_half_of_those_who_were_at_work_together_wait() {
        let mut company = company(5);
        assert!(company.waits(2) && !company.waits(3));
        company.answered(5, 3);
        assert!(company.waits(1) && company.waits(4));
        assert!(!company.waits(5) && !company.waits(8) && !company.waits(9));
        assert!(!company.waits(0), "there is nobody to wait");
        company.answered(1, 0);
        assert!(company.waits(1), "a small batch says nothing of those who are on their way");
        company.dissolve();
        assert!(!company.waits(1));
    }

    #[test]
    fn who_is_gone_is_soon_not_waited_for() {
        for (most, limit) in [(2, 1), (3, 2), (8, 5), (64, 13), (1_000_000, 51)] {
            let (mut company, mut waits, mut batches) = (company(most), 0, 0);
            while company.most() >= COMPANY_MIN {
                batches += 1;
                if company.waits(1) {
                    company.waited(1, 1);
                    waits += 1;
                }
            }
            assert!((1..=limit).contains(&waits), "{most}: {waits} in {batches} batches");
        }
    }

    #[test]
    fn who_comes_late_is_expected_again() {
        let mut company = company(8);
        company.waited(3, 6);
        assert_eq!(company.most(), 7);
        company.waited(3, 9);
        assert_eq!(company.most(), 7, "all came");
        company.answered(6, 3);
        assert_eq!(company.most(), 9);
    }

    #[test]
    fn waits_in_vain_are_seldom_made_and_made_again_when_somebody_comes() {
        let mut company = company(8);
        let made = |company: &mut Company, came: u64| {
            (0..160)
                .filter(|_| {
                    company.answered(8, 0);
                    let made = company.waits(2);
                    if made {
                        company.waited(2, 2 + came);
                    }
                    made
                })
                .count()
        };
        assert_eq!(made(&mut company, 1), 160);
        let vain = made(&mut company, 0);
        assert!((10..=24).contains(&vain), "{vain}");
        assert_eq!(made(&mut company, 0), 10);
        assert!(made(&mut company, 3) > 80);
    }

    #[test]
    fn the_more_are_here_the_less_is_waited() {
        let now = Instant::now();
        for (here, part) in [(1, 120), (2, 80), (3, 60), (5, 40), (23, 10)] {
            let mut gathering = Gathering::begin(now, here, FLUSH).unwrap();
            assert_eq!(gathering.until(now, here), Some(now + us(part)), "{here}");
            assert_eq!(gathering.until(now + us(part - 1), here), Some(now + us(part)));
            assert_eq!(gathering.until(now + us(part), here), None, "nobody came");
        }
        assert!(Gathering::begin(now, 24, FLUSH).is_none(), "less than {COMPANY_WAIT_MIN:?}");
        assert!(Gathering::begin(now, 1, us(19)).is_none(), "a device that is quicker than any wait");
        assert!(Gathering::begin(now, 1, Duration::ZERO).is_none());
    }

    #[test]
    fn it_goes_on_while_they_come_but_not_longer_than_most_of_a_flush() {
        let start = Instant::now();
        let at = |n| start + us(n);
        let mut gathering = Gathering::begin(at(0), 3, FLUSH).unwrap();
        assert_eq!(gathering.until(at(20), 4), Some(at(60)), "looked at when the part is over");
        assert_eq!(gathering.until(at(60), 5), Some(at(100)));
        assert_eq!(gathering.until(at(100), 6), Some(at(100) + FLUSH / 7));
        assert_eq!(gathering.until(at(150), 7), Some(at(180)), "three quarters of a flush in all");
        assert_eq!(gathering.until(at(180), 8), None);
    }

    #[test]
    fn a_slow_device_does_not_make_it_long() {
        let now = Instant::now();
        let mut gathering = Gathering::begin(now, 1, Duration::from_secs(1)).unwrap();
        assert_eq!(gathering.until(now, 1), Some(now + COMPANY_WAIT_MAX));
        assert_eq!(gathering.until(now + COMPANY_WAIT_MAX, 2), None);
    }

    /// Clients of which each comes back a while after it was answered, as a virtual clock has it.
    struct Clients {
        back_at: Vec<u64>,
        rng: u64,
    }

    impl Clients {
        fn new(n: usize) -> Clients {
            Clients { back_at: (0..n as u64).map(|i| i * 37).collect(), rng: 1 }
        }

        /// A way there and back of 200 us, give or take.
        fn away(&mut self) -> u64 {
            self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            150 + (self.rng >> 33) % 150
        }

        /// Microseconds and flushes that so many operations take.
        fn work(&mut self, operations: u64, flush: u64, paced: bool) -> (u64, u64) {
            let (mut company, mut clock, mut flushes, mut done) = (Company::default(), 0, 0, 0);
            let base = Instant::now();
            while done < operations {
                let here = |clock: u64, all: &[u64]| all.iter().filter(|at| **at <= clock).count() as u64;
                clock = clock.max(*self.back_at.iter().min().unwrap());
                let before = here(clock, &self.back_at);
                if paced
                    && company.waits(before)
                    && let Some(mut gathering) = Gathering::begin(base + us(clock), before, us(flush))
                {
                    while here(clock, &self.back_at) < company.most()
                        && gathering.until(base + us(clock), here(clock, &self.back_at)).is_some()
                    {
                        clock += 1;
                    }
                    company.waited(before, here(clock, &self.back_at));
                }
                let (sealed, answered) = (clock, here(clock, &self.back_at));
                clock += flush;
                flushes += 1;
                done += answered;
                company.answered(answered, here(clock, &self.back_at) - answered);
                for n in 0..self.back_at.len() {
                    if self.back_at[n] <= sealed {
                        self.back_at[n] = clock + self.away();
                    }
                }
            }
            (clock, flushes)
        }
    }

    #[test]
    fn fewer_flushes_and_hardly_more_time() {
        for flush in [50, 100, 200, 1000, 10_000] {
            for clients in [1, 2, 3, 4, 6, 8, 16, 64] {
                let (time, flushes) = Clients::new(clients).work(20_000, flush, false);
                let (paced, paced_flushes) = Clients::new(clients).work(20_000, flush, true);
                let case = format!(
                    "{clients} clients, {flush} us: {time} -> {paced} us, {flushes} -> {paced_flushes}"
                );
                if clients < 2 {
                    assert_eq!((time, flushes), (paced, paced_flushes), "{case}");
                }
                assert!(paced * 100 <= time * 106, "{case}");
                assert!(paced_flushes <= flushes + flushes / 50, "{case}");
                if clients == 8 && flush <= 200 {
                    assert!(paced_flushes * 100 <= flushes * 90, "{case}");
                }
                if (2..=16).contains(&clients) && flush >= 1000 {
                    assert!(
                        paced * 100 <= time * 70 && paced_flushes * 100 <= flushes * 60,
                        "they are one cohort: {case}"
                    );
                }
            }
        }
    }
}
