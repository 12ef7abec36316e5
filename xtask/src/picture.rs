//! The README's picture: `docs/demo.svg`, drawn from what `landfast demo --json` printed (`docs/demo.json`).

use std::fmt::Write as _;

use serde::Deserialize;

#[derive(Deserialize)]
struct Report {
    archive: String,
    flush_ms: f64,
    log_flush_ms: f64,
    rtt_ms: f64,
    rows: Vec<Row>,
    doubts: Vec<String>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    durable: bool,
    files_per_s: f64,
    rpcs_per_file: f64,
    disk_flushes_per_file: Option<f64>,
    log_flushes_per_file: Option<f64>,
    lost: Option<Lost>,
}

#[derive(Deserialize)]
struct Lost {
    acknowledged: u64,
    names: u64,
    damaged: u64,
}

const WIDTH: f64 = 890.0;
const LABELS: f64 = 325.0;
const BARS: f64 = 250.0;
const ROW: f64 = 34.0;
const TOP: f64 = 78.0;

/// The picture of a report.
/// Errors: The report is not the demo's.
pub fn of_demo(json: &str) -> Result<String, String> {
    let report: Report = serde_json::from_str(json).map_err(|e| format!("the demo's report: {e}"))?;
    let most = report.rows.iter().map(|row| row.files_per_s).fold(f64::MIN_POSITIVE, f64::max);
    let height = TOP + ROW * report.rows.len() as f64 + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
         <style>text {{ fill: #1f2328 }} .dim {{ fill: #59636e }} .bar {{ fill: #59636e }} .ours {{ fill: #1a7f37 }} \
         .risk {{ fill: #cf222e }} @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .dim {{ fill: #9198a1 }} \
         .bar {{ fill: #656c76 }} .ours {{ fill: #3fb950 }} .risk {{ fill: #f85149 }} }}</style>\n\
         <text x=\"0\" y=\"18\" font-weight=\"bold\">Files a second: {}</text>\n\
         <text x=\"0\" y=\"38\" class=\"dim\">disk flush {} ms, log flush {} ms, round trip {} ms; printed by landfast demo</text>\n\
         <text x=\"0\" y=\"56\" class=\"dim\">{}</text>\n",
        escaped(&report.archive),
        report.flush_ms,
        report.log_flush_ms,
        report.rtt_ms,
        if report.rows.iter().any(|row| row.lost.is_some()) {
            "The power was cut after the last acknowledgement of each; red (*) is not durable"
        } else {
            "Red (*) is not durable"
        },
    );
    if !report.doubts.is_empty() {
        // Writing to a String does not fail.
        let _ = writeln!(
            svg,
            "<text x=\"{WIDTH}\" y=\"18\" text-anchor=\"end\" class=\"risk\">The machine was disturbed: times are rough</text>"
        );
    }
    for (n, row) in report.rows.iter().enumerate() {
        let y = TOP + ROW * n as f64;
        let class = match (row.name.as_str(), row.durable) {
            ("untar", _) => "ours",
            (_, false) => "risk",
            _ => "bar",
        };
        let long = (BARS * row.files_per_s / most).max(1.0);
        let figure = figure(row);
        // Writing to a String does not fail.
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LABELS}\" y=\"{}\" width=\"{long:.1}\" height=\"22\" rx=\"2\" class=\"{class}\"/>\n\
             <text x=\"{:.1}\" y=\"{}\" class=\"dim\" font-size=\"12\">{figure}</text>\n",
            LABELS - 10.0,
            y + 16.0,
            escaped(title(&row.name, row.durable).as_str()),
            y,
            LABELS + long + 6.0,
            y + 15.0,
        );
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn title(name: &str, durable: bool) -> String {
    let what = match name {
        "local" => "tar -x and sync on the disk itself",
        "ganesha-xfs" => "one at a time, nfs-ganesha, XFS wsync",
        "ganesha-xfs-untar" => "landfast untar, nfs-ganesha, XFS wsync",
        "ganesha-ext4" => "one at a time, nfs-ganesha, ext4",
        "sync" => "one at a time, Landfast without its log",
        "log" => "one at a time, Landfast",
        "nfs-cp" => "one at a time (libnfs' nfs-cp), Landfast",
        "unsafe" => "one at a time, Landfast, nothing flushed",
        "untar" => "landfast untar, Landfast",
        other => other,
    };
    if durable { what.to_owned() } else { format!("{what} *") }
}

/// What stands behind a bar.
fn figure(row: &Row) -> String {
    let mut figure = match row.files_per_s {
        few if few < 100.0 => format!("{few:.1}"),
        many => format!("{many:.0}"),
    };
    if row.rpcs_per_file > 0.0 {
        let flushes = row.disk_flushes_per_file.unwrap_or(0.0) + row.log_flushes_per_file.unwrap_or(0.0);
        figure += &format!(", {} RPCs and {} flushes a file", short(row.rpcs_per_file), short(flushes));
    }
    if let Some(lost) = row.lost.as_ref().filter(|lost| lost.names + lost.damaged > 0) {
        figure += &format!("; lost {} of {}", lost.names + lost.damaged, lost.acknowledged);
    }
    figure
}

fn short(n: f64) -> String {
    match n {
        n if n >= 0.095 => format!("{n:.1}"),
        n if n >= 0.0095 => format!("{n:.2}"),
        n => format!("{n:.3}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_picture_of_the_readme_is_of_the_report_beside_it() {
        let svg = super::of_demo(include_str!("../../docs/demo.json")).expect("the demo's report");
        assert!(
            svg == include_str!("../../docs/demo.svg"),
            "docs/demo.svg: draw it again with `cargo xtask docs`"
        );
    }

    #[test]
    fn a_disturbed_run_is_drawn_with_a_mark() {
        let mut report: serde_json::Value =
            serde_json::from_str(include_str!("../../docs/demo.json")).expect("JSON");
        let mark = |report: &serde_json::Value| {
            super::of_demo(&report.to_string())
                .expect("the demo's report")
                .contains("The machine was disturbed")
        };
        report["doubts"] = serde_json::json!([]);
        assert!(!mark(&report));
        report["doubts"] = serde_json::json!(["other work"]);
        assert!(mark(&report));
    }

    #[test]
    fn what_is_not_the_demos_report_is_no_picture() {
        assert!(super::of_demo("{}").is_err());
    }
}
