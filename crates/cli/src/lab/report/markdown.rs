//! The report as Markdown with pictures beside it.

use super::figures::{claim, shown};
use super::page::{TITLE, busy_words, ended, machine_words, not_measured, others_words, size_words};
use crate::page::svg::plain_time;
use landfast_lab::report::content::{Kept, Report, Table, Whose};
use std::fmt::Write;

const A_DAY_S: u64 = 86_400;

/// The page. Pictures are at `results/ROW.svg`, further ones of a row at `results/ROW-2.svg` and so on; `pictures`: how many a row has.
pub fn markdown(report: &Report, pictures: impl Fn(&Kept) -> usize) -> String {
    let mut out = format!("# {TITLE}\n\n");
    let say = &mut out;
    // Writing to a String does not fail.
    let _ = write!(
        say,
        "Written by `landfast lab report` ([what it measures](lab.md#the-report)): each row is one experiment on emulated disks and \
         networks, with its peers in the same run on the same machine. In bars green is Landfast, blue are others that keep what they acknowledge, \
         grey is a local filesystem, red can lose what it has acknowledged. Compare figures within a row; another machine has other times.\n\n"
    );
    if let (Some(row), Some(last)) = (report.rows.first(), report.rows.iter().max_by_key(|row| row.ended_s)) {
        let claims = report.rows.iter().flat_map(|row| &row.found.checks);
        let (all, broken) = (claims.clone().count(), claims.filter(|check| !check.holds).count());
        let first = report.rows.iter().map(|row| row.ended_s).min().unwrap_or(last.ended_s);
        // Rows that an earlier run has kept.
        let since = match last.ended_s - first > A_DAY_S {
            true => {
                " The first of these rows was measured more than a day before; each row has its own command."
            }
            false => "",
        };
        let _ = writeln!(say, "- {all} claims, {broken} of them do not hold. {}.{since}", ended(last));
        let _ = writeln!(say, "- {}.", machine_words(&row.machine));
        let _ = writeln!(say, "- {}.", size_words(report));
        if let Some(busy) = busy_words(report) {
            let _ = writeln!(say, "- **{busy}.**");
        }
        let _ = writeln!(say);
    }
    for row in &report.rows {
        one_row(say, row, pictures(row));
    }
    if !report.left.is_empty() {
        let _ = writeln!(say, "## Not measured\n");
        for left in &report.left {
            let _ = writeln!(say, "- {}", not_measured(left));
        }
    }
    out
}

/// The file of a row's picture.
pub fn picture_name(row: u8, n: usize) -> String {
    if n == 0 { format!("{row}.svg") } else { format!("{row}-{}.svg", n + 1) }
}

fn one_row(say: &mut String, row: &Kept, pictures: usize) {
    let found = &row.found;
    let _ = write!(say, "## {}. {}\n\n{}\n\n{}.\n\n", row.row, row.title, row.question, row.source);
    for n in 0..pictures {
        let _ = write!(say, "![{}](results/{})\n\n", row.title, picture_name(row.row, n));
    }
    table(say, &found.table);
    for check in &found.checks {
        let _ =
            writeln!(say, "- {} {}", if check.holds { "Holds:" } else { "**Does not hold:**" }, claim(check));
    }
    let _ = writeln!(say);
    if let Some(terms) = &found.terms {
        let ms = |ms: f64| plain_time(ms / 1e3);
        let _ = writeln!(
            say,
            "Measured by themselves in this run: round trip {}, durable write to the log {}, to the data disk {}, system calls for a file {}.\n",
            ms(terms.rtt_ms),
            ms(terms.log_write_ms),
            ms(terms.data_write_ms),
            ms(terms.syscalls_ms)
        );
    }
    for note in &found.notes {
        let _ = writeln!(say, "- {note}");
    }
    for absent in &found.absent {
        let _ = writeln!(say, "- Not here: {absent}");
    }
    let others = others_words(row).map(|words| format!(" {words}.")).unwrap_or_default();
    let _ = write!(say, "\nAgain, in {}: `{}`.{others}\n\n", plain_time(row.took_s), row.command);
}

fn table(say: &mut String, of: &Table) {
    let head: Vec<&str> = of.columns.iter().map(|c| c.name.as_str()).collect();
    let _ = writeln!(say, "| {} | {} |", of.first, head.join(" | "));
    let _ = writeln!(say, "|---|{}", "---:|".repeat(of.columns.len()));
    for line in &of.lines {
        let cells: Vec<String> =
            of.columns.iter().zip(&line.values).map(|(c, v)| shown(*v, c.unit)).collect();
        let name = match line.whose {
            Whose::NotDurable => format!("{} (**not durable**)", line.name),
            Whose::Ours => format!("**{}**", line.name),
            _ => line.name.clone(),
        };
        let _ = writeln!(say, "| {name} | {} |", cells.join(" | "));
    }
    let _ = writeln!(say);
}
