//! A disk in memory that fails on demand, for tests of the log and of its users.
//!
//! A power cut in the middle of a write leaves each of its sectors of 512 bytes old, new, or torn.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::device::read_back::ReadBack;
use crate::replay::ReadAt;

pub const SECTOR_BYTES: usize = 512;

/// Clones are the same disk: a test keeps one while a log has another, and the contents outlive the log.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Mutex<Disk>,
    written: ReadBack,
    lost: Mutex<Option<String>>,
    changed: Condvar,
}

struct Disk {
    bytes: Vec<u8>,
    writes: u64,
    fault: Option<Fault>,
    dead: bool,
    held: bool,
    waiting: bool,
    random: u64,
    latency: Duration,
}

/// What happens, and at which of the coming writes: 0 is the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// That write and all after it are refused; nothing of them reaches the disk.
    Error(u64),
    /// That write alone is refused.
    ErrorOnce(u64),
    /// The power fails during that write: any sectors of it reach the disk; everything after it is refused.
    PowerCut(u64),
}

impl SimDisk {
    /// A disk of `bytes` zeroes; `seed` decides what a power cut leaves.
    pub fn new(bytes: usize, seed: u64) -> Self {
        let disk = Disk {
            bytes: vec![0; bytes],
            writes: 0,
            fault: None,
            dead: false,
            held: false,
            waiting: false,
            random: seed | 1,
            latency: Duration::ZERO,
        };
        SimDisk {
            shared: Arc::new(Shared {
                disk: Mutex::new(disk),
                written: ReadBack::default(),
                lost: Mutex::new(None),
                changed: Condvar::new(),
            }),
        }
    }

    pub fn device(&self) -> Box<dyn Device> {
        Box::new(self.clone())
    }

    pub fn set_fault(&self, fault: Fault) {
        self.shared.disk.lock().fault = Some(fault);
    }

    /// Makes it answer [`Device::look`] with this.
    pub fn lose(&self, why: &str) {
        *self.shared.lost.lock() = Some(why.to_owned());
    }

    /// The power is back and no fault is armed.
    pub fn revive(&self) {
        let mut disk = self.shared.disk.lock();
        disk.fault = None;
        disk.dead = false;
    }

    /// A fault has struck, for good.
    pub fn is_dead(&self) -> bool {
        self.shared.disk.lock().dead
    }

    /// Writes so far, refused ones included.
    pub fn writes(&self) -> u64 {
        self.shared.disk.lock().writes
    }

    /// Makes every write take this long.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.disk.lock().latency = latency;
    }

    /// Holds writes back (`true`) or releases them.
    pub fn hold(&self, held: bool) {
        self.shared.disk.lock().held = held;
        self.shared.changed.notify_all();
    }

    /// Waits until a write is being held back.
    pub fn await_held(&self) {
        let mut disk = self.shared.disk.lock();
        while !disk.waiting {
            self.shared.changed.wait(&mut disk);
        }
    }

    pub fn edit(&self, edit: impl FnOnce(&mut [u8])) {
        edit(&mut self.shared.disk.lock().bytes);
    }

    /// Makes it a larger disk; what is added is zero.
    pub fn grow(&self, bytes: usize) {
        let mut disk = self.shared.disk.lock();
        let larger = bytes.max(disk.bytes.len());
        disk.bytes.resize(larger, 0);
    }

    pub fn image(&self) -> Vec<u8> {
        self.shared.disk.lock().bytes.clone()
    }
}

impl Disk {
    /// Xorshift: enough to choose sectors.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn tear(&mut self, offset: usize, bytes: &[u8]) {
        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let at = offset + index * SECTOR_BYTES;
            match self.next() % 8 {
                0..=3 => self.bytes[at..at + sector.len()].copy_from_slice(sector),
                4 => {
                    let cut = (self.next() as usize) % sector.len();
                    self.bytes[at..at + cut].copy_from_slice(&sector[..cut]);
                }
                _ => {}
            }
        }
    }

    fn range(&self, offset: u64, length: usize) -> io::Result<usize> {
        let offset = offset as usize;
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes.len() => Ok(offset),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl ReadAt for SimDisk {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let disk = self.shared.disk.lock();
        let offset = disk.range(offset, buf.len())?;
        buf.copy_from_slice(&disk.bytes[offset..offset + buf.len()]);
        Ok(())
    }
}

impl Device for SimDisk {
    fn bytes(&self) -> u64 {
        self.shared.disk.lock().bytes.len() as u64
    }

    fn write_durable(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        self.shared.written.begins(parts);
        let written = self.write(parts);
        self.shared.written.ended(parts, written.is_ok());
        written
    }

    fn look(&self, contents: bool) -> Result<(), String> {
        if let Some(why) = &*self.shared.lost.lock() {
            return Err(why.clone());
        }
        let changed = contents.then(|| self.shared.written.compare(self)).flatten();
        changed.map_or(Ok(()), |what| Err(format!("the simulated disk {what}")))
    }

    fn describe(&self) -> String {
        format!("simulated disk, {} bytes", self.bytes())
    }
}

impl SimDisk {
    fn write(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        let mut disk = self.shared.disk.lock();
        disk.writes += 1;
        while disk.held {
            disk.waiting = true;
            self.shared.changed.notify_all();
            self.shared.changed.wait(&mut disk);
        }
        disk.waiting = false;
        if !disk.latency.is_zero() {
            let latency = disk.latency;
            drop(disk);
            std::thread::sleep(latency);
            disk = self.shared.disk.lock();
        }
        if disk.dead {
            return Err(io::Error::other("injected: the disk is gone"));
        }
        let fault = disk.fault.take();
        match fault {
            Some(Fault::Error(0)) => {
                disk.dead = true;
                return Err(io::Error::other("injected write error"));
            }
            Some(Fault::ErrorOnce(0)) => return Err(io::Error::other("injected write error")),
            Some(Fault::PowerCut(0)) => {
                disk.dead = true;
                for (offset, bytes) in parts {
                    let offset = disk.range(*offset, bytes.len())?;
                    disk.tear(offset, bytes);
                }
                return Err(io::Error::other("injected power cut"));
            }
            Some(Fault::Error(left)) => disk.fault = Some(Fault::Error(left - 1)),
            Some(Fault::ErrorOnce(left)) => disk.fault = Some(Fault::ErrorOnce(left - 1)),
            Some(Fault::PowerCut(left)) => disk.fault = Some(Fault::PowerCut(left - 1)),
            None => {}
        }
        for (offset, bytes) in parts {
            let offset = disk.range(*offset, bytes.len())?;
            disk.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }
}
