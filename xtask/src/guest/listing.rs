//! `cargo xtask guest listing`: how long one client takes to list a tree that another has just written, and whose delegations it holds.
//!
//! A second guest runs `ls -lR` once over what the first has extracted, on a mount of its own that has seen nothing. A server has to ask the first one
//! about each file, or to call its delegations back. Each level of delegations has a new server on an empty filesystem. What the second one sees
//! (modes, owners, sizes, times) has to be what the archive says.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::client::{self, Client, Whose};
use super::image::{self, Image};
use super::machine::{Hardware, Machine};
use super::markdown;
use super::mountstats::Counts;
use super::network::Link;
use super::recipe::{Kernel, Vers};
use super::rpcs::Who;
use super::rpcs::kit::{OWNER, Size, make_tree};
use super::rpcs::served::{Served, on_this_machine};
use super::server::ServeOptions;
use super::setup::MOUNTPOINT;
use crate::proc::{command, run as run_command};

const STEP: &str = include_str!("../../guest/rpcs/step.sh");
const LIST: &str = include_str!("../../guest/listing/list.sh");

/// Where the tree is on the export.
const DIR: &str = "fresh";

/// What `--delegations` has to name: the others are compared with it.
const OFF: &str = "off";

/// Differences that are kept as examples.
const EXAMPLES_MAX: usize = 3;

/// The first client has to hold delegations of so many of its files, else nothing is measured. The first files have none, since the server tries
/// its back channel out first.
const HELD_PERCENT: u64 = 95;

/// RPCs of the listing may be this part more than without delegations: a request that waits too long is told to come again.
const RPCS_MORE: f64 = 0.1;

/// Options of `guest listing`.
#[derive(Args)]
pub struct Options {
    /// The guests' kernel: 6.1 (which is given no delegations for writing), 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_12)]
    kernel: Kernel,
    /// Who serves.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Who::Landfast])]
    server: Vec<Who>,
    /// Which delegations Landfast's clients are given, one after another: off, read, write or times.
    #[arg(long, value_delimiter = ',', value_name = "LEVEL", default_values = [OFF, "write", "times"])]
    delegations: Vec<String>,
    /// Files of the tree.
    #[arg(long, default_value_t = 10_000)]
    files: u64,
    /// Files of each directory.
    #[arg(long, default_value_t = 20)]
    per_directory: u64,
    /// Fail if the listing takes more than so many times what it takes without delegations.
    #[arg(long, default_value_t = 15.0)]
    most_times_off: f64,
    /// Seconds that are allowed beside that: an emulated guest gets no processor for seconds on a machine with other work.
    #[arg(long, default_value_t = 10.0)]
    most_more: f64,
    #[command(flatten)]
    serve: ServeOptions,
    /// The servers' lease in seconds. Linux returns delegations that it has not used for a lease or so, which under emulation would be before they
    /// are in anybody's way: hence a long one.
    #[arg(long, default_value_t = 600)]
    lease: u64,
    /// Seconds that one step may take.
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        self.check()?;
        image::build(self.kernel)?;
        self.serve.binary().map(drop)
    }

    fn size(&self) -> Size {
        Size { files: self.files, directories: self.files.div_ceil(self.per_directory) + 1 }
    }

    /// An error names what would not be measured.
    fn check(&self) -> Result<(), String> {
        if self.per_directory == 0 || self.files < self.per_directory {
            return Err(format!("--files {}: at least one directory's", self.files));
        }
        if self.server.contains(&Who::Landfast) && !self.delegations.iter().any(|level| level == OFF) {
            return Err(format!("--delegations without {OFF}: there would be nothing to compare with"));
        }
        Ok(())
    }
}

/// One listing.
#[derive(Clone, Debug, Default, Serialize)]
struct Row {
    /// Who served, and which delegations.
    case: String,
    /// Delegations on Landfast.
    level: Option<String>,
    /// How long `ls -lR` took.
    seconds: f64,
    /// The longest time in which it printed nothing: about three directories of twenty files.
    longest_seconds: f64,
    /// RPCs of the client that listed.
    rpcs: u64,
    /// READDIRs of these.
    readdirs: u64,
    /// Delegations that the other client returned meanwhile, as it counts them.
    delegreturns: u64,
    /// What Landfast says.
    told: Option<Told>,
    /// What differs from the archive.
    wrong: Wrong,
}

/// What Landfast's metrics say of the time that the listing took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Told {
    /// Delegations that were held before it.
    held: f64,
    /// CB_GETATTRs sent, and those that were not answered with what was asked for.
    asked: f64,
    unanswered: f64,
    recalled: f64,
    returned: f64,
    /// How long requests waited for them, all together.
    waited_seconds: f64,
    /// Requests that were told to come again (`DELAY`).
    delayed: f64,
    /// Batches written to the log.
    batches: f64,
}

impl Told {
    fn parse(metrics: &str) -> Told {
        let sum = |name: &str, with: &str| {
            let values = metrics.lines().filter_map(|line| {
                let rest = line.strip_prefix(name)?;
                let value = rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next())??;
                rest.contains(with).then(|| value.parse::<f64>().ok())?
            });
            values.sum::<f64>()
        };
        Told {
            held: sum("landfast_delegations", ""),
            asked: sum("landfast_delegations_asked_total", "\"sent\""),
            unanswered: sum("landfast_delegations_asked_total", "\"unanswered\""),
            recalled: sum("landfast_delegations_recalled_total", ""),
            returned: sum("landfast_delegations_returned_total", ""),
            waited_seconds: sum("landfast_delegation_wait_seconds_total", ""),
            delayed: sum("landfast_operation_errors_total", "DELAY"),
            batches: sum("landfast_log_batches_total", ""),
        }
    }

    fn since(self, before: Told) -> Told {
        Told {
            held: before.held,
            asked: self.asked - before.asked,
            unanswered: self.unanswered - before.unanswered,
            recalled: self.recalled - before.recalled,
            returned: self.returned - before.returned,
            waited_seconds: self.waited_seconds - before.waited_seconds,
            delayed: self.delayed - before.delayed,
            batches: self.batches - before.batches,
        }
    }
}

/// What differs from the archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Wrong {
    /// Files and directories that are missing, should not be there, or show something else.
    objects: u64,
    /// The first of them.
    examples: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    /// The guests' kernel.
    kernel: String,
    files: u64,
    directories: u64,
    /// Landfast's durability.
    durability: String,
    rows: Vec<Row>,
    /// What is not as it has to be.
    broken: Vec<String>,
}

/// Measures; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    options.check()?;
    let size = options.size();
    let scratch = image::run_dir("listing")?;
    let source = scratch.path().join("source");
    make_tree(&source.join("tree"), size, Some(OWNER)).map_err(|e| format!("{}: {e}", source.display()))?;
    let archive = scratch.path().join("tree.tar");
    run_command(command("tar", ["--sort=name", "-cf"]).arg(&archive).arg("-C").arg(&source).arg("tree"))?;
    // The same listing of what the archive was made from.
    let here = on_this_machine(&source, &format!("MNT=$AT DIR=.\n{LIST}"))?;
    let (_, wanted) = here.split_once('\n').ok_or("no listing")?;

    let image = image::build(options.kernel)?;
    let writer = Hardware { disk: Some(archive), link: Some(Link::new()?), ..Hardware::default() };
    let lister =
        Hardware { name: format!("{}-peer", writer.name), link: Some(Link::new()?), ..Hardware::default() };
    let limit = Duration::from_secs(options.limit);
    let boot = |hardware: &Hardware| {
        let machine = Machine::boot(&image, hardware)?;
        Ok::<_, String>(Client { machine, server: client::Server::Local, whose: Whose::Linux, limit })
    };
    let (mut writer, mut lister) = (boot(&writer)?, boot(&lister)?);
    let mut report = Report {
        kernel: writer.machine.release.clone(),
        files: size.files,
        directories: size.directories,
        durability: options.serve.durability.clone(),
        rows: Vec::new(),
        broken: Vec::new(),
    };
    for (server, level) in cases(options) {
        let mut served = serve(options, &image, limit, level)?;
        for guest in [&mut writer, &mut lister] {
            guest.server = served.server()?;
        }
        let mut pair = Pair { writer: &mut writer, lister: &mut lister, served: &mut served };
        let row = pair.measure(options, wanted, server, level).map_err(|why| {
            let consoles = [&writer, &lister].map(|guest| guest.machine.console()).join("\n");
            format!("{why}\n{}\nThe guests' consoles:\n{consoles}", served.said())
        })?;
        eprintln!("{}: {:.1} s", row.case, row.seconds);
        report.rows.push(row);
        served.end()?;
    }
    report.broken = broken(options, &report.rows);
    if options.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Landfast with each level of delegations, the kernel's server as it is.
fn cases(options: &Options) -> Vec<(Who, Option<&str>)> {
    let of = |server: &Who| match server {
        Who::Landfast => {
            options.delegations.iter().map(|level| (Who::Landfast, Some(level.as_str()))).collect()
        }
        Who::Knfsd => vec![(Who::Knfsd, None)],
    };
    options.server.iter().flat_map(of).collect()
}

fn serve(options: &Options, image: &Image, limit: Duration, level: Option<&str>) -> Result<Served, String> {
    match level {
        Some(level) => Served::landfast(&options.serve, options.lease, Some(level)),
        None => Served::knfsd(image, limit, options.lease),
    }
}

/// Two clients and their server.
struct Pair<'a> {
    writer: &'a mut Client,
    lister: &'a mut Client,
    served: &'a mut Served,
}

impl Pair<'_> {
    /// One extracts, the other lists; then both unmount.
    fn measure(
        &mut self,
        options: &Options,
        wanted: &str,
        server: Who,
        level: Option<&str>,
    ) -> Result<Row, String> {
        let vers = Some(Vers::V4_2);
        // Beyond this number the client returns one with each close; 5,000 by itself.
        let keeps = format!("echo {} >/sys/module/nfsv4/parameters/delegation_watermark", 2 * options.files);
        let prepare = format!(
            "mount_export\n{keeps}\nmkdir $MNT/{DIR}\nchown {OWNER}:{OWNER} $MNT/{DIR}\nchmod a+r $ARCHIVE"
        );
        self.writer.run(vers, &prepare)?;
        self.writer.run_with(vers, &format!("RUN_AS={OWNER} DIR={DIR}\n{STEP}"), b"tar xf /dev/vdb")?;
        self.lister.run(vers, "mount_export")?;
        let before = [counts(self.writer)?, counts(self.lister)?];
        let told_before = self.told()?;
        let said = self.lister.run(vers, &format!("DIR={DIR}\n{LIST}"))?;
        let told = self.told()?.zip(told_before).map(|(now, before)| now.since(before));
        let [writer, lister] =
            [counts(self.writer)?.since(&before[0]), counts(self.lister)?.since(&before[1])];
        for guest in [&mut *self.lister, &mut *self.writer] {
            guest.run(vers, "umount $MNT")?;
        }
        let (times, listing) = said.split_once('\n').ok_or("no listing")?;
        let ms = |number: &str| number.parse::<f64>().ok();
        let ms = times.split_once(' ').and_then(|(all, longest)| Some((ms(all)?, ms(longest)?)));
        let (all, longest) = ms.ok_or_else(|| format!("no times: {times:?}"))?;
        let of = |counts: &Counts, name: &str| counts.0.get(name).copied().unwrap_or(0);
        Ok(Row {
            case: level.map_or(server.to_string(), |level| format!("{server}, {level}")),
            level: level.map(str::to_owned),
            seconds: all / 1000.0,
            longest_seconds: longest / 1000.0,
            rpcs: lister.total(),
            readdirs: of(&lister, "READDIR"),
            delegreturns: of(&writer, "DELEGRETURN"),
            told,
            wrong: compare(wanted, listing)?,
        })
    }

    fn told(&self) -> Result<Option<Told>, String> {
        match &*self.served {
            Served::Landfast { server, .. } => server.metrics().map(|text| Some(Told::parse(&text))),
            Served::Knfsd { .. } => Ok(None),
        }
    }
}

fn counts(client: &mut Client) -> Result<Counts, String> {
    Counts::parse(&client.run(None, "cat /proc/self/mountstats")?, MOUNTPOINT)
}

/// Compares what `ls -lRn` said of two trees.
fn compare(wanted: &str, got: &str) -> Result<Wrong, String> {
    let (wanted, got) = (objects(wanted)?, objects(got)?);
    if wanted.is_empty() {
        return Err("nothing was listed".to_owned());
    }
    let mut wrong = Wrong::default();
    let mut add = |text: String| {
        wrong.objects += 1;
        if wrong.examples.len() < EXAMPLES_MAX {
            wrong.examples.push(text);
        }
    };
    for (path, ours) in &wanted {
        match got.get(path) {
            Some(theirs) if theirs == ours => {}
            Some(theirs) => {
                add(format!("{path}: {}, should be {}", theirs.join(" "), ours.join(" ")));
            }
            None => add(format!("{path}: is missing")),
        }
    }
    for path in got.keys().filter(|path| !wanted.contains_key(*path)) {
        add(format!("{path}: should not be there"));
    }
    Ok(wrong)
}

/// Mode, owner, group, size and time by path, as `ls -lRn --time-style=+%s` says them. A directory has the size that its filesystem gives it.
fn objects(said: &str) -> Result<BTreeMap<String, [&str; 5]>, String> {
    let mut objects = BTreeMap::new();
    let mut directory = "";
    for line in said.lines() {
        if let Some(name) = line.strip_suffix(':') {
            directory = name;
        } else if !line.is_empty() && !line.starts_with("total ") {
            let parts: Vec<&str> = line.split_ascii_whitespace().collect();
            let [mode, _links, owner, group, size, time, name] = parts[..] else {
                return Err(format!("a line of ls: {line:?}"));
            };
            let size = if mode.starts_with('d') { "" } else { size };
            objects.insert(format!("{directory}/{name}"), [mode, owner, group, size, time]);
        }
    }
    Ok(objects)
}

/// What is not as it has to be. The kernel's server is the peer: what it does is shown only.
fn broken(options: &Options, rows: &[Row]) -> Vec<String> {
    let mut broken = Vec::new();
    let off = rows.iter().find(|row| row.level.as_deref() == Some(OFF)).cloned().unwrap_or_default();
    let most = off.seconds * options.most_times_off + options.most_more;
    let most_rpcs = off.rpcs as f64 * (1.0 + RPCS_MORE);
    for row in rows {
        let (Some(level), Some(told)) = (row.level.as_deref(), row.told) else { continue };
        let case = &row.case;
        if row.wrong.objects > 0 {
            broken.push(format!("{case}: {} objects are not as in the archive", row.wrong.objects));
        }
        let least = options.files as f64 * HELD_PERCENT as f64 / 100.0;
        if matches!(level, "write" | "times") && told.held < least {
            broken.push(format!("{case}: only {} delegations were there to be in the way", told.held));
        }
        if row.seconds > most {
            broken.push(format!("{case}: {:.1} s, at most {most:.1} s", row.seconds));
        }
        if row.rpcs as f64 > most_rpcs {
            broken.push(format!("{case}: {} RPCs, at most {most_rpcs:.0}", row.rpcs));
        }
    }
    broken
}

impl Report {
    fn text(&self) -> String {
        let off = self.rows.iter().find(|row| row.level.as_deref() == Some(OFF)).map(|row| row.seconds);
        let mut lines = vec![vec!["`ls -lR` by another client".to_owned()]];
        lines[0].extend(self.rows.iter().map(|row| row.case.clone()));
        let mut line = |name: &str, cell: &dyn Fn(&Row) -> String| {
            let mut cells = vec![name.to_owned()];
            cells.extend(self.rows.iter().map(cell));
            lines.push(cells);
        };
        let count = |of: fn(&Told) -> f64| {
            move |row: &Row| row.told.as_ref().map_or(String::new(), |told| format!("{:.0}", of(told)))
        };
        line("seconds", &|row| format!("{:.2}", row.seconds));
        line("times those without delegations", &|row| {
            off.map_or(String::new(), |off| format!("{:.1}", row.seconds / off))
        });
        line("ms a file", &|row| format!("{:.2}", row.seconds * 1000.0 / self.files as f64));
        line("longest time without output, s", &|row| format!("{:.2}", row.longest_seconds));
        line("its RPCs", &|row| row.rpcs.to_string());
        line("of these READDIR", &|row| row.readdirs.to_string());
        line("delegations held before", &count(|told| told.held));
        line("CB_GETATTRs", &count(|told| told.asked));
        line("of these not answered", &count(|told| told.unanswered));
        line("recalled", &count(|told| told.recalled));
        line("returned", &count(|told| told.returned));
        line("DELEGRETURNs, as the holder counts", &|row| row.delegreturns.to_string());
        line("seconds that requests waited", &|row| {
            row.told.map_or(String::new(), |told| format!("{:.2}", told.waited_seconds))
        });
        line("requests told to come again", &count(|told| told.delayed));
        line("batches written to the log", &count(|told| told.batches));
        line("not as in the archive", &|row| row.wrong.objects.to_string());
        let mut text = format!(
            "Linux {}, {} files in {} directories, Landfast with durability {}; seconds are under software emulation\n\n{}",
            self.kernel,
            self.files,
            self.directories,
            self.durability,
            markdown::table(&lines)
        );
        for row in &self.rows {
            for example in &row.wrong.examples {
                text.push_str(&format!("{}: {example}\n", row.case));
            }
        }
        for what in &self.broken {
            text.push_str(&format!("BROKEN: {what}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const SAID: &str = "tree:\ntotal 4\ndrwxr-xr-x 2 1000 1000 4096 981173106 dir0000\n\n\
                        tree/dir0000:\ntotal 8\n-rw-r--r-- 1 1000 1000 1536 981173107 file000000.c\n";

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(line: &str) -> Options {
        Line::try_parse_from(["listing"].into_iter().chain(line.split_whitespace())).unwrap().options
    }

    fn wrong(from: &str, to: &str) -> u64 {
        assert!(SAID.contains(from));
        compare(SAID, &SAID.replacen(from, to, 1)).unwrap().objects
    }

    #[test]
    fn each_object_that_another_client_sees_otherwise_is_wrong() {
        assert_eq!(compare(SAID, SAID), Ok(Wrong::default()));
        assert_eq!(wrong("4096", "60"), 0, "a directory's size is its filesystem's");
        assert_eq!(wrong("1536", "0"), 1);
        assert_eq!(wrong("981173107", "981173108"), 1);
        assert_eq!(wrong("981173106", "1"), 1, "a directory's time");
        assert_eq!(wrong("rw-r--r--", "rw-------"), 1);
        assert_eq!(wrong("1000 1000 1536", "0 1000 1536"), 1);
        assert_eq!(wrong("file000000", "file000001"), 2);
        assert!(compare(SAID, "-rw-r--r-- 1 1000\n").is_err() && compare("", SAID).is_err());
    }

    #[test]
    fn metrics_are_read() {
        let text = "# HELP landfast_delegations Delegations\nlandfast_delegations 40\n\
                    landfast_delegations_recalled_total 41\nlandfast_delegations_returned_total 42\n\
                    landfast_delegations_asked_total{what=\"sent\"} 8\n\
                    landfast_delegations_asked_total{what=\"answered\"} 7\n\
                    landfast_delegations_asked_total{what=\"unanswered\"} 1\n\
                    landfast_delegation_wait_seconds_total 1.5\nlandfast_log_batches_total{export=\"/a b\"} 3\n\
                    landfast_log_batches_total{export=\"/c\"} 4\n\
                    landfast_operation_errors_total{operation=\"GETATTR\",status=\"NFS4ERR_DELAY\"} 5\n\
                    landfast_operation_errors_total{operation=\"GETATTR\",status=\"NFS4ERR_NOENT\"} 6\n";
        let told = Told {
            held: 40.0,
            asked: 8.0,
            unanswered: 1.0,
            recalled: 41.0,
            returned: 42.0,
            waited_seconds: 1.5,
            delayed: 5.0,
            batches: 7.0,
        };
        assert_eq!(Told::parse(text), told);
        let since = told.since(Told { held: 50.0, recalled: 1.0, ..Told::default() });
        assert_eq!((since.held, since.recalled, since.batches), (50.0, 40.0, 7.0));
    }

    #[test]
    fn what_is_slow_wrong_or_not_measured_is_broken() {
        let row = |level: &str, seconds, held, objects| Row {
            case: level.to_owned(),
            level: Some(level.to_owned()),
            seconds,
            rpcs: 100,
            told: Some(Told { held, ..Told::default() }),
            wrong: Wrong { objects, ..Wrong::default() },
            ..Row::default()
        };
        let options = options("--files 100 --most-times-off 3 --most-more 0");
        let of = |rows: &[Row]| broken(&options, rows).len();
        assert_eq!(of(&[row("off", 1.0, 0.0, 0), row("write", 3.0, 95.0, 0)]), 0);
        assert_eq!(of(&[row("off", 1.0, 0.0, 0), row("write", 3.1, 95.0, 0)]), 1);
        assert_eq!(of(&[row("off", 1.0, 0.0, 0), row("times", 3.0, 94.0, 0)]), 1);
        assert_eq!(of(&[row("off", 1.0, 0.0, 1), row("times", 3.0, 99.0, 2)]), 2);
        let again = |rpcs| Row { rpcs, ..row("times", 3.0, 99.0, 0) };
        assert_eq!(of(&[row("off", 1.0, 0.0, 0), again(110)]), 0);
        assert_eq!(of(&[row("off", 1.0, 0.0, 0), again(120)]), 1);
    }

    #[test]
    fn what_would_compare_nothing_is_refused() {
        assert_eq!(options("").check(), Ok(()));
        assert_eq!(options("--server knfsd --delegations times").check(), Ok(()));
        for line in ["--delegations write,times", "--files 19", "--per-directory 0"] {
            assert!(options(line).check().is_err(), "{line}");
        }
    }
}
