//! One direction of an emulated link: bytes on their way, each with the time at which it is due.

use crate::clock::sleep_until;
use crate::limits::{LINK_BYTES_MAX, LINK_READ_BYTES};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{Read, Write};

/// What was read at once.
struct Packet {
    due_ns: u64,
    data: Vec<u8>,
}

#[derive(Default)]
struct Queue {
    packets: VecDeque<Packet>,
    bytes: usize,
    /// The sender has closed; nothing comes any more.
    ended: bool,
    /// The receiver has gone; nothing is taken any more.
    refused: bool,
}

/// One direction.
#[derive(Default)]
pub struct Pipe {
    queue: Mutex<Queue>,
    came: Condvar,
    went: Condvar,
}

impl Pipe {
    /// Reads `from` to its end into the pipe; of so many bytes that come now `due_ns` says when they are due.
    pub fn fill(&self, from: &mut impl Read, due_ns: impl Fn(usize) -> u64) {
        let mut buf = vec![0; LINK_READ_BYTES];
        // A broken connection ends the direction like a closed one.
        while let Ok(n @ 1..) = from.read(&mut buf) {
            let due_ns = due_ns(n);
            let mut q = self.queue.lock();
            while q.bytes > LINK_BYTES_MAX && !q.refused {
                self.went.wait(&mut q);
            }
            if q.refused {
                break;
            }
            q.bytes += n;
            q.packets.push_back(Packet { due_ns, data: buf[..n].to_vec() });
            drop(q);
            self.came.notify_one();
        }
        self.queue.lock().ended = true;
        self.came.notify_one();
    }

    /// Writes what comes out of the pipe to `to`, each piece when it is due and `pass` has returned. Returns the bytes.
    pub fn drain(&self, to: &mut impl Write, spin_ns: u64, pass: impl Fn()) -> u64 {
        let mut passed = 0;
        loop {
            let mut q = self.queue.lock();
            let packet = loop {
                if let Some(p) = q.packets.pop_front() {
                    break p;
                }
                if q.ended {
                    return passed;
                }
                self.came.wait(&mut q);
            };
            q.bytes -= packet.data.len();
            drop(q);
            self.went.notify_one();
            sleep_until(packet.due_ns, spin_ns);
            pass();
            if to.write_all(&packet.data).is_err() {
                self.queue.lock().refused = true;
                self.went.notify_one();
                return passed;
            }
            passed += packet.data.len() as u64;
        }
    }
}
