//! What was done in runs.

/// Counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) seeds: u64,
    pub(super) steps: u64,
    pub(super) calls: u64,
    pub(super) requests: u64,
    pub(super) recalls: u64,
    pub(super) cuts: u64,
    pub(super) partitions: u64,
    pub(super) deaths: u64,
    pub(super) torn: u64,
    pub(super) checks: u64,
}

impl Figures {
    pub(super) fn add(&mut self, other: &Figures) {
        self.seeds += other.seeds;
        self.steps += other.steps;
        self.calls += other.calls;
        self.requests += other.requests;
        self.recalls += other.recalls;
        self.cuts += other.cuts;
        self.partitions += other.partitions;
        self.deaths += other.deaths;
        self.torn += other.torn;
        self.checks += other.checks;
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} seeds: {} steps, {} calls of programs, {} requests",
            self.seeds, self.steps, self.calls, self.requests
        )?;
        write!(
            f,
            "{} recalls; {} power cuts, {} cuts of the network, {} deaths of a client; {} torn directories; {} checks",
            self.recalls, self.cuts, self.partitions, self.deaths, self.torn, self.checks
        )
    }
}
