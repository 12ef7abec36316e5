//! What the commands share that mount a server in the guest: their options, and the start of server and guest.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::client::{self, Client, Whose};
use super::ganesha::Ganesha;
use super::image::{self, Image};
use super::machine::{Hardware, Machine};
use super::network::Link;
use super::recipe::{Kernel, VERSIONS, Vers};
use super::server::{Scratch, ServeOptions, Server};
use crate::packages;
use crate::proc::{self, command};

/// Bytes of the scratch volume (sparse).
const VOLUME_BYTES: u64 = 8 << 30;

/// Gives the guest our client.
const MOUNT: &str = include_str!("../../guest/mount.sh");

/// Where the guest mounts the export; as in `lib.sh`.
pub const MOUNTPOINT: &str = "/mnt/nfs";

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Who {
    /// `landfast serve` on the host.
    Landfast,
    /// The kernel's server in the guest itself: a peer, and a test of what is run. Nothing is restarted.
    Kernel,
    /// nfs-ganesha with its VFS backend on the host: a peer. Nothing is restarted.
    Ganesha,
    /// Nobody: a local ext4 (suites only).
    Local,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Who::Landfast => "landfast",
            Who::Kernel => "kernel",
            Who::Ganesha => "ganesha",
            Who::Local => "local",
        })
    }
}

/// Who is mounted, by whom, and how.
#[derive(Args)]
pub struct Setup {
    /// The guest's kernel: 6.1, 6.12 or sid.
    #[arg(long, default_value_t = Kernel::V6_1)]
    pub kernel: Kernel,
    /// NFS versions to mount with.
    #[arg(long, value_delimiter = ',', default_values_t = VERSIONS)]
    pub vers: Vec<Vers>,
    /// Who serves.
    #[arg(long, value_enum, default_value_t = Who::Landfast)]
    pub server: Who,
    #[command(flatten)]
    serve: ServeOptions,
    /// Start the server from a configuration file, registered with the port mapper: version 3 is mounted without ports.
    #[arg(long)]
    from_file: bool,
    /// Clients see no ACLs and no extended attributes (`acls = false`, `xattrs = false` in the configuration file): leave out the checks
    /// `xattr` and `acl`.
    #[arg(long, requires = "from_file")]
    bare: bool,
    /// Which delegations clients are given: off, read, write or times.
    #[arg(long, requires = "from_file", value_name = "LEVEL")]
    pub delegations: Option<String>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Server and guest, both ready. Nothing is mounted yet.
pub struct Stage {
    image: Image,
    /// The guest.
    pub client: Client,
    /// What it was made with.
    hardware: Hardware,
    /// What a second one is made with, once there was one.
    peer: Option<Hardware>,
    /// `landfast serve`, if that is who serves.
    pub server: Option<Server>,
    /// nfs-ganesha, if that is who serves.
    ganesha: Option<Ganesha>,
    /// What is served: goes after the server.
    scratch: Option<Scratch>,
    /// Where the disk with the client is.
    _dir: tempfile::TempDir,
}

impl Setup {
    /// What comes from outside, or is built.
    pub fn fetch(&self) -> Result<(), String> {
        self.fetch_for(Whose::Linux)
    }

    /// The same where this client is wanted.
    pub fn fetch_for(&self, whose: Whose) -> Result<(), String> {
        image::build(self.kernel)?;
        if self.server == Who::Ganesha {
            packages::require(&packages::GANESHA)?;
        }
        let build = self.server == Who::Landfast || whose == Whose::Mount;
        build.then(|| self.binary()).transpose().map(drop)
    }

    /// The command, built now if it was not chosen and is not up to date.
    pub fn binary(&self) -> Result<PathBuf, String> {
        self.serve.binary()
    }

    /// Lines about the export in the configuration file.
    fn options(&self) -> String {
        let mut lines = String::new();
        if self.bare {
            lines.push_str("acls = false\nxattrs = false\n");
        }
        if let Some(level) = &self.delegations {
            lines.push_str(&format!("delegations = {level:?}\n"));
        }
        lines
    }

    /// Starts server and guest, which gets a link, and our client if that is who mounts; `limit` is for each script that the guest runs.
    pub fn start_as(&self, whose: Whose, hardware: Hardware, limit: u64) -> Result<Stage, String> {
        let mut hardware = Hardware { link: Some(Link::new()?), ..hardware };
        let dir = image::run_dir("client")?;
        let device = if hardware.disk.is_some() { "/dev/vdc" } else { "/dev/vdb" };
        if whose == Whose::Mount {
            hardware.scratch = Some(packed(&self.binary()?, dir.path())?);
        }
        let image = image::build(self.kernel)?;
        let (mut server, mut ganesha, mut scratch) = (None, None, None);
        if self.server == Who::Landfast {
            let binary = self.binary()?;
            let volume = scratch.insert(Scratch::new(&self.serve.fs, VOLUME_BYTES)?);
            let options = self.from_file.then(|| self.options());
            server =
                Some(Server::start_with(&binary, volume, &self.serve.durability, None, options.as_deref())?);
        }
        if self.server == Who::Ganesha {
            let volume = scratch.insert(Scratch::new(&self.serve.fs, VOLUME_BYTES)?);
            ganesha = Some(Ganesha::start(&volume.dir(), &[("/", &volume.volume())])?);
        }
        let machine = Machine::boot(&image, &hardware)?;
        eprintln!("Linux {} was ready after {:.1} s", machine.release, machine.boot.as_secs_f64());
        let whom = match (&server, self.server) {
            (Some(server), _) if self.from_file => client::Server::FromFile(server.address().port()),
            (Some(server), _) => client::Server::Landfast(server.address().port()),
            (None, Who::Local) => client::Server::Local,
            (None, Who::Ganesha) => {
                client::Server::Ganesha(scratch.as_ref().map(Scratch::volume).unwrap_or_default())
            }
            (None, _) => client::Server::Kernel,
        };
        let mut client = Client { machine, server: whom, whose, limit: Duration::from_secs(limit) };
        client.serve()?;
        if whose == Whose::Mount {
            client.run(None, &format!("DEVICE={device}\n{MOUNT}"))?;
        }
        Ok(Stage { image, client, hardware, peer: None, server, ganesha, scratch, _dir: dir })
    }

    /// For what is nothing without a server.
    pub fn start_served(&self, hardware: Hardware, limit: u64) -> Result<Stage, String> {
        self.start_served_as(Whose::Linux, hardware, limit)
    }

    /// As [`Setup::start_as`], for what is nothing without a server.
    pub fn start_served_as(&self, whose: Whose, hardware: Hardware, limit: u64) -> Result<Stage, String> {
        match self.server {
            Who::Local => Err("--server local is for suites: there is nothing to mount".to_owned()),
            Who::Landfast | Who::Kernel | Who::Ganesha => self.start_as(whose, hardware, limit),
        }
    }
}

/// The command in an archive in `dir`, of whole records, so that a guest can have it as a disk.
fn packed(binary: &Path, dir: &Path) -> Result<PathBuf, String> {
    let archive = dir.join("landfast.tar");
    let mut tar =
        command("tar", ["--absolute-names", "--transform", "s|.*/|landfast/|", "-b", "2048", "-cf"]);
    proc::run(tar.arg(&archive).arg(binary))?;
    Ok(archive)
}

impl Stage {
    /// What `landfast serve` serves, if that is who serves.
    pub fn volume(&self) -> Option<PathBuf> {
        self.scratch.as_ref().map(Scratch::volume)
    }

    /// The guest's place on the network.
    pub fn link(&self) -> Option<&Link> {
        self.hardware.link.as_ref()
    }

    /// A new guest in place of the old one, with the same name and address.
    pub fn boot_again(&mut self) -> Result<(), String> {
        self.client.machine.end();
        self.client.machine = Machine::boot(&self.image, &self.hardware)?;
        self.client.serve()
    }

    /// Boots a second client, which knows the same server. All of them have one name and address, so there is one at
    /// a time.
    pub fn peer(&mut self) -> Result<Client, String> {
        let hardware = match self.peer.take() {
            Some(hardware) => hardware,
            None => {
                let name = format!("{}-peer", self.hardware.name);
                Hardware { name, link: Some(Link::new()?), ..Hardware::default() }
            }
        };
        let hardware = self.peer.insert(hardware);
        let machine = Machine::boot(&self.image, hardware)?;
        let (server, whose) = (self.client.server.clone(), self.client.whose);
        Ok(Client { machine, server, whose, limit: self.client.limit })
    }

    /// Prints what may say why something failed; an error if the server is gone.
    pub fn explain(&mut self) -> Result<(), String> {
        if let Some(server) = &mut self.server {
            eprintln!("The server said last:\n{}", server.said());
            server.alive()?;
        }
        if let Some(ganesha) = &self.ganesha {
            eprintln!("nfs-ganesha said last:\n{}", ganesha.said());
        }
        eprintln!("The guest's console:\n{}", self.client.machine.console());
        Ok(())
    }

    /// Ends the server as its users do; an error if it does not end well.
    pub fn end(mut self) -> Result<(), String> {
        self.server.as_mut().map_or(Ok(()), Server::stop)
    }
}
