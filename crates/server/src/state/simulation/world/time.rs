//! Time passes.

use super::super::op::Op;
use super::{DELAY, World};
use crate::state::clock::Millis;

impl World<'_> {
    pub(super) fn passes(&mut self) {
        let asleep = self.p.all.iter().any(|p| p.asleep);
        let by = match if asleep && self.c.one_in(3) { 11 } else { self.c.below(12) } {
            0..5 => 50 + self.c.below(200),
            5..8 => 500 + self.c.below(DELAY - 500),
            8..11 => 5000 + self.c.below(30_000),
            _ => 70_000 + self.c.below(60_000),
        };
        self.later(by);
    }

    pub(super) fn later(&mut self, by: Millis) {
        if by > DELAY {
            self.flushes();
            self.settles();
        }
        // Nobody sleeps through a chance to act: the server looks every second.
        let until = self.m.now + by;
        while self.m.now < until {
            let step = (until - self.m.now).min(if by > 20_000 { 5000 } else { 1000 });
            self.m.now += step;
            self.s.now = self.m.now;
            self.s.ticks(&mut self.m);
            self.s.polls(&mut self.m, &mut self.p);
            self.s.unparks(&mut self.m, &self.p);
            if by > DELAY {
                self.flushes();
                self.keeps_leases();
            }
        }
        self.m.tells(|| "later".to_owned());
    }

    /// A client that is awake renews its lease in time.
    pub(super) fn keeps_leases(&mut self) {
        for who in 0..self.p.all.len() {
            let renewed = self.m.knows.get(who).and_then(|k| k.renewed).unwrap_or(0);
            let p = &self.p.all[who];
            if !p.v3 && !p.asleep && p.session.is_some() && self.m.now - renewed > 20_000 {
                match &p.out {
                    [None, _] => self.sends(who, 0, Op::Nothing, None),
                    [Some(out), _] if out.lost => self.sends_again(who, 0),
                    [_, None] => self.sends(who, 1, Op::Nothing, None),
                    [_, Some(out)] if out.lost => self.sends_again(who, 1),
                    _ => {}
                }
                self.flushes();
                self.settles();
            }
        }
    }
}
