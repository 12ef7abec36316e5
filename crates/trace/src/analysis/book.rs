//! What is kept of the calls while they are gone through.

use super::longest::Longest;
use super::spread::Spread;
use crate::path::Shortest;
use foldhash::HashMap;
use std::collections::BTreeMap;

/// What is kept of a client's calls to a server.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Waits for answers by what the server had to do. What a wait counts is its share of the time.
    pub waits: [Spread; 6],
    /// Pauses with nothing under way. What a pause counts is all of it.
    pub gaps: Spread,
    /// The shortest of them in which nothing else was going on.
    pub gap_least_ns: Option<u64>,
    /// Calls whose network's part is known; these parts together; and what they count.
    pub split: u64,
    pub network_ns: f64,
    pub network: f64,
    /// Bytes on their way, in nanoseconds of shared time.
    pub moving: f64,
    /// Of that, waiting for acknowledgements before going on.
    pub paused: f64,
    /// Standing still after losses.
    pub lost: f64,
    /// Nanoseconds in which calls were under way: once, and once for each call.
    pub busy: f64,
    pub under_way: f64,
    pub bytes_up: u64,
    pub bytes_down: u64,
    pub files_made: u64,
    pub first_ns: Option<i64>,
    pub last_ns: i64,
    /// Of some waits a narrow line's part was taken off, about.
    pub on_line: bool,
    /// The longest waits, and the longest pauses.
    pub longest: Longest,
    pub idle: Longest,
    /// How many calls there were of each operation.
    pub labels: Vec<u32>,
    /// The shortest times to an acknowledgement: by the server, and by the client.
    pub acknowledged: [Option<Shortest>; 2],
}

/// Pauses of a client, by the number of its pair, what was answered before and what was called after.
pub(crate) type Follows = BTreeMap<(u8, u8, u8), Spread>;

/// COMPOUNDs by their operations.
pub(crate) type Compounds = HashMap<Vec<u8>, Spread>;
