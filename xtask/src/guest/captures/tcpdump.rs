//! tcpdump on one device: it runs when `start` returns, and has written all that passed before `end` was called.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::guest::network::SERVER;
use crate::proc::command;

/// How long it may take to write what it has seen, or to end.
const LIMIT: Duration = Duration::from_secs(60);

/// Between two looks at the file.
const LOOK: Duration = Duration::from_millis(10);

/// What it may be behind the traffic; not in immediate mode, in which each frame takes the place of the longest there.
const BUFFER_KIB: &str = "65536";

/// What says on its standard error that it captures.
const READY: &[u8] = b"listening on";

/// The discard service (RFC 863): nobody there waits for anything.
const DISCARD: u16 = 9;

pub struct Tcpdump {
    child: Child,
    said: BufReader<ChildStderr>,
    file: PathBuf,
}

impl Tcpdump {
    /// Begins to capture all of `device` into `file`.
    pub fn start(device: &str, file: &Path) -> Result<Tcpdump, String> {
        let mut child = command("setpriv", ["--pdeathsig", "KILL", "tcpdump", "-i", device, "-n"])
            .args(["-s", "0", "-B", BUFFER_KIB, "-U", "--nano", "-Z", "root", "-w"])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("tcpdump: {e}"))?;
        let said = child.stderr.take().ok_or("tcpdump: no standard error")?;
        let mut tcpdump = Tcpdump { child, said: BufReader::new(said), file: file.to_owned() };
        let mut all = Vec::new();
        loop {
            let before = all.len();
            tcpdump.said.read_until(b'\n', &mut all).map_err(|e| format!("tcpdump: {e}"))?;
            match &all[before..] {
                [] => return Err(format!("tcpdump: {}", String::from_utf8_lossy(&all).trim())),
                line if line.windows(READY.len()).any(|words| words == READY) => return Ok(tcpdump),
                _ => {}
            }
        }
    }

    /// Ends it when all that passed until now is in the file, which a datagram to `guest` behind it shows; an error if it lost
    /// anything.
    pub fn end(mut self, guest: &str) -> Result<(), String> {
        let mark = format!("{} has written all before this", self.file.display());
        let sent = UdpSocket::bind((SERVER, 0)).and_then(|s| s.send_to(mark.as_bytes(), (guest, DISCARD)));
        sent.map_err(|e| format!("a datagram to {guest}: {e}"))?;
        let deadline = Instant::now() + LIMIT;
        let mut written = Vec::new();
        let mut file = File::open(&self.file).map_err(|e| format!("{}: {e}", self.file.display()))?;
        loop {
            file.read_to_end(&mut written).map_err(|e| format!("{}: {e}", self.file.display()))?;
            if written.windows(mark.len()).any(|bytes| bytes == mark.as_bytes()) {
                break;
            }
            // What was looked through is let go, but for the beginning of a mark.
            written.drain(..written.len().saturating_sub(mark.len()));
            if let Some(status) = self.child.try_wait().map_err(|e| format!("tcpdump: {e}"))? {
                return Err(format!("tcpdump: {status}: {}", self.rest()?));
            }
            if Instant::now() > deadline {
                return Err("tcpdump does not see what is sent to the guest".to_owned());
            }
            std::thread::sleep(LOOK);
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).map_err(|e| format!("SIGTERM to tcpdump: {e}"))?;
        }
        // Its standard error ends with it.
        let said = self.rest()?;
        let status = self.child.wait().map_err(|e| format!("tcpdump: {e}"))?;
        match lost(&said) {
            Some(0) if status.success() => Ok(()),
            _ => Err(format!("tcpdump: {status}: {said}")),
        }
    }

    fn rest(&mut self) -> Result<String, String> {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).map_err(|e| format!("tcpdump: {e}"))?;
        Ok(rest)
    }
}

impl Drop for Tcpdump {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The frames that it did not keep up with, as it says at its end.
fn lost(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.ends_with("dropped by kernel"))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_dropped_is_read() {
        let said = "\n120 packets captured\n121 packets received by filter\n3 packets dropped by kernel\n";
        assert_eq!(lost(said), Some(3));
        assert_eq!(lost("tcpdump: nothing\n"), None);
    }
}
