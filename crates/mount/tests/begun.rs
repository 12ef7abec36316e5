//! Changes that wait, of which the server had executed a part when its power went: the mount has no reply, and sends all once more.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use common::{At, Rig, can_mount, shell};
use landfast_mount::control;

const TEXT: &[u8] = b"what a program has written to f";

/// Between a mount and its server. While it swallows, nothing that the mount sends reaches the server.
struct Relay {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// Told when TEXT was swallowed.
    swallows: Mutex<Option<mpsc::Sender<()>>>,
    streams: Mutex<Vec<TcpStream>>,
}

impl Relay {
    fn start(server: SocketAddr) -> Relay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { swallows: Mutex::default(), streams: Mutex::default() });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { return };
                let ends = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                accepting.streams.lock().unwrap().extend(ends);
                let (up, down) =
                    (accepting.clone(), (server.try_clone().unwrap(), client.try_clone().unwrap()));
                std::thread::spawn(move || up.pass(client, server, true));
                let shared = accepting.clone();
                std::thread::spawn(move || shared.pass(down.0, down.1, false));
            }
        });
        Relay { addr, shared }
    }

    fn swallow(&self) -> mpsc::Receiver<()> {
        let (sender, swallowed) = mpsc::channel();
        *self.shared.swallows.lock().unwrap() = Some(sender);
        swallowed
    }

    /// Connections break, and new ones pass everything on.
    fn mend(&self) {
        *self.shared.swallows.lock().unwrap() = None;
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, up: bool) {
        let (mut bytes, mut gone) = (vec![0; 1 << 16], Vec::new());
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if let Some(sender) = self.swallows.lock().unwrap().as_ref().filter(|_| up) {
                gone.extend_from_slice(&bytes[..count]);
                if gone.windows(TEXT.len()).any(|part| part == TEXT) {
                    let _ = sender.send(());
                }
                continue;
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}

/// Lets programs make f and g and then do `more`, in a directory of the mount's own, and the server execute what `executed` does in its
/// directory. Calls `check` with that in the end.
fn begun(more: &str, executed: &str, check: impl FnOnce(&Path)) {
    if !can_mount() {
        return;
    }
    let rig = Rig::delegating();
    let relay = Relay::start(rig.addr());
    let at = At::new(&format!("nfs://{}/dest?version=4.2", relay.addr), "close=local,flush_age=30");
    let dir = at.own_dir("own");
    let there = rig.dest().join(dir.file_name().unwrap());
    let swallowed = relay.swallow();
    fs::write(dir.join("f"), TEXT).unwrap();
    fs::write(dir.join("g"), "g").unwrap();
    shell(&dir, more);
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| control::sync(at.path()).unwrap());
        swallowed.recv().unwrap();
        shell(&there, executed);
        relay.mend();
        assert_eq!(synced.join().unwrap(), Vec::<String>::new());
    });
    check(&there);
    assert_eq!(fs::read_to_string(there.join("g")).unwrap().trim(), "g");
    assert_eq!(at.unmount(), Vec::<String>::new());
}

#[test]
fn a_file_that_was_made_in_part_and_is_removed_is_no_loss() {
    begun("rm f", ": >f", |there| assert!(!there.join("f").exists()));
}

#[test]
fn a_file_that_was_made_in_part_has_its_data_under_its_new_name() {
    begun("mv f h", ": >f", |there| {
        assert!(!there.join("f").exists());
        assert!(fs::read(there.join("h")).unwrap() == TEXT);
    });
}

#[test]
fn changes_behind_a_file_that_was_made_in_part_are_not_taken_for_somebody_elses() {
    let more = "mkdir d; echo h >h; mv g i; echo g >g";
    begun(more, ": >f; : >g; mkdir d; : >h", |there| {
        assert!(fs::read(there.join("f")).unwrap() == TEXT);
        assert_eq!(
            shell(there, "ls; cat h i").split_whitespace().collect::<Vec<_>>().join(" "),
            "d f g h i h g"
        );
    });
}
