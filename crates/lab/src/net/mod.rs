//! An emulated network link: a TCP relay that delivers each byte a fixed time after it came.
//!
//! Four threads serve a connection: a reader and a writer for each direction. The reader stamps
//! what it reads with the time at which it is due; the writer waits until then, precisely
//! ([`crate::clock::sleep_until`]), and passes it on. Order is kept; each direction holds a bounded
//! number of bytes, and holds its sender back beyond that, as a real link does.
//!
//! A link may have a bandwidth ([`Link::set_bandwidth`]), which all its connections share in each direction; and the server behind it
//! may be made slower by so much for each call ([`Link::set_server_work`]).
//!
//! The relay's own work would make the link longer than was asked for. So a link measures itself
//! against an echo at its start and takes the excess off its delay; [`Link::measure`] tells the
//! round trip as it really is, and every report carries that figure.

mod pipe;

use crate::clock;
use crate::error::{Context, Result};
use crate::limits::{LINK_CHECK_ROUNDS, SPIN};
use parking_lot::{Condvar, Mutex};
use pipe::Pipe;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A NULL call with its record mark (RFC 5531 section 9): it does nothing at a server.
const NULL_CALL_BYTES: usize = 4 + 40;

struct Shared {
    target: Mutex<SocketAddr>,
    one_way_ns: AtomicU64,
    /// Bytes a second in each direction; 0: as many as come.
    bytes_per_s: AtomicU64,
    /// When each direction has passed on all that came: from the client, from the server.
    free_ns: [Mutex<u64>; 2],
    /// What the server needs longer for each call.
    work_ns: AtomicU64,
    stopped: AtomicBool,
    /// Nothing passes.
    is_cut: Mutex<bool>,
    healed: Condvar,
    bytes: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
    /// Connections on which something may still be on its way to the server.
    sending: Mutex<usize>,
    delivered: Condvar,
}

impl Shared {
    /// When `bytes` are due that come now.
    fn due_ns(&self, up: bool, bytes: usize) -> u64 {
        let now_ns = clock::now_ns();
        let rate = self.bytes_per_s.load(Ordering::Relaxed);
        let sent_ns = match (bytes as u64).saturating_mul(1_000_000_000).checked_div(rate) {
            None => now_ns,
            Some(takes_ns) => {
                let mut free_ns = self.free_ns[usize::from(!up)].lock();
                *free_ns = now_ns.max(*free_ns).saturating_add(takes_ns);
                *free_ns
            }
        };
        let works = up && bytes > NULL_CALL_BYTES;
        let work_ns = if works { self.work_ns.load(Ordering::Relaxed) } else { 0 };
        sent_ns.saturating_add(self.one_way_ns.load(Ordering::Relaxed)).saturating_add(work_ns)
    }

    /// Waits while nothing passes.
    fn pass(&self) {
        let mut is_cut = self.is_cut.lock();
        while *is_cut && !self.stopped.load(Ordering::Acquire) {
            self.healed.wait(&mut is_cut);
        }
    }

    /// Breaks every connection and forgets it.
    fn sever(&self) {
        for s in self.streams.lock().drain(..) {
            // The peer may have closed it already.
            let _ = s.shutdown(Shutdown::Both);
        }
    }
}

/// An emulated link to one server. Dropping it breaks its connections.
pub struct Link {
    addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<std::thread::JoinHandle<()>>,
}

impl Link {
    /// Starts a link to `target` whose round trip takes `rtt` (or as long as the relay needs, when
    /// that is longer), calibrated against an echo.
    pub fn start(target: SocketAddr, rtt: Duration) -> Result<Self> {
        let mut link = Self::start_raw(target, rtt)?;
        if !rtt.is_zero() {
            link.calibrate(rtt)?;
        }
        Ok(link)
    }

    /// A link that is not calibrated: its round trip is longer than `rtt` by what the relay needs.
    pub(crate) fn start_raw(target: SocketAddr, rtt: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(|| "open a local port".into())?;
        let addr = listener.local_addr().context(|| "local port".into())?;
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            one_way_ns: AtomicU64::new(clock::ns(rtt) / 2),
            bytes_per_s: AtomicU64::new(0),
            free_ns: Default::default(),
            work_ns: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            is_cut: Mutex::new(false),
            healed: Condvar::new(),
            bytes: AtomicU64::new(0),
            streams: Mutex::new(Vec::new()),
            sending: Mutex::new(0),
            delivered: Condvar::new(),
        });
        let accepting = shared.clone();
        let accept = move || {
            for stream in listener.incoming() {
                if accepting.stopped.load(Ordering::Acquire) {
                    return;
                }
                // A client that went again, or a server that is down: the client sees its
                // connection close, as over a real network.
                if let Err(e) = stream.and_then(|s| serve(s, &accepting)) {
                    tracing::debug!("emulated link: {e}");
                }
            }
        };
        let acceptor = std::thread::Builder::new()
            .name("link".into())
            .spawn(accept)
            .context(|| "start a thread".to_owned())?;
        Ok(Link { addr, shared, acceptor: Some(acceptor) })
    }

    /// Takes what the relay itself costs off the delay.
    fn calibrate(&mut self, rtt: Duration) -> Result<()> {
        let wanted_ns = clock::ns(rtt);
        for _ in 0..2 {
            // The quick ones among the probes: what slowed the others was not the relay.
            let times = self.probe()?;
            let excess_ns = clock::ns(times[times.len() / 10]).saturating_sub(wanted_ns);
            let ns = self.shared.one_way_ns.load(Ordering::Relaxed);
            let delay_ns = ns.saturating_sub(excess_ns / 2).max(wanted_ns / 4);
            self.shared.one_way_ns.store(delay_ns, Ordering::Relaxed);
        }
        Ok(())
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Bytes that come from now on need half of this in each direction; not calibrated.
    pub fn set_round_trip(&self, rtt: Duration) {
        self.shared.one_way_ns.store(clock::ns(rtt) / 2, Ordering::Relaxed);
    }

    /// Waits until all clients have closed their connections, or these are broken, and what they had sent has reached the server. `false`: it has
    /// not after `patience`.
    pub fn wait_delivered(&self, patience: Duration) -> bool {
        let mut sending = self.shared.sending.lock();
        !self.shared.delivered.wait_while_for(&mut sending, |n| *n > 0, patience).timed_out()
    }

    /// New connections go to another server from now on.
    pub fn retarget(&self, target: SocketAddr) {
        *self.shared.target.lock() = target;
    }

    /// Each direction passes on so many bytes a second, whatever comes over how many connections; 0: as many as come.
    pub fn set_bandwidth(&self, bytes_per_s: u64) {
        self.shared.bytes_per_s.store(bytes_per_s, Ordering::Relaxed);
    }

    /// Each call but NULL is held up for so long before the server has it, as if the server needed so much longer for it and had a
    /// processor for each. For clients that wait for each answer before they send the next call.
    pub fn set_server_work(&self, work: Duration) {
        self.shared.work_ns.store(clock::ns(work), Ordering::Relaxed);
    }

    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Breaks all connections, as a network failure would; new ones are served.
    pub fn sever(&self) {
        self.shared.sever();
    }

    /// From now on nothing passes, and nobody is told: as when a cable is pulled. Connections stay, and new ones are taken.
    pub fn cut(&self) {
        *self.shared.is_cut.lock() = true;
    }

    /// After [`Link::cut`]: all passes again, also what was sent meanwhile on connections that are still there.
    pub fn heal(&self) {
        *self.shared.is_cut.lock() = false;
        self.shared.healed.notify_all();
    }

    /// The median round trip of one byte to an echo over a link with this delay.
    pub fn measure(&self) -> Result<Duration> {
        self.probe().map(|times| times[times.len() / 2])
    }

    /// Round trips of one byte to an echo over a link with this delay, the quickest first.
    fn probe(&self) -> Result<Vec<Duration>> {
        let one_way = Duration::from_nanos(self.shared.one_way_ns.load(Ordering::Relaxed));
        let echo = Echo::start()?;
        let probe = Link::start_raw(echo.addr, one_way * 2)?;
        round_trips(probe.addr)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.heal();
        self.shared.sever();
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect(self.addr);
        if let Some(thread) = self.acceptor.take() {
            let _ = thread.join();
        }
        // What the acceptor was about to serve.
        self.shared.sever();
    }
}

/// A connection on which something may be on its way to the server.
struct Sending(Arc<Shared>);

impl Sending {
    fn new(shared: &Arc<Shared>) -> Sending {
        *shared.sending.lock() += 1;
        Sending(shared.clone())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        *self.0.sending.lock() -= 1;
        self.0.delivered.notify_all();
    }
}

/// Connects on to the target and starts the four threads.
fn serve(client: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    // The first direction is the one to the server.
    let mut sending = Some(Sending::new(shared));
    let target = *shared.target.lock();
    let server = TcpStream::connect(target)?;
    // Known before the first byte passes: whoever has seen that byte can sever the link.
    shared.streams.lock().extend([client.try_clone()?, server.try_clone()?]);
    for (from, to, up) in [(&client, &server, true), (&server, &client, false)] {
        from.set_nodelay(true)?;
        let pipe = Arc::new(Pipe::default());
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        let (input, output) = (pipe.clone(), pipe);
        let reading = shared.clone();
        std::thread::Builder::new().name("link-in".into()).spawn(move || {
            clock::sharpen_this_thread();
            input.fill(&mut from, |bytes| reading.due_ns(up, bytes));
        })?;
        let writing = shared.clone();
        let sending = sending.take().filter(|_| up);
        std::thread::Builder::new().name("link-out".into()).spawn(move || {
            clock::sharpen_this_thread();
            let passed = output.drain(&mut to, clock::ns(SPIN), || writing.pass());
            writing.bytes.fetch_add(passed, Ordering::Relaxed);
            let _ = to.shutdown(Shutdown::Write);
            drop(sending);
        })?;
    }
    Ok(())
}

/// A server that sends back each byte.
struct Echo {
    addr: SocketAddr,
}

impl Echo {
    /// Serves one connection and ends with it.
    fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(|| "open a local port".into())?;
        let addr = listener.local_addr().context(|| "local port".into())?;
        let serve = move || {
            let Ok((mut s, _)) = listener.accept() else { return };
            let _ = s.set_nodelay(true);
            let mut byte = [0];
            while matches!(s.read(&mut byte), Ok(1)) && s.write_all(&byte).is_ok() {}
        };
        std::thread::Builder::new().name("echo".into()).spawn(serve).context(|| "thread".to_owned())?;
        Ok(Echo { addr })
    }
}

/// Round trips of one byte to an echo at `addr`, the quickest first.
fn round_trips(addr: SocketAddr) -> Result<Vec<Duration>> {
    let mut s = TcpStream::connect(addr).context(|| "connect to the echo".into())?;
    s.set_nodelay(true).context(|| "echo".into())?;
    let mut times = Vec::new();
    let mut byte = [0];
    for _ in 0..LINK_CHECK_ROUNDS {
        let start = Instant::now();
        s.write_all(&byte).and_then(|()| s.read_exact(&mut byte)).context(|| "echo".into())?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

/// The median round trip of one byte over this machine's loopback, without any link.
pub fn loopback_round_trip() -> Result<Duration> {
    round_trips(Echo::start()?.addr).map(|times| times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_takes_its_round_trip_and_not_much_more() {
        let echo = Echo::start().unwrap();
        let link = Link::start(echo.addr, Duration::from_millis(4)).unwrap();
        // The quick ones: this machine may be busy with other things.
        let rtt = round_trips(link.addr()).unwrap()[LINK_CHECK_ROUNDS as usize / 10];
        assert!(rtt >= Duration::from_micros(3500), "{rtt:?}");
        assert!(rtt <= Duration::from_millis(12), "{rtt:?}");
    }

    #[test]
    fn connections_share_a_links_bandwidth() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link = Link::start(listener.local_addr().unwrap(), Duration::ZERO).unwrap();
        link.set_bandwidth(10_000_000);
        let start = Instant::now();
        let clients: Vec<_> = (0..2).map(|_| TcpStream::connect(link.addr()).unwrap()).collect();
        std::thread::scope(|s| {
            for mut client in clients {
                s.spawn(move || client.write_all(&vec![1; 500_000]).unwrap());
                let mut server = listener.accept().unwrap().0;
                s.spawn(move || server.read_exact(&mut vec![0; 500_000]).unwrap());
            }
        });
        assert!(start.elapsed() >= Duration::from_millis(99), "{:?}", start.elapsed());
    }

    #[test]
    fn a_slower_server_holds_up_all_but_null() {
        let echo = Echo::start().unwrap();
        let link = Link::start(echo.addr, Duration::ZERO).unwrap();
        link.set_server_work(Duration::from_millis(50));
        let mut s = TcpStream::connect(link.addr()).unwrap();
        let mut took = |bytes: usize| {
            let start = Instant::now();
            s.write_all(&vec![1; bytes]).unwrap();
            s.read_exact(&mut vec![0; bytes]).unwrap();
            start.elapsed()
        };
        assert!(took(NULL_CALL_BYTES + 1) >= Duration::from_millis(50));
        assert!((0..5).any(|_| took(NULL_CALL_BYTES) < Duration::from_millis(50)));
    }

    #[test]
    fn bytes_keep_their_order_and_none_is_lost() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link = Link::start(listener.local_addr().unwrap(), Duration::from_micros(300)).unwrap();
        let sent: Vec<u8> = (0..30_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let copy = sent.clone();
        let addr = link.addr();
        let sender = std::thread::spawn(move || TcpStream::connect(addr).unwrap().write_all(&copy));
        let mut got = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
        sender.join().unwrap().unwrap();
        assert!(got == sent);
    }

    #[test]
    fn what_is_sent_over_a_link_that_is_cut_arrives_when_it_is_healed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link = Link::start(listener.local_addr().unwrap(), Duration::ZERO).unwrap();
        let mut client = TcpStream::connect(link.addr()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        link.cut();
        client.write_all(b"y").unwrap();
        server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(server.read(&mut [0]).is_err());
        link.heal();
        server.set_read_timeout(None).unwrap();
        server.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn what_was_sent_before_a_close_is_delivered_or_lost_with_its_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link = Link::start(listener.local_addr().unwrap(), Duration::ZERO).unwrap();
        assert!(link.wait_delivered(Duration::ZERO));
        for lost in [false, true] {
            link.set_round_trip(Duration::from_millis(200));
            let mut client = TcpStream::connect(link.addr()).unwrap();
            let mut server = listener.accept().unwrap().0;
            client.write_all(b"x").unwrap();
            assert!(!link.wait_delivered(Duration::from_millis(1)), "the client has not closed");
            drop(client);
            if lost {
                link.sever();
            }
            assert!(link.wait_delivered(Duration::from_secs(10)));
            let mut got = Vec::new();
            // A broken connection may end with an error.
            let _ = server.read_to_end(&mut got);
            assert_eq!(got, if lost { &b""[..] } else { b"x" });
        }
    }

    #[test]
    fn a_severed_link_ends_both_sides() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let link = Link::start(listener.local_addr().unwrap(), Duration::ZERO).unwrap();
        let mut client = TcpStream::connect(link.addr()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        link.sever();
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
        assert!(matches!(server.read(&mut [0]), Ok(0) | Err(_)));
    }
}
