//! What would change it: predictions with error bars.

use super::parts::{name as part_name, of as part_of};
use crate::page::svg::{Scale, both, chart, n, time, time_grid, wide};
use crate::page::words::sentence;
use crate::units::show_count;
use landfast_model::predict::{Earned, Outcome, Outlook, Prediction, Refused, Version};
use landfast_model::{Bound, Change, Job, Terms, predict};
use landfast_trace::analysis::findings::Findings;
use landfast_trace::analysis::words::Unit;
use landfast_trace::table::Table;
use maud::{Markup, html};

/// The parts of a prediction, in the order of the bar in `parts`.
const PARTS: [Bound; 5] = [Bound::Client, Bound::Bandwidth, Bound::Rtt, Bound::Server, Bound::Persistence];

pub fn predict_changes(findings: &Findings, table: &Table) -> Result<Prediction, Refused> {
    let calls =
        |version| table.rows().filter(|(p, _)| p.version == version).map(|(_, row)| row.calls).sum::<u64>();
    let version = match (calls(3), calls(4)) {
        (0, 0) => None,
        (three, four) => Some(if three > four { Version::V3 } else { Version::V4 }),
    };
    let job = Job::repeat(&findings.work, findings.terms.in_flight, version)?;
    predict(&findings.terms, &job, &Change::usual(&findings.terms))
}

fn what(change: &Change) -> &'static str {
    match change {
        Change::LogDevice { .. } => {
            "A device at the server that is stable at once, in front of its disks: NVMe or SSD with power-loss protection (`landfast serve --log`, a ZFS log vdev)"
        }
        Change::Compound { at_once: false, .. } => {
            "A client that makes many whole files in one call (`landfast untar`, `landfast cp`), on this server, over NFSv4.1"
        }
        Change::Compound { at_once: true, .. } => {
            "The same client, and a server that makes all of a call stable at once (`landfast serve`)"
        }
        Change::Streams { .. } => "The work divided among several processes that run beside each other",
        Change::Delegations => {
            "A client and a server that know delegations of attributes (Linux 6.11 and later)"
        }
        Change::RoundTrip { .. } => {
            "A shorter way between client and server: fewer hops, the same room, a faster network. Not more bandwidth"
        }
        Change::Link { .. } => "More bytes a second between client and server",
        Change::Server { .. } => "Its processor, memory for its cache, the disks that it reads from",
    }
}

struct Row<'a> {
    name: String,
    seconds: f64,
    outlook: Option<&'a Outlook>,
}

fn rows<'a>(prediction: &'a Prediction) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    if let Some(seconds) = prediction.measured_s {
        rows.push(Row { name: "now, as captured".into(), seconds, outlook: None });
    }
    let mut add = |name: &str, outlook: &'a Outlook| {
        let seconds = outlook.seconds;
        rows.push(Row { name: name.replace(" us", " µs"), seconds, outlook: Some(outlook) });
    };
    add("now, by the equation", &prediction.now);
    for outcome in &prediction.each {
        if let Some(outlook) = &outcome.outlook {
            add(&outcome.name, outlook);
        }
    }
    // If one change alone is better, as for a client's own pauses, nobody would make them all.
    let best =
        prediction.each.iter().filter_map(|o| o.outlook).map(|o| o.seconds).fold(f64::INFINITY, f64::min);
    if let Some(outlook) = prediction.together.as_ref().filter(|outlook| outlook.seconds <= best) {
        add("all of these at once", outlook);
    }
    rows
}

pub fn whatif(found: &Result<Prediction, Refused>) -> Markup {
    let prediction = match found {
        Ok(prediction) => prediction,
        Err(why) => {
            return html! { p.none { "No prediction: " (why) ". Of a part of the capture there may be one (" code { "--from" } ", " code { "--to" } ")." } };
        }
    };
    let rows = rows(prediction);
    let tried = Earned::stored().cases().len();
    html! {
        (both(|width| draw(&rows, width)))
        p.keys { @for bound in PARTS { span.entry { span.key.(bound.name()) {} (part_name(bound)) } " " } }
        p {
            "A bar is what the same work would take. "
            @if tried > 0 {
                "The line with its ends is the error: " (show_count(tried as u64)) " predictions of this kind were tried against what was \
                 measured, and nine of ten were within it; it is never shorter than what the equation is off for this capture. Where there is \
                 none, as with delegations, nothing of the kind could be tried: such a bar is arithmetic. "
            } @else { "No prediction of the kind was tried yet, so there are no error bars. " }
            "To ask about other changes: " code { "landfast predict" } "."
        }
        div.scroll { table #changes {
            thead { tr { th { "Change" } th.n { "Time" } th.n { "Between" } th.n { "Times as fast" } th { "What it is" } } }
            @let outlooks = prediction.each.iter().filter_map(|outcome| outcome.outlook.as_ref());
            @let unit = unit_of(outlooks.map(|outlook| (outlook.seconds, Some(outlook))));
            tbody { @for outcome in &prediction.each { (outcome_row(outcome, prediction.now.seconds, unit)) } }
        } }
    }
}

/// One unit for times, and for the ranges of outlooks.
fn unit_of<'a>(times: impl Iterator<Item = (f64, Option<&'a Outlook>)>) -> Unit {
    let range = |outlook: &Outlook| outlook.within_s.into_iter().flat_map(|(from, to)| [from, to]);
    Unit::of(times.flat_map(|(seconds, outlook)| outlook.into_iter().flat_map(range).chain([seconds])))
}

fn outcome_row(outcome: &Outcome, now: f64, unit: Unit) -> Markup {
    html! {
        tr {
            th { (outcome.name.replace(" us", " µs")) }
            @match &outcome.outlook {
                Some(outlook) => {
                    td.n { data value=(outlook.seconds) { (unit.show(outlook.seconds)) } }
                    td.n { (between(outlook, unit)) }
                    td.n { (times(now / outlook.seconds)) }
                    td.text { (sentence(what(&outcome.change))) }
                }
                None => {
                    td.n { "–" } td {} td {}
                    td.text { (sentence(what(&outcome.change))) ". " @if let Some(why) = outcome.unknown { "Not predicted: " (why) "." } }
                }
            }
        }
    }
}

fn between(outlook: &Outlook, unit: Unit) -> String {
    outlook
        .within_s
        .map_or_else(|| "not tried".into(), |(from, to)| format!("{} and {}", unit.show(from), unit.show(to)))
}

fn times(factor: f64) -> String {
    if !factor.is_finite() {
        "–".to_owned()
    } else if factor >= 9.95 {
        format!("{factor:.0}")
    } else {
        format!("{factor:.1}")
    }
}

/// A change in one sentence, for the top of the page.
pub struct Choice {
    /// The predicted time, beside the present one.
    pub gain: String,
    pub means: &'static str,
    /// The part of the time that it saves, 0 to 1.
    pub saves: f64,
}

/// From this part of the time on a change is worth its price, or worth a word.
const WORTH: f64 = 0.2;
const LITTLE: f64 = 0.05;

impl Choice {
    fn new(name: &str, now: f64, then: f64, means: &'static str) -> Self {
        let name = name.replace(" us", " µs");
        let saves = if now > 0.0 { 1.0 - then / now } else { 0.0 };
        let unit = Unit::of([then, now]);
        let mut gain = format!("{name}: {} instead of {}", unit.show(then), unit.show(now));
        if saves >= LITTLE {
            gain += &format!(", {} times as fast", times(now / then));
        }
        Choice { gain, means, saves }
    }

    pub fn judgement(&self) -> &'static str {
        match self.saves {
            saves if saves >= WORTH => "Worth it",
            saves if saves >= LITTLE => "Helps a little",
            _ => "Not worth it",
        }
    }

    pub fn helps(&self) -> bool {
        self.saves >= LITTLE
    }
}

/// What money can make twice as fast, besides the changes of the equation.
const HALVED: [(Bound, &str, &str); 2] = [
    (
        Bound::Server,
        "a server twice as fast",
        "Its processor, memory for its cache, the disks that it reads from",
    ),
    (
        Bound::Client,
        "a client twice as fast",
        "Its processor, and what the program there does between its calls",
    ),
];

/// The changes, the most useful first: those that cost money, and those that do not.
pub fn options(found: &Result<Prediction, Refused>) -> [Vec<Choice>; 2] {
    let Ok(prediction) = found else { return [Vec::new(), Vec::new()] };
    let now = prediction.now.seconds;
    let (mut bought, mut others) = (Vec::new(), Vec::new());
    for outcome in &prediction.each {
        if let Some(outlook) = &outcome.outlook {
            let mut choice = Choice::new(&outcome.name, now, outlook.seconds, what(&outcome.change));
            if outlook.within_s.is_none() {
                choice.gain += " (by arithmetic: never tried)";
            }
            let costs = matches!(
                outcome.change,
                Change::LogDevice { .. }
                    | Change::RoundTrip { .. }
                    | Change::Link { .. }
                    | Change::Server { .. }
            );
            if costs { bought.push(choice) } else { others.push(choice) }
        }
    }
    for (bound, name, means) in HALVED {
        let part = part_of(&prediction.now.shares, bound);
        bought.extend(Some(Choice::new(name, now, now - part / 2.0, means)).filter(Choice::helps));
    }
    others.retain(Choice::helps);
    [bought, others].map(|mut choices| {
        choices.sort_by(|a, b| b.saves.total_cmp(&a.saves));
        choices
    })
}

/// What to note about other clients, if the client itself is a large part of the time.
pub fn caveat(found: &Result<Prediction, Refused>, terms: &Terms) -> Option<String> {
    let now = &found.as_ref().ok()?.now;
    (now.shares.client >= WORTH * now.seconds).then(|| match terms.file_think_s {
        s if s > 0.0 => format!(
            "Of the client's pauses those before a file is begun are taken for the program's own work ({} each), which stays; the \
             others go with their calls",
            time(s)
        ),
        _ => "The client's pauses are counted a call here: with fewer calls there are fewer of them. What is the program's own work \
              between its files stays"
            .to_owned(),
    })
}

const ROW: f64 = 40.0;
const TOP: f64 = 4.0;

fn draw(rows: &[Row<'_>], width: f64) -> Markup {
    let seconds = || rows.iter().map(|row| row.seconds);
    let unit = unit_of(rows.iter().map(|row| (row.seconds, row.outlook)));
    let longest = seconds().fold(0.0, f64::max);
    let ends = rows.iter().filter_map(|row| row.outlook?.within_s).map(|(_, to)| to);
    // A very long error bar would make everything else small: it is cut off at the edge.
    let most = ends.fold(longest, f64::max).min(longest * 1.5).max(f64::MIN_POSITIVE);
    let narrow = width < 500.0;
    let lines_two = narrow && rows.iter().any(|row| wide(&row.name) + wide(&value(row, unit)) + 20.0 > width);
    let row_height = if lines_two { ROW + 16.0 } else { ROW };
    let x = Scale::linear((0.0, most), (6.0, width - 20.0));
    let bottom = TOP + row_height * rows.len() as f64;
    let inside = html! {
        (time_grid(most, &x, (TOP, bottom), width))
        @for (i, row) in rows.iter().enumerate() {
            (bar(row, TOP + i as f64 * row_height, lines_two, (width, unit), &x, most))
        }
    };
    chart((width, bottom + 20.0), "What the same work would take", &inside)
}

fn value(row: &Row<'_>, unit: Unit) -> String {
    match row.outlook.and_then(|o| o.within_s) {
        Some((from, to)) => format!("{} ({} to {})", unit.show(row.seconds), unit.show(from), unit.show(to)),
        None => unit.show(row.seconds),
    }
}

fn bar(row: &Row<'_>, top: f64, below: bool, (width, unit): (f64, Unit), x: &Scale, most: f64) -> Markup {
    let within = row.outlook.and_then(|o| o.within_s);
    let value = value(row, unit);
    let bar = top + if below { 34.0 } else { 18.0 };
    let middle = bar + 8.0;
    let mut at = 0.0;
    let pieces: Vec<(Bound, f64, f64)> = row.outlook.map_or_else(Vec::new, |outlook| {
        PARTS
            .map(|bound| {
                let from = at;
                at += part_of(&outlook.shares, bound);
                (bound, from, at)
            })
            .to_vec()
    });
    html! {
        g {
            title { (row.name) ": " (value)
                @for (bound, from, to) in pieces.iter().filter(|(_, from, to)| to > from) { "\n" (part_name(*bound)) " " (unit.show(to - from)) }
            }
            text.name x="6" y=(n(top + 13.0)) { (row.name) }
            @if below { text.value x="6" y=(n(top + 28.0)) { (value) } }
            @else { text.value x=(n(width - 6.0)) y=(n(top + 13.0)) text-anchor="end" { (value) } }
            @if row.outlook.is_none() {
                rect.mark.whole x=(n(x.at(0.0))) y=(n(bar)) width=(n(x.at(row.seconds) - x.at(0.0))) height="16" {}
            }
            @for (bound, from, to) in &pieces {
                @if to > from {
                    rect.mark.(bound.name()) x=(n(x.at(*from))) y=(n(bar)) width=(n(x.at(*to) - x.at(*from))) height="16" {}
                }
            }
            @if let Some((from, to)) = within {
                line.mark.error x1=(n(x.at(from))) x2=(n(x.at(to))) y1=(n(middle)) y2=(n(middle)) {}
                line.mark.error x1=(n(x.at(from))) x2=(n(x.at(from))) y1=(n(middle - 5.0)) y2=(n(middle + 5.0)) {}
                @if to <= most {
                    line.mark.error x1=(n(x.at(to))) x2=(n(x.at(to))) y1=(n(middle - 5.0)) y2=(n(middle + 5.0)) {}
                } @else {
                    // It goes on.
                    path.mark.arrow d={ "M" (n(x.at(to) - 5.0)) " " (n(middle - 5.0)) "l5 5l-5 5" } {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_one_unit() {
        let choice = Choice::new("log device of 50 us", 22.016, 0.411, "");
        assert_eq!(choice.gain, "log device of 50 µs: 0.41 s instead of 22.02 s, 54 times as fast");
        let rows = [
            Row { name: "now".into(), seconds: 22.016, outlook: None },
            Row { name: "all".into(), seconds: 0.0665, outlook: None },
        ];
        let unit = unit_of(rows.iter().map(|row| (row.seconds, row.outlook)));
        assert_eq!(rows.each_ref().map(|row| value(row, unit)), ["22.016 s", "0.067 s"]);
    }

    #[test]
    fn all_of_these_are_never_worse_than_one_of_them() {
        // The program's own work for each file does not shrink with one client's COMPOUNDs, but with several programs.
        for file_think_s in [0.0, 40e-3] {
            let terms = Terms {
                round_trip_s: 1e-3,
                server_s: 50e-6,
                persistence_s: 4e-3,
                think_s: 1e-3,
                file_think_s,
                upload_bytes_per_s: None,
                download_bytes_per_s: None,
                in_flight: 1.0,
            };
            let work = landfast_model::Work {
                files: 100,
                bytes: 0,
                bytes_down: 0,
                calls: 700,
                synchronous_calls: 600,
                span_s: Some(8.0),
            };
            let job = Job::repeat(&work, 1.0, Some(Version::V4)).unwrap();
            let prediction = predict(&terms, &job, &Change::usual(&terms)).unwrap();
            let rows = rows(&prediction);
            let best = prediction
                .each
                .iter()
                .filter_map(|o| o.outlook)
                .map(|o| o.seconds)
                .fold(f64::INFINITY, f64::min);
            let all = rows.iter().find(|row| row.name.starts_with("all of these"));
            assert!(all.is_none_or(|all| all.seconds <= best), "{file_think_s}");
            assert_eq!(all.is_none(), file_think_s > 0.0);
        }
    }
}
