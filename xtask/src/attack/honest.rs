//! The honest client during an attack: it makes one request after another and measures their times.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::nfs::{LIKE_LINUX, OK, Ops, Session, v3};
use super::target::{HONEST, SHARED};
use super::wire::{Link, ROOT};

const HOME: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Pause between two requests of one kind, because it is a client and not a load.
const PAUSE: Duration = Duration::from_millis(2);

/// Pause between two new connections.
const NEWCOMER_PAUSE: Duration = Duration::from_millis(50);

/// The kinds of requests, each on its own connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// GETATTR in a session.
    Getattr,
    /// READ of 64 KiB, NFSv3.
    Read,
    /// WRITE FILE_SYNC of 4 KiB, NFSv3.
    Write,
    /// WRITE UNSTABLE of 256 KiB and COMMIT, NFSv3.
    Commit,
    /// A new connection from another address with a session like Linux's, then its end.
    Newcomer,
    /// `/metrics`, read like Prometheus does.
    Metrics,
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::Getattr, Kind::Read, Kind::Write, Kind::Commit, Kind::Newcomer, Kind::Metrics];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Getattr => "GETATTR",
            Kind::Read => "READ",
            Kind::Write => "WRITE",
            Kind::Commit => "COMMIT",
            Kind::Newcomer => "newcomer",
            Kind::Metrics => "/metrics",
        }
    }
}

/// The times and failures of its requests.
#[derive(Clone, Debug, Default)]
pub struct Felt {
    pub times: Vec<Duration>,
    pub failures: Vec<String>,
}

impl Felt {
    /// The quantile of the times; `part` is between 0 and 1.
    pub fn quantile(&self, part: f64) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        let at = ((times.len() as f64 * part).ceil() as usize).saturating_sub(1).min(last);
        times.get(at).copied().unwrap_or_default()
    }
}

/// Works until `stop`. Returns the results for each kind of request.
pub fn work(nfs: SocketAddr, metrics: SocketAddr, stop: &AtomicBool) -> Vec<(Kind, Felt)> {
    std::thread::scope(|scope| {
        let threads = Kind::ALL.map(|kind| scope.spawn(move || (kind, one_kind(kind, nfs, metrics, stop))));
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

fn one_kind(kind: Kind, nfs: SocketAddr, metrics: SocketAddr, stop: &AtomicBool) -> Felt {
    let mut felt = Felt::default();
    // A connection closed by the server is opened again, as every client does. The first failure stays recorded.
    while !stop.load(Ordering::Acquire) {
        if let Err(why) = requests(kind, nfs, metrics, stop, &mut felt) {
            felt.failures.push(why);
            std::thread::sleep(NEWCOMER_PAUSE);
        }
    }
    felt
}

fn requests(
    kind: Kind,
    nfs: SocketAddr,
    metrics: SocketAddr,
    stop: &AtomicBool,
    felt: &mut Felt,
) -> Result<(), String> {
    let connect = || Link::open(HOME, nfs).map_err(|e| format!("a connection: {e}"));
    let mut timed = |pause: Duration, ask: &mut dyn FnMut() -> Result<u32, String>| {
        while !stop.load(Ordering::Acquire) {
            let begin = Instant::now();
            let status = ask()?;
            felt.times.push(begin.elapsed());
            if status != OK {
                return Err(format!("status {status}"));
            }
            std::thread::sleep(pause);
        }
        Ok(())
    };
    match kind {
        Kind::Getattr => {
            let mut session = Session::create(connect()?, ROOT, b"honest", LIKE_LINUX)?;
            let file = session.handle(&["x", SHARED])?;
            let ops = Ops::default().put(&file).get_size();
            timed(PAUSE, &mut || Ok(session.status_as(ROOT, &ops)?.0))
        }
        Kind::Read => {
            let mut link = connect()?;
            let file = file(&mut link, SHARED)?;
            timed(PAUSE, &mut || v3::read(&mut link, ROOT, &file, 64 << 10))
        }
        Kind::Write => {
            let mut link = connect()?;
            let file = file(&mut link, HONEST)?;
            timed(PAUSE, &mut || v3::write(&mut link, ROOT, &file, 2, &[7; 4096]))
        }
        Kind::Commit => {
            let mut link = connect()?;
            let file = file(&mut link, HONEST)?;
            let data = vec![8; 256 << 10];
            timed(PAUSE, &mut || {
                v3::write(&mut link, ROOT, &file, 0, &data)?;
                v3::commit(&mut link, ROOT, &file)
            })
        }
        Kind::Newcomer => {
            let mut number = 0u32;
            timed(NEWCOMER_PAUSE, &mut || {
                number += 1;
                let from = Ipv4Addr::new(127, 1, 200, (number % 200 + 1) as u8);
                let link = Link::open(from, nfs).map_err(|e| format!("a connection: {e}"))?;
                let owner = format!("newcomer {number}");
                Session::create(link, ROOT, owner.as_bytes(), LIKE_LINUX)?.destroy()?;
                Ok(OK)
            })
        }
        Kind::Metrics => timed(NEWCOMER_PAUSE, &mut || {
            read_metrics(metrics)?;
            Ok(OK)
        }),
    }
}

fn file(link: &mut Link, name: &str) -> Result<Vec<u8>, String> {
    let root = v3::mount(link, ROOT, "/x")?;
    v3::lookup(link, ROOT, &root, name)
}

fn read_metrics(at: SocketAddr) -> Result<String, String> {
    use std::io::{Read, Write};
    let link = Link::open(HOME, at).map_err(|e| format!("/metrics: {e}"))?;
    let mut stream = link.stream;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .map_err(|e| format!("/metrics: {e}"))?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(|e| format!("/metrics: {e}"))?;
    if text.starts_with("HTTP/1.1 200") { Ok(text) } else { Err("/metrics: refused".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_definition() {
        let times = (1..=200).map(Duration::from_millis).collect();
        let felt = Felt { times, failures: Vec::new() };
        assert_eq!(felt.quantile(0.99), Duration::from_millis(198));
        assert_eq!(felt.quantile(1.0), Duration::from_millis(200));
        assert_eq!(Felt::default().quantile(0.99), Duration::ZERO);
    }
}
