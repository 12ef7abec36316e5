//! `landfast trace --report`: writes the results as one page of HTML that needs neither network nor scripts.
//!
//! | file | subject |
//! |---|---|
//! | `parts` | where the time went |
//! | `ends` | two captures: the server's part and the network's |
//! | `timeline` | what happened when |
//! | `histograms` | how long calls waited |
//! | `whatif` | what would change it |
//! | `tables` | procedures, files, COMPOUNDs, clients and servers |
//! | `waterfall` | a typical file, call by call |
//! | `trust` | how complete the capture is |
//!
//! `maud` escapes everything that comes from a capture.

mod ends;
mod histograms;
mod parts;
mod tables;
mod timeline;
mod trust;
mod waterfall;
mod whatif;

pub use parts::of as part_of;

use super::results::Results;
use crate::page;
use crate::page::svg::time;
use crate::page::words::sentence;
use crate::units::show_count;
use maud::{Markup, html};
use whatif::Choice;

impl Results {
    pub(super) fn page(&self, name: &str) -> String {
        let title = format!("Where the time goes: {name}");
        let footer = html! {
            p { "Made by landfast " (env!("CARGO_PKG_VERSION")) " trace --report. All times without a unit are in seconds." }
        };
        page::document(&title, "", &self.when(), &self.body(), &footer)
    }

    fn when(&self) -> Markup {
        let at = |ns: i64| {
            jiff::Timestamp::from_nanosecond(ns.into()).map(|t| format!("{t:.0}")).unwrap_or_default()
        };
        html! {
            @if let Some((from, to)) = self.totals.span {
                p { (at(from)) " to " (at(to)) ", " (time(to.saturating_sub(from).max(0) as f64 / 1e9)) }
            }
        }
    }

    fn body(&self) -> Markup {
        let f = &self.findings;
        if self.totals.calls_matched == 0 && self.table.rows().next().is_none() {
            return html! {
                div #verdict {
                    h2 { "Nothing can be said" }
                    p {
                        @if self.totals.calls_seen > self.totals.tls_probes {
                            "Of " (show_count(self.totals.calls_seen)) " calls none has its reply in the capture: it began after the calls, or one way was \
                             not captured."
                        } @else { (self.nothing()) "." }
                    }
                }
                section { h2 { "How far to trust this" } (trust::trust(self)) }
            };
        }
        let predicted = whatif::predict_changes(f, &self.table);
        html! {
            (self.verdict_box(&whatif::options(&predicted), whatif::caveat(&predicted, &f.terms)))
            (self.facts())
            section #where {
                h2 { "Where the time went" }
                p {
                    @match f.pairs.len() {
                        0 | 1 => "The time of the client",
                        n => { "The time of all " (show_count(n as u64)) " pairs of a client and a server together" }
                    }
                    ", from its first call to its last answer, by what was waited for. Where several calls were under way each has its part."
                }
                (parts::parts(f, &self.totals))
                (tables::pauses(f))
            }
            @if let Some(both) = &f.both {
                section #ends { h2 { "At the server and on the network" } (ends::ends(both, self.totals.calls_matched)) }
            }
            section #whatif {
                h2 { "What would change it" }
                (whatif::whatif(&predicted))
            }
            section #when {
                h2 { "What happened when" }
                p { "Seconds since the first call. Hold the pointer over a step for its numbers." }
                (timeline::timeline(&f.series, f.pairs.len()))
            }
            section #waits {
                h2 { "How long calls waited" }
                p {
                    "If synchronous calls stand far to the right of the others, the server's storage is what is waited for; if both stand at the \
                     round trip, it is the network. Each step to the right by a label is ten times as long."
                }
                (histograms::histograms(f))
            }
            section #procedures {
                h2 { "Service times by procedure" }
                p {
                    "In seconds, from the frame with which the call was whole to the frame with which the reply was: as tshark counts. "
                    "Of version 4 also by the main operation of each COMPOUND."
                }
                (tables::procedures(self))
            }
            @if let Some(pictures) = waterfall::waterfalls(self) {
                section #typical { h2 { "One file, call by call" } (pictures) }
            }
            section { h2 { "What is called for a file" } (tables::files(self)) }
            @if let Some(compounds) = tables::compounds(self) { section { h2 { "COMPOUNDs by their operations" } (compounds) } }
            section { h2 { "Clients and servers" } (tables::pairs(self)) }
            section { h2 { "How far to trust this" } (trust::trust(self)) }
        }
    }

    fn verdict_box(&self, [bought, others]: &[Vec<Choice>; 2], caveat: Option<String>) -> Markup {
        let Some(words) = self.findings.words(&self.totals) else {
            return html! { div #verdict data-bound="none" { h2 { "No call to NFS was answered: nothing bounds the work" } } };
        };
        let list = |title: &str, lines: &[String]| {
            html! { @if !lines.is_empty() { h3 { (title) } ul { @for line in lines { li { (sentence(line)) "." } } } } }
        };
        let stalled = self.findings.stalls.time_s > self.findings.shares.parts()[0].1;
        html! {
            div #verdict data-bound=(self.findings.verdict.map_or("none", |v| v.bound.name())) {
                h2 { (words.verdict.replace(" %", "\u{a0}%")) ". " span.confidence { "Confidence: " (words.confidence.name()) } }
                (parts::picture(&self.findings))
                (list("What says so", &words.evidence))
                (list("What that means", &words.advice))
                // A stall is not cured by buying something.
                @if stalled {
                    h3 { "What to buy" }
                    p { "Nothing, before it is known why calls were let wait: no device and no shorter way would have changed these " (time(self.findings.stalls.time_s)) "." }
                } @else if !bought.is_empty() {
                    h3 { "What to buy" }
                    ul { @for choice in bought { li {
                        b { (choice.judgement()) ": " } (choice.gain) ". " span.means { (sentence(choice.means)) "." }
                    } } }
                }
                @if !others.is_empty() {
                    h3 { "What to do without buying" }
                    ul { @for choice in others { li { (choice.gain) ". " span.means { (sentence(choice.means)) "." } } } }
                    @if let Some(caveat) = caveat { p.means { (caveat) "." } }
                }
                (list("What to keep in mind", &words.doubts))
            }
        }
    }

    fn facts(&self) -> Markup {
        let f = &self.findings;
        let per_file =
            (f.work.files > 0).then(|| format!("{:.1}", f.work.calls as f64 / f.work.files as f64));
        html! {
            dl.facts {
                div { dt { "Calls" } dd { data value=(f.work.calls) #calls { (show_count(f.work.calls)) } } }
                div { dt { "Synchronous" } dd { (show_count(f.work.synchronous_calls)) } }
                div { dt { "Files made" } dd { (show_count(f.work.files)) } }
                @if let Some(calls) = per_file { div { dt { "Calls a file" } dd { (calls) } } }
                div { dt { "Round trip" } dd { data value=(f.terms.round_trip_s) #round-trip { (time(f.terms.round_trip_s)) } } }
                div { dt { "Persistence" } dd { data value=(f.terms.persistence_s) #persistence { (time(f.terms.persistence_s)) } } }
                div { dt { "Under way at a time" } dd { (format!("{:.1}", f.terms.in_flight)) } }
                @if let Some(s) = f.work.span_s { div { dt { "First call to last answer" } dd { (time(s)) } } }
            }
        }
    }
}
