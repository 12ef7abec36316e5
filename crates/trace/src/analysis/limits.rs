//! Limits of what the analysis remembers of a capture.

/// Calls of one client that are laid beside each other. Beyond that, what overlaps the oldest is
/// accounted for without later calls.
pub const PENDING_MAX: usize = 256;

/// Times in which connections of one client made no progress, or only had bytes in flight, kept until its calls are
/// accounted for. Beyond that the oldest is forgotten.
pub const ASIDES_MAX: usize = 256;

/// Pairs of client and server that are distinguished, and clients. Later ones are merged.
pub const PAIRS_MAX: usize = 90;

/// Connections of which it is remembered which end is the client. Of later ones it is the end that is a known client.
pub const CONNECTIONS_KNOWN_MAX: usize = 7000;

/// Kinds of client pauses, by the operations before and after, that are distinguished over all clients. Later ones
/// count by the known ones.
pub const FOLLOWS_MAX: usize = 384;

/// Files whose calls are followed at the same time. Beyond that the half that was silent longest is counted and
/// dropped.
pub const FILES_MAX: usize = 4096;

/// Handles and names by which these files are known. Beyond that those of dropped files are forgotten; if that is
/// less than a quarter, all of them.
pub const KEYS_MAX: usize = 4 * FILES_MAX;

/// Calls of one file that are remembered individually. Later ones are only counted.
pub const SEQUENCE_MAX: usize = 48;

/// Files at the same time whose calls are remembered with times, to show a typical one.
pub const TIMED_MAX: usize = 256;

/// Calls of such a file. Later ones are not shown.
pub const TIMED_CALLS_MAX: usize = 32;

/// Files with the same sequence among which the typical one is chosen.
pub const SAMPLE_MAX: usize = 6;

/// Sequences for which a typical file is shown: those with most calls.
pub const TYPICAL_MAX: usize = 3;

/// Sequences of files' calls, and of COMPOUNDs, that are distinguished. Later ones count as others.
pub const SHAPES_MAX: usize = 128;

/// Operations of a COMPOUND that are compared.
pub const SHAPE_OPERATIONS_MAX: usize = 64;

/// Steps of the timeline.
pub const STEPS_MAX: usize = 480;

/// Calls remembered of the other end's capture when two are merged: 25 MB beyond all else. Later ones are not split.
pub const MERGED_MAX: usize = 400_000;

/// Longest waits of a client to a server remembered with times. Shorter ones are only counted.
pub const LONGEST_MAX: usize = 128;

/// Longest pauses of a client remembered with times.
pub const LONGEST_PAUSES_MAX: usize = 16;
