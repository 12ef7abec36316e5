//! nfs-ganesha with its VFS backend, over NFSv3 and NFSv4.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::guest::machine::tail;
use crate::guest::network::SERVER;
use crate::packages;
use crate::proc::command;

/// Where it serves NFS, and MOUNT.
pub const PORTS: [u16; 2] = [2049, 20048];

/// How long it may take to start.
const LIMIT: Duration = Duration::from_secs(60);

const TRY: Duration = Duration::from_millis(20);

/// A server; it ends with this value.
pub struct Ganesha {
    process: Child,
    messages: PathBuf,
}

impl Ganesha {
    /// Serves directories under the names that version 4 knows them by; version 3 by their paths.
    pub fn start(dir: &Path, exports: &[(&str, &Path)]) -> Result<Ganesha, String> {
        let [conf, messages, recovery] =
            ["ganesha.conf", "ganesha.messages", "ganesha.recovery"].map(|name| dir.join(name));
        fs::create_dir_all(&recovery).map_err(|e| format!("{}: {e}", recovery.display()))?;
        let [port, mount] = PORTS;
        let mut text = format!(
            "NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mount}; NFS_Protocols = 3, 4; Enable_NLM = false; \
             Enable_RQUOTA = false; Enable_UDP = false; }}\n\
             NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = \"{}\"; Minor_Versions = 0, 1, 2; }}\n\
             LOG {{ Default_Log_Level = WARN; }}\n",
            recovery.display()
        );
        for (number, (name, path)) in (1..).zip(exports) {
            text.push_str(&format!(
                "EXPORT {{ Export_Id = {number}; Path = \"{}\"; Pseudo = \"{name}\"; Access_Type = RW; \
                 Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP; FSAL {{ Name = VFS; }} }}\n",
                path.display()
            ));
        }
        fs::write(&conf, text).map_err(|e| format!("{}: {e}", conf.display()))?;
        let mut process = command("setpriv", ["--pdeathsig", "KILL"]);
        process.arg(packages::GANESHA[0]).arg("-F").arg("-f").arg(&conf).arg("-L").arg(&messages);
        process.arg("-p").arg(dir.join("ganesha.pid"));
        let process = process.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = Ganesha { process: process.map_err(|e| format!("nfs-ganesha: {e}"))?, messages };
        let deadline = Instant::now() + LIMIT;
        while TcpStream::connect((SERVER, port)).is_err() {
            let ended = server.process.try_wait().map_err(|e| format!("nfs-ganesha: {e}"))?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(format!("nfs-ganesha does not serve\n{}", tail(&server.messages)));
            }
            std::thread::sleep(TRY);
        }
        Ok(server)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn said(&self) -> String {
        tail(&self.messages)
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
