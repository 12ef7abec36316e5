//! What the seeds of a run went through, counted.

/// Counts of what one seed did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) calls: u64,
    pub(super) cuts: u64,
    pub(super) kills: u64,
    pub(super) cuts_in_recovery: u64,
    pub(super) recoveries: u64,
    pub(super) ahead: u64,
    pub(super) remade: u64,
    pub(super) foreign: u64,
    /// What strangers have removed, moved or written to.
    pub(super) altered: u64,
    /// What recovery has reported of that.
    pub(super) said: u64,
    pub(super) faults: u64,
    pub(super) failed: u64,
    pub(super) clean: u64,
    pub(super) operations: u64,
    pub(super) refused: u64,
    pub(super) acknowledged: u64,
    /// Acknowledged requests that had changed nothing.
    pub(super) told: u64,
    pub(super) checked: u64,
    pub(super) checkpoints: u64,
    pub(super) absorbed: u64,
    pub(super) lost_quietly: u64,
    pub(super) logs_lost: u64,
    pub(super) renewed: u64,
    /// Logs that were given up, or lost with their contents because power went before anybody looked.
    pub(super) given_up: u64,
    pub(super) logs_forgotten: u64,
    /// A hash of all events, to check that a seed is reproducible.
    pub(super) digest: u64,
}

impl Figures {
    pub(super) fn add(&mut self, o: &Figures) {
        for (a, b) in [
            (&mut self.calls, o.calls),
            (&mut self.cuts, o.cuts),
            (&mut self.kills, o.kills),
            (&mut self.cuts_in_recovery, o.cuts_in_recovery),
            (&mut self.recoveries, o.recoveries),
            (&mut self.ahead, o.ahead),
            (&mut self.remade, o.remade),
            (&mut self.foreign, o.foreign),
            (&mut self.altered, o.altered),
            (&mut self.said, o.said),
            (&mut self.faults, o.faults),
            (&mut self.failed, o.failed),
            (&mut self.clean, o.clean),
            (&mut self.operations, o.operations),
            (&mut self.refused, o.refused),
            (&mut self.acknowledged, o.acknowledged),
            (&mut self.told, o.told),
            (&mut self.checked, o.checked),
            (&mut self.checkpoints, o.checkpoints),
            (&mut self.absorbed, o.absorbed),
            (&mut self.lost_quietly, o.lost_quietly),
            (&mut self.logs_lost, o.logs_lost),
            (&mut self.renewed, o.renewed),
            (&mut self.given_up, o.given_up),
            (&mut self.logs_forgotten, o.logs_forgotten),
        ] {
            *a += b;
        }
        // Independent of the order of seeds.
        self.digest ^= o.digest;
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} operations, {} of them refused; {} requests acknowledged, and {} that changed nothing",
            self.operations, self.refused, self.acknowledged, self.told
        )?;
        writeln!(
            f,
            "{} power cuts, {} processes killed, {} more in recovery, {} stops in order; {} calls failed, {} times data was not written \
             back, {} volumes failed for good",
            self.cuts,
            self.kills,
            self.cuts_in_recovery,
            self.clean,
            self.faults,
            self.lost_quietly,
            self.failed
        )?;
        writeln!(
            f,
            "{} recoveries, {} over a disk ahead of its log, {} objects made again; strangers made {} objects, and removed, moved or \
             wrote to {}, of which recovery said {}",
            self.recoveries, self.ahead, self.remade, self.foreign, self.altered, self.said
        )?;
        writeln!(
            f,
            "{} logs lost, {} written anew, {} volumes started without, {} lost before the loss was noticed",
            self.logs_lost, self.renewed, self.given_up, self.logs_forgotten
        )?;
        write!(
            f,
            "{} volumes checked; {} checkpoints, {} absorbed; {} calls of the kernel; digest {:016x}",
            self.checked, self.checkpoints, self.absorbed, self.calls, self.digest
        )
    }
}
