//! What can be typed behind `landfast rm`. Letters and names are GNU's.

use super::super::ask::Asking;
use super::super::common::Common;
use clap::Args;
use std::path::PathBuf;

/// `landfast rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// What to remove: nfs://HOST[:PORT]/PATH
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
    /// The top of an export stays (as it does)
    #[arg(long)]
    preserve_root: bool,
    /// Say what is done
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Note in this file what is begun and removed, and go on from there when it is there already
    #[arg(long, value_name = "JOURNAL")]
    pub resume: Option<PathBuf>,
    #[command(flatten)]
    pub common: Common,
}
