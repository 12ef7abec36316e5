//! What was found as text: tables in the form of the documents, and the promises.

use std::fmt::Write;

use super::{Report, Row, Side, Subject};
use crate::guest::markdown::{self, in_order};

pub fn text(report: &Report) -> String {
    let mut text = format!("Linux {} and Landfast's client, {} server\n\n", report.kernel, report.server);
    // Writing to a string cannot fail.
    for trip in &report.round_trips {
        let (ms, all) = (trip.emulated_ms, trip.connection_ms);
        let _ = writeln!(text, "round trip {ms} ms: a connection takes {all:.2} ms");
    }
    for subject in [Subject::Files, Subject::NestedOpen, Subject::WebPage] {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.subject == subject).collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "\n{}", table(subject, &rows));
        }
    }
    for promise in &report.promises {
        let word = if promise.kept { "kept:  " } else { "BROKEN:" };
        let bound = if promise.at_most { "at most" } else { "at least" };
        let _ = writeln!(text, "{word} {}: {:.2}, {bound} {}", promise.what, promise.value, promise.bound);
    }
    text
}

/// A line for each work at each round trip; for each of the kernel's versions also how many times as long it took.
fn table(subject: Subject, rows: &[&Row]) -> String {
    let (what, rpcs, time) = match subject {
        Subject::Files => ("", "RPCs a file", "seconds"),
        Subject::NestedOpen => ("directories above", "RPCs", "ms"),
        Subject::WebPage => ("page", "RPCs", "ms"),
    };
    let clients = in_order(rows.iter().map(|row| row.client.clone()));
    let mut head = vec![what.to_owned(), "round trip".to_owned()];
    head.extend((subject == Subject::Files).then(|| "files".to_owned()));
    for client in &clients {
        head.extend([format!("{client}: {rpcs}"), time.to_owned()]);
        head.extend((client != Side::OURS).then(|| "times as long".to_owned()));
    }
    let mut lines = vec![head];
    for ours in rows.iter().filter(|row| row.client == Side::OURS) {
        let mut line = vec![ours.work.clone(), format!("{} ms", ours.round_trip_ms)];
        line.extend((subject == Subject::Files).then(|| ours.objects.to_string()));
        for client in &clients {
            let theirs = rows.iter().find(|row| row.client == *client && row.is_beside(ours));
            let row = theirs.unwrap_or(ours);
            line.extend(match subject {
                Subject::Files => {
                    [format!("{:.3}", row.rpcs / row.objects.max(1) as f64), format!("{:.2}", row.seconds)]
                }
                _ => [row.rpcs.to_string(), format!("{:.1}", row.seconds * 1000.0)],
            });
            line.extend((client != Side::OURS).then(|| format!("{:.1}", row.seconds / ours.seconds)));
        }
        lines.push(line);
    }
    markdown::table(&lines)
}
