//! Checks that the mount, the filesystem and the device below a path can keep what a flush promises.
//!
//! [`weaknesses`] is pure: it judges what `/proc/self/mountinfo` and ext4's own files say. [`Below`] reads them. Some weaknesses
//! cannot be seen from this machine: a disk that lies, or a virtual disk whose host caches writes (`cache=unsafe`).

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use super::report::Report;
use crate::limits::FLUSH_TRIES;

/// A mount: a line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub id: u64,
    /// Major and minor number of the filesystem's device.
    pub device: (u32, u32),
    /// The directory of the filesystem that is mounted; `/`: all of it.
    pub root: String,
    pub point: String,
    pub kind: String,
    pub source: String,
    /// Options of the filesystem, not of this mount.
    pub options: Vec<String>,
}

impl Mount {
    pub fn parse(line: &str) -> Option<Mount> {
        let (place, filesystem) = line.split_once(" - ")?;
        let mut place = place.split(' ');
        let id = place.next()?.parse().ok()?;
        let (major, minor) = place.nth(1)?.split_once(':')?;
        let (root, point) = (place.next()?.to_owned(), unescape(place.next()?));
        let mut filesystem = filesystem.split(' ');
        Some(Mount {
            id,
            device: (major.parse().ok()?, minor.parse().ok()?),
            root,
            point,
            kind: filesystem.next()?.to_owned(),
            source: filesystem.next()?.to_owned(),
            options: filesystem.next().unwrap_or_default().split(',').map(str::to_owned).collect(),
        })
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    /// The option, of any filesystem, that keeps flushes from the device.
    fn without_barriers(&self) -> Option<&str> {
        let names = ["nobarrier", "barrier=0", "barrier=none", "fsync_mode=nobarrier"];
        self.options.iter().map(String::as_str).find(|o| names.contains(o))
    }
}

/// Whether an ext4 filesystem uses a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journal {
    Used,
    /// It has none, or does not use it.
    None,
    Unknown,
}

impl Journal {
    /// From `/sys/fs/ext4/DEVICE/journal_task` (the number of the journal's thread, or `<none>`), or else
    /// `/proc/fs/ext4/DEVICE/options`, which names a mode of data where there is a journal.
    pub fn of(task: Option<&str>, options: Option<&str>) -> Journal {
        match (task.map(str::trim), options) {
            (Some("<none>"), _) => Journal::None,
            (Some(task), _) if task.parse::<u32>().is_ok() => Journal::Used,
            (_, Some(options)) if options.lines().any(|o| o.starts_with("data=")) => Journal::Used,
            (_, Some(options)) if options.lines().any(|o| o == "barrier" || o == "nobarrier") => {
                Journal::None
            }
            _ => Journal::Unknown,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// It cannot be known; told as information.
    Unknown,
    /// Acknowledged work is safe, something else is not.
    Warn,
    /// Acknowledged work can be lost.
    Refuse,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weakness {
    pub gravity: Gravity,
    /// What is wrong, why, and what to do, without the path.
    pub what: String,
}

impl fmt::Display for Weakness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// The weaknesses of a mount's filesystem and options. Pure.
pub fn weaknesses(mount: &Mount, journal: Journal) -> Vec<Weakness> {
    let mut found = Vec::new();
    let on = format!("{} on {}", mount.kind, mount.source);
    let mut add = |gravity, what: String| found.push(Weakness { gravity, what });
    if let Some(option) = mount.without_barriers() {
        add(
            Gravity::Refuse,
            format!(
                "is on {on}, mounted with {option}: no flush reaches the disk, and a power cut loses acknowledged work; \
                 mount it without {option}"
            ),
        );
    }
    if ["tmpfs", "ramfs", "rootfs", "devtmpfs"].contains(&mount.kind.as_str()) {
        add(Gravity::Refuse, format!("is on {on}, which is memory: a power cut loses all of it; use a disk"));
    }
    let is_ext = ["ext2", "ext3", "ext4"].contains(&mount.kind.as_str());
    let unread = ["norecovery", "noload", "nologreplay"].into_iter().find(|o| mount.has(o));
    let unread =
        unread.or_else(|| mount.options.iter().map(String::as_str).find(|o| o.starts_with("rescue=")));
    if let Some(option) = unread {
        add(
            Gravity::Refuse,
            format!(
                "is on {on}, mounted with {option}: what its journal holds is missing; mount it without {option}"
            ),
        );
    } else if is_ext && journal == Journal::None {
        add(
            Gravity::Refuse,
            format!(
                "is on {on}, which has no journal: a power cut leaves names and inodes in any state, and acknowledged \
                 work with them; give it one (unmount it, tune2fs -O has_journal {0}, e2fsck -f {0})",
                mount.source
            ),
        );
    } else if is_ext && journal == Journal::Unknown {
        add(Gravity::Unknown, format!("is on {on}; whether it has a journal cannot be found out here"));
    }
    if is_ext && (mount.has("data=writeback") || mount.has("journal_async_commit")) {
        add(
            Gravity::Warn,
            format!(
                "is on {on}, mounted with data=writeback: what was written UNSTABLE and not committed may read, after a power \
                 cut, as old contents of deleted files; acknowledged work is safe"
            ),
        );
    }
    if mount.kind == "overlay" && mount.has("volatile") {
        add(
            Gravity::Refuse,
            format!(
                "is on {on}, mounted with volatile: it leaves out every flush; mount it without volatile"
            ),
        );
    } else if mount.kind == "overlay" {
        add(Gravity::Unknown, format!("is on {on}; the filesystem below it cannot be looked at"));
    }
    found
}

/// The weaknesses of the filesystem that holds a loop device's file. It only needs to flush, so a missing journal is a warning:
/// the file's blocks and inode are made once and flushed.
pub fn weaknesses_of_file(loop_device: &str, file: &Path, mount: &Mount, journal: Journal) -> Vec<Weakness> {
    let mut found = weaknesses(mount, journal);
    for weakness in &mut found {
        if weakness.gravity == Gravity::Refuse
            && mount.without_barriers().is_none()
            && journal == Journal::None
        {
            weakness.gravity = Gravity::Warn;
        }
        weakness.what = format!("is on {loop_device}, whose file {} {}", file.display(), weakness.what);
    }
    found
}

#[derive(Debug, Clone, Default)]
pub struct Below {
    mount: Option<Mount>,
    /// The loop devices below, their files, and the mounts that hold these.
    files: Vec<(String, PathBuf, Mount)>,
    /// The topmost device with a volatile cache that counts its flushes, and the file with the counters.
    stat: Option<(String, PathBuf)>,
}

impl Below {
    /// Of the file, directory or block device at `path`.
    pub fn of(path: &Path) -> Below {
        let report = Report::of(path);
        let stat = report.counts().map(|(name, stat)| (name.to_owned(), stat.to_owned()));
        let files = report.files();
        let files =
            files.filter_map(|(name, file)| Some((name.to_owned(), file.to_owned(), mount_of(file)?)));
        let files = files.collect();
        let is_device = rustix::fs::stat(path).is_ok_and(|s| {
            rustix::fs::FileType::from_raw_mode(s.st_mode) == rustix::fs::FileType::BlockDevice
        });
        // A block device is not on the filesystem that its node is on.
        let mount = if is_device { None } else { mount_of(path) };
        Below { mount, files, stat }
    }

    /// Those of the mount, and of the mounts that hold files of loop devices below.
    pub fn weaknesses(&self) -> Vec<Weakness> {
        let mut found = Vec::new();
        if let Some(mount) = &self.mount {
            found.extend(weaknesses(mount, journal_of(mount)));
        }
        for (name, file, mount) in &self.files {
            found.extend(weaknesses_of_file(name, file, mount, journal_of(mount)));
        }
        found
    }

    /// Calls `flush`, which must write something and flush it, a few times, and checks that the device counts a flush. `None`:
    /// it does, or it has no volatile cache and needs none.
    pub fn flushes(&self, mut flush: impl FnMut() -> io::Result<()>) -> io::Result<Option<Weakness>> {
        let Some((name, stat)) = &self.stat else { return Ok(None) };
        for _ in 0..FLUSH_TRIES {
            let before = flushes_in(stat);
            flush()?;
            match (before, flushes_in(stat)) {
                (Some(before), Some(after)) if after == before => {}
                (Some(_), Some(_)) => return Ok(None),
                _ => {
                    let what = format!("is on {name}, which does not count its flushes");
                    return Ok(Some(Weakness { gravity: Gravity::Unknown, what }));
                }
            }
        }
        Ok(Some(Weakness {
            gravity: Gravity::Refuse,
            what: format!(
                "is on {name}, which has a volatile cache (queue/write_cache says \"write back\") and was sent no flush in \
                 {FLUSH_TRIES} tries: something between drops them (a mount option, a sandbox that suppresses fsync), and a \
                 power cut loses acknowledged work; take that away, or, if the cache has a battery, say so to the kernel: \
                 echo \"write through\" > /sys/block/{name}/queue/write_cache"
            ),
        }))
    }

    /// Whether the path is on an ext4 filesystem that is known to use a journal.
    pub fn has_journal(&self) -> bool {
        self.mount.as_ref().is_some_and(|mount| journal_of(mount) == Journal::Used)
    }

    /// The device that counts its flushes, if there is one.
    pub fn counting(&self) -> Option<&str> {
        self.stat.as_ref().map(|(name, _)| name.as_str())
    }
}

/// The number of flushes that a device has completed: field 16 of its `stat`.
fn flushes_in(stat: &Path) -> Option<u64> {
    fs::read_to_string(stat).ok()?.split_whitespace().nth(15)?.parse().ok()
}

/// Other mounts of the same filesystem as mount `id` that show a directory above its root, the highest first.
pub fn wider(id: u64) -> Vec<Mount> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    wider_in(&mounts, id)
}

fn wider_in(mounts: &str, id: u64) -> Vec<Mount> {
    let all: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    let Some(this) = all.iter().find(|mount| mount.id == id) else { return Vec::new() };
    let above = |m: &&Mount| {
        m.device == this.device && m.root != this.root && Path::new(&this.root).starts_with(&m.root)
    };
    let mut wider: Vec<Mount> = all.iter().filter(above).cloned().collect();
    wider.sort_by_key(|mount| mount.root.len());
    wider
}

/// mountinfo writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let names = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    names.iter().fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

fn mount_of(path: &Path) -> Option<Mount> {
    let look = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let id = (look.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(look.stx_mnt_id)?;
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
    mounts.lines().filter_map(Mount::parse).find(|mount| mount.id == id)
}

fn journal_of(mount: &Mount) -> Journal {
    let (major, minor) = mount.device;
    let Ok(device) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        return Journal::Unknown;
    };
    let Some(name) = device.file_name().and_then(|name| name.to_str()) else { return Journal::Unknown };
    let read = |path: String| fs::read_to_string(path).ok();
    let task = read(format!("/sys/fs/ext4/{name}/journal_task"));
    let options = read(format!("/proc/fs/ext4/{name}/options"));
    Journal::of(task.as_deref(), options.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str, journal: Journal) -> Vec<(Gravity, String)> {
        let mount = Mount::parse(line).expect("a line of mountinfo");
        weaknesses(&mount, journal).into_iter().map(|w| (w.gravity, w.what)).collect()
    }

    #[track_caller]
    fn refused(line: &str, journal: Journal, words: &[&str]) {
        let found = of(line, journal);
        let worst = found.iter().max().unwrap_or_else(|| panic!("taken: {line}"));
        assert_eq!(worst.0, Gravity::Refuse, "{line}");
        for word in words {
            assert!(worst.1.contains(word), "no '{word}' in: {}", worst.1);
        }
    }

    #[test]
    fn a_line_of_mountinfo_is_read() {
        let line = "42 27 7:0 / /tmp/h5/m rw,relatime shared:1 master:2 - ext4 /dev/loop0 rw,nobarrier,data=writeback";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.id, mount.device, mount.point.as_str()), (42, (7, 0), "/tmp/h5/m"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("ext4", "/dev/loop0"));
        assert_eq!(mount.options, ["rw", "nobarrier", "data=writeback"]);
        for bad in [
            "",
            "42 27 7:0 / /tmp rw",
            "x 27 7:0 / /m rw - ext4 /dev/a rw",
            "42 27 7 / /m rw - ext4 /dev/a rw",
        ] {
            assert_eq!(Mount::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn mounts_that_show_more_of_a_filesystem_are_found() {
        let mounts = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      40 27 254:0 /srv/a /mnt/a rw - ext4 /dev/vda rw\n\
                      41 27 254:0 /srv /mnt/with\\040space rw - ext4 /dev/vda rw\n\
                      42 27 7:0 / /other rw - ext4 /dev/loop0 rw\n\
                      43 27 254:0 /sr /mnt/sr rw - ext4 /dev/vda rw\n";
        let found = |id| wider_in(mounts, id).into_iter().map(|m| (m.id, m.point)).collect::<Vec<_>>();
        assert_eq!(found(40), [(27, "/".to_owned()), (41, "/mnt/with space".to_owned())]);
        assert_eq!((found(27), found(42), found(99)), (vec![], vec![], vec![]));
    }

    /// Lines as Linux 6.18 gives them.
    #[test]
    fn what_keeps_the_promise_is_taken() {
        for line in [
            "42 27 7:0 / /m rw,relatime - ext4 /dev/loop0 rw",
            "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard,resuid=65534,resgid=65534",
            "42 27 7:0 / /m rw,relatime - ext4 /dev/loop0 rw,nodioread_nolock,nodelalloc,data=journal",
            "42 27 7:0 / /m rw,relatime - xfs /dev/loop0 rw,inode64,logbufs=8,logbsize=32k,noquota",
            "43 27 0:39 / /m rw,relatime - btrfs /dev/loop0 rw,discard=async,space_cache=v2,subvolid=5,subvol=/",
            "43 27 0:39 / /m rw,relatime - btrfs /dev/loop0 rw,flushoncommit,notreelog,nodatasum,nodatacow,commit=300",
        ] {
            assert_eq!(of(line, Journal::Used), [], "{line}");
        }
    }

    #[test]
    fn what_cannot_keep_it_is_refused_and_says_why() {
        for line in [
            "42 27 7:0 / /m rw,relatime - ext4 /dev/loop0 rw,nobarrier",
            "43 27 0:39 / /m rw,relatime - btrfs /dev/loop0 rw,nobarrier,discard=async",
            "42 27 8:1 / /m rw,relatime - xfs /dev/sda1 rw,attr2,nobarrier,inode64,noquota",
        ] {
            refused(
                line,
                Journal::Used,
                &["nobarrier", "no flush reaches the disk", "mount it without nobarrier"],
            );
        }
        refused("42 27 8:1 / /m rw - ext3 /dev/sda1 rw,barrier=0", Journal::Used, &["barrier=0"]);
        refused(
            "42 27 8:1 / /m rw - f2fs /dev/sda1 rw,fsync_mode=nobarrier",
            Journal::Unknown,
            &["nobarrier"],
        );
        let plain = "42 27 7:0 / /m rw,relatime - ext4 /dev/loop0 rw";
        refused(plain, Journal::None, &["has no journal", "tune2fs -O has_journal /dev/loop0"]);
        let ext2 = "42 27 7:0 / /m rw,relatime - ext2 /dev/loop0 rw";
        refused(ext2, Journal::None, &["ext2 on /dev/loop0", "has no journal"]);
        refused("42 27 7:0 / /m ro - ext4 /dev/loop0 ro,norecovery", Journal::None, &["without norecovery"]);
        refused(
            "42 27 7:0 / /m ro - xfs /dev/loop0 ro,norecovery,inode64",
            Journal::Unknown,
            &["without norecovery"],
        );
        let rescue = "43 27 0:39 / /m ro - btrfs /dev/loop0 ro,rescue=nologreplay,discard=async";
        refused(rescue, Journal::Unknown, &["rescue=nologreplay"]);
        let overlay = "50 27 0:40 / /m rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w,volatile";
        refused(overlay, Journal::Unknown, &["volatile", "leaves out every flush"]);
        let memory = "30 25 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684084k";
        refused(memory, Journal::Unknown, &["is on tmpfs", "memory"]);
    }

    #[test]
    fn a_loop_device_is_as_good_as_what_its_file_is_on() {
        let of = |line: &str, journal| {
            let mount = Mount::parse(line).expect("a line of mountinfo");
            let found = weaknesses_of_file("loop1", Path::new("/m/image"), &mount, journal);
            found.into_iter().map(|w| (w.gravity, w.what)).collect::<Vec<_>>()
        };
        assert_eq!(of("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw", Journal::Used), []);
        for line in [
            "42 27 7:0 / /m rw,relatime - ext4 /dev/loop0 rw,nobarrier",
            "30 25 0:27 / /m rw,relatime - tmpfs tmpfs rw",
            "50 27 0:40 / /m rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w,volatile",
        ] {
            let found = of(line, Journal::Unknown);
            let (gravity, what) = found.iter().max().expect("a weakness");
            assert_eq!(*gravity, Gravity::Refuse, "{what}");
            assert!(what.starts_with("is on loop1, whose file /m/image is on "), "{what}");
        }
        let both = of("42 27 7:0 / /m rw,relatime - ext4 /dev/loop0 rw,nobarrier", Journal::None);
        assert!(both.iter().any(|(gravity, what)| *gravity == Gravity::Refuse && what.contains("nobarrier")));
        // Names are not what is wanted of it.
        let plain = of("42 27 7:0 / /m rw,relatime - ext4 /dev/loop0 rw", Journal::None);
        assert!(matches!(&plain[..], [(Gravity::Warn, what)] if what.contains("no journal")), "{plain:?}");
    }

    #[test]
    fn what_is_only_unlucky_or_unknown_is_said() {
        let writeback = of("42 27 7:0 / /m rw - ext4 /dev/loop0 rw,data=writeback", Journal::Used);
        assert!(
            matches!(&writeback[..], [(Gravity::Warn, what)] if what.contains("acknowledged work is safe"))
        );
        let unknown = of("42 27 7:0 / /m rw - ext4 /dev/loop0 rw", Journal::Unknown);
        assert!(matches!(&unknown[..], [(Gravity::Unknown, _)]));
        let overlay = of("50 27 0:40 / /m rw - overlay overlay rw,lowerdir=/l,upperdir=/u", Journal::Unknown);
        assert!(matches!(&overlay[..], [(Gravity::Unknown, _)]));
    }

    /// `/sys/fs/ext4/X/journal_task` and `/proc/fs/ext4/X/options` as Linux 6.18 gives them.
    #[test]
    fn a_journal_is_found_either_way() {
        let with = "rw\nbsddf\nbarrier\ni_version\nstripe=0\ndata=ordered\ninode_readahead_blks=32\n";
        let without = "rw\nbsddf\nbarrier\ni_version\nstripe=0\ninode_readahead_blks=32\n";
        assert_eq!(Journal::of(Some("15017\n"), None), Journal::Used);
        assert_eq!(Journal::of(Some("<none>\n"), Some(with)), Journal::None);
        assert_eq!(Journal::of(None, Some(with)), Journal::Used);
        assert_eq!(Journal::of(None, Some(without)), Journal::None);
        assert_eq!(Journal::of(None, None), Journal::Unknown);
        assert_eq!(Journal::of(Some("?"), Some("")), Journal::Unknown);
    }

    #[test]
    fn flushes_are_counted_where_a_device_tells() {
        let dir = tempfile::tempdir().unwrap();
        let stat = dir.path().join("stat");
        // As Linux 6.18 gives it; the 16th is the number of flushes.
        let say = |flushes: u64| {
            let line = format!(
                "  558507    47955 136963010   639251   453684   212306 109905840   680911        0   131720  1366702    88477       38 456561752    23264   {flushes}    23274\n"
            );
            fs::write(&stat, line).unwrap();
        };
        let below = Below { stat: Some(("vda".into(), stat.clone())), ..Below::default() };
        say(117_831);
        let mut flushes = 117_831;
        let found = below.flushes(|| {
            flushes += 1;
            say(flushes);
            Ok(())
        });
        assert_eq!(found.unwrap(), None);
        let found = below.flushes(|| Ok(())).unwrap().unwrap();
        assert!(found.gravity == Gravity::Refuse && found.what.contains("was sent no flush"), "{found}");
        fs::write(&stat, "1 2 3\n").unwrap();
        assert_eq!(below.flushes(|| Ok(())).unwrap().unwrap().gravity, Gravity::Unknown);
        assert_eq!(Below::default().flushes(|| panic!("nothing to see")).unwrap(), None);
    }
}
