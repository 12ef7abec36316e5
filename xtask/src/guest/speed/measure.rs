//! Runs one command in the guest with either client, and measures its time and its RPCs.

use serde_json::Value;

use crate::guest::client::Client;
use crate::guest::mountstats::{self, Counts};
use crate::guest::recipe::Vers;
use crate::guest::setup::MOUNTPOINT;

const KERNEL: &str = include_str!("../../../guest/speed/kernel.sh");
const LANDFAST: &str = include_str!("../../../guest/speed/landfast.sh");

#[derive(Clone, Debug, PartialEq)]
pub struct Took {
    /// From start to end. What it wrote is durable then.
    pub seconds: f64,
    /// RPCs that its client sent.
    pub rpcs: u64,
    /// The same by operation, as far as the client counts them so.
    pub operations: Counts,
}

/// Runs a script on a mount of its own, in the mount's directory. If it `writes`, the end of the mount counts as well.
pub fn by_kernel(client: &mut Client, vers: Vers, writes: bool, script: &str) -> Result<Took, String> {
    let writes = if writes { "yes" } else { "" };
    let printed = client.run(Some(vers), &format!("WRITES={writes}\nwork() {{\n{script}\n}}\n{KERNEL}"))?;
    let (before, after) = (section(&printed, "before")?, section(&printed, "after")?);
    let rpcs = mountstats::sent(after, MOUNTPOINT)?.saturating_sub(mountstats::sent(before, MOUNTPOINT)?);
    let operations = Counts::parse(after, MOUNTPOINT)?.since(&Counts::parse(before, MOUNTPOINT)?);
    Ok(Took { seconds: seconds(&printed)?, rpcs, operations })
}

/// Runs one of Landfast's commands. It says itself what it sent: with `--json` on standard error, or with `--rpc-counts`.
pub fn by_landfast(client: &mut Client, script: &str) -> Result<Took, String> {
    let printed = client.run(None, &format!("work() {{\n{script}\n}}\n{LANDFAST}"))?;
    let rpcs = rpcs_told(section(&printed, "told")?).ok_or(format!("no number of RPCs: {printed}"))?;
    Ok(Took { seconds: seconds(&printed)?, rpcs, operations: Counts::default() })
}

/// The lines below `@name`.
fn section<'a>(printed: &'a str, name: &str) -> Result<&'a str, String> {
    let (_, rest) = printed
        .split_once(&format!("@{name}\n"))
        .ok_or(format!("the guest did not print @{name}: {printed}"))?;
    Ok(rest.split_once("\n@").map_or(rest, |(lines, _)| lines))
}

fn seconds(printed: &str) -> Result<f64, String> {
    let word = printed.split_once("@took ").and_then(|(_, rest)| rest.split_whitespace().next());
    let micros = word.and_then(|word| word.parse::<u64>().ok());
    micros.map(|micros| micros as f64 / 1e6).ok_or(format!("the guest did not print what it took: {printed}"))
}

/// From a line `NAME: ... N,NNN RPCs, ...`, or from an object with a member `rpcs`.
fn rpcs_told(told: &str) -> Option<u64> {
    if let Ok(json) = serde_json::from_str::<Value>(told) {
        return json.get("rpcs")?.as_u64();
    }
    let before = told.lines().find_map(|line| line.split_once(" RPCs,"))?.0;
    before.rsplit(' ').next()?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_says_of_its_rpcs_is_read() {
        assert_eq!(rpcs_told("ls: 4,161 listed in 0.18 s: 1,007 RPCs, 0.242 RPCs each\n"), Some(1007));
        assert_eq!(rpcs_told("{\n \"files\": 3,\n \"rpcs\": 11\n}\n"), Some(11));
        assert_eq!(rpcs_told("ls: something else\n"), None);
    }

    #[test]
    fn sections_end_where_the_next_one_begins() {
        let printed = "noise\n@took 1500000\n@before\na\nb\n@after\nc\n";
        assert_eq!(section(printed, "before"), Ok("a\nb"));
        assert_eq!(section(printed, "after"), Ok("c\n"));
        assert!(section(printed, "told").is_err());
        assert_eq!(seconds(printed), Ok(1.5));
        assert!(seconds("@before\n").is_err());
    }
}
