//! Names the process that holds a lock or a device, for the person who has to stop it.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use crate::device::below::Mount;

/// The process that holds a `flock` on an open file, from `/proc/locks`, as "process N". "another process" if it has no
/// number here, as a process of another machine or container.
pub fn of(file: impl AsFd) -> String {
    named(file).unwrap_or_else(|| "another process".to_owned())
}

fn named(file: impl AsFd) -> Option<String> {
    let stat = rustix::fs::fstat(file).ok()?;
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let place = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder(&locks, &place).map(|pid| format!("process {pid}"))
}

/// Lines are `1: FLOCK  ADVISORY  WRITE 4217 fe:00:7776542 0 EOF`; waiters have an arrow behind the first number.
fn holder(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, _, _) = (words.next()?, words.next()?, words.next()?);
        let pid: u32 = words.next()?.parse().ok()?;
        (kind == "FLOCK" && pid != 0 && words.next()? == place).then_some(pid)
    })
}

/// What has claimed a block device, in words: a mount, a device that it is part of, or the processes that have it open.
pub fn of_device(path: &Path) -> String {
    claimed(path).unwrap_or_else(|| "another process, or mounted, or part of another device".to_owned())
}

fn claimed(path: &Path) -> Option<String> {
    let stat = rustix::fs::stat(path).ok()?;
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(place) = mounted_at(&mounts, (major, minor)) {
        return Some(format!("a filesystem that is mounted on {place}"));
    }
    let above = fs::read_dir(format!("/sys/dev/block/{major}:{minor}/holders"))
        .ok()
        .and_then(|mut all| all.next()?.ok());
    if let Some(above) = above {
        return Some(format!("the device {}, of which it is a part", above.file_name().display()));
    }
    openers(stat.st_rdev)
}

/// The first mount point of a filesystem on this device.
fn mounted_at(mounts: &str, device: (u32, u32)) -> Option<String> {
    mounts.lines().filter_map(Mount::parse).find(|mount| mount.device == device).map(|mount| mount.point)
}

/// The other processes that have a block device open.
fn openers(device: rustix::fs::Dev) -> Option<String> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // Other users' processes cannot be looked at; root sees all.
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        let has_it = |file: fs::DirEntry| {
            rustix::fs::stat(file.path()).is_ok_and(|stat| {
                stat.st_rdev == device
                    && rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::BlockDevice
            })
        };
        if pid != std::process::id() && files.flatten().any(has_it) {
            let program = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("process {pid} ({})", program.trim()));
        }
    }
    if found.is_empty() { None } else { Some(found.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_named() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 4217 fe:00:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 0 fe:00:78 0 EOF\n";
        assert_eq!(holder(locks, "fe:00:77"), Some(4217));
        assert_eq!(holder(locks, "fe:00:78"), None);
        assert_eq!(holder("nonsense", "fe:00:78"), None);
    }

    #[test]
    fn a_mount_is_named() {
        let mounts = "36 35 98:0 / /mnt/point rw,noatime - ext4 /dev/sda rw\n\
                      37 35 98:1 / /srv rw shared:1 - xfs /dev/sda1 rw\n";
        assert_eq!(mounted_at(mounts, (98, 1)).as_deref(), Some("/srv"));
        assert_eq!(mounted_at(mounts, (98, 2)), None);
        assert_eq!(mounted_at("nonsense", (98, 2)), None);
    }

    #[test]
    fn this_process_is_found() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(of(&file), "another process");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        // Where the filesystem's device is another than the system's list says, nobody is named.
        assert!([format!("process {}", std::process::id()), "another process".into()].contains(&of(&file)));
    }
}
