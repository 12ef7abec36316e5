//! `landfast untar`: a progress bar on a terminal, names with `-v`, one line for each cause of failures, a summary.

pub mod args;

use crate::commands::causes::Causes;
use crate::commands::{self, message, quote};
use crate::exit::{Exit, failed, ok_or_print, print_json, runtime};
use crate::outage;
use crate::process::umask;
use crate::progress::{before, bytes_bar, stable};
use crate::resume::{self, Start};
use crate::say;
use crate::signals::stop_gracefully;
use crate::units::{show_bytes, show_count};
use args::UntarArgs;
use indicatif::ProgressBar;
use landfast_client::archive::Filter;
use landfast_client::put::{Existing, FatalError, MemberError, Progress, PutOptions, Report, Xattrs};
use landfast_client::resume::{Job, JournalFile};
use landfast_client::untar::{self, Archive};
use landfast_client::{NfsUrl, SessionOptions, ops};
use landfast_nfs::v4::NfsStat;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::watch;

pub fn run(args: &UntarArgs) -> Exit {
    let Some(url) = ok_or_print(args.url.parse::<NfsUrl>()) else { return Exit::Failed };
    let mut session = outage::with_messages(SessionOptions::for_url(&url), args.timeout);
    session.connections = url.nconnect.unwrap_or(usize::from(args.connections)).max(1);
    let Some(start) = ok_or_print(begin(args, &url, &mut session)) else { return Exit::Failed };
    if let (Start::Finished(done), Some(path)) = (&start, &args.resume) {
        return nothing_left(args, path, *done);
    }
    if args.mkdir && commands::make_destination(&args.url) != Exit::Done {
        return Exit::Failed;
    }
    let Some(runtime) = runtime() else { return Exit::Failed };
    let source = if args.archive == Path::new("-") {
        Archive::reader(std::io::stdin())
    } else {
        Archive::file(args.archive.clone())
    };
    let source = source.filtered(Filter::new(args.strip_components, &args.exclude));
    let screen = Arc::new(Screen::new(args));
    let journal = start.journal();
    let mut options = options(args);
    options.resume = journal.clone();
    // On the heap, as in `commands::tool::run`.
    let work: Pin<Box<dyn Future<Output = _>>> = Box::pin(async {
        options.stop = Some(stop_on_signals());
        untar::run_as(options, session, source, &url, screen.clone()).await
    });
    let result = runtime.block_on(work);
    screen.finish();
    screen.causes.print_others("landfast", screen.verbose);
    let complete = result.as_ref().is_ok_and(Report::complete);
    if let Some(Err(why)) = journal.map(|journal| journal.close(complete)) {
        eprintln!("landfast: {why}");
    }
    if let Err(FatalError::Stopped) = result {
        return ok_or_print(result).map_or(Exit::Interrupted, |_| Exit::Interrupted);
    }
    if let Err(why) = result.as_ref().map_err(|e| destination(e, &args.url))
        && let Some(why) = why
    {
        return failed(why);
    }
    let Some(report) = ok_or_print(result) else { return Exit::Failed };
    if !args.json {
        summary(&report, &args.url);
    } else if print_json(&report) != Exit::Done {
        return Exit::Failed;
    }
    match report.complete() {
        true => Exit::Done,
        false if report.interrupted => Exit::Interrupted,
        false => Exit::Partly,
    }
}

fn destination(e: &FatalError, url: &str) -> Option<String> {
    let FatalError::Destination { server, path, source } = e else { return None };
    let (at, status) = match source {
        ops::Error::Path { path, source } => (path, source.status()),
        ops::Error::Op(e) => (path, e.status()),
        _ => return None,
    };
    let why = match status {
        NfsStat::NFS4ERR_NOENT => {
            let url = quote::if_needed(url.as_bytes());
            let url = String::from_utf8_lossy(&url);
            format!("no such directory; --mkdir makes it, and so does: landfast mkdir -p {url}")
        }
        status if at == path => message::of_status(status),
        status => format!("{at}: {}", message::of_status(status)),
    };
    Some(format!("destination {path} on {server}: {why}"))
}

fn begin(args: &UntarArgs, url: &NfsUrl, session: &mut SessionOptions) -> Result<Start, String> {
    let Some(path) = &args.resume else { return Ok(Start::Without) };
    if args.keep_old_files {
        return Err(
            "--resume cannot be used with --keep-old-files: a file that an interrupted run left half written \
                    could not be told from one that is to stay"
                .to_owned(),
        );
    }
    let job = job(args, url).map_err(|e| format!("{}: {e}", args.archive.display()))?;
    let journal = JournalFile::open(path).map_err(|e| e.to_string())?;
    session.instance = Some(journal.instance());
    resume::begin(Some(journal), job, BTreeMap::new()).map_err(|e| e.to_string())
}

fn job(args: &UntarArgs, url: &NfsUrl) -> std::io::Result<Job> {
    let mut options: Vec<String> = [
        (args.preserve_permissions, "--preserve-permissions"),
        (args.no_same_permissions, "--no-same-permissions"),
        (args.touch, "--touch"),
        (args.no_same_owner, "--no-same-owner"),
        (args.same_owner, "--same-owner"),
        (args.overwrite, "--overwrite"),
        (args.xattrs, "--xattrs"),
    ]
    .iter()
    .filter_map(|(set, word)| set.then_some((*word).to_owned()))
    .collect();
    if args.strip_components > 0 {
        options.push(format!("--strip-components={}", args.strip_components));
    }
    options.extend(args.exclude.iter().map(|pattern| format!("--exclude={pattern}")));
    let job = resume::file_job("untar")
        .about("destination", resume::url_key(url))
        .about("options", options.join(" "));
    if args.archive != Path::new("-") {
        let meta = std::fs::metadata(&args.archive)?;
        if meta.is_file() {
            return Ok(job
                .about("archive", resume::path_key(&args.archive))
                .about("archive's size", meta.len().to_string())
                .about("archive's time", format!("{}.{:09}", meta.mtime(), meta.mtime_nsec())));
        }
    }
    Ok(job.about("archive", "a stream"))
}

fn nothing_left(args: &UntarArgs, path: &Path, done: u64) -> Exit {
    let words = resume::finished(path, done);
    if !args.json {
        println!("{words}");
        return Exit::Done;
    }
    eprintln!("landfast: {words}");
    print_json(&Report { resumed: done, ..Report::default() })
}

/// Becomes true at the first SIGINT or SIGTERM; a second one ends the process.
fn stop_on_signals() -> watch::Receiver<bool> {
    let (stop, stopped) = watch::channel(false);
    stop_gracefully("landfast", move || {
        stop.send_replace(true);
    });
    stopped
}

fn options(args: &UntarArgs) -> PutOptions {
    let choice = |yes: bool, no: bool| if yes { Some(true) } else { no.then_some(false) };
    PutOptions {
        same_permissions: choice(args.preserve_permissions, args.no_same_permissions),
        same_owner: choice(args.same_owner, args.no_same_owner),
        touch: args.touch,
        existing: match (args.keep_old_files, args.overwrite) {
            (true, _) => Existing::Keep,
            (_, true) => Existing::Overwrite,
            _ => Existing::Replace,
        },
        umask: umask(),
        xattrs: if args.xattrs { Xattrs::Must } else { Xattrs::No },
        ..PutOptions::default()
    }
}

fn summary(r: &Report, url: &str) {
    if let Some(why) = &r.stopped {
        eprintln!("landfast: the rest of the archive was not extracted: {why}");
    }
    if r.interrupted {
        eprintln!("landfast: interrupted: the rest of the archive was not started");
    }
    let others: Vec<String> = [
        (r.counts.dirs, "directories"),
        (r.counts.symlinks, "symbolic links"),
        (r.counts.hard_links, "hard links"),
        (r.counts.specials, "devices and FIFOs"),
        (r.skipped, "left out"),
        (r.resumed, "done before"),
        (r.incomplete, "of these incomplete"),
        (r.failures - r.incomplete, "failed"),
    ]
    .iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!(", {} {what}", show_count(*n)))
    .collect();
    println!(
        "{} files{}, {} in {:.2} s: {} files/s, {} RPCs, {:.3} RPCs per file; {} {url}",
        show_count(r.counts.files),
        others.concat(),
        show_bytes(r.bytes),
        r.seconds,
        show_count(r.files_per_s.round() as u64),
        show_count(r.rpcs),
        r.rpcs_per_file,
        if r.complete() { "all on stable storage at" } else { "what is counted is on stable storage at" },
    );
}

/// The output: progress and failures on standard error, and with `-v` names on standard output, as GNU tar's.
struct Screen {
    verbose: bool,
    names_to_stderr: bool,
    bar: OnceLock<ProgressBar>,
    start: Instant,
    resumed: AtomicU64,
    causes: Causes,
}

impl Screen {
    fn new(args: &UntarArgs) -> Screen {
        Screen {
            verbose: args.verbose,
            names_to_stderr: args.json,
            bar: OnceLock::new(),
            start: Instant::now(),
            resumed: AtomicU64::new(0),
            causes: Causes::default(),
        }
    }

    fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
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
            // GNU tar escapes names also into a pipe.
            let mut line = quote::escaped(path);
            line.push(b'\n');
            // The extraction goes on if the reader of its output goes away.
            let _ = if self.names_to_stderr {
                say::lines_to_stderr(&line)
            } else {
                say::stdout().write_all(&line)
            };
        }
    }

    fn committed(&self, members: u64, bytes: u64) {
        if let Some(bar) = self.bar.get().filter(|bar| !bar.is_hidden()) {
            bar.set_message(stable(members, bytes, self.start, self.resumed.load(Ordering::Relaxed)));
        }
    }

    fn resumed(&self, _: &[u8]) {
        let resumed = self.resumed.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(bar) = self.bar.get().filter(|bar| !bar.is_hidden()) {
            bar.set_message(before(resumed).trim_start_matches(", ").to_owned());
        }
    }

    fn failed(&self, path: &[u8], why: &MemberError) {
        if let Some(words) = self.causes.told(why, "--no-same-owner", self.verbose) {
            eprintln!("landfast: {}: {words}", String::from_utf8_lossy(&quote::escaped(path)));
        }
    }

    fn warning(&self, text: &str) {
        eprintln!("landfast: {text}");
    }
}
