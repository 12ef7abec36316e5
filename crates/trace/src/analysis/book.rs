//! What is accumulated per client and server while the calls are read.

use super::longest::Longest;
use super::spread::Spread;
use crate::path::Shortest;
use foldhash::HashMap;
use std::collections::BTreeMap;

/// Accumulated calls of one client to one server.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Waits for replies, by what the server had to do. The weight of a wait is its share of the time.
    pub waits: [Spread; 6],
    /// Pauses with nothing in flight. The weight of a pause is its full length.
    pub gaps: Spread,
    /// The shortest pause in which nothing else went on.
    pub gap_least_ns: Option<u64>,
    /// Calls whose network part is known, the sum of these parts, and their weight.
    pub split: u64,
    pub network_ns: f64,
    pub network: f64,
    /// Bytes in flight, in nanoseconds of shared time.
    pub moving: f64,
    /// The part of `moving` in which senders waited for acknowledgements.
    pub paused: f64,
    /// No progress because of a loss, in nanoseconds of shared time.
    pub lost: f64,
    /// Nanoseconds with calls in flight: counted once, and counted once per call.
    pub busy: f64,
    pub under_way: f64,
    pub bytes_up: u64,
    pub bytes_down: u64,
    pub files_made: u64,
    pub first_ns: Option<i64>,
    pub last_ns: i64,
    /// An estimated part for a slow link was subtracted from some waits.
    pub on_line: bool,
    /// The longest waits, and the longest pauses.
    pub longest: Longest,
    pub idle: Longest,
    /// Number of calls by operation.
    pub labels: Vec<u32>,
    /// The shortest times to an acknowledgement: by the server, and by the client.
    pub acknowledged: [Option<Shortest>; 2],
}

/// Pauses of a client, by the number of its pair, the operation replied to before and the operation called after.
pub(crate) type Follows = BTreeMap<(u8, u8, u8), Spread>;

pub(crate) type Compounds = HashMap<Vec<u8>, Spread>;
