//! Emulated disks and networks, peers, experiments.
