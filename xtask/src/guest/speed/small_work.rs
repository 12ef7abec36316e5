//! What takes few round trips or many, by the way in which they are used: a first open below many directories, and a web page's
//! hundred files. `landfast lab at` does both on a mount by system calls and on a server by the library, and times the work alone.

use serde::Deserialize;

use super::{Row, Side, Speed, Subject};

const NESTED_OPEN: &str = include_str!("../../../guest/speed/nested-open.sh");
const WEB_PAGE: &str = include_str!("../../../guest/speed/web-page.sh");

/// Directories above the file.
pub const DEPTHS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// How often a file is opened; the round in the middle counts.
const OPENS: usize = 3;

/// How often a page comes: once to a client that knows nothing, then again; of those the one in the middle counts.
const PAGES: usize = 4;

/// What a page is called that comes for the first time, and one that came before.
pub const FIRST: &str = "first";
pub const AGAIN: &str = "again";

/// One round, as `landfast lab at --json` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Round {
    seconds: f64,
    rpcs: u64,
}

/// Makes the files of both, which stay.
pub fn make(speed: &mut Speed<'_>) -> Result<(), String> {
    let url = speed.url();
    let mut script = String::new();
    for depth in DEPTHS {
        script += &format!("/root/landfast lab at nested-open {url}/ --depth {depth} --make\n");
    }
    script += &format!("/root/landfast lab at web-page {url}/ --make\n");
    speed.client.run(None, &script).map(drop)
}

/// First opens at one round trip.
pub fn nested_open(speed: &mut Speed<'_>, round_trip_ms: f64) -> Result<(), String> {
    let depths = DEPTHS.map(|depth| depth.to_string());
    let script = format!("DEPTHS='{}' ROUNDS={OPENS}\n{NESTED_OPEN}", depths.join(" "));
    for side in speed.sides() {
        speed.hear(&format!("first opens, {side}"));
        let printed = speed.client.run(side.vers(), &script)?;
        for depth in &depths {
            let rounds = rounds(&printed, depth, OPENS)?;
            speed.rows.push(row(Subject::NestedOpen, depth, round_trip_ms, side, middle(rounds)?));
        }
    }
    Ok(())
}

/// Pages at one round trip.
pub fn web_page(speed: &mut Speed<'_>, round_trip_ms: f64) -> Result<(), String> {
    for side in speed.sides() {
        speed.hear(&format!("web pages, {side}"));
        // Other contents each time, so that it shows who has written.
        speed.seed += 1;
        let script = format!("ROUNDS={PAGES} SEED={}\n{WEB_PAGE}", speed.seed);
        let printed = speed.client.run(side.vers(), &script)?;
        let mut again = rounds(&printed, "page", PAGES)?;
        let first = vec![again.remove(0)];
        for (which, rounds) in [(FIRST, first), (AGAIN, again)] {
            speed.rows.push(row(Subject::WebPage, which, round_trip_ms, side, middle(rounds)?));
        }
    }
    Ok(())
}

fn row(subject: Subject, work: &str, round_trip_ms: f64, side: Side, round: Round) -> Row {
    Row {
        subject,
        work: work.to_owned(),
        round_trip_ms,
        client: side.to_string(),
        objects: 1,
        seconds: round.seconds,
        rpcs: round.rpcs as f64,
        operations: Default::default(),
    }
}

/// The rounds called so, of which there must be as many.
fn rounds(printed: &str, name: &str, wanted: usize) -> Result<Vec<Round>, String> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix("@round ")?.split_once(' '));
    let ours = lines.filter(|(called, _)| *called == name);
    let read = |(_, json): (&str, &str)| serde_json::from_str(json).map_err(|e| format!("{json}: {e}"));
    let rounds: Vec<Round> = ours.map(read).collect::<Result<_, _>>()?;
    if rounds.len() == wanted { Ok(rounds) } else { Err(format!("not {wanted} rounds of {name}: {printed}")) }
}

/// The one that took neither long nor short.
fn middle(mut rounds: Vec<Round>) -> Result<Round, String> {
    rounds.sort_unstable_by(|a, b| a.seconds.total_cmp(&b.seconds));
    rounds.get(rounds.len() / 2).copied().ok_or("no round".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_read_by_their_names_and_counted() {
        let printed = "noise\n@round 1 {\"seconds\":3.0,\"rpcs\":5}\n@round 1 {\"seconds\":1.0,\"rpcs\":6}\n\
                       @round 16 {\"seconds\":9.0,\"rpcs\":7}\n@round 1 {\"seconds\":2.0,\"rpcs\":4}\n";
        let found = rounds(printed, "1", 3).expect("rounds");
        assert_eq!(middle(found), Ok(Round { seconds: 2.0, rpcs: 4 }));
        assert!(rounds(printed, "16", 2).is_err());
        // Whoever cannot say what it sent is no client of NFS.
        assert!(rounds("@round 1 {\"seconds\":3.0,\"rpcs\":null}\n", "1", 1).is_err());
    }
}
