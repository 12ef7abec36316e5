//! Emulates an Ethernet between a guest and the bridge, with a chosen delay, rate and loss. Captures the traffic at
//! both ends, with one clock.
//!
//! QEMU passes the guest's frames to us over a socket. A second QEMU with nothing but a tap does the same for the
//! bridge.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::chance::Chance;
use crate::proc::command;

/// Frames queued per direction. Further frames are lost, as in a switch.
const QUEUE_FRAMES: usize = 1000;

const FRAME_BYTES: usize = 65_536;

/// How long a QEMU may take to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Added to a round trip.
    pub round_trip: Duration,
    /// Megabits a second in each direction; 0: no limit.
    pub megabits: u64,
    /// Of a thousand frames so many are lost.
    pub lost_of_1000: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Guest = 0,
    Bridge = 1,
}

struct Shared {
    started: (Instant, u64),
    line: Mutex<Line>,
    files: Mutex<Option<[BufWriter<File>; 2]>>,
    lost: AtomicU64,
}

/// A cable with a guest, or a tap, at one end and a tap at the other. Dropping it ends the taps' QEMU.
pub struct Ether {
    shared: Arc<Shared>,
    hubs: Vec<Child>,
    guest: PathBuf,
}

impl Ether {
    /// Between the tap `device` and the guest that is started next, which connects to [`Ether::socket`]. `dir` is for sockets.
    pub fn new(device: &str, dir: &Path) -> Result<Ether, String> {
        let [guest, bridge] = ["guest.ether", "bridge.ether"].map(|name| dir.join(name));
        let listen = |path: &Path| UnixListener::bind(path).map_err(|e| format!("{}: {e}", path.display()));
        let (for_guest, for_bridge) = (listen(&guest)?, listen(&bridge)?);
        let hub = hub(None, device, &bridge)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let shared = Arc::new(Shared {
            started: (Instant::now(), now.as_nanos() as u64),
            line: Mutex::default(),
            files: Mutex::default(),
            lost: AtomicU64::new(0),
        });
        let ether = Ether { shared: shared.clone(), hubs: vec![hub], guest };
        let bridge = accept(&for_bridge)?;
        // The guest comes when it is started.
        std::thread::spawn(move || {
            let joined = for_guest.accept().and_then(|(guest, _)| join(guest, bridge, &shared));
            if let Err(e) = joined {
                eprintln!("the emulated line: {e}");
            }
        });
        Ok(ether)
    }

    /// What the guest's QEMU takes as its network.
    pub fn netdev(&self) -> String {
        stream("net", &self.guest)
    }

    /// Puts the tap `device` of a network namespace in the guest's place.
    pub fn join_tap(&mut self, device: &str, namespace: &str) -> Result<(), String> {
        self.hubs.push(hub(Some(namespace), device, &self.guest)?);
        Ok(())
    }

    /// Changes the line from now on.
    pub fn set(&self, line: Line) {
        *lock(&self.shared.line) = line;
    }

    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// From now on what passes is written to these files: at the guest's end, and at the bridge's.
    pub fn capture(&self, files: [&Path; 2]) -> Result<(), String> {
        let [one, two] = files.map(|path| begin(path).map_err(|e| format!("{}: {e}", path.display())));
        *lock(&self.shared.files) = Some([one?, two?]);
        Ok(())
    }

    pub fn end_capture(&self) -> Result<(), String> {
        let files = lock(&self.shared.files).take();
        for mut file in files.into_iter().flatten() {
            file.flush().map_err(|e| format!("a capture: {e}"))?;
        }
        Ok(())
    }
}

impl Drop for Ether {
    fn drop(&mut self) {
        for hub in &mut self.hubs {
            // It may have ended by itself.
            let _ = hub.kill();
            let _ = hub.wait();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A QEMU that hands the frames of a tap on to whoever listens at a socket.
fn hub(namespace: Option<&str>, device: &str, socket: &Path) -> Result<Child, String> {
    let mut hub = command("setpriv", ["--pdeathsig", "KILL"]);
    if let Some(namespace) = namespace {
        hub.args(["ip", "netns", "exec", namespace]);
    }
    hub.args(["qemu-system-x86_64", "-machine", "none"])
        .args(["-nodefaults", "-display", "none", "-monitor", "none"])
        .arg("-netdev")
        .arg(format!("tap,id=tap,ifname={device},script=no,downscript=no,vnet_hdr=off"))
        .args(["-netdev", &stream("line", socket)])
        .args(["-netdev", "hubport,id=one,hubid=0,netdev=tap"])
        .args(["-netdev", "hubport,id=two,hubid=0,netdev=line"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("QEMU: {e}"))
}

fn stream(id: &str, socket: &Path) -> String {
    format!("stream,id={id},server=off,addr.type=unix,addr.path={}", socket.display())
}

fn accept(listener: &UnixListener) -> Result<UnixStream, String> {
    let accept = || -> io::Result<UnixStream> {
        listener.set_nonblocking(true)?;
        let deadline = Instant::now() + CONNECT_LIMIT;
        loop {
            match listener.accept() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    // QEMU connects within milliseconds.
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => {
                    let (stream, _) = other?;
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
            }
        }
    };
    accept().map_err(|e| format!("QEMU does not connect to the emulated line: {e}"))
}

/// A capture with times in nanoseconds.
fn begin(path: &Path) -> io::Result<BufWriter<File>> {
    let mut file = BufWriter::new(File::create(path)?);
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, FRAME_BYTES as u32, 1] {
        file.write_all(&word.to_le_bytes())?;
    }
    Ok(file)
}

fn join(guest: UnixStream, bridge: UnixStream, shared: &Arc<Shared>) -> io::Result<()> {
    for (from, to, end) in [(&guest, &bridge, End::Guest), (&bridge, &guest, End::Bridge)] {
        let (send, receive) = sync_channel(QUEUE_FRAMES);
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        let (of_sender, of_receiver) = (shared.clone(), shared.clone());
        // Both end with their sockets.
        std::thread::spawn(move || of_sender.take(&mut from, &send, end));
        std::thread::spawn(move || of_receiver.give(&mut to, &receive, end));
    }
    Ok(())
}

/// A frame on its way, and when it arrives.
type Due = (Instant, Vec<u8>);

impl Shared {
    /// Takes what is sent at one end.
    fn take(&self, from: &mut UnixStream, send: &SyncSender<Due>, end: End) -> io::Result<()> {
        // Losses are random, but the same each time.
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15 ^ end as u64);
        let mut free = Instant::now();
        loop {
            let mut length = [0; 4];
            from.read_exact(&mut length)?;
            let length = u32::from_be_bytes(length) as usize;
            if length > FRAME_BYTES {
                return Err(io::Error::other("a frame that is too long"));
            }
            let mut frame = vec![0; length];
            from.read_exact(&mut frame)?;
            let now = self.write(end, &frame);
            let line = *lock(&self.line);
            if (chance.next() >> 11) % 1000 < line.lost_of_1000 {
                self.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let micros = (length as u64 * 8).checked_div(line.megabits).unwrap_or(0);
            free = free.max(now) + Duration::from_micros(micros);
            match send.try_send((free + line.round_trip / 2, frame)) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => _ = self.lost.fetch_add(1, Ordering::Relaxed),
                Err(TrySendError::Disconnected(_)) => return Ok(()),
            }
        }
    }

    fn give(&self, to: &mut UnixStream, receive: &Receiver<Due>, end: End) -> io::Result<()> {
        while let Ok((due, frame)) = receive.recv() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.write(if end == End::Guest { End::Bridge } else { End::Guest }, &frame);
            let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
            bytes.extend(frame);
            to.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Writes a frame into the capture of one end, and says when that was.
    fn write(&self, end: End, frame: &[u8]) -> Instant {
        let mut files = lock(&self.files);
        let now = Instant::now();
        if let Some(files) = &mut *files {
            let ns = self.started.1 + now.duration_since(self.started.0).as_nanos() as u64;
            let words = [ns / 1_000_000_000, ns % 1_000_000_000, frame.len() as u64, frame.len() as u64];
            let head: Vec<u8> = words.iter().flat_map(|word| (*word as u32).to_le_bytes()).collect();
            let file = &mut files[end as usize];
            if let Err(e) = file.write_all(&head).and_then(|()| file.write_all(frame)) {
                eprintln!("a capture: {e}");
            }
        }
        now
    }
}
