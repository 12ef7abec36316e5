//! Emulated disks and networks, peers, experiments.
//!
//! Every claim of Landfast is a ratio measured in one run on one machine, with the peers on the
//! same emulated disk and network. This crate is where they are measured, and where the power is
//! cut.
//!
//! | room | subject |
//! |---|---|
//! | `disk` | a block device with a volatile cache, latencies, counters, a power switch |
//! | `loopdev`, `mounts`, `namespace` | filesystems on such disks, cleaned up whatever happens |
//! | `memory_disk` | a filesystem in memory, for what is not to wait for a disk |
//! | `sparse_disk` | one on this machine's disk, for what is too large for memory |
//! | `report` | the field's experiments beside peers, row by row, kept and drawn |
//! | `rig`, `served` | a volume and a log on emulated disks; a server process on them |
//! | `net` | a TCP link with a round-trip time |
//! | `peers`, `load`, `streams`, `crowd` | other servers and clients, and a load that is put on them and on ours |
//! | `neighbour` | clients that are a burden to others |
//! | `latencies` | percentiles, and a client that notes them |
//! | `fuse_mount` | `landfast mount` as a process |
//! | `tools` | the client's commands as processes, with what they sent and needed |
//! | `serial` | a client that does one thing at a time, as the kernel's does for tar |
//! | `tarball`, `verify` | archives made and read, trees compared with them |
//! | `peercut`, `pairs`, `writeback` | power cuts under any server, seen by `landfast verify`; while pairs are at work; after a write-back that failed |
//! | `commands` | the client's commands on any server, beside GNU's tools on this machine |
//! | `mount_checks` | `landfast mount` on any server, seen by a second mount |
//! | `mount_cuts` | cuts while programs work on `landfast mount`: what is there afterwards |
//! | `capture` | what passes over a connection, as the frames of many clients |
//! | `busy` | other work of the machine meanwhile |
//! | `place` | the work of two experiments on any server, or on a mount of another client's |
//! | `child` | processes that the lab starts from its own binary |
//! | `clock`, `machine` | precise waiting; root, scratch directories |
//! | `sys` | the system calls that have no safe wrapper |

#![deny(unsafe_code)]

mod busy;
pub mod capture;
pub mod child;
pub mod clock;
pub mod commands;
pub mod crowd;
pub mod demo;
pub mod disk;
pub mod error;
pub mod experiments;
pub mod fuse_mount;
mod kernel_trace;
pub mod latencies;
pub mod limits;
pub mod load;
pub mod loopdev;
mod machine;
pub mod measure;
pub mod memory_disk;
pub mod memory_limit;
pub mod mount_checks;
pub mod mount_cuts;
pub mod mounts;
pub mod namespace;
pub mod neighbour;
pub mod net;
pub mod pairs;
pub mod peercut;
pub mod peers;
pub mod place;
pub mod powercut;
pub mod report;
pub mod rig;
mod scrape;
pub mod serial;
pub mod served;
pub mod sparse_disk;
pub mod standin;
pub mod streams;
#[allow(unsafe_code)]
pub mod sys;
pub mod tarball;
pub mod tools;
pub mod trouble;
pub mod verify;
mod writeback;

pub use error::{Error, Result};
