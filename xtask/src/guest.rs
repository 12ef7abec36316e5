//! `cargo xtask guest ...`: a virtual machine with Debian's kernel, whose NFS client is the one that people use.
//!
//! It runs under QEMU's software emulation, so it needs no help from the host's kernel; times in it say little,
//! counts are exact. Servers and guests of one run have a network of their own ([`network`]).

mod archive;
mod captures;
mod chance;
mod channel;
mod check;
mod client;
mod commands;
mod cuts;
mod disk;
mod ether;
mod folded;
mod frozen;
mod ganesha;
mod image;
mod injected;
mod knfsd;
mod large_copy;
mod linux_source;
mod listing;
mod machine;
mod markdown;
mod mountstats;
mod network;
mod probed;
mod recipe;
mod report;
mod restarts;
mod rpcs;
mod server;
mod setup;
mod speed;
mod squashed;
mod suite;
mod tree;
mod verdicts;
mod verify;
mod work;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

#[cfg(test)]
pub use check::names as checks;
pub use machine::NETWORK_STANDS;
use machine::{Hardware, Machine};
pub use network::possible;
use recipe::Kernel;

/// The guest's tasks.
#[derive(Subcommand)]
pub enum Task {
    /// Build the guest's disk, kernel and initrd, unless they are cached under target/guest.
    Build(BuildOptions),
    /// Boot a guest, say how long that took and which kernel runs, and end it.
    Boot(Common),
    /// Boot a guest, run a command in it, and exit with the command's exit code.
    Run(RunOptions),
    /// Boot a guest with its console on this terminal; `exit` ends it.
    Sh(Common),
    /// Run the checks of Linux's NFS client against `landfast serve`.
    Check(check::Options),
    /// Run a suite that the field trusts, and compare what it finds with what is known.
    Suite(suite::Options),
    /// Do real work on the mount (git, make, SQLite, rsync, cp, appending), also while the server is restarted.
    Work(work::Options),
    /// Cut the power of the server and its disks in the middle of tar, git clone and SQLite in a guest.
    Cuts(cuts::Options),
    /// Freeze a guest that holds write delegations, change its files meanwhile, and look at what it does when it goes on.
    Frozen(frozen::Options),
    /// Run the client's commands while their server is restarted: Landfast's, nfs-ganesha, and the kernel's in a guest.
    Restarts(restarts::Options),
    /// Cut the power of a guest whose kernel serves NFS, and ask `landfast verify` what it has lost.
    Verify(verify::Options),
    /// Run the client's commands on a guest whose kernel serves NFS, in each version.
    Commands(commands::Options),
    /// Capture what Linux's NFS client sends, and compare what `landfast trace` says of it with tshark and the client's counters.
    Captures(captures::Options),
    /// Capture what Linux's NFS client does while something is done to it (a long way, slow disks, ..), and ask `landfast trace` what it was.
    Injected(injected::Options),
    /// Make thirty captures whose causes are known, of Linux's client and libnfs, and judge what `landfast trace` says of each.
    Verdicts(verdicts::Options),
    /// Measure Linux's NFS client and Landfast's beside each other in a guest, over a network of several round trips.
    Speed(speed::Options),
    /// Count what tar, git, npm, make, rsync and ls cost Linux's NFS client in RPCs, on Landfast and on the server of the same kernel.
    Rpcs(rpcs::Options),
    /// Measure how long a client takes to list the tree that another has just written and holds delegations of.
    Listing(listing::Options),
    /// Extract Linux's source onto `landfast serve` and compare it file by file with a local extraction.
    LinuxSource(linux_source::Options),
}

/// What all guest tasks take.
#[derive(Args)]
pub struct Common {
    /// The guest's kernel: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// Megabytes of memory.
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// A file that the guest sees as the read-only disk /dev/vdb.
    #[arg(long)]
    disk: Option<PathBuf>,
}

impl Common {
    fn hardware(&self) -> Hardware {
        Hardware { memory_mb: self.memory, disk: self.disk.clone(), ..Hardware::default() }
    }
}

/// Options of `guest build`.
#[derive(Args)]
pub struct BuildOptions {
    /// The guest's kernel: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// Also what the other commands need: the archive that they extract, the programs of the suites.
    #[arg(long)]
    all: bool,
}

/// Options of `guest run`.
#[derive(Args)]
pub struct RunOptions {
    #[command(flatten)]
    common: Common,
    /// Seconds after which the command is given up.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// Run this script of the host instead of a command (`-`: from standard input).
    #[arg(long)]
    script: Option<PathBuf>,
    /// The command, for bash.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Runs a guest task.
pub fn run(task: &Task) -> ExitCode {
    let result = match task {
        Task::Check(options) => network::enter(|| options.fetch()).and_then(|_net| check::run(options)),
        Task::Suite(options) => network::enter(|| options.fetch()).and_then(|_net| suite::run(options)),
        Task::Work(options) => network::enter(|| options.fetch()).and_then(|_net| work::run(options)),
        Task::Cuts(options) => network::enter(|| options.fetch()).and_then(|_net| cuts::run(options)),
        Task::Frozen(options) => network::enter(|| options.fetch()).and_then(|_net| frozen::run(options)),
        Task::Restarts(options) => network::enter(|| options.fetch()).and_then(|_net| restarts::run(options)),
        Task::Verify(options) => network::enter(|| options.fetch()).and_then(|_net| verify::run(options)),
        Task::Commands(options) => network::enter(|| options.fetch()).and_then(|_net| commands::run(options)),
        Task::Captures(options) => network::enter(|| options.fetch()).and_then(|_net| captures::run(options)),
        Task::Injected(options) => network::enter(|| options.fetch()).and_then(|_net| injected::run(options)),
        Task::Verdicts(options) => network::enter(|| options.fetch()).and_then(|_net| verdicts::run(options)),
        Task::Speed(options) => network::enter(|| options.fetch()).and_then(|_net| speed::run(options)),
        Task::Rpcs(options) => network::enter(|| options.fetch()).and_then(|_net| rpcs::run(options)),
        Task::Listing(options) => network::enter(|| options.fetch()).and_then(|_net| listing::run(options)),
        Task::LinuxSource(options) => {
            network::enter(|| options.fetch()).and_then(|_net| linux_source::run(options))
        }
        Task::Build(options) => build(options),
        Task::Boot(common) => boot(common),
        Task::Run(options) => run_command(options),
        Task::Sh(common) => image::build(common.kernel)
            .and_then(|image| Machine::shell(&image, &common.hardware()))
            .map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::from(125)
    })
}

fn build(options: &BuildOptions) -> Result<ExitCode, String> {
    let image = image::build(options.kernel)?;
    println!("Linux {}: {}", image.release, image.disk.display());
    if options.all {
        archive::plain(&archive::find(work::ARCHIVE)?)?;
        suite::fetch()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn boot(common: &Common) -> Result<ExitCode, String> {
    let image = image::build(common.kernel)?;
    let machine = Machine::boot(&image, &common.hardware())?;
    println!("Linux {} was ready after {:.1} s", machine.release, machine.boot.as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

fn run_command(options: &RunOptions) -> Result<ExitCode, String> {
    let script = match &options.script {
        Some(file) if file.as_os_str() == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|e| format!("standard input: {e}"))?;
            text
        }
        Some(file) => std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?,
        None if options.command.is_empty() => return Err("no command: see --help".to_owned()),
        None => options.command.join(" "),
    };
    let image = image::build(options.common.kernel)?;
    let mut machine = Machine::boot(&image, &options.common.hardware())?;
    let limit = Duration::from_secs(options.timeout);
    let code = machine.run(&script, &[], limit, &mut std::io::stdout())?;
    std::io::stdout().flush().map_err(|e| format!("standard output: {e}"))?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(255)))
}
