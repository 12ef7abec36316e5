//! Who serves a run, and what is on his disk.

use std::path::Path;
use std::time::Duration;

use crate::guest::client;
use crate::guest::image::Image;
use crate::guest::knfsd;
use crate::guest::machine::{Hardware, Machine};
use crate::guest::network::Link;
use crate::guest::server::{Scratch, ServeOptions, Server};
use crate::proc::{command, output};

/// Bytes of Landfast's volume (sparse).
const VOLUME_BYTES: u64 = 8 << 30;

pub enum Served {
    /// On the host. The volume goes after the server.
    Landfast { server: Server, scratch: Scratch, from_file: bool },
    /// In a guest, at this place on the network.
    Knfsd { guest: Machine, link: Link, limit: Duration },
}

impl Served {
    /// `delegations`: which clients are given, if that is said.
    pub fn landfast(serve: &ServeOptions, lease_s: u64, delegations: Option<&str>) -> Result<Served, String> {
        let binary = serve.binary()?;
        let scratch = Scratch::new(&serve.fs, VOLUME_BYTES)?;
        let options = delegations.map(|level| format!("delegations = {level:?}\n"));
        let server =
            Server::start_with(&binary, &scratch, &serve.durability, Some(lease_s), options.as_deref())?;
        Ok(Served::Landfast { server, scratch, from_file: options.is_some() })
    }

    pub fn knfsd(image: &Image, limit: Duration, lease_s: u64) -> Result<Served, String> {
        let link = Link::new()?;
        let mut hardware = Hardware { link: Some(link.clone()), ..Hardware::default() };
        hardware.name.push_str("-server");
        Ok(Served::Knfsd { guest: knfsd::boot_throwaway(image, &hardware, lease_s)?, link, limit })
    }

    /// What a client has to know of it.
    pub fn server(&self) -> Result<client::Server, String> {
        match self {
            Served::Landfast { server, from_file: true, .. } => {
                Ok(client::Server::FromFile(server.address().port()))
            }
            Served::Landfast { server, .. } => Ok(client::Server::Landfast(server.address().port())),
            Served::Knfsd { link, .. } => {
                let address = link.host().parse().map_err(|e| format!("{}: {e}", link.host()))?;
                Ok(client::Server::Guest(address))
            }
        }
    }

    /// Runs a script on the server's machine, with the path of something below its export in `AT`, and returns what it printed.
    pub fn run(&mut self, below: &str, script: &str) -> Result<String, String> {
        match self {
            Served::Landfast { scratch, .. } => on_this_machine(&scratch.volume().join(below), script),
            Served::Knfsd { guest, limit, .. } => {
                let mut said = Vec::new();
                let script = format!("set -euo pipefail\nAT=/srv/export/{below}\n{script}");
                let code = guest.run(&script, &[], *limit, &mut said)?;
                let said = String::from_utf8_lossy(&said).into_owned();
                if code == 0 {
                    Ok(said)
                } else {
                    Err(format!("the server's guest: exit code {code}\n{said}"))
                }
            }
        }
    }

    /// What may say why something failed.
    pub fn said(&self) -> String {
        match self {
            Served::Landfast { server, .. } => format!("The server said last:\n{}", server.said()),
            Served::Knfsd { guest, .. } => format!("The server's console:\n{}", guest.console()),
        }
    }

    /// Ends it as its users do; an error if it does not end well.
    pub fn end(mut self) -> Result<(), String> {
        match &mut self {
            Served::Landfast { server, .. } => server.stop(),
            Served::Knfsd { guest, .. } => {
                guest.end();
                Ok(())
            }
        }
    }
}

/// Runs a script here, with a path in `AT`.
pub fn on_this_machine(at: &Path, script: &str) -> Result<String, String> {
    output(command("bash", ["-euo", "pipefail", "-c", script]).env("AT", at))
}
