//! Two captures of the same traffic: which part of each service time the server took, and which the network.

use crate::page::svg::{Scale, both, chart, fitted, n, percent, time, time_grid, wide};
use crate::units::show_count;
use landfast_trace::analysis::both::{Both, Sum};
use landfast_trace::analysis::name;
use maud::{Markup, html};

/// Procedures in the chart; those come first for which the client waited longest.
const DRAWN: usize = 10;

/// The mean service time of a procedure at both ends, in seconds.
struct Row {
    name: String,
    calls: u64,
    client_s: f64,
    server_s: f64,
}

impl Row {
    fn new(name: String, sum: &Sum) -> Self {
        let s = |ns: i128| ns as f64 / 1e9 / sum.calls.max(1) as f64;
        Row { name, calls: sum.calls, client_s: s(sum.here_ns), server_s: s(sum.there_ns) }
    }

    fn network_s(&self) -> f64 {
        self.client_s - self.server_s
    }

    fn share(&self) -> f64 {
        if self.client_s > 0.0 { (self.network_s() / self.client_s).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// The chart and the table. `matched`: calls of this end that have replies.
pub fn ends(of: &Both, matched: u64) -> Markup {
    let (rows, all) = of.rows();
    if all.calls == 0 {
        return html! { p.none { "The two captures have no call in common: they are not of the same traffic, or not of the same time." } };
    }
    let mut sums: Vec<_> = rows.iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.here_ns));
    let rows: Vec<Row> = sums.into_iter().map(|(label, sum)| Row::new(name(*label), sum)).collect();
    let all = Row::new("all".into(), &all);
    html! {
        p {
            "Measured, not estimated: " (show_count(all.calls)) " of " (show_count(matched)) " calls are in both captures. What a call takes longer \
             at the client than at the server it is on the network: " (percent(all.share())) " of all."
        }
        (both(|width| draw(&rows[..rows.len().min(DRAWN)], width)))
        p.keys { span.entry { span.key.server {} "at the server" } " " span.entry { span.key.rtt {} "on the network" } }
        div.scroll { table #both-ends {
            thead { tr {
                th { "Procedure" }
                @for head in ["Calls", "At the client", "At the server", "Network", "Network's share"] { th.n { (head) } }
            } }
            tbody { @for row in rows.iter().chain([&all]) {
                tr {
                    th { (row.name) } td.n { (show_count(row.calls)) }
                    @for s in [row.client_s, row.server_s, row.network_s()] { td.n { data value=(s) { (signed(s)) } } }
                    td.n { (percent(row.share())) }
                }
            } }
        } }
    }
}

/// A difference may be negative if clocks are coarse.
fn signed(s: f64) -> String {
    if s < 0.0 { format!("-{}", time(-s)) } else { time(s) }
}

const ROW: f64 = 38.0;
const TOP: f64 = 4.0;

fn draw(rows: &[Row], width: f64) -> Markup {
    let longest = rows.iter().map(|row| row.client_s.max(row.server_s)).fold(f64::MIN_POSITIVE, f64::max);
    let x = Scale::linear((0.0, longest), (6.0, width - 20.0));
    let bottom = TOP + ROW * rows.len() as f64;
    let inside = html! {
        (time_grid(longest, &x, (TOP, bottom), width))
        @for (i, row) in rows.iter().enumerate() { (bar(row, TOP + i as f64 * ROW, width, &x)) }
    };
    chart((width, bottom + 20.0), "Service times at both ends", &inside)
}

fn bar(row: &Row, top: f64, width: f64, x: &Scale) -> Markup {
    let (server, end) = (x.at(row.server_s.max(0.0)), x.at(row.client_s.max(row.server_s).max(0.0)));
    let value = format!("{} = {} + {}", time(row.client_s), time(row.server_s), signed(row.network_s()));
    html! {
        g {
            title { (row.name) ", " (show_count(row.calls)) " calls: at the server " (time(row.server_s)) ", on the network " (signed(row.network_s())) }
            @if let Some(name) = fitted(&row.name, width - 24.0 - wide(&value)) { text.name x="6" y=(n(top + 13.0)) { (name) } }
            text.value x=(n(width - 6.0)) y=(n(top + 13.0)) text-anchor="end" { (value) }
            rect.mark.server x=(n(x.at(0.0))) y=(n(top + 18.0)) width=(n(server - x.at(0.0))) height="14" {}
            rect.mark.rtt x=(n(server)) y=(n(top + 18.0)) width=(n(end - server)) height="14" {}
        }
    }
}
