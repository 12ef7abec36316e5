//! What is predicted and measured.

use landfast_model::predict::Change;

const SMALL: usize = 4 << 10;
const LARGE: usize = 64 << 10;

/// Where data is made stable, with the flush latency in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stable {
    /// On the data disk, each operation by itself.
    Disk(u64),
    /// In an intent log.
    Log(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// NFS version: 30, 41, 42.
    pub vers: u32,
    pub rtt_us: u64,
    pub stable: Stable,
    /// The link's bandwidth in megabits a second; 0: unlimited.
    pub mbit: u64,
    /// How much longer the server takes for each call, in microseconds.
    pub work_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// So many clients that do one thing at a time.
    Serial(u64),
    /// Our client: files in a COMPOUND, COMPOUNDs in flight.
    Compounds(u64, u64),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub kind: &'static str,
    pub from: Place,
    pub to: Place,
    pub way: Client,
    pub file_bytes: usize,
}

const fn at(vers: u32, rtt_us: u64, stable: Stable) -> Place {
    Place { vers, rtt_us, stable, mbit: 0, work_us: 0 }
}

const fn now(place: Place) -> Case {
    Case { kind: "now", from: place, to: place, way: Client::Serial(1), file_bytes: SMALL }
}

const fn moved(kind: &'static str, from: Place, to: Place) -> Case {
    Case { kind, from, to, way: Client::Serial(1), file_bytes: SMALL }
}

const fn streams(place: Place, n: u64) -> Case {
    Case { kind: "streams", from: place, to: place, way: Client::Serial(n), file_bytes: SMALL }
}

const fn compounds(place: Place, files: u64) -> Case {
    Case { kind: "compound", from: place, to: place, way: Client::Compounds(files, 1), file_bytes: SMALL }
}

use Stable::{Disk, Log};

/// Nothing but round trips and flushes.
pub(super) const CASES: [Case; 25] = [
    now(at(30, 200, Disk(500))),
    now(at(41, 1000, Disk(2000))),
    now(at(30, 5000, Log(500))),
    now(at(41, 20_000, Log(500))),
    now(at(30, 1000, Disk(10_000))),
    now(at(41, 200, Log(5000))),
    now(at(41, 200, Log(50))),
    moved("round-trip", at(30, 1000, Log(1000)), at(30, 10_000, Log(1000))),
    moved("round-trip", at(41, 10_000, Disk(2000)), at(41, 2000, Disk(2000))),
    moved("round-trip", at(41, 2000, Log(500)), at(41, 20_000, Log(500))),
    moved("log-device", at(30, 1000, Disk(10_000)), at(30, 1000, Log(1000))),
    moved("log-device", at(41, 5000, Disk(5000)), at(41, 5000, Log(500))),
    moved("log-device", at(41, 2000, Disk(10_000)), at(41, 2000, Log(2000))),
    streams(at(30, 5000, Log(1000)), 2),
    streams(at(41, 5000, Log(2000)), 4),
    streams(at(41, 10_000, Log(5000)), 8),
    streams(at(30, 2000, Disk(5000)), 4),
    compounds(at(41, 5000, Log(2000)), 16),
    compounds(at(41, 20_000, Log(1000)), 8),
    compounds(at(41, 1000, Log(10_000)), 4),
    compounds(at(41, 5000, Disk(2000)), 8),
    compounds(at(41, 200, Log(50)), 16),
    Case {
        kind: "together",
        from: at(30, 10_000, Disk(5000)),
        to: at(30, 2000, Log(500)),
        way: Client::Serial(4),
        file_bytes: SMALL,
    },
    Case {
        kind: "together",
        from: at(41, 10_000, Disk(10_000)),
        to: at(41, 10_000, Log(1000)),
        way: Client::Compounds(8, 4),
        file_bytes: SMALL,
    },
    Case {
        kind: "together",
        from: at(41, 1000, Disk(2000)),
        to: at(41, 1000, Log(50)),
        way: Client::Compounds(16, 4),
        file_bytes: SMALL,
    },
];

/// A place behind a link of so many megabits a second.
const fn over_link(mbit: u64, place: Place) -> Place {
    Place { mbit, ..place }
}

/// A server that needs so many microseconds longer for each call.
const fn slow(work_us: u64, place: Place) -> Place {
    Place { work_us, ..place }
}

/// The same with larger files.
const fn large(case: Case) -> Case {
    Case { file_bytes: LARGE, ..case }
}

/// The same with four clients at once.
const fn four(case: Case) -> Case {
    let kind = match case.kind.as_bytes() {
        b"now" => "streams",
        _ => "together",
    };
    Case { kind, way: Client::Serial(4), ..case }
}

const fn link(place: Place, from: u64, to: u64) -> Case {
    moved("link", over_link(from, place), over_link(to, place))
}

const fn server(place: Place, from_us: u64, to_us: u64) -> Case {
    moved("server", slow(from_us, place), slow(to_us, place))
}

const fn log_device(mbit: u64, vers: u32, rtt_us: u64, disk_us: u64, log_us: u64) -> Case {
    let from = over_link(mbit, at(vers, rtt_us, Disk(disk_us)));
    moved("log-device", from, Place { stable: Log(log_us), ..from })
}

/// A change of the version only.
const fn version(place: Place, vers: u32) -> Case {
    moved("now", place, Place { vers, ..place })
}

/// Links of 20 Mbit/s, 100 Mbit/s and 1 Gbit/s, one client and four, and what may be changed there.
pub(super) const LINKS: [Case; 26] = [
    large(now(over_link(20, at(30, 1000, Disk(2000))))),
    now(over_link(100, at(41, 5000, Log(500)))),
    large(now(over_link(1000, at(30, 200, Log(50))))),
    now(over_link(20, at(41, 20_000, Disk(5000)))),
    four(now(over_link(20, at(30, 5000, Log(1000))))),
    large(four(now(over_link(100, at(41, 1000, Log(500)))))),
    four(now(over_link(1000, at(30, 200, Log(2000))))),
    large(four(now(over_link(20, at(41, 1000, Disk(5000)))))),
    four(now(over_link(100, at(30, 1000, Disk(2000))))),
    large(log_device(20, 30, 1000, 10_000, 1000)),
    log_device(100, 41, 5000, 5000, 500),
    log_device(1000, 41, 200, 2000, 50),
    four(log_device(20, 30, 5000, 10_000, 1000)),
    large(link(at(30, 1000, Log(500)), 20, 100)),
    link(at(41, 5000, Log(1000)), 20, 1000),
    large(link(at(41, 1000, Disk(2000)), 100, 1000)),
    large(link(at(30, 200, Log(500)), 1000, 100)),
    link(at(30, 5000, Disk(5000)), 100, 20),
    large(four(link(at(41, 20_000, Log(500)), 20, 100))),
    server(over_link(100, at(30, 1000, Log(500))), 4000, 1000),
    server(over_link(1000, at(41, 5000, Log(1000))), 5000, 1000),
    server(over_link(20, at(30, 200, Disk(2000))), 2000, 500),
    four(server(over_link(100, at(41, 1000, Log(500))), 3000, 1000)),
    version(over_link(100, at(30, 5000, Log(500))), 41),
    version(over_link(20, at(41, 1000, Disk(2000))), 30),
    four(version(over_link(1000, at(30, 200, Log(5000))), 41)),
];

impl Place {
    /// Of its link; 0: what this machine passes on.
    pub fn bytes_per_s(&self) -> u64 {
        self.mbit * 125_000
    }

    pub fn name(&self) -> String {
        let ms = |us: u64| format!("{} ms", us as f64 / 1000.0);
        let stable = match self.stable {
            Disk(us) => format!("disk {}", ms(us)),
            Log(us) => format!("log {}", ms(us)),
        };
        let vers = if self.vers == 30 { "3".into() } else { format!("4.{}", self.vers % 10) };
        let mut name = format!("v{vers}, {}, {stable}", ms(self.rtt_us));
        if self.mbit > 0 {
            name += &format!(", {} Mbit/s", self.mbit);
        }
        if self.work_us > 0 {
            name += &format!(", {} more for a call", ms(self.work_us));
        }
        name
    }
}

impl Case {
    pub fn name(&self) -> String {
        let mut name = format!("{}: {}", self.kind, self.from.name());
        if self.to != self.from {
            name += &format!(" -> {}", self.to.name());
        }
        if self.file_bytes != SMALL {
            name += &format!(", files of {} KiB", self.file_bytes >> 10);
        }
        match self.way {
            Client::Serial(1) => name,
            Client::Serial(n) => format!("{name}, {n} streams"),
            Client::Compounds(files, 1) => format!("{name}, {files} files a COMPOUND"),
            Client::Compounds(files, n) => format!("{name}, {files} files a COMPOUND, {n} under way"),
        }
    }

    /// What is changed, for the model. `round_trip_s` and `log_s` as they are at the place that is gone to; `server_s` as it is at
    /// both.
    pub fn changes(&self, round_trip_s: f64, log_s: f64, server_s: [f64; 2]) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.to.rtt_us != self.from.rtt_us {
            changes.push(Change::RoundTrip { round_trip_s });
        }
        if self.to.mbit != self.from.mbit {
            changes.push(Change::Link { bytes_per_s: self.to.bytes_per_s() as f64 });
        }
        if self.to.work_us != self.from.work_us {
            changes.push(Change::Server { times: server_s[0].max(1e-6) / server_s[1].max(1e-6) });
        }
        if self.to.stable != self.from.stable {
            changes.push(Change::LogDevice { persistence_s: log_s });
        }
        match self.way {
            Client::Serial(1) => {}
            Client::Serial(streams) => changes.push(Change::Streams { streams }),
            Client::Compounds(files, streams) => {
                let at_once = matches!(self.to.stable, Log(_));
                changes.extend([Change::Compound { files, at_once }, Change::Streams { streams }]);
            }
        }
        changes
    }
}
