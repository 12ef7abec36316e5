//! The answer for people: the verdict, where the time went, the calls for each file.

use super::results::Results;
use crate::units::show_count;
use landfast_nfs::v3::NfsStat3;
use landfast_nfs::v4::NfsStat;
use landfast_trace::analysis::both::Both;
use landfast_trace::analysis::files::{Item, Shape};
use landfast_trace::analysis::words::{Unit, part};
use landfast_trace::analysis::{compound, is_v4, name};
use std::io::{self, Write};

/// Lines that are printed of a list.
const SHOWN: usize = 8;
/// Columns of a bar for the whole time.
const BAR: f64 = 40.0;
/// Columns after which long lines are broken.
const WIDTH: usize = 118;

impl Results {
    /// Prints what bounds the work, why, and what would change it.
    pub(super) fn print_answer(&self, out: &mut impl Write) -> io::Result<()> {
        let f = &self.findings;
        let Some(words) = f.words(&self.totals) else { return Ok(()) };
        writeln!(out, "{} (confidence: {})\n", words.verdict, words.confidence.name())?;
        let total = f.shares.total();
        let shown = |s: &f64| *s / total >= 0.0005;
        let unit = f.shares.parts().map(|(_, s)| s).into_iter().filter(shown);
        let unit = Unit::of(unit.chain([f.stalls.time_s]));
        for (bound, s) in f.shares.parts() {
            let share = s / total;
            if shown(&s) {
                let bar = "#".repeat((share * BAR).round() as usize);
                writeln!(out, "  {:<28} {:>9} {:>5.1} %  {bar}", part(bound), unit.show(s), share * 100.0)?;
            }
        }
        if f.stalls.time_s > 0.0 {
            writeln!(out, "  {:<28} {:>9}   apart", "stalls", unit.show(f.stalls.time_s))?;
        }
        for (title, lines) in [
            ("Why", &words.evidence),
            ("What would change it", &words.advice),
            ("To keep in mind", &words.doubts),
        ] {
            if !lines.is_empty() {
                writeln!(out, "\n{title}")?;
            }
            for line in lines {
                broken(out, line)?;
            }
        }
        writeln!(out)
    }

    /// Prints the sequences of calls for a file, the shapes of COMPOUNDs, clients and servers.
    pub(super) fn print_shapes(&self, out: &mut impl Write) -> io::Result<()> {
        let f = &self.findings;
        if !f.shapes.is_empty() {
            let shapes = f.shapes.iter().map(|(_, shape)| shape).take(SHOWN);
            let unit = Unit::of(shapes.chain([&f.other_files, &f.directories]).map(each_s));
            writeln!(out, "\nWhat was called for each file (*: had to be stable before the answer)")?;
            for (sequence, shape) in f.shapes.iter().take(SHOWN) {
                file_line(out, ["file", "files"], (shape, unit), &sequence_words(sequence))?;
            }
            let mut rest = f.other_files.clone();
            f.shapes.iter().skip(SHOWN).for_each(|(_, shape)| rest.add(shape));
            for (what, shape, words) in [
                (["file", "files"], &rest, "other sequences"),
                (["directory", "directories"], &f.directories, ""),
            ] {
                if shape.files > 0 {
                    file_line(out, what, (shape, unit), words)?;
                }
            }
        }
        if !f.compounds.is_empty() {
            writeln!(out, "\nCOMPOUNDs by their operations: how many, median and longest service time")?;
            let shown = || f.compounds.iter().take(SHOWN);
            let both = shown().map(|(_, times)| {
                [times.percentile_ns(50.0).unwrap_or(0.0) / 1e9, times.most_ns() as f64 / 1e9]
            });
            let both: Vec<[f64; 2]> = both.collect();
            let unit = Unit::of(both.iter().flatten().copied());
            for ((ops, times), both) in shown().zip(&both) {
                let [median, longest] = both.map(|s| unit.show(s));
                writeln!(
                    out,
                    "  {:>9} {median:>12} {longest:>12}  {}",
                    show_count(times.count()),
                    compound_words(ops)
                )?;
            }
            if f.compounds.len() > SHOWN {
                writeln!(out, "  and {} other kinds", f.compounds.len() - SHOWN)?;
            }
        }
        if let Some(both) = &f.both {
            self.print_both(out, both)?;
        }
        if f.pairs.len() > 1 {
            writeln!(
                out,
                "\nClients and servers, those first that lost most: calls, round trip, largest part of the time"
            )?;
            let unit = Unit::of(f.pairs.iter().take(SHOWN).map(|pair| pair.round_trip_ns / 1e9));
            for pair in f.pairs.iter().take(SHOWN) {
                let ends =
                    pair.ends.map_or("others".into(), |(client, server)| format!("{client} -> {server}"));
                let (bound, s) = pair.shares.parts()[0];
                let share = s / pair.shares.total().max(f64::MIN_POSITIVE) * 100.0;
                let trip = unit.show(pair.round_trip_ns / 1e9);
                writeln!(
                    out,
                    "  {ends:<34} {:>9} {trip:>10}  {} ({share:.0} %)",
                    show_count(pair.calls),
                    part(bound)
                )?;
            }
            if f.pairs.len() > SHOWN {
                writeln!(out, "  and {} others", f.pairs.len() - SHOWN)?;
            }
        }
        Ok(())
    }

    /// Prints service times at both ends, and the network's part.
    fn print_both(&self, out: &mut impl Write, both: &Both) -> io::Result<()> {
        let (rows, all) = both.rows();
        if all.calls == 0 {
            return Ok(());
        }
        writeln!(
            out,
            "\nAt both ends: calls, average service time at the client, at the server, the network's part"
        )?;
        let s = |ns: i128, calls: u64| ns as f64 / 1e9 / calls as f64;
        let unit =
            Unit::of(rows.values().flat_map(|sum| [s(sum.here_ns, sum.calls), s(sum.there_ns, sum.calls)]));
        let each = rows.iter().map(|(label, sum)| (name(*label), *sum)).chain([("all".to_owned(), all)]);
        for (what, sum) in each {
            let (here, there) = (s(sum.here_ns, sum.calls), s(sum.there_ns, sum.calls));
            let count = show_count(sum.calls);
            writeln!(
                out,
                "  {what:<22} {count:>9} {:>12} {:>12} {:>12}",
                unit.show(here),
                unit.show(there),
                unit.show(here - there)
            )?;
        }
        Ok(())
    }
}

/// The time of one file of a shape, in seconds.
fn each_s(shape: &Shape) -> f64 {
    shape.span_ns / shape.files.max(1) as f64 / 1e9
}

fn file_line(
    out: &mut impl Write,
    [one, many]: [&str; 2],
    (shape, unit): (&Shape, Unit),
    words: &str,
) -> io::Result<()> {
    let n = shape.files as f64;
    writeln!(
        out,
        "  {:>7} {}: {:.1} calls, {:.1} synchronous, {} each{}{words}",
        show_count(shape.files),
        if shape.files == 1 { one } else { many },
        shape.calls as f64 / n,
        shape.synchronous as f64 / n,
        unit.show(each_s(shape)),
        if words.is_empty() { "" } else { ": " },
    )
}

pub(super) fn compound_words(ops: &[u8]) -> String {
    if ops.is_empty() { "(encrypted, or not captured)".to_owned() } else { compound(ops) }
}

/// `LOOKUP(NFS3ERR_NOENT), CREATE*, SETATTR* x3`.
pub(super) fn sequence_words(sequence: &[Item]) -> String {
    let items = sequence.iter().map(|item| {
        let stable = if item.synchronous { "*" } else { "" };
        let error = match item.error {
            0 => String::new(),
            n if is_v4(item.label) => format!("({})", NfsStat(n)),
            n => format!("({})", NfsStat3(n)),
        };
        let times = match item.times {
            0 => " x9+".to_owned(),
            1 => String::new(),
            n => format!(" x{n}"),
        };
        format!("{}{stable}{error}{times}", name(item.label))
    });
    items.collect::<Vec<_>>().join(", ")
}

/// Prints a sentence, indented and broken between words.
fn broken(out: &mut impl Write, text: &str) -> io::Result<()> {
    let mut line = String::from(" ");
    for word in text.split(' ') {
        if line.len() + word.len() + 1 > WIDTH {
            writeln!(out, "{line}")?;
            line = String::from("   ");
        }
        line.push(' ');
        line.push_str(word);
    }
    writeln!(out, "{line}")
}
