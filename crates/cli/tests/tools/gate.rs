//! A way to a server that lets so many bytes through and no more until more are allowed: a client behind it gets as far as a
//! test wants, however quick the machine is.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What one read takes at most.
const PIECE: usize = 32 << 10;

/// A client behind a gate that lets nothing through has noted by then what it knows to be done, where neither processors nor disks
/// kept it waiting.
pub const NOTED_WITHIN: Duration = Duration::from_millis(300);

#[derive(Default)]
struct Left {
    /// Bytes that may still pass, both ways together.
    bytes: usize,
    /// Since when more would have passed.
    used_up: Option<Instant>,
    /// Connections of earlier turns carry nothing any more.
    turn: usize,
}

#[derive(Default)]
struct Shared {
    left: Mutex<Left>,
    changed: Condvar,
}

impl Shared {
    /// Waits until some bytes may pass; how many of `most`. `None`: another turn has begun.
    fn take(&self, turn: usize, most: usize) -> Option<usize> {
        let mut left = self.left.lock().expect("no panic");
        while left.bytes == 0 && left.turn == turn {
            left.used_up.get_or_insert_with(Instant::now);
            left = self.changed.wait(left).expect("no panic");
        }
        if left.turn != turn {
            return None;
        }
        let some = most.min(left.bytes);
        left.bytes -= some;
        Some(some)
    }
}

pub struct Gate {
    shared: Arc<Shared>,
    /// The server's address, and this one's.
    addresses: (String, String),
}

impl Gate {
    /// To the server at this address.
    pub fn new(server: &str) -> Gate {
        let server = server.to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let here = listener.local_addr().expect("an address").to_string();
        let addresses = (server.clone(), here);
        let shared = Arc::new(Shared::default());
        let all = shared.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let turn = all.left.lock().expect("no panic").turn;
                let both = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
                let Some((from, to)) = both() else { continue };
                for (from, to) in [(from, to), (server, client)] {
                    let shared = all.clone();
                    thread::spawn(move || pump(&shared, turn, from, to));
                }
            }
        });
        Gate { shared, addresses }
    }

    /// The same URL through this.
    pub fn url(&self, url: &str) -> String {
        let (server, here) = &self.addresses;
        assert!(url.contains(server), "{url} is not on {server}");
        url.replacen(server, here, 1)
    }

    /// So many more bytes, if what was allowed has been used up for some time: more than a client takes to note what is done.
    pub fn allow_more_if_used_up(&self, bytes: usize) {
        let mut left = self.shared.left.lock().expect("no panic");
        if left.used_up.is_some_and(|since| since.elapsed() > NOTED_WITHIN) {
            (left.bytes, left.used_up) = (bytes, None);
            self.shared.changed.notify_all();
        }
    }

    /// Connections from now on may carry so many bytes together; earlier ones carry no more.
    pub fn allow(&self, bytes: usize) {
        let mut left = self.shared.left.lock().expect("no panic");
        *left = Left { bytes, used_up: None, turn: left.turn + 1 };
        self.shared.changed.notify_all();
    }
}

fn pump(shared: &Shared, turn: usize, mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; PIECE];
    'all: while let Ok(n) = from.read(&mut piece) {
        let mut rest = &piece[..n];
        if rest.is_empty() {
            break;
        }
        while !rest.is_empty() {
            let Some(some) = shared.take(turn, rest.len()) else { break 'all };
            if to.write_all(&rest[..some]).is_err() {
                break 'all;
            }
            rest = &rest[some..];
        }
    }
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}
