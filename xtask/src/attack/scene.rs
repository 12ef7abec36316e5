//! What a case has at hand: the server's addresses, and until when it goes on.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The scene of one case.
pub struct Scene {
    /// The server.
    pub nfs: SocketAddr,
    /// Its figures.
    pub metrics: SocketAddr,
    /// The exported directory.
    pub export: PathBuf,
    /// In full, and not as continuous integration has it.
    pub long: bool,
    /// The case is to end.
    pub stop: AtomicBool,
    /// When it began.
    pub since: Instant,
}

impl Scene {
    /// Whether it goes on.
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Acquire)
    }

    /// How long it has been going on.
    pub fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    /// Holds what it has until it is to end.
    pub fn await_stop(&self) {
        while self.goes_on() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// So many attackers at the same time, each with its number.
    pub fn each<T: Send>(&self, attackers: u32, attack: impl Fn(u32) -> T + Sync) -> Vec<T> {
        let attack = &attack;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..attackers)
                .map(|number| {
                    scope.spawn(move || {
                        step_back();
                        attack(number)
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        })
    }
}

/// An attacker has processors of its own. Here it shares those of the server, so it takes what is left of them.
fn step_back() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
}
