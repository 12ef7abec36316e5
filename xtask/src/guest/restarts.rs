//! `cargo xtask guest restarts`: runs the client's commands while their server is stopped and restarted at random
//! moments, on Landfast, nfs-ganesha and the kernel's server, in each version. It checks that there is no error and
//! that every byte is right, and measures how long each restart delayed the command.
//!
//! - *Absence*: from the end of the server until it accepts connections again, including recovery.
//! - *Stall*: from then until the command has created or removed something more.

mod served;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

use super::chance::Chance;
use super::image;
use super::recipe::{Kernel, VERSIONS, Vers};
use super::server::chosen_binary;
use crate::packages;
use crate::proc::{self, command};
use served::{Amount, SUMS, Served, ServerKind, amount, local};

/// The longest stall after a restart of Landfast's server.
const STALL_MAX: Duration = Duration::from_secs(2);

/// How long one run of a command may take.
const RUN_LIMIT: Duration = Duration::from_secs(900);

/// Runs of a command for each restart that is wanted, at most: one may be over before its moment comes.
const RUNS_PER_RESTART: usize = 40;

/// Restarts in one run, at most.
const RESTARTS_PER_RUN: u64 = 4;

/// Between two looks at how far a command is.
const LOOK: Duration = Duration::from_millis(10);

/// Options of `guest restarts`.
#[derive(Args)]
pub struct Options {
    /// Servers: landfast, ganesha, kernel.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "landfast,ganesha,kernel")]
    server: Vec<ServerKind>,
    /// The guest's kernel: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// NFS versions.
    #[arg(long, value_delimiter = ',', default_values_t = VERSIONS)]
    vers: Vec<Vers>,
    /// Only these commands.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<ClientCommand>,
    /// Restarts under each command.
    #[arg(long, default_value_t = 20)]
    restarts: usize,
    /// Small files of the tree, of 1 to 20 KiB.
    #[arg(long, default_value_t = 2000)]
    files: usize,
    /// Its large files, MiB each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,5,12,40,100")]
    large: Vec<usize>,
    /// What decides the moments; printed, so that a run can be done again.
    #[arg(long)]
    seed: Option<u64>,
    /// The binary, instead of building the release one.
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        if self.server.contains(&ServerKind::Ganesha) {
            packages::require(&packages::GANESHA)?;
        }
        if self.server.contains(&ServerKind::Kernel) {
            image::build(self.kernel)?;
        }
        chosen_binary(self.binary.as_deref()).map(drop)
    }
}

/// A command on a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ClientCommand {
    /// `untar`.
    Untar,
    /// `cp -r` to the server.
    CpTo,
    /// `cp -r` from the server.
    CpFrom,
    /// `cp -r` within the server.
    CpWithin,
    /// `sync-tree` to the server.
    Sync,
    /// `tar -c` of what is there.
    Tar,
    /// `ls -lR`.
    Ls,
    /// `find`.
    Find,
    /// `rm -r`.
    Rm,
}

const ALL: [ClientCommand; 9] = [
    ClientCommand::Untar,
    ClientCommand::CpTo,
    ClientCommand::CpFrom,
    ClientCommand::CpWithin,
    ClientCommand::Sync,
    ClientCommand::Tar,
    ClientCommand::Ls,
    ClientCommand::Find,
    ClientCommand::Rm,
];

impl ClientCommand {
    fn name(self) -> &'static str {
        match self {
            ClientCommand::Untar => "untar",
            ClientCommand::CpTo => "cp -r, to it",
            ClientCommand::CpFrom => "cp -r, from it",
            ClientCommand::CpWithin => "cp -r, within it",
            ClientCommand::Sync => "sync-tree",
            ClientCommand::Tar => "tar -c",
            ClientCommand::Ls => "ls -lR",
            ClientCommand::Find => "find",
            ClientCommand::Rm => "rm -r",
        }
    }

    /// It makes the tree there, or takes it away; else it makes something here.
    fn changes(self) -> bool {
        matches!(
            self,
            ClientCommand::Untar
                | ClientCommand::CpTo
                | ClientCommand::CpWithin
                | ClientCommand::Sync
                | ClientCommand::Rm
        )
    }
}

struct Row {
    who: ServerKind,
    vers: Vers,
    what: ClientCommand,
    quiet: Duration,
    absences: Vec<Duration>,
    stalls: Vec<Duration>,
    failed: Option<String>,
}

pub fn run(options: &Options) -> Result<ExitCode, String> {
    let binary = chosen_binary(options.binary.as_deref())?;
    let dir = image::run_dir("restarts")?;
    let tree = dir.path().join("tree");
    make_tree(&tree, options).map_err(|e| format!("{}: {e}", tree.display()))?;
    let archive = dir.path().join("tree.tar");
    proc::run(command("tar", ["-cf"]).arg(&archive).arg("-C").arg(dir.path()).arg("tree"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos());
    let seed = options.seed.unwrap_or(u64::try_from(now & u128::from(u64::MAX)).unwrap_or(1) | 1);
    println!("seed {seed}");
    let mut stage = Stage {
        binary: &binary,
        dir: dir.path(),
        sums: local(SUMS, &tree)?,
        restarts: options.restarts,
        chance: Chance(seed),
    };
    let mut rows = Vec::new();
    for who in &options.server {
        let mut served = Served::start(*who, &binary, options.kernel)?;
        for vers in &options.vers {
            stage.landfast(&["mkdir", "-p", &served.url(*vers, "w")?])?;
            stage.landfast(&["cp", "-r", &tree.to_string_lossy(), &served.url(*vers, "w/seed")?])?;
            for what in ALL.into_iter().filter(|what| options.only.is_empty() || options.only.contains(what))
            {
                let row = stage.under_restarts(&mut served, *who, *vers, what)?;
                println!("{}", row.line());
                if let Some(why) = &row.failed {
                    eprintln!("{} {vers} {}: {why}", who.name(), what.name());
                }
                rows.push(row);
            }
            stage.landfast(&["rm", "-rf", &served.url(*vers, "w")?])?;
        }
    }
    println!(
        "\n| server | version | command | restarts | absence, median | longest | stall, median | longest |\n|---|---|---|--:|--:|--:|--:|--:|"
    );
    rows.iter().for_each(|row| println!("{}", row.line()));
    let failed = rows.iter().any(|row| row.failed.is_some());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What all commands are run with.
struct Stage<'a> {
    binary: &'a Path,
    dir: &'a Path,
    sums: String,
    restarts: usize,
    chance: Chance,
}

impl Stage<'_> {
    fn landfast(&self, args: &[&str]) -> Result<(), String> {
        proc::output(&mut command(&self.binary.to_string_lossy(), args)).map(drop)
    }

    fn local(&self, name: &str) -> String {
        self.dir.join(name).to_string_lossy().into_owned()
    }

    fn words(&self, served: &Served, vers: Vers, what: ClientCommand) -> Result<Vec<String>, String> {
        let url = |below| served.url(vers, below);
        let words = match what {
            ClientCommand::Untar => vec!["untar".into(), self.local("tree.tar"), url("w")?],
            ClientCommand::CpTo => vec!["cp".into(), "-r".into(), self.local("tree"), url("w")?],
            ClientCommand::CpFrom => vec!["cp".into(), "-r".into(), url("w/seed")?, self.local("out")],
            ClientCommand::CpWithin => vec!["cp".into(), "-r".into(), url("w/seed")?, url("w/tree")?],
            ClientCommand::Sync => vec!["sync-tree".into(), self.local("tree"), url("w/tree")?],
            ClientCommand::Tar => vec!["tar".into(), "-cf".into(), self.local("out"), url("w/seed")?],
            ClientCommand::Ls => vec!["ls".into(), "-lR".into(), url("w/seed")?],
            ClientCommand::Find => vec!["find".into(), url("w/seed")?],
            ClientCommand::Rm => vec!["rm".into(), "-r".into(), url("w/tree")?],
        };
        Ok(words)
    }

    /// Before each run: what it makes is not there, what it takes is.
    fn prepare(&self, served: &Served, vers: Vers, what: ClientCommand) -> Result<(), String> {
        for name in ["out", "printed", "unpacked"] {
            proc::output(command("rm", ["-rf"]).arg(self.dir.join(name)))?;
        }
        if what.changes() {
            self.landfast(&["rm", "-rf", &served.url(vers, "w/tree")?])?;
        }
        if what == ClientCommand::Rm {
            self.landfast(&["cp", "-r", &self.local("tree"), &served.url(vers, "w")?])?;
        }
        Ok(())
    }

    fn spawn(&self, words: &[String]) -> Result<Child, String> {
        let file = |name: &str| File::create(self.dir.join(name)).map_err(|e| format!("{name}: {e}"));
        let mut started = command(&self.binary.to_string_lossy(), words);
        started.stdin(Stdio::null()).stdout(file("printed")?).stderr(file("errors")?);
        started.spawn().map_err(|e| format!("{}: {e}", self.binary.display()))
    }

    /// How much there is of what the command makes, or takes away.
    fn progress(&self, served: &mut Served, what: ClientCommand) -> Result<Amount, String> {
        match what {
            _ if what.changes() => served.amount("w/tree"),
            ClientCommand::Ls | ClientCommand::Find => amount(&self.dir.join("printed")),
            _ => amount(&self.dir.join("out")),
        }
    }

    /// All is as it should be after a run.
    fn check(
        &self,
        served: &mut Served,
        what: ClientCommand,
        printed: &mut Option<String>,
    ) -> Result<(), String> {
        let sums = match what {
            ClientCommand::Untar | ClientCommand::CpTo | ClientCommand::CpWithin | ClientCommand::Sync => {
                served.ask(SUMS, "w/tree")?
            }
            ClientCommand::CpFrom => local(SUMS, &self.dir.join("out"))?,
            ClientCommand::Tar => {
                let unpacked = self.dir.join("unpacked");
                fs::create_dir(&unpacked).map_err(|e| format!("{}: {e}", unpacked.display()))?;
                proc::output(command("tar", ["-xf", &self.local("out"), "-C"]).arg(&unpacked))?;
                local(SUMS, &find_seed(&unpacked)?)?
            }
            ClientCommand::Ls | ClientCommand::Find => {
                let got = fs::read_to_string(self.dir.join("printed")).map_err(|e| e.to_string())?;
                let mut lines: Vec<&str> = got.lines().collect();
                if what == ClientCommand::Find {
                    lines.sort_unstable();
                }
                let got = lines.join("\n");
                let wanted = printed.get_or_insert_with(|| got.clone());
                let other = got.lines().zip(wanted.lines()).find(|(a, b)| a != b);
                let lens = (got.len(), wanted.len());
                return match *wanted == got {
                    true => Ok(()),
                    false => Err(format!("it listed something else: {other:?}, bytes {lens:?}")),
                };
            }
            ClientCommand::Rm => {
                let left = served.amount("w/tree")?;
                return if left.objects == 0 { Ok(()) } else { Err(format!("{left:?} are left")) };
            }
        };
        let wrong: Vec<_> = sums.lines().zip(self.sums.lines()).filter(|(a, b)| a != b).take(3).collect();
        if sums == self.sums { Ok(()) } else { Err(format!("other files, or other bytes: {wrong:?}")) }
    }

    fn under_restarts(
        &mut self,
        served: &mut Served,
        who: ServerKind,
        vers: Vers,
        what: ClientCommand,
    ) -> Result<Row, String> {
        let words = self.words(served, vers, what)?;
        let mut printed = None;
        self.prepare(served, vers, what)?;
        let begin = Instant::now();
        let status = self.spawn(&words)?.wait().map_err(|e| e.to_string())?;
        let quiet = begin.elapsed();
        if !status.success() {
            return Err(format!("{words:?} without any restart: {status}: {}", self.errors()));
        }
        self.check(served, what, &mut printed)?;
        let mut row = Row { who, vers, what, quiet, absences: Vec::new(), stalls: Vec::new(), failed: None };
        for _ in 0..self.restarts * RUNS_PER_RESTART {
            if row.absences.len() >= self.restarts {
                break;
            }
            self.prepare(served, vers, what)?;
            let done = self.disturbed(served, &words, &mut row);
            let done = done.and_then(|()| self.check(served, what, &mut printed));
            if let Err(why) = done {
                row.failed = Some(format!("{why}\n{}", served.said()));
                break;
            }
        }
        if row.failed.is_none() && row.absences.len() < self.restarts {
            row.failed = Some(format!("only {} restarts: it is over too soon", row.absences.len()));
        }
        let longest = row.stalls.iter().max().copied().unwrap_or_default();
        if row.failed.is_none() && who == ServerKind::Landfast && longest > STALL_MAX {
            row.failed = Some(format!("a stall of {:.2} s", longest.as_secs_f64()));
        }
        Ok(row)
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.dir.join("errors")).unwrap_or_default()
    }

    fn disturbed(&mut self, served: &mut Served, words: &[String], row: &mut Row) -> Result<(), String> {
        let mut child = self.spawn(words)?;
        let done = self.watched(&mut child, served, row);
        // Whatever went wrong, nothing of it is under way any more.
        let ended = child.kill().and_then(|()| child.wait());
        done.and_then(|()| ended.map(drop).map_err(|e| format!("the end of {words:?}: {e}")))
    }

    fn watched(&mut self, child: &mut Child, served: &mut Served, row: &mut Row) -> Result<(), String> {
        let deadline = Instant::now() + RUN_LIMIT;
        let wanted = (self.restarts - row.absences.len()).min(usize::try_from(RESTARTS_PER_RUN).unwrap_or(1));
        let mut over = None;
        for _ in 0..wanted {
            // Short of the whole run, so that most moments lie in it.
            let gap = self.chance.within(row.quiet * 2 / (u32::try_from(wanted).unwrap_or(1) + 1));
            over = wait_until(child, Instant::now() + gap)?;
            if over.is_some() {
                break;
            }
            let end = Instant::now();
            let at_once = self.chance.below(3) > 0;
            served.end(at_once)?;
            over = wait_until(child, Instant::now())?;
            let before = self.progress(served, row.what)?;
            served.begin()?;
            let back = Instant::now();
            if over.is_some() {
                break;
            }
            row.absences.push(back - end);
            // Recovery may have touched something; what is longer or fewer is the command's.
            let recovered = self.progress(served, row.what)?;
            loop {
                let now = self.progress(served, row.what)?;
                over = wait_until(child, Instant::now())?;
                let went_on = (now.objects, now.bytes) != (before.objects, before.bytes)
                    || now.changed != recovered.changed;
                if went_on || over.is_some() {
                    row.stalls.push(back.elapsed());
                    break;
                }
                if Instant::now() > deadline {
                    break;
                }
                std::thread::sleep(LOOK);
            }
            if over.is_some() {
                break;
            }
        }
        let status = match over {
            Some(status) => status,
            None => match wait_until(child, deadline)? {
                Some(status) => status,
                None => return Err(format!("not over after {} s: {}", RUN_LIMIT.as_secs(), self.errors())),
            },
        };
        let errors = self.errors();
        let known = ["not responding, still trying", " OK", "refuses connections, trying again"];
        let other = errors.lines().find(|line| !known.iter().any(|part| line.contains(part)));
        match other {
            None if status.success() => Ok(()),
            _ => Err(format!("{status}: {errors}")),
        }
    }
}

impl Row {
    fn line(&self) -> String {
        let shown = |all: &[Duration]| {
            let mut all = all.to_vec();
            all.sort_unstable();
            let of =
                |one: Option<&Duration>| one.map_or("-".to_owned(), |t| format!("{:.2} s", t.as_secs_f64()));
            format!("{} | {}", of(all.get(all.len() / 2)), of(all.last()))
        };
        let (vers, what, restarts) = (self.vers, self.what.name(), self.absences.len());
        let failed = if self.failed.is_some() { ", **failed**" } else { "" };
        format!(
            "| {} | {vers} | `{what}` | {restarts}{failed} | {} | {} |",
            self.who.name(),
            shown(&self.absences),
            shown(&self.stalls)
        )
    }
}

/// Waits for the end of the command, but no longer than until then.
fn wait_until(child: &mut Child, until: Instant) -> Result<Option<std::process::ExitStatus>, String> {
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(Some(status));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        std::thread::sleep(left.min(LOOK / 5));
    }
}

/// The directory `seed`, under whatever path the archive keeps it.
fn find_seed(unpacked: &Path) -> Result<PathBuf, String> {
    let found =
        proc::output(command("find", ["."]).current_dir(unpacked).args(["-type", "d", "-name", "seed"]))?;
    let name = found.lines().next().ok_or("the archive has no directory")?;
    Ok(unpacked.join(name))
}

/// Small files in directories, and large ones.
fn make_tree(tree: &Path, options: &Options) -> std::io::Result<()> {
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut data = |bytes: usize| -> Vec<u8> {
        let mut data: Vec<u8> =
            (0..bytes.div_ceil(8)).flat_map(|_| chance.below(u64::MAX).to_le_bytes()).collect();
        data.truncate(bytes);
        data
    };
    for n in 0..options.files {
        let dir = tree.join(format!("s{}", n % 40));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("f{n}")), data(1024 + n * 97 % 19_000))?;
    }
    fs::create_dir_all(tree)?;
    for (n, mib) in options.large.iter().enumerate() {
        fs::write(tree.join(format!("l{n}")), data((mib << 20) + 77))?;
    }
    Ok(())
}
