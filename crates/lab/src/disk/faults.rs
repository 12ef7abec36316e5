//! What an emulated disk does not do, though it has power: requests that fail, by kind, place and number.
//!
//! A write that fails leaves nothing behind, a flush that fails makes nothing durable. Pure: whether a request fails is
//! decided by what was asked for and by the requests so far.

use std::io;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    Read,
    Write,
    /// Flushes, which have no place.
    Flush,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub request: Request,
    /// So many of them pass before.
    pub after: u64,
    /// So many fail; `u64::MAX`: all.
    pub times: u64,
    /// First byte of the range that fails.
    pub from: u64,
    /// Byte after the range that fails.
    pub to: u64,
    /// ENOSPC instead of EIO, as a thinly provisioned device says it.
    pub full: bool,
}

impl Fault {
    /// Reads the word after `fail=`: `write`, `read` or `flush`, then any of `:once`, `:times=N`, `:after=N`, `:from=BYTE`,
    /// `:to=BYTE`, `:full`.
    pub fn parse(text: &str) -> Result<Fault, &'static str> {
        let mut words = text.split(':');
        let request = match words.next() {
            Some("read") => Request::Read,
            Some("write") => Request::Write,
            Some("flush") => Request::Flush,
            _ => return Err("not read, write or flush"),
        };
        let mut fault = Fault { request, after: 0, times: u64::MAX, from: 0, to: u64::MAX, full: false };
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<u64>().map_err(|_| "not a whole number");
            match key {
                "once" => fault.times = 1,
                "times" => fault.times = number()?,
                "after" => fault.after = number()?,
                "from" => fault.from = number()?,
                "to" => fault.to = number()?,
                "full" => fault.full = true,
                _ => return Err("not once, times, after, from, to or full"),
            }
        }
        Ok(fault)
    }

    /// Whether the request of `len` bytes at `off` fails; counts it.
    fn strikes(&mut self, request: Request, off: u64, len: u64) -> bool {
        let placed = request == Request::Flush || (off < self.to && off.saturating_add(len) > self.from);
        if request != self.request || !placed {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        let fails = self.times > 0;
        if self.times != u64::MAX {
            self.times = self.times.saturating_sub(1);
        }
        fails
    }
}

#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    pub fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub fn mend(&mut self) {
        self.0.clear();
    }

    /// Counts a request, and says how it fails if it does.
    pub fn strike(&mut self, request: Request, off: u64, len: u64) -> Option<io::Error> {
        let mut struck = None;
        for fault in &mut self.0 {
            if fault.strikes(request, off, len) && struck.is_none() {
                struck = Some(if fault.full { libc::ENOSPC } else { libc::EIO });
            }
        }
        struck.map(io::Error::from_raw_os_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fail_by_kind_place_and_number() {
        let mut faults = Faults::default();
        faults.add(Fault::parse("write:after=1:times=2:from=4096:to=8192").unwrap());
        let mut write = |off, len| faults.strike(Request::Write, off, len).is_some();
        assert!(!write(0, 4096), "beside it");
        assert!(!write(8192, 4096), "beside it");
        assert!(!write(4096, 512), "the first passes");
        assert!(write(8191, 1));
        assert!(write(0, 1 << 20));
        assert!(!write(4096, 512), "two times");
        assert!(faults.strike(Request::Flush, 0, 0).is_none());
        faults.add(Fault::parse("flush:full").unwrap());
        for _ in 0..3 {
            let error = faults.strike(Request::Flush, 0, 0).expect("for ever");
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        }
        faults.mend();
        assert!(faults.strike(Request::Flush, 0, 0).is_none());
    }

    #[test]
    fn words_that_are_none() {
        for bad in ["", "writes", "write:", "write:once:often", "read:after=x", "flush:from"] {
            assert!(Fault::parse(bad).is_err(), "{bad}");
        }
        let once = Fault::parse("read:once:to=8192").unwrap();
        assert_eq!((once.request, once.times, once.to), (Request::Read, 1, 8192));
    }
}
