//! `landfast serve`: opens the volumes, serves them until a signal, stops cleanly. SIGHUP reads the file again.

pub mod admit;
pub mod args;
pub mod config;

use crate::exit::{Exit, failed, ok_or_print, runtime};
use crate::units::{show_bytes, show_count};
use args::{DurabilityArg, RpcbindArg, ServeArgs};
use landfast_server::config::{Config, ExportConfig};
use landfast_server::exports::rules::Rules;
use landfast_server::limits::UNSAFE_RISK_SECONDS;
use landfast_server::{Reloaded, Rpcbind, Running, Served, Server, ServerConfig, hidden_by};
use landfast_volume::faults::ACCEPT_WEAK;
use landfast_volume::{
    Durability, Experiment, LogPlace, OpenError, OpenOptions, RecoveryReport, Volume, faults,
};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

pub fn run(args: ServeArgs) -> Exit {
    match faults::from_environment() {
        Ok(None) => {}
        Ok(Some(what)) => {
            eprintln!("landfast: WARNING: {what}: this server breaks its promises, for tests only");
        }
        Err(err) => return failed(err),
    }
    runtime().map_or(Exit::Failed, |runtime| runtime.block_on(serve(&args)))
}

async fn serve(args: &ServeArgs) -> Exit {
    let started = Instant::now();
    if let Some(file) = &args.config {
        return serve_config(args, file, started).await;
    }
    let Some(dir) = &args.dir else {
        return failed("name a directory, or a file with --config");
    };
    if args.durability == DurabilityArg::Log && args.log.is_none() {
        return failed("--durability log needs a log: name a file or device with --log PATH");
    }
    let log = args.log_place();
    if log.as_ref().is_some_and(LogPlace::is_mirror_of_itself) {
        return failed("the log would be its own mirror: name another file or device with --log-mirror");
    }
    let Some(admitted) = ok_or_print(admit::admit(args)) else { return Exit::Failed };
    if args.unprivileged && !admitted.is_local() {
        return failed("--unprivileged serves everyone as one user: only on a loopback address");
    }
    // A signal during recovery must not be lost.
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        return failed("cannot wait for signals");
    };
    let Some((volume, recovery)) = ok_or_print(Volume::open(options(args, dir, log))) else {
        return Exit::Failed;
    };
    let export = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
    eprintln!("landfast: exports {} to {}", export.display(), admitted.words(args.unprivileged));
    say_recovery(&recovery, volume.durability());
    warn_of_unsafe(volume.durability());
    warn_of_hidden(&export);
    if args.unprivileged {
        eprintln!(
            "landfast: WARNING: --unprivileged is for experiments: nothing can be recovered after a crash"
        );
    }
    let served = Served {
        volume,
        recovery,
        path: export,
        name: PathBuf::from("/"),
        rules: Rules(vec![admitted.rule.clone()]),
        manage_gids: false,
    };
    let mut config = ServerConfig::of(vec![served], admitted.listen.clone());
    config.metrics = args.metrics;
    config.protocols = args.protocols;
    config.lease_seconds = args.lease.as_secs().clamp(1, u64::from(u32::MAX)) as u32;
    let rpcbind = match args.rpcbind {
        RpcbindArg::Auto => Rpcbind::Auto,
        RpcbindArg::Off => Rpcbind::Off,
        RpcbindArg::Require => Rpcbind::Require,
    };
    config.port_mapper = rpcbind.at(&admitted.listen);
    let Some(running) = ok_or_print(Server::start(config).await) else { return Exit::Failed };
    say_restored(&running, args.lease.as_secs());
    say_serving(&running, &[(dir.clone(), PathBuf::from("/"))], started.elapsed());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop(running, args.stats_file.as_deref()).await
}

async fn serve_config(args: &ServeArgs, file: &Path, started: Instant) -> Exit {
    let signals =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()));
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) = signals else {
        return failed("cannot wait for signals");
    };
    let mut config = match config::read(file) {
        Ok(config) => config,
        Err(problems) => {
            problems.iter().for_each(|p| eprintln!("landfast: {p}"));
            return Exit::Failed;
        }
    };
    // This must come before a log is made there.
    let exposed = config::exposed(file, &config);
    if !exposed.is_empty() {
        exposed.iter().for_each(|p| eprintln!("landfast: {p}"));
        return Exit::Failed;
    }
    let mut served = Vec::with_capacity(config.exports.len());
    let mut unavailable = Vec::new();
    for e in &config.exports {
        let (volume, recovery) = match open(args, e) {
            Ok(opened) => opened,
            Err(err) => {
                eprintln!("landfast: {}:{}: {}: {err}", file.display(), e.line, e.path.display());
                // The other exports are served, unless the file itself is wrong.
                if landfast_server::is_overlap(&err) {
                    return Exit::Failed;
                }
                unavailable.push(e.unavailable(&err));
                continue;
            }
        };
        served.push(e.served(volume, recovery));
    }
    if served.is_empty() {
        return Exit::Failed;
    }
    if let [only] = &served[..]
        && only.name == Path::new("/")
    {
        warn_of_hidden(&only.path);
    }
    let dirs: Vec<_> = served.iter().map(|s| (s.path.clone(), s.name.clone())).collect();
    let mut start = ServerConfig::of(served, config.listen.clone());
    start.unavailable = unavailable;
    (start.lease_seconds, start.limits, start.metrics) =
        (config.lease_seconds, config.limits, config.metrics);
    start.protocols = config.protocols;
    start.port_mapper = config.rpcbind.at(&config.listen);
    start.workers = config.workers.unwrap_or(start.workers);
    let Some(running) = ok_or_print(Server::start(start).await) else { return Exit::Failed };
    say_restored(&running, u64::from(config.lease_seconds));
    say_serving(&running, &dirs, started.elapsed());
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => reload(args, file, &running, &mut config).await,
        }
    }
    stop(running, args.stats_file.as_deref()).await
}

/// SIGHUP: applies the whole file, or nothing of it.
async fn reload(args: &ServeArgs, file: &Path, running: &Running, config: &mut Config) {
    let unchanged = |why: &dyn std::fmt::Display| eprintln!("landfast: {why}; nothing has changed");
    let new = match config::read(file) {
        Ok(new) => new,
        Err(problems) => return problems.iter().for_each(|p| unchanged(p)),
    };
    let exposed = config::exposed(file, &new);
    if !exposed.is_empty() {
        return exposed.iter().for_each(|p| unchanged(p));
    }
    match running.reload(config, &new, |e| open(args, e)).await {
        Ok(done) => {
            say_reloaded(file, &new, &done);
            // The old values stay: what needs a restart is reported until there was one.
            *config = Config {
                listen: config.listen.clone(),
                lease_seconds: config.lease_seconds,
                limits: config.limits,
                metrics: config.metrics,
                protocols: config.protocols,
                rpcbind: config.rpcbind,
                workers: config.workers,
                ..new
            };
        }
        Err(why) => unchanged(&format!("{}: {why}", file.display())),
    }
}

fn say_reloaded(file: &Path, config: &Config, done: &Reloaded) {
    eprintln!("landfast: {} read again: {} exports", file.display(), config.exports.len());
    done.added.iter().for_each(|p| eprintln!("landfast: {} is served now", p.display()));
    done.unavailable.iter().for_each(|(path, why)| {
        eprintln!("landfast: WARNING: {} still cannot be served: {why}", path.display());
    });
    done.removed.iter().for_each(|p| eprintln!("landfast: {} is served no more", p.display()));
    done.needs_restart.iter().for_each(|what| {
        eprintln!("landfast: WARNING: {what} has changed in the file: it needs a restart to take effect");
    });
    done.not_clean.iter().for_each(|why| eprintln!("landfast: WARNING: not stopped cleanly: {why}"));
}

/// Opens the volume of an export and prints what it found.
fn open(args: &ServeArgs, e: &ExportConfig) -> Result<(Volume, RecoveryReport), OpenError> {
    let (volume, recovery) = Volume::open(OpenOptions {
        log: e.log.clone(),
        log_size: e.log_size,
        strict_recovery: e.strict_recovery,
        accept_weak: accepts_weak(args),
        experiment: experiment(args),
        ..OpenOptions::new(&e.path, e.durability)
    })?;
    say_recovery(&recovery, volume.durability());
    warn_of_unsafe(volume.durability());
    Ok((volume, recovery))
}

fn warn_of_unsafe(durability: Durability) {
    if durability == Durability::Unsafe {
        eprintln!(
            "landfast: WARNING: durability unsafe answers before data is stable: a power cut loses up to {UNSAFE_RISK_SECONDS} \
             seconds of acknowledged work"
        );
    }
}

/// Warns if the export's own path leads to something else: the server's root export is also visible under its path,
/// unless it contains something of that name.
fn warn_of_hidden(export: &Path) {
    if let Some(by) = hidden_by(export) {
        eprintln!(
            "landfast: WARNING: clients of version 4 that mount server:{} get {}, since that has the same name: mount server:/ for \
             the export itself",
            export.display(),
            by.display()
        );
    }
}

/// The operator says that a filesystem which seems unable to keep the promise can keep it, or need not.
fn accepts_weak(args: &ServeArgs) -> bool {
    args.accept_weak || std::env::var_os(ACCEPT_WEAK).is_some()
}

fn options(args: &ServeArgs, dir: &Path, log: Option<LogPlace>) -> OpenOptions {
    let durability = match args.durability {
        DurabilityArg::Log => Durability::Log,
        DurabilityArg::Sync => Durability::Sync,
        DurabilityArg::Unsafe => Durability::Unsafe,
    };
    OpenOptions {
        log,
        log_size: args.log_size,
        strict_recovery: args.strict_recovery,
        accept_weak: accepts_weak(args),
        experiment: experiment(args),
        ..OpenOptions::new(dir, durability)
    }
}

fn experiment(args: &ServeArgs) -> Experiment {
    Experiment {
        injected_flush: args.inject_volume_flush,
        injected_log_flush: args.inject_log_flush,
        unprivileged: args.unprivileged,
    }
}

fn say_recovery(r: &RecoveryReport, durability: Durability) {
    if durability != Durability::Log {
        return;
    }
    if r.clean {
        eprintln!("landfast: clean start: nothing to recover ({:.3} s)", r.seconds);
    } else {
        eprintln!(
            "landfast: recovered {} records, {}; {} lost objects made again ({:.3} s)",
            show_count(r.records),
            show_bytes(r.bytes),
            show_count(r.remade),
            r.seconds
        );
    }
    let local = r.local.len() as u64 + r.local_more;
    if local > 0 {
        eprintln!(
            "landfast: WARNING: somebody else changed the directory: {} cases, each reported and resolved above \
             (docs/internals/recovery.md)",
            show_count(local)
        );
    }
}

fn say_restored(running: &Running, lease_seconds: u64) {
    let restored = running.restored();
    if restored.clients > 0 {
        eprintln!(
            "landfast: {} clients and {} sessions go on; {} may reclaim opens and locks for {} s",
            restored.clients, restored.sessions, restored.reclaiming, lease_seconds
        );
    }
}

/// `dirs`: each directory with the path under which clients find it.
fn say_serving(running: &Running, dirs: &[(PathBuf, PathBuf)], took: Duration) {
    if let Some(addr) = running.metrics_addr() {
        eprintln!("landfast: metrics at http://{addr}/metrics");
    }
    for (volume, (dir, name)) in running.volumes().iter().zip(dirs) {
        let durability = match (volume.durability(), volume.log_info()) {
            (Durability::Log, Some(device)) => format!("log {device}"),
            (Durability::Log, None) => "log".to_owned(),
            (Durability::Sync, _) => "no log, every operation is synced".to_owned(),
            (Durability::Unsafe, _) => "NOT DURABLE".to_owned(),
        };
        let name = name.to_string_lossy();
        let name = name.trim_start_matches('/');
        let at: Vec<_> = running.local_addrs().iter().map(|a| format!("nfs://{a}/{name}")).collect();
        let at = at.join(" ");
        eprintln!(
            "landfast: serving {} at {at} ({durability}); ready after {:.3} s",
            dir.display(),
            took.as_secs_f64()
        );
        if let Some(trouble) = volume.stats().log.and_then(|log| log.trouble) {
            eprintln!("landfast: WARNING: {}: {trouble}", dir.display());
        }
    }
}

async fn stop(running: Running, stats_file: Option<&Path>) -> Exit {
    let server = running.stats();
    let volumes = running.volumes();
    let result = running.stop().await;
    if let Some(path) = stats_file
        && let Err(e) = std::fs::write(path, format!("{}\n", counters(&server, &sum(&volumes))))
    {
        eprintln!("landfast: {}: {e}", path.display());
    }
    match result {
        Ok(stopped) => {
            eprintln!(
                "landfast: stopped cleanly after {} requests ({} modifying operations): checkpoint in {:.3} s{}",
                show_count(requests(&server)),
                show_count(server.modifying_ops),
                stopped.volume.seconds,
                if stopped.drained { "" } else { "; some requests were still under way" }
            );
            Exit::Done
        }
        Err(e) => {
            let why = volumes.iter().find_map(Volume::failed).unwrap_or_else(|| e.to_string());
            eprintln!(
                "landfast: stopped, but not cleanly: {why}; the log is kept, and the next start recovers from it"
            );
            Exit::Partly
        }
    }
}

/// The requests of all versions: COMPOUNDs, and procedures of version 3.
fn requests(server: &landfast_server::Stats) -> u64 {
    server.compounds + server.v3_procedures.iter().map(|(_, n)| n).sum::<u64>()
}

fn sum(volumes: &[Volume]) -> landfast_volume::Stats {
    let mut all = landfast_volume::Stats::default();
    for one in volumes.iter().map(Volume::stats) {
        all.fsyncs += one.fsyncs;
        all.fdatasyncs += one.fdatasyncs;
        all.syncfs += one.syncfs;
        match (&mut all.log, one.log) {
            (Some(sum), Some(log)) => {
                sum.records += log.records;
                sum.record_bytes += log.record_bytes;
                sum.batches += log.batches;
                sum.batch_bytes += log.batch_bytes;
                sum.flushes += log.flushes;
                sum.checkpoints += log.checkpoints;
            }
            (sum @ None, log) => *sum = log,
            (Some(_), None) => {}
        }
    }
    all
}

fn counters(server: &landfast_server::Stats, volume: &landfast_volume::Stats) -> serde_json::Value {
    let ops: serde_json::Map<String, serde_json::Value> =
        server.ops.iter().map(|(op, n)| (op.to_string(), json!(n))).collect();
    let log = volume.log.as_ref().map(|log| {
        json!({
            "records": log.records, "record_bytes": log.record_bytes, "batches": log.batches,
            "batch_bytes": log.batch_bytes, "flushes": log.flushes, "checkpoints": log.checkpoints,
        })
    });
    json!({
        "compounds": server.compounds, "modifying_ops": server.modifying_ops, "replays": server.replays, "ops": ops,
        "fsyncs": volume.fsyncs, "fdatasyncs": volume.fdatasyncs, "syncfs": volume.syncfs, "log": log,
    })
}
