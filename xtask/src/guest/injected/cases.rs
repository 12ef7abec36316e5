//! What is done to a client's work, and what `landfast trace` must say about it.

use std::time::Duration;

use crate::guest::ether::Line;
use crate::guest::recipe::Vers::{self, V3, V4_0, V4_1, V4_2};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// nfs-ganesha on ext4: WRITE FILE_SYNC and COMMIT wait for the disk, nothing else.
    Ganesha,
    /// nfs-ganesha on XFS mounted with `wsync`: changes of names wait for it, too.
    GaneshaStable,
    /// `landfast serve` with its log on the same disk.
    Landfast,
}

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub who: Who,
    pub vers: Vers,
    /// More options of the mount.
    pub options: &'static str,
    pub line: Line,
    /// Time of a flush of the server's disk.
    pub flush_ms: f64,
    /// Time of a read from it.
    pub read_ms: f64,
    /// Additional time of the server for each reply.
    pub each_ms: u64,
    /// Tenths of the time for which the server is stopped.
    pub starved: u32,
    /// Work before the capture, on a mount of its own.
    pub prepare: &'static str,
    pub work: &'static str,
    /// All correct verdicts. Empty: the work was not slowed down.
    pub bounds: &'static [&'static str],
    /// Part of the short form.
    pub core: bool,
}

const BASE: Case = Case {
    name: "",
    who: Who::Ganesha,
    vers: V3,
    options: "",
    line: Line { round_trip: Duration::ZERO, megabits: 0, lost_of_1000: 0 },
    flush_ms: 0.0,
    read_ms: 0.0,
    each_ms: 0,
    starved: 0,
    prepare: "",
    work: TWO,
    bounds: &[],
    core: false,
};

const fn line(micros: u64, megabits: u64, lost_of_1000: u64) -> Line {
    Line { round_trip: Duration::from_micros(micros), megabits, lost_of_1000 }
}

const fn ms(ms: u64) -> Line {
    line(1000 * ms, 0, 0)
}

const fn narrow(megabits: u64) -> Line {
    line(500, megabits, 0)
}

const fn lossy(lost_of_1000: u64) -> Line {
    line(2000, 0, lost_of_1000)
}

pub const TWO: &str = "tar -C $WORK -xf /root/two.tar";
pub const SOME: &str = "tar -C $WORK -xf /root/two.tar ./d0 ./d1 ./d2";
pub const FOUR_SOME: &str =
    "for i in 1 2 3 4; do mkdir $WORK/$i; tar -C $WORK/$i -xf /root/two.tar ./d$i & done; wait";
const READ_ALL: &str = "cat $WORK/l* >/dev/null";
const RANDOM: &str = "for i in $(seq 60); do echo hello$i >$WORK/f$i; sleep 0.0$((RANDOM % 90 + 10)); done";
const FIVE: &str = "tar -C $WORK -xf /root/five.tar";
const FOUR: &str = "for i in 1 2 3 4; do mkdir $WORK/$i; tar -C $WORK/$i -xf /root/two.tar & done; wait";
const THINK: &str = "for i in $(seq 40); do echo hello$i >$WORK/f$i; sleep 0.04; done";
const THINK_LITTLE: &str = "for i in $(seq 40); do echo hello$i >$WORK/f$i; sleep 0.01; done";
const COPY: &str =
    "mkdir -p /tmp/two; tar -C /tmp/two -xf /root/two.tar ./d0 ./d1 ./d2; cp -r /tmp/two $WORK/";
pub const BULK: &str =
    "for i in $(seq 12); do dd if=/dev/urandom of=$WORK/l$i bs=1M count=1 conv=fsync status=none; done";
pub const LARGE: &str = "dd if=/dev/zero of=$WORK/large bs=1M count=16 conv=fsync status=none";
pub const READ: &str = "cat $WORK/large >/dev/null";
const CAT: &str = "find $WORK -type f -exec cat {} + >/dev/null";
const LIST: &str = "ls -lR $WORK >/dev/null";
const REMOVE: &str = "rm -rf $WORK/*";
const STAT: &str = "find $WORK -newer /etc/passwd >/dev/null; du -s $WORK >/dev/null; find $WORK -type f -exec head -c 10 {} + >/dev/null";
const GIT: &str = "cd $WORK; git init -q r; cd r; tar -xf /root/two.tar; git add .; git commit -q -m one; git status >/dev/null; cd /";

pub const CASES: &[Case] = &[
    Case { name: "v3-some-rtt20", line: ms(20), work: SOME, bounds: &["rtt"], core: true, ..BASE },
    Case {
        name: "v3-some-flush20",
        flush_ms: 20.0,
        work: SOME,
        bounds: &["persistence"],
        core: true,
        ..BASE
    },
    Case {
        name: "v4.1-some-all-flush10",
        who: Who::GaneshaStable,
        vers: V4_1,
        flush_ms: 10.0,
        work: SOME,
        bounds: &["persistence"],
        core: true,
        ..BASE
    },
    Case {
        name: "landfast-v4.2-some-flush10",
        who: Who::Landfast,
        vers: V4_2,
        flush_ms: 10.0,
        work: SOME,
        bounds: &["persistence"],
        core: true,
        ..BASE
    },
    Case {
        name: "v4.1-some-loss3",
        vers: V4_1,
        line: lossy(30),
        work: SOME,
        bounds: &["loss"],
        core: true,
        ..BASE
    },
    Case {
        name: "v4.0-some-starved",
        vers: V4_0,
        starved: 8,
        work: SOME,
        bounds: &["server"],
        core: true,
        ..BASE
    },
    Case {
        name: "v4.1-four-some-rtt20",
        vers: V4_1,
        options: ",nconnect=2",
        line: ms(20),
        work: FOUR_SOME,
        bounds: &["rtt"],
        core: true,
        ..BASE
    },
    Case { name: "v3-natural", ..BASE },
    Case { name: "v4.1-natural", vers: V4_1, ..BASE },
    Case { name: "landfast-v4.2-natural", who: Who::Landfast, vers: V4_2, ..BASE },
    Case { name: "v3-five-natural", work: FIVE, ..BASE },
    Case { name: "v3-rtt2", line: ms(2), bounds: &["rtt"], ..BASE },
    Case { name: "v4.0-rtt2", vers: V4_0, line: ms(2), bounds: &["rtt"], ..BASE },
    Case { name: "v3-rtt10", line: ms(10), bounds: &["rtt"], ..BASE },
    Case { name: "v4.0-rtt10", vers: V4_0, line: ms(10), bounds: &["rtt"], ..BASE },
    Case { name: "v4.1-rtt10", vers: V4_1, line: ms(10), bounds: &["rtt"], ..BASE },
    Case { name: "v4.2-rtt30", vers: V4_2, work: FIVE, line: ms(30), bounds: &["rtt"], core: true, ..BASE },
    Case { name: "v3-five-rtt20", work: FIVE, line: ms(20), bounds: &["rtt"], ..BASE },
    Case {
        name: "landfast-v4.1-rtt10",
        who: Who::Landfast,
        vers: V4_1,
        line: ms(10),
        bounds: &["rtt"],
        ..BASE
    },
    Case { name: "v3-flush20", flush_ms: 20.0, bounds: &["persistence"], ..BASE },
    Case { name: "v3-flush5", flush_ms: 5.0, bounds: &["persistence"], ..BASE },
    Case { name: "v4.1-flush20", vers: V4_1, flush_ms: 20.0, bounds: &["persistence"], ..BASE },
    Case { name: "v3-all-flush5", who: Who::GaneshaStable, flush_ms: 5.0, bounds: &["persistence"], ..BASE },
    Case { name: "v3-all-flush1", who: Who::GaneshaStable, flush_ms: 1.0, bounds: &["persistence"], ..BASE },
    Case {
        name: "v4.1-all-flush10",
        who: Who::GaneshaStable,
        vers: V4_1,
        flush_ms: 10.0,
        bounds: &["persistence"],
        ..BASE
    },
    Case {
        name: "v4.2-all-flush5",
        who: Who::GaneshaStable,
        vers: V4_2,
        flush_ms: 5.0,
        bounds: &["persistence"],
        ..BASE
    },
    Case { name: "landfast-v3-flush5", who: Who::Landfast, flush_ms: 5.0, bounds: &["persistence"], ..BASE },
    Case {
        name: "landfast-v4.2-flush10",
        who: Who::Landfast,
        vers: V4_2,
        flush_ms: 10.0,
        bounds: &["persistence"],
        ..BASE
    },
    Case {
        name: "v4.1-all-rtt5-flush5",
        who: Who::GaneshaStable,
        vers: V4_1,
        line: ms(5),
        flush_ms: 5.0,
        // The round trips are 30 % of it, about three fifths of what the flushes are.
        bounds: &["mixed", "persistence"],
        ..BASE
    },
    Case { name: "v3-rtt5-flush5", line: ms(5), flush_ms: 5.0, bounds: &["rtt"], ..BASE },
    Case { name: "v3-think", work: THINK, bounds: &["client"], core: true, ..BASE },
    Case { name: "v4.1-think", vers: V4_1, line: ms(1), work: THINK, bounds: &["client"], ..BASE },
    Case { name: "v3-bulk-20mbit", line: narrow(20), work: BULK, bounds: &["bandwidth"], core: true, ..BASE },
    Case {
        name: "v4.1-large-40mbit",
        vers: V4_1,
        line: narrow(40),
        work: LARGE,
        bounds: &["bandwidth"],
        ..BASE
    },
    Case {
        name: "v3-read-20mbit",
        line: narrow(20),
        prepare: LARGE,
        work: READ,
        bounds: &["bandwidth"],
        ..BASE
    },
    Case {
        name: "v4.2-read-80mbit",
        vers: V4_2,
        line: narrow(80),
        prepare: LARGE,
        work: READ,
        bounds: &["bandwidth"],
        ..BASE
    },
    Case {
        name: "v4.1-nconnect-20mbit",
        vers: V4_1,
        options: ",nconnect=4",
        line: narrow(20),
        work: LARGE,
        bounds: &["bandwidth"],
        ..BASE
    },
    Case { name: "v3-loss1", line: lossy(10), bounds: &["loss"], ..BASE },
    Case { name: "v4.1-loss3", vers: V4_1, line: lossy(30), bounds: &["loss"], ..BASE },
    Case { name: "v3-bulk-loss2", line: lossy(20), work: BULK, bounds: &["loss", "mixed"], ..BASE },
    Case { name: "v3-starved", starved: 8, bounds: &["server"], ..BASE },
    Case { name: "v4.1-starved", vers: V4_1, starved: 8, bounds: &["server"], ..BASE },
    Case { name: "v3-cat-slow-disk", prepare: TWO, read_ms: 20.0, work: CAT, bounds: &["server"], ..BASE },
    Case { name: "v3-list-starved", prepare: TWO, starved: 8, work: LIST, bounds: &["server"], ..BASE },
    Case { name: "v3-list-rtt10", prepare: TWO, line: ms(10), work: LIST, bounds: &["rtt"], ..BASE },
    Case {
        name: "v4.1-list-rtt10",
        vers: V4_1,
        prepare: TWO,
        line: ms(10),
        work: LIST,
        bounds: &["rtt"],
        ..BASE
    },
    Case {
        name: "v4.2-cat-rtt10",
        vers: V4_2,
        prepare: TWO,
        line: ms(10),
        work: CAT,
        bounds: &["rtt"],
        ..BASE
    },
    Case { name: "v3-remove-rtt10", prepare: TWO, line: ms(10), work: REMOVE, bounds: &["rtt"], ..BASE },
    Case {
        name: "v4.1-remove-all-flush5",
        who: Who::GaneshaStable,
        vers: V4_1,
        prepare: TWO,
        flush_ms: 5.0,
        work: REMOVE,
        bounds: &["persistence"],
        ..BASE
    },
    Case { name: "v3-stat-rtt10", prepare: TWO, line: ms(10), work: STAT, bounds: &["rtt"], ..BASE },
    Case { name: "v4.1-git-rtt10", vers: V4_1, line: ms(10), work: GIT, bounds: &["rtt"], ..BASE },
    Case { name: "v4.1-four-rtt10", vers: V4_1, line: ms(10), work: FOUR, bounds: &["rtt"], ..BASE },
    Case {
        name: "v3-four-all-flush10",
        who: Who::GaneshaStable,
        flush_ms: 10.0,
        work: FOUR,
        bounds: &["persistence"],
        ..BASE
    },
    Case {
        name: "v3-four-nconnect-rtt10",
        options: ",nconnect=4",
        line: ms(10),
        work: FOUR,
        bounds: &["rtt"],
        ..BASE
    },
    Case { name: "v3-each5", each_ms: 5, work: SOME, bounds: &["server"], core: true, ..BASE },
    Case { name: "v4.1-each5", vers: V4_1, each_ms: 5, work: SOME, bounds: &["server"], ..BASE },
    Case {
        name: "v4.2-cat-each5",
        vers: V4_2,
        each_ms: 5,
        prepare: SOME,
        work: CAT,
        bounds: &["server"],
        ..BASE
    },
    Case { name: "v3-rtt2-each10", line: ms(2), each_ms: 10, work: SOME, bounds: &["server"], ..BASE },
    Case { name: "v4.1-bulk-8mbit", vers: V4_1, line: narrow(8), work: BULK, bounds: &["bandwidth"], ..BASE },
    Case { name: "v3-bulk-rtt30", line: ms(30), work: BULK, bounds: &["rtt", "mixed"], ..BASE },
    Case {
        name: "v4.2-read-rtt30",
        vers: V4_2,
        prepare: LARGE,
        line: ms(30),
        work: READ,
        bounds: &["rtt"],
        ..BASE
    },
    Case { name: "v3-bulk-flush50", flush_ms: 50.0, work: BULK, bounds: &["persistence", "mixed"], ..BASE },
    Case { name: "v3-random", work: RANDOM, bounds: &["client"], ..BASE },
    Case { name: "v4.0-four-starved", vers: V4_0, starved: 8, work: FOUR_SOME, bounds: &["server"], ..BASE },
    Case { name: "v3-loss5", line: lossy(50), work: SOME, bounds: &["loss"], ..BASE },
    Case { name: "v3-read-loss2", line: lossy(20), prepare: BULK, work: READ_ALL, bounds: &["loss"], ..BASE },
    Case { name: "v4.2-some-rtt2", vers: V4_2, line: ms(2), work: SOME, bounds: &["rtt", "mixed"], ..BASE },
    Case {
        name: "v4.1-some-all-rtt5-flush2",
        who: Who::GaneshaStable,
        vers: V4_1,
        line: ms(5),
        flush_ms: 2.0,
        work: SOME,
        bounds: &["mixed"],
        ..BASE
    },
    Case {
        name: "landfast-v3-rtt10-flush5",
        who: Who::Landfast,
        line: ms(10),
        flush_ms: 5.0,
        work: SOME,
        bounds: &["rtt", "mixed"],
        ..BASE
    },
    Case {
        name: "landfast-v4.0-20mbit",
        who: Who::Landfast,
        vers: V4_0,
        line: narrow(20),
        work: BULK,
        bounds: &["bandwidth"],
        ..BASE
    },
    Case {
        name: "landfast-v3-starved",
        who: Who::Landfast,
        starved: 8,
        work: SOME,
        bounds: &["server", "mixed"],
        ..BASE
    },
    Case {
        name: "v3-some-2mbit",
        line: line(0, 2, 0),
        work: SOME,
        bounds: &["bandwidth"],
        core: true,
        ..BASE
    },
    Case {
        name: "v4.1-some-2mbit",
        vers: V4_1,
        line: line(0, 2, 0),
        work: SOME,
        bounds: &["bandwidth"],
        ..BASE
    },
    Case {
        name: "v4.2-some-5mbit",
        vers: V4_2,
        line: line(0, 5, 0),
        work: SOME,
        bounds: &["bandwidth", "mixed"],
        ..BASE
    },
    Case { name: "v3-1mbit", line: line(0, 1, 0), bounds: &["bandwidth"], ..BASE },
    Case {
        name: "v4.0-3mbit-rtt1",
        vers: V4_0,
        line: line(1000, 3, 0),
        bounds: &["bandwidth", "mixed"],
        ..BASE
    },
    Case { name: "v3-five-5mbit", line: line(0, 5, 0), work: FIVE, bounds: &["bandwidth"], ..BASE },
    Case {
        name: "v4.2-five-2mbit",
        vers: V4_2,
        line: line(0, 2, 0),
        work: FIVE,
        bounds: &["bandwidth"],
        ..BASE
    },
    Case { name: "v3-four-some-2mbit", line: line(0, 2, 0), work: FOUR_SOME, bounds: &["bandwidth"], ..BASE },
    Case {
        name: "v4.1-four-some-5mbit",
        vers: V4_1,
        line: line(0, 5, 0),
        work: FOUR_SOME,
        bounds: &["bandwidth"],
        ..BASE
    },
    Case {
        name: "v4.1-cat-2mbit",
        vers: V4_1,
        line: line(0, 2, 0),
        prepare: TWO,
        work: CAT,
        bounds: &["bandwidth"],
        ..BASE
    },
    Case { name: "v3-bulk-2mbit", line: line(0, 2, 0), work: BULK, bounds: &["bandwidth"], ..BASE },
    Case { name: "v3-20mbit-rtt20", line: line(20000, 20, 0), bounds: &["rtt"], ..BASE },
    Case {
        name: "v4.1-some-8mbit-rtt10",
        vers: V4_1,
        line: line(10000, 8, 0),
        work: SOME,
        bounds: &["rtt"],
        ..BASE
    },
    Case { name: "v3-some-loss1-rtt0", line: line(0, 0, 10), work: SOME, bounds: &["loss"], ..BASE },
    Case {
        name: "v4.2-some-loss2-rtt10",
        vers: V4_2,
        line: line(10000, 0, 20),
        work: SOME,
        bounds: &["loss", "rtt", "mixed"],
        ..BASE
    },
    Case { name: "v3-some-loss2-rtt40", line: line(40000, 0, 20), work: SOME, bounds: &["rtt"], ..BASE },
    Case { name: "v3-four-some-loss3", line: lossy(30), work: FOUR_SOME, bounds: &["loss", "mixed"], ..BASE },
    Case {
        name: "v4.0-bulk-loss5-rtt10",
        vers: V4_0,
        line: line(10000, 0, 50),
        work: BULK,
        bounds: &["loss"],
        ..BASE
    },
    Case {
        name: "v4.1-bulk-loss2-rtt0",
        vers: V4_1,
        line: line(0, 0, 20),
        work: BULK,
        bounds: &["loss"],
        ..BASE
    },
    Case { name: "v3-large-loss1-rtt10", line: line(10000, 0, 10), work: LARGE, bounds: &["loss"], ..BASE },
    Case { name: "v4.2-large-loss5", vers: V4_2, line: lossy(50), work: LARGE, bounds: &["loss"], ..BASE },
    Case {
        name: "v4.2-cat-loss3",
        vers: V4_2,
        line: lossy(30),
        prepare: TWO,
        work: CAT,
        bounds: &["loss"],
        ..BASE
    },
    Case {
        name: "v4.1-remove-loss2",
        vers: V4_1,
        line: lossy(20),
        prepare: TWO,
        work: REMOVE,
        bounds: &["loss"],
        ..BASE
    },
    Case { name: "v4.0-four-some-rtt5", vers: V4_0, line: ms(5), work: FOUR_SOME, bounds: &["rtt"], ..BASE },
    Case { name: "v4.2-rtt3", vers: V4_2, line: ms(3), bounds: &["rtt"], ..BASE },
    Case { name: "v3-copy-rtt20", line: ms(20), work: COPY, bounds: &["rtt"], ..BASE },
    Case { name: "v3-rtt10-flush20", line: ms(10), flush_ms: 20.0, bounds: &["rtt", "mixed"], ..BASE },
    Case { name: "v4.0-flush3", vers: V4_0, flush_ms: 3.0, bounds: &["persistence"], ..BASE },
    Case {
        name: "v3-remove-all-flush2",
        who: Who::GaneshaStable,
        flush_ms: 2.0,
        prepare: TWO,
        work: REMOVE,
        bounds: &["persistence"],
        ..BASE
    },
    Case {
        name: "v4.0-some-all-flush1",
        vers: V4_0,
        who: Who::GaneshaStable,
        flush_ms: 1.0,
        work: SOME,
        bounds: &["persistence"],
        ..BASE
    },
    Case { name: "v3-think10-rtt1", line: ms(1), work: THINK_LITTLE, bounds: &["client"], ..BASE },
    Case { name: "v4.1-think-rtt5", vers: V4_1, line: ms(5), work: THINK, bounds: &["client"], ..BASE },
];
