//! Checks the demo: the promised speed, as ratios within one run.

use serde_json::Value;

/// `untar` through the log, compared with one operation at a time without it.
const UNTAR_TO_SYNC_MIN: f64 = 100.0;
/// `untar` through the log, compared with one operation at a time on nfs-ganesha that keeps the same promise.
const UNTAR_TO_PEER_MIN: f64 = 100.0;
/// `untar` through the log, compared with `untar` on the same nfs-ganesha.
const UNTAR_TO_UNTAR_ON_PEER_MIN: f64 = 20.0;
/// Flushes of the disk per file with `--durability sync`: five calls of a file are synchronous, and each needs one commit of the
/// journal, which is two flushes on a device without FUA. The rest is for directories.
const SYNC_DISK_FLUSHES_MAX: f64 = 11.0;
/// `untar`, compared with a local extraction on the same disk.
const UNTAR_TO_LOCAL_MIN: f64 = 0.5;
/// RPCs per file of `untar`.
const UNTAR_RPCS_MAX: f64 = 0.1;
/// Flushes of the log per file of `untar`.
const UNTAR_LOG_FLUSHES_MAX: f64 = 0.1;

/// The rows of nfs-ganesha where it is installed, with one operation at a time and with `untar`.
const PEER: &str = "ganesha-xfs";
const UNTAR_ON_PEER: &str = "ganesha-xfs-untar";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    pub what: String,
    pub kept: bool,
    /// Where it is broken, data was lost or is wrong.
    pub is_of_data: bool,
}

impl Promise {
    fn new((what, kept): (String, bool)) -> Promise {
        Promise { what, kept, is_of_data: false }
    }
}

/// Compares the output of `landfast demo --json` with the promises.
/// One file at a time is compared with its limit in the experiment `serial-flushes`, which measures the terms of the
/// limit at the same time.
pub fn judge(json: &str) -> Result<Vec<Promise>, String> {
    let demo: Value = serde_json::from_str(json).map_err(|e| format!("demo --json: {e}"))?;
    let rows = demo.get("rows").and_then(Value::as_array).ok_or("demo --json: no rows")?;
    let number = |row: &str, column: &str| {
        rows.iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some(row))
            .and_then(|entry| entry.get(column))
            .and_then(Value::as_f64)
            .ok_or(format!("demo --json: row {row} has no number {column}"))
    };
    let durable = |row: &str, wanted: bool| {
        let said = rows
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some(row))
            .and_then(|entry| entry.get("durable"))
            .and_then(Value::as_bool);
        let words = if wanted { "is durable" } else { "is marked as not durable" };
        (format!("{row} {words}"), said == Some(wanted))
    };
    let at_least = |what: &str, got: f64, min: f64| (format!("{what}: {got:.3}, at least {min}"), got >= min);
    let at_most = |what: &str, got: f64, max: f64| (format!("{what}: {got:.3}, at most {max}"), got <= max);

    let lost = |row: &str| {
        let entry = rows.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some(row))?;
        let lost = entry.get("lost").filter(|lost| lost.is_object())?;
        let count = |what: &str| lost.get(what).and_then(Value::as_u64);
        Some((count("names")? + count("damaged")?, count("acknowledged")?))
    };
    // Without emulated disks there is no power cut.
    let cut = demo.get("emulation").and_then(Value::as_str) == Some("disk");

    let untar = number("untar", "files_per_s")?;
    let mut lines = vec![
        at_least("untar to sync, files/s", untar / number("sync", "files_per_s")?, UNTAR_TO_SYNC_MIN),
        at_least("untar to local, files/s", untar / number("local", "files_per_s")?, UNTAR_TO_LOCAL_MIN),
        at_most("untar, RPCs per file", number("untar", "rpcs_per_file")?, UNTAR_RPCS_MAX),
        at_most(
            "untar, log flushes per file",
            number("untar", "log_flushes_per_file")?,
            UNTAR_LOG_FLUSHES_MAX,
        ),
        durable("sync", true),
        durable("log", true),
        durable("untar", true),
        durable("unsafe", false),
    ];
    if number(PEER, "files_per_s").is_ok() {
        let times = untar / number(PEER, "files_per_s")?;
        lines.push(at_least("untar to nfs-ganesha on XFS wsync, files/s", times, UNTAR_TO_PEER_MIN));
        let times = untar / number(UNTAR_ON_PEER, "files_per_s")?;
        let what = "untar to untar on nfs-ganesha on XFS wsync, files/s";
        lines.push(at_least(what, times, UNTAR_TO_UNTAR_ON_PEER_MIN));
        lines.extend([durable(PEER, true), durable("ganesha-ext4", false)]);
    }
    if cut {
        let flushes = number("sync", "disk_flushes_per_file")?;
        lines.push(at_most("sync, disk flushes per file", flushes, SYNC_DISK_FLUSHES_MAX));
        let what = "unsafe lost something in the power cut".to_owned();
        lines.push((what, lost("unsafe").is_some_and(|(lost, _)| lost > 0)));
        for row in [PEER, UNTAR_ON_PEER] {
            if let Some((lost, _)) = lost(row) {
                lines.push((format!("{row} lost nothing in the power cut: {lost} files lost"), lost == 0));
            }
        }
    }
    let mut promises: Vec<Promise> = lines.into_iter().map(Promise::new).collect();
    let mut data = |what: String, kept| promises.push(Promise { what, kept, is_of_data: true });
    if cut {
        for row in ["local", "sync", "log", "nfs-cp", "untar"] {
            // libnfs' client need not be installed.
            if row == "nfs-cp" && number(row, "files_per_s").is_err() {
                continue;
            }
            let (lost, of) = lost(row).ok_or(format!("demo --json: row {row} does not say what was lost"))?;
            data(
                format!("{row} lost nothing in the power cut: {lost} of {of} files lost"),
                lost == 0 && of > 0,
            );
        }
    }
    let differences = demo.get("verified").and_then(|verified| verified.get("differences"));
    let differences = differences.and_then(Value::as_u64).ok_or("demo --json: no verified.differences")?;
    data(format!("the tree of untar is the archive's: {differences} differences"), differences == 0);
    Ok(promises)
}

/// A report of a demo that kept its promises but for so many lost files and differences.
#[cfg(test)]
pub fn sample(lost: u64, differences: u64) -> String {
    tests::demo(5000.0, 0.04, 10.2, lost, differences)
}

#[cfg(test)]
mod tests {
    use super::judge;

    pub(super) fn demo(
        untar_files_per_s: f64,
        untar_rpcs_per_file: f64,
        sync_flushes: f64,
        log_lost: u64,
        differences: u64,
    ) -> String {
        let row = |name: &str, durable: bool, files_per_s: f64, rpcs: f64, lost: u64| {
            let flushes = if name == "sync" { sync_flushes } else { 0.0 };
            format!(
                r#"{{"name":"{name}","durable":{durable},"files":4096,"seconds":1.0,"files_per_s":{files_per_s},
                "rpcs_per_file":{rpcs},"disk_flushes_per_file":{flushes},"log_flushes_per_file":0.05,"limit_files_per_s":110.0,
                "lost":{{"acknowledged":4096,"names":{lost},"damaged":0,"bytes":0}}}}"#
            )
        };
        let rows = [
            row("local", true, 8000.0, 0.0, 0),
            row("ganesha-xfs", true, 15.0, 4.0, 0),
            row("ganesha-xfs-untar", true, 150.0, 0.4, 0),
            row("ganesha-ext4", false, 80.0, 4.0, 9),
            row("sync", true, 20.0, 4.0, 0),
            row("log", true, 100.0, 4.0, log_lost),
            row("unsafe", false, 150.0, 4.0, 4096),
            row("untar", true, untar_files_per_s, untar_rpcs_per_file, 0),
        ];
        let rows = rows.join(",");
        format!(r#"{{"emulation":"disk","rows":[{rows}],"verified":{{"differences":{differences}}}}}"#)
    }

    #[test]
    fn a_good_run_keeps_every_promise_and_a_bad_one_does_not() {
        let kept = |json: &str| judge(json).map(|lines| lines.iter().filter(|line| !line.kept).count());
        assert_eq!(kept(&demo(5000.0, 0.04, 10.2, 0, 0)), Ok(0));
        assert_eq!(kept(&demo(3500.0, 0.04, 10.2, 0, 0)), Ok(1), "less than half of local");
        assert_eq!(
            kept(&demo(2900.0, 0.04, 10.2, 0, 0)),
            Ok(2),
            "and less than 20 times untar on nfs-ganesha"
        );
        assert_eq!(kept(&demo(1000.0, 0.2, 10.2, 0, 0)), Ok(5), "slow and chatty");
        assert_eq!(kept(&demo(5000.0, 0.04, 12.3, 0, 0)), Ok(1), "too many flushes");
        assert_eq!(kept(&demo(5000.0, 0.04, 10.2, 1, 0)), Ok(1), "a file is lost");
        assert_eq!(kept(&demo(5000.0, 0.04, 10.2, 0, 1)), Ok(1), "the tree is not the archive's");
    }

    #[test]
    fn what_is_not_the_demo_is_an_error() {
        assert!(judge("{}").is_err());
        assert!(judge("no").is_err());
        assert!(judge(r#"{"rows":[{"name":"untar"}]}"#).is_err());
    }
}
