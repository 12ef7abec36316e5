//! Opens are a share like any other: one descriptor serves all opens of a file for the same access, an address has no more opens
//! than are free, and clients whose lease is over give theirs up when they are wanted.

use crate::common;

use common::*;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use landfast_rpc::conn::ConnConfig;
use landfast_rpc::{Connection, Ends, NoService};
use landfast_server::limited::{Limit, Limits};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Descriptors of this process that are open on a file.
fn descriptors(of: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("the descriptors");
    all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).filter(|at| at == of).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn opens_of_one_file_share_their_descriptors() {
    let rig = Rig::new().await;
    let mut c = rig.client(b"c").await;
    let path = rig.export().join("f");
    let how = OpenHow::Create(CreateHow::Unchecked(mode(0o644)));
    let mut stateids = Vec::new();
    let mut fh = None;
    for i in 0..300u32 {
        let access = 1 + i % 3;
        let open = open_op(&i.to_be_bytes(), "f", access, 0, how.clone());
        let res = c.run(vec![ArgOp::Putrootfh, open, ArgOp::Getfh]).await;
        assert_ok(&res);
        let ResBody::Open(o) = &res[1].body else { panic!("no OPEN") };
        let ResBody::Getfh(h) = &res[2].body else { panic!("no GETFH") };
        stateids.push((access, o.stateid));
        fh = Some(h.clone());
    }
    let fh = fh.expect("a file");
    // One for each access, and the volume's own.
    assert!(descriptors(&path) <= 6, "{} descriptors for {} opens", descriptors(&path), stateids.len());
    // Each of them does what it was opened for, also when the file has no name any more.
    std::fs::remove_file(&path).expect("removed");
    for (i, (access, stateid)) in stateids.iter().enumerate() {
        if access & 2 != 0 {
            let write = write_op(*stateid, 0, &(i as u32).to_be_bytes());
            assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), write]).await);
        } else {
            let write = write_op(*stateid, 0, b"x");
            assert_eq!(c.status(vec![ArgOp::Putfh(fh.clone()), write]).await, NfsStat::NFS4ERR_OPENMODE);
        }
        match c.last(vec![ArgOp::Putfh(fh.clone()), read_op(*stateid, 0, 4)]).await.body {
            ResBody::Read(r) if access & 2 != 0 => assert_eq!(r.data[..], (i as u32).to_be_bytes()),
            ResBody::Read(_) => {}
            other => panic!("READ gave {other:?}"),
        }
        assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), close_op(*stateid)]).await);
    }
}

/// An address that keeps as many descriptors as it may opens further files, and does with them what it does with the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn opens_that_keep_no_descriptor_serve_like_others() {
    const DESCRIPTORS: usize = 8;
    let mut rig = Rig::new().await;
    rig.limits = Limits::default().with(Limit::OpenDescriptors, DESCRIPTORS);
    rig.restart().await;
    let everyone = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(rig.export(), everyone).expect("a mode");
    let mut c = rig.client(b"c").await;
    c.raw.cred = user(1000);
    let kept = |rig: &Rig| {
        let all = rig.server().stats().limited();
        all.iter().find(|(of, ..)| *of == "open_descriptors").map(|(_, used, _)| *used)
    };
    let mut opens = Vec::new();
    for i in 0..4 * DESCRIPTORS {
        // The owner writes through its open whatever the mode says (RFC 8881 section 18.16.3).
        let how = OpenHow::Create(CreateHow::Guarded(mode(0o444)));
        let res =
            c.run(vec![ArgOp::Putrootfh, open_op(b"o", &format!("f{i}"), 3, 0, how), ArgOp::Getfh]).await;
        assert_ok(&res);
        let ResBody::Open(o) = &res[1].body else { panic!("no OPEN") };
        let ResBody::Getfh(fh) = &res[2].body else { panic!("no GETFH") };
        opens.push((fh.clone(), o.stateid));
    }
    assert_eq!(kept(&rig), Some(DESCRIPTORS as u64 / 2), "one address leaves as many to others");
    for (i, (fh, stateid)) in opens.iter().enumerate() {
        let data = format!("{i} and more");
        let attrs = fattr(AttrValues { size: Some(2), ..AttrValues::default() });
        let cut = ArgOp::Setattr(SetattrArgs { stateid: *stateid, attrs });
        let write = write_op(*stateid, 0, data.as_bytes());
        let res = c.run(vec![ArgOp::Putfh(fh.clone()), write, cut, read_op(*stateid, 0, 64)]).await;
        assert_ok(&res);
        let ResBody::Read(r) = &res[3].body else { panic!("no READ") };
        assert_eq!(r.data[..], data.as_bytes()[..2], "{i}");
        let denied = open_op(b"p", &format!("f{i}"), 1, 1, OpenHow::NoCreate);
        assert_eq!(c.status(vec![ArgOp::Putrootfh, denied]).await, NfsStat::NFS4ERR_SHARE_DENIED);
    }
    // Who closes makes room for the next to keep one.
    for (fh, stateid) in &opens {
        assert_ok(&c.run(vec![ArgOp::Putfh(fh.clone()), close_op(*stateid)]).await);
    }
    assert_eq!(kept(&rig), Some(0));
    let open = open_op(b"o", "f0", 1, 0, OpenHow::NoCreate);
    assert_ok(&c.run(vec![ArgOp::Putrootfh, open]).await);
    assert_eq!(kept(&rig), Some(1));
}

/// A connection from another address of the loopback network.
async fn from(host: u8, rig: &Rig) -> Raw {
    let ends = Ends { local: SocketAddr::from(([127, 0, 0, host], 0)), peer: rig.addr() };
    let conn = Connection::connect_again(ends, Arc::new(NoService), &ConnConfig::default()).await;
    Raw { conn: conn.expect("connected"), ..rig.raw().await }
}

fn create(i: usize) -> Vec<ArgOp> {
    let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
    vec![ArgOp::Putrootfh, open_op(b"o", &format!("f{i}"), 3, 0, how)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn an_address_with_many_clients_leaves_opens_to_others() {
    const OPENS: usize = 64;
    let mut rig = Rig::new().await;
    rig.limits = Limits::default().with(Limit::Opens, OPENS).with(Limit::ClientOpens, OPENS / 4);
    rig.restart().await;
    let mut opened = 0;
    let mut refused = NfsStat::NFS4_OK;
    let raw = from(2, &rig).await;
    let mut attacker = Vec::new();
    for id in 0..8 {
        let mut c = Client::new(raw.clone(), format!("attacker {id}").as_bytes()).await;
        for _ in 0..=OPENS / 4 {
            match c.status(create(opened)).await {
                NfsStat::NFS4_OK => opened += 1,
                status => {
                    refused = status;
                    break;
                }
            }
        }
        attacker.push(c);
    }
    assert_eq!((opened, refused), (OPENS / 2, NfsStat::NFS4ERR_DELAY));
    assert!(
        !rig.export().join(format!("f{opened}")).exists(),
        "what is to come again later has made nothing"
    );
    // Others go on.
    for host in [3, 4] {
        let mut c = Client::new(from(host, &rig).await, format!("other {host}").as_bytes()).await;
        for i in 0..OPENS / 16 {
            assert_eq!(c.status(create(1000 * usize::from(host) + i)).await, NfsStat::NFS4_OK);
        }
    }
    // What the attacker has it has.
    let mut first = attacker.swap_remove(0);
    let open = open_op(b"o", "f0", 3, 0, OpenHow::NoCreate);
    assert_eq!(first.status(vec![ArgOp::Putrootfh, open]).await, NfsStat::NFS4_OK);
}
