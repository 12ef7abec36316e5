//! libnfs's `nfs-cp` (Debian's libnfs-utils), with NFS version 3: it copies one file, so a tree is a loop, or several at a time.
//!
//! Its version 4 cannot write more than some 3 KiB (libnfs 4.0 encodes into a buffer of 4 KiB), and it makes no directories:
//! these have to be there.

use super::program::Pace;
use crate::error::{Error, Result};
use crate::mounts::run;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PROGRAM: &str = "nfs-cp";
pub(crate) const PACKAGE: &str = "libnfs-utils";

pub fn possible() -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|dir| dir.join(PROGRAM).exists());
    if there { Ok(()) } else { Err(Error::NoTool { tool: PROGRAM.into(), package: PACKAGE }) }
}

/// Copies `files`, given by their names below `tree`, to the same names below `path` on the server, `at_once` at a time, until
/// all are done or the budget is spent.
pub fn copy(
    addr: SocketAddr,
    path: &str,
    tree: &Path,
    files: &[String],
    at_once: usize,
    budget: Duration,
) -> Result<Pace> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let start = Instant::now();
    let work = || -> Result<()> {
        while start.elapsed() < budget {
            let Some(name) = files.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let port = addr.port();
            let to = format!("nfs://{}{path}/{name}?version=3&nfsport={port}&mountport={port}", addr.ip());
            let mut command = Command::new(PROGRAM);
            crate::sys::end_with_this_thread(&mut command);
            run(command.arg(tree.join(name)).arg(to), PACKAGE)?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..at_once.max(1)).map(|_| scope.spawn(work)).collect();
        let gone = |_| Error::Child { role: "nfs-cp", what: "panic".into() };
        all.into_iter().try_for_each(|one| one.join().map_err(gone)?)
    })?;
    Ok(Pace { files: done.into_inner() as u64, seconds: start.elapsed().as_secs_f64() })
}
