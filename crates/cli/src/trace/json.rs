//! The results as JSON.

use super::answer::sequence_words;
use super::results::Results;
use landfast_trace::analysis::both::{Both, Sum};
use landfast_trace::analysis::files::Shape;
use landfast_trace::analysis::findings::{Pair, Pause};
use landfast_trace::analysis::series::Step;
use landfast_trace::analysis::spread::Spread;
use landfast_trace::analysis::stalls::Stalls;
use landfast_trace::analysis::typical::{Steps, Timed};
use landfast_trace::analysis::{compound, name};
use landfast_trace::source::End;
use landfast_trace::table::{Item, Place, Row};
use landfast_trace::trace::Totals;
use serde_json::{Value, json};

impl Results {
    pub(super) fn json(&self) -> Value {
        let t = &self.totals;
        let passed: serde_json::Map<_, _> =
            t.passed.iter().map(|(why, n)| (why.words().to_owned(), json!(n))).collect();
        json!({
            "procedures": self.table.rows().map(|(place, row)| procedure(place, row)).collect::<Vec<_>>(),
            "verdict": self.verdict_json(),
            "terms": self.findings.terms,
            "work": self.findings.work,
            "capture_side": self.findings.side.name(),
            "files": self.findings.shapes.iter().map(|(sequence, s)| shape(&sequence_words(sequence), s)).collect::<Vec<_>>(),
            "typical_files": self.findings.typical.iter().map(|steps| steps.as_ref().map(typical)).collect::<Vec<_>>(),
            "other_files": shape("", &self.findings.other_files),
            "directories": shape("", &self.findings.directories),
            "compounds": self.findings.compounds.iter().map(compounds).collect::<Vec<_>>(),
            "pauses": self.findings.pauses.iter().map(pause).collect::<Vec<_>>(),
            "both_ends": self.findings.both.as_ref().map(both),
            "series": self.series_json(),
            "pairs": self.findings.pairs.iter().map(|p| pair(p, t_first(t))).collect::<Vec<_>>(),
            "calls_seen": t.calls_seen,
            "calls_in_capture": self.all_calls.unwrap_or(t.calls_seen),
            "calls_matched": t.calls_matched,
            "calls_unmeasured": t.calls_unmeasured,
            "calls_repeated": t.repeated_calls,
            "replies_repeated": t.repeated_replies,
            "replies_stray": t.stray_replies,
            "calls_encrypted": t.encrypted_calls,
            "calls_of_other_programs": t.other_calls,
            "compounds_of_unknown_operation": self.table.operations_unknown(),
            "tls_probes": t.tls_probes,
            "capture": {
                "end": match self.end { End::Whole => "whole", End::CutOff => "cut off", End::Damaged(_) => "damaged" },
                "frames": t.frames,
                "frames_cut_short": t.cut_frames,
                "frames_passed_over": passed,
                "seconds": t.span.map_or(0.0, |(from, to)| to.saturating_sub(from) as f64 / 1e9),
                "connections": t.connections,
                "connections_with_rpc": t.rpc_connections,
                "connections_forgotten": t.forgotten,
                "segments_retransmitted": t.tcp.retransmitted,
                "segments_early": t.tcp.early,
                "packets_captured_twice": t.copies,
                "clock_set_back": t.set_back,
                "holes": t.tcp.holes,
                "hole_bytes": t.tcp.hole_bytes,
                "out_of_step": t.out_of_step,
            },
        })
    }

    pub(super) fn verdict_json(&self) -> Value {
        let f = &self.findings;
        let words = f.words(&self.totals);
        f.verdict.map_or(Value::Null, |verdict| {
            let total = f.shares.total();
            json!({
                "bound": verdict.bound,
                "first": verdict.first,
                "runner_up": verdict.runner_up,
                "shares": f.shares,
                "parts": f.shares.parts().map(|(bound, s)| json!({"bound": bound, "part": s / total})),
                "several_causes": f.several,
                "irregular_s": f.irregular_s,
                "stalls": stalls(&f.stalls, t_first(&self.totals)),
                "device": f.device().map(|(device, wait)| json!({
                    "looks_like": device,
                    "median_s": wait.median_s,
                    "p10_s": wait.p10_s,
                })),
                "words": words.as_ref().map(|words| json!({
                    "verdict": words.verdict,
                    "evidence": words.evidence,
                    "advice": words.advice,
                    "doubts": words.doubts,
                    "confidence": words.confidence.name(),
                })),
            })
        })
    }

    /// The time series, as columns with one value a step.
    fn series_json(&self) -> Value {
        let series = &self.findings.series;
        let column = |get: fn(&Step) -> f64| series.steps().iter().map(get).collect::<Vec<_>>();
        let width = series.width_ns() as f64;
        json!({
            "step_s": width / 1e9,
            "calls": series.steps().iter().map(|s| s.calls).collect::<Vec<_>>(),
            "synchronous_calls": series.steps().iter().map(|s| s.synchronous).collect::<Vec<_>>(),
            "wait_s": column(|s| s.wait_ns / 1e9),
            "longest_wait_s": column(|s| s.longest_ns as f64 / 1e9),
            "in_flight": series.steps().iter().map(|s| s.under_way_ns / width).collect::<Vec<_>>(),
            "idle_s": column(|s| s.idle_ns / 1e9),
            "stalled_s": column(|s| s.stalled_ns / 1e9),
        })
    }
}

fn shape(sequence: &str, shape: &Shape) -> Value {
    json!({
        "sequence": sequence,
        "files": shape.files,
        "calls": shape.calls,
        "synchronous_calls": shape.synchronous,
        "busy_s": shape.busy_ns / 1e9,
        "span_s": shape.span_ns / 1e9,
    })
}

/// The calls of a typical file, with times in seconds since the first of them.
fn typical(steps: &Steps) -> Value {
    let first = steps.calls.iter().map(|call| call.begun_ns).min().unwrap_or(0);
    let call = |call: &Timed| {
        let s = |ns: f32| f64::from(ns) / 1e9;
        json!({
            "name": name(call.label),
            "synchronous": call.synchronous,
            "status": call.error,
            "at_s": call.begun_ns.saturating_sub(first) as f64 / 1e9,
            "upload_s": s(call.upload_ns),
            "wait_s": s(call.wait_ns),
            "reply_s": s(call.reply_ns),
            "network_s": call.network_ns.map(s),
        })
    };
    json!({
        "client": steps.ends.0.to_string(),
        "server": steps.ends.1.to_string(),
        "calls": steps.calls.iter().map(call).collect::<Vec<_>>(),
    })
}

fn compounds((ops, times): &(Vec<u8>, Spread)) -> Value {
    let at = |percent| times.percentile_ns(percent).unwrap_or(0.0) / 1e9;
    json!({
        "operations": compound(ops),
        "calls": times.count(),
        "sum_s": times.sum_ns() / 1e9,
        "median_s": at(50.0),
        "p99_s": at(99.0),
        "max_s": times.most_ns() as f64 / 1e9,
    })
}

fn both(both: &Both) -> Value {
    let (rows, all) = both.rows();
    let sum = |name: String, sum: &Sum| {
        let s = |ns: i128| ns as f64 / 1e9;
        let network = s(sum.here_ns - sum.there_ns);
        json!({"name": name, "calls": sum.calls, "client_s": s(sum.here_ns), "server_s": s(sum.there_ns), "network_s": network})
    };
    json!({
        "all": sum("all".into(), &all),
        "procedures": rows.iter().map(|(label, row)| sum(name(*label), row)).collect::<Vec<_>>(),
    })
}

fn pause(pause: &Pause) -> Value {
    json!({
        "before": name(pause.before),
        "after": name(pause.after),
        "count": pause.count,
        "median_s": pause.median_ns / 1e9,
        "sum_s": pause.sum_ns / 1e9,
    })
}

fn pair(pair: &Pair, first: i64) -> Value {
    json!({
        "client": pair.ends.map(|(client, _)| client.to_string()),
        "server": pair.ends.map(|(_, server)| server.to_string()),
        "calls": pair.calls,
        "synchronous_calls": pair.synchronous,
        "round_trip_s": pair.round_trip_ns / 1e9,
        "capture_side": pair.side.name(),
        "shares": pair.shares,
        "irregular_s": pair.irregular_s,
        "stalls": stalls(&pair.stalls, first),
        "verdict": pair.verdict,
        "lost_s": pair.lost_s(),
        "span_s": pair.span_s,
        "in_flight": pair.in_flight,
    })
}

fn t_first(totals: &Totals) -> i64 {
    totals.span.map_or(0, |(first, _)| first)
}

fn stalls(stalls: &Stalls, first: i64) -> Value {
    json!({
        "seconds": stalls.time_s,
        "count": stalls.count,
        "calls": stalls.calls,
        "period_s": stalls.rhythm.map(|rhythm| rhythm.period_s),
        "longest": stalls.longest.iter().map(|stall| json!({
            "who": stall.place.name(),
            "at_s": stall.from_ns.saturating_sub(first) as f64 / 1e9,
            "seconds": stall.length_s(),
            "calls": stall.calls,
            "nobody_was_answered": stall.nobody,
        })).collect::<Vec<_>>(),
    })
}

fn procedure(place: &Place, row: &Row) -> Value {
    let s = |ns: f64| ns / 1e9;
    json!({
        "program": place.program.name(),
        "version": place.version,
        "index": place.index(),
        "name": place.name(),
        "main_operation": matches!(place.item, Item::Operation(_)),
        "calls": row.calls,
        "min_s": s(row.min_ns as f64),
        "max_s": s(row.max_ns as f64),
        "avg_s": s(row.sum_ns as f64 / row.calls.max(1) as f64),
        "sum_s": s(row.sum_ns as f64),
        "median_s": s(row.percentile_ns(50.0) as f64),
        "p99_s": s(row.percentile_ns(99.0) as f64),
    })
}
