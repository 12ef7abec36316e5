//! What is extracted, and what a client sends for it.

use super::Refused;
use crate::terms::Work;
use serde::{Deserialize, Serialize};

/// The largest WRITE that Linux sends, unless the server takes less: 1 MiB.
pub const WRITE_BYTES: u64 = 1 << 20;

/// Bytes of a call and its answer beside a file's data, of those that Linux sends for a file, with their record marks: 400 of version 4
/// in docs/captures/disk.pcap.gz. Where the link is another one than the one that was seen they take another time.
pub(super) const CALL_BYTES: u64 = 400;

/// The version of the protocol, as far as it matters to what is sent for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// NFSv3: CREATE makes a file, and nothing is opened or closed.
    #[serde(rename = "3")]
    V3,
    /// NFSv4.0, 4.1, 4.2: OPEN makes a file and CLOSE ends it.
    #[serde(rename = "4")]
    V4,
}

/// How often a client looks at names and directories between what it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// Never: what it has made it knows.
    Never,
    /// Once at each directory: Linux, where the server says that a directory has changed by this client's own doing only.
    Once,
    /// For each name before it is made, and at the directory again: Linux 6.1, where the server does not.
    Each,
}

/// How `tar -x` and the client below it do their work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// The protocol's version.
    pub version: Version,
    /// tar sets owners: as root, and without `--no-same-owner`.
    pub owners: bool,
    /// tar sets modes: as root, and without `--no-same-permissions`.
    pub modes: bool,
    /// tar sets times: without `--touch`.
    pub times: bool,
    /// How often the client looks at names and directories.
    pub looks: Looks,
    /// Files are made exclusively, and get their first attributes in a SETATTR behind it (RFC 1813 section 3.3.8, RFC 8881 section
    /// 18.16.4): what Linux does, but on a session that outlives the server (section 18.36.3, CREATE_SESSION4_FLAG_PERSIST).
    pub exclusive: bool,
    /// Largest WRITE, in bytes.
    pub write_bytes: u64,
}

impl Manner {
    /// GNU tar as root on Linux, on a server that says how directories change.
    #[must_use]
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

    /// SETATTRs that tar asks for, each a call of its own.
    fn settings(&self) -> u64 {
        u64::from(self.owners) + u64::from(self.modes) + u64::from(self.times)
    }
}

/// Calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Calls {
    /// All of them.
    pub all: u64,
    /// Those whose effect has to be stable before the answer.
    pub synchronous: u64,
    /// How many times the client waits for an answer before it goes on: calls that go together are waited for once.
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

/// The objects of an archive or a directory, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tree {
    /// Regular files.
    pub files: u64,
    /// Of them those with nothing in them.
    pub empty: u64,
    /// Of them those that are larger than one WRITE.
    pub large: u64,
    /// WRITEs that these need.
    pub large_writes: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// Directories.
    pub dirs: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Names of files that are in the tree already.
    pub hard_links: u64,
    /// Devices, FIFOs, sockets.
    pub others: u64,
}

impl Tree {
    /// Adds `n` files of `bytes` each, which go in WRITEs of at most `write_bytes`.
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

    /// What a client sends for it that does one thing at a time.
    #[must_use]
    pub fn calls(&self, manner: &Manner) -> Calls {
        let set = manner.settings();
        let v4 = manner.version == Version::V4;
        // CREATE or OPEN, a SETATTR if that was exclusive, one WRITE FILE_SYNC, what tar sets; CLOSE.
        let make = 2 + set + u64::from(manner.exclusive);
        let mut file = Calls::new(make + u64::from(v4), make);
        // MKDIR or CREATE, and what tar sets at its end.
        let mut dir = Calls::new(1 + set, 1 + set);
        let (looks_file, looks_dir) = match manner.looks {
            Looks::Never => (0, 0),
            // LOOKUP, ACCESS.
            Looks::Once => (0, 2),
            // LOOKUP of the directory, of the name, and once more; of version 4 with an ACCESS. A directory is asked for access thrice.
            Looks::Each => (if v4 { 5 } else { 3 }, 4),
        };
        file = file.plus(Calls::new(looks_file, 0));
        dir = dir.plus(Calls::new(looks_dir, 0));
        let write = Calls::new(1, 1);
        // Several WRITEs go UNSTABLE, together, and a COMMIT behind them.
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

/// What is to be done, or was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Regular files; 0: not known.
    pub files: u64,
    /// Of them those that are larger than one WRITE.
    pub large: u64,
    /// Other objects that are made, directories among them.
    pub others: u64,
    /// Bytes written; of work that was seen, all that the client sent.
    pub bytes: u64,
    /// Bytes of a call and its answer that are not among these.
    #[serde(default)]
    pub call_bytes: u64,
    /// What a client sends for it.
    pub calls: Calls,
    /// What of that delegations save; `None`: the version has none of the kind, or it is not known.
    pub delegations_save: Option<Calls>,
    /// Calls under way at a time.
    pub in_flight: f64,
    /// What it took, where it was done already, in seconds.
    pub measured_s: Option<f64>,
}

impl Job {
    /// The extraction of a tree by `tar -x`, one call after another.
    #[must_use]
    pub fn extract(tree: &Tree, manner: &Manner) -> Job {
        // Linux 6.11 and later with a server that gives a delegation in place of an open (RFC 9754): times that the client is
        // trusted with, and nothing to close.
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
            call_bytes: CALL_BYTES,
            calls: tree.calls(manner),
            delegations_save: (manner.version == Version::V4).then_some(saved),
            in_flight: 1.0,
            measured_s: None,
        }
    }

    /// Work that was seen, to be done again. `in_flight`: calls under way at a time. The version, if one is known, is the one that
    /// most of its calls were of.
    ///
    /// # Errors
    /// Work that says nothing, or that cannot be.
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

    /// `cargo xtask guest speed --kernel 6.12 --vers 3,4.2`, whose table is in docs/client.md: calls for each file of `tar -x` as root, of
    /// files in directories of 64, on Landfast's server, whose sessions outlive it.
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
        // Two WRITEs together and a COMMIT.
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
        let work = Work { files: 0, bytes: 0, calls: 10, synchronous_calls: 5, span_s: Some(1.0) };
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
