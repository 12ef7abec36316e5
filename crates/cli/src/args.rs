//! The command line: what can be typed, with its help texts.

use crate::commands::Tools;
use crate::log::args::LogCommand;
use crate::predict::args::{self as predict, PredictArgs};
use crate::probe::args::ProbeArgs;
use crate::serve::args::{CheckArgs, ExportsArgs, ServeArgs};
use crate::trace::args::{self as trace, TraceArgs};
use crate::untar::args::UntarArgs;
use crate::verify::args::VerifyCommand;
use clap::{Parser, Subcommand};

/// NFS that lands many small files on stable storage fast.
#[derive(Debug, Parser)]
#[command(
    name = "landfast",
    version,
    about = "NFS that lands many small files on stable storage fast",
    max_term_width = 100
)]
pub struct Cli {
    /// Say more on standard error: once what happens, twice each request; LANDFAST_LOG chooses by module
    #[arg(long = "debug", global = true, action = clap::ArgAction::Count)]
    pub debug: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Export directories over NFS (versions 3, 4.0, 4.1 and 4.2), with an intent log in front of each
    Serve(ServeArgs),
    /// List what a configuration file serves, to whom and how
    Exports(ExportsArgs),
    /// Say all that is wrong with a configuration file
    Check(CheckArgs),
    /// Make, resize, check and read intent logs
    #[command(subcommand)]
    Log(LogCommand),
    /// Extract a tar archive onto an NFS server; durable when it returns
    Untar(UntarArgs),
    /// What GNU tools do, on an NFS server
    #[command(flatten)]
    Tool(Tools),
    /// Where the time goes: what bounds the NFS work in a capture, why, and what would change it
    #[command(after_help = trace::HELP)]
    Trace(TraceArgs),
    /// What each call to a live server takes from here, and what bounds small files on it
    #[command(
        after_help = "A directory of its own is made there and removed, also after Ctrl-C. Exit status: 0 done, \
2 nothing could be measured, 130 interrupted."
    )]
    Probe(ProbeArgs),
    /// How long `tar -x` takes onto a server, now and with other devices, clients or networks
    #[command(after_help = predict::HELP)]
    Predict(PredictArgs),
    /// Whether any NFS server keeps what it acknowledged when its power is cut
    #[command(subcommand)]
    Verify(VerifyCommand),
    /// The main job against its peers on emulated disks and an emulated network, in one table
    #[cfg(feature = "lab")]
    Demo(crate::lab::args::DemoArgs),
    /// The emulated disk, the experiments, the power cuts
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(crate::lab::args::LabCommand),
}
