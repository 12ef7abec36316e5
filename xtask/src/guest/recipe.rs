//! What a guest is made of: a pure description, whose hash names the cached image.

use std::fmt;
use std::str::FromStr;

/// The Debian release of the guest's userland.
pub const SUITE: &str = "bookworm";

/// Packages beyond debootstrap's minimal set: the NFS client, the kernel's NFS server as a peer, and what the checks run.
/// `tcc` compiles C with little CPU, of which an emulated machine has little.
pub const PACKAGES: &[&str] = &[
    "acl",
    "attr",
    "bzip2",
    "git",
    "iproute2",
    "kmod",
    "libc6-dev",
    "make",
    "nfs-common",
    "nfs-kernel-server",
    "procps",
    "rsync",
    "sqlite3",
    "strace",
    "tcc",
    "xz-utils",
];

/// Modules that the initrd loads before the root disk can be mounted.
pub const INITRD_MODULES: &[&str] = &["virtio_pci", "virtio_blk", "ext4"];

/// First process of the initrd.
pub const INITRD_INIT: &str = include_str!("../../guest/initrd-init");
/// First process of the root disk.
pub const INIT: &str = include_str!("../../guest/init");
/// The end of the command channel in the guest.
pub const AGENT: &str = include_str!("../../guest/agent");

/// Bytes of the root disk (sparse): userland and modules take a third, the rest is for what checks extract.
pub const DISK_BYTES: u64 = 3 << 30;

/// The kernels that a guest can have, by upstream series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Debian 12's own.
    V6_1,
    /// Debian 12's newer one (backported from Debian 13).
    V6_12,
    /// The newest of Debian's unstable release, whichever series that is.
    Sid,
}

impl Kernel {
    /// The Debian release that its package comes from. The userland is [`SUITE`]'s with every kernel.
    pub fn suite(self) -> &'static str {
        match self {
            Kernel::V6_1 | Kernel::V6_12 => SUITE,
            Kernel::Sid => "sid",
        }
    }

    /// The package that depends on the newest image of the series: the small `cloud` flavour.
    pub fn meta_package(self) -> &'static str {
        match self {
            Kernel::V6_1 | Kernel::Sid => "linux-image-cloud-amd64",
            Kernel::V6_12 => "linux-image-6.12-cloud-amd64",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::Sid => "sid",
        })
    }
}

impl FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "6.1" => Ok(Kernel::V6_1),
            "6.12" => Ok(Kernel::V6_12),
            "sid" => Ok(Kernel::Sid),
            _ => Err(format!("no kernel {text}: there are 6.1, 6.12 and sid")),
        }
    }
}

/// The NFS versions that the guest mounts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vers {
    /// NFSv3 (RFC 1813).
    V3,
    /// NFSv4.0 (RFC 7530).
    V4_0,
    /// NFSv4.1 (RFC 8881).
    V4_1,
    /// NFSv4.2 (RFC 7862).
    V4_2,
}

pub const VERSIONS: [Vers; 4] = [Vers::V3, Vers::V4_0, Vers::V4_1, Vers::V4_2];

impl fmt::Display for Vers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Vers::V3 => "3",
            Vers::V4_0 => "4.0",
            Vers::V4_1 => "4.1",
            Vers::V4_2 => "4.2",
        })
    }
}

impl FromStr for Vers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = VERSIONS.into_iter().find(|vers| vers.to_string() == text);
        known.ok_or_else(|| {
            let names = VERSIONS.map(|vers| vers.to_string());
            format!("no version {text}: there are {}", names.join(", "))
        })
    }
}

/// The package that a meta package depends on, from `apt-cache depends META`.
pub fn depends_on_image(depends: &str) -> Option<String> {
    depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|package| package.starts_with("linux-image-"))
        .map(str::to_owned)
}

/// The packages that a kernel image's files are in besides its own, from `apt-cache depends IMAGE`: those of the same release. Newer
/// kernels are packaged as an image without files, and `linux-binary-`, `linux-modules-` and `linux-base-` with its release.
pub fn parts_of_image(depends: &str, image_package: &str) -> Vec<String> {
    let release = format!("-{}", release_of(image_package));
    let needed = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    needed.filter(|package| package.ends_with(&release)).map(str::to_owned).collect()
}

/// The kernel's release (`uname -r`) that an image package installs.
pub fn release_of(image_package: &str) -> &str {
    image_package.strip_prefix("linux-image-").unwrap_or(image_package)
}

/// A name for what is made from these parts: the same parts, the same name (64-bit FNV-1a, in hexadecimal).
pub fn key(parts: &[&str]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        // A separator that no part holds, so that moving a byte from one part to the next changes the key.
        for byte in part.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// The key of the userland without kernel.
pub fn userland_key() -> String {
    let mut parts = vec![SUITE];
    parts.extend(PACKAGES);
    key(&parts)
}

/// The key of a bootable image with this kernel package and version.
pub fn image_key(image_package: &str, version: &str) -> String {
    let size = DISK_BYTES.to_string();
    let userland = userland_key();
    let mut parts = vec![userland.as_str(), image_package, version, INITRD_INIT, INIT, AGENT, size.as_str()];
    parts.extend(INITRD_MODULES);
    key(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_found_among_the_dependencies() {
        let text =
            "linux-image-cloud-amd64\n  Depends: linux-base\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        let package = depends_on_image(text);
        assert_eq!(package.as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(release_of(&package.unwrap_or_default()), "6.1.0-56-cloud-amd64");
        assert_eq!(depends_on_image("linux-image-cloud-amd64\n"), None);
    }

    #[test]
    fn a_package_of_another_kind_is_not_the_image() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-base-cloud-amd64\n  Depends: linux-image-7.2.13+deb14-cloud-amd64\n";
        assert_eq!(depends_on_image(text).as_deref(), Some("linux-image-7.2.13+deb14-cloud-amd64"));
    }

    #[test]
    fn the_parts_of_an_image_have_its_release() {
        let text = "linux-image-7.2.13-cloud-amd64\n  PreDepends: linux-base\n |Depends: dracut\n  Depends: initramfs-tools\n  \
                    Depends: linux-binary-7.2.13-cloud-amd64\n  Depends: linux-modules-7.2.13-cloud-amd64\n  Breaks: <fwupdate>\n";
        assert_eq!(
            parts_of_image(text, "linux-image-7.2.13-cloud-amd64"),
            ["linux-binary-7.2.13-cloud-amd64", "linux-modules-7.2.13-cloud-amd64"]
        );
        let older = "linux-image-6.1.0-cloud-amd64\n  Depends: kmod\n  Depends: linux-base\n";
        assert!(parts_of_image(older, "linux-image-6.1.0-cloud-amd64").is_empty());
    }

    #[test]
    fn versions_are_read_as_they_are_written() {
        for text in ["3", "4.0", "4.1", "4.2"] {
            assert_eq!(text.parse::<Vers>().map(|v| v.to_string()), Ok(text.to_owned()));
        }
        for text in ["6.1", "6.12", "sid"] {
            assert_eq!(text.parse::<Kernel>().map(|k| k.to_string()), Ok(text.to_owned()));
        }
        assert!("4".parse::<Vers>().is_err());
        assert!("5.10".parse::<Kernel>().is_err());
    }

    #[test]
    fn a_key_changes_with_every_part() {
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
        assert_ne!(key(&["a", "b"]), key(&["ab", ""]));
        assert_ne!(image_key("linux-image-x", "1"), image_key("linux-image-x", "2"));
    }
}
