//! The configuration file: reading it, `landfast check`, `landfast exports`.

use super::args::{CheckArgs, ExportsArgs};
use crate::exit::Exit;
use crate::table::table;
use landfast_server::config::{self, Config, ExportConfig};
use landfast_server::exports::rules::{Rule, Squash};
use landfast_server::limits::CONFIG_BYTES_MAX;
use landfast_server::own_files::{self, Exported, OwnFile};
use landfast_volume::{Durability, LogPlace, OpenError};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Reads the file. The error has one line for each mistake in it.
pub fn read(path: &Path) -> Result<Config, Vec<String>> {
    let name = path.display();
    let cannot = |e: &dyn std::fmt::Display| vec![format!("{name}: {e}")];
    let file = std::fs::File::open(path).map_err(|e| cannot(&e))?;
    let mut text = String::new();
    let bytes = file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| cannot(&e))?;
    if bytes as u64 > CONFIG_BYTES_MAX {
        return Err(cannot(&format!("more than {CONFIG_BYTES_MAX} bytes: this is no configuration")));
    }
    let problems = |all: Vec<config::Problem>| all.iter().map(|p| format!("{name}:{p}")).collect();
    config::parse(&text).map_err(problems)
}

/// [`read`] for a command that ends when the file is wrong: prints the mistakes.
fn read_or_print(file: &Path) -> Option<Config> {
    read(file).map_err(|problems| print(&problems)).ok()
}

/// Reads the file and makes sure that no export exposes the server's own files, before a log is made there. Prints
/// what is wrong. Also returns why exports cannot be looked at, by their numbers.
pub fn read_and_check(file: &Path) -> Option<(Config, BTreeMap<usize, OpenError>)> {
    let config = read_or_print(file)?;
    let Looked { exposed, unseen } = look(file, &config);
    print(&exposed);
    exposed.is_empty().then_some((config, unseen))
}

fn print(problems: &[String]) {
    problems.iter().for_each(|p| eprintln!("landfast: {p}"));
}

/// `landfast check`: exit status 0 if nothing is wrong, else 1.
pub fn check(args: &CheckArgs) -> Exit {
    let problems = match read(&args.config) {
        Ok(config) => {
            let missing = config.exports.iter().filter_map(|e| missing(&args.config, e));
            let Looked { exposed, unseen } = look(&args.config, &config);
            let at = |n: &usize| config.exports.get(*n).map_or(1, |e| e.line);
            let unseen =
                unseen.iter().map(|(n, err)| format!("{}:{}:1: {err}", args.config.display(), at(n)));
            missing.chain(exposed).chain(unseen).collect()
        }
        Err(problems) => problems,
    };
    for p in &problems {
        eprintln!("{p}");
    }
    if problems.is_empty() { Exit::Done } else { Exit::Partly }
}

/// What an export names and this machine does not have.
fn missing(file: &Path, e: &ExportConfig) -> Option<String> {
    let at = format!("{}:{}:1", file.display(), e.line);
    if !e.path.is_dir() {
        return Some(format!("{at}: {} is no directory on this machine", e.path.display()));
    }
    let log = e.log.as_ref()?.first_path();
    let parent = log.parent().filter(|_| !log.exists())?;
    (!parent.is_dir()).then(|| {
        format!("{at}: the log {} cannot be made: {} is no directory", log.display(), parent.display())
    })
}

/// What a look at the exports and the server's own files has found.
pub struct Looked {
    /// The server's own files that are inside of an export, each with the line of the export whose file it is.
    pub exposed: Vec<String>,
    /// Exports that could not be looked at, by their numbers, and why. What this user may not look at is left to the start of the server.
    pub unseen: BTreeMap<usize, OpenError>,
}

pub fn look(file: &Path, config: &Config) -> Looked {
    let own_files::Looked { exposed, mut unseen } = own_files::look(&config.exports);
    let denied = |err: &OpenError| matches!(err, OpenError::Io { err, .. } if err.kind() == ErrorKind::PermissionDenied);
    unseen.retain(|_, err| !denied(err));
    let line = |n: usize| config.exports.get(n).map_or(1, |e| e.line);
    let exported = Exported::new(config.exports.iter().map(|e| e.path.as_path()));
    let of_config = match exported.exposure(&OwnFile::config(file)) {
        Err(e) if e.kind() != ErrorKind::PermissionDenied => Some(format!("{}: {e}", file.display())),
        found => found.ok().flatten(),
    };
    let exposed = exposed.into_iter().map(|(n, why)| (line(n), why));
    let exposed = exposed.chain(of_config.map(|why| (1, why)));
    let exposed = exposed.map(|(line, why)| format!("{}:{line}:1: {why}", file.display())).collect();
    Looked { exposed, unseen }
}

fn durability(d: Durability) -> &'static str {
    match d {
        Durability::Log => "log",
        Durability::Sync => "sync",
        Durability::Unsafe => "unsafe",
    }
}

fn options(rule: &Rule) -> Vec<String> {
    let mut all = vec![if rule.read_only { "ro" } else { "rw" }.to_owned()];
    all.push(
        match rule.squash {
            Squash::Root => "root_squash",
            Squash::Nobody => "no_root_squash",
            Squash::All => "all_squash",
        }
        .to_owned(),
    );
    all.push(if rule.secure { "secure" } else { "insecure" }.to_owned());
    all.push(format!("anonuid={}", rule.anonuid));
    all.push(format!("anongid={}", rule.anongid));
    all.push(format!("sec={}", flavors(rule).join(":")));
    all
}

fn flavors(rule: &Rule) -> Vec<&'static str> {
    [(rule.sys, "sys"), (rule.none, "none")].into_iter().filter(|(t, _)| *t).map(|(_, n)| n).collect()
}

pub fn exports(args: &ExportsArgs) -> Exit {
    let Some(config) = read_or_print(&args.config) else { return Exit::Failed };
    if args.json {
        let all: Vec<_> = config.exports.iter().map(to_json).collect();
        println!("{}", json!(all));
        return Exit::Done;
    }
    let header = ["NAME", "PATH", "DURABILITY", "CLIENTS", "OPTIONS"];
    let mut table = table(header, header.len());
    for e in &config.exports {
        for (i, rule) in e.rules.0.iter().enumerate() {
            let once = |text: String| if i == 0 { text } else { String::new() };
            let from: Vec<_> = rule.from.iter().map(ToString::to_string).collect();
            table.add_row([
                once(e.name.display().to_string()),
                once(e.path.display().to_string()),
                once(durability(e.durability).to_owned()),
                from.join(" "),
                options(rule).join(","),
            ]);
        }
    }
    println!("{table}");
    Exit::Done
}

fn to_json(e: &ExportConfig) -> serde_json::Value {
    let clients = e.rules.0.iter().map(|rule| {
        let from: Vec<_> = rule.from.iter().map(ToString::to_string).collect();
        json!({
            "from": from, "read_only": rule.read_only, "secure": rule.secure,
            "squash": match rule.squash { Squash::Root => "root", Squash::Nobody => "none", Squash::All => "all" },
            "anonuid": rule.anonuid, "anongid": rule.anongid, "sec": flavors(rule),
        })
    });
    let clients: Vec<_> = clients.collect();
    let log = e.log.as_ref().map(LogPlace::first_path);
    json!({
        "name": e.name, "path": e.path, "durability": durability(e.durability), "log": log,
        "manage_gids": e.manage_gids, "acls": e.features.acls, "xattrs": e.features.xattrs,
        "delegations": e.features.delegations.name(), "write_delegations": e.features.write_delegations, "clients": clients,
    })
}
