//! The rows of the report, one file each. A new one is a file here and a line in [`ALL`].

mod block_device;
mod cuts;
mod devices;
mod growth;
mod logs;
mod map;
mod mount;
mod one_tar;
mod opens;
mod streams;
mod tree;
mod writes;

use super::content::Found;
use super::plan::Plan;
use crate::error::Result;

pub struct Row {
    pub number: u8,
    pub title: &'static str,
    pub question: &'static str,
    /// Which text of the field measured it, and what it found.
    pub source: &'static str,
    /// Whether it uses the archive of a real source tree.
    pub takes_archive: bool,
    pub run: fn(&mut Plan<'_>) -> Result<Found>,
}

const PLAIN: Row =
    Row { number: 0, title: "", question: "", source: "", takes_archive: false, run: one_tar::run };

pub const ALL: [Row; 12] = [
    Row {
        number: 1,
        title: "One tar, onto everything",
        question: "How long does one archive of small files take in memory, on a local disk, on NFS that answers too early, and on \
                   NFS that keeps its promise?",
        source: "Roch Bourbonnais, NFS and ZFS, a fine combination (2007): tmpfs 0.077 s, UFS 0.25 s, ZFS 0.12 s, NFS on ZFS 12 s",
        run: one_tar::run,
        ..PLAIN
    },
    Row {
        number: 2,
        title: "With a log and without",
        question: "What does a small fast log earn on a hard disk, on a usual solid state disk, and on one with capacitors?",
        source: "Solaris NFS over ZFS performance: 4,096 files of 4 KiB took 165 s over NFS, 5 s with the intent log switched off, 0.3 s \
                 on a local ext3",
        run: logs::run,
        ..PLAIN
    },
    Row {
        number: 3,
        title: "A source tree on a hard disk with a small fast device",
        question: "A hard disk and a cheap fast device: which use of the device is best for a source tree?",
        source: "Making my home NFS server go faster for $22: the Linux tree took two hours, with dm-writecache on an Optane four to five \
                 minutes, 12 s on a local disk",
        takes_archive: true,
        run: tree::run,
    },
    Row {
        number: 4,
        title: "Many clients at once",
        question: "One tar waits for each reply. How much do 1 to 64 of them do at once, and how many of them does one \
                   client replace that puts many files into a request?",
        source: "NFS and tar, an analysis: 290,000 files took 61 minutes from one tar, because a tar does one thing at a time",
        run: streams::run,
        ..PLAIN
    },
    Row {
        number: 5,
        title: "Opens, web pages, COMPOUNDs",
        question: "What does a file below many directories cost that is opened for the first time, and the hundred files of a web page? \
                   What does one operation cost in a COMPOUND of many?",
        source: "Irtegov and others, On one source of latency in NFSv4 client (2017): a request for each name of a path",
        run: opens::run,
        ..PLAIN
    },
    Row {
        number: 6,
        title: "How a client sends what was written",
        question: "A file of 1, 32, 33 or 64 KiB: which requests carry it, what is stable with its reply, and what with a COMMIT?",
        source: "NFS and tar, an analysis: small files go as one stable WRITE, larger ones as unstable WRITEs and a COMMIT",
        run: writes::run,
        ..PLAIN
    },
    Row {
        number: 7,
        title: "Devices that lie",
        question: "What is lost when a device ignores flushes, and what if a battery keeps its cache?",
        source: "Roch Bourbonnais, NFS and ZFS, a fine combination (2007): what a server loses after a COMMIT is corruption for its client",
        run: devices::run,
        ..PLAIN
    },
    Row {
        number: 8,
        title: "A map: round trip and flush",
        question: "How many small files a second, for each round trip of the network and each flush of the disk? Where does \
                   the network bound the work, and where the disk?",
        source: "All texts: each has another network and another disk, and another of them is to blame",
        run: map::run,
        ..PLAIN
    },
    Row {
        number: 9,
        title: "A block device over the same network",
        question: "Is a filesystem on a remote block device quicker than NFS, when the network and the disks are the same?",
        source: "Irtegov and others (2017): a page took 111 ms over iSCSI, 130 ms over NFS, 115 ms over a loop device on NFS",
        run: block_device::run,
        ..PLAIN
    },
    Row {
        number: 10,
        title: "As work grows",
        question: "What does a file cost when there are many of them, and an operation when there are many clients, or many names?",
        source: "Beyond the texts: a server must not get slower with what it holds",
        run: growth::run,
        ..PLAIN
    },
    Row {
        number: 11,
        title: "Power cuts",
        question: "What has each server lost of what it had acknowledged, when the power was cut?",
        source: "All texts: the promise that makes NFS slow, held to the test",
        run: cuts::run,
        ..PLAIN
    },
    Row {
        number: 12,
        title: "An unmodified tar on a mount",
        question: "What does GNU tar take on a mount, if each file must be stable when it is closed, and if a sync at the end is enough \
                   as on a local disk?",
        source: "NFS and tar, an analysis: a tar on a mount waits for each file; one that has the directory delegated for writing need not",
        run: mount::run,
        ..PLAIN
    },
];
