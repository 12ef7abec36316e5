//! Measures the log alone: `cargo run --release -p landfast-intentlog --example latency -- PATH [THREADS] [FLUSH_US] [SECONDS]`
//!
//! Each thread appends a record of 300 bytes and waits for it, again and again. FLUSH_US makes each flush take
//! at least that many microseconds (on a device that is faster, such as a file in /dev/shm), so that what the
//! log itself adds can be read off. Prints the latency of an operation and of a flush, and flushes per operation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use landfast_intentlog::{Checkpoint, Config, Log};

struct Nothing;

impl Checkpoint for Nothing {
    fn snapshot(&self) -> Box<dyn landfast_intentlog::Snapshot> {
        Box::new(Vec::new())
    }
    fn sync(&self, _number: u64) -> std::io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: latency PATH [THREADS] [FLUSH_US] [SECONDS]")?;
    let threads: usize = args.next().map_or(Ok(1), |arg| arg.parse())?;
    let flush_us: u64 = args.next().map_or(Ok(0), |arg| arg.parse())?;
    let seconds: u64 = args.next().map_or(Ok(3), |arg| arg.parse())?;
    let mut config = Config::new(&path, 64 << 20, [0; 16]);
    config.injected_flush = (flush_us > 0).then(|| Duration::from_micros(flush_us));
    let (log, _) = Log::open(config)?;
    log.start(Arc::new(Nothing))?;
    println!("{}", log.info());
    let blocking = measure(&log, threads, seconds, false)?;
    report("threads", &log, blocking);
    let tasks = measure(&log, threads, seconds, true)?;
    report("tokio tasks", &log, tasks);
    log.shutdown()?;
    Ok(())
}

struct Run {
    latencies: Vec<Duration>,
    flushes: u64,
    flush_ns: u64,
    elapsed: Duration,
}

fn measure(log: &Log, clients: usize, seconds: u64, tasks: bool) -> Result<Run, Box<dyn std::error::Error>> {
    let before = log.stats();
    let start = Instant::now();
    let until = start + Duration::from_secs(seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut latencies: Vec<Duration> = if tasks {
        let tasks: Vec<_> = (0..clients).map(|_| runtime.spawn(client_async(log.clone(), until))).collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(runtime.block_on(task)?);
        }
        all
    } else {
        let threads: Vec<_> = (0..clients)
            .map(|_| {
                let log = log.clone();
                std::thread::spawn(move || client_blocking(&log, until))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    };
    latencies.sort_unstable();
    let after = log.stats();
    Ok(Run {
        latencies,
        flushes: after.flushes - before.flushes,
        flush_ns: after.flush_ns - before.flush_ns,
        elapsed: start.elapsed(),
    })
}

fn client_blocking(log: &Log, until: Instant) -> Vec<Duration> {
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let start = Instant::now();
        let Ok(mut txn) = log.begin() else { break };
        txn.append(&[42; 300]);
        if txn.commit().wait_blocking().is_err() {
            break;
        }
        latencies.push(start.elapsed());
    }
    latencies
}

async fn client_async(log: Log, until: Instant) -> Vec<Duration> {
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let start = Instant::now();
        if log.admit().await.is_err() {
            break;
        }
        let Ok(mut txn) = log.begin() else { break };
        txn.append(&[42; 300]);
        if txn.commit().wait().await.is_err() {
            break;
        }
        latencies.push(start.elapsed());
    }
    latencies
}

fn report(name: &str, log: &Log, run: Run) {
    let count = run.latencies.len().max(1);
    let at = |percent: usize| run.latencies.get(count * percent / 100).copied().unwrap_or_default();
    println!(
        "{name}: {count} operations, {:.0}/s, p50 {:.1?}, p99 {:.1?}; flush {:.1} us on average; {:.3} flushes/operation; {} checkpoints",
        count as f64 / run.elapsed.as_secs_f64(),
        at(50),
        at(99),
        run.flush_ns as f64 / run.flushes.max(1) as f64 / 1000.0,
        run.flushes as f64 / count as f64,
        log.stats().checkpoints,
    );
}
