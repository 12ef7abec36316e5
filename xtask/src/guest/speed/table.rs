//! What was found as text: tables in the form of the documents, and the promises.

use std::fmt::Write;

use super::{Report, Row, Side};

/// All of it.
pub fn text(report: &Report) -> String {
    let mut text = format!("Linux {} and Landfast's client, {} server\n\n", report.kernel, report.server);
    // Writing to a string cannot fail.
    for trip in &report.round_trips {
        let (ms, all) = (trip.emulated_ms, trip.connection_ms);
        let _ = writeln!(text, "round trip {ms} ms: a connection takes {all:.2} ms");
    }
    let _ = writeln!(text, "\n{}", files(&report.rows));
    for promise in &report.promises {
        let word = if promise.kept { "kept:  " } else { "BROKEN:" };
        let _ =
            writeln!(text, "{word} {}: {:.2}, at least {}", promise.what, promise.value, promise.at_least);
    }
    text
}

/// A line for each work at each round trip; for each of the kernel's versions also how many times as long it took.
fn files(rows: &[Row]) -> String {
    let clients = clients(rows);
    let mut head = ["", "round trip", "files"].map(String::from).to_vec();
    for client in &clients {
        head.push(format!("{client}: RPCs a file"));
        head.push("seconds".to_owned());
        head.extend((client != Side::OURS).then(|| "times as long".to_owned()));
    }
    let mut lines = vec![head];
    for ours in rows.iter().filter(|row| row.client == Side::OURS) {
        let trip = format!("{} ms", ours.round_trip_ms);
        let mut line = vec![format!("`{}`", ours.work), trip, ours.objects.to_string()];
        for client in &clients {
            let theirs = rows.iter().find(|row| row.client == *client && row.is_beside(ours));
            let row = theirs.unwrap_or(ours);
            line.push(format!("{:.3}", row.rpcs / row.objects.max(1) as f64));
            line.push(format!("{:.2}", row.seconds));
            line.extend((client != Side::OURS).then(|| format!("{:.1}", row.seconds / ours.seconds)));
        }
        lines.push(line);
    }
    markdown(&lines)
}

/// The clients, in the order in which they came.
fn clients(rows: &[Row]) -> Vec<String> {
    let mut clients: Vec<String> = Vec::new();
    for row in rows {
        if !clients.contains(&row.client) {
            clients.push(row.client.clone());
        }
    }
    clients
}

/// The first line is the head.
fn markdown(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let _ = writeln!(text, "| {} |", line.join(" | "));
        if number == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(line.len()));
        }
    }
    text
}
