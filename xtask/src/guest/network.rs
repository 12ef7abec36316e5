//! The network of one run: a namespace of its own with a bridge, on which the server's machine and the guests have
//! addresses, and a port mapper. So runs do not see each other, and a server can call its clients back.

use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use super::image;
use crate::packages;
use crate::proc::{self, command};

/// The server's address, as the guests see it; also that of the host of a guest without a link.
pub const SERVER: &str = "10.0.2.2";

/// The server's host name: the guests know it (`lib.sh`), as a status monitor has to.
const SERVER_NAME: &str = "landfast-server";

/// The last byte of the first guest's address; also that of a guest without a link.
const FIRST_GUEST: u8 = 15;

const BRIDGE: &str = "guests";

/// Where QEMU gets at a link.
const TUN: &str = "/dev/net/tun";

/// The port mapper's socket.
const RPCBIND: &str = "/run/rpcbind.sock";

/// How long the port mapper may take to start.
const RPCBIND_LIMIT: Duration = Duration::from_secs(20);

/// The variable that tells a process of ours that it is in a namespace of its own.
const NAMESPACE: &str = "XTASK_NAMESPACE";

/// Why there can be no guests on such a network here; `Ok` if there can.
pub fn possible() -> Result<(), String> {
    image::possible()?;
    packages::require(&["ip", "hostname", "rpcbind"])?;
    if fs::exists(TUN).unwrap_or(false) { Ok(()) } else { Err(format!("guests need {TUN}")) }
}

/// The port mapper. It ends when this value is dropped; the network ends with the process.
pub struct Network {
    rpcbind: Child,
}

impl Drop for Network {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.rpcbind.kill();
        let _ = self.rpcbind.wait();
    }
}

/// Starts this program again in namespaces of its own, unless it is in them, and makes the network there: mounts and
/// addresses end with the process, however it ends. Nothing outside can be reached from there, so `fetch` goes before.
pub fn enter(fetch: impl FnOnce() -> Result<(), String>) -> Result<Network, String> {
    if std::env::var_os(NAMESPACE).is_some() {
        return make();
    }
    possible()?;
    fetch()?;
    let program = std::env::current_exe().map_err(|e| format!("our own path: {e}"))?;
    let error = Command::new("unshare")
        .args(["--mount", "--net", "--uts"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(NAMESPACE, "1")
        .exec();
    Err(format!("unshare: {error}"))
}

fn make() -> Result<Network, String> {
    ip("link set lo up")?;
    ip(&format!("link add {BRIDGE} type bridge"))?;
    ip(&format!("address add {SERVER}/24 dev {BRIDGE}"))?;
    ip(&format!("link set {BRIDGE} up"))?;
    quietly(&mut command("hostname", [SERVER_NAME]))?;
    quietly(&mut command("mount", ["-t", "tmpfs", "tmpfs", "/run"]))?;
    let rpcbind = command("setpriv", ["--pdeathsig", "KILL", "rpcbind", "-f"])
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| format!("rpcbind: {e}"))?;
    let mut network = Network { rpcbind };
    let deadline = Instant::now() + RPCBIND_LIMIT;
    while let Err(why) = UnixStream::connect(RPCBIND) {
        if let Some(status) = network.rpcbind.try_wait().map_err(|e| format!("rpcbind: {e}"))? {
            return Err(format!("rpcbind: {status}"));
        }
        if Instant::now() > deadline {
            return Err(format!("{RPCBIND}: {why}"));
        }
        // It listens within milliseconds or ends: a poll that also sees its end.
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(network)
}

/// A guest's place on the bridge. It may be used by one guest after another.
#[derive(Clone)]
pub struct Link {
    pub device: String,
    /// The guest's address and the length of its network's.
    pub address: String,
    pub mac: String,
    /// How its QEMU gets there, if not by the device.
    pub netdev: Option<String>,
}

impl Link {
    pub fn new() -> Result<Link, String> {
        static NEXT: AtomicU8 = AtomicU8::new(FIRST_GUEST);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let device = format!("guest{number}");
        ip(&format!("tuntap add {device} mode tap"))?;
        ip(&format!("link set {device} master {BRIDGE} up"))?;
        let address = format!("10.0.2.{number}/24");
        Ok(Link { device, address, mac: format!("52:54:00:00:00:{number:02x}"), netdev: None })
    }

    /// Takes the guest off the bridge, or puts it there again. Its card notices nothing, but nobody hears it or answers.
    pub fn connect(&self, connected: bool) -> Result<(), String> {
        let device = &self.device;
        let master = if connected { format!("master {BRIDGE}") } else { "nomaster".to_owned() };
        ip(&format!("link set {device} {master}"))
    }

    /// The address without its network.
    pub fn host(&self) -> &str {
        self.address.split_once('/').map_or(&self.address, |(host, _)| host)
    }
}

/// Runs `ip` with these words.
fn ip(words: &str) -> Result<(), String> {
    quietly(&mut command("ip", words.split(' ')))
}

fn quietly(command: &mut Command) -> Result<(), String> {
    proc::output(command).map(drop)
}
