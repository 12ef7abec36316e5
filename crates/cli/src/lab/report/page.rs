//! The page: rows one below another, each with what was asked, its picture, its table and its claims.

use super::figures::{claim, plain, shown};
use super::lines::{bars, class, lines};
use super::maps::{map, packets};
use crate::page::svg::{WIDE, both, plain_time};
use crate::page::words::sentence;
use crate::page::{STYLE, document};
use crate::units::{show_bytes, show_count};
use landfast_lab::report::content::{Kept, Left, Machine, Picture, Report, Table, Whose};
use landfast_lab::report::rows;
use maud::{Markup, html};

const OWN_STYLE: &str = include_str!("style.css");

pub const TITLE: &str = "NFS on small files: experiments beside real peers";

pub fn page(report: &Report) -> String {
    let broken = report.rows.iter().flat_map(|row| &row.found.checks).filter(|check| !check.holds).count();
    let claims = report.rows.iter().map(|row| row.found.checks.len()).sum::<usize>();
    let body = html! {
        div #verdict {
            h2 {
                (show_count(claims as u64)) " claims, "
                @if broken == 0 { "all hold" } @else { (show_count(broken as u64)) " of them do not hold" }
            }
            p {
                "Each row is one experiment on emulated disks and networks, with its peers in the same run on the same machine. In bars and tables \
                 green is Landfast, blue are others that keep what they acknowledge, grey is a local filesystem, red can lose what it has acknowledged. \
                 Compare figures within a row; times of another machine are others."
            }
            nav { ol {
                @for row in &report.rows { li value=(row.row) { a href={ "#row" (row.row) } { (row.title) } } }
            } }
        }
        @for row in &report.rows { (one_row(row)) }
        @if !report.left.is_empty() {
            section {
                h2 { "Not measured" }
                ul { @for left in &report.left { li { (not_measured(left)) } } }
            }
        }
    };
    let footer = html! { p { "Made by landfast " (env!("CARGO_PKG_VERSION")) " lab report." } };
    document(TITLE, OWN_STYLE, &when(report), &body, &footer)
}

fn when(report: &Report) -> Markup {
    let mut machines: Vec<&Machine> = report.rows.iter().map(|row| &row.machine).collect();
    machines.dedup();
    html! {
        @for machine in machines { p { (machine_words(machine)) } }
        p { (sentence(&size_words(report))) }
        @if let Some(busy) = busy_words(report) { p.busy { (busy) "." } }
    }
}

/// The size of the run, and the command that repeats it.
pub fn size_words(report: &Report) -> String {
    let measured: Vec<String> = report.rows.iter().map(|row| row.row.to_string()).collect();
    let only = match measured.len() + report.left.len() < rows().count() {
        true => format!(" --only {}", measured.join(",")),
        false => String::new(),
    };
    match report.rows.iter().any(|row| row.quick) {
        true => format!(
            "A quick run with small sizes: its times say little, its counts are exact. Again: `landfast lab report --quick{only} --out DIR`"
        ),
        false => format!("A run of the whole sizes. Again: `landfast lab report{only} --out DIR`"),
    }
}

/// The rows during which the machine had other work; none if there are none.
pub fn busy_words(report: &Report) -> Option<String> {
    let busy: Vec<&Kept> = report.rows.iter().filter(|row| row.was_busy()).collect();
    let numbers: Vec<String> = busy.iter().map(|row| row.row.to_string()).collect();
    let rows = match (busy.len(), report.rows.len()) {
        (0, _) => return None,
        (n, all) if n == all => "all rows".to_owned(),
        (1, _) => format!("row {}", numbers[0]),
        _ => format!("rows {}", numbers.join(", ")),
    };
    let most = busy.iter().filter_map(|row| row.others).fold(0.0, f64::max);
    Some(format!(
        "The machine was busy with other work during {rows} (up to {} of its {} processors): their counts are exact, their times rough",
        plain(most),
        report.rows.first()?.machine.processors
    ))
}

/// How much other work the machine had during a row.
pub fn others_words(row: &Kept) -> Option<String> {
    let others = plain(row.others?);
    let processors = row.machine.processors;
    Some(match row.was_busy() {
        true => format!("The machine was busy: {others} of its {processors} processors had other work"),
        false => format!("{others} of the machine's {processors} processors had other work"),
    })
}

pub fn machine_words(machine: &Machine) -> String {
    format!(
        "Linux {}, {} processors ({}), {} of memory",
        machine.kernel,
        machine.processors,
        machine.processor,
        show_bytes(machine.memory_bytes)
    )
}

pub fn not_measured(left: &Left) -> String {
    format!("Row {}, {}: {}", left.row, left.title, left.why)
}

fn one_row(row: &Kept) -> Markup {
    let found = &row.found;
    html! {
        section id={ "row" (row.row) } {
            h2 { (row.row) ". " (row.title) }
            p.asked { (row.question) }
            p { (row.source) "." }
            (both(|width| picture(&found.picture, width)))
            (table(&found.table))
            ul.claims { @for check in &found.checks { li.broken[!check.holds] { (claim(check)) } } }
            @if let Some(terms) = &found.terms {
                p.aside {
                    "Measured by themselves in this run: round trip " (plain_time(terms.rtt_ms / 1e3)) ", durable write to the log "
                    (plain_time(terms.log_write_ms / 1e3)) ", to the data disk " (plain_time(terms.data_write_ms / 1e3))
                    ", system calls for a file " (plain_time(terms.syscalls_ms / 1e3)) "."
                }
            }
            @if !found.notes.is_empty() { ul.aside { @for note in &found.notes { li { (sentence(note)) } } } }
            @if !found.absent.is_empty() {
                p.aside { "Not here:" }
                ul.aside { @for absent in &found.absent { li { (sentence(absent)) } } }
            }
            p.command { code { (row.command) } }
            p.aside { (ended(row)) ", in " (plain_time(row.took_s)) "." @if let Some(others) = others_words(row) { " " (others) "." } }
        }
    }
}

pub fn ended(row: &Kept) -> String {
    let at = i64::try_from(row.ended_s).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    at.map(|t| format!("Measured {t:.0}")).unwrap_or_else(|| "Measured".to_owned())
}

fn picture(of: &Picture, width: f64) -> Markup {
    match of {
        Picture::Bars { axis, bars: all } => bars(axis, all, width),
        Picture::Lines(charts) => html! { @for chart in charts { (lines(chart, width)) } },
        Picture::Map { x, y, value, panels } => map(x, y, value, panels, width),
        Picture::Packets(lanes) => packets(lanes, width),
    }
}

fn table(of: &Table) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { th { (of.first) } @for column in &of.columns { th.n { (column.name) } } } }
            tbody { @for line in &of.lines {
                tr.(class(line.whose)) {
                    th { (line.name) @if line.whose == Whose::NotDurable { " " span.risk { "NOT DURABLE" } } }
                    @for (column, value) in of.columns.iter().zip(&line.values) { td.n { (shown(*value, column.unit)) } }
                }
            } }
        } }
    }
}

/// The pictures of a row as files of their own, each a whole SVG.
pub fn pictures(row: &Kept) -> Vec<String> {
    let all: Vec<Markup> = match &row.found.picture {
        Picture::Lines(charts) => charts.iter().map(|chart| lines(chart, WIDE)).collect(),
        one => vec![picture(one, WIDE)],
    };
    // With a ground of its own: the page around it may be dark where the picture is light.
    let style = format!(
        "<style>{}{}svg {{ background: var(--page); }}</style>",
        svg_rules(STYLE),
        svg_rules(OWN_STYLE)
    );
    all.into_iter()
        .filter_map(|svg| {
            let text = svg.into_string();
            let (head, rest) = text.strip_prefix("<svg")?.split_once('>')?;
            Some(format!("<svg xmlns=\"http://www.w3.org/2000/svg\"{head}>{style}{rest}\n"))
        })
        .collect()
}

/// Of a style sheet what pictures need: colours, and rules that begin with `svg`.
fn svg_rules(style: &str) -> String {
    let mut rules = String::new();
    let mut in_colours = 0;
    for line in style.lines() {
        let opens = line.matches('{').count() as i32 - line.matches('}').count() as i32;
        let is_colours = line.starts_with(":root") || line == "@media (prefers-color-scheme: dark) {";
        // What places a picture in the page would shift and cut one that stands alone.
        let is_rule = line.starts_with("svg ") && !line.starts_with("svg {")
            || line.starts_with('.') && line.contains("{ fill:")
            || line.starts_with("@media (prefers-color-scheme: dark) { svg");
        if in_colours > 0 || is_colours || is_rule {
            rules.push_str(line.trim());
        }
        if in_colours > 0 || is_colours {
            in_colours += opens;
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_alone_have_their_colours_and_nothing_of_the_page() {
        let rules = format!("{}{}", svg_rules(STYLE), svg_rules(OWN_STYLE));
        assert!(rules.contains("--t0:") && rules.contains("svg .ours") && rules.contains(".rtt { fill"));
        assert!(!rules.contains("#verdict") && !rules.contains(".claims") && !rules.contains("margin"));
        assert_eq!(rules.matches('{').count(), rules.matches('}').count());
    }
}
