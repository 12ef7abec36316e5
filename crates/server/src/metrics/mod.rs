//! The server's metrics for Prometheus, in the OpenMetrics text format.
//!
//! They are collected on request. Each limit stands beside its usage, under the same name. Settings that weaken
//! durability are shown, with the seconds of work at risk. `docs/limits.md` and `docs/metrics.md` describe them.

pub(crate) mod http;

use crate::exports::Exports;
use crate::limits;
use crate::stats::{BUCKETS_US, Stats};
use landfast_volume::{Durability, LogStats, Volume, WAIT_BUCKETS_US, Waits};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt::Error;

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct OfVolume {
    export: String,
    failed: Option<String>,
    durability: Durability,
    stats: landfast_volume::Stats,
}

impl OfVolume {
    fn new(export: String, volume: &Volume) -> OfVolume {
        let failed = volume.failed();
        OfVolume { export: escaped(&export), failed, durability: volume.durability(), stats: volume.stats() }
    }

    fn labels(&self) -> Labels {
        vec![("export", self.export.clone())]
    }

    fn with(&self, label: &'static str, value: &str) -> Labels {
        vec![("export", self.export.clone()), (label, value.to_owned())]
    }
}

#[derive(Debug)]
struct Figures {
    stats: Stats,
    volumes: Vec<OfVolume>,
    unavailable: Vec<(String, String)>,
}

/// Escapes a path for use as a label's value, since the encoder does not.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

pub(crate) fn page(stats: Stats, exports: &Exports) -> String {
    let volumes = exports.iter().map(|e| OfVolume::new(e.path.display().to_string(), &e.volume)).collect();
    let unavailable =
        exports.down().map(|d| (escaped(&d.of.path.display().to_string()), escaped(&d.of.why))).collect();
    text(Figures { stats, volumes, unavailable })
}

fn text(figures: Figures) -> String {
    let mut registry = Registry::with_prefix("landfast");
    registry.register_collector(Box::new(figures));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

/// One metric: a row for each set of labels.
fn rows<M: EncodeMetric>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (Labels, M)>,
) -> Result<(), Error> {
    let mut rows = rows.into_iter().peekable();
    let Some((_, first)) = rows.peek() else { return Ok(()) };
    let mut metric = to.encode_descriptor(name, help, None, first.metric_type())?;
    for (labels, value) in rows {
        if labels.is_empty() {
            value.encode(metric)?;
            return Ok(());
        }
        value.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn counter(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, n: u64) -> Result<(), Error> {
    rows(to, name, help, [(Vec::new(), ConstCounter::new(n))])
}

fn gauge(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, n: usize) -> Result<(), Error> {
    rows(to, name, help, [(Vec::new(), ConstGauge::new(n as i64))])
}

/// A growing counter of the log: name, description, value.
type LogCounter = (&'static str, &'static str, fn(&LogStats) -> u64);

const LOG_COUNTERS: [LogCounter; 11] = [
    ("log_flushes", "Flushes of the log's device", |l| l.flushes),
    ("log_batches", "Batches written, each for all that waited", |l| l.batches),
    ("log_batches_led", "Batches that the request itself wrote, being alone", |l| l.led),
    ("log_batch_bytes", "Bytes of batches written", |l| l.batch_bytes),
    ("log_records", "Records of transactions", |l| l.records),
    ("log_record_bytes", "Bytes of records", |l| l.record_bytes),
    ("log_checkpoints", "Checkpoints completed", |l| l.checkpoints),
    ("log_absorbed", "Checkpoints for want of room in the log", |l| l.absorbed),
    ("log_renewed", "Times that the log was lost and a new one made in its place", |l| l.renewed),
    ("log_admissions_slowed", "Requests that were slowed down while the log was filling", |l| l.admit_slowed),
    ("log_admissions_waited", "Requests that waited for room in the log", |l| l.admit_waited),
];

/// How long requests waited because of the log: name, description, value.
type LogWaits = (&'static str, &'static str, fn(&LogStats) -> &Waits);

const LOG_WAITS: [LogWaits; 2] = [
    ("log_gate_wait_seconds", "Waits of requests while a batch was sealed or a cut made", |l| &l.gate_waits),
    ("log_room_wait_seconds", "Waits of requests while the log was filling", |l| &l.room_waits),
];

impl Figures {
    fn limits(&self, to: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let limited = self.stats.limited();
        let label = |resource: &str| vec![("resource", resource.to_owned())];
        let used = limited.iter().map(|(r, used, _)| (label(r), ConstGauge::new(*used as i64)));
        rows(
            to,
            "used",
            "What is used of a limited resource; client_ and connection_: by the one with most",
            used,
        )?;
        let limit = limited.iter().map(|(r, _, limit)| (label(r), ConstGauge::new(*limit as i64)));
        rows(to, "limit", "The limit of a resource", limit)?;
        let load = &self.stats.load;
        gauge(to, "clients_connected", "Addresses that have connections", load.clients)?;
        gauge(to, "sessions", "Sessions of all clients", self.stats.sessions)?;
        gauge(to, "requests_waiting", "Requests, one a connection, that wait for their turn", load.waiting)?;
        gauge(to, "clients_waiting", "Clients that have such", load.clients_waiting)?;
        counter(to, "connections_refused", "Connections closed when they came", load.refused)
    }

    fn requests(&self, to: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let s = &self.stats;
        counter(to, "compounds", "COMPOUNDs executed", s.compounds)?;
        counter(to, "replays", "Requests answered with the reply that was kept", s.replays)?;
        counter(to, "calls_refused", "Calls from addresses that no export names", s.calls_refused)?;
        counter(to, "modifying_operations", "Operations that changed something", s.modifying_ops)?;
        let unlinked = "Files that were removed while they are open, and are kept until they are closed";
        gauge(to, "unlinked_files", unlinked, s.unlinked_files)?;
        gauge(to, "delegations", "Delegations that clients hold", s.delegations)?;
        let unlogged = s.delegations_unlogged;
        gauge(to, "delegations_unlogged", "Of these, those that the log does not know", unlogged)?;
        let whole = s.write_directory_delegations;
        gauge(to, "write_directory_delegations", "Of these, those for writing directories", whole)?;
        let d = &s.delegation_counts;
        let given = [
            ("read", d.given_read),
            ("write", d.given_write),
            ("directory", d.given_directory),
            ("directory_write", d.given_directory_write),
        ];
        let given = given.map(|(kind, n)| (vec![("kind", kind.to_owned())], ConstCounter::new(n)));
        rows(to, "delegations_given", "Delegations given", given)?;
        let asked = [("sent", d.asked), ("answered", d.answered), ("unanswered", d.unanswered)];
        let asked = asked.map(|(what, n)| (vec![("what", what.to_owned())], ConstCounter::new(n)));
        rows(to, "delegations_asked", "Holders of delegations asked for attributes (CB_GETATTR)", asked)?;
        const ANY: &str = "Clients asked to return delegations of their choice (CB_RECALL_ANY)";
        counter(to, "delegations_asked_back", ANY, d.asked_any)?;
        counter(to, "delegations_recalled", "Delegations that were in somebody's way", d.recalled)?;
        counter(to, "delegations_returned", "Delegations that came back", d.returned)?;
        counter(to, "delegations_revoked", "Delegations that did not come back within a lease", d.revoked)?;
        let waited = [(Vec::new(), ConstCounter::new(s.delegation_wait_ns as f64 / 1e9))];
        rows(to, "delegation_wait_seconds", "Time that requests waited for delegations of others", waited)?;
        let label = |o: &crate::stats::Operation| {
            vec![("version", o.version.to_owned()), ("operation", o.name.clone())]
        };
        let all = s.operations.iter().map(|o| (label(o), ConstCounter::new(o.all())));
        rows(to, "operations", "Operations and procedures executed, successful or not", all)?;
        let failed = s.operations.iter().flat_map(|o| {
            o.failed.iter().map(move |(status, n)| {
                let mut labels = label(o);
                labels.push(("status", status.clone()));
                (labels, ConstCounter::new(*n))
            })
        });
        rows(to, "operation_errors", "Those of them that failed, by status", failed)?;
        const HELP: &str = "From when a request had its turn until its reply was made";
        let mut metric = to.encode_descriptor("request_seconds", HELP, None, MetricType::Histogram)?;
        for (program, latency) in &s.latencies {
            let bounds = BUCKETS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::MAX]);
            let buckets: Vec<(f64, u64)> = bounds.zip(latency.buckets).collect();
            let labels = [("program", *program)];
            let count = latency.buckets.iter().sum();
            let mut of_program = metric.encode_family(&labels)?;
            of_program.encode_histogram::<NoLabelSet>(latency.sum_ns as f64 / 1e9, count, &buckets, None)?;
        }
        Ok(())
    }

    fn volumes(&self, to: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let all = &self.volumes;
        let failed = all.iter().map(|v| (v.labels(), ConstGauge::new(i64::from(v.failed.is_some()))));
        let down = || self.unavailable.iter().map(|(export, why)| (vec![("export", export.clone())], why));
        let failed = failed.chain(down().map(|(labels, _)| (labels, ConstGauge::new(1i64))));
        rows(to, "volume_failed", "1: nothing of this export is acknowledged any more", failed)?;
        let unavailable = all.iter().map(|v| (v.labels(), ConstGauge::new(0i64)));
        let unavailable = unavailable.chain(down().map(|(labels, _)| (labels, ConstGauge::new(1i64))));
        rows(
            to,
            "volume_unavailable",
            "1: this export could not be opened, and its clients wait",
            unavailable,
        )?;
        let trouble = all.iter().flat_map(|v| {
            let half_lost = v.stats.log.as_ref().and_then(|log| log.trouble.as_ref());
            let told = v.failed.iter().chain(half_lost);
            told.map(|why| (v.with("why", &escaped(why)), ConstGauge::new(1i64))).collect::<Vec<_>>()
        });
        let trouble = trouble.chain(down().map(|(mut labels, why)| {
            labels.push(("why", why.clone()));
            (labels, ConstGauge::new(1i64))
        }));
        rows(to, "volume_trouble", "What an operator must see to: docs/faults.md", trouble)?;
        let durability = all.iter().map(|v| {
            let mode = match v.durability {
                Durability::Log => "log",
                Durability::Sync => "sync",
                Durability::Unsafe => "unsafe",
            };
            (v.with("mode", mode), ConstGauge::new(1i64))
        });
        rows(to, "durability", "When a reply is sent", durability)?;
        let risk = all.iter().map(|v| {
            let risk = if v.durability == Durability::Unsafe { limits::UNSAFE_RISK_SECONDS } else { 0 };
            (v.labels(), ConstGauge::new(i64::from(risk)))
        });
        rows(to, "seconds_at_risk", "Seconds of acknowledged work that a power cut may take", risk)?;
        let flushes = all.iter().flat_map(|v| {
            [("fsync", v.stats.fsyncs), ("fdatasync", v.stats.fdatasyncs), ("syncfs", v.stats.syncfs)]
                .map(|(call, n)| (v.with("call", call), ConstCounter::new(n)))
        });
        rows(to, "volume_flushes", "Calls that made the volume durable", flushes)
    }

    fn logs(&self, to: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let logs = || self.volumes.iter().filter_map(|v| Some((v.labels(), v.stats.log.as_ref()?)));
        for (name, help, of) in LOG_COUNTERS {
            rows(to, name, help, logs().map(|(labels, log)| (labels, ConstCounter::new(of(log)))))?;
        }
        let seconds = |ns: u64| ConstCounter::new(ns as f64 / 1e9);
        let flush = logs().map(|(labels, log)| (labels, seconds(log.flush_ns)));
        rows(to, "log_flush_seconds", "Time that writes and flushes of the log took", flush)?;
        let checkpoint = logs().map(|(labels, log)| (labels, seconds(log.checkpoint_ns)));
        rows(to, "log_checkpoint_seconds", "Time that making the volume durable took", checkpoint)?;
        for (name, help, of) in LOG_WAITS {
            let mut each = logs().peekable();
            if each.peek().is_none() {
                continue;
            }
            let mut metric = to.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (labels, log) in each {
                let waits = of(log);
                let bounds = WAIT_BUCKETS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::MAX]);
                let buckets: Vec<(f64, u64)> = bounds.zip(waits.buckets).collect();
                let (sum, count) = (waits.sum_ns as f64 / 1e9, waits.buckets.iter().sum());
                metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
        }
        let running = logs().map(|(labels, log)| (labels, ConstGauge::new(i64::from(log.checkpointing))));
        rows(to, "log_checkpoint_running", "1 while a checkpoint is under way", running)?;
        let used = logs().map(|(labels, log)| (labels, ConstGauge::new(log.used as i64)));
        rows(to, "log_used_bytes", "Bytes of the log in use", used)?;
        let capacity = logs().map(|(labels, log)| (labels, ConstGauge::new(log.capacity as i64)));
        rows(to, "log_capacity_bytes", "Bytes of the log", capacity)?;
        let lost = logs().map(|(labels, log)| (labels, ConstGauge::new(i64::from(log.trouble.is_some()))));
        rows(to, "log_half_lost", "1 when one half of the log's mirror is lost", lost)
    }
}

impl Collector for Figures {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.limits(&mut to)?;
        self.requests(&mut to)?;
        self.volumes(&mut to)?;
        self.logs(&mut to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, family: &str) -> Vec<String> {
        let start = format!("landfast_{family}{{resource=\"");
        text.lines().filter_map(|l| l.strip_prefix(&start)?.split('"').next().map(str::to_owned)).collect()
    }

    #[test]
    fn each_limit_has_a_value_beside_it_and_names_stand_in_the_documents() {
        let volume = OfVolume {
            export: escaped("/a \"quoted\" path"),
            failed: None,
            durability: Durability::Unsafe,
            stats: landfast_volume::Stats::default(),
        };
        let text = text(Figures { stats: Stats::default(), volumes: vec![volume], unavailable: Vec::new() });
        assert_eq!(of(&text, "used"), of(&text, "limit"));
        assert!(of(&text, "limit").len() >= crate::limited::SPECS.len(), "{text}");
        assert!(text.contains("landfast_seconds_at_risk{export=\"/a \\\"quoted\\\" path\"} 35"), "{text}");
        let page = include_str!("../../../../docs/metrics.md");
        let lines = text.lines().filter_map(|l| l.strip_prefix("# TYPE landfast_"));
        let names = lines.filter_map(|l| l.split(' ').next());
        for name in names.chain(LOG_COUNTERS.map(|(name, ..)| name)).chain(LOG_WAITS.map(|(name, ..)| name)) {
            assert!(page.contains(&format!("`{name}")), "{name} does not stand in docs/metrics.md");
        }
        let limits = include_str!("../../../../docs/limits.md");
        for resource in of(&text, "limit") {
            assert!(limits.contains(&format!("`{resource}`")), "{resource} does not stand in docs/limits.md");
        }
    }

    #[test]
    fn histograms_add_up() {
        let counters = crate::stats::Counters::default();
        for us in [10, 60, 60, 3_000_000_000] {
            counters.took(1, std::time::Duration::from_micros(us));
        }
        let text = text(Figures { stats: counters.stats(), volumes: Vec::new(), unavailable: Vec::new() });
        for line in [
            "landfast_request_seconds_bucket{le=\"0.00005\",program=\"nfs3\"} 1",
            "landfast_request_seconds_bucket{le=\"0.0001\",program=\"nfs3\"} 3",
            "landfast_request_seconds_bucket{le=\"+Inf\",program=\"nfs3\"} 4",
            "landfast_request_seconds_count{program=\"nfs3\"} 4",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
