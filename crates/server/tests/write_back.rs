//! COMMIT of what could not be written back (RFC 1813 section 3.3.21, RFC 8881 section 18.3), in each version, through
//! descriptors that nobody keeps open: somebody else was told of the error, and the data is gone.

use crate::common;
use crate::small;
use crate::v40;

use common::v3::V3;
use common::*;
use landfast_nfs::v3::types::StableHow as Stable3;
use landfast_nfs::v3::{Call, NfsStat3, Res, WccData, args as args3, res as res3};
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_volume::Durability;
use landfast_xdr::Bytes;
use rustix::fs::Advice;
use small::image::{Image, Kernel};
use small::on_an_image_with;
use std::time::Duration;
use v40::Client40;

/// More than a filesystem keeps within an inode.
const BYTES: usize = 64 << 10;

/// A client without opens.
enum Stateless {
    Three(V3),
    Zero(Client40),
    Sessions(Box<Client>),
}

/// What COMMIT said: the verifier, or that something failed.
type Committed = Result<[u8; 8], String>;

impl Stateless {
    async fn new(rig: &Rig, version: &str) -> Stateless {
        match version {
            "3" => Stateless::Three(V3::new(rig).await),
            "4.0" => Stateless::Zero(Client40::new(rig, b"stateless").await),
            _ => {
                let mut c = rig.client(b"stateless").await;
                c.raw.minor = if version == "4.1" { 1 } else { 2 };
                c.cachethis = false;
                Stateless::Sessions(Box::new(c))
            }
        }
    }

    async fn one(&mut self, fh: &Bytes, op: ArgOp) -> ResOp {
        let put = ArgOp::Putfh(FileHandle(fh.clone()));
        match self {
            Stateless::Zero(c) => c.run(vec![put, op]).await.pop().expect("a result"),
            Stateless::Sessions(c) => c.last(vec![put, op]).await,
            Stateless::Three(_) => unreachable!("version 3 has calls of its own"),
        }
    }

    async fn write(&mut self, fh: &Bytes) {
        let data = Bytes::from(vec![7; BYTES]);
        if let Stateless::Three(c) = self {
            let wrote = c.write(&landfast_nfs::v3::FileHandle(fh.clone()), 0, &data, Stable3::Unstable).await;
            assert_eq!((wrote.count as usize, wrote.committed), (BYTES, Stable3::Unstable));
            return;
        }
        let write = WriteArgs { stateid: Stateid::ANONYMOUS, offset: 0, stable: StableHow::Unstable, data };
        match self.one(fh, ArgOp::Write(write)).await {
            ResOp { body: ResBody::Write(w), .. } => {
                assert_eq!((w.count as usize, w.committed), (BYTES, StableHow::Unstable));
            }
            other => panic!("WRITE gave {other:?}"),
        }
    }

    async fn commit(&mut self, fh: &Bytes) -> Committed {
        if let Stateless::Three(c) = self {
            let file = landfast_nfs::v3::FileHandle(fh.clone());
            let call = Call::Commit(args3::CommitArgs { file, offset: 0, count: 0 });
            return match c.call::<res3::CommitOk, WccData>(call).await {
                Res::Ok(ok) => Ok(ok.verf),
                Res::Fail(NfsStat3::IO, _) => Err("IO".to_owned()),
                Res::Fail(status, _) => Err(status.to_string()),
            };
        }
        match self.one(fh, ArgOp::Commit(CommitArgs { offset: 0, count: 0 })).await {
            ResOp { body: ResBody::Commit(verf), .. } => Ok(verf),
            ResOp { status: NfsStat::NFS4ERR_IO, .. } => Err("IO".to_owned()),
            other => Err(other.status.to_string()),
        }
    }
}

/// Nothing tells that the server has closed what was accessed without an open.
async fn all_closed(rig: &Rig) {
    while rig.server().volumes()[0].stats().cached_descriptors > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The disk fails while the file is written back for somebody else. False: there was nothing to write any more.
fn lost(rig: &Rig, image: &Image, name: &str) -> bool {
    let stranger = std::fs::File::open(rig.export().join(name)).expect("open");
    image.breaks(true);
    let told = rustix::fs::fdatasync(&stranger).is_err();
    image.breaks(false);
    if !told {
        return false;
    }
    rustix::fs::fdatasync(&stranger).expect("nobody remembers");
    rustix::fs::fadvise(&stranger, 0, None, Advice::DontNeed).expect("fadvise");
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_commit_of_lost_data_fails_in_each_version() {
    let kernels = [("3", Kernel::Ext4), ("4.0", Kernel::Xfs), ("4.1", Kernel::Btrfs), ("4.2", Kernel::Ext4)];
    for (version, kernel) in kernels {
        for durability in [Durability::Log, Durability::Sync] {
            let Some((image, rig)) = on_an_image_with(kernel, durability).await else { return };
            println!("version {version}, {kernel:?}, {durability:?}");
            let mut made = rig.client(b"maker").await;
            let (mut fhs, names) = (Vec::new(), ["lost", "other"]);
            for name in names {
                let (fh, stateid) = made.open(name, 3).await;
                assert_ok(&made.run(vec![ArgOp::Putfh(fh.clone()), close_op(stateid)]).await);
                fhs.push(fh.0);
            }
            let mut c = Stateless::new(&rig, version).await;
            loop {
                c.write(&fhs[0]).await;
                all_closed(&rig).await;
                // A checkpoint may have come before.
                if lost(&rig, &image, names[0]) {
                    break;
                }
            }
            let verifier = rig.server().volumes()[0].write_verifier();
            c.write(&fhs[1]).await;
            if let Ok(said) = c.commit(&fhs[1]).await {
                assert_eq!(said, verifier, "of another file nothing was lost");
            }
            assert_eq!(c.commit(&fhs[0]).await, Err("IO".to_owned()), "version {version}, {durability:?}");
            let volume = &rig.server().volumes()[0];
            assert_ne!(volume.write_verifier(), verifier);
            // By the COMMIT, or by a checkpoint that was quicker.
            assert!(volume.failed().is_some());
        }
    }
}
