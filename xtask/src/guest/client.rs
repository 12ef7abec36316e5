//! A guest as an NFS client. Its scripts know the server's address and the version of the mount.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::ganesha;
use super::machine::Machine;
use super::network;
use super::recipe::Vers;
use super::server;

/// What stands in front of every script.
const LIB: &str = include_str!("../../guest/lib.sh");
/// The kernel's server in the guest.
const KNFSD: &str = concat!(include_str!("../../guest/knfsd.sh"), include_str!("../../guest/nfsd.sh"));

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// `landfast serve` on the host, at this port.
    Landfast(u16),
    /// The same from a configuration file, registered with the port mapper.
    FromFile(u16),
    /// The kernel's server in the guest itself.
    Kernel,
    /// nfs-ganesha on the host, with this directory of the host.
    Ganesha(PathBuf),
    /// The kernel's server in another guest, at this address.
    Guest(IpAddr),
    /// Nobody: a filesystem of the guest's own.
    Local,
}

/// Whose client mounts it in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Whose {
    /// Linux's.
    Linux,
    /// `landfast mount`.
    Mount,
}

impl Whose {
    /// As the scripts and the file of known differences call it.
    pub fn word(self) -> &'static str {
        match self {
            Whose::Linux => "linux",
            Whose::Mount => "mount",
        }
    }
}

pub struct Client {
    pub machine: Machine,
    pub server: Server,
    pub whose: Whose,
    pub limit: Duration,
}

impl Client {
    /// Starts the kernel's server in the guest, if that is who serves.
    pub fn serve(&mut self) -> Result<(), String> {
        if self.server == Server::Kernel { self.run(None, KNFSD).map(drop) } else { Ok(()) }
    }

    /// Runs a script, with the settings and the library in front, and returns what it printed; an error if its
    /// exit code is not 0.
    pub fn run(&mut self, vers: Option<Vers>, script: &str) -> Result<String, String> {
        self.run_with(vers, script, &[])
    }

    /// As [`Client::run`], with something to read on standard input.
    pub fn run_with(&mut self, vers: Option<Vers>, script: &str, input: &[u8]) -> Result<String, String> {
        let mut output = Vec::new();
        let script = self.script(vers, script);
        let code = self.machine.run(&script, input, self.limit, &mut output);
        let output = String::from_utf8_lossy(&output).into_owned();
        match code {
            Ok(0) => Ok(output),
            Ok(code) => Err(format!("exit code {code}\n{output}")),
            Err(why) => Err(format!("{why}\n{output}")),
        }
    }

    /// A script with the settings and the library in front.
    pub fn script(&self, vers: Option<Vers>, script: &str) -> String {
        let mut more = String::new();
        let (server, port, export) = match (&self.server, vers) {
            (Server::Landfast(port), _) => (network::SERVER.to_owned(), port.to_string(), "/"),
            (Server::Ganesha(dir), vers) => {
                let [port, mountport] = ganesha::PORTS;
                more = format!(" MOUNTPORT={mountport}");
                let export = if vers == Some(Vers::V3) { dir.to_str().unwrap_or("/") } else { "/" };
                (network::SERVER.to_owned(), port.to_string(), export)
            }
            // The port mapper knows the ports.
            (Server::FromFile(_), Some(Vers::V3)) => {
                (network::SERVER.to_owned(), String::new(), server::NAME)
            }
            (Server::FromFile(port), _) => (network::SERVER.to_owned(), port.to_string(), server::NAME),
            // NFSv3 knows no pseudo root.
            (Server::Guest(address), Some(Vers::V3)) => (address.to_string(), String::new(), "/srv/export"),
            (Server::Guest(address), _) => (address.to_string(), String::new(), "/"),
            (_, Some(Vers::V3)) => ("127.0.0.1".to_owned(), "2049".to_owned(), "/srv/export"),
            _ => ("127.0.0.1".to_owned(), "2049".to_owned(), "/"),
        };
        let vers = vers.map(|vers| vers.to_string()).unwrap_or_default();
        let whose = self.whose.word();
        format!(
            "SERVER={server} PORT={port} EXPORT={export} VERS={vers} CLIENT={whose}{more}\n{LIB}\n{script}"
        )
    }
}
