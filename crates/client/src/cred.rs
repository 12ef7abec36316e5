//! The identity that calls are made under.

use std::sync::Arc;

use landfast_rpc::{AuthSys, Credential};

/// Who calls, and what a new file's mode may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups; AUTH_SYS carries the first sixteen.
    pub groups: Vec<u32>,
    /// This host's name.
    pub host: Vec<u8>,
}

impl Identity {
    pub fn of_process() -> Identity {
        Identity {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: rustix::process::getgroups()
                .map(|all| all.into_iter().map(rustix::process::Gid::as_raw).collect())
                .unwrap_or_default(),
            host: host_name(),
        }
    }

    /// Whether the user is in this group.
    pub(crate) fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    /// The AUTH_SYS credential (RFC 5531 appendix A).
    pub fn credential(&self) -> Credential {
        Credential::Sys(Arc::new(AuthSys {
            stamp: 0,
            machine_name: self.host.clone(),
            uid: self.uid,
            gid: self.gid,
            gids: self.groups.iter().copied().take(landfast_rpc::limits::AUTH_SYS_GIDS_MAX).collect(),
        }))
    }
}

fn host_name() -> Vec<u8> {
    let mut name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    name.truncate(name.trim_ascii_end().len().min(landfast_rpc::limits::MACHINE_NAME_MAX));
    if name.is_empty() { b"localhost".to_vec() } else { name }
}
