//! One running guest: a QEMU process with software emulation, and its command channel.

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use procfs::process::ProcState;
use rustix::process::{Pid, Signal, kill_process};

use super::channel::Channel;
use super::image::Image;
use super::network::Link;
use crate::proc::command;

/// How long a guest may take from start to ready: about 10 s on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(300);

/// How long QEMU may take to stop when it is told to.
const FREEZE_LIMIT: Duration = Duration::from_secs(10);

/// Lines of the guest's console shown when it fails.
const CONSOLE_LINES: usize = 30;

/// Printed when QEMU's network card has stalled, which neither server nor client can do anything about. It happened
/// twice in some thousand guests (QEMU 7.2, software emulation), before they kept their memory barriers
/// (`arguments`).
pub const NETWORK_STANDS: &str = "QEMU's network card stands still";

/// Milliseconds without progress that count as a stall. A guest without a processor for a while reports shorter ones.
const NETWORK_STANDS_MS: u64 = 60_000;

/// Bytes of a disk's sector: QEMU cuts a raw disk to whole ones.
const SECTOR_BYTES: u64 = 512;

pub struct Hardware {
    /// Its host name, which no other guest at the same server may have.
    pub name: String,
    pub memory_mb: u32,
    pub cpus: u32,
    /// A file that it sees as the read-only disk `/dev/vdb`, padded with zeroes to whole sectors.
    pub disk: Option<PathBuf>,
    /// A file that it sees as a disk which it may write: `/dev/vdb`, or `/dev/vdc` behind `disk`. QEMU keeps nothing of it in
    /// memory, and passes the guest's flushes on.
    pub scratch: Option<PathBuf>,
    /// Its place on a network; without one it reaches its host's loopback only, and is not reached.
    pub link: Option<Link>,
}

impl Default for Hardware {
    fn default() -> Self {
        // The process id makes the name unique on this host; the server tells guests apart by their name.
        let name = format!("landfast-{}", std::process::id());
        Hardware { name, memory_mb: 1024, cpus: 1, disk: None, scratch: None, link: None }
    }
}

/// A guest that is ready. It ends when this value is dropped.
pub struct Machine {
    qemu: Child,
    channel: Channel,
    dir: tempfile::TempDir,
    pub release: String,
    /// Time from start to ready.
    pub boot: Duration,
}

impl Machine {
    /// Boots a guest and waits until it takes commands.
    pub fn boot(image: &Image, hardware: &Hardware) -> Result<Machine, String> {
        let start = Instant::now();
        let dir = super::image::run_dir("guest")?;
        let socket = dir.path().join("agent");
        // QEMU connects to us, so there is no moment at which the socket is not there yet.
        let listener = UnixListener::bind(&socket).map_err(|e| format!("{}: {e}", socket.display()))?;
        listener.set_nonblocking(true).map_err(|e| format!("{}: {e}", socket.display()))?;
        let console = dir.path().join("console");
        let mut arguments = arguments(image, hardware, "")?;
        arguments.extend([
            "-display".into(),
            "none".into(),
            "-serial".into(),
            format!("file:{}", console.display()),
            "-chardev".into(),
            format!("socket,id=agent,path={}", socket.display()),
            "-device".into(),
            "virtio-serial-pci".into(),
            "-device".into(),
            "virtserialport,chardev=agent,name=landfast.agent".into(),
        ]);
        let log = fs::File::create(dir.path().join("qemu")).map_err(|e| format!("QEMU's messages: {e}"))?;
        let mut qemu = command("setpriv", &arguments)
            .env("TMPDIR", dir.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| format!("QEMU: {e}"))?;
        match connect(&listener, &mut qemu, start + BOOT_LIMIT) {
            Ok((channel, release)) => Ok(Machine { qemu, channel, dir, release, boot: start.elapsed() }),
            Err(why) => {
                end(&mut qemu);
                let said = [console, dir.path().join("qemu")].map(|file| tail(&file)).concat();
                Err(format!("the guest did not start: {why}\n{said}"))
            }
        }
    }

    /// Boots a guest whose console is this terminal, with a shell; returns when it is left.
    pub fn shell(image: &Image, hardware: &Hardware) -> Result<(), String> {
        let mut arguments = arguments(image, hardware, "landfast.shell=1")?;
        arguments.extend(["-nographic", "-serial", "stdio"].map(String::from));
        let status = command("setpriv", &arguments)
            .env("TMPDIR", super::image::cache_dir())
            .stdin(Stdio::inherit())
            .status()
            .map_err(|e| format!("QEMU: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("QEMU: {status}")) }
    }

    /// Runs a script in the guest; its output goes to `sink` as it comes. Returns its exit code.
    pub fn run(
        &mut self,
        script: &str,
        input: &[u8],
        limit: Duration,
        sink: &mut dyn Write,
    ) -> Result<i32, String> {
        let console = self.dir.path().join("console");
        let stands = || {
            network_stands(&fs::read_to_string(&console).unwrap_or_default())
                .then(|| NETWORK_STANDS.to_owned())
        };
        self.channel
            .run((script, input), limit, sink, &stands)
            .map_err(|why| format!("{why}\n{}", tail(&console)))
    }

    pub fn end(&mut self) {
        end(&mut self.qemu);
    }

    /// Stops the guest in the middle of whatever it does; returns when it stands still.
    pub fn freeze(&self) -> Result<(), String> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + FREEZE_LIMIT;
        let process = || procfs::process::Process::new(self.qemu.id().cast_signed());
        let stands = || -> procfs::ProcResult<bool> {
            for task in process()?.tasks()? {
                if !matches!(task?.stat()?.state()?, ProcState::Stopped) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        while !stands().map_err(|e| format!("QEMU: {e}"))? {
            if Instant::now() > deadline {
                return Err("QEMU does not stop".to_owned());
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Lets a guest that was frozen go on.
    pub fn thaw(&self) -> Result<(), String> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = Pid::from_raw(self.qemu.id().cast_signed()).ok_or("QEMU has no process")?;
        kill_process(pid, signal).map_err(|e| format!("{signal:?} to QEMU: {e}"))
    }

    /// The end of what the guest's kernel said on its console.
    pub fn console(&self) -> String {
        tail(&self.dir.path().join("console"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

fn end(qemu: &mut Child) {
    // Its disk is an overlay that goes with it, so nothing is lost by force; it may have ended by itself.
    let _ = qemu.kill();
    let _ = qemu.wait();
}

/// Waits for QEMU's connection and the agent's announcement on it.
fn connect(
    listener: &UnixListener,
    qemu: &mut Child,
    deadline: Instant,
) -> Result<(Channel, String), String> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(|e| format!("the channel: {e}"))?;
                return Channel::greet(stream, deadline);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if let Some(status) = qemu.try_wait().map_err(|e| format!("QEMU: {e}"))? {
                    return Err(format!("QEMU: {status}"));
                }
                if Instant::now() > deadline {
                    return Err("QEMU did not connect".to_owned());
                }
                // QEMU connects within milliseconds or ends: a poll that also sees its end.
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => return Err(format!("the channel: {e}")),
        }
    }
}

/// QEMU's command line up to the devices that differ, behind `setpriv` so that it ends with us.
fn arguments(image: &Image, hardware: &Hardware, more: &str) -> Result<Vec<String>, String> {
    let mut arguments: Vec<String> = ["--pdeathsig", "KILL", "qemu-system-x86_64"].map(String::from).into();
    // On a busy machine the emulated timer is late, and the kernel would take it for broken: no_timer_check.
    let mut append = format!(
        "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check mitigations=off nopti landfast.name={} {more}",
        hardware.name
    );
    let (net, card) = match &hardware.link {
        None => ("user,id=net,ipv6=off".to_owned(), "virtio-net-pci,netdev=net,romfile=".to_owned()),
        Some(link) => {
            append.push_str(&format!(" landfast.address={}", link.address));
            (
                link.netdev
                    .clone()
                    .unwrap_or_else(|| format!("tap,id=net,ifname={},script=no,downscript=no", link.device)),
                format!("virtio-net-pci,netdev=net,romfile=,mac={}", link.mac),
            )
        }
    };
    let memory = hardware.memory_mb.to_string();
    // With only one possible processor, QEMU up to 8.0 omits the guest's memory barriers although its own threads use
    // the virtio rings in parallel. Then a kick is lost now and then, and a network card stalls.
    let cpus = format!("{},maxcpus={}", hardware.cpus, hardware.cpus.max(2));
    let root = format!("file={},format=raw,if=virtio,snapshot=on,cache=unsafe", image.disk.display());
    let kernel = image.kernel.display().to_string();
    let initrd = image.initrd.display().to_string();
    arguments.extend(
        [
            ["-accel", "tcg,thread=multi"],
            ["-cpu", "Nehalem-v1"],
            ["-m", memory.as_str()],
            ["-smp", cpus.as_str()],
            ["-monitor", "none"],
            ["-kernel", kernel.as_str()],
            ["-initrd", initrd.as_str()],
            ["-append", append.as_str()],
            ["-drive", root.as_str()],
            ["-netdev", net.as_str()],
            ["-device", card.as_str()],
            ["-device", "virtio-rng-pci"],
        ]
        .concat()
        .into_iter()
        .map(String::from),
    );
    arguments.extend(["-nodefaults", "-no-reboot"].map(String::from));
    if let Some(disk) = &hardware.disk {
        pad(disk)?;
        arguments.push("-drive".to_owned());
        arguments.push(format!("file={},format=raw,if=virtio,readonly=on", disk.display()));
    }
    if let Some(disk) = &hardware.scratch {
        arguments.push("-drive".to_owned());
        arguments.push(format!("file={},format=raw,if=virtio,cache=none", disk.display()));
    }
    Ok(arguments)
}

/// Lengthens a file with zeroes to whole sectors (archives and compressors ignore or allow them).
fn pad(file: &Path) -> Result<(), String> {
    let pad = || {
        let file = fs::OpenOptions::new().write(true).open(file)?;
        let bytes = file.metadata()?.len();
        file.set_len(bytes.next_multiple_of(SECTOR_BYTES))
    };
    pad().map_err(|e: io::Error| format!("{}: {e}", file.display()))
}

/// Whether the guest's kernel reports a stalled network card.
fn network_stands(console: &str) -> bool {
    let last = console.lines().rev().find(|line| line.contains("NETDEV WATCHDOG"));
    let ms =
        last.and_then(|line| line.rsplit_once(" timed out ")?.1.strip_suffix(" ms")?.parse::<u64>().ok());
    ms.is_some_and(|ms| ms >= NETWORK_STANDS_MS)
}

/// The last lines of a file, or nothing.
pub fn tail(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(CONSOLE_LINES);
    lines[from..].iter().map(|line| format!("  | {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_stands_still_is_known_from_one_that_was_slow() {
        let said = |ms: u64| {
            format!(
                "[  7.9] virtio_net virtio0 eth0: NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out {ms} ms\r\n\
                 [  7.9] virtio_net virtio0 eth0: TX timeout on queue: 0, sq: output.0, vq: 0x1\r\n"
            )
        };
        assert!(network_stands(&said(60_001)) && network_stands(&[said(5184), said(175_296)].concat()));
        assert!(!network_stands(&said(5184)) && !network_stands("") && !network_stands("NETDEV WATCHDOG"));
    }
}
