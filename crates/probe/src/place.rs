//! Creates and removes the probe's own directory.

use crate::ask::{Ask, Calls};
use crate::burst::{Until, burst, is_later};
use crate::error::{Error, Result};
use crate::limits::{LATER_PATIENCE, LATER_PAUSE, NAMES_MAX, REMOVED_AT_ONCE};
use crate::{v3, v4};
use landfast_verify::Target;
use landfast_verify::blocking::nfs::Fh;
use landfast_verify::error::{Error as ServerError, Meaning};
use landfast_verify::url::Version;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Prefix of the names of such directories.
pub const PREFIX: &str = "landfast-probe-";

#[derive(Debug)]
pub struct Place {
    pub name: String,
    pub url: String,
    pub fh: Fh,
}

/// Connects with the version in the URL. Fails if there is no server, or if it refuses.
pub fn connect(target: &Target) -> Result<Box<dyn Calls>> {
    Ok(match target.version {
        Version::V3 => Box::new(v3::V3Calls::connect(target)?),
        Version::V4(minor) => Box::new(v4::V4Calls::connect(target, minor)?),
    })
}

impl Place {
    /// Creates the directory. Also reports the URLs of leftovers of other probes. Fails if the URL's directory is
    /// missing or not writable.
    pub fn make(
        calls: &mut dyn Calls,
        target: &Target,
        stop: &AtomicBool,
        waits: &dyn Fn(&str),
    ) -> Result<(Place, Vec<String>)> {
        let random = getrandom::u64().map_err(|e| Error::Unable(format!("no random numbers: {e}")))?;
        let name = format!("{PREFIX}{random:016x}");
        let (base, _) = calls.nfs().base()?;
        // Someone who may not list may still create.
        let names = calls.nfs().names(&base, NAMES_MAX).unwrap_or_default();
        let left = names.iter().filter(|n| n.starts_with(PREFIX)).map(|n| below(&target.text, n)).collect();
        let since = Instant::now();
        let made = loop {
            match calls.nfs().mkdir(&base, &name, 0o700) {
                Err(e) if is_later(&e) && since.elapsed() < LATER_PATIENCE => {
                    if stop.load(Ordering::Acquire) {
                        return Err(Error::Interrupted);
                    }
                    waits(&e.to_string());
                    std::thread::sleep(LATER_PAUSE);
                }
                made => break made,
            }
        };
        let made = made.map_err(|why| match why.is_gone() {
            true => Error::Server(why),
            false => {
                let uid = landfast_client::cred::Identity::of_process().uid;
                Error::Directory { url: target.text.clone(), uid, why }
            }
        })?;
        calls.set_dir(made.fh.clone());
        Ok((Place { url: below(&target.text, &name), name, fh: made.fh }, left))
    }

    /// Removes the directory with its content, over a new connection if the old one is not `usable`. Fails if
    /// something is left.
    pub fn remove(&self, calls: Box<dyn Calls>, usable: bool, target: &Target) -> Result<()> {
        let mut calls = calls;
        if usable && self.clear(&mut *calls).is_ok() {
            calls.nfs().leave();
            return Ok(());
        }
        drop(calls);
        let mut calls = connect(target)?;
        calls.set_dir(self.fh.clone());
        self.clear(&mut *calls)?;
        calls.nfs().leave();
        Ok(())
    }

    fn clear(&self, calls: &mut dyn Calls) -> Result<()> {
        // Removal ignores signals, because it cleans up and is short.
        let (never, time) = (AtomicBool::new(false), Instant::now() + LATER_PATIENCE);
        let lanes = calls.lanes();
        loop {
            let mut names = match calls.nfs().names(&self.fh, REMOVED_AT_ONCE) {
                Ok(names) => names,
                Err(e) if gone(&e) => break,
                Err(e) => return Err(e.into()),
            };
            if names.is_empty() {
                break;
            }
            let before = names.len();
            let mut next = |_| names.pop().map(Ask::Remove);
            match burst(calls, lanes, Until { time, stop: &never }, &mut next, &mut |_, _, _, _| {}) {
                Err(e) if gone(&e) => {}
                done => drop(done?),
            }
            if Instant::now() >= time {
                return Err(Error::Unable(format!("{before} files and more are left")));
            }
        }
        let (base, _) = calls.nfs().base()?;
        match landfast_verify::blocking::nfs::patiently(|| calls.nfs().remove(&base, &self.name, true)) {
            Err(e) if gone(&e) => Ok(()),
            done => Ok(done?),
        }
    }
}

/// It does not exist, so it need not be removed.
fn gone(e: &ServerError) -> bool {
    matches!(e.meaning(), Some(Meaning::NoEntry | Meaning::Stale))
}

fn below(url: &str, name: &str) -> String {
    let (place, query) = url.split_once('?').map_or((url, None), |(p, q)| (p, Some(q)));
    let place = format!("{}/{name}", place.trim_end_matches('/'));
    query.map_or(place.clone(), |q| format!("{place}?{q}"))
}

/// Measures the time for connecting. `None`: connecting fails.
pub fn connect_time(target: &Target, patience: Duration) -> Option<Duration> {
    let addresses = target.addresses(target.port).ok()?;
    addresses.iter().find_map(|addr| {
        let at = Instant::now();
        let made = std::net::TcpStream::connect_timeout(addr, patience);
        made.is_ok().then(|| at.elapsed())
    })
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn urls_of_what_is_below() {
        assert_eq!(below("nfs://h/", "x"), "nfs://h/x");
        assert_eq!(
            below("nfs://h:1/a/b?version=3&mountport=2", "x"),
            "nfs://h:1/a/b/x?version=3&mountport=2"
        );
    }
}
