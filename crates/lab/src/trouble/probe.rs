//! A client that was there before the trouble, with a directory of its own, and looks at a server that has failed.

use crate::error::{Error, Result};
use crate::powercut::peer::Peer;
use crate::scrape::page;
use crate::serial::{Action, Change, Node};
use crate::served::Served;
use landfast_nfs::v4::NfsStat;
use std::net::SocketAddr;

pub(super) const DIR: &str = "probe";

/// A file that is there all the time.
pub(super) const FILE: &[u8] = b"probe/file";
const OTHER: &[u8] = b"probe/other";
const CONTENTS: &[u8] = b"acknowledged before the trouble";

/// What a server says when it has failed.
pub(super) const FAILED: &str = " has FAILED: ";

/// Makes what is looked at later.
pub(super) fn prepare(peer: &mut Peer) -> Result<()> {
    peer.act(&Action::Make { path: DIR.into(), node: Node::Dir, mode: 0o755 })?;
    for path in [FILE, OTHER] {
        peer.act(&Action::Create { path: path.to_vec(), mode: 0o644 })?;
        peer.act(&Action::Write { path: path.to_vec(), offset: 0, data: CONTENTS.into(), stable: true })?;
    }
    Ok(())
}

/// Every way to change something.
fn changes() -> Vec<(&'static str, Action)> {
    let path = |name: &str| format!("{DIR}/{name}").into_bytes();
    let make = |name: &str, node| Action::Make { path: path(name), node, mode: 0o755 };
    let write =
        |stable| Action::Write { path: FILE.to_vec(), offset: 0, data: b"refused".as_slice().into(), stable };
    let set = |change| Action::Set { path: FILE.to_vec(), change };
    vec![
        ("create", Action::Create { path: path("new"), mode: 0o644 }),
        ("mkdir", make("dir", Node::Dir)),
        ("symlink", make("symlink", Node::Symlink(b"x".to_vec()))),
        ("mknod", make("fifo", Node::Fifo)),
        ("link", Action::Link { from: FILE.to_vec(), to: path("link") }),
        ("rename", Action::Rename { from: OTHER.to_vec(), to: path("renamed") }),
        ("remove", Action::Remove { path: OTHER.to_vec() }),
        ("a stable write", write(true)),
        ("an unstable write", write(false)),
        ("commit", Action::Commit { path: FILE.to_vec() }),
        ("a change of mode", set(Change { mode: Some(0o600), ..Change::default() })),
        ("a change of size", set(Change { size: Some(1), ..Change::default() })),
        ("a change of times", set(Change { touch: true, ..Change::default() })),
    ]
}

/// What a server that has failed does although it must not.
///
/// `may_be_read`: a filesystem that has shut itself down refuses reads, too.
pub(super) fn refuses(peer: &mut Peer, may_be_read: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (what, action) in changes() {
        match peer.act(&action) {
            // NFS3ERR_IO has the same number.
            Err(Error::Nfs { status: NfsStat::NFS4ERR_IO, .. }) => {}
            Err(e) => wrong.push(format!("{what} is refused with {e}, not NFS4ERR_IO")),
            Ok(_) => wrong.push(format!("{what} succeeds after the failure")),
        }
    }
    if may_be_read {
        wrong.extend(reads(peer));
    }
    wrong
}

/// What a server that has failed does not tell its operator.
pub(super) fn tells(metrics: SocketAddr, server: &Served) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts = [FAILED, "Nothing that modifies is acknowledged any more", "To do: ", "docs/faults.md"];
    let words = server.words();
    wrong.extend(
        parts
            .iter()
            .filter(|part| !words.contains(**part))
            .map(|part| format!("no `{part}` in what the server says: {words}")),
    );
    match page(metrics) {
        Ok(page) => {
            let row = |name: &str, end: &str| page.lines().any(|l| l.starts_with(name) && l.ends_with(end));
            if !row("landfast_volume_failed{", " 1") || !row("landfast_volume_trouble{", " 1") {
                wrong.push("the metrics do not say that the volume has failed".into());
            }
        }
        Err(e) => wrong.push(format!("no metrics: {e}")),
    }
    wrong
}

/// The write verifier, which is the same for all.
pub(super) fn verifier(peers: &mut [Peer]) -> Result<[u8; 8]> {
    let mut found = None;
    for peer in peers {
        let committed = peer.act(&Action::Commit { path: FILE.to_vec() })?;
        let verifier =
            committed.verifier.ok_or_else(|| Error::Protocol("COMMIT without a verifier".into()))?;
        if *found.get_or_insert(verifier) != verifier {
            return Err(Error::Protocol("each version has a write verifier of its own".into()));
        }
    }
    found.ok_or_else(|| Error::Unable("nobody asked for the write verifier".into()))
}

/// What is not answered as before.
pub(super) fn reads(peer: &mut Peer) -> Vec<String> {
    let mut wrong = Vec::new();
    let read = peer.handle(FILE).and_then(|fh| {
        peer.getattr(&fh)?;
        peer.read(&fh, 0, 100)
    });
    match read {
        // A refused write may have reached the page cache: it was not acknowledged.
        Ok(data) if data.len() == CONTENTS.len() => {}
        Ok(data) => wrong.push(format!("READ gives {} bytes", data.len())),
        Err(e) => wrong.push(format!("reads do not go on: {e}")),
    }
    wrong
}

/// Whether the metrics tell of trouble.
pub(super) fn trouble_told(metrics: SocketAddr) -> Result<bool> {
    Ok(page(metrics)?.lines().any(|l| l.starts_with("landfast_volume_trouble{")))
}

/// Whether requests had to wait for room in the log, or were made durable without it.
pub(super) fn log_was_full(metrics: SocketAddr) -> Result<bool> {
    let page = page(metrics)?;
    let some = |name: &str| page.lines().any(|l| l.starts_with(name) && !l.ends_with(" 0"));
    let held = ["log_admissions_slowed_total{", "log_admissions_waited_total{", "log_absorbed_total{"];
    let used = page.lines().any(|l| l.starts_with("landfast_log_used_bytes{"));
    Ok(used && held.into_iter().any(|name| some(&format!("landfast_{name}"))))
}
