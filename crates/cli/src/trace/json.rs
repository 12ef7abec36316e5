//! What was found, for programs.

use super::Found;
use landfast_trace::analysis::findings::Pair;
use landfast_trace::source::End;
use landfast_trace::table::{Item, Place, Row};
use serde_json::{Value, json};

impl Found {
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
            "pairs": self.findings.pairs.iter().map(pair).collect::<Vec<_>>(),
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
                "holes": t.tcp.holes,
                "hole_bytes": t.tcp.hole_bytes,
                "out_of_step": t.out_of_step,
            },
        })
    }
}

impl Found {
    fn verdict_json(&self) -> Value {
        let f = &self.findings;
        f.verdict.map_or(Value::Null, |verdict| {
            let total = f.shares.total();
            json!({
                "bound": verdict.bound,
                "first": verdict.first,
                "runner_up": verdict.runner_up,
                "shares": f.shares,
                "parts": f.shares.parts().map(|(bound, s)| json!({"bound": bound, "part": s / total})),
                "irregular_s": f.irregular_s,
            })
        })
    }
}

fn pair(pair: &Pair) -> Value {
    json!({
        "client": pair.ends.map(|(client, _)| client.to_string()),
        "server": pair.ends.map(|(_, server)| server.to_string()),
        "calls": pair.calls,
        "synchronous_calls": pair.synchronous,
        "round_trip_s": pair.round_trip_ns / 1e9,
        "capture_side": pair.side.name(),
        "shares": pair.shares,
        "irregular_s": pair.irregular_s,
        "span_s": pair.span_s,
        "in_flight": pair.in_flight,
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
