//! What requests go over: a session with a server or, in the simulation, a model of both.

use std::time::Duration;

use landfast_client::cred::Identity;
use landfast_client::session::SessionStats;
use landfast_client::{Asked, Session, SessionError, SessionLimits, Standing, Version};
use landfast_nfs::v4::{ArgOp, CompoundRes};
use tokio::sync::mpsc;

#[cfg(test)]
use crate::simulation::wire::Line;

/// See the module. The methods are those of [`Session`].
#[derive(Clone)]
pub enum Wire {
    Session(Session),
    #[cfg(test)]
    Model(Line),
}

/// Calls the same method of either.
macro_rules! either {
    ($wire:expr, $it:ident => $call:expr) => {
        match $wire {
            Wire::Session($it) => $call,
            #[cfg(test)]
            Wire::Model($it) => $call,
        }
    };
}

impl Wire {
    /// User, group and supplementary groups of the identity that requests are made in unless another is named.
    pub(super) fn own(&self) -> (u32, u32, Vec<u32>) {
        match self {
            Wire::Session(session) => {
                let Identity { uid, gid, groups, .. } = session.options().identity.clone();
                (uid, gid, groups)
            }
            #[cfg(test)]
            Wire::Model(_) => (0, 0, Vec::new()),
        }
    }

    /// The same for another user, group and supplementary groups.
    pub(super) fn on_behalf_of(&self, uid: u32, gid: u32, groups: &[u32]) -> Wire {
        match self {
            Wire::Session(session) => Wire::Session(session.on_behalf_of(&Identity {
                uid,
                gid,
                groups: groups.to_vec(),
                host: session.options().identity.host.clone(),
            })),
            #[cfg(test)]
            Wire::Model(line) => Wire::Model(line.clone()),
        }
    }

    pub(super) async fn compound(
        &self,
        ops: Vec<ArgOp>,
        cachethis: bool,
    ) -> Result<CompoundRes, SessionError> {
        either!(self, it => it.compound(ops, cachethis).await)
    }

    pub(super) async fn compound_in(
        &self,
        number: u64,
        ops: &[ArgOp],
        cachethis: bool,
    ) -> Result<CompoundRes, SessionError> {
        either!(self, it => it.compound_in(number, ops, cachethis).await)
    }

    pub fn limits(&self) -> SessionLimits {
        either!(self, it => it.limits())
    }

    pub fn version(&self) -> Version {
        either!(self, it => it.version())
    }

    pub fn packs_data(&self) -> bool {
        either!(self, it => it.packs_data())
    }

    pub fn lease(&self) -> Duration {
        either!(self, it => it.lease())
    }

    pub fn standing(&self) -> Standing {
        either!(self, it => it.standing())
    }

    pub fn recalls(&self) -> Option<mpsc::Receiver<Asked>> {
        either!(self, it => it.recalls())
    }

    pub async fn binds_back_channel(&self) -> bool {
        either!(self, it => it.binds_back_channel().await)
    }

    pub fn server(&self) -> &str {
        either!(self, it => it.server())
    }

    pub fn stats(&self) -> SessionStats {
        either!(self, it => it.stats())
    }

    pub async fn destroy(self) {
        either!(self, it => it.destroy().await)
    }
}
