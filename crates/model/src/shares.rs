//! Where a span of time went, and what bounds the work.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    Rtt,
    /// Making changes durable.
    Persistence,
    /// The server's other work, or its queue.
    Server,
    Bandwidth,
    Client,
    /// Lost segments and their retransmission.
    Loss,
    /// Two of these, nearly equal.
    Mixed,
}

impl Bound {
    pub fn name(self) -> &'static str {
        match self {
            Bound::Rtt => "rtt",
            Bound::Persistence => "persistence",
            Bound::Server => "server",
            Bound::Bandwidth => "bandwidth",
            Bound::Client => "client",
            Bound::Loss => "loss",
            Bound::Mixed => "mixed",
        }
    }
}

/// Parts of a span of time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Shares {
    pub rtt: f64,
    /// Making changes durable.
    pub persistence: f64,
    /// The server's other work.
    pub server: f64,
    /// Bytes in flight.
    pub bandwidth: f64,
    /// The client, with nothing in flight.
    pub client: f64,
    /// Waiting for lost segments.
    pub loss: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub bound: Bound,
    pub first: Bound,
    pub runner_up: Bound,
}

/// Two parts count as equal if they differ by less than this part of the whole.
const ALIKE: f64 = 0.10;

/// They also count as equal if the smaller is at least this part of the larger: with the larger halved, the smaller
/// would be next. Except the client's own part: nobody sells less of it, so it does not diminish a larger part.
const ALIKE_EACH: f64 = 0.6;

impl AddAssign for Shares {
    fn add_assign(&mut self, other: Shares) {
        self.rtt += other.rtt;
        self.persistence += other.persistence;
        self.server += other.server;
        self.bandwidth += other.bandwidth;
        self.client += other.client;
        self.loss += other.loss;
    }
}

impl Shares {
    /// All parts, largest first.
    pub fn parts(&self) -> [(Bound, f64); 6] {
        let mut parts = [
            (Bound::Rtt, self.rtt),
            (Bound::Persistence, self.persistence),
            (Bound::Server, self.server),
            (Bound::Bandwidth, self.bandwidth),
            (Bound::Client, self.client),
            (Bound::Loss, self.loss),
        ];
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        parts
    }

    pub fn total(&self) -> f64 {
        self.parts().iter().map(|(_, s)| s).sum()
    }

    /// The verdict. `None`: there is no time.
    pub fn verdict(&self) -> Option<Verdict> {
        let total = self.total();
        if total <= 0.0 {
            return None;
        }
        let [(first, most), (runner_up, next), ..] = self.parts();
        let alike =
            (most - next) / total < ALIKE || (runner_up != Bound::Client && next >= most * ALIKE_EACH);
        let bound = if alike { Bound::Mixed } else { first };
        Some(Verdict { bound, first, runner_up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_bounds_unless_two_are_alike() {
        let shares = Shares { rtt: 6.0, client: 3.0, server: 1.0, ..Shares::default() };
        let verdict = Verdict { bound: Bound::Rtt, first: Bound::Rtt, runner_up: Bound::Client };
        assert_eq!(shares.verdict(), Some(verdict));
        let shares = Shares { rtt: 4.5, persistence: 4.0, client: 1.5, ..Shares::default() };
        let verdict = Verdict { bound: Bound::Mixed, first: Bound::Rtt, runner_up: Bound::Persistence };
        assert_eq!(shares.verdict(), Some(verdict));
        let shares = Shares { rtt: 6.0, persistence: 4.0, ..Shares::default() };
        assert_eq!(
            shares.verdict(),
            Some(verdict),
            "the second would be the larger if the first were halved"
        );
        let shares = Shares { rtt: 6.0, client: 4.0, ..Shares::default() };
        let verdict = Verdict { bound: Bound::Rtt, first: Bound::Rtt, runner_up: Bound::Client };
        assert_eq!(shares.verdict(), Some(verdict), "what is the client's own cannot be bought");
        let shares = Shares { rtt: 4.0, client: 6.0, ..Shares::default() };
        assert_eq!(shares.verdict().map(|verdict| verdict.bound), Some(Bound::Mixed), "the way can");
        assert_eq!(Shares::default().verdict(), None);
    }

    #[test]
    fn names_are_those_of_the_json() {
        for bound in [
            Bound::Rtt,
            Bound::Persistence,
            Bound::Server,
            Bound::Bandwidth,
            Bound::Client,
            Bound::Loss,
            Bound::Mixed,
        ] {
            assert_eq!(serde_json::to_value(bound).unwrap(), bound.name());
        }
    }
}
