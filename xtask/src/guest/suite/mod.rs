//! `cargo xtask guest suite ...`: suites that the field trusts, in the guest, against `landfast serve` and its peers.
//!
//! `--server local` is the guest's own ext4 and `--server kernel` Linux's own NFS server in the guest: together the
//! baseline. Whatever does not pass anywhere stands with its reason in one file ([`differences::FILE`]); the command
//! fails on a difference that is not there, and on one that is there and does not occur any more.

mod differences;
mod outcome;
mod tools;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::client::{Client, Whose};
use super::image;
use super::machine::Hardware;
use super::mountstats::Counts;
use super::recipe::Vers;
use super::setup::{MOUNTPOINT, Setup, Who};
use crate::proc;
use differences::{Differences, Place};
use outcome::{Outcome, Outcomes, Verdict};

const PREPARE: &str = include_str!("../../../guest/suites/prepare.sh");
const LOCAL: &str = include_str!("../../../guest/suites/local.sh");
const PJDFSTEST: &str = include_str!("../../../guest/suites/pjdfstest.sh");
const FSX: &str = include_str!("../../../guest/suites/fsx.sh");

/// pjdfstest's settings. Its pauses must be longer than the steps of the slowest clock that stamps files, which is
/// the host's or the guest's timer tick (4 ms, or 10).
const PJDFSTEST_SETTINGS: &str = "[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [[\"nobody\", \"nogroup\"], [\"tests\", \"tests\"]]
";

/// The line that lets a case make the mount read-only.
const REMOUNT: (&str, &str) = ("allow_remount = false", "allow_remount = true");

/// fsx's settings by name: what all of them do, and what each does besides. Operations that not every version has are
/// in settings of their own, so that a difference says what differs.
const FSX_COMMON: &str = "[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
invalidate = 1
fsync = 1
fdatasync = 1
sendfile = 3
posix_fadvise = 1
";
const FSX_SETTINGS: &[FsxSettings] = &[
    FsxSettings { name: "plain", before: "", after: "" },
    // Nothing is written back before the client wants it.
    FsxSettings { name: "lazy", before: "nomsyncafterwrite = true\n", after: "" },
    // Larger than one READ or WRITE.
    FsxSettings { name: "large", before: "flen = 8000000\n[opsize]\nmax = 3000000\n", after: "" },
    FsxSettings { name: "allocate", before: "", after: "posix_fallocate = 10\n" },
    FsxSettings { name: "punch", before: "", after: "punch_hole = 10\n" },
    FsxSettings { name: "copy", before: "", after: "copy_file_range = 10\n" },
];

struct FsxSettings {
    name: &'static str,
    before: &'static str,
    after: &'static str,
}

impl FsxSettings {
    /// Operations: of the large ones a tenth.
    fn operations(&self, of: u64) -> u64 {
        if self.name == "large" { (of / 10).max(1) } else { of }
    }
}

/// The suites.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Suite {
    /// What POSIX says of names, modes, owners, times and errors.
    Pjdfstest,
    /// Random reads, writes, mappings, truncations, compared with what a file should hold.
    Fsx,
}

impl Suite {
    fn name(self) -> &'static str {
        match self {
            Suite::Pjdfstest => "pjdfstest",
            Suite::Fsx => "fsx",
        }
    }
}

/// Options of `guest suite`.
#[derive(Args)]
pub struct Options {
    /// The suite.
    #[arg(value_enum)]
    suite: Suite,
    #[command(flatten)]
    setup: Setup,
    /// Whose client mounts the server.
    #[arg(long, value_enum, default_value_t = Whose::Linux)]
    client: Whose,
    /// Only cases of pjdfstest whose name contains one of these, or only these settings of fsx.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// fsx: operations with each of its settings (of the large ones a tenth).
    #[arg(long, default_value_t = 5_000)]
    operations: u64,
    /// fsx: where its random numbers start.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds that the suite may take on one version.
    #[arg(long, default_value_t = 3_600)]
    limit: u64,
}

pub fn fetch() -> Result<(), String> {
    tools::build().map(drop)
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        fetch()?;
        self.setup.fetch_for(self.client)
    }
}

#[derive(Serialize)]
struct Column {
    vers: Option<String>,
    seconds: f64,
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Delegations that the client had and returned.
    returned: u64,
    cases: Outcomes,
    /// What the file of differences does not explain, or explains in vain.
    wrong: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    suite: &'static str,
    kernel: String,
    server: String,
    client: &'static str,
    columns: Vec<Column>,
}

/// Runs a suite; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    let differences = Differences::load(&proc::workspace())?;
    let dir = image::run_dir("suite")?;
    let disk = dir.path().join("tools.tar");
    tools::pack(&disk, &settings())?;
    let hardware = Hardware { disk: Some(disk), ..Hardware::default() };
    if options.client == Whose::Mount
        && (options.setup.server == Who::Local || options.setup.delegations.is_some())
    {
        return Err("--client mount is for servers, and asks for no delegations of files".to_owned());
    }
    let mut stage = options.setup.start_as(options.client, hardware, options.limit)?;
    let mut report = Report {
        suite: options.suite.name(),
        kernel: stage.client.machine.release.clone(),
        server: options.setup.server.to_string(),
        client: options.client.word(),
        columns: Vec::new(),
    };
    stage.client.run(None, PREPARE)?;
    if options.setup.server == Who::Local {
        stage.client.run(None, LOCAL)?;
    }
    let places: Vec<Option<Vers>> = match options.setup.server {
        Who::Local => vec![None],
        _ => options.setup.vers.iter().copied().map(Some).collect(),
    };
    for vers in places {
        let column = Session { options, client: &mut stage.client }.suite(vers, &differences);
        if column.is_err() {
            stage.explain()?;
        }
        report.columns.push(column?);
    }
    stage.end()?;
    if options.setup.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    } else {
        println!("{}", table(&report));
    }
    let wrong = report.columns.iter().any(|column| !column.wrong.is_empty());
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The settings' files in the guest.
fn settings() -> Vec<(String, String)> {
    let fsx = FSX_SETTINGS
        .iter()
        .map(|s| (format!("{}.toml", s.name), format!("{}{FSX_COMMON}{}", s.before, s.after)));
    let remount = PJDFSTEST_SETTINGS.replace(REMOUNT.0, REMOUNT.1);
    [
        ("pjdfstest.toml".to_owned(), PJDFSTEST_SETTINGS.to_owned()),
        ("pjdfstest-remount.toml".to_owned(), remount),
    ]
    .into_iter()
    .chain(fsx)
    .collect()
}

/// The guest, and what is wanted of it.
struct Session<'a> {
    options: &'a Options,
    client: &'a mut Client,
}

impl Session<'_> {
    /// Runs the suite once and judges what it found.
    fn suite(&mut self, vers: Option<Vers>, differences: &Differences) -> Result<Column, String> {
        let start = Instant::now();
        if vers.is_some() {
            self.client.run(vers, "mount_export")?;
        }
        let output = self.client.run(vers, &self.script())?;
        let mut returned = 0;
        if let Some(vers) = vers {
            if self.options.client == Whose::Linux {
                returned = self.delegations_returned(vers)?;
            }
            self.client.run(Some(vers), "unmount_export")?;
        }
        let cases = outcome::parse(&output);
        if cases.is_empty() {
            return Err(format!("no case ran:\n{output}"));
        }
        let place = Place {
            suite: self.options.suite.name(),
            server: self.options.setup.server.to_string(),
            vers: vers.map(|vers| vers.to_string()),
            client: self.options.client.word(),
            kernel: self.options.setup.kernel.to_string(),
            delegations: self.options.setup.delegations.clone().unwrap_or_else(|| "off".to_owned()),
        };
        let all = self.options.only.is_empty();
        let wrong = differences.judge(&place, &cases, all);
        let (passed, failed, skipped) = outcome::count(&cases);
        let (vers, seconds) = (place.vers, start.elapsed().as_secs_f64());
        eprintln!(
            "{}: {passed} passed, {failed} failed, {skipped} skipped ({seconds:.0} s)",
            vers.as_deref().unwrap_or("local")
        );
        Ok(Column { vers, seconds, passed, failed, skipped, returned, cases, wrong })
    }

    /// How many delegations the client has returned; an error if it should have been given some and was not, since the suite would show
    /// nothing of them. Linux wants those for writing with version 4.2 only.
    fn delegations_returned(&mut self, vers: Vers) -> Result<u64, String> {
        let counts = Counts::parse(&self.client.run(None, "cat /proc/self/mountstats")?, MOUNTPOINT)?;
        let returned = counts.0.get("DELEGRETURN").copied().unwrap_or(0);
        let wanted = self.options.setup.delegations.as_deref().is_some_and(|level| level != "off");
        if wanted && vers == Vers::V4_2 && returned == 0 {
            return Err(format!("{vers}: the client was given no delegation"));
        }
        Ok(returned)
    }

    /// The suite's script with its selection.
    fn script(&self) -> String {
        let Options { suite, only, operations, seed, limit, .. } = self.options;
        match suite {
            Suite::Pjdfstest => format!("SELECTION='{}'\n{PJDFSTEST}", only.join(" ")),
            Suite::Fsx => {
                let selected: Vec<String> = FSX_SETTINGS
                    .iter()
                    .filter(|settings| only.is_empty() || only.iter().any(|name| name == settings.name))
                    .map(|settings| format!("{}:{}", settings.name, settings.operations(*operations)))
                    .collect();
                format!("SELECTION='{}' SEED={seed} LIMIT={limit}\n{FSX}", selected.join(" "))
            }
        }
    }
}

/// The table: a line for each case that did not pass everywhere, a column for each version; the counts; what is wrong.
fn table(report: &Report) -> String {
    let Report { suite, kernel, server, client, .. } = report;
    let mut text = format!("\n{suite}, Linux {kernel}, server: {server}, client: {client}\n");
    let mut names: Vec<&String> = report.columns.iter().flat_map(|column| column.cases.keys()).collect();
    names.sort();
    names.dedup();
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    // Writing to a string cannot fail.
    let _ = write!(text, "{:width$}", "");
    for column in &report.columns {
        let _ = write!(text, " {:>8}", column.vers.as_deref().unwrap_or("local"));
    }
    text.push('\n');
    let verdict = |column: &Column, name: &String| column.cases.get(name).map(|case| case.verdict);
    let mut whys = String::new();
    for name in names {
        if report.columns.iter().all(|column| verdict(column, name) == Some(Verdict::Passed)) {
            continue;
        }
        let _ = write!(text, "{name:width$}");
        for column in &report.columns {
            let _ = write!(text, " {:>8}", verdict(column, name).map_or("", Verdict::word));
        }
        text.push('\n');
        let said = report.columns.iter().filter_map(|column| column.cases.get(name));
        if let Some(Outcome { said, .. }) = said.into_iter().find(|case| case.verdict == Verdict::Failed) {
            let _ = writeln!(whys, "{name}\n  {}", said.replace('\n', "\n  "));
        }
    }
    for (what, count) in [
        ("passed", (|column| column.passed) as fn(&Column) -> usize),
        ("failed", |column| column.failed),
        ("skipped", |column| column.skipped),
        ("delegations", |column| usize::try_from(column.returned).unwrap_or(usize::MAX)),
        ("seconds", |column| column.seconds as usize),
    ] {
        let _ = write!(text, "{what:width$}");
        for column in &report.columns {
            let _ = write!(text, " {:>8}", count(column));
        }
        text.push('\n');
    }
    let _ = write!(text, "\n{whys}");
    for column in &report.columns {
        let place = column.vers.as_deref().unwrap_or("local");
        for line in &column.wrong {
            let _ = writeln!(text, "WRONG {place}: {line}");
        }
    }
    text
}
