//! A file so large that the client lets the kernel's server go on with its COPY after it was answered (RFC 7862 section 4.5), which 6.1
//! does: copied and on the disk after a power cut, copied over what a killed client left, and left alone after two interrupts.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::image::Image;
use super::knfsd;
use super::machine::{Hardware, Machine};
use super::recipe::{Kernel, Vers};
use crate::proc::{command, run_within};

/// Bytes of the file.
const LARGE_BYTES: u64 = 320 << 20;

/// Bytes that the server copies for one COPY.
fn piece_bytes(kernel: Kernel) -> u64 {
    match kernel {
        // It goes on after it has answered: all that the client asks for (`COPY_PIECE_BYTES` of its `limits.rs`).
        Kernel::V6_1 => 64 << 20,
        // It answers each at its end, however it is asked, and keeps that end near.
        Kernel::V6_12 | Kernel::Sid => 4 << 20,
    }
}

/// How long one copy may take.
const LIMIT: Duration = Duration::from_secs(600);

/// Between two looks at the server.
const LOOK: Duration = Duration::from_millis(50);

/// Makes the file; no two of its parts are alike.
const MAKE: &str = "cd /srv/export
head -c $BYTES /dev/urandom >large
sync large";

/// The server's counters of COPY and OFFLOAD_STATUS, operations 60 and 67, and the copy's length.
const LOOK_AT: &str = "awk '/^proc4ops/ { print $(3 + 60), $(3 + 67) }' /proc/net/rpc/nfsd
stat -c %s /srv/export/$NAME 2>/dev/null || echo 0";

/// A machine that serves, and what is needed to serve again.
pub struct Stage<'a> {
    pub binary: &'a str,
    pub image: &'a Image,
    pub hardware: &'a Hardware,
    pub fs: &'a str,
    pub kernel: Kernel,
    pub guest: Machine,
}

/// What is seen of the server.
struct ServerView {
    copies: u64,
    asked: u64,
    len: u64,
}

impl Stage<'_> {
    /// Copies, and returns the machine that runs then.
    pub fn check(mut self) -> Result<Machine, String> {
        self.script(&format!("BYTES={LARGE_BYTES}\n{MAKE}"))?;
        self.whole()?;
        self.killed()?;
        self.interrupted_twice()?;
        Ok(self.guest)
    }

    fn script(&mut self, script: &str) -> Result<String, String> {
        let mut said = Vec::new();
        let code = self.guest.run(&format!("set -euo pipefail\n{script}"), &[], LIMIT, &mut said)?;
        let said = String::from_utf8_lossy(&said).into_owned();
        if code == 0 { Ok(said) } else { Err(format!("{script}: {code}: {said}")) }
    }

    fn look(&mut self, name: &str) -> Result<ServerView, String> {
        let said = self.script(&format!("NAME={name}\n{LOOK_AT}"))?;
        let numbers: Vec<u64> = said.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        match numbers[..] {
            [copies, asked, len] => Ok(ServerView { copies, asked, len }),
            _ => Err(format!("the server's counters: {said}")),
        }
    }

    fn url(&self, name: &str) -> Result<String, String> {
        knfsd::url_of(self.hardware, Vers::V4_2, name)
    }

    /// The power goes when the copy was reported; the copy is there.
    fn whole(&mut self) -> Result<(), String> {
        let before = self.look("whole")?;
        let start = Instant::now();
        let (from, to) = (self.url("large")?, self.url("whole")?);
        run_within(LIMIT, &mut command(self.binary, ["cp", "--preserve=timestamps", &from, &to]))?;
        let seconds = start.elapsed().as_secs_f64();
        let after = self.look("whole")?;
        self.guest.end();
        self.guest = knfsd::boot(self.image, self.hardware, self.fs, "sync")?;
        self.script("cmp /srv/export/large /srv/export/whole")?;
        let (copies, asked) = (after.copies - before.copies, after.asked - before.asked);
        let goes_on = self.kernel == Kernel::V6_1;
        if copies != LARGE_BYTES.div_ceil(piece_bytes(self.kernel)) || (asked > 0) != goes_on {
            return Err(format!(
                "the server was asked for {copies} copies, and {asked} times how they go on"
            ));
        }
        println!(
            "{} MiB copied by the server in {seconds:.1} s: {copies} COPY and {asked} OFFLOAD_STATUS; there after a power cut",
            LARGE_BYTES >> 20
        );
        Ok(())
    }

    /// A copy that is on its way: the second piece was begun.
    fn begun(&mut self, name: &str) -> Result<Child, String> {
        let before = self.look(name)?;
        let (from, to) = (self.url("large")?, self.url(name)?);
        let mut cp = command(self.binary, ["cp", "--preserve=timestamps", &from, &to]);
        let mut child = cp.stderr(Stdio::null()).spawn().map_err(|e| format!("cp: {e}"))?;
        let deadline = Instant::now() + LIMIT;
        while self.look(name)?.copies < before.copies + 2 {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("the copy was over before it was looked at: {status}"));
            }
            if Instant::now() > deadline {
                return Err("the copy does not go on".to_owned());
            }
            std::thread::sleep(LOOK);
        }
        Ok(child)
    }

    /// A client that is killed leaves a part; the same command makes a whole of it.
    fn killed(&mut self) -> Result<(), String> {
        let mut child = self.begun("killed")?;
        child.kill().and_then(|()| child.wait()).map_err(|e| format!("SIGKILL to cp: {e}"))?;
        let left = self.look("killed")?.len;
        let (from, to) = (self.url("large")?, self.url("killed")?);
        run_within(LIMIT, &mut command(self.binary, ["cp", "--preserve=timestamps", &from, &to]))?;
        self.script("cmp /srv/export/large /srv/export/killed")?;
        println!("killed with {} MiB copied; whole after the next run", left >> 20);
        Ok(())
    }

    /// After two interrupts the server ends the piece that it was asked for, and goes no further.
    fn interrupted_twice(&mut self) -> Result<(), String> {
        let mut child = self.begun("interrupted")?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("no process")?;
        for _ in 0..2 {
            kill_process(pid, Signal::INT).map_err(|e| format!("SIGINT to cp: {e}"))?;
            // Two that come at once are one.
            std::thread::sleep(LOOK);
        }
        let status = child.wait().map_err(|e| format!("cp: {e}"))?;
        let begun = self.look("interrupted")?.copies;
        let mut last = (self.look("interrupted")?.len, Instant::now());
        while last.1.elapsed() < Duration::from_secs(10) {
            let seen = self.look("interrupted")?;
            if seen.copies != begun {
                return Err("pieces are begun after the client's end".to_owned());
            }
            if seen.len != last.0 {
                last = (seen.len, Instant::now());
            }
            std::thread::sleep(LOOK);
        }
        if status.code() != Some(130) || last.0 >= LARGE_BYTES || last.0 % piece_bytes(self.kernel) != 0 {
            return Err(format!("interrupted twice: {status}, {} bytes copied in the end", last.0));
        }
        println!("interrupted twice: {} MiB copied in the end", last.0 >> 20);
        Ok(())
    }
}
