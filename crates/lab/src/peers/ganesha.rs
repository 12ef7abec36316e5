//! nfs-ganesha with its VFS backend, over NFSv4 only: what Debian's packages `nfs-ganesha` and `nfs-ganesha-vfs` install.
//!
//! It calls fsync for data only. On a filesystem that is mounted so that its own changes of metadata are synchronous (XFS with
//! `wsync`) it keeps NFS's promise; on others metadata becomes durable some time after its replies.

use crate::child::{Child, Output, Role};
use crate::error::{Context, Error, Result};
use crate::limits::{READY_POLL, READY_WAIT};
use crate::served::ReservedPort;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the package puts its program.
const PROGRAM: &str = "/usr/bin/ganesha.nfsd";
/// Where it puts the backend.
const BACKENDS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/ganesha", "/usr/lib/ganesha"];

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Ganesha {
    child: Child,
    port: ReservedPort,
    _scratch: tempfile::TempDir,
}

/// The packages of the server and of its backend.
pub(crate) const PACKAGES: [&str; 2] = ["nfs-ganesha", "nfs-ganesha-vfs"];

/// The packages that are not installed.
pub(crate) fn missing() -> Vec<&'static str> {
    let backend = BACKENDS.iter().map(|dir| Path::new(dir).join("libfsalvfs.so")).any(|f| f.exists());
    let there = [Path::new(PROGRAM).exists(), backend];
    PACKAGES.into_iter().zip(there).filter(|(_, there)| !there).map(|(package, _)| package).collect()
}

/// Whether it is installed; if not, which packages are missing.
pub fn possible() -> Result<()> {
    if missing().is_empty() {
        return Ok(());
    }
    Err(Error::NoTool { tool: PROGRAM.into(), package: "nfs-ganesha and nfs-ganesha-vfs" })
}

impl Ganesha {
    /// Serves `dir` as its pseudo root and waits until it takes connections.
    /// Errors: It is not installed, or it ends instead.
    pub fn start(dir: &Path) -> Result<Self> {
        possible()?;
        let scratch = crate::machine::scratch_dir("landfast-ganesha-")?;
        let port = ReservedPort::new()?;
        let file = |name: &str| scratch.path().join(name);
        let conf = file("ganesha.conf");
        std::fs::write(&conf, config(dir, port.addr().port(), &file("recovery")))
            .context(|| format!("write {}", conf.display()))?;
        let words = [PathBuf::from(PROGRAM), "-F".into(), "-f".into(), conf, "-L".into(), file("messages")]
            .into_iter()
            .chain(["-p".into(), file("pid")])
            .map(|p| p.to_string_lossy().into_owned())
            .collect();
        let child = Child::start("nfs-ganesha", Role::Program(words), Output::Keep)?;
        let mut server = Ganesha { child, port, _scratch: scratch };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect(self.addr()).is_err() {
            if let Some(status) = self.child.ended() {
                let what = format!("ended before it served ({status}): {}", self.messages());
                return Err(Error::Child { role: "nfs-ganesha", what });
            }
            if start.elapsed() > READY_WAIT {
                return Err(Error::Child { role: "nfs-ganesha", what: "does not take connections".into() });
            }
            // There is no event for "somebody listens on this port now".
            std::thread::sleep(READY_POLL);
        }
        Ok(())
    }

    fn messages(&self) -> String {
        let text = std::fs::read_to_string(self._scratch.path().join("messages")).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Stops it where it is (SIGSTOP), as a power cut does: not one more reply leaves it.
    pub fn freeze(&self) {
        self.child.signal(rustix::process::Signal::STOP);
    }

    pub fn kill(mut self) {
        self.child.kill();
    }

    /// See [`Child::forget_peak`].
    pub fn forget_peak(&self) -> Result<()> {
        self.child.forget_peak()
    }

    pub fn peak_rss_bytes(&self) -> Option<u64> {
        self.child.peak_rss_bytes()
    }

    pub fn cpu(&self) -> Option<Duration> {
        self.child.cpu()
    }
}

/// Its configuration: one export, everybody is who he says, no grace period after the start.
fn config(dir: &Path, port: u16, recovery: &Path) -> String {
    let (dir, recovery) = (dir.display(), recovery.display());
    format!(
        "NFS_CORE_PARAM {{ NFS_Port = {port}; NFS_Protocols = 4; Bind_addr = 127.0.0.1; Enable_NLM = false; \
         Enable_RQUOTA = false; Enable_UDP = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = \"{recovery}\"; Minor_Versions = 0, 1, 2; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{dir}\"; Pseudo = \"/\"; Access_Type = RW; Squash = No_Root_Squash; \
         SecType = sys; Protocols = 4; Transports = TCP; FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = WARN; }}\n"
    )
}
