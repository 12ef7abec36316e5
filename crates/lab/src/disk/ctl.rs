//! Text control of an emulated disk: words on the command line or written to its `ctl` file, and
//! the counters as its `stats` file shows them.

use super::device::Device;
use super::faults::Fault;
use crate::clock;
use crate::error::{Error, Result};
use crate::limits::{LATENCY_MAX, SPIN};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What `ctl` shows when it is read.
pub const HELP: &str = "\
flush_us=N write_us=N read_us=N  latency of one flush, write, read (fractions allowed)
bw_mib=N                         bus bandwidth cap, MiB/s (0: none)
drain_mib=N                      a flush also costs its dirty bytes at N MiB/s (0: none)
keep_permille=N seed=N           chance that an un-flushed block outlives a cut
torn=0|1                         ... decided per 512-byte sector
ignore_flush=0|1                 flushes succeed and make nothing durable
spin_us=N                        busy-wait the last N us of each delay
profile=hdd|sata|plp|null        flush 10 ms | 1 ms | 0.05 ms (spun) | 0
fail=read|write|flush            such requests fail with EIO from now on; in addition, in any order:
  :once :times=N :after=N          ... one, or N of them; only after N of them
  :from=BYTE :to=BYTE              ... only in this range
  :full                            ... with ENOSPC
mend                             nothing fails any more
reset                            zero the counters
cut | on                         power cut | power on
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Flush(Duration),
    Write(Duration),
    Read(Duration),
    /// The part of each delay that is busy-waited.
    Spin(Duration),
    /// Bus bandwidth in bytes per second.
    Bus(u64),
    /// Drain rate of a flush in bytes per second.
    Drain(u64),
    /// Chance of survival in 1000ths.
    Keep(u64),
    /// Whether survival is decided by sector.
    Torn(bool),
    /// Flushes make nothing durable.
    IgnoreFlush(bool),
    Seed(u64),
    /// Requests fail.
    Fail(Fault),
    /// None do any more.
    Mend,
    Reset,
    Cut,
    On,
}

/// Reads control words; nothing is applied when one is wrong.
pub fn parse(text: &str) -> Result<Vec<Command>> {
    let mut out = Vec::new();
    for word in text.split_whitespace() {
        one(word, &mut out).map_err(|why| Error::Setting { word: word.to_owned(), why })?;
    }
    Ok(out)
}

fn one(word: &str, out: &mut Vec<Command>) -> std::result::Result<(), &'static str> {
    let (key, val) = word.split_once('=').unwrap_or((word, ""));
    let num = || val.parse::<u64>().map_err(|_| "not a whole number");
    let us = || {
        let us = val.parse::<f64>().map_err(|_| "not a number")?;
        let d = Duration::try_from_secs_f64(us / 1e6).map_err(|_| "not a duration")?;
        if d > LATENCY_MAX { Err("longer than a minute") } else { Ok(d) }
    };
    let mib = || num()?.checked_mul(1 << 20).ok_or("too large");
    let command = match key {
        "flush_us" => Command::Flush(us()?),
        "write_us" => Command::Write(us()?),
        "read_us" => Command::Read(us()?),
        "spin_us" => Command::Spin(us()?),
        "bw_mib" => Command::Bus(mib()?),
        "drain_mib" => Command::Drain(mib()?),
        "keep_permille" => match num()? {
            n @ 0..=1000 => Command::Keep(n),
            _ => return Err("above 1000"),
        },
        "torn" => Command::Torn(num()? != 0),
        "ignore_flush" => Command::IgnoreFlush(num()? != 0),
        "seed" => Command::Seed(num()?),
        "profile" => {
            let (flush, spin) = match val {
                "hdd" => (Duration::from_millis(10), Duration::ZERO),
                "sata" => (Duration::from_millis(1), Duration::ZERO),
                "plp" => (Duration::from_micros(50), SPIN),
                "null" => (Duration::ZERO, Duration::ZERO),
                _ => return Err("no such profile"),
            };
            out.push(Command::Spin(spin));
            Command::Flush(flush)
        }
        "fail" => Command::Fail(Fault::parse(val)?),
        "mend" => Command::Mend,
        "reset" => Command::Reset,
        "cut" => Command::Cut,
        "on" => Command::On,
        _ => return Err("not known"),
    };
    out.push(command);
    Ok(())
}

pub fn apply(device: &Device, commands: &[Command]) -> std::io::Result<()> {
    let s = &device.settings;
    for command in commands {
        match *command {
            Command::Flush(d) => s.flush_ns.store(clock::ns(d), Relaxed),
            Command::Write(d) => s.write_ns.store(clock::ns(d), Relaxed),
            Command::Read(d) => s.read_ns.store(clock::ns(d), Relaxed),
            Command::Spin(d) => s.spin_ns.store(clock::ns(d), Relaxed),
            Command::Bus(n) => s.bus_bytes_per_s.store(n, Relaxed),
            Command::Drain(n) => s.drain_bytes_per_s.store(n, Relaxed),
            Command::Keep(n) => s.keep_permille.store(n, Relaxed),
            Command::Torn(on) => s.torn.store(on, Relaxed),
            Command::IgnoreFlush(on) => s.ignore_flush.store(on, Relaxed),
            Command::Seed(n) => device.seed(n),
            Command::Fail(fault) => device.faults().add(fault),
            Command::Mend => device.faults().mend(),
            Command::Reset => device.counters.each().iter().for_each(|(_, c)| c.store(0, Relaxed)),
            Command::Cut => {
                device.power_cut()?;
            }
            Command::On => device.power_on(),
        }
    }
    Ok(())
}

/// The `stats` file: one `name value` a line.
pub fn stats(device: &Device) -> String {
    let mut text: String =
        device.counters.each().iter().map(|(name, c)| format!("{name} {}\n", c.load(Relaxed))).collect();
    text += &format!("dirty_blocks {}\nalive {}\n", device.dirty_blocks(), u8::from(device.alive()));
    text += &format!("flush_ns {}\n", device.settings.flush_ns.load(Relaxed));
    text
}

macro_rules! disk_stats {
    ($($(#[$doc:meta])* $counter:ident,)*) => {
        /// The `stats` file, read back. A difference of two is what happened in between.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct DiskStats {
            $($(#[$doc])* pub $counter: u64,)*
            /// Blocks that are not flushed now.
            pub dirty_blocks: u64,
        }

        impl DiskStats {
            /// Reads the text of a `stats` file; unknown lines are passed over.
            pub fn parse(text: &str) -> Self {
                let get = |name: &str| {
                    let mut lines = text.lines().filter_map(|l| l.split_once(' '));
                    lines.find(|(n, _)| *n == name).and_then(|(_, v)| v.parse().ok()).unwrap_or(0)
                };
                DiskStats {
                    $($counter: get(stringify!($counter)),)*
                    dirty_blocks: get("dirty_blocks"),
                }
            }

            pub fn since(&self, before: &DiskStats) -> DiskStats {
                DiskStats {
                    $($counter: self.$counter.saturating_sub(before.$counter),)*
                    dirty_blocks: self.dirty_blocks,
                }
            }
        }
    };
}

disk_stats! {
    reads,
    read_bytes,
    writes,
    write_bytes,
    /// Flushes that had something to make durable.
    flushes,
    /// Flushes that found nothing dirty, at no latency.
    empty_flushes,
    /// Time spent in flushes, in nanoseconds.
    flush_wall_ns,
    /// Blocks that cuts took away.
    lost_blocks,
    /// Un-flushed blocks that cuts left.
    kept_blocks,
    refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_with_fractions_and_profiles() {
        assert_eq!(parse("flush_us=0.5").unwrap(), [Command::Flush(Duration::from_nanos(500))]);
        let plp = [Command::Spin(SPIN), Command::Flush(Duration::from_micros(50))];
        assert_eq!(parse(" profile=plp ").unwrap(), plp);
        assert_eq!(parse("cut on").unwrap(), [Command::Cut, Command::On]);
    }

    #[test]
    fn wrong_words_are_named() {
        for bad in [
            "x",
            "flush_us",
            "flush_us=-1",
            "flush_us=1e99",
            "bw_mib=99999999999999999999",
            "keep_permille=1001",
            "fail=writes",
        ] {
            let e = parse(&format!("reset {bad}")).unwrap_err();
            assert!(e.to_string().contains(bad), "{e}");
        }
    }

    #[test]
    fn what_fails_is_refused_and_leaves_nothing() {
        let device = Device::new(super::super::medium::Medium::new(1 << 20, None).unwrap());
        let control = |words: &str| apply(&device, &parse(words).unwrap()).unwrap();
        device.write(0, &[1; 4096]).unwrap();
        control("fail=flush:once fail=write:from=4096:to=8192:full fail=read:after=1");
        assert_eq!(device.flush().unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(device.dirty_blocks(), 1, "nothing became durable");
        device.flush().unwrap();
        assert_eq!(device.write(0, &[2; 8192]).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        let mut read = [0; 4096];
        device.read(0, &mut read).unwrap();
        assert_eq!(read, [1; 4096]);
        device.read(0, &mut read).unwrap_err();
        assert_eq!(DiskStats::parse(&stats(&device)).refused, 3);
        control("mend");
        device.read(0, &mut read).unwrap();
        device.write(4096, &[2; 4096]).unwrap();
    }

    #[test]
    fn a_device_that_ignores_flushes_loses_what_it_said_was_safe() {
        let device = Device::new(super::super::medium::Medium::new(1 << 20, None).unwrap());
        let control = |words: &str| apply(&device, &parse(words).unwrap()).unwrap();
        let mut read = [0; 4096];
        for (words, kept) in [("ignore_flush=1", 0), ("ignore_flush=0", 7)] {
            control(words);
            device.write(0, &[7; 4096]).unwrap();
            device.flush().unwrap();
            control("cut on");
            device.read(0, &mut read).unwrap();
            assert_eq!(read, [kept; 4096], "{words}");
        }
    }

    #[test]
    fn stats_are_read_back() {
        let device = Device::new(super::super::medium::Medium::new(1 << 20, None).unwrap());
        device.write(4096, &[1; 8192]).unwrap();
        let before = DiskStats::parse(&stats(&device));
        assert_eq!((before.writes, before.write_bytes, before.dirty_blocks), (1, 8192, 2));
        device.flush().unwrap();
        let after = DiskStats::parse(&stats(&device));
        assert_eq!((after.since(&before).flushes, after.dirty_blocks), (1, 0));
    }
}
