//! `landfast lab report`: measures the rows that are not kept yet, and writes the page, its JSON, and the same as Markdown with pictures.
//!
//! | file | subject |
//! |---|---|
//! | `page` | the page |
//! | `lines` | bars, and lines over one axis |
//! | `maps` | a figure for each pair of two others; requests as boxes |
//! | `figures` | how figures are shown |
//! | `markdown` | the same as Markdown |

mod figures;
mod lines;
mod maps;
mod markdown;
mod page;

use super::args::ReportArgs;
use crate::exit::{Exit, ok_or_print, print_json};
use crate::page::place::Place;
use crate::progress::Steps;
use landfast_lab::report::content::Report;
use landfast_lab::report::{self, Options};
use std::path::Path;

pub fn run(args: ReportArgs) -> Exit {
    if args.list {
        report::rows().for_each(|(number, title)| println!("{number:3} {title}"));
        return Exit::Done;
    }
    let options = Options {
        out: args.out,
        only: args.only,
        again: args.again,
        limit: args.limit,
        quick: args.quick,
        archive: args.archive,
    };
    let mut steps = Steps::new();
    let result = report::run(&options, &mut |what| steps.doing(what));
    steps.finish();
    let Some(report) = ok_or_print(result) else { return Exit::Failed };
    if ok_or_print(write(&options.out, &report)).is_none() {
        return Exit::Failed;
    }
    if args.json {
        if print_json(&report) != Exit::Done {
            return Exit::Failed;
        }
    } else {
        print(&options.out, &report);
    }
    match report.rows.is_empty() {
        true => Exit::Failed,
        false if report.holds() => Exit::Done,
        false => Exit::Partly,
    }
}

fn print(out: &Path, report: &Report) {
    for row in &report.rows {
        println!("{:2}. {} ({:.1} s)", row.row, row.title, row.took_s);
        for check in &row.found.checks {
            println!("    {} {}", check.verdict(), figures::claim(check));
        }
        row.found.absent.iter().for_each(|absent| println!("    not here: {absent}"));
    }
    report.left.iter().for_each(|left| println!("{}", page::not_measured(left)));
    println!("{}", out.join("report.html").display());
}

/// Writes all files; each replaces the old one as a whole.
fn write(out: &Path, report: &Report) -> Result<(), String> {
    let json = serde_json::to_string_pretty(report).map_err(|e| format!("the report as JSON: {e}"))?;
    let put =
        |name: &str, text: &str| Place::prepare(&out.join(name), &[]).and_then(|place| place.write(text));
    put("report.html", &page::page(report))?;
    put("report.json", &json)?;
    let pictures = out.join("results");
    std::fs::create_dir_all(&pictures).map_err(|e| format!("{}: {e}", pictures.display()))?;
    let mut counts = std::collections::BTreeMap::new();
    for row in &report.rows {
        let all = page::pictures(row);
        for (n, svg) in all.iter().enumerate() {
            put(&format!("results/{}", markdown::picture_name(row.row, n)), svg)?;
        }
        counts.insert(row.row, all.len());
    }
    put("results.md", &markdown::markdown(report, |row| counts.get(&row.row).copied().unwrap_or(0)))
}
