//! `landfast demo`: runs the demo, shows its progress, prints the table.

use super::args::DemoArgs;
use crate::exit::{Exit, ok_or_print, print_json};
use crate::progress::Steps;
use crate::scratch::Scratch;
use crate::table;
use crate::units::{show_bytes, show_count};
use comfy_table::Table;
use landfast_lab::demo::{self, DemoOptions, DemoReport, Emulation, Progress, Row};
use landfast_lab::peers::packages;

pub fn run(args: DemoArgs) -> Exit {
    if args.install_peers && ok_or_print(install_peers()).is_none() {
        return Exit::Failed;
    }
    let options =
        DemoOptions { archive: args.archive, flush: args.flush, log_flush: args.log_flush, rtt: args.rtt };
    let Some(_scratch) = ok_or_print(Scratch::new()) else { return Exit::Failed };
    let mut steps = Steps::new();
    let result = demo::run(&options, &mut |p| match p {
        Progress::Doing(what) => steps.doing(&what),
        Progress::Row(row) => {
            steps.done(&format!("{}: {} files/s", title(&row.name), show_per_s(row.files_per_s)));
        }
    });
    steps.finish();
    let Some(report) = ok_or_print(result) else { return Exit::Failed };
    if !args.json {
        print(&report);
    } else if print_json(&report) != Exit::Done {
        return Exit::Failed;
    }
    let kept = report.verified.differences == 0 && report.broken_promises().next().is_none();
    if kept { Exit::Done } else { Exit::Partly }
}

fn install_peers() -> Result<(), landfast_lab::error::Error> {
    let missing = packages::missing();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("landfast: {}", packages::plan(&missing));
    packages::install(&missing)
}

fn print(r: &DemoReport) {
    println!(
        "{}: {} files, {}, onto a disk with a flush of {} ms,",
        r.archive,
        show_count(r.files),
        show_bytes(r.bytes),
        r.flush_ms,
    );
    println!("a log with {} ms, over a network with a round trip of {} ms", r.log_flush_ms, r.rtt_ms);
    println!();
    println!("{}", table(r));
    for line in explained(r) {
        for part in wrapped(&line, WIDTH - 4) {
            println!("  {part}");
        }
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
    for row in r.broken_promises() {
        println!("BROKEN PROMISE: {}: {}", title(&row.name), loss(row));
    }
    for line in wrapped(&headline(r), WIDTH) {
        println!("{line}");
    }
}

/// Columns of the table, and of what stands around it.
const WIDTH: usize = 100;

/// Words in lines of at most so many columns; those after the first are indented.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The lines below the table.
fn explained(r: &DemoReport) -> Vec<String> {
    let mut lines = vec![
        "All but tar and untar do one operation at a time, as tar through a kernel's client does; nfs-cp is libnfs'.".to_owned(),
    ];
    let short: Vec<&str> = r.rows.iter().filter(|row| !row.complete).map(|row| title(&row.name)).collect();
    if !short.is_empty() {
        lines.push(format!(
            "Not the whole archive, which would take too long; files/s are those of the files done: {}.",
            short.join("; ")
        ));
    }
    if r.rows.iter().any(|row| row.lost.is_some()) {
        lines.push(
            "lost: of the files done, those that were gone, damaged or without their last name after a power cut right after the \
             last acknowledgement; who does one operation at a time had just renamed some of them."
                .into(),
        );
    }
    for row in r.rows.iter().filter(|row| row.lost.is_some_and(|lost| lost.files() > 0)) {
        lines.push(format!("{}: {}.", title(&row.name), loss(row)));
    }
    lines.push(format!(
        "limit: what the equation allows: round trip {:.3} ms, a durable write {:.3} ms on the log and {:.3} ms on the disk, \
         system calls {:.3} ms a file, all measured in this run.",
        r.terms.rtt_ms, r.terms.log_write_ms, r.terms.data_write_ms, r.terms.syscalls_ms
    ));
    if !r.doubts.is_empty() {
        lines.push(format!("This run was disturbed, its times are rough: {}.", r.doubts.join("; ")));
    }
    lines.extend(r.notes.iter().cloned());
    if r.emulation == Emulation::Injected {
        lines.push("run it as root, with FUSE and loop devices, to count flushes at emulated disks".into());
    }
    lines
}

fn loss(row: &Row) -> String {
    let lost = row.lost.unwrap_or_default();
    format!(
        "the power cut took {} of {} acknowledged files ({} names, {} damaged), {}",
        show_count(lost.files()),
        show_count(lost.acknowledged),
        show_count(lost.names),
        show_count(lost.damaged),
        show_bytes(lost.bytes)
    )
}

/// `untar` beside the best honest peer and the local disk, all of this run and in files a second.
fn headline(r: &DemoReport) -> String {
    let Some(h) = r.headline() else { return String::new() };
    let times = |other: f64| h.untar_files_per_s / other.max(1e-9);
    let peer = |peer: &Row| {
        let files =
            if peer.complete { String::new() } else { format!(" over {} files", show_count(peer.files)) };
        format!("({}: {} files/s{files})", title(&peer.name), show_per_s(peer.files_per_s))
    };
    let same = h.peer_untar.as_ref().map(|row| {
        let times = times(row.files_per_s);
        format!(
            "{times:.0} times those of the same client on the best other server that lost nothing {}",
            peer(row)
        )
    });
    let one = h.peer.as_ref().map(|row| {
        let times = times(row.files_per_s);
        format!(
            "{times:.0} times those of one operation at a time on the best other server that lost nothing {}",
            peer(row)
        )
    });
    let beside = match (same, one) {
        (Some(same), Some(one)) => format!("{same}, {one}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => format!(
            "{:.0} times those of Landfast's own server without the log (no other server was measured)",
            times(h.sync_files_per_s)
        ),
    };
    format!(
        "untar: {} files/s, {beside}, and {:.2} times those of tar -x and sync on the disk itself ({:.1} s in all)",
        show_per_s(h.untar_files_per_s),
        times(h.local_files_per_s),
        r.total_s
    )
}

fn table(r: &DemoReport) -> Table {
    let head = [
        "",
        "durable?",
        "files\ndone",
        "files/s",
        "RPCs\na file",
        "disk\nflushes\na file",
        "log\nflushes\na file",
        "limit\nfiles/s",
        "lost",
    ];
    let mut t = table::table(head, 2);
    for row in &r.rows {
        let durable = if row.durable { "yes" } else { "NOT DURABLE" };
        t.add_row([title(&row.name), durable].map(str::to_owned).into_iter().chain(figures(row)));
    }
    t
}

fn title(name: &str) -> &str {
    match name {
        "local" => "local tar -x + sync",
        "ganesha-xfs" => "nfs-ganesha, XFS wsync",
        "ganesha-xfs-untar" => "nfs-ganesha, XFS, untar",
        "ganesha-ext4" => "nfs-ganesha, ext4",
        "sync" => "Landfast, sync",
        "log" => "Landfast, log",
        "nfs-cp" => "Landfast, log, nfs-cp",
        "unsafe" => "Landfast, unsafe",
        "untar" => "Landfast, log, untar",
        other => other,
    }
}

/// Files a second, with a digit after the point where there are few.
fn show_per_s(files: f64) -> String {
    if files < 100.0 { format!("{files:.1}") } else { show_count(files.round() as u64) }
}

fn figures(row: &Row) -> [String; 7] {
    let flushes = |n: Option<f64>| n.map_or_else(|| "-".to_owned(), |n| format!("{n:.3}"));
    [
        show_count(row.files),
        show_per_s(row.files_per_s),
        if row.rpcs_per_file == 0.0 { "-".to_owned() } else { format!("{:.3}", row.rpcs_per_file) },
        flushes(row.disk_flushes_per_file),
        flushes(row.log_flushes_per_file),
        show_per_s(row.limit_files_per_s),
        row.lost.map_or_else(|| "-".to_owned(), |lost| show_count(lost.files())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, durable: bool, files_per_s: f64, lost: u64) -> Row {
        Row {
            name: name.to_owned(),
            durable,
            files: 123_456,
            seconds: 1234.5,
            files_per_s,
            complete: name != "ganesha-xfs",
            rpcs_per_file: 10.123,
            disk_flushes_per_file: Some(12.345),
            log_flushes_per_file: Some(12.345),
            limit_files_per_s: 12_345.0,
            lost: Some(demo::Lost {
                acknowledged: 123_456,
                renamed: 0,
                names: lost,
                damaged: 0,
                bytes: lost * 4096,
            }),
        }
    }

    fn report() -> DemoReport {
        let json = serde_json::json!({
            "archive": "4096 files of 4096 bytes, random", "files": 4096, "bytes": 16_777_216,
            "flush_ms": 10.0, "log_flush_ms": 0.05, "rtt_ms": 0.2, "emulation": "disk",
            "notes": [packages::how_to_get(&["nfs-ganesha", "nfs-ganesha-vfs", "libnfs-utils", "xfsprogs"])],
            "terms": {"rtt_ms": 0.212, "log_write_ms": 0.171, "data_write_ms": 10.354, "syscalls_ms": 0.041},
            "rows": [], "doubts": ["other work took 1.50 of this machine's 2 processors"], "total_s": 61.5,
            "verified": {"members": 1, "bytes": 1, "differences": 0, "shown": [], "after_power_cut": true},
        });
        let mut report: DemoReport = serde_json::from_value(json).expect("a report");
        let names = [
            "local",
            "ganesha-xfs",
            "ganesha-xfs-untar",
            "ganesha-ext4",
            "sync",
            "log",
            "nfs-cp",
            "unsafe",
            "untar",
        ];
        report.rows = names
            .iter()
            .map(|name| {
                let durable = !["ganesha-ext4", "unsafe"].contains(name);
                row(
                    name,
                    durable,
                    match *name {
                        "untar" => 17_446.7,
                        "ganesha-xfs-untar" => 10.0,
                        _ => 9.87,
                    },
                    u64::from(!durable) * 98_765,
                )
            })
            .collect();
        report
    }

    #[test]
    fn the_table_fits_into_100_columns() {
        let text = table(&report()).to_string();
        let widest = text.lines().map(|line| line.trim_end().chars().count()).max();
        assert!(widest.is_some_and(|n| n <= 100), "{text}");
        assert!(text.contains("nfs-ganesha, ext4        NOT DURABLE") && text.contains("98,765"), "{text}");
    }

    #[test]
    fn the_lines_below_say_what_was_lost_and_what_was_stopped() {
        let lines = explained(&report());
        assert!(
            lines
                .iter()
                .any(|l| l
                    .contains("nfs-ganesha, ext4: the power cut took 98,765 of 123,456 acknowledged files")),
            "{lines:#?}"
        );
        assert!(
            lines
                .iter()
                .any(|l| l.starts_with("Not the whole archive") && l.ends_with(": nfs-ganesha, XFS wsync.")),
            "{lines:#?}"
        );
    }

    #[test]
    fn a_disturbed_run_says_so_below_the_table() {
        let mut report = report();
        let disturbed = |r: &DemoReport| explained(r).iter().any(|l| l.starts_with("This run was disturbed"));
        assert!(disturbed(&report));
        report.doubts.clear();
        assert!(!disturbed(&report));
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        assert_eq!(wrapped("ab cd ef", 5), ["ab cd", "  ef"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("longword x", 4), ["longword", "  x"]);
    }

    #[test]
    fn the_headline_is_beside_what_was_measured() {
        let mut report = report();
        let text = headline(&report);
        assert!(text.contains("1768 times those of one operation at a time on the best other"), "{text}");
        assert!(text.contains("1745 times those of the same client on the best other"), "{text}");
        report.rows.retain(|row| !row.name.starts_with("ganesha"));
        let text = headline(&report);
        assert!(text.contains("no other server was measured"), "{text}");
    }
}
