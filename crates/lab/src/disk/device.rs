//! The emulated device: a [`Medium`] with latencies, counters and a power switch.
//!
//! Invariants:
//! - Nothing touches the medium while power is cut: data moves under the shared side of `power`,
//!   a cut takes the exclusive side.
//! - A write or flush that began before a cut and ends after it fails, even if power is on again
//!   (`epoch`): what it carried was not made safe.
//! - One flush at a time, as on one device with one cache.

use super::faults::{Faults, Request};
use super::medium::{Loss, Marked, Medium};
use crate::clock::{now_ns, sleep_until};
use landfast_verify::rng::Rng;
use parking_lot::{Mutex, RwLock};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Settings that may change while the device runs.
#[derive(Debug, Default)]
pub struct Settings {
    /// Latency of one flush that has something to make durable, in nanoseconds.
    pub flush_ns: AtomicU64,
    /// Latency of one write, in nanoseconds.
    pub write_ns: AtomicU64,
    /// Latency of one read, in nanoseconds.
    pub read_ns: AtomicU64,
    /// Bytes per second over the bus, shared by all requests; 0: no cap.
    pub bus_bytes_per_s: AtomicU64,
    /// Bytes per second at which a flush drains dirty blocks; 0: at no cost.
    pub drain_bytes_per_s: AtomicU64,
    /// On a cut, each un-flushed block or sector survives with this chance, in 1000ths.
    pub keep_permille: AtomicU64,
    /// On a cut, decide for each 512-byte sector instead of each 4 KiB block.
    pub torn: AtomicBool,
    /// Flushes succeed and make nothing durable, as some devices do it.
    pub ignore_flush: AtomicBool,
    /// Busy-wait for the last so many nanoseconds of each delay.
    pub spin_ns: AtomicU64,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $counter:ident,)*) => {
        /// Counters since the start or the last reset.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $counter: AtomicU64,)*
        }

        impl Counters {
            /// Every counter with its name, in the order of the `stats` file.
            pub fn each(&self) -> Vec<(&'static str, &AtomicU64)> {
                vec![$((stringify!($counter), &self.$counter),)*]
            }
        }
    };
}

counters! {
    reads,
    read_bytes,
    writes,
    write_bytes,
    /// Flushes that had something to make durable.
    flushes,
    /// Flushes that found nothing dirty: a cache with nothing in it answers at once, behind a flush that is running.
    empty_flushes,
    /// Time from arrival to end of all flushes, in nanoseconds.
    flush_wall_ns,
    /// Blocks that flushes made durable.
    flushed_blocks,
    cuts,
    /// Blocks that cuts took away, wholly or in part.
    lost_blocks,
    /// Un-flushed blocks that cuts left.
    kept_blocks,
    /// Requests refused: no power, out of range, or a fault.
    refused,
}

pub struct Device {
    pub settings: Settings,
    pub counters: Counters,
    medium: Medium,
    rng: Mutex<Rng>,
    /// What fails though there is power.
    faults: Mutex<Faults>,
    /// The turn to flush, with the list that the running flush works on.
    flushing: Mutex<Marked>,
    power: RwLock<()>,
    alive: AtomicBool,
    epoch: AtomicU64,
    bus_free_at_ns: AtomicU64,
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

/// Nanoseconds that `bytes` take at `rate` bytes per second; none when there is no rate.
fn transfer_ns(bytes: u64, rate: u64) -> u64 {
    if rate == 0 { 0 } else { (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64 }
}

impl Device {
    pub fn new(medium: Medium) -> Self {
        Device {
            settings: Settings::default(),
            counters: Counters::default(),
            flushing: Mutex::new(medium.marked()),
            medium,
            rng: Mutex::new(Rng::new(0)),
            faults: Mutex::default(),
            power: RwLock::new(()),
            alive: AtomicBool::new(true),
            epoch: AtomicU64::new(0),
            bus_free_at_ns: AtomicU64::new(0),
        }
    }

    pub fn size(&self) -> u64 {
        self.medium.size()
    }

    /// Waits out one request's service time: its turn on the bus, then its latency.
    fn wait(&self, start_ns: u64, bytes: usize, latency_ns: u64) {
        let cost_ns = transfer_ns(bytes as u64, self.settings.bus_bytes_per_s.load(Ordering::Relaxed));
        let mut due_ns = start_ns;
        if cost_ns > 0 {
            let free_at = |at: u64| at.max(start_ns).saturating_add(cost_ns);
            let before = self
                .bus_free_at_ns
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |at| Some(free_at(at)))
                .unwrap_or(start_ns);
            due_ns = free_at(before);
        }
        due_ns = due_ns.saturating_add(latency_ns);
        if due_ns > start_ns {
            sleep_until(due_ns, self.settings.spin_ns.load(Ordering::Relaxed));
        }
    }

    /// The faults, to add to or to mend.
    pub fn faults(&self) -> parking_lot::MutexGuard<'_, Faults> {
        self.faults.lock()
    }

    /// A fault's error, if one strikes this request.
    fn struck(&self, request: Request, off: u64, len: usize) -> io::Result<()> {
        match self.faults.lock().strike(request, off, len as u64) {
            Some(error) => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
            None => Ok(()),
        }
    }

    fn refused<T>(&self) -> io::Result<T> {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        Err(eio())
    }

    /// Whether what began in `epoch` may still take effect.
    fn powered_since(&self, epoch: u64) -> bool {
        self.alive.load(Ordering::Acquire) && self.epoch.load(Ordering::Acquire) == epoch
    }

    /// Reads into `buf`; a read across the end is cut short. Returns the bytes read.
    /// Errors: EIO without power; a fault's error.
    pub fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        let start_ns = now_ns();
        let len = buf.len().min(usize::try_from(self.size().saturating_sub(off)).unwrap_or(usize::MAX));
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        self.wait(start_ns, len, self.settings.read_ns.load(Ordering::Relaxed));
        self.struck(Request::Read, off, len)?;
        let _on = self.power.read();
        if !self.alive.load(Ordering::Acquire) {
            return self.refused();
        }
        self.medium.read(off, &mut buf[..len])?;
        Ok(len)
    }

    /// Writes into the volatile cache.
    /// Errors: EIO without power, or when the range is not on the disk; a fault's error.
    pub fn write(&self, off: u64, data: &[u8]) -> io::Result<()> {
        let start_ns = now_ns();
        let epoch = self.epoch.load(Ordering::Acquire);
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.write_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.wait(start_ns, data.len(), self.settings.write_ns.load(Ordering::Relaxed));
        self.struck(Request::Write, off, data.len())?;
        let _on = self.power.read();
        if !self.powered_since(epoch) || self.medium.write(off, data).is_err() {
            return self.refused();
        }
        Ok(())
    }

    /// Makes durable what was written before this call.
    /// Errors: EIO when power was cut before the flush was through; all that it carried is as if it had never been
    /// called. A fault's error.
    pub fn flush(&self) -> io::Result<()> {
        let start_ns = now_ns();
        let epoch = self.epoch.load(Ordering::Acquire);
        let mut marked = self.flushing.lock();
        self.medium.mark(&mut marked);
        let drain = self.settings.drain_bytes_per_s.load(Ordering::Relaxed);
        let drain_ns = transfer_ns(marked.blocks() * crate::limits::BLOCK_BYTES as u64, drain);
        let empty = marked.blocks() == 0;
        if !empty {
            self.wait(now_ns(), 0, self.settings.flush_ns.load(Ordering::Relaxed).saturating_add(drain_ns));
        }
        self.struck(Request::Flush, 0, 0)?;
        let _on = self.power.read();
        if !self.powered_since(epoch) {
            return self.refused();
        }
        let c = &self.counters;
        let counter = if empty { &c.empty_flushes } else { &c.flushes };
        counter.fetch_add(1, Ordering::Relaxed);
        if self.settings.ignore_flush.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.medium.commit(&marked)?;
        c.flushed_blocks.fetch_add(marked.blocks(), Ordering::Relaxed);
        c.flush_wall_ns.fetch_add(now_ns().saturating_sub(start_ns), Ordering::Relaxed);
        Ok(())
    }

    /// Cuts the power: un-flushed data goes, and every request fails until [`Device::power_on`].
    pub fn power_cut(&self) -> io::Result<Loss> {
        self.alive.store(false, Ordering::Release);
        let _off = self.power.write();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        let keep = self.settings.keep_permille.load(Ordering::Relaxed);
        let torn = self.settings.torn.load(Ordering::Relaxed);
        let mut rng = self.rng.lock();
        let loss = self.medium.cut(torn, || rng.chance(keep))?;
        self.counters.cuts.fetch_add(1, Ordering::Relaxed);
        self.counters.lost_blocks.fetch_add(loss.lost_blocks, Ordering::Relaxed);
        self.counters.kept_blocks.fetch_add(loss.kept_blocks, Ordering::Relaxed);
        Ok(loss)
    }

    pub fn power_on(&self) {
        let _off = self.power.write();
        self.alive.store(true, Ordering::Release);
    }

    pub fn seed(&self, seed: u64) {
        *self.rng.lock() = Rng::new(seed);
    }

    pub fn alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    pub fn dirty_blocks(&self) -> u64 {
        self.medium.dirty_blocks()
    }

    /// Touches all memory now.
    pub fn prefault(&self) {
        self.medium.prefault();
    }
}
