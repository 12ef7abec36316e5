//! `landfast untar`: a bar on a terminal, names with `-v`, a line a failure, a summary.

use crate::args::UntarArgs;
use crate::exit::{Exit, print_json, told};
use crate::process::umask;
use crate::progress::bytes_bar;
use crate::units::{show_bytes, show_count};
use indicatif::ProgressBar;
use landfast_client::NfsUrl;
use landfast_client::untar::{self, Existing, Progress, Report, Source, Tuning, UntarOptions, Why, Xattrs};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Extracts.
pub fn run(args: &UntarArgs) -> Exit {
    let Some(url) = told(args.url.parse::<NfsUrl>()) else { return Exit::Failed };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("landfast: cannot start threads: {e}");
            return Exit::Failed;
        }
    };
    let source = if args.archive == Path::new("-") {
        Source::Reader(Box::new(std::io::stdin()))
    } else {
        Source::File(args.archive.clone())
    };
    let screen = Arc::new(Screen::new(args));
    let result = runtime.block_on(untar::run(options(args), source, &url, screen.clone()));
    screen.finish();
    let Some(report) = told(result) else { return Exit::Failed };
    if args.json {
        if print_json(&report).is_none() {
            return Exit::Failed;
        }
    } else {
        summary(&report, &args.url);
    }
    if report.complete() { Exit::Done } else { Exit::Partly }
}

fn options(args: &UntarArgs) -> UntarOptions {
    let choice = |yes: bool, no: bool| if yes { Some(true) } else { no.then_some(false) };
    UntarOptions {
        same_permissions: choice(args.preserve_permissions, args.no_same_permissions),
        same_owner: choice(args.same_owner, args.no_same_owner),
        touch: args.touch,
        strip_components: args.strip_components,
        exclude: args.exclude.clone(),
        existing: match (args.keep_old_files, args.overwrite) {
            (true, _) => Existing::Keep,
            (_, true) => Existing::Overwrite,
            _ => Existing::Replace,
        },
        own_groups: None,
        umask: umask(),
        xattrs: if args.xattrs { Xattrs::Must } else { Xattrs::No },
        tuning: Tuning { connections: usize::from(args.connections), ..Tuning::default() },
    }
}

fn summary(r: &Report, url: &str) {
    if let Some(why) = &r.stopped {
        eprintln!("landfast: the rest of the archive was not extracted: {why}");
    }
    if r.failures > r.failed.len() as u64 {
        eprintln!("landfast: {} more members failed", show_count(r.failures - r.failed.len() as u64));
    }
    let others: Vec<String> = [
        (r.dirs, "directories"),
        (r.symlinks, "symbolic links"),
        (r.hard_links, "hard links"),
        (r.specials, "devices and FIFOs"),
        (r.skipped, "left out"),
    ]
    .iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!(", {} {what}", show_count(*n)))
    .collect();
    println!(
        "{} files{}, {} in {:.2} s: {} files/s, {} RPCs, {:.3} RPCs per file; {} {url}",
        show_count(r.files),
        others.concat(),
        show_bytes(r.bytes),
        r.seconds,
        show_count(r.files_per_s.round() as u64),
        show_count(r.rpcs),
        r.rpcs_per_file,
        if r.complete() { "all on stable storage at" } else { "what is counted is on stable storage at" },
    );
}

/// Where progress goes: standard error, and with `-v` names to standard output, as GNU tar does.
struct Screen {
    verbose: bool,
    names_to_stderr: bool,
    bar: OnceLock<ProgressBar>,
    start: Instant,
}

impl Screen {
    fn new(args: &UntarArgs) -> Screen {
        Screen {
            verbose: args.verbose,
            names_to_stderr: args.json,
            bar: OnceLock::new(),
            start: Instant::now(),
        }
    }

    fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    /// A line that does not tear the bar.
    fn line(&self, write: impl FnOnce()) {
        match self.bar.get() {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

impl Progress for Screen {
    fn opened(&self, archive_bytes: Option<u64>) {
        let _ = self.bar.set(bytes_bar(archive_bytes));
    }

    fn read(&self, archive_bytes: u64) {
        if let Some(bar) = self.bar.get() {
            bar.set_position(archive_bytes);
        }
    }

    fn member(&self, path: &[u8]) {
        if self.verbose {
            self.line(|| {
                let mut line = path.to_vec();
                line.push(b'\n');
                // A reader that went away does not stop the extraction.
                let _ = if self.names_to_stderr {
                    std::io::stderr().write_all(&line)
                } else {
                    std::io::stdout().write_all(&line)
                };
            });
        }
    }

    fn committed(&self, members: u64, bytes: u64) {
        if let Some(bar) = self.bar.get().filter(|bar| !bar.is_hidden()) {
            let rate = members as f64 / self.start.elapsed().as_secs_f64().max(1e-3);
            bar.set_message(format!(
                "{} stable ({}), {}/s",
                show_count(members),
                show_bytes(bytes),
                show_count(rate as u64)
            ));
        }
    }

    fn failed(&self, path: &[u8], why: &Why) {
        self.line(|| eprintln!("landfast: {}: {why}", String::from_utf8_lossy(path)));
    }
}
