//! Cuts while programs work on `landfast mount`: its process is killed, the server's power goes, both, the network is away for longer
//! than a lease; or nothing is cut, and another client looks all the time. Then what a new client finds is compared with what the
//! programs did.
//!
//! | room | subject |
//! |---|---|
//! | `options` | what a run is to do, what it reports |
//! | `history` | what a program did, in its order, and what of it is stable; no I/O |
//! | `record` | that, shared by a program and those who watch it |
//! | `program`, `archive` | programs: random calls, and `tar xf` |
//! | `oracle` | whether what is there can be; no I/O |
//! | `looker` | a second client that looks all the time |
//! | `rival` | another client that changes the same directories while the network is away |
//! | `stand` | the server on emulated disks, the network |
//! | `rounds` | a round of each kind |

mod archive;
mod history;
mod looker;
mod options;
mod oracle;
mod program;
mod record;
mod rival;
mod rounds;
mod stand;

pub use options::{Options, Round, Row, What};

use crate::error::Result;
use stand::Stand;
use std::time::Instant;

/// Runs all rounds, kinds in turns, and calls `progress` after each. Call it on a thread of [`crate::namespace::run_private`].
/// Errors: What keeps the lab from working; what is wrong is in the rows.
pub fn run(options: &Options, mut progress: impl FnMut(&Round)) -> Result<Vec<Row>> {
    let begin = Instant::now();
    let mut stand = Stand::new(options)?;
    let mut rows: Vec<Row> = options.what.iter().map(|what| Row::new(*what)).collect();
    for n in 1..=options.rounds {
        for row in &mut rows {
            if options.time_limit.is_some_and(|limit| begin.elapsed() > limit) {
                return Ok(rows);
            }
            let round = rounds::round(&mut stand, options, row.what, n)?;
            progress(&round);
            row.add(&round);
            if options.until_wrong && !round.wrong.is_empty() {
                return Ok(rows);
            }
        }
    }
    Ok(rows)
}
