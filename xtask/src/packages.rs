//! The Debian packages that the checks need: installed when we are root, otherwise named.

use crate::proc;

/// A program that some check runs (or, as an absolute path, another file), and the Debian package that has it.
struct Need {
    program: &'static str,
    package: &'static str,
}

/// The server that Landfast's processor time is compared with.
pub const GANESHA: [&str; 2] = ["/usr/bin/ganesha.nfsd", "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so"];

/// What `landfast trace` is compared with.
pub const TRACERS: [&str; 2] = ["tshark", "nfstrace"];

/// What captures a guest's traffic, and what `landfast trace` is then compared with.
pub const CAPTURERS: [&str; 2] = ["tcpdump", TRACERS[0]];

/// What `guest injected` needs beside the guest.
pub const INJECTED: [&str; 5] = [GANESHA[0], GANESHA[1], TRACERS[0], "mkfs.xfs", "fusermount3"];

/// What `guest verdicts` needs.
pub const VERDICTS: [&str; 6] = [GANESHA[0], GANESHA[1], "nfs-cp", "mkfs.xfs", "fusermount3", "ip"];

/// What the checks run beyond Rust and coreutils.
const NEEDS: &[Need] = &[
    Need { program: "fusermount3", package: "fuse3" },
    Need { program: "mkfs.ext4", package: "e2fsprogs" },
    Need { program: "mkfs.xfs", package: "xfsprogs" },
    Need { program: "mkfs.btrfs", package: "btrfs-progs" },
    Need { program: "losetup", package: "mount" },
    Need { program: "setpriv", package: "util-linux" },
    Need { program: "qemu-system-x86_64", package: "qemu-system-x86" },
    Need { program: "debootstrap", package: "debootstrap" },
    Need { program: "busybox", package: "busybox-static" },
    Need { program: "cpio", package: "cpio" },
    Need { program: "depmod", package: "kmod" },
    Need { program: "git", package: "git" },
    Need { program: "xz", package: "xz-utils" },
    Need { program: "zstd", package: "zstd" },
    Need { program: "bzip2", package: "bzip2" },
    Need { program: "cc", package: "gcc" },
    Need { program: "c++", package: "g++" },
    Need { program: "nfs-ls", package: "libnfs-utils" },
    Need { program: "nfs-cp", package: "libnfs-utils" },
    Need { program: "showmount", package: "nfs-common" },
    Need { program: "rpcbind", package: "rpcbind" },
    Need { program: "ip", package: "iproute2" },
    Need { program: "hostname", package: "hostname" },
    Need { program: GANESHA[0], package: "nfs-ganesha" },
    Need { program: GANESHA[1], package: "nfs-ganesha-vfs" },
    Need { program: "/usr/include/sys/acl.h", package: "libacl1-dev" },
    Need { program: "chromium", package: "chromium" },
    Need { program: CAPTURERS[0], package: "tcpdump" },
    Need { program: TRACERS[0], package: "tshark" },
    Need { program: TRACERS[1], package: "nfstrace" },
];

/// The packages whose program is not on this machine.
pub fn missing() -> Vec<&'static str> {
    NEEDS.iter().filter(|need| proc::find_program(need.program).is_none()).map(|need| need.package).collect()
}

/// Whether all of these programs are here; an error names those that are not, with their packages.
pub fn require(programs: &[&str]) -> Result<(), String> {
    let absent: Vec<String> = programs
        .iter()
        .filter(|program| proc::find_program(program).is_none())
        .map(|program| match NEEDS.iter().find(|need| need.program == *program) {
            Some(need) => format!("{program} (Debian package {})", need.package),
            None => (*program).to_owned(),
        })
        .collect();
    if absent.is_empty() { Ok(()) } else { Err(format!("needs {}", absent.join(", "))) }
}

/// Lets apt ask a mirror again that did not answer, after 1, 2, 4 ... s: a minute in all.
pub const APT_RETRIES: &str = "Acquire::Retries=6";

/// Installs packages with apt-get, without questions.
pub fn install(packages: &[&str]) -> Result<(), String> {
    let apt = |args: &[&str]| {
        let mut apt = proc::command("apt-get", ["-o", APT_RETRIES]);
        proc::run(apt.args(args).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["-q", "update"])?;
    let mut args = vec!["-q", "-y", "--no-install-recommends", "install"];
    args.extend(packages);
    apt(&args)
}
