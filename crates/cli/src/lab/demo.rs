//! `landfast demo`: runs the demo, shows its progress, prints the table.

use super::args::DemoArgs;
use crate::exit::{Exit, ok_or_print, print_json};
use crate::progress::Steps;
use crate::scratch::Scratch;
use crate::table;
use crate::units::show_count;
use comfy_table::Table;
use landfast_lab::demo::{self, DemoOptions, DemoReport, Emulation, Progress, Row};

pub fn run(args: DemoArgs) -> Exit {
    let options =
        DemoOptions { archive: args.archive, flush: args.flush, log_flush: args.log_flush, rtt: args.rtt };
    let Some(_scratch) = ok_or_print(Scratch::new()) else { return Exit::Failed };
    let mut steps = Steps::new();
    let result = demo::run(&options, &mut |p| match p {
        Progress::Doing(what) => steps.doing(&what),
        Progress::Row(row) => {
            steps.done(&format!("{}: {} files/s", row.name, show_count(row.files_per_s.round() as u64)));
        }
    });
    steps.finish();
    let Some(report) = ok_or_print(result) else { return Exit::Failed };
    if !args.json {
        print(&report);
    } else if print_json(&report) != Exit::Done {
        return Exit::Failed;
    }
    if report.verified.differences == 0 { Exit::Done } else { Exit::Partly }
}

fn print(r: &DemoReport) {
    println!(
        "{}: {} files, {} onto a disk with a flush of {} ms, a log with {} ms, over a network with a round trip of {} ms",
        r.archive,
        show_count(r.files),
        crate::units::show_bytes(r.bytes),
        r.flush_ms,
        r.log_flush_ms,
        r.rtt_ms
    );
    println!();
    println!("{}", table(r));
    for row in r.rows.iter().filter(|row| row.estimated) {
        println!(
            "  {}: estimated from {} of {} files",
            row.name,
            show_count(row.measured_files),
            show_count(row.files)
        );
    }
    println!(
        "  limit: files/s that the equation allows: round trip {:.3} ms, a write made durable {:.3} ms on the log \
         and {:.3} ms on the disk, system calls {:.3} ms a file, all measured in this run",
        r.terms.rtt_ms, r.terms.log_write_ms, r.terms.data_write_ms, r.terms.syscalls_ms
    );
    for note in &r.notes {
        println!("  {note}");
    }
    if r.emulation == Emulation::Injected {
        println!("  run it as root, with FUSE and loop devices, to count flushes at emulated disks");
    }
    println!();
    let v = &r.verified;
    let when = if v.after_power_cut { "after a power cut, the tree of untar" } else { "the tree of untar" };
    if v.differences == 0 {
        println!(
            "verified: {when} is the archive's: {} members, {} bytes",
            show_count(v.members),
            show_count(v.bytes)
        );
    } else {
        println!("NOT VERIFIED: {when} differs from the archive in {} places:", show_count(v.differences));
        for line in &v.shown {
            println!("  {line}");
        }
    }
    if let (Some(untar), Some(sync), Some(local)) = (r.row("untar"), r.row("sync"), r.row("local")) {
        println!(
            "untar is {:.0} times as fast as one file at a time without the log, and {:.2} times local tar -x and sync ({:.1} s in all)",
            untar.files_per_s / sync.files_per_s.max(1e-9),
            untar.files_per_s / local.files_per_s.max(1e-9),
            r.total_s
        );
    }
}

fn table(r: &DemoReport) -> Table {
    let head = [
        "",
        "durable?",
        "seconds",
        "files/s",
        "RPCs\nper file",
        "disk flushes\nper file",
        "log flushes\nper file",
        "limit\nfiles/s",
    ];
    let mut t = table::table(head, 2);
    for row in &r.rows {
        let durable = if row.durable { "yes" } else { "NOT DURABLE" };
        t.add_row([title(&row.name), durable.to_owned()].into_iter().chain(figures(row)));
    }
    t
}

fn title(name: &str) -> String {
    let what = match name {
        "local" => "local tar -x + sync",
        "sync" => "one at a time, sync",
        "log" => "one at a time, log",
        "unsafe" => "one at a time, unsafe",
        "untar" => "landfast untar, log",
        other => other,
    };
    what.to_owned()
}

fn figures(row: &Row) -> [String; 6] {
    let flushes = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.3}"));
    let about = if row.estimated { "~" } else { "" };
    [
        format!("{about}{:.2}", row.seconds),
        show_count(row.files_per_s.round() as u64),
        if row.rpcs_per_file == 0.0 { "-".to_owned() } else { format!("{:.3}", row.rpcs_per_file) },
        flushes(row.disk_flushes_per_file),
        flushes(row.log_flushes_per_file),
        show_count(row.limit_files_per_s.round() as u64),
    ]
}
