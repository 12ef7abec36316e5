//! The claims that many rows have.

use super::stand::Put;
use crate::experiments::Check;

/// Of each file that `untar` puts on Landfast's log, the most RPCs, and the most flushes that it waits for.
const UNTAR_EACH_MAX: f64 = 0.2;

/// The claims of all rows with `untar` on Landfast's log: what its files cost in counts.
pub fn untar_counts<'a>(puts: impl IntoIterator<Item = &'a Put>) -> Vec<Check> {
    let (mut rpcs, mut flushes) = (0.0_f64, 0.0_f64);
    for put in puts {
        rpcs = rpcs.max(put.each(put.rpcs));
        flushes = flushes.max(put.waited_each());
    }
    untar_checks(rpcs, flushes)
}

/// The same of what was counted.
pub fn untar_checks(rpcs: f64, flushes: f64) -> Vec<Check> {
    vec![
        Check::at_most("untar on Landfast: RPCs for each file, the most", rpcs, UNTAR_EACH_MAX),
        Check::at_most(
            "untar on Landfast: flushes waited for, for each file, the most",
            flushes,
            UNTAR_EACH_MAX,
        ),
    ]
}
