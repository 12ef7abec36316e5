//! The arguments of `landfast rm`. Letters and names are GNU's.

use super::super::ask::Asking;
use super::super::common::Common;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct RmArgs {
    /// Files and directories to remove: nfs://HOST[:PORT]/PATH
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    #[command(flatten)]
    pub asking: Asking,
    /// Remove directories and their contents
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub recursive: bool,
    /// Remove empty directories
    #[arg(short = 'd', long)]
    pub dir: bool,
    /// Do not remove the root of an export (the default, and always so)
    #[arg(long)]
    preserve_root: bool,
    /// Print each object that is removed
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Record in this file what was started and removed; if the file exists, continue from there
    #[arg(long, value_name = "JOURNAL")]
    pub resume: Option<PathBuf>,
    #[command(flatten)]
    pub common: Common,
}
