//! Devices that say they have made something durable and have not, and devices with a battery, which need not.

use crate::error::Result;
use crate::experiments::Check;
use crate::report::content::{Axis, Bar, Found, Picture, Table, Unit, Whose};
use crate::report::plan::Plan;
use crate::report::stand::{Archive, Setup, Stand, here, link};
use crate::rig::Latency;
use std::time::Duration;

const RTT_MS: f64 = 0.1;
const DATA_BYTES: u64 = 512 << 20;

/// What the disks do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Devices {
    Honest,
    /// Both flushes mean nothing.
    DataAndLogIgnoreFlushes,
    LogIgnoresFlushes,
    /// Flushes mean nothing, and need not: a battery keeps what was written.
    Battery,
}

const ALL: [Devices; 4] =
    [Devices::Honest, Devices::DataAndLogIgnoreFlushes, Devices::LogIgnoresFlushes, Devices::Battery];

impl Devices {
    fn name(self) -> &'static str {
        match self {
            Devices::Honest => "honest disks",
            Devices::DataAndLogIgnoreFlushes => "both disks ignore flushes",
            Devices::LogIgnoresFlushes => "only the log's disk ignores flushes",
            Devices::Battery => "both disks ignore flushes and have a battery",
        }
    }

    fn is_honest(self) -> bool {
        matches!(self, Devices::Honest | Devices::Battery)
    }

    fn set(self, stand: &Stand) -> Result<()> {
        stand.control("keep_permille=0 torn=0")?;
        match self {
            Devices::Honest => Ok(()),
            Devices::DataAndLogIgnoreFlushes => stand.control("ignore_flush=1"),
            Devices::LogIgnoresFlushes => stand.control_each("ignore_flush=0", "ignore_flush=1"),
            Devices::Battery => stand.control("ignore_flush=1 keep_permille=1000"),
        }
    }
}

struct Line {
    setup: Setup,
    devices: Devices,
    acknowledged: u64,
    lost: u64,
    flushes: u64,
}

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let mut absent = Vec::new();
    let all = [Setup::GANESHA, Setup::SYNC, Setup::LOG];
    let setups = here(plan.pick(&all[2..], &all[..]), &mut absent);
    let archive = Archive::random(plan.pick(256, 1024))?;
    let link = link(RTT_MS)?;
    let (mut lines, mut notes): (Vec<Line>, Vec<String>) = (Vec::new(), Vec::new());
    for setup in setups {
        for devices in ALL {
            if devices == Devices::LogIgnoresFlushes && setup.name != Setup::LOG.name {
                continue;
            }
            plan.step(&format!("{}, {}", setup.name, devices.name()))?;
            let mut stand = Stand::start(setup, Latency::default(), DATA_BYTES)?;
            link.retarget(stand.addr());
            devices.set(&stand)?;
            let before = stand.flushes()?;
            let put = stand.serial(&link, &archive, 1, Duration::from_millis(plan.pick(600, 2000)))?;
            let flushes = stand.flushes()? - before;
            let dir = stand.last_dir();
            let there = match stand.files_after_cut(&archive, &dir) {
                Ok(there) => there,
                Err(why) => {
                    notes.push(format!("{}, {}: nothing comes back: {why}", setup.name, devices.name()));
                    0
                }
            };
            let lost = put.files.saturating_sub(there);
            lines.push(Line { setup, devices, acknowledged: put.files, lost, flushes });
        }
    }

    let columns = [
        ("files acknowledged", Unit::Count),
        ("of them lost", Unit::Count),
        ("lost", Unit::Share),
        ("flushes sent to the disks", Unit::Count),
    ];
    let mut table = Table::new("server and disks", columns);
    let mut bars = Vec::new();
    for l in &lines {
        let part = l.lost as f64 / l.acknowledged.max(1) as f64;
        let whose = if l.devices.is_honest() { l.setup.whose } else { Whose::NotDurable };
        let name = format!("{}: {}", l.setup.name, l.devices.name());
        let count = |n: u64| Some(n as f64);
        table.add(&name, whose, [count(l.acknowledged), count(l.lost), Some(part), count(l.flushes)]);
        bars.push(Bar { name, whose, value: part * 100.0, limit: None });
    }
    let axis = Axis { name: "percent of the acknowledged files that were lost".to_owned(), log: false };
    let mut found = Found::new(Picture::Bars { axis, bars }, table);
    let lost = |honest: bool| {
        lines
            .iter()
            .filter(move |l| l.devices.is_honest() == honest && l.setup.whose == Whose::Ours)
            .map(|l| l.lost)
    };
    let what = "files that Landfast acknowledged and lost on honest disks, and on those with a battery";
    found.checks.push(Check::of_data(what, lost(true).sum::<u64>() as f64, 0.0));
    let what = "the fewest files lost where both disks ignore flushes (the cut finds it)";
    let liars = lines.iter().filter(|l| l.devices == Devices::DataAndLogIgnoreFlushes);
    found.checks.push(Check::at_least(what, liars.map(|l| l.lost).min().unwrap_or(0) as f64, 1.0));
    found.absent = absent;
    found.notes = notes;
    found.notes.push(
        "a power cut at the end of the work takes all that no honest flush covered; then filesystem and server recover. No server can keep a \
         promise that its device breaks: `landfast verify` finds such a device"
            .to_owned(),
    );
    Ok(found)
}
