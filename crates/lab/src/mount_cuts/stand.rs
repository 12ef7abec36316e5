//! A server with an intent log on emulated disks, and the network between it and the mount.

use super::options::Options;
use crate::error::{Error, Result};
use crate::limits::{MOUNT_CUTS_DISK_BYTES, MOUNT_CUTS_LEASE, MOUNT_CUTS_PATIENCE};
use crate::mounts::Filesystem;
use crate::net::Link;
use crate::powercut::found::{self, FoundObject, Tree};
use crate::rig::{Latency, Rig, RigOptions};
use crate::serial::action::Path;
use crate::serial::{Action, Actor, Node};
use crate::served::{Durability, ServeOptions, Served};
use landfast_verify::rng::Rng;
use std::time::{Duration, Instant};

/// Rounds on one filesystem.
const ROUNDS_A_DISK: u32 = 16;

/// Round trips between the mount and the server, in milliseconds: what is between two requests of the mount is seen over long ones.
const ROUND_TRIPS_MS: [u64; 4] = [0, 2, 10, 50];

/// Longest latency of a flush: of the data disk, of the log.
const FLUSHES: [Duration; 2] = [Duration::from_micros(4000), Duration::from_micros(800)];

pub(super) struct Stand<'a> {
    options: &'a Options,
    rig: Rig,
    server: Option<Served>,
    /// On the way of the mount; other clients reach the server directly.
    pub(super) link: Link,
    rounds: u32,
    clients: u64,
}

impl<'a> Stand<'a> {
    pub(super) fn new(options: &'a Options) -> Result<Stand<'a>> {
        let mut rig = Rig::new(&RigOptions {
            fs: options.fs,
            data_bytes: options.fs.size_min().max(MOUNT_CUTS_DISK_BYTES),
            log_bytes: 32 << 20,
            seed: options.seed,
            ..RigOptions::default()
        })?;
        rig.format()?;
        let server = Served::start(&serve_options(options, &rig)?)?;
        let link = Link::start(server.addr(), Duration::ZERO)?;
        Ok(Stand { options, rig, server: Some(server), link, rounds: 0, clients: 0 })
    }

    /// Gets ready for a round: another filesystem once in a while, a new directory, flushes and a network that take some
    /// time. Returns the round trip's milliseconds.
    pub(super) fn next(&mut self, dir: &str, rng: &mut Rng) -> Result<u64> {
        if self.server.is_none() || self.rounds == ROUNDS_A_DISK {
            self.server.take().map_or(Ok(()), Served::stop)?;
            self.rig.format()?;
            self.start()?;
            self.rounds = 0;
        }
        self.rounds += 1;
        let mut client = self.client("")?;
        client.perform(&Action::Make { path: dir.into(), node: Node::Dir, mode: 0o755 })?;
        client.into_session().close()?;
        let keep = [0, 300, 700, 950][rng.below(4) as usize];
        // The others take 4 KiB for one write.
        let torn = if self.options.fs == Filesystem::Ext4 { rng.below(2) } else { 0 };
        self.rig.control(&format!("keep_permille={keep} torn={torn}"))?;
        let [data_flush, log_flush] =
            FLUSHES.map(|most| Duration::from_micros(rng.below(most.as_micros() as u64)));
        self.rig.set_latency(Latency { data_flush, log_flush })?;
        let ms = ROUND_TRIPS_MS[rng.below(ROUND_TRIPS_MS.len() as u64) as usize];
        self.link.set_round_trip(Duration::from_millis(ms));
        Ok(ms)
    }

    fn start(&mut self) -> Result<()> {
        let server = Served::start(&serve_options(self.options, &self.rig)?)?;
        self.link.retarget(server.addr());
        self.server = Some(server);
        Ok(())
    }

    /// A new client that reaches the server directly, at a directory below the root.
    pub(super) fn client(&mut self, dir: &str) -> Result<Actor> {
        self.clients += 1;
        let name = format!("client {} of the lab", self.clients);
        Actor::connect(self.addr()?, name, &format!("/{dir}"))
    }

    fn addr(&self) -> Result<std::net::SocketAddr> {
        let gone = || Error::Child { role: "server", what: "is not there".into() };
        self.server.as_ref().map(Served::addr).ok_or_else(gone)
    }

    /// All that is below a directory, as a new client sees it, once it stays as it is: requests of a mount that was killed may still be
    /// executed.
    /// Errors: It does not, in [`MOUNT_CUTS_PATIENCE`].
    pub(super) fn tree(&mut self, dir: &str) -> Result<Tree> {
        let mut client = self.client(dir)?;
        let begin = Instant::now();
        let mut before = found::over_nfs(&mut client, false)?;
        loop {
            let tree = found::over_nfs(&mut client, false)?;
            if is_same(&before, &tree) {
                client.into_session().close()?;
                return Ok(tree);
            }
            if begin.elapsed() > MOUNT_CUTS_PATIENCE {
                return Err(Error::Protocol("what is there goes on changing".to_owned()));
            }
            before = tree;
        }
    }

    /// After the mount's process was killed: what it has sent is lost on the way, or has reached the server when this returns.
    pub(super) fn mount_is_gone(&self, rng: &mut Rng) -> Result<()> {
        if rng.chance(500) {
            self.link.sever();
        }
        match self.link.wait_delivered(MOUNT_CUTS_PATIENCE) {
            true => Ok(()),
            false => Err(Error::Protocol("the server does not take what the mount has sent".to_owned())),
        }
    }

    /// The power of server and disks goes; `kill`: only the server ends, as with `kill -9`. Nothing that the server says after its disks
    /// are gone reaches the mount: with the power of both gone at once there are no such words.
    pub(super) fn cut(&mut self, kill: bool, rng: &mut Rng) -> Result<()> {
        let Some(server) = self.server.take() else { return Ok(()) };
        let done = match kill {
            true => Ok(()),
            false => {
                self.link.cut();
                if rng.chance(500) {
                    server.freeze();
                }
                self.rig.cut()
            }
        };
        server.kill();
        self.link.sever();
        self.link.heal();
        done
    }

    /// After [`Stand::cut`]: power comes back, and a server starts.
    pub(super) fn recover(&mut self, kill: bool) -> Result<()> {
        if !kill {
            self.rig.power_on()?;
            self.rig.mount_or_repair()?;
        }
        self.start()
    }

    /// What the server's process said of panics.
    pub(super) fn panics(&self) -> Vec<String> {
        crate::child::take_panics()
    }

    pub(super) fn scratch(&self) -> &std::path::Path {
        self.rig.scratch()
    }

    /// What is there is in a state that no later round is to begin with.
    pub(super) fn spoilt(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }
}

/// Whether two readings of a tree have found the same.
fn is_same(one: &Tree, other: &Tree) -> bool {
    let same = |((a, x), (b, y)): ((&Path, &FoundObject), (&Path, &FoundObject))| {
        a == b && (&x.kind, x.mode, &x.bytes) == (&y.kind, y.mode, &y.bytes)
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

fn serve_options(options: &Options, rig: &Rig) -> Result<ServeOptions> {
    let log = rig.log_device()?;
    Ok(ServeOptions {
        lease: MOUNT_CUTS_LEASE,
        write_delegations: true,
        show: options.show,
        ..ServeOptions::new(&rig.export(), Some(log), Durability::Log)
    })
}
