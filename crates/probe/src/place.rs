//! Creates and removes the probe's own directory.

use crate::ask::{Ask, Calls};
use crate::burst::{Until, burst, is_later};
use crate::error::{Error, Result};
use crate::limits::{LATER_PATIENCE, LATER_PAUSE, NAMES_MAX, REMOVED_AT_ONCE};
use crate::progress::Progress;
use crate::{v3, v4};
use landfast_verify::Target;
use landfast_verify::blocking::nfs::{Fh, Nfs, patiently};
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
    /// missing or not writable; then nothing is left, or its URL has been reported.
    pub fn make(
        calls: &mut dyn Calls,
        target: &Target,
        stop: &AtomicBool,
        tell: &dyn Progress,
    ) -> Result<(Place, Vec<String>)> {
        let random = getrandom::u64().map_err(|e| Error::Unable(format!("no random numbers: {e}")))?;
        let name = format!("{PREFIX}{random:016x}");
        let url = below(&target.text, &name);
        let (base, _) = calls.nfs().base()?;
        // Someone who may not list may still create.
        let names = calls.nfs().names(&base, NAMES_MAX).unwrap_or_default();
        let left = names.iter().filter(|n| n.starts_with(PREFIX)).map(|n| below(&target.text, n)).collect();
        let waits = |why: &ServerError| tell.doing(&format!("waiting for the server: {why}"));
        let fh = make_dir(calls.nfs(), &base, &name, stop, &waits).map_err(|why| {
            // Its reply may be lost, or the server may have refused what came after it.
            let refused = matches!(&why, Error::Server(why) if why.meaning().is_some_and(|m| m != Meaning::Later));
            if let Err(e) = remove_if_there(target, &name, refused) {
                tell.notice(&format!(
                    "{url} may have been made and could not be removed ({e}); remove it with landfast rm -r '{url}'"
                ));
            }
            match why {
                Error::Server(why) if !why.is_gone() => {
                    let uid = landfast_client::cred::Identity::of_process().uid;
                    Error::Directory { url: target.text.clone(), uid, why }
                }
                why => why,
            }
        })?;
        calls.set_dir(fh.clone());
        Ok((Place { url, name, fh }, left))
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
        match patiently(|| calls.nfs().remove(&base, &self.name, true)) {
            Err(e) if gone(&e) => Ok(()),
            done => Ok(done?),
        }
    }
}

/// Makes the directory, while the server says "later", too. `waits` is told why.
fn make_dir(
    nfs: &mut dyn Nfs,
    base: &Fh,
    name: &str,
    stop: &AtomicBool,
    waits: &dyn Fn(&ServerError),
) -> Result<Fh> {
    let since = Instant::now();
    let mut again = false;
    loop {
        match nfs.mkdir(base, name, 0o700) {
            Err(e) if is_later(&e) && since.elapsed() < LATER_PATIENCE => {
                if stop.load(Ordering::Acquire) {
                    return Err(Error::Interrupted);
                }
                waits(&e);
                std::thread::sleep(LATER_PAUSE);
                again = true;
            }
            // The call before made it: in version 4 what came after it in the COMPOUND was to come later.
            Err(e) if again && e.meaning() == Some(Meaning::Exists) => {
                return Ok(patiently(|| nfs.lookup(base, name))?.0);
            }
            made => return Ok(made?.fh),
        }
    }
}

/// Removes the directory if it was made, over a new connection. `refused`: the server refused to make it, so it is
/// there only if it can be seen. Fails if it may be left.
fn remove_if_there(target: &Target, name: &str, refused: bool) -> Result<()> {
    let find = |calls: &mut dyn Calls| -> std::result::Result<Fh, ServerError> {
        let (base, _) = calls.nfs().base()?;
        patiently(|| calls.nfs().lookup(&base, name))?;
        Ok(base)
    };
    let found = connect(target).and_then(|mut calls| Ok((find(&mut *calls)?, calls)));
    let (base, mut calls) = match found {
        Ok(found) => found,
        Err(Error::Server(e)) if gone(&e) => return Ok(()),
        Err(_) if refused => return Ok(()),
        Err(e) => return Err(e),
    };
    match patiently(|| calls.nfs().remove(&base, name, true)) {
        Err(e) if gone(&e) => {}
        done => done?,
    }
    calls.nfs().leave();
    Ok(())
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
    use super::*;
    use landfast_verify::blocking::nfs::{Attr, Created, Creation, SetAttr, Written};
    use landfast_verify::error::Result as ServerResult;
    use landfast_verify::judge::FileKind;
    use landfast_verify::plan::Abilities;

    fn refused(meaning: Meaning) -> ServerError {
        ServerError::Refused { op: "CREATE".into(), status: "status".into(), meaning, code: None }
    }

    /// A server that makes a directory and answers that what came after it is to come later.
    #[derive(Default)]
    struct MadeLater {
        made: Option<String>,
    }

    impl Nfs for MadeLater {
        fn mkdir(&mut self, _: &Fh, name: &str, _: u32) -> ServerResult<Created> {
            match self.made.replace(name.to_owned()) {
                None => Err(refused(Meaning::Later)),
                Some(_) => Err(refused(Meaning::Exists)),
            }
        }
        fn lookup(&mut self, _: &Fh, name: &str) -> ServerResult<(Fh, Attr)> {
            assert_eq!(self.made.as_deref(), Some(name));
            let attr = Attr { kind: FileKind::Dir, mode: 0o700, size: 0, fileid: 1, mtime: (0, 0) };
            Ok((vec![7], attr))
        }
        fn base(&mut self) -> ServerResult<(Fh, Attr)> {
            unreachable!()
        }
        fn getattr(&mut self, _: &Fh) -> ServerResult<Attr> {
            unreachable!()
        }
        fn create(&mut self, _: &Fh, _: &str, _: u32, _: Creation) -> ServerResult<Created> {
            unreachable!()
        }
        fn symlink(&mut self, _: &Fh, _: &str, _: &str) -> ServerResult<Created> {
            unreachable!()
        }
        fn write(&mut self, _: &Fh, _: u64, _: Vec<u8>, _: bool) -> ServerResult<Written> {
            unreachable!()
        }
        fn commit(&mut self, _: &Fh) -> ServerResult<[u8; 8]> {
            unreachable!()
        }
        fn set(&mut self, _: &Fh, _: SetAttr) -> ServerResult<()> {
            unreachable!()
        }
        fn link(&mut self, _: &Fh, _: &Fh, _: &str) -> ServerResult<()> {
            unreachable!()
        }
        fn rename(&mut self, _: &Fh, _: &str, _: &Fh, _: &str) -> ServerResult<()> {
            unreachable!()
        }
        fn remove(&mut self, _: &Fh, _: &str, _: bool) -> ServerResult<()> {
            unreachable!()
        }
        fn names(&mut self, _: &Fh, _: usize) -> ServerResult<Vec<String>> {
            unreachable!()
        }
        fn read(&mut self, _: &Fh, _: u64, _: u32) -> ServerResult<(Vec<u8>, bool)> {
            unreachable!()
        }
        fn readlink(&mut self, _: &Fh) -> ServerResult<String> {
            unreachable!()
        }
        fn set_xattr(&mut self, _: &Fh, _: &str, _: Option<Vec<u8>>) -> ServerResult<()> {
            unreachable!()
        }
        fn new_xattr(&mut self, _: &Fh, _: &str, _: Vec<u8>) -> ServerResult<()> {
            unreachable!()
        }
        fn allocate(&mut self, _: &Fh, _: u64) -> ServerResult<()> {
            unreachable!()
        }
        fn close_all(&mut self) -> ServerResult<()> {
            unreachable!()
        }
        fn xattr(&mut self, _: &Fh, _: &str) -> ServerResult<Option<Vec<u8>>> {
            unreachable!()
        }
        fn abilities(&mut self) -> ServerResult<Abilities> {
            unreachable!()
        }
        fn leave(&mut self) {}
    }

    #[test]
    fn a_directory_whose_attributes_come_later_is_there_the_next_time() {
        let stop = AtomicBool::new(false);
        let fh = make_dir(&mut MadeLater::default(), &vec![1], "new", &stop, &|_| {}).expect("a directory");
        assert_eq!(fh, [7]);
        // But what was there before is somebody else's.
        let mut other = MadeLater { made: Some("new".into()) };
        let made = make_dir(&mut other, &vec![1], "new", &stop, &|_| {});
        assert!(matches!(&made, Err(Error::Server(e)) if e.meaning() == Some(Meaning::Exists)), "{made:?}");
    }

    #[test]
    fn urls_of_what_is_below() {
        assert_eq!(below("nfs://h/", "x"), "nfs://h/x");
        assert_eq!(
            below("nfs://h:1/a/b?version=3&mountport=2", "x"),
            "nfs://h:1/a/b/x?version=3&mountport=2"
        );
    }
}
