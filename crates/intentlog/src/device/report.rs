//! Describes the devices below a log: caches, write-through, blocks, alignment.
//!
//! It reads sysfs, from the log's device down to the ones that hold the bytes: from partitions to their disk, from device mapper
//! and md to their members, from loop devices to the device below their file. What it cannot find it calls unknown. It does not
//! decide how a log is flushed ([`super::selftest`] measures that), but tells a person what a flush means on this machine.
//! [`Report::warning`] names one wrong combination: the kernel believes that a device has no volatile cache, and sends no
//! flushes, while a device below it has one.

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::limits::{BLOCK_BYTES, DEVICE_LAYERS_MAX};

/// Bytes of the sectors in which sysfs counts.
const SYSFS_SECTOR: u64 = 512;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layer {
    pub name: String,
    /// It has a volatile write cache, so the kernel sends flushes.
    pub cache: Option<bool>,
    /// It supports writes that bypass the cache (FUA).
    pub fua: Option<bool>,
    /// It has platters.
    pub rotational: Option<bool>,
    /// Smallest unit of a request, in bytes.
    pub logical: Option<u64>,
    /// Smallest unit that is written without reading first, in bytes.
    pub physical: Option<u64>,
    /// Bytes by which its beginning misses a physical block of the device below.
    pub misaligned: Option<u64>,
    /// The file with its count of flushes, if it has a volatile cache and counts them.
    pub stat: Option<PathBuf>,
    /// The file of a loop device, by its name in the kernel.
    pub file: Option<PathBuf>,
}

/// A log's device and the devices below it, from the top.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Empty: unknown.
    pub layers: Vec<Layer>,
}

/// Where the report is read.
struct System<'a> {
    sys: &'a Path,
    mounts: &'a str,
    /// The number of the block device at a path, or of the device that a file is on.
    number: &'a dyn Fn(&Path) -> Option<u64>,
}

impl Report {
    pub fn of(path: &Path) -> Report {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        System { sys: Path::new("/sys"), mounts: &mounts, number: &number }.report(path)
    }

    /// The smallest request of the top device, in bytes.
    pub fn logical(&self) -> Option<u64> {
        self.layers.first().and_then(|top| top.logical)
    }

    /// The first device that counts its flushes, and the file with the count.
    pub(crate) fn counts(&self) -> Option<(&str, &Path)> {
        self.layers.iter().find_map(|layer| Some((layer.name.as_str(), layer.stat.as_deref()?)))
    }

    /// The loop devices and their files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.layers.iter().filter_map(|layer| Some((layer.name.as_str(), layer.file.as_deref()?)))
    }

    /// Why flushes may not reach stable storage.
    pub fn warning(&self) -> Option<String> {
        let top = self.layers.first().filter(|top| top.cache == Some(false))?;
        let below = self.layers.iter().find(|layer| layer.cache == Some(true))?;
        Some(format!(
            "{} says that it has no volatile cache, so it gets no flushes, but {} below it has one: a power cut can lose \
             acknowledged operations; set queue/write_cache of {} to \"write back\"",
            top.name, below.name, top.name
        ))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.layers.is_empty() {
            return f.write_str("an unknown device");
        }
        for (n, layer) in self.layers.iter().enumerate() {
            write!(f, "{}{layer}", if n > 0 { " on " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let either = |what: Option<bool>, yes, no, unknown| match what {
            Some(true) => yes,
            Some(false) => no,
            None => unknown,
        };
        let bytes = |what: Option<u64>| what.map_or_else(|| "?".to_owned(), |bytes| bytes.to_string());
        write!(
            f,
            "{} ({}, {}, {}, blocks of {}/{} bytes",
            self.name,
            either(self.cache, "volatile cache", "no volatile cache", "cache unknown"),
            either(self.fua, "FUA", "no FUA", "FUA unknown"),
            either(self.rotational, "rotational", "not rotational", "rotation unknown"),
            bytes(self.logical),
            bytes(self.physical),
        )?;
        match self.misaligned {
            Some(0) => f.write_str(", aligned)"),
            Some(off) => write!(f, ", MISALIGNED by {off} bytes)"),
            None => f.write_str(", alignment unknown)"),
        }
    }
}

impl System<'_> {
    fn report(&self, path: &Path) -> Report {
        let mut report = Report::default();
        if let Some(dir) = self.directory_of(path) {
            self.descend(&dir, &mut report);
        }
        report
    }

    /// The directory in sysfs of the device at `path`, or of the one that a file is on.
    fn directory_of(&self, path: &Path) -> Option<PathBuf> {
        self.directory((self.number)(path)?).or_else(|| {
            // A filesystem with device numbers of its own, such as btrfs: by the device that was mounted.
            self.directory((self.number)(&self.mounted_from(path)?)?)
        })
    }

    fn directory(&self, number: u64) -> Option<PathBuf> {
        let name = format!("{}:{}", major(number), minor(number));
        fs::canonicalize(self.sys.join("dev/block").join(name)).ok()
    }

    /// The source of the deepest mount above `path`.
    fn mounted_from(&self, path: &Path) -> Option<PathBuf> {
        let path = fs::canonicalize(path).ok()?;
        let mounts = self.mounts.lines().filter_map(|line| {
            let (place, source) = line.split_once(" - ")?;
            let point = Path::new(place.split(' ').nth(4)?);
            path.starts_with(point).then_some((point, Path::new(source.split(' ').nth(1)?)))
        });
        // Of several at one point the last one is on top.
        let deepest = mounts.max_by_key(|(point, _)| point.components().count())?;
        deepest.1.is_absolute().then(|| deepest.1.to_owned())
    }

    fn descend(&self, dir: &Path, report: &mut Report) {
        let known = |name: &str| report.layers.iter().any(|layer| layer.name == name);
        let Some(name) = dir.file_name().and_then(|name| name.to_str()).filter(|name| !known(name)) else {
            return;
        };
        if report.layers.len() >= DEVICE_LAYERS_MAX {
            return;
        }
        let partition = dir.join("partition").exists();
        let disk = if partition { dir.parent().unwrap_or(dir) } else { dir };
        let of_queue = |file: &str| text(&disk.join("queue").join(file));
        let number = |file: &str| of_queue(file)?.parse().ok();
        let flag = |file: &str| number(file).map(|n: u64| n != 0);
        let physical = number("physical_block_size");
        let start = if partition {
            text(&dir.join("start")).and_then(|start| start.parse::<u64>().ok())
        } else {
            Some(0)
        };
        let offset = text(&dir.join("alignment_offset")).and_then(|offset| offset.parse::<i64>().ok());
        let misaligned = match (start, physical.filter(|bytes| *bytes > 0), offset) {
            // The kernel's -1: it cannot be aligned.
            (_, Some(physical), Some(-1)) => Some(physical),
            (Some(start), Some(physical), offset) => {
                let of_start = start.wrapping_mul(SYSFS_SECTOR) % physical;
                Some(of_start.max(offset.map_or(0, |offset| offset.unsigned_abs() % physical)))
            }
            _ => None,
        };
        let cache = of_queue("write_cache").map(|cache| cache == "write back");
        // Only devices with request queues count flushes; those that pass requests on (dm, md) do not.
        let counts = cache == Some(true) && disk.join("mq").exists();
        report.layers.push(Layer {
            name: name.to_owned(),
            cache,
            stat: counts.then(|| disk.join("stat")),
            file: text(&disk.join("loop/backing_file")).map(PathBuf::from),
            fua: flag("fua"),
            rotational: flag("rotational"),
            logical: number("logical_block_size"),
            physical,
            misaligned,
        });
        if partition {
            // A partition has the disk's figures, so only what is below the disk follows.
            return self.below(disk, report);
        }
        self.below(dir, report);
    }

    fn below(&self, dir: &Path, report: &mut Report) {
        if let Some(file) = text(&dir.join("loop/backing_file"))
            && let Some(under) = self.directory_of(Path::new(&file))
        {
            self.descend(&under, report);
        }
        let Ok(members) = fs::read_dir(dir.join("slaves")) else { return };
        let mut members: Vec<_> = members.flatten().filter_map(|m| fs::canonicalize(m.path()).ok()).collect();
        members.sort();
        members.iter().for_each(|member| self.descend(member, report));
    }
}

fn text(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim_end().to_owned())
}

fn number(path: &Path) -> Option<u64> {
    let found = fs::metadata(path).ok()?;
    Some(if found.file_type().is_block_device() { found.rdev() } else { found.dev() })
}

/// Whether a block device is at `path` now.
pub fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// Whether the device takes requests as small as a block of the log.
pub(crate) fn takes_blocks(report: &Report) -> bool {
    report.logical().is_none_or(|unit| unit <= BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use rustix::fs::makedev;

    use super::*;

    /// A sysfs made of files.
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new() -> Fake {
            let fake = Fake(tempfile::tempdir().unwrap());
            fs::create_dir_all(fake.0.path().join("dev/block")).unwrap();
            fake
        }

        /// A device with files in its directory.
        fn add(&self, number: &str, dir: &str, files: &[(&str, &str)]) {
            let at = self.0.path().join("devices").join(dir);
            fs::create_dir_all(&at).unwrap();
            std::os::unix::fs::symlink(&at, self.0.path().join("dev/block").join(number)).unwrap();
            for (file, text) in files {
                let file = at.join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, format!("{text}\n")).unwrap();
            }
        }

        fn member(&self, of: &str, member: &str) {
            let slaves = self.0.path().join("devices").join(of).join("slaves");
            fs::create_dir_all(&slaves).unwrap();
            let name = Path::new(member).file_name().unwrap();
            std::os::unix::fs::symlink(self.0.path().join("devices").join(member), slaves.join(name))
                .unwrap();
        }

        fn report(&self, at: (u32, u32), mounts: &str, sources: &[(&str, (u32, u32))]) -> Report {
            let number = |path: &Path| {
                let source = sources.iter().find(|(name, _)| Path::new(name) == path);
                let (major, minor) = source.map_or(at, |(_, at)| *at);
                Some(makedev(major, minor))
            };
            System { sys: self.0.path(), mounts, number: &number }.report(Path::new("/"))
        }
    }

    const DISK: [(&str, &str); 5] = [
        ("queue/write_cache", "write back"),
        ("queue/fua", "1"),
        ("queue/rotational", "0"),
        ("queue/logical_block_size", "512"),
        ("queue/physical_block_size", "4096"),
    ];

    #[test]
    fn a_partition_has_its_disks_figures_and_its_own_alignment() {
        let fake = Fake::new();
        fake.add("8:0", "sda", &DISK);
        fake.add("8:1", "sda/sda1", &[("partition", "1"), ("start", "2048")]);
        fake.add("8:2", "sda/sda2", &[("partition", "2"), ("start", "63")]);
        let line = |minor| fake.report((8, minor), "", &[]).to_string();
        assert_eq!(line(1), "sda1 (volatile cache, FUA, not rotational, blocks of 512/4096 bytes, aligned)");
        assert!(line(2).ends_with("MISALIGNED by 3584 bytes)"), "{}", line(2));
        assert!(line(0).starts_with("sda (volatile cache, FUA"));
    }

    #[test]
    fn mappings_and_loops_are_followed_to_the_disks_below() {
        let fake = Fake::new();
        fake.add("8:0", "sda", &DISK);
        fake.add("8:16", "sdb", &[("queue/write_cache", "write through"), ("queue/rotational", "1")]);
        fake.add("253:0", "dm-0", &[("queue/write_cache", "write back")]);
        fake.member("dm-0", "sda");
        fake.member("dm-0", "sdb");
        fake.add("7:0", "loop0", &[("loop/backing_file", "/image"), ("queue/write_cache", "write back")]);
        let report = fake.report((7, 0), "", &[("/image", (253, 0))]);
        let names: Vec<&str> = report.layers.iter().map(|layer| layer.name.as_str()).collect();
        assert_eq!(names, ["loop0", "dm-0", "sda", "sdb"]);
        assert_eq!(report.layers[3].cache, Some(false));
        assert_eq!(report.warning(), None);
        let unknown = report.layers[1].to_string();
        assert_eq!(
            unknown,
            "dm-0 (volatile cache, FUA unknown, rotation unknown, blocks of ?/? bytes, alignment unknown)"
        );
    }

    #[test]
    fn the_first_device_with_requests_and_a_cache_counts_flushes() {
        let fake = Fake::new();
        let with_queue = [&DISK[..], &[("mq/0/cpu_list", "0")]].concat();
        fake.add("8:0", "sda", &with_queue);
        fake.add("8:1", "sda/sda1", &[("partition", "1"), ("start", "2048")]);
        fake.add("253:0", "dm-0", &[("queue/write_cache", "write back")]);
        fake.member("dm-0", "sda/sda1");
        fake.add("8:16", "sdb", &[("queue/write_cache", "write through"), ("mq/0/cpu_list", "0")]);
        let counts =
            |at| fake.report(at, "", &[]).counts().map(|(name, stat)| (name.to_owned(), stat.to_owned()));
        let stat = fake.0.path().join("devices/sda/stat");
        assert_eq!(counts((253, 0)), Some(("sda1".to_owned(), stat.clone())));
        assert_eq!(counts((8, 0)), Some(("sda".to_owned(), stat)));
        assert_eq!(counts((8, 16)), None, "it needs no flushes");
    }

    #[test]
    fn a_cache_that_gets_no_flushes_is_warned_of() {
        let fake = Fake::new();
        fake.add("8:0", "sda", &DISK);
        fake.add("253:0", "dm-0", &[("queue/write_cache", "write through")]);
        fake.member("dm-0", "sda");
        let warning = fake.report((253, 0), "", &[]).warning().unwrap();
        assert!(
            warning.starts_with("dm-0 says that it has no volatile cache")
                && warning.contains("sda below it has one")
        );
    }

    #[test]
    fn a_filesystem_with_numbers_of_its_own_is_found_by_its_mount() {
        let fake = Fake::new();
        fake.add("8:0", "sda", &DISK);
        let mounts = "27 1 0:50 / / rw - btrfs /dev/sda rw\n28 27 0:51 / /elsewhere rw - btrfs /dev/sdb rw\n";
        assert_eq!(fake.report((0, 50), mounts, &[("/dev/sda", (8, 0))]).layers.len(), 1);
        let tmpfs = "27 1 0:50 / / rw - tmpfs tmpfs rw\n";
        assert_eq!(fake.report((0, 50), tmpfs, &[]).to_string(), "an unknown device");
    }

    #[test]
    fn a_ring_of_devices_ends() {
        let fake = Fake::new();
        fake.add("253:0", "dm-0", &DISK);
        fake.add("253:1", "dm-1", &DISK);
        fake.member("dm-0", "dm-1");
        fake.member("dm-1", "dm-0");
        assert_eq!(fake.report((253, 0), "", &[]).layers.len(), 2);
    }

    #[test]
    fn blocks_larger_than_the_logs_are_not_taken() {
        let of = |logical| Report { layers: vec![Layer { logical, ..Layer::default() }] };
        assert!(takes_blocks(&of(Some(4096))) && takes_blocks(&of(None)) && !takes_blocks(&of(Some(16384))));
    }
}
