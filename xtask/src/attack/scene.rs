//! What every case needs: the server's addresses, and when to stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub struct Scene {
    pub nfs: SocketAddr,
    pub metrics: SocketAddr,
    pub export: PathBuf,
    /// The full form, not the short one of continuous integration.
    pub long: bool,
    /// Set when the case must end.
    pub stop: AtomicBool,
    pub since: Instant,
}

impl Scene {
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Acquire)
    }

    pub fn seconds(&self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }

    /// Holds everything until the case must end.
    pub fn await_stop(&self) {
        while self.goes_on() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Runs attackers in parallel, each with its number.
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

/// A real attacker has its own processors. This one shares the server's, so it only takes what the server leaves.
fn step_back() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
}
