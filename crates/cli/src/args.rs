//! The top of the command line: the names of the commands, with their help texts.

use crate::commands::Tools;
use crate::log::args::LogCommand;
#[cfg(feature = "mount")]
use crate::mount::args::{self as mount, DirArgs, MountArgs};
use crate::predict::args::{self as predict, PredictArgs};
use crate::probe::args::ProbeArgs;
use crate::serve::args::{CheckArgs, ExportsArgs, ServeArgs};
use crate::trace::args::{self as trace, TraceArgs};
use crate::untar::args::UntarArgs;
use crate::verify::args::VerifyCommand;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "landfast",
    version,
    about = "NFS that lands many small files on stable storage fast",
    max_term_width = 100
)]
pub struct Cli {
    /// Print more on standard error: once for what happens, twice for each request. LANDFAST_LOG filters by module
    #[arg(long = "debug", global = true, action = clap::ArgAction::Count)]
    pub debug: u8,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve directories over NFS (versions 3, 4.0, 4.1 and 4.2), each with an intent log in front of it
    Serve(ServeArgs),
    /// List the exports of a configuration file: names, paths, clients and options
    Exports(ExportsArgs),
    /// Check a configuration file and report all mistakes in it
    Check(CheckArgs),
    /// Create, resize, check and read intent logs
    #[command(subcommand)]
    Log(LogCommand),
    /// Extract a tar archive onto an NFS server; every file is durable when it returns
    Untar(UntarArgs),
    /// Mount a directory of an NFS server, with FUSE: new files take one round trip
    #[cfg(feature = "mount")]
    #[command(after_help = mount::HELP)]
    Mount(MountArgs),
    /// Make everything stable that was written through a mount, then unmount it
    #[cfg(feature = "mount")]
    Umount(DirArgs),
    /// Make everything stable that was written through a mount; print paths that failed
    #[cfg(feature = "mount")]
    Sync(DirArgs),
    /// Print the state of a mount
    #[cfg(feature = "mount")]
    Status(DirArgs),
    /// What GNU tools do, on an NFS server
    #[command(flatten)]
    Tool(Tools),
    /// Find what bounds NFS work: reads a capture or a mount's counters and says where the time goes
    #[command(after_help = trace::HELP)]
    Trace(TraceArgs),
    /// Measure a live server for some seconds and say what bounds small files on it
    #[command(
        after_help = "The probe works in a directory of its own and removes it at the end, also after Ctrl-C. Exit status: 0 done, \
2 nothing could be measured, 130 interrupted."
    )]
    Probe(ProbeArgs),
    /// Predict how long `tar -x` takes onto a server, now and with other devices, clients or networks
    #[command(after_help = predict::HELP)]
    Predict(PredictArgs),
    /// Check whether an NFS server keeps what it acknowledged when its power is cut
    #[command(subcommand)]
    Verify(VerifyCommand),
    /// Run the main job beside its peers on emulated disks and an emulated network, and print one table
    #[cfg(feature = "lab")]
    Demo(crate::lab::args::DemoArgs),
    /// Run the lab: emulated disks, experiments, power cuts
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(crate::lab::args::LabCommand),
}
