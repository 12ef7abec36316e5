//! `landfast serve`: opens the volumes, serves them until a signal, stops cleanly. SIGHUP reads the file again.

pub mod admit;
pub mod args;
mod byte_budget;
pub mod config;

use crate::exit::{Exit, failed, ok_or_print, runtime};
use crate::units::{show_bytes, show_count};
use args::{DurabilityArg, RpcbindArg, ServeArgs};
use byte_budget::ByteBudget;
use landfast_server::config::{Config, ExportConfig};
use landfast_server::exports::Features;
use landfast_server::exports::rules::Rules;
use landfast_server::limited::Limits;
use landfast_server::limits::{EXPORTS_AT_ONCE, LOGS_OPENED_BYTES_MAX, UNSAFE_RISK_SECONDS};
use landfast_server::{Reloaded, Rpcbind, Running, Server, ServerConfig, hidden_by, parallel};
use landfast_volume::faults::ACCEPT_WEAK;
use landfast_volume::{
    Durability, Experiment, LogPlace, OpenError, OpenOptions, RecoveryReport, Volume, faults,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub fn run(args: ServeArgs) -> Exit {
    match faults::from_environment() {
        Ok(None) => {}
        Ok(Some(what)) => {
            eprintln!("landfast: WARNING: {what}: this server breaks its promises, for tests only");
        }
        Err(err) => return failed(err),
    }
    // On the heap: the runtime would compile the whole of it once for each of its schedulers.
    let serving: Pin<Box<dyn Future<Output = Exit>>> = Box::pin(serve(&args));
    runtime().map_or(Exit::Failed, |runtime| {
        let exit = runtime.block_on(serving);
        // A thread may still open what a reload was to add, whose disk does not answer.
        runtime.shutdown_background();
        exit
    })
}

async fn serve(args: &ServeArgs) -> Exit {
    let started = Instant::now();
    // Signals are caught from here on: one that comes during recovery must not be lost. Without a file SIGHUP ends the
    // process.
    let hangup = args.config.as_ref().map(|_| signal(SignalKind::hangup())).transpose();
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), hangup);
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) = signals else {
        return failed("cannot wait for signals");
    };
    let settings = match &args.config {
        Some(file) => config::read_and_check(file).map(|(config, unseen)| (config, unseen, None)),
        None => ok_or_print(from_arguments(args)).map(|(config, whom)| (config, BTreeMap::new(), Some(whom))),
    };
    let Some((mut config, unseen, whom)) = settings else { return Exit::Failed };
    let (mut served, mut unavailable) = (Vec::new(), Vec::new());
    let mut dirs = Vec::new();
    for (e, opened) in config.exports.iter().zip(open_all(args, &config.exports, unseen)) {
        let (volume, recovery) = match (opened, &args.config) {
            (Ok(opened), _) => opened,
            (Err(err), None) => return failed(err),
            (Err(err), Some(file)) => {
                eprintln!("landfast: {}:{}: {}: {err}", file.display(), e.line, e.path.display());
                // The other exports are served, unless the file itself is wrong.
                if landfast_server::is_overlap(&err) {
                    return Exit::Failed;
                }
                unavailable.push(e.unavailable(&err));
                continue;
            }
        };
        let mut export = e.served(volume, recovery);
        if let Some(whom) = &whom {
            export.path = std::fs::canonicalize(&e.path).unwrap_or(export.path);
            eprintln!("landfast: exports {} to {whom}", export.path.display());
        }
        say_opened(&export.volume, &export.recovery);
        dirs.push((export.volume.id(), e.path.clone(), e.name.clone()));
        served.push(export);
    }
    if served.is_empty() {
        return Exit::Failed;
    }
    if let [only] = &served[..]
        && only.name == Path::new("/")
    {
        warn_of_hidden(&only.path);
    }
    if args.unprivileged {
        eprintln!(
            "landfast: WARNING: --unprivileged is for experiments: nothing can be recovered after a crash"
        );
    }
    let mut start = ServerConfig::of(served, config.listen.clone());
    start.unavailable = unavailable;
    (start.lease_seconds, start.limits, start.metrics) =
        (config.lease_seconds, config.limits, config.metrics);
    start.protocols = config.protocols;
    start.port_mapper = config.rpcbind.at(&config.listen);
    start.workers = config.workers.unwrap_or(start.workers);
    let Some(running) = ok_or_print(Server::start(start).await) else { return Exit::Failed };
    say_restored(&running, config.lease_seconds);
    say_serving(&running, &dirs, started.elapsed());
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = next(&mut hangup) => if let Some(file) = &args.config {
                // It may wait for a disk; whoever stops the server does not.
                tokio::select! {
                    () = reload(args, file, &running, &mut config) => {}
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                }
            },
        }
    }
    stop(running, args.stats_file.as_deref()).await
}

/// Waits for a signal; for ever if it is not caught.
async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// What `serve DIR` serves, as a file would say it; and in words, to whom.
fn from_arguments(args: &ServeArgs) -> Result<(Config, String), String> {
    let Some(dir) = &args.dir else { return Err("name a directory, or a file with --config".into()) };
    let durability = match args.durability {
        DurabilityArg::Log => Durability::Log,
        DurabilityArg::Sync => Durability::Sync,
        DurabilityArg::Unsafe => Durability::Unsafe,
    };
    if durability == Durability::Log && args.log.is_none() {
        return Err("--durability log needs a log: name a file or device with --log PATH".into());
    }
    let log = args.log_place();
    if log.as_ref().is_some_and(LogPlace::is_mirror_of_itself) {
        return Err("the log would be its own mirror: name another file or device with --log-mirror".into());
    }
    let admitted = admit::admit(args)?;
    if args.unprivileged && !admitted.is_local() {
        return Err("--unprivileged serves everyone as one user: only on a loopback address".into());
    }
    let whom = admitted.words(args.unprivileged);
    let export = ExportConfig {
        path: dir.clone(),
        name: PathBuf::from("/"),
        rules: Rules(vec![admitted.rule]),
        durability,
        log,
        log_size: args.log_size,
        strict_recovery: args.strict_recovery,
        manage_gids: false,
        mount_point: None,
        features: Features::default(),
        line: 0,
    };
    let config = Config {
        listen: admitted.listen,
        lease_seconds: args.lease.as_secs().clamp(1, u64::from(u32::MAX)) as u32,
        limits: Limits::default(),
        metrics: args.metrics,
        protocols: args.protocols,
        rpcbind: match args.rpcbind {
            RpcbindArg::Auto => Rpcbind::Auto,
            RpcbindArg::Off => Rpcbind::Off,
            RpcbindArg::Require => Rpcbind::Require,
        },
        workers: None,
        exports: vec![export],
    };
    Ok((config, whom))
}

/// SIGHUP: applies the whole file, or nothing of it.
async fn reload(args: &ServeArgs, file: &Path, running: &Running, config: &mut Config) {
    let unchanged = |why: &dyn std::fmt::Display| eprintln!("landfast: {why}; nothing has changed");
    let new = match config::read(file) {
        Ok(new) => new,
        Err(problems) => return problems.iter().for_each(|p| unchanged(p)),
    };
    // It may wait for a disk; signals do not.
    let (named, looked_at) = (file.to_owned(), new.clone());
    let looked = tokio::task::spawn_blocking(move || config::look(&named, &looked_at)).await;
    let exposed = match looked {
        Ok(looked) => looked.exposed,
        Err(panic) => return unchanged(&panic),
    };
    if !exposed.is_empty() {
        return exposed.iter().for_each(|p| unchanged(p));
    }
    let how = Opening::of(args);
    let open = move |e: &ExportConfig| how.open(e).inspect(|(volume, recovery)| say_opened(volume, recovery));
    match running.reload(config, &new, open).await {
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

/// Opens the exports, several at a time, but for those that cannot be looked at.
fn open_all(
    args: &ServeArgs,
    exports: &[ExportConfig],
    mut unseen: BTreeMap<usize, OpenError>,
) -> Vec<Result<(Volume, RecoveryReport), OpenError>> {
    let logs = ByteBudget::new(LOGS_OPENED_BYTES_MAX);
    let how = Opening::of(args);
    let seen: Vec<_> =
        exports.iter().enumerate().filter(|(n, _)| !unseen.contains_key(n)).map(|(_, e)| e).collect();
    let mut opened = parallel::each(&seen, EXPORTS_AT_ONCE, |e| {
        let bytes = e.log.as_ref().map_or(0, |log| file_bytes(log.first_path()));
        let _held = logs.take(bytes);
        how.open(e)
    })
    .into_iter();
    (0..exports.len()).filter_map(|n| unseen.remove(&n).map(Err).or_else(|| opened.next())).collect()
}

/// Bytes of a file or a block device. Of one that cannot be opened, 0: the log says why.
fn file_bytes(path: &Path) -> u64 {
    let end = std::fs::File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
    end.unwrap_or(0)
}

/// How all exports are opened.
#[derive(Debug, Clone, Copy)]
struct Opening {
    accept_weak: bool,
    experiment: Experiment,
}

impl Opening {
    fn of(args: &ServeArgs) -> Opening {
        Opening {
            // The operator says that a filesystem which seems unable to keep the promise can keep it, or need not.
            accept_weak: args.accept_weak || std::env::var_os(ACCEPT_WEAK).is_some(),
            experiment: Experiment {
                injected_flush: args.inject_volume_flush,
                injected_log_flush: args.inject_log_flush,
                unprivileged: args.unprivileged,
            },
        }
    }

    fn open(&self, e: &ExportConfig) -> Result<(Volume, RecoveryReport), OpenError> {
        Volume::open(OpenOptions {
            log: e.log.clone(),
            log_size: e.log_size,
            strict_recovery: e.strict_recovery,
            mount_point: e.mount_point.clone(),
            accept_weak: self.accept_weak,
            experiment: self.experiment,
            ..OpenOptions::new(&e.path, e.durability)
        })
    }
}

fn say_opened(volume: &Volume, recovery: &RecoveryReport) {
    if recovery.made {
        eprintln!(
            "landfast: made a new volume in {}; if a disk should be mounted there, stop the server and mount it \
             first (mountpoint in docs/exports.md)",
            volume.dir().display()
        );
    }
    say_recovery(recovery, volume.durability());
    if volume.durability() == Durability::Unsafe {
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

fn say_restored(running: &Running, lease_seconds: u32) {
    let restored = running.restored();
    if restored.clients > 0 {
        eprintln!(
            "landfast: {} clients and {} sessions go on; {} may reclaim opens and locks for {} s",
            restored.clients, restored.sessions, restored.reclaiming, lease_seconds
        );
    }
}

/// `dirs`: each volume's directory with the path under which clients find it.
fn say_serving(running: &Running, dirs: &[([u8; 16], PathBuf, PathBuf)], took: Duration) {
    if let Some(addr) = running.metrics_addr() {
        eprintln!("landfast: metrics at http://{addr}/metrics");
    }
    for volume in running.volumes() {
        let Some((_, dir, name)) = dirs.iter().find(|(id, ..)| *id == volume.id()) else { continue };
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
