//! One very large directory: listing it takes time in proportion to its size, and the server's memory does not follow
//! the number of files that were touched.
//!
//! The files are made by this process before the server starts; both directories stand in one export. Both have more
//! files than the server remembers, so that what is compared is the same work; they are listed in turn, so that what
//! else the machine does falls on both.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Error, Result};
use crate::load::list_root_entry;
use crate::served::{Durability, ServeOptions, Served};
use std::path::Path;

/// Entries of the large directory, unless chosen otherwise; the claim is about 1,000,000. The small one has a quarter,
/// more than the server keeps nodes.
const ENTRIES: u64 = 280_000;
const PARTS: u64 = 4;

/// The most time for an entry of the large directory, as a multiple of that of the small one. A quadratic listing takes
/// [`PARTS`] times as long; a factor of two is left to the machine, and to what the server still caches of the small one.
const GROWTH_MAX: f64 = 2.0;

/// The most peak memory of the server after the large directory, as a multiple of that after the small one.
const MEMORY_GROWTH_MAX: f64 = 2.0;

/// Peak resident memory that is claimed at most, in MiB: the nodes that are kept (the volume's limits), and what a
/// server needs without any.
const PEAK_MIB_MAX: f64 = 192.0;

/// Rounds; in each the small directory is listed [`PARTS`] times and the large one once.
const ROUNDS: u64 = 2;

struct Listed {
    name: &'static str,
    entries: u64,
    times: u64,
    seconds: f64,
    peak_mib: f64,
}

impl Listed {
    fn new(name: &'static str, entries: u64, times: u64) -> Listed {
        Listed { name, entries, times, seconds: 0.0, peak_mib: 0.0 }
    }

    fn list(&mut self, server: &Served) -> Result<()> {
        for _ in 0..self.times {
            let (seen, took) = list_root_entry(server.addr(), self.name)?;
            if seen != self.entries {
                let what = format!("lists {seen} entries of {}", self.entries);
                return Err(Error::Child { role: "server", what });
            }
            self.seconds += took.as_secs_f64();
        }
        Ok(())
    }

    fn us_per_entry(&self) -> f64 {
        self.seconds * 1e6 / (self.entries * self.times * ROUNDS) as f64
    }

    fn line(&self) -> Row {
        let values = [
            ("entries", self.entries as f64),
            ("us_per_entry", self.us_per_entry()),
            ("peak_rss_mib", self.peak_mib),
        ];
        Row::new(&format!("{} entries", self.entries), values)
    }
}

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::machine::needs_root()?;
    let entries = choices.files.unwrap_or(ENTRIES).max(PARTS);
    let dir = crate::machine::scratch_dir("landfast-large-")?;
    let export = dir.path().join("export");
    let mut small = Listed::new("small", entries / PARTS, PARTS);
    let mut large = Listed::new("large", entries, 1);
    for listed in [&small, &large] {
        progress(&format!("making {} files", listed.entries));
        fill(&export.join(listed.name), listed.entries)?;
    }
    let options = ServeOptions::new(&export, Some(&dir.path().join("log")), Durability::Log);
    let server = Served::start(&ServeOptions { log_bytes: Some(64 << 20), ..options })?;
    for round in 1..=ROUNDS {
        progress(&format!("listing, round {round} of {ROUNDS}"));
        small.list(&server)?;
        if round == 1 {
            small.peak_mib = peak_mib(&server);
        }
        large.list(&server)?;
    }
    large.peak_mib = peak_mib(&server);
    server.stop()?;
    let checks = vec![
        Check::at_most(
            "time for an entry of four times as many, against that of the few",
            large.us_per_entry() / small.us_per_entry(),
            GROWTH_MAX,
        ),
        Check::at_most(
            "peak memory after four times as many, against that after the few",
            large.peak_mib / small.peak_mib,
            MEMORY_GROWTH_MAX,
        ),
        Check::at_most("peak memory of the server in MiB", large.peak_mib, PEAK_MIB_MAX),
    ];
    let notes = vec![
        "the directories are on this machine's own disk; each entry comes with its attributes".to_owned(),
    ];
    Ok(Findings { lines: vec![small.line(), large.line()], checks, notes, ..Findings::default() })
}

fn peak_mib(server: &Served) -> f64 {
    server.peak_rss_bytes().unwrap_or(0) as f64 / f64::from(1 << 20)
}

/// Makes a directory of so many empty files.
fn fill(dir: &Path, entries: u64) -> Result<()> {
    std::fs::create_dir_all(dir).context(|| format!("create {}", dir.display()))?;
    for n in 0..entries {
        let file = dir.join(format!("entry-{n:07}"));
        std::fs::File::create(&file).context(|| format!("create {}", file.display()))?;
    }
    Ok(())
}
