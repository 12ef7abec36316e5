//! What is not served has no program, no version and no port for datagrams.

use crate::common;

use common::somebody::{Said, Somebody};
use landfast_nfs::{PROGRAM, mount, nfsacl, nlm, nsm};
use landfast_server::exports::Features;
use landfast_server::exports::rules::{ClientSpec, Rule, Rules};
use landfast_server::{Protocols, Running, Served, Server, ServerConfig};
use landfast_volume::{Durability, OpenError, OpenOptions, Volume};
use std::net::SocketAddr;

async fn serve(dir: &std::path::Path, protocols: &str) -> Running {
    let options = OpenOptions { accept_weak: true, ..OpenOptions::new(dir, Durability::Sync) };
    let begun = std::time::Instant::now();
    let (volume, recovery) = loop {
        match Volume::open(options.clone()) {
            // The former server's last thread lets go of it.
            Err(OpenError::DirInUse { .. }) if begun.elapsed() < common::PATIENCE => {
                tokio::task::yield_now().await;
            }
            opened => break opened.unwrap_or_else(|e| panic!("{e}")),
        }
    };
    let rules = Rules(vec![Rule::open(vec![ClientSpec::Anyone])]);
    let (path, name) = (dir.to_owned(), "/".into());
    let served =
        Served { volume, recovery, path, name, rules, manage_gids: false, features: Features::default() };
    let protocols: Protocols = protocols.parse().unwrap_or_else(|e| panic!("{e}"));
    let usual = ServerConfig::of(vec![served], vec![SocketAddr::from(([127, 0, 0, 1], 0))]);
    let config = ServerConfig { workers: 4, protocols, ..usual };
    Server::start(config).await.unwrap_or_else(|e| panic!("{e}"))
}

const NULL: Said = Said::Results(landfast_xdr::Bytes::new());
const NO_PROGRAM: Said = Said::NotServed(1);
const NO_VERSION: Said = Said::NotServed(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn each_protocol_can_be_turned_off() {
    let dir =
        tempfile::Builder::new().prefix("landfast-protocols-").tempdir_in("/var/tmp").expect("a directory");
    let minors = async |who: &mut Somebody| {
        let mut served = Vec::new();
        for minor in 0..4 {
            served.push(who.compound(minor, Vec::new()).await.status == landfast_nfs::v4::NfsStat::NFS4_OK);
        }
        served
    };
    // Where another program has the port for datagrams, nobody answers either: what is looked for is this server's socket.
    let socket = |running: &Running| std::net::UdpSocket::bind(running.local_addr()).is_err();
    let programs = [(nfsacl::PROGRAM, 3), (mount::PROGRAM, 3), (nlm::PROGRAM, 4), (nsm::PROGRAM, 1)];

    let running = serve(dir.path(), "4.2").await;
    let mut who = Somebody::at(running.local_addr(), 1);
    assert_eq!(who.call(PROGRAM, 4, 0, &[]).await, NULL);
    assert_eq!(who.call(PROGRAM, 3, 0, &[]).await, NO_VERSION);
    for (program, version) in programs {
        assert_eq!(who.call(program, version, 0, &[]).await, NO_PROGRAM, "{program}");
    }
    assert_eq!(minors(&mut who).await, [false, false, true, false]);
    assert!(!socket(&running));
    running.stop().await.expect("a clean stop");

    let running = serve(dir.path(), "3").await;
    let mut who = Somebody::at(running.local_addr(), 1);
    assert_eq!(who.call(PROGRAM, 3, 0, &[]).await, NULL);
    assert_eq!(who.call(PROGRAM, 4, 0, &[]).await, NO_VERSION);
    let found = [NULL, NULL, NO_PROGRAM, NO_PROGRAM];
    for ((program, version), found) in programs.into_iter().zip(found) {
        assert_eq!(who.call(program, version, 0, &[]).await, found, "{program}");
    }
    assert!(!socket(&running));
    running.stop().await.expect("a clean stop");

    let running = serve(dir.path(), "3,4.0,4.1,nlm").await;
    let mut who = Somebody::at(running.local_addr(), 1);
    for (program, version) in programs {
        assert_eq!(who.call(program, version, 0, &[]).await, NULL, "{program}");
    }
    assert_eq!(minors(&mut who).await, [true, true, false, false]);
    assert!(!socket(&running), "udp is not among them");
    running.stop().await.expect("a clean stop");

    let running = serve(dir.path(), "3,4.0,4.1,4.2,nlm,udp").await;
    assert!(socket(&running));
    let mut who = Somebody::at(running.local_addr(), 1);
    assert_eq!(who.datagram(nlm::PROGRAM, 4, 0, &[]).await, NULL);
    running.stop().await.expect("a clean stop");
}
