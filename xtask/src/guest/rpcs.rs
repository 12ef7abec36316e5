//! `cargo xtask guest rpcs`: what programs that know nothing of NFS cost Linux's client in RPCs, by operation, on Landfast and on the server
//! of the same kernel in a second guest, as root and as an ordinary user.
//!
//! Each work runs on a mount of its own that nobody has used before. Its RPCs are read from `/proc/self/mountstats` before and
//! after each of its steps, after a `sync`. Then the mount ends: what that takes (delegations come back, sessions end) is counted apart, from
//! `/proc/net/rpc/nfs`, which outlives the mount.
//!
//! Since a client that holds delegations can keep times to itself, an archive's times, modes, owners and contents are compared too: as another
//! client sees them while the first is mounted, and on the server's disk when it is not any more.

pub mod attributes;
mod bound;
pub mod kit;
pub mod served;
mod table;
mod works;

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::client::{self, Client, Whose};
use super::image;
use super::machine::{Hardware, Machine};
use super::network::Link;
use super::recipe::{Kernel, Vers};
use super::server::ServeOptions;
use attributes::Look;
use bound::{Bound, Verdict};
use kit::Kit;
use served::Served;
use works::WORKS;

const PREPARE_PROJECT: &str = include_str!("../../guest/work/prepare.sh");
const PREPARE: &str = include_str!("../../guest/rpcs/prepare.sh");

/// Options of `guest rpcs`.
#[derive(Args)]
pub struct Options {
    /// The kernel of both guests: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// NFS versions to mount with.
    #[arg(long, value_delimiter = ',', default_values_t = [Vers::V4_2])]
    vers: Vec<Vers>,
    /// Who serves.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Who::Landfast, Who::Knfsd])]
    server: Vec<Who>,
    /// Who does the work.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [User::Root, User::Ordinary])]
    user: Vec<User>,
    /// Only these: tar, git, npm, make, rsync, list (which needs tar's tree), attributes.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Files of the tree, 50 in a directory. Linux keeps at most 5,000 delegations: with more files each further one is returned.
    #[arg(long, default_value_t = 500)]
    files: u64,
    #[command(flatten)]
    bound: Bound,
    #[command(flatten)]
    serve: ServeOptions,
    /// Both servers' lease in seconds. Linux returns delegations that it has not used for a lease or so, which under emulation would be
    /// in the middle of a work: hence a long one.
    #[arg(long, default_value_t = 600)]
    lease: u64,
    /// Which delegations Landfast's clients are given: off, read, write or times.
    #[arg(long, value_name = "LEVEL")]
    delegations: Option<String>,
    /// Seconds that one step may take.
    #[arg(long, default_value_t = 900)]
    limit: u64,
    /// Print one JSON object instead of the tables.
    #[arg(long)]
    json: bool,
}

impl Options {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        self.check()?;
        image::build(self.kernel)?;
        let build = self.server.contains(&Who::Landfast);
        build.then(|| self.serve.binary()).transpose().map(drop)
    }

    fn wants(&self, work: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == work)
    }

    /// An error names what nobody can do, or what would never be judged.
    fn check(&self) -> Result<(), String> {
        let known = WORKS.iter().map(|work| work.name).chain([attributes::NAME]).collect::<Vec<_>>();
        if let Some(unknown) = self.only.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("no work {unknown}: there are {}", known.join(", ")));
        }
        if self.files < kit::PER_DIRECTORY {
            return Err(format!("--files {}: at least one directory of {}", self.files, kit::PER_DIRECTORY));
        }
        if self.wants(works::LIST) && !self.wants(works::TAR) {
            return Err(format!("{} goes over what {} has made: ask for both", works::LIST, works::TAR));
        }
        for user in User::ALL {
            let judged =
                self.wants(works::TAR) && self.user.contains(&user) && self.server.contains(&Who::Landfast);
            if self.bound.per_file(user).is_some() && !judged {
                return Err(format!(
                    "a bound for {user}: this tar on Landfast is not among what is asked for"
                ));
            }
        }
        Ok(())
    }
}

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// `landfast serve` on the host.
    Landfast,
    /// The kernel's server in a second guest.
    Knfsd,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Who::Landfast => "Landfast",
            Who::Knfsd => "knfsd",
        })
    }
}

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum User {
    /// For whom tar also sets owners and modes.
    Root,
    /// For whom it sets times only.
    Ordinary,
}

impl User {
    const ALL: [User; 2] = [User::Root, User::Ordinary];

    fn id(self) -> u32 {
        match self {
            User::Root => 0,
            User::Ordinary => kit::OWNER,
        }
    }

    /// For names of directories.
    fn word(self) -> &'static str {
        match self {
            User::Root => "root",
            User::Ordinary => "user",
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            User::Root => "root",
            User::Ordinary => "a user",
        })
    }
}

/// Which mount, and whose work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The NFS version.
    #[serde(serialize_with = "in_words")]
    pub vers: Vers,
    /// Who served.
    pub server: Who,
    /// Who worked.
    pub user: User,
}

fn in_words<S: serde::Serializer>(what: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(what)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, v{}", self.server, self.user, self.vers)
    }
}

/// One step of a work.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which mount, and whose work on it.
    #[serde(flatten)]
    pub case: Case,
    /// The work that it belongs to.
    pub work: &'static str,
    /// The command, or [`works::END`].
    pub step: &'static str,
    /// Regular files that it went over.
    pub files: u64,
    /// Directories of these.
    pub directories: u64,
    /// How long it took, under software emulation.
    pub seconds: f64,
    /// RPCs that the client sent.
    pub rpcs: u64,
    /// The same by operation.
    pub operations: BTreeMap<String, u64>,
}

/// What of tar's RPCs belongs to its files, and what to its directories.
#[derive(Clone, Debug, Serialize)]
pub struct Parts {
    /// Which mount, and whose work on it.
    #[serde(flatten)]
    pub case: Case,
    /// RPCs for one more file in a directory that is there.
    pub per_file: f64,
    /// RPCs for a directory, with its share of what an extraction takes once.
    pub per_directory: f64,
}

#[derive(Serialize)]
pub struct Report {
    /// The guests' kernel.
    pub kernel: String,
    /// Landfast's durability.
    pub durability: String,
    /// What was counted.
    pub rows: Vec<Row>,
    /// tar's RPCs a file and a directory.
    pub parts: Vec<Parts>,
    /// How an archive came out.
    pub looks: Vec<Look>,
    /// What was asked of tar's RPCs.
    pub verdicts: Vec<Verdict>,
}

/// Counts; needs root and [`super::network::enter`].
pub fn run(options: &Options) -> Result<ExitCode, String> {
    options.check()?;
    let scratch = image::run_dir("rpcs")?;
    let kit = Kit::make(scratch.path(), options.files)?;
    let image = image::build(options.kernel)?;
    let hardware = Hardware { disk: Some(kit.disk()), link: Some(Link::new()?), ..Hardware::default() };
    let machine = Machine::boot(&image, &hardware)?;
    let kernel = machine.release.clone();
    let limit = Duration::from_secs(options.limit);
    let mut client = Client { machine, server: client::Server::Local, whose: Whose::Linux, limit };
    client.run(None, &format!("WORKS=make\n{PREPARE_PROJECT}\n{PREPARE}"))?;

    let mut report = Report {
        kernel,
        durability: options.serve.durability.clone(),
        rows: Vec::new(),
        parts: Vec::new(),
        looks: Vec::new(),
        verdicts: Vec::new(),
    };
    for who in &options.server {
        let mut served = match who {
            Who::Landfast => {
                let delegations = options.delegations.as_deref();
                Served::landfast(&options.serve, options.lease, delegations)?
            }
            Who::Knfsd => Served::knfsd(&image, limit, options.lease)?,
        };
        client.server = served.server()?;
        let mut session = Session { options, kit: &kit, client: &mut client, served: &mut served };
        let done = session.all(*who, &mut report);
        if let Err(why) = done {
            return Err(format!(
                "{why}\n{}\nThe guest's console:\n{}",
                served.said(),
                client.machine.console()
            ));
        }
        served.end()?;
    }
    report.parts = works::parts(&report.rows);
    report.verdicts = options.bound.judge(&report.rows);
    if options.json {
        println!("{}", serde_json::to_string(&report).map_err(|e| e.to_string())?);
    } else {
        print!("{}", table::text(&report));
    }
    let kept = report.verdicts.iter().all(|verdict| verdict.kept);
    // The kernel's server is the peer: what it loses is shown.
    let right = report.looks.iter().all(|look| look.case.server == Who::Knfsd || look.alike());
    Ok(if kept && right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The client, one server, and what the works are made of.
struct Session<'a> {
    options: &'a Options,
    kit: &'a Kit,
    client: &'a mut Client,
    served: &'a mut Served,
}

impl Session<'_> {
    /// All that was asked for, on this server.
    fn all(&mut self, server: Who, report: &mut Report) -> Result<(), String> {
        for vers in &self.options.vers {
            for user in &self.options.user {
                let case = Case { vers: *vers, server, user: *user };
                for work in WORKS.iter().filter(|work| self.options.wants(work.name)) {
                    let rows = self.work(case, work)?;
                    for row in &rows {
                        eprintln!("{case}: {}: {} RPCs ({:.1} s)", row.step, row.rpcs, row.seconds);
                    }
                    report.rows.extend(rows);
                }
                if self.options.wants(attributes::NAME) {
                    let looks = self.attributes(case)?;
                    report.looks.extend(looks);
                }
            }
        }
        Ok(())
    }

    /// Where this work is done on the mount.
    fn directory(case: Case, work: &str) -> String {
        format!("{}-{}-{work}", case.vers, case.user.word())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn checked(line: &str) -> Result<(), String> {
        let line = Line::try_parse_from(["rpcs"].into_iter().chain(line.split_whitespace()));
        line.map_err(|e| e.to_string())?.options.check()
    }

    #[test]
    fn what_would_never_be_judged_or_done_is_refused() {
        for line in [
            "",
            "--only tar,list --most-per-file 4",
            "--user ordinary --most-per-file-as-user 2",
            "--server landfast --most-per-file 4 --most-per-file-as-user 2",
        ] {
            assert_eq!(checked(line), Ok(()), "{line}");
        }
        for line in [
            "--only untar",
            "--only list",
            "--files 1",
            "--only git --most-per-file 4",
            "--user ordinary --most-per-file 4",
            "--server knfsd --most-per-file-as-user 2",
        ] {
            assert!(checked(line).is_err(), "{line}");
        }
    }
}
