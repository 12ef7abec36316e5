//! libnfs's programs on the host, in a network namespace of their own behind an emulated line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::guest::ether::Ether;
use crate::guest::network::{Link, SERVER};
use crate::proc::{command, output};

/// The namespace, and its device.
const NAMESPACE: &str = "libnfs";
const DEVICE: &str = "libnfs0";

/// Files to copy: their names and lengths.
const FILES: [(&str, usize); 3] = [("small", 3000), ("larger", 12_000), ("large", 12 << 20)];

pub struct Libnfs {
    /// Its line.
    pub ether: Ether,
    tree: PathBuf,
}

impl Libnfs {
    /// A namespace with an address; `dir` is for what it copies.
    pub fn new(dir: &Path) -> Result<Libnfs, String> {
        let tree = dir.join("libnfs");
        fs::create_dir(&tree).map_err(|e| format!("{}: {e}", tree.display()))?;
        for (name, bytes) in FILES {
            let content: Vec<u8> = (0..bytes).map(|i| (i * 31 + bytes) as u8).collect();
            fs::write(tree.join(name), content).map_err(|e| format!("{name}: {e}"))?;
        }
        let link = Link::new()?;
        let mut ether = Ether::new(&link.device, &tree)?;
        ip(&format!("netns add {NAMESPACE}"))?;
        ip(&format!("-n {NAMESPACE} tuntap add {DEVICE} mode tap"))?;
        ip(&format!("-n {NAMESPACE} address add {} dev {DEVICE}", link.address))?;
        ip(&format!("-n {NAMESPACE} link set {DEVICE} up"))?;
        ether.join_tap(DEVICE, NAMESPACE)?;
        Ok(Libnfs { ether, tree })
    }

    /// Begins a work of a shell with these functions: `put FILE NAME` copies a file to the server, `get NAME` reads it back.
    pub fn start(
        &self,
        (path, mount): &(String, u16),
        port: u16,
        case: &str,
        work: &str,
    ) -> Result<Child, String> {
        let to = format!("nfs://{SERVER}{}/{case}-", path.trim_end_matches('/'));
        let script = format!(
            "set -e\nQ='?version=3&nfsport={port}&mountport={mount}'\n\
             put() {{ nfs-cp {}/$1 \"{to}$2$Q\" >/dev/null; }}\n\
             get() {{ nfs-cat \"{to}$1$Q\" >/dev/null; }}\n{work}",
            self.tree.display()
        );
        let mut shell = command("setpriv", ["--pdeathsig", "KILL", "ip", "netns", "exec", NAMESPACE]);
        shell.args(["bash", "-c", &script]).stdout(Stdio::null());
        shell.spawn().map_err(|e| format!("libnfs: {e}"))
    }
}

/// Until a work is done; an error if it was not.
pub fn wait(mut work: Child) -> Result<(), String> {
    let status = work.wait().map_err(|e| format!("libnfs: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("libnfs: {status}")) }
}

fn ip(words: &str) -> Result<(), String> {
    output(&mut command("ip", words.split(' '))).map(drop)
}
