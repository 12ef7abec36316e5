//! The attacked server: started like an administrator does, and watched from outside.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use procfs::process::Process;
use tempfile::TempDir;

/// A file that everybody may read and write, and its length.
pub const SHARED: &str = "shared";
pub const SHARED_BYTES: usize = 1 << 20;
/// A large sparse file for copies, and its length.
pub const LARGE: &str = "large";
pub const LARGE_BYTES: u64 = 1 << 30;
/// A file of the honest client, for its writes.
pub const HONEST: &str = "honest";
/// Root's own file, protected by its mode.
pub const SECRET: &str = "secret";
/// Like `SECRET`, but empty. Its times look like the verifier of an exclusive create.
pub const KEYS: &str = "authorized_keys";
/// The number of files for opens.
pub const MANY: u32 = 16;

/// A server with one export, a rule for insiders, and none for outsiders.
pub struct Target {
    child: Child,
    pub nfs: SocketAddr,
    pub metrics: SocketAddr,
    dir: TempDir,
    _log: TempDir,
    said: mpsc::Receiver<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usage {
    /// Resident memory, in bytes.
    pub memory: u64,
    pub descriptors: u64,
    pub threads: u64,
}

impl Usage {
    pub fn max(self, other: Usage) -> Usage {
        Usage {
            memory: self.memory.max(other.memory),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
        }
    }
}

impl Target {
    /// Creates a directory with everything that the cases need, and starts `binary` on it.
    pub fn start(binary: &Path, within: &Path) -> Result<Target, String> {
        fs::create_dir_all(within).map_err(|e| format!("{}: {e}", within.display()))?;
        let dir = tempfile::Builder::new()
            .prefix("attack-")
            .tempdir_in(within)
            .map_err(|e| format!("a directory in {}: {e}", within.display()))?;
        prepare(&dir.path().join("export")).map_err(|e| format!("{}: {e}", dir.path().display()))?;
        let config = dir.path().join("landfast.toml");
        // The log has its own device, as in practice: filling the filesystem of the files must not fill that of the
        // log.
        let log = tempfile::Builder::new()
            .prefix("landfast-attack-")
            .tempdir_in("/dev/shm")
            .map_err(|e| format!("/dev/shm: {e}"))?;
        let text = settings(dir.path(), log.path());
        fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
        let mut child = Command::new(binary)
            .arg("serve")
            .arg("--config")
            .arg(&config)
            // A build directory need not survive a power cut.
            .env("LANDFAST_ACCEPT_WEAK", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", binary.display()))?;
        let stderr = child.stderr.take().ok_or("the server's output")?;
        let (said, lines) = mpsc::channel();
        // Ends with the server. Messages after the start are kept for whoever wants them.
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut target = Target { child, nfs: unknown, metrics: unknown, dir, _log: log, said: lines };
        target.await_start()?;
        Ok(target)
    }

    fn await_start(&mut self) -> Result<(), String> {
        let mut last = String::new();
        loop {
            let Ok(line) = self.said.recv_timeout(super::wire::PATIENCE) else {
                return Err(format!("the server did not start: {last}"));
            };
            if let Some(at) = address(&line, "metrics at http://") {
                self.metrics = at;
            }
            if let Some(at) = address(&line, " at nfs://") {
                self.nfs = at;
                return Ok(());
            }
            last = line;
        }
    }

    pub fn export(&self) -> std::path::PathBuf {
        self.dir.path().join("export")
    }

    pub fn held(&self) -> Result<Usage, String> {
        let process = Process::new(self.child.id().cast_signed());
        let held = process.and_then(|process| Ok((process.status()?, process.fd_count()?)));
        let (status, descriptors) = held.map_err(|e| format!("the server: {e}"))?;
        Ok(Usage {
            memory: status.vmrss.unwrap_or(0) << 10,
            descriptors: descriptors as u64,
            threads: status.threads,
        })
    }

    /// Set if it has ended, which it must not.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        let last = self.said.iter().last().unwrap_or_default();
        Some(format!("the server has ended: {status}: {last}"))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(line: &str, behind: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(behind)?;
    rest.split('/').next()?.parse().ok()
}

/// Few client records, so that the short form can use them up, too.
const CLIENTS: usize = 128;

/// The rules: the honest client as root, insiders with root_squash, outsiders none.
fn settings(dir: &Path, log: &Path) -> String {
    let (dir, log) = (dir.display(), log.display());
    format!(
        r#"listen = "127.0.0.1:0"
metrics = "127.0.0.1:0"
lease = "15s"
limits = {{ clients = {CLIENTS} }}

[[export]]
path = "{dir}/export"
name = "/x"
log = {{ path = "{log}/intent.log", size = "256M" }}
clients = [
    {{ from = "127.0.0.1", options = ["rw", "no_root_squash", "insecure"] }},
    {{ from = "127.1.0.0/16", options = ["rw", "root_squash", "insecure"] }},
]
"#
    )
}

/// Creates the files for the cases.
fn prepare(dir: &Path) -> std::io::Result<()> {
    fs::create_dir(dir)?;
    let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set(dir, 0o777)?;
    fs::write(dir.join(SHARED), vec![b's'; SHARED_BYTES])?;
    set(&dir.join(SHARED), 0o666)?;
    fs::File::create(dir.join(LARGE))?.set_len(LARGE_BYTES)?;
    set(&dir.join(LARGE), 0o666)?;
    fs::write(dir.join(HONEST), [0; 4096])?;
    set(&dir.join(HONEST), 0o600)?;
    fs::write(dir.join(SECRET), "the administrator's secret\n")?;
    set(&dir.join(SECRET), 0o600)?;
    fs::File::create(dir.join(KEYS))?;
    set(&dir.join(KEYS), 0o600)?;
    for number in 0..MANY {
        let path = dir.join(format!("many{number}"));
        fs::File::create(&path)?;
        set(&path, 0o666)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_what_the_server_says() {
        let line = "landfast: serving /x at nfs://127.0.0.1:37985/ (log file /x.log)";
        assert_eq!(address(line, " at nfs://"), Some(SocketAddr::from(([127, 0, 0, 1], 37985))));
        assert_eq!(address(line, "metrics at http://"), None);
    }
}
