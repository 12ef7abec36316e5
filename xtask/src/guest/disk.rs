//! `landfast lab disk` as a process: a disk with chosen latencies and a volatile write cache.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::proc::{self, command};

/// An emulated disk in a process of its own; it ends with this value.
pub struct Disk {
    process: Child,
    dir: PathBuf,
}

impl Disk {
    /// Starts one of `bytes`, with these control words.
    pub fn start(binary: &Path, dir: &Path, bytes: u64, words: &str) -> Result<Disk, String> {
        fs::create_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let mut process = command("setpriv", ["--pdeathsig", "KILL"])
            // What a program asks of a file that is not served is not worth a line.
            .env("LANDFAST_LOG", "error")
            .arg(binary)
            .args(["lab", "disk"])
            .arg(dir)
            .arg(bytes.to_string())
            .args(words.split(' '))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("the emulated disk: {e}"))?;
        let mut line = String::new();
        if let Some(out) = process.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(|e| format!("the emulated disk: {e}"))?;
        }
        let disk = Disk { process, dir: dir.to_owned() };
        if line.trim() == "ready" { Ok(disk) } else { Err("the emulated disk did not start".to_owned()) }
    }

    /// What behaves like a block device.
    pub fn image(&self) -> PathBuf {
        self.dir.join("disk.img")
    }

    /// One of its counters, which begin at its start.
    pub fn count(&self, name: &str) -> Result<u64, String> {
        let stats = self.dir.join("stats");
        let text = fs::read_to_string(&stats).map_err(|e| format!("{}: {e}", stats.display()))?;
        let mut counters = text.lines().filter_map(|line| line.split_once(' '));
        let value = counters.find(|(counter, _)| *counter == name).and_then(|(_, value)| value.parse().ok());
        value.ok_or(format!("{}: no {name}", stats.display()))
    }

    pub fn control(&self, words: &str) -> Result<(), String> {
        let ctl = self.dir.join("ctl");
        fs::write(&ctl, words).map_err(|e| format!("{}: {words}: {e}", ctl.display()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The mount goes with the process; it may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = proc::output(command("umount", ["--lazy"]).arg(&self.dir));
    }
}
