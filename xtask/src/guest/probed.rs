//! `landfast probe` on the kernel's server: each call has its times, what the kernel is known to offer is found, nothing is left.

use serde_json::Value;

use super::recipe::Vers;
use crate::proc::{command, output};

/// What the kernel's server takes in one COMPOUND, all of its releases: NFSD_MAX_OPS_PER_COMPOUND is 50, and was 16.
const OPERATIONS: std::ops::RangeInclusive<u64> = 16..=50;

/// Probes the export at `url`.
pub fn check(binary: &str, url: &str, vers: Vers) -> Result<(), String> {
    let text = output(&mut command(binary, ["probe", "--json", "--seconds", "4", url]))?;
    let report: Value =
        serde_json::from_str(&text).map_err(|e| format!("probe of NFS {vers}: {e}: {text}"))?;
    let wrong = |what: &str| Err(format!("probe of NFS {vers}: {what}: {report:#}"));
    if report["version"] != vers.to_string() || report["versions"].as_array().is_none_or(|all| all.len() != 4)
    {
        return wrong("other versions");
    }
    let measured = |l: &Value| l["calls"].as_u64() > Some(0) && l["min_s"].as_f64() > Some(0.0);
    let operations = if vers == Vers::V3 { 9 } else { 10 };
    if report["latencies"].as_array().is_none_or(|all| all.len() != operations || !all.iter().all(measured)) {
        return wrong("an operation has no times");
    }
    let taken = report["operations_per_compound"]["taken"].as_u64();
    if taken.is_some_and(|n| !OPERATIONS.contains(&n)) || taken.is_some() == (vers == Vers::V3) {
        return wrong("operations in a COMPOUND");
    }
    // It hands out delegations for reading where it can call back.
    let offered = report["delegations"]["read"]["offered"] == true;
    if offered == (vers == Vers::V3) {
        return wrong("delegations");
    }
    let listed = output(&mut command(binary, ["ls", url]))?;
    if listed.contains("landfast-probe-") {
        return wrong("its directory is still there");
    }
    let terms = &report["terms"];
    println!(
        "NFS {vers}: probed; {} s a round trip, {} s for stable storage",
        terms["round_trip_s"], terms["persistence_s"]
    );
    Ok(())
}
