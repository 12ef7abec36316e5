//! The Debian packages of the peers: which are missing, how to get them, and getting them.

use super::{ganesha, libnfs};
use crate::error::Result;
use crate::mounts::{Filesystem, run};
use std::path::Path;
use std::process::Command;

/// The packages of the peers that are not on this machine.
pub fn missing() -> Vec<&'static str> {
    let mut missing = ganesha::missing();
    if libnfs::possible().is_err() {
        missing.push(libnfs::PACKAGE);
    }
    if Filesystem::Xfs.possible().is_err() {
        missing.push(Filesystem::Xfs.package());
    }
    missing
}

/// One line that says what is missing and how to get it.
pub fn how_to_get(missing: &[&str]) -> String {
    format!(
        "what Debian has in {}; `landfast demo --install-peers` (as root) installs that with apt-get",
        missing.join(", ")
    )
}

/// What [`install`] is going to do.
pub fn plan(missing: &[&str]) -> String {
    let stop = match missing.contains(&ganesha::PACKAGES[0]) {
        true => ", systemctl disable --now nfs-ganesha (the package would serve at each boot)",
        false => "",
    };
    format!("apt-get update, apt-get install {}{stop}", missing.join(" "))
}

/// Installs packages with apt-get, without questions, and ends the server that one of them starts.
/// Errors: Not root, not Debian, no network: with what apt-get said.
pub fn install(missing: &[&str]) -> Result<()> {
    crate::machine::needs_root()?;
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        run(apt.env("DEBIAN_FRONTEND", "noninteractive").arg("-q").args(args), "apt").map(drop)
    };
    apt(&["update"])?;
    apt(&[&["-y", "--no-install-recommends", "install"], missing].concat())?;
    if missing.contains(&ganesha::PACKAGES[0]) && Path::new("/run/systemd/system").exists() {
        run(Command::new("systemctl").args(["disable", "--now", "nfs-ganesha"]), "systemd")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_what_is_done_is_named() {
        let line = how_to_get(&["nfs-ganesha", "libnfs-utils"]);
        assert!(line.contains("nfs-ganesha, libnfs-utils") && line.contains("--install-peers"), "{line}");
        assert_eq!(plan(&["xfsprogs"]), "apt-get update, apt-get install xfsprogs");
        assert!(plan(&["nfs-ganesha", "xfsprogs"]).contains("systemctl disable --now nfs-ganesha"));
    }
}
