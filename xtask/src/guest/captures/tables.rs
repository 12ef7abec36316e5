//! Tables of service times: tshark's, and those of `landfast trace --json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::guest::recipe::Vers;
use crate::proc::{command, output};

/// By number of the procedure or operation: calls, and shortest, longest, mean and summed service times in microseconds.
pub type Rows = BTreeMap<u64, (u64, [u64; 4])>;

/// The version as RPC knows it.
pub fn rpc_version(vers: Vers) -> u64 {
    if vers == Vers::V3 { 3 } else { 4 }
}

/// tshark on a capture of a server at `port`. It is told where: left to itself it takes some ports of clients for other protocols.
pub fn tshark(file: &Path, port: u16, args: &[&str]) -> Result<String, String> {
    let mut tshark = command("tshark", ["-n", "-d", &format!("tcp.port=={port},rpc"), "-r"]);
    output(tshark.arg(file).args(args))
}

/// tshark's table of procedures.
pub fn procedures_of_tshark(file: &Path, port: u16, vers: Vers) -> Result<Rows, String> {
    let statistic = format!("rpc,srt,100003,{}", rpc_version(vers));
    let printed = tshark(file, port, &["-q", "-z", &statistic])?;
    let rows = printed_rows(&printed);
    if rows.is_empty() { Err(format!("tshark prints no table: {printed}")) } else { Ok(rows) }
}

fn printed_rows(printed: &str) -> Rows {
    let micros = |s: &str| s.replace('.', "").parse().ok();
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [index, _, calls, min, max, avg, sum] = words[..] else { return None };
        let times = [micros(min)?, micros(max)?, micros(avg)?, micros(sum)?];
        Some((index.parse().ok()?, (calls.parse().ok()?, times)))
    };
    printed.lines().filter_map(row).collect()
}

/// The same of version 4 by main operation, which tshark has for each reply, but in no table.
pub fn operations_of_tshark(file: &Path, port: u16) -> Result<Rows, String> {
    let replies = "nfs && rpc.msgtyp == 1 && rpc.program == 100003 && rpc.programversion == 4";
    let fields = ["-Y", replies, "-T", "fields", "-e", "nfs.main_opcode", "-e", "rpc.time"];
    summed(&tshark(file, port, &fields)?)
}

/// A line for each frame with replies: their main operations, a tab, their service times.
fn summed(printed: &str) -> Result<Rows, String> {
    let mut times: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in printed.lines() {
        let wrong = || format!("tshark's main operations and times: {line:?}");
        let (operations, of_frame) = line.split_once('\t').ok_or_else(wrong)?;
        let operations: Vec<&str> = operations.split(',').filter(|number| !number.is_empty()).collect();
        let of_frame: Vec<&str> = of_frame.split(',').collect();
        // NULL has no operation. One reply may have two, the first of which counts; of several replies each has one.
        if of_frame.len() > 1 && operations.len() != of_frame.len() {
            return Err(wrong());
        }
        for (operation, time) in operations.iter().zip(of_frame) {
            let ns = time.replace('.', "").parse().map_err(|_| wrong())?;
            times.entry(operation.parse().map_err(|_| wrong())?).or_default().push(ns);
        }
    }
    let row = |(operation, all): (u64, Vec<u64>)| {
        let (calls, sum) = (all.len() as u64, all.iter().sum::<u64>());
        let ends = all.iter().min().zip(all.iter().max());
        ends.map(|(min, max)| (operation, (calls, [*min, *max, sum / calls, sum].map(micros))))
    };
    Ok(times.into_iter().filter_map(row).collect())
}

/// As tshark prints them.
fn micros(ns: u64) -> u64 {
    (ns + 500) / 1000
}

/// The rows of `landfast trace --json` for NFS: of procedures, or of main operations.
pub fn rows_of_ours(report: &Value, vers: Vers, main_operations: bool) -> Result<Rows, String> {
    let row = |row: &Value| {
        // What is a fraction of a nanosecond, as of a mean, tshark cuts off; what is whole may be a little below it here.
        let micros = |key: &str| row[key].as_f64().map(|s| micros((s * 1e9 + 1e-3) as u64));
        let times = [micros("min_s")?, micros("max_s")?, micros("avg_s")?, micros("sum_s")?];
        Some((row["index"].as_u64()?, (row["calls"].as_u64()?, times)))
    };
    let ours = of_nfs(report, vers).filter(|row| row["main_operation"] == main_operations);
    ours.map(|found| row(found).ok_or(format!("--json: {found}"))).collect()
}

/// Calls by the name of the procedure, or main operation, in the same.
pub fn calls_by_name(report: &Value, vers: Vers, main_operations: bool) -> BTreeMap<String, u64> {
    let row = |row: &Value| Some((row["name"].as_str()?.to_owned(), row["calls"].as_u64()?));
    of_nfs(report, vers).filter(|row| row["main_operation"] == main_operations).filter_map(row).collect()
}

fn of_nfs(report: &Value, vers: Vers) -> impl Iterator<Item = &Value> {
    let rows = report["procedures"].as_array().into_iter().flatten();
    rows.filter(move |row| row["program"] == "NFS" && row["version"] == rpc_version(vers))
}

/// An error that names the rows which differ.
pub fn same(what: &str, ours: &Rows, theirs: &Rows) -> Result<(), String> {
    let numbers = ours.keys().chain(theirs.keys().filter(|number| !ours.contains_key(number)));
    let differ = numbers.filter(|number| ours.get(number) != theirs.get(number));
    let lines: Vec<String> = differ
        .map(|number| format!("  {number}: ours {:?}, tshark's {:?}", ours.get(number), theirs.get(number)))
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(format!("{what} differ:\n{}", lines.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tsharks_table_and_ours_have_the_same_rows() {
        let printed = "\
NFS Version 3 SRT Statistics:
Index  Procedure              Calls    Min SRT    Max SRT    Avg SRT    Sum SRT
    1  GETATTR                    3   0.000099   1.001000   0.333700   1.001100
==========================================================================
";
        let theirs = printed_rows(printed);
        assert_eq!(theirs, Rows::from([(1, (3, [99, 1_001_000, 333_700, 1_001_100]))]));
        let row = |version, sum_s| {
            serde_json::json!({"program": "NFS", "version": version, "index": 1, "name": "GETATTR", "calls": 3,
                "main_operation": false, "min_s": 0.0000994, "max_s": 1.001, "avg_s": 0.3336999, "sum_s": sum_s})
        };
        let report = serde_json::json!({"procedures": [row(3, 1.0010996), row(4, 1.0)]});
        let ours = rows_of_ours(&report, Vers::V3, false).expect("rows");
        assert_eq!(same("tables", &ours, &theirs), Ok(()));
        assert!(rows_of_ours(&report, Vers::V3, true).expect("rows").is_empty());
        let other = rows_of_ours(&report, Vers::V4_1, false).expect("rows");
        assert!(same("tables", &other, &theirs).is_err());
        assert!(same("tables", &Rows::new(), &theirs).is_err());
    }

    #[test]
    fn times_of_main_operations_are_summed() {
        let printed = "\t0.000000009\n24,9\t0.000002000\n38,38\t0.000001600,0.000004000\n38\t0.000003000\n";
        let wanted = Rows::from([(24, (1, [2, 2, 2, 2])), (38, (3, [2, 4, 3, 9]))]);
        assert_eq!(summed(printed), Ok(wanted));
        assert!(summed("3,9,15\t0.1,0.2\n").is_err());
        assert!(summed("3 0.1\n").is_err());
    }
}
