//! The limits of what is remembered of a capture to say where its time goes.

/// Calls of one client to one server that are laid beside each other. Beyond that what overlaps the oldest is accounted for without the
/// later ones.
pub const PENDING_MAX: usize = 256;

/// Times that connections of one client stood still, or had only bytes on their way, until its calls are accounted for. Beyond that the
/// oldest is forgotten.
pub const ASIDES_MAX: usize = 256;

/// Pairs of a client and a server that are told apart. Later ones are taken together.
pub const PAIRS_MAX: usize = 90;

/// Kinds of pauses of a client between a call of one kind and a call of another that are told apart, of all clients. Later ones count by
/// those that are.
pub const FOLLOWS_MAX: usize = 384;

/// Files whose calls are followed at a time. Beyond that the half that was silent longest is counted.
pub const FILES_MAX: usize = 4096;

/// Calls of one file that are remembered one by one. Later ones are only counted.
pub const SEQUENCE_MAX: usize = 48;

/// Files at a time whose calls are remembered with their times, for the picture of a typical one.
pub const TIMED_MAX: usize = 256;

/// Calls of such a file. Later ones are not in the picture.
pub const TIMED_CALLS_MAX: usize = 32;

/// Files of a shape of which the typical one is chosen.
pub const SAMPLE_MAX: usize = 6;

/// Shapes that a typical file is told of: those with most calls.
pub const TYPICAL_MAX: usize = 3;

/// Shapes of files' calls, and of COMPOUNDs, that are told apart. Later ones count as others.
pub const SHAPES_MAX: usize = 128;

/// Operations of a COMPOUND that tell its shape.
pub const SHAPE_OPERATIONS_MAX: usize = 64;

/// Steps of the timeline.
pub const STEPS_MAX: usize = 480;

/// Calls of the other end's capture that are remembered when two are merged: 25 MB beside all else. Later ones are not split.
pub const MERGED_MAX: usize = 400_000;

/// The longest waits of a client to a server that are remembered with their times. Shorter ones are only counted.
pub const LONGEST_MAX: usize = 128;

/// The longest pauses of a client, the same.
pub const LONGEST_PAUSES_MAX: usize = 16;
