//! How far to trust the page: what the capture has of the traffic.

use super::super::results::Results;
use crate::page::svg::{percent, time};
use crate::units::{show_bytes, show_count};
use landfast_trace::analysis::findings::Side;
use landfast_trace::source::End;
use maud::{Markup, html};

/// One property of a capture that can be good or bad.
struct Check {
    good: bool,
    what: &'static str,
    value: String,
    meaning: &'static str,
}

fn checks(found: &Results) -> Vec<Check> {
    let t = &found.totals;
    let part = t.calls_matched as f64 / (t.calls_seen as f64).max(1.0);
    // If only calls of other programs were asked for, nothing is missing.
    let none = t.calls_seen == 0;
    let mut checks = vec![
        Check {
            good: part >= 0.98 || (none && t.other_calls > 0),
            what: "Coverage",
            value: format!(
                "{} of {} calls matched with their replies ({})",
                show_count(t.calls_matched),
                show_count(t.calls_seen),
                percent(part)
            ),
            meaning: "What is not matched is in no number of this page.",
        },
        Check {
            good: t.tcp.holes == 0,
            what: "Holes in the capture",
            value: if t.tcp.holes == 0 {
                "none".into()
            } else {
                format!("{}, {} in all", show_count(t.tcp.holes), show_bytes(t.tcp.hole_bytes))
            },
            meaning: "Frames that were on the wire and are not in the file: tcpdump dropped them, or the capture began in the middle.",
        },
        Check {
            good: t.tcp.retransmitted * 1000 <= t.frames,
            what: "Sent again",
            value: format!(
                "{} TCP segments, {} calls, {} replies",
                show_count(t.tcp.retransmitted),
                show_count(t.repeated_calls),
                show_count(t.repeated_replies)
            ),
            meaning: "Of these the network lost one or was late with it; a call that is sent again counts once, from the first.",
        },
        Check {
            good: found.findings.side != Side::Unknown,
            what: "Captured at",
            value: found.findings.side.name().into(),
            meaning: match found.findings.side {
                Side::Client => "The network is in the service times.",
                Side::Server => {
                    "The network is not in the service times; the round trip is known from the acknowledgements."
                }
                Side::Middle => "A part of the network is in the service times.",
                Side::Loopback => "There is no network between client and server.",
                Side::Unknown => "Both ways are equally short, or nothing tells.",
            },
        },
        Check {
            good: t.cut_frames == 0,
            what: "Frames cut short",
            value: if t.cut_frames == 0 {
                "none".into()
            } else {
                format!("{} of {}", show_count(t.cut_frames), show_count(t.frames))
            },
            meaning: "Of a message of several segments the time is then that of the first; what is behind the cut is not known.",
        },
        Check {
            good: matches!(found.end, End::Whole),
            what: "End of the file",
            value: match found.end {
                End::Whole => "whole".into(),
                End::CutOff => "cut off in the middle of a frame".into(),
                End::Damaged(at) => format!("damaged at byte {at}"),
            },
            meaning: "What is before that counts.",
        },
    ];
    let others = [
        (t.calls_unmeasured, "Ends in a hole", "Calls with a reply, of which one end is in a hole."),
        (
            t.stray_replies,
            "Replies without their calls",
            "Their calls were before the capture, or in a hole.",
        ),
        (t.encrypted_calls, "Encrypted calls", "Of krb5p only the procedure is known."),
        (t.tls_probes, "Connections that turned to TLS", "They cannot be read."),
        (t.forgotten, "Connections not followed to their ends", "There were too many at a time."),
        (t.out_of_step, "Streams out of step", "Found again at a later record."),
    ];
    for (count, what, meaning) in others.into_iter().filter(|(count, ..)| *count > 0) {
        checks.push(Check { good: false, what, value: show_count(count), meaning });
    }
    checks
}

pub fn trust(found: &Results) -> Markup {
    let t = &found.totals;
    let span = t.span.map_or(0.0, |(from, to)| to.saturating_sub(from).max(0) as f64 / 1e9);
    html! {
        div.scroll { table #trust {
            tbody {
                @for check in checks(found) {
                    tr {
                        td.sign.bad[!check.good] { @if check.good { "✓" } @else { "!" } }
                        th { (check.what) } td.text { (check.value) } td.text.meaning { (check.meaning) }
                    }
                }
            }
        } }
        p {
            (show_count(t.frames)) " frames in " (time(span)) "; " (show_count(t.connections)) " TCP connections, "
            (show_count(t.rpc_connections)) " pairs of ports with RPC. "
            @for note in found.notes() { (note) ". " }
        }
    }
}
