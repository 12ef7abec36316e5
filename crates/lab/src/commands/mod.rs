//! The client's commands on any server, each held against what GNU's tools say of the same tree on this machine.
//!
//! The lab makes a tree, brings it to the server with Landfast's commands, looks at it there with others, and removes it. It
//! sees the server through NFS alone, so the server may be anywhere; what it looks with is not what it wrote with.
//!
//! | room | subject |
//! |---|---|
//! | `tree` | the tree on this machine |
//! | `server` | a directory on the server, and what commands say there |
//! | `steps` | what is done, in this order, and what must come of it |

mod server;
mod steps;
mod tree;

use server::Server;

use crate::error::{Context, Result};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Debug, Clone)]
pub struct Options {
    /// Directories on servers, as URLs, each with its version.
    pub urls: Vec<String>,
    /// Small files of the tree.
    pub files: u64,
    pub binary: PathBuf,
}

#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// The directory it was done in.
    pub url: String,
    pub command: &'static str,
    /// How long all calls of it took.
    pub seconds: f64,
    /// What is wrong; empty when nothing is.
    pub wrong: Vec<String>,
}

/// So many lines of what is wrong are kept of a step.
const WRONG_MAX: usize = 8;

/// Does everything on each server. `progress` hears of each step.
/// Errors: What keeps the lab from working; what a command does wrong is in the steps.
pub fn run(options: &Options, mut progress: impl FnMut(&Step)) -> Result<Vec<Step>> {
    let scratch = tempfile::Builder::new()
        .prefix("landfast-commands-")
        .tempdir()
        .context(|| "make a temporary directory".to_owned())?;
    let tree = scratch.path().join("tree");
    tree::make(&tree, options.files)?;
    let mut done = Vec::new();
    for url in &options.urls {
        let work = scratch.path().join("work");
        std::fs::create_dir(&work).context(|| format!("create {}", work.display()))?;
        let server = Server::new(&options.binary, url, &tree, &work);
        for (command, does) in steps::ALL {
            let start = Instant::now();
            let mut wrong = does(&server).unwrap_or_else(|e| vec![e.to_string()]);
            wrong.truncate(WRONG_MAX);
            let step = Step { url: url.clone(), command, seconds: start.elapsed().as_secs_f64(), wrong };
            progress(&step);
            done.push(step);
        }
        std::fs::remove_dir_all(&work).context(|| format!("remove {}", work.display()))?;
    }
    Ok(done)
}
