//! What slows a server down: a disk with chosen latencies under its files, and a processor that it does not get.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::guest::disk::Disk;
use crate::proc::{command, run};

/// Bytes of a volume; the emulated disk takes its memory as it is written.
const VOLUME_BYTES: u64 = 400 << 20;

/// Parts of answers that wait to be handed on.
const ANSWERS: usize = 256;

/// A filesystem on an emulated disk, mounted for the life of the mount namespace.
pub struct Volume {
    /// The disk below.
    pub disk: Disk,
    pub path: PathBuf,
}

impl Volume {
    /// Makes one in `dir`, mounted with these options.
    pub fn new(binary: &Path, dir: &Path, fs_type: &str, options: &str) -> Result<Volume, String> {
        let path = dir.join(fs_type);
        fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let disk = Disk::start(binary, &dir.join(format!("{fs_type}.disk")), VOLUME_BYTES, "flush_us=0")?;
        run(command(&format!("mkfs.{fs_type}"), ["-q"]).arg(disk.image()))?;
        let options = format!("loop{options}");
        run(command("mount", ["-o", &options, "-t", fs_type]).arg(disk.image()).arg(&path))?;
        Ok(Volume { disk, path })
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Before the disk goes; if a server still runs, the namespace's end does it.
        if let Err(why) = run(command("umount", ["--lazy"]).arg(&self.path)) {
            eprintln!("{why}");
        }
    }
}

/// Stands before a server, for the life of the process, and hands on what it answers after a time, as if it took that long for
/// everything. Returns the port.
pub fn delayed(server: SocketAddr, time: Duration) -> Result<u16, String> {
    let listener = TcpListener::bind((server.ip(), 0)).map_err(|e| format!("a port: {e}"))?;
    let port = listener.local_addr().map_err(|e| format!("a port: {e}"))?.port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Who cannot be served sees the connection close.
            if let Err(e) = serve_late(client, server, time) {
                eprintln!("a connection to {server}: {e}");
            }
        }
    });
    Ok(port)
}

fn serve_late(client: TcpStream, server: SocketAddr, time: Duration) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut calls, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (mut answers, mut to_client) = (server, client);
    let (send, receive) = sync_channel::<(Instant, Vec<u8>)>(ANSWERS);
    std::thread::spawn(move || {
        let copied = io::copy(&mut calls, &mut to_server);
        to_server.shutdown(Shutdown::Both).and(copied)
    });
    std::thread::spawn(move || {
        let mut buf = vec![0; 1 << 16];
        while let Ok(n @ 1..) = answers.read(&mut buf) {
            if send.send((Instant::now() + time, buf[..n].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in receive {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to_client.write_all(&bytes).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Takes the processor away from a process again and again, until it is dropped.
pub struct Starved {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Starved {
    /// It stands still for this long, then runs for that long.
    pub fn new(process: u32, still: Duration, runs: Duration) -> Option<Starved> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw)?;
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let stopped = kill_process(pid, Signal::STOP);
                std::thread::sleep(still);
                if kill_process(pid, Signal::CONT).and(stopped).is_err() {
                    return;
                }
                std::thread::sleep(runs);
            }
        });
        Some(Starved { over, thread: Some(thread) })
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only sends signals.
            let _ = thread.join();
        }
    }
}
