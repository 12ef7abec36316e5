//! What is extracted, and which calls a client sends for it.

use super::Refused;
use crate::terms::Work;
use serde::{Deserialize, Serialize};

/// The largest WRITE that Linux sends, unless the server accepts less: 1 MiB.
pub const WRITE_BYTES: u64 = 1 << 20;

/// Average bytes of a call and its reply without file data, with record marks, among the calls that Linux sends for a
/// file. Version 4 has 400 in docs/captures/disk.pcap.gz. On a link with another bandwidth they take another time.
pub(super) const CALL_BYTES: u64 = 400;

/// The protocol version, as far as it matters to the calls for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// NFSv3: CREATE makes a file; there is no open and close.
    #[serde(rename = "3")]
    V3,
    /// NFSv4.0, 4.1, 4.2: OPEN creates a file and CLOSE ends it.
    #[serde(rename = "4")]
    V4,
}

/// How often a client checks names and directories between the objects it creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// Never: the client knows what it has created.
    Never,
    /// Once per directory: Linux, if the server reports that a directory was changed by this client only.
    Once,
    /// For each name before it is created, and for the directory again: Linux 6.1, if the server does not report
    /// that.
    Each,
}

/// How `tar -x` and the client below it work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    pub version: Version,
    /// tar sets owners: as root without `--no-same-owner`.
    pub owners: bool,
    /// tar sets modes: as root without `--no-same-permissions`.
    pub modes: bool,
    /// tar sets times: without `--touch`.
    pub times: bool,
    pub looks: Looks,
    /// Files are created exclusively and get their first attributes in a SETATTR afterwards (RFC 1813 section 3.3.8,
    /// RFC 8881 section 18.16.4). Linux does so except on a persistent session (section 18.36.3,
    /// CREATE_SESSION4_FLAG_PERSIST).
    pub exclusive: bool,
    /// Largest WRITE, in bytes.
    pub write_bytes: u64,
}

impl Manner {
    /// GNU tar as root on Linux, with a server that reports how directories change.
    pub fn new(version: Version) -> Manner {
        Manner {
            version,
            owners: true,
            modes: true,
            times: true,
            looks: Looks::Once,
            exclusive: true,
            write_bytes: WRITE_BYTES,
        }
    }

    /// SETATTRs that tar causes per object, each a call of its own.
    fn settings(&self) -> u64 {
        u64::from(self.owners) + u64::from(self.modes) + u64::from(self.times)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Calls {
    pub all: u64,
    /// Calls whose effect must be durable before the reply.
    pub synchronous: u64,
    /// How often the client waits for a reply. Calls sent together count once.
    pub waits: u64,
}

impl Calls {
    const fn new(all: u64, synchronous: u64) -> Calls {
        Calls { all, synchronous, waits: all }
    }

    fn plus(self, other: Calls) -> Calls {
        Calls {
            all: self.all.saturating_add(other.all),
            synchronous: self.synchronous.saturating_add(other.synchronous),
            waits: self.waits.saturating_add(other.waits),
        }
    }

    fn times(self, n: u64) -> Calls {
        Calls {
            all: self.all.saturating_mul(n),
            synchronous: self.synchronous.saturating_mul(n),
            waits: self.waits.saturating_mul(n),
        }
    }

    fn less(self, other: Calls) -> Calls {
        Calls {
            all: self.all.saturating_sub(other.all),
            synchronous: self.synchronous.saturating_sub(other.synchronous),
            waits: self.waits.saturating_sub(other.waits),
        }
    }
}

/// The number of objects of each kind in an archive or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tree {
    /// Regular files, including those below.
    pub files: u64,
    /// Files without data.
    pub empty: u64,
    /// Files larger than one WRITE.
    pub large: u64,
    pub large_writes: u64,
    pub bytes: u64,
    pub dirs: u64,
    pub symlinks: u64,
    /// Further names of files in the tree.
    pub hard_links: u64,
    pub others: u64,
}

impl Tree {
    /// Adds `n` files of `bytes` each. WRITEs have at most `write_bytes`.
    pub fn add_files(&mut self, n: u64, bytes: u64, write_bytes: u64) {
        self.files = self.files.saturating_add(n);
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(n));
        let write_bytes = write_bytes.max(1);
        if bytes == 0 {
            self.empty = self.empty.saturating_add(n);
        } else if bytes > write_bytes {
            self.large = self.large.saturating_add(n);
            self.large_writes =
                self.large_writes.saturating_add(bytes.div_ceil(write_bytes).saturating_mul(n));
        }
    }

    /// The calls of a sequential client.
    pub fn calls(&self, manner: &Manner) -> Calls {
        let set = manner.settings();
        let v4 = manner.version == Version::V4;
        // CREATE or OPEN, a SETATTR if it was exclusive, one WRITE FILE_SYNC, SETATTRs of tar; CLOSE.
        let make = 2 + set + u64::from(manner.exclusive);
        let mut file = Calls::new(make + u64::from(v4), make);
        // MKDIR or CREATE, and SETATTRs of tar at its end.
        let mut dir = Calls::new(1 + set, 1 + set);
        let (looks_file, looks_dir) = match manner.looks {
            Looks::Never => (0, 0),
            // LOOKUP, ACCESS.
            Looks::Once => (0, 2),
            // LOOKUP of the directory, of the name, and of the directory again; with an ACCESS in version 4. A
            // directory gets three ACCESS calls.
            Looks::Each => (if v4 { 5 } else { 3 }, 4),
        };
        file = file.plus(Calls::new(looks_file, 0));
        dir = dir.plus(Calls::new(looks_dir, 0));
        let write = Calls::new(1, 1);
        // Several WRITEs are sent together as UNSTABLE, followed by a COMMIT.
        let large = Calls {
            all: self.large_writes.saturating_add(self.large),
            synchronous: self.large,
            waits: self.large.saturating_mul(2),
        };
        let link = Calls::new(1, 1);
        // A symbolic link has no mode.
        let named = u64::from(manner.owners) + u64::from(manner.times);
        let symlink = link.plus(Calls::new(named, named));
        file.times(self.files)
            .less(write.times(self.empty.saturating_add(self.large)))
            .plus(large)
            .plus(dir.times(self.dirs))
            .plus(symlink.times(self.symlinks))
            .plus(link.times(self.hard_links))
            .plus(Calls::new(1 + set, 1 + set).times(self.others))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Regular files. 0: unknown.
    pub files: u64,
    /// Files larger than one WRITE.
    pub large: u64,
    /// Other created objects, including directories.
    pub others: u64,
    /// Bytes written. For observed work: all bytes that the client sent.
    pub bytes: u64,
    /// Bytes that the server sent. For extraction: 0.
    #[serde(default)]
    pub bytes_down: u64,
    /// Bytes of a call and its reply that are not included in `bytes`.
    #[serde(default)]
    pub call_bytes: u64,
    /// The calls that a client sends for it.
    pub calls: Calls,
    /// The calls that delegations save. `None`: the version has no such delegations, or it is unknown.
    pub delegations_save: Option<Calls>,
    /// Calls in flight at a time.
    pub in_flight: f64,
    /// How long it took, if it was done already, in seconds.
    pub measured_s: Option<f64>,
}

impl Job {
    /// Extraction of a tree by `tar -x`, one call after another.
    pub fn extract(tree: &Tree, manner: &Manner) -> Job {
        // Linux 6.11 and later with a server that gives a delegation instead of an open (RFC 9754): the client sets
        // times itself, and sends no CLOSE.
        let saved = Calls::new(1 + u64::from(manner.times), u64::from(manner.times)).times(tree.files);
        Job {
            files: tree.files,
            large: tree.large,
            others: tree
                .dirs
                .saturating_add(tree.symlinks)
                .saturating_add(tree.hard_links)
                .saturating_add(tree.others),
            bytes: tree.bytes,
            bytes_down: 0,
            call_bytes: CALL_BYTES,
            calls: tree.calls(manner),
            delegations_save: (manner.version == Version::V4).then_some(saved),
            in_flight: 1.0,
            measured_s: None,
        }
    }

    /// Repetition of observed work. `in_flight`: calls in flight at a time. `version`: that of most of its calls, if
    /// known.
    /// Errors: Work without calls, or with impossible values.
    pub fn repeat(work: &Work, in_flight: f64, version: Option<Version>) -> Result<Job, Refused> {
        if work.calls == 0 {
            return Err(Refused::Nothing);
        }
        if work.synchronous_calls > work.calls {
            return Err(Refused::Nonsense("more synchronous calls than calls"));
        }
        if work.span_s.is_some_and(|s| !s.is_finite() || s <= 0.0) {
            return Err(Refused::Nonsense("a span of time that is none"));
        }
        let saved = Calls::new(2, 1).times(work.files);
        let fits = work.files > 0 && saved.all < work.calls && saved.synchronous < work.synchronous_calls;
        Ok(Job {
            files: work.files,
            large: 0,
            others: 0,
            bytes: work.bytes,
            bytes_down: work.bytes_down,
            call_bytes: 0,
            calls: Calls::new(work.calls, work.synchronous_calls),
            delegations_save: (fits && version == Some(Version::V4)).then_some(saved),
            in_flight: in_flight.max(1.0),
            measured_s: work.span_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: u64, bytes: u64, dirs: u64) -> Tree {
        let mut tree = Tree { dirs, ..Tree::default() };
        tree.add_files(files, bytes, WRITE_BYTES);
        tree
    }

    #[test]
    fn calls_for_a_small_file_are_those_that_linux_was_seen_to_send() {
        let one = tree(1, 4096, 0);
        assert_eq!(one.calls(&Manner::new(Version::V3)), Calls::new(6, 6));
        assert_eq!(one.calls(&Manner::new(Version::V4)), Calls::new(7, 6));
        let plain = Manner { owners: false, modes: false, times: false, ..Manner::new(Version::V3) };
        assert_eq!(one.calls(&plain), Calls::new(3, 3));
        assert_eq!(one.calls(&Manner { version: Version::V4, ..plain }), Calls::new(4, 3));
        let job = Job::extract(&one, &Manner::new(Version::V4));
        assert_eq!(job.calls.less(job.delegations_save.unwrap()), Calls::new(5, 5));
        assert_eq!(Job::extract(&one, &Manner::new(Version::V3)).delegations_save, None);
    }

    /// Measured by `cargo xtask guest speed --kernel 6.12 --vers 3,4.2`, whose table is in docs/client.md: calls per
    /// file of `tar -x` as root, for files in directories of 64, on Landfast with persistent sessions.
    #[test]
    fn calls_for_a_tree_are_as_many_as_linux_6_12_sent() {
        let sent = [(4096, 6.097, 6.081), (512, 6.121, 6.100), (128, 6.195, 6.164)];
        for (files, three, four) in sent {
            let tree = tree(files, 4096, 1 + files.div_ceil(64));
            let guarded = Manner { exclusive: false, ..Manner::new(Version::V4) };
            for (manner, sent) in [(Manner::new(Version::V3), three), (guarded, four)] {
                let calls = tree.calls(&manner).all as f64 / files as f64;
                assert!((calls / sent - 1.0).abs() < 0.01, "{files} files: {calls} instead of {sent}");
            }
        }
    }

    #[test]
    fn what_is_in_a_file_decides_how_it_is_written() {
        let manner = Manner::new(Version::V3);
        assert_eq!(tree(1, 0, 0).calls(&manner), Calls::new(5, 5));
        assert_eq!(tree(1, WRITE_BYTES, 0).calls(&manner), Calls::new(6, 6));
        // Two WRITEs together, then a COMMIT.
        assert_eq!(tree(1, WRITE_BYTES + 1, 0).calls(&manner), Calls { all: 8, synchronous: 6, waits: 7 });
        assert_eq!(tree(1, 16 * WRITE_BYTES, 0).calls(&manner), Calls { all: 22, synchronous: 6, waits: 7 });
    }

    #[test]
    fn counts_that_are_too_large_end_at_the_largest() {
        let calls = tree(u64::MAX, u64::MAX, u64::MAX).calls(&Manner::new(Version::V4));
        assert_eq!(calls.all, u64::MAX);
    }

    #[test]
    fn work_that_cannot_be_is_refused() {
        let work =
            Work { files: 0, bytes: 0, bytes_down: 0, calls: 10, synchronous_calls: 5, span_s: Some(1.0) };
        assert!(Job::repeat(&work, 1.0, None).is_ok());
        for bad in [
            Work { calls: 0, synchronous_calls: 0, ..work },
            Work { synchronous_calls: 11, ..work },
            Work { span_s: Some(0.0), ..work },
            Work { span_s: Some(f64::NAN), ..work },
        ] {
            assert!(Job::repeat(&bad, 1.0, None).is_err(), "{bad:?}");
        }
    }
}
