//! An append-only log of opaque records on a device: group commit, checkpoints, replay.
