//! `landfast serve`: opens the volume, serves it until a signal, stops cleanly.

use crate::args::{DurabilityArg, ServeArgs};
use crate::exit::{Exit, complain};
use crate::units::{show_bytes, show_count};
use landfast_server::{Running, Server, ServerConfig};
use landfast_volume::{Durability, OpenOptions, RecoveryReport, Volume};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Seconds of acknowledged work that `--durability unsafe` risks: how long the kernel may keep a page dirty
/// (`vm.dirty_expire_centisecs`, 30 s unless changed) and the time to write it.
const UNSAFE_RISK_SECONDS: u32 = 35;

/// Serves until SIGTERM or SIGINT.
pub fn run(args: ServeArgs) -> Exit {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("landfast: cannot start threads: {e}");
            return Exit::Failed;
        }
    };
    runtime.block_on(serve(&args))
}

async fn serve(args: &ServeArgs) -> Exit {
    let started = Instant::now();
    if args.unprivileged && !args.listen.ip().is_loopback() {
        eprintln!("landfast: --unprivileged serves everyone as one user: only on a loopback address");
        return Exit::Failed;
    }
    // A stop during recovery must not be lost.
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        eprintln!("landfast: cannot wait for signals");
        return Exit::Failed;
    };
    let (volume, recovery) = match Volume::open(options(args)) {
        Ok(opened) => opened,
        Err(e) => {
            complain(&e);
            return Exit::Failed;
        }
    };
    say_recovery(&recovery, args.durability);
    if args.durability == DurabilityArg::Unsafe {
        eprintln!(
            "landfast: WARNING: --durability unsafe answers before data is stable: a power cut loses up to {UNSAFE_RISK_SECONDS} \
             seconds of acknowledged work"
        );
    }
    if args.unprivileged {
        eprintln!(
            "landfast: WARNING: --unprivileged is for experiments: nothing can be recovered after a crash"
        );
    }
    let export = std::fs::canonicalize(&args.dir).unwrap_or_else(|_| args.dir.clone());
    let mut config = ServerConfig::new(volume, recovery, args.listen, export);
    config.lease_seconds = args.lease.as_secs().clamp(1, u64::from(u32::MAX)) as u32;
    let running = match Server::start(config).await {
        Ok(running) => running,
        Err(e) => {
            complain(&e);
            return Exit::Failed;
        }
    };
    say_serving(args, &running, started.elapsed());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop(running, args.stats_file.as_deref()).await
}

fn options(args: &ServeArgs) -> OpenOptions {
    let durability = match args.durability {
        DurabilityArg::Log => Durability::Log,
        DurabilityArg::Sync => Durability::Sync,
        DurabilityArg::Unsafe => Durability::Unsafe,
    };
    OpenOptions {
        log: args.log.clone(),
        log_size: args.log_size,
        injected_flush: args.inject_volume_flush,
        injected_log_flush: args.inject_log_flush,
        unprivileged: args.unprivileged,
        ..OpenOptions::new(&args.dir, durability)
    }
}

fn say_recovery(r: &RecoveryReport, durability: DurabilityArg) {
    if durability != DurabilityArg::Log {
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
}

fn say_serving(args: &ServeArgs, running: &Running, took: Duration) {
    let restored = running.restored();
    if restored.clients > 0 {
        eprintln!(
            "landfast: {} clients and {} sessions go on; {} may reclaim opens and locks for {} s",
            restored.clients,
            restored.sessions,
            restored.reclaiming,
            args.lease.as_secs()
        );
    }
    let durability = match (args.durability, running.volumes().first().and_then(|v| v.log_info())) {
        (DurabilityArg::Log, Some(device)) => format!("log {device}"),
        (DurabilityArg::Log, None) => "log".to_owned(),
        (DurabilityArg::Sync, _) => "no log, every operation is synced".to_owned(),
        (DurabilityArg::Unsafe, _) => "NOT DURABLE".to_owned(),
    };
    eprintln!(
        "landfast: serving {} at nfs://{}/ ({durability}); ready after {:.3} s",
        args.dir.display(),
        running.local_addr(),
        took.as_secs_f64()
    );
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
                show_count(server.compounds),
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

/// The counters of all volumes together.
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
