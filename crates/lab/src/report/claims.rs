//! The claims that many rows have.

use super::stand::Put;
use crate::experiments::Check;

/// Of each file that `untar` puts on Landfast's log, the most RPCs, and the most flushes that it waits for.
const UNTAR_EACH_MAX: f64 = 0.2;

/// The claims of all rows with `untar` on Landfast's log: what its files cost in counts.
pub fn untar_counts<'a>(puts: impl IntoIterator<Item = &'a Put>) -> Vec<Check> {
    let (mut rpcs, mut flushes, mut fewest) = (0.0_f64, 0.0_f64, f64::INFINITY);
    for put in puts {
        rpcs = rpcs.max(put.each(put.rpcs));
        flushes = flushes.max(put.waited_each());
        fewest = fewest.min(put.waited_each() * put.files as f64);
    }
    let mut checks = untar_checks(rpcs, flushes);
    // Without any the server would keep nothing of what it says.
    let fewest = if fewest.is_finite() { fewest } else { 0.0 };
    checks.push(Check::at_least(
        "untar on Landfast: flushes waited for by a whole run, the fewest",
        fewest,
        1.0,
    ));
    checks
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
