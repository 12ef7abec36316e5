//! Prints a prediction: a table, and a chart of bars.

use super::Forecast;
use crate::table::table;
use crate::units::{show_bytes, show_count};
use comfy_table::Table;
use landfast_model::predict::{Earned, Outlook, Version};
use landfast_trace::analysis::words::Unit;
use std::io::{self, Write};

/// Columns of a chart if the terminal does not tell.
const COLUMNS_DEFAULT: usize = 80;
/// The least room for bars.
const BAR_MIN: usize = 10;

/// The characters for the parts of a bar, with their names: round trips, persistence, server, everything else.
const PARTS: [(char, &str); 4] =
    [('█', "round trips"), ('▓', "persistence"), ('▒', "server"), ('░', "client, bandwidth")];

fn parts(outlook: &Outlook) -> [f64; 4] {
    let s = &outlook.shares;
    [s.rtt, s.persistence, s.server, s.client + s.bandwidth + s.loss]
}

fn within(outlook: &Outlook, unit: &Unit) -> String {
    outlook.within_s.map_or_else(
        || "not tried".to_owned(),
        |(low, high)| format!("{} to {}", unit.show(low), unit.show(high)),
    )
}

impl Forecast {
    pub(super) fn print(&self, chart: bool) -> io::Result<()> {
        let mut out = crate::say::stdout();
        writeln!(out, "{}", self.head())?;
        writeln!(out)?;
        writeln!(out, "{}", self.table())?;
        if chart {
            let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
            writeln!(out)?;
            for line in bars(&self.rows(), columns.unwrap_or(COLUMNS_DEFAULT)) {
                writeln!(out, "{line}")?;
            }
        }
        writeln!(out)?;
        for note in self.notes() {
            writeln!(out, "{note}")?;
        }
        out.flush()
    }

    /// A sentence for the work, and one for its costs.
    fn head(&self) -> String {
        let t = &self.terms;
        let calls = &self.job.calls;
        let what = match &self.tree {
            Some(tree) => {
                let version = if self.manner.version == Version::V3 { "3" } else { "4" };
                format!(
                    "tar -x of {} files, {}, and {} other objects over NFSv{version}",
                    show_count(tree.files),
                    show_bytes(tree.bytes),
                    show_count(self.job.others)
                )
            }
            None => "What the trace saw, again".to_owned(),
        };
        let per_file = match self.job.files {
            0 => String::new(),
            files => format!(" ({:.1} a file)", calls.all as f64 / files as f64),
        };
        let times = [t.round_trip_s, t.server_s, t.persistence_s, t.think_s, t.file_think_s];
        let unit = Unit::of(times);
        let [round_trip, server, persistence, think, file_think] = times.map(|s| unit.show(s));
        let mut costs = vec![
            format!("round trip {round_trip}"),
            format!("server {server} a call"),
            format!("persistence {persistence} more"),
        ];
        if t.think_s > 0.0 {
            costs.push(format!("client {think} between calls"));
        }
        if t.file_think_s > 0.0 {
            costs.push(format!("{file_think} more before each file"));
        }
        if let Some(bytes) = t.upload_bytes_per_s.or(t.download_bytes_per_s) {
            costs.push(format!("{} a second", show_bytes(bytes as u64)));
        }
        format!(
            "{what}: {} calls{per_file}, {} of them stable before their answer.\n{}.",
            show_count(calls.all),
            show_count(calls.synchronous),
            costs.join(", ")
        )
    }

    fn rows(&self) -> Vec<(&str, Option<&Outlook>)> {
        let p = &self.prediction;
        let mut rows = vec![("now", Some(&p.now))];
        rows.extend(p.each.iter().map(|o| (o.name.as_str(), o.outlook.as_ref())));
        rows.extend(p.together.as_ref().map(|o| ("all of them", Some(o))));
        rows
    }

    fn table(&self) -> Table {
        let head = [
            "",
            "time",
            "within",
            "times\nas fast",
            "round\ntrips",
            "persistence",
            "server",
            "client,\nbandwidth",
            "calls",
        ];
        let mut t = table(head, 1);
        let now = self.prediction.now.seconds;
        let measured = self.prediction.measured_s;
        let rows = self.rows();
        let outlooks = || rows.iter().filter_map(|(_, outlook)| *outlook);
        // Values below each other have one unit: one for whole times, one for parts.
        let of_whole = |o: &Outlook| [Some(o.seconds), o.within_s.map(|w| w.0), o.within_s.map(|w| w.1)];
        let whole = Unit::of(outlooks().flat_map(of_whole).flatten().chain(measured));
        let of_parts = Unit::of(outlooks().flat_map(parts));
        if let Some(measured) = measured {
            t.add_row(["now, as it was seen".to_owned(), whole.show(measured)]);
        }
        for (name, outlook) in rows {
            let mut cells = vec![name.to_owned()];
            match outlook {
                None => cells.push("-".to_owned()),
                Some(o) => {
                    cells.extend([
                        whole.show(o.seconds),
                        within(o, &whole),
                        format!("{:.1}", now / o.seconds),
                    ]);
                    cells.extend(parts(o).map(|s| of_parts.show(s)));
                    cells.push(show_count(o.calls));
                }
            }
            t.add_row(cells);
        }
        t
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for outcome in &self.prediction.each {
            if let Some(why) = outcome.unknown {
                notes.push(format!("{}: {why}", outcome.name));
            }
        }
        if self.terms.think_s == 0.0 && self.terms.file_think_s == 0.0 {
            notes.push(
                "what the client itself needs between two calls and before a file is not in it (--think, --file-think)".to_owned(),
            );
        }
        let untried = self.prediction.each.iter().filter(|o| o.outlook.is_some_and(|o| o.within_s.is_none()));
        let untried: Vec<&str> = untried.map(|o| o.name.as_str()).collect();
        if !untried.is_empty() {
            notes.push(format!(
                "not tried: nothing that does {} was there to measure, so this has no error bar; it is arithmetic only",
                untried.join(", ")
            ));
        }
        let earned = Earned::stored();
        match earned.cases().len() {
            0 => notes.push("within: no prediction has been tried yet".to_owned()),
            n => notes.push(format!(
                "within: what nine of ten predictions of the kind were off by, wider where few were tried, of {n} (landfast lab run predicted)"
            )),
        }
        notes
    }
}

/// A bar for each row; the longest one fills the room.
fn bars(rows: &[(&str, Option<&Outlook>)], columns: usize) -> Vec<String> {
    let rows: Vec<_> = rows.iter().filter_map(|(name, o)| Some((*name, (*o)?))).collect();
    let unit = Unit::of(rows.iter().map(|(_, o)| o.seconds));
    let times: Vec<String> = rows.iter().map(|(_, o)| unit.show(o.seconds)).collect();
    let widest = |texts: &mut dyn Iterator<Item = &str>| texts.map(|t| t.chars().count()).max().unwrap_or(0);
    let names = widest(&mut rows.iter().map(|(name, _)| *name));
    let figures = widest(&mut times.iter().map(String::as_str));
    let room = columns.saturating_sub(names + figures + 4).max(BAR_MIN);
    let longest = rows.iter().map(|(_, o)| o.seconds).fold(0.0, f64::max);
    let mut lines: Vec<String> = rows
        .iter()
        .zip(&times)
        .map(|((name, o), time)| {
            format!("{name:names$}  {}  {time}", bar(o, longest, room)).trim_end().to_owned()
        })
        .collect();
    let legend: Vec<String> = PARTS.iter().map(|(c, what)| format!("{c} {what}")).collect();
    lines.push(format!("{:names$}  {}", "", legend.join("  ")));
    lines
}

/// One bar. Its parts are rounded at their ends, so that none is off by more than half a column.
fn bar(outlook: &Outlook, longest: f64, room: usize) -> String {
    if longest <= 0.0 {
        return String::new();
    }
    let (mut text, mut up_to, mut drawn) = (String::new(), 0.0, 0);
    for ((c, _), seconds) in PARTS.iter().zip(parts(outlook)) {
        up_to += seconds;
        let end = (up_to / longest * room as f64).round() as usize;
        text.extend(std::iter::repeat_n(*c, end.saturating_sub(drawn)));
        drawn = drawn.max(end);
    }
    // Even the shortest time is visible.
    if text.is_empty() { "▏".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_model::Shares;

    fn outlook(rtt: f64, persistence: f64) -> Outlook {
        let shares = Shares { rtt, persistence, ..Shares::default() };
        Outlook { seconds: shares.total(), within_s: None, shares, calls: 1 }
    }

    #[test]
    fn bars_are_as_long_as_their_times() {
        let (now, then, none) = (outlook(10.0, 30.0), outlook(10.0, 0.0), outlook(0.01, 0.0));
        let rows = [("now", Some(&now)), ("then", Some(&then)), ("not", None), ("soon", Some(&none))];
        let lines = bars(&rows, 52);
        let drawn = |line: &str| line.chars().filter(|c| "█▓▒░▏".contains(*c)).collect::<String>();
        let full = 52 - 4 - "40.000 s".len() - 4;
        assert_eq!(lines.len(), 4);
        assert_eq!(drawn(&lines[0]).chars().count(), full);
        assert_eq!(drawn(&lines[0]).chars().filter(|c| *c == '█').count(), full / 4);
        assert_eq!(drawn(&lines[1]).chars().count(), full / 4);
        assert_eq!(drawn(&lines[2]), "▏");
        assert!(lines[..3].iter().all(|l| l.chars().count() <= 52), "{lines:?}");
        // Times below each other have one unit.
        let ends = ["40.000 s", "10.000 s", "0.010 s"];
        assert!(lines.iter().zip(ends).all(|(line, end)| line.ends_with(end)), "{lines:?}");
    }

    #[test]
    fn a_narrow_terminal_has_bars_too() {
        let now = outlook(1.0, 1.0);
        assert!(bars(&[("a name that is long", Some(&now))], 0)[0].contains('█'));
    }
}
