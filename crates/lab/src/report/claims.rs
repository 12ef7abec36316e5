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

/// What rows say that call [`untar_in_time`](super::stand::Stand::untar_in_time).
pub const FEWER_FILES: &str = "one file at a time is stopped after some seconds; on another server `untar` gets the first of the files, up to 64 \
                               times as many as one at a time put there";

/// The claims of `untar` on Landfast's log beside other servers that keep what they acknowledge, for each client of which there is one.
/// `ours`: its files a second. `peers`: what was put on others, and whether by `untar`. `least`: so many times those of the quickest
/// other with `untar`, and with one file at a time.
pub fn beside_peers<'a>(
    ours: f64,
    peers: impl Iterator<Item = (bool, &'a Put)>,
    least: [f64; 2],
) -> Vec<Check> {
    let mut best = [None::<f64>; 2];
    for (is_untar, put) in peers {
        let best = &mut best[usize::from(!is_untar)];
        *best = Some(best.unwrap_or(0.0).max(put.files_per_s()));
    }
    let what = [
        "untar on Landfast: times the files a second of untar on the quickest other server that keeps its promise",
        "untar on Landfast: times the files a second of one file at a time on the quickest other server that keeps its promise",
    ];
    let all = best.into_iter().zip(what).zip(least);
    all.filter_map(|((best, what), least)| Some(Check::at_least(what, ours / best?, least))).collect()
}

/// The claims of [`untar_counts`], of what was counted for each file.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_compared_with_the_same_client_and_with_one_file_at_a_time() {
        let put = |files| {
            let mut put = Put::default();
            (put.files, put.seconds) = (files, 1.0);
            put
        };
        let (serial, other, untar) = (put(8), put(10), put(50));
        let peers = [(false, &serial), (false, &other), (true, &untar)];
        let checks = beside_peers(1000.0, peers.into_iter(), [30.0, 80.0]);
        let judged: Vec<(f64, bool)> = checks.iter().map(|check| (check.value, check.holds)).collect();
        assert_eq!(judged, [(20.0, false), (100.0, true)], "{checks:?}");
        assert!(checks[0].what.contains("of untar on") && checks[1].what.contains("one file at a time on"));
        // Without another server nothing is claimed.
        assert_eq!(beside_peers(1000.0, std::iter::empty(), [30.0, 80.0]), []);
    }
}
