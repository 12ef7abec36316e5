//! Where the time went: one bar, and a table of its parts.

use crate::page::svg::{self, both, chart, fitted, n, percent, time};
use crate::units::{show_bytes, show_count};
use landfast_model::{Bound, Shares};
use landfast_trace::analysis::findings::Findings;
use landfast_trace::analysis::words::{Unit, part};
use landfast_trace::trace::Totals;
use maud::{Markup, html};

/// The parts in the order in which a call meets them.
const PARTS: [Bound; 6] =
    [Bound::Client, Bound::Bandwidth, Bound::Rtt, Bound::Server, Bound::Persistence, Bound::Loss];

/// The name of a part, as in the verdict.
pub fn name(bound: Bound) -> &'static str {
    part(bound).trim_start_matches("the ")
}

fn what(bound: Bound) -> &'static str {
    match bound {
        Bound::Rtt => "messages on their way there and back, with no work at either end",
        Bound::Persistence => "the server makes an effect stable before it answers",
        Bound::Server => "all else that the server does, or its queue",
        Bound::Bandwidth => "bytes of large messages on their way",
        Bound::Client => "nothing is under way: the client works between an answer and its next call",
        Bound::Loss => "connections stand still until lost segments are sent again",
        Bound::Mixed => "",
    }
}

fn remedy(bound: Bound) -> &'static str {
    match bound {
        Bound::Rtt => "fewer calls for a file, several at a time, a shorter way to the server",
        Bound::Persistence => "a log device that is stable at once, in front of the server's disks",
        Bound::Server => "the server's processor, memory for its cache, faster disks to read from",
        Bound::Bandwidth => "a faster link",
        Bound::Client => "a faster client, or several at a time; nothing at the server",
        Bound::Loss => "mend the network: cables, ports, full queues",
        Bound::Mixed => "",
    }
}

/// One part of the time, in seconds.
pub fn of(shares: &Shares, bound: Bound) -> f64 {
    shares.parts().iter().find(|(b, _)| *b == bound).map_or(0.0, |(_, s)| *s)
}

/// The figures behind a part.
fn reason(findings: &Findings, totals: &Totals, bound: Bound) -> String {
    let (t, w) = (&findings.terms, &findings.work);
    match bound {
        Bound::Rtt => format!("{} calls, a round trip of {}", show_count(w.calls), time(t.round_trip_s)),
        Bound::Persistence => format!(
            "{} synchronous calls, on average {} more each",
            show_count(w.synchronous_calls),
            time(t.persistence_s)
        ),
        Bound::Server => format!("{} for a call with nothing to make stable", time(t.server_s)),
        Bound::Bandwidth => {
            let bytes = format!("{} sent, {} received", show_bytes(w.bytes), show_bytes(w.bytes_down));
            match t.upload_bytes_per_s.or(t.download_bytes_per_s) {
                Some(rate) => format!("{bytes}, at {} a second", show_bytes(rate as u64)),
                None => bytes,
            }
        }
        Bound::Client if t.file_think_s > 0.0 => {
            format!("{} for each call, {} before each file", time(t.think_s), time(t.file_think_s))
        }
        Bound::Client => format!("{} for each call", time(t.think_s)),
        Bound::Loss => format!("segments sent again: {}", show_count(totals.tcp.retransmitted)),
        Bound::Mixed => String::new(),
    }
}

pub fn picture(findings: &Findings) -> Markup {
    let (shares, irregular) = (&findings.shares, findings.irregular_s.max(0.0));
    let stalls = findings.stalls.time_s.max(0.0);
    if shares.total() + irregular + stalls <= 0.0 {
        return html! { p.none { "No call was answered, so there is no time to tell of." } };
    }
    html! { (both(|width| bar(shares, [stalls, irregular], width))) }
}

pub fn parts(findings: &Findings, totals: &Totals) -> Markup {
    let (shares, irregular) = (&findings.shares, findings.irregular_s.max(0.0));
    let stalls = findings.stalls.time_s.max(0.0);
    let total = shares.total();
    let unit = Unit::of(shares.parts().map(|(_, s)| s).into_iter().chain([stalls, irregular]));
    html! {
        div.scroll { table.parts #parts {
            thead { tr { th { "Part" } th.n { "Time" } th.n { "Share" } th { "What it is" } th { "Of what" } th { "What shortens it" } } }
            tbody {
                @for bound in PARTS {
                    @let s = of(shares, bound);
                    tr.small[s < 0.005 * total] data-part=(bound.name()) {
                        th { span.key.(bound.name()) {} (name(bound)) }
                        td.n { data value=(s) { (unit.show(s)) } }
                        td.n { (percent(s / total.max(f64::MIN_POSITIVE))) }
                        td.text { (what(bound)) }
                        td.text { (reason(findings, totals, bound)) }
                        td.text { (remedy(bound)) }
                    }
                }
                @if stalls > 0.0 {
                    tr data-part="stalls" {
                        th { span.key.stalls {} "stalls" }
                        td.n { data value=(stalls) { (unit.show(stalls)) } }
                        td.n { "apart" }
                        td colspan="3" {
                            (show_count(findings.stalls.calls)) " calls that waited far longer than others of their kind: nothing that a device or a shorter \
                             way changes. Not part of the shares"
                        }
                    }
                }
                tr data-part="irregular" {
                    th { span.key.irregular {} "irregular pauses" }
                    td.n { data value=(findings.irregular_s) { (unit.show(irregular)) } }
                    td.n { "apart" }
                    td colspan="3" {
                        "the client's pauses beyond what such pauses mostly take: it was idle, or disturbed. Not part of the shares"
                    }
                }
            }
        } }
    }
}

fn bar(shares: &Shares, [stalls, irregular]: [f64; 2], width: f64) -> Markup {
    let total = shares.total();
    // Stalls and irregular pauses are no shares of the whole: they are drawn with a gap.
    let is_apart = |class: &str| matches!(class, "stalls" | "irregular");
    let gaps = u8::from(stalls > 0.0) + u8::from(irregular > 0.0) - u8::from(total <= 0.0);
    let per_second = (width - 8.0 * f64::from(gaps)) / (total + stalls + irregular);
    let mut at = 0.0;
    let mut pieces: Vec<(&str, &str, f64, f64)> = Vec::new();
    for bound in PARTS {
        let len = of(shares, bound).max(0.0) * per_second;
        pieces.push((bound.name(), name(bound), at, len));
        at += len;
    }
    for (class, s) in [("stalls", stalls), ("irregular", irregular)] {
        if s > 0.0 {
            at += if at > 0.0 { 8.0 } else { 0.0 };
            pieces.push((class, class, at, s * per_second));
            at += s * per_second;
        }
    }
    let inside = html! {
        @for (class, label, x, len) in &pieces {
            @if *len > 0.0 {
                @let s = len / per_second;
                @let share = if is_apart(class) { "apart".to_owned() } else { percent(s / total) };
                g {
                    title { (label) ": " (time(s)) ", " (share) }
                    rect.mark.(class) x=(n(*x)) y="4" width=(n(len.max(0.5).min(width - x))) height="46" {}
                    @if let Some(text) = fitted(label, len - 10.0).filter(|t| t.ends_with(|c: char| c != '…') || *len > 60.0) {
                        text.on.(class) x=(n(x + len / 2.0)) y="24" text-anchor="middle" { (text) }
                        @let below = format!("{}{}", time(s), if is_apart(class) { String::new() } else { format!(" · {share}") });
                        @if svg::wide(&below) <= len - 8.0 {
                            text.on.(class) x=(n(x + len / 2.0)) y="41" text-anchor="middle" { (below) }
                        } @else if svg::wide(&share) <= len - 8.0 {
                            text.on.(class) x=(n(x + len / 2.0)) y="41" text-anchor="middle" { (share) }
                        }
                    }
                }
            }
        }
    };
    chart((width, 54.0), "Where the time went", &inside)
}
