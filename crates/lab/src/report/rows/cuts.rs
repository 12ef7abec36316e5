//! Power cuts under servers, and what `landfast verify` finds lost.

use crate::error::{Error, Result};
use crate::experiments::Check;
use crate::mounts::Filesystem;
use crate::peercut::{self, Options, Server, Summary};
use crate::report::content::{Axis, Bar, Found, Picture, Table, Unit, Whose};
use crate::report::plan::Plan;
use crate::served::Durability;

const CUTS: u32 = 4;
const CLIENTS: u32 = 2;
const SEED: u64 = 1;

/// Whether the server promises to keep what it acknowledges, and can on this filesystem.
fn whose(options: &Options) -> Whose {
    match (options.server, options.durability, options.fs) {
        (Server::Landfast, Durability::Unsafe, _) => Whose::NotDurable,
        (Server::Landfast, ..) => Whose::Ours,
        (Server::Ganesha, _, Filesystem::Xfs) if options.mount_options == "wsync" => Whose::Peer,
        (Server::Ganesha, ..) => Whose::NotDurable,
    }
}

pub fn run(plan: &mut Plan<'_>) -> Result<Found> {
    let cuts = plan.pick(1, CUTS);
    let all = Options::all(cuts, CLIENTS, SEED).into_iter();
    // One that keeps its promise, and one that must be found out.
    let all: Vec<Options> = match plan.quick {
        true => all
            .filter(|o| {
                o.server == Server::Landfast && o.fs == Filesystem::Ext4 && o.durability != Durability::Sync
            })
            .collect(),
        false => all.collect(),
    };
    let (mut lines, mut absent): (Vec<(Whose, Summary)>, Vec<String>) = (Vec::new(), Vec::new());
    if plan.quick {
        absent.push(
            "nfs-ganesha, `--durability sync`, XFS and btrfs: a run without --quick has them".to_owned(),
        );
    }
    for options in all {
        plan.step(&options.title())?;
        match peercut::run(&options, |_, _| {}) {
            Ok(summary) => lines.push((whose(&options), summary)),
            Err(why @ Error::NoTool { .. }) => absent.push(format!("{}: {why}", options.title())),
            Err(why) => return Err(why),
        }
    }

    let columns = [
        ("operations acknowledged", Unit::Count),
        ("checked", Unit::Count),
        ("lost", Unit::Count),
        ("lost of those checked", Unit::Share),
        ("cuts", Unit::Count),
        ("cuts with losses", Unit::Count),
    ];
    let mut table = Table::new("server and filesystem", columns);
    let mut bars = Vec::new();
    let count = |n: u64| Some(n as f64);
    for (whose, s) in &lines {
        let part = s.all.lost as f64 / s.all.checked.max(1) as f64;
        let values = [
            count(s.all.acknowledged),
            count(s.all.checked),
            count(s.all.lost),
            Some(part),
            count(s.cuts.into()),
            count(s.cuts_with_losses.into()),
        ];
        table.add(&s.title, *whose, values);
        bars.push(Bar { name: s.title.clone(), whose: *whose, value: part * 100.0, limit: None });
    }
    for s in plan.guests.verify.iter().flat_map(|v| &v.servers) {
        let part = s.all.lost as f64 / s.all.checked.max(1) as f64;
        let whose = if s.all.lost > 0 { Whose::NotDurable } else { Whose::Peer };
        let values = [
            count(s.all.acknowledged),
            count(s.all.checked),
            count(s.all.lost),
            Some(part),
            count(s.cuts.into()),
            count(s.cuts_with_losses.into()),
        ];
        let name = format!("{} (guest)", s.title);
        table.add(&name, whose, values);
        bars.push(Bar { name, whose, value: part * 100.0, limit: None });
    }
    if plan.guests.verify.is_empty() {
        absent.push(
            "Linux's own server, `sync` and `async`: put what `cargo xtask guest verify --json` prints into DIR as a file *.json"
                .to_owned(),
        );
    }
    let axis = Axis { name: "percent of the checked operations that were lost".to_owned(), log: false };
    let mut found = Found::new(Picture::Bars { axis, bars }, table);
    let of = |of: Whose| lines.iter().filter(move |(whose, _)| *whose == of).map(|(_, s)| s);
    found.checks.push(Check::of_data(
        "operations that Landfast acknowledged and lost",
        of(Whose::Ours).map(|s| s.all.lost).sum::<u64>() as f64,
        0.0,
    ));
    found.checks.push(Check::of_data(
        "cuts after which Landfast had lost anything, a handle or a file id among it, or had what nobody made",
        of(Whose::Ours).map(|s| u64::from(s.cuts_with_losses)).sum::<u64>() as f64,
        0.0,
    ));
    found.checks.push(Check::at_least(
        "operations of Landfast's that were checked after the cuts, the fewest of a line",
        of(Whose::Ours).map(|s| s.all.checked).min().unwrap_or(0) as f64,
        1.0,
    ));
    found.checks.push(Check::at_least(
        "operations that a server that lies has lost: the check finds them",
        of(Whose::NotDurable).map(|s| s.all.lost).max().unwrap_or(0) as f64,
        1.0,
    ));
    found.absent = absent;
    found.notes = vec![
        "each cut comes at a random moment of work with all kinds of operations; of what no flush covered some survives or none does; then \
         `landfast verify check` asks for everything that was acknowledged"
            .to_owned(),
    ];
    Ok(found)
}
