//! How an emulated disk is made.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DiskOptions {
    pub mountpoint: PathBuf,
    /// Size in bytes, a multiple of 4096.
    pub size: u64,
    /// File that holds the durable image and outlives the process; else it is in memory.
    pub image: Option<PathBuf>,
    /// Threads that serve requests; the default is named in `limits`.
    pub threads: Option<usize>,
    /// A power cut ends the process.
    pub exit_on_cut: bool,
    /// Keep nothing that is mounted but the disk itself; whoever started the process unmounts it.
    #[serde(default)]
    pub apart: bool,
    /// Take all memory (twice the size) at the start.
    pub prefault: bool,
    /// Control words, as for the `ctl` file.
    pub settings: String,
}
