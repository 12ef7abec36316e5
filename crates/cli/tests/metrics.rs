//! The metrics from outside: HTTP, before and after work was done.

mod common;

use common::*;
use std::io::{Read, Write};
use std::net::TcpStream;

/// The head of the answer, and the rest.
fn http(addr: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(addr).expect("the metrics' address");
    write!(stream, "{request} HTTP/1.1\r\nHost: {addr}\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, and its end");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

fn value(page: &str, of: &str) -> f64 {
    let line = page.lines().find_map(|l| l.strip_prefix(of)?.strip_prefix(' '));
    line.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no {of} in\n{page}"))
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn figures_are_given_by_http() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("the export");
    let log = dir.path().join("log");
    let serving =
        Serving::with(&data, &["--log", path(&log), "--log-size", "32M", "--metrics", "127.0.0.1:0"]);
    let said = serving.words.lines().find_map(|l| l.strip_prefix("landfast: metrics at http://"));
    let addr = said.and_then(|rest| rest.strip_suffix("/metrics")).expect("where");
    let (head, before) = http(addr, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text"), "{head}");
    assert!(before.ends_with("# EOF\n"), "{before}");
    assert_eq!(value(&before, "landfast_compounds_total"), 0.0);
    assert_eq!(value(&before, "landfast_limit{resource=\"connections\"}"), 8192.0);

    let archive = dir.path().join("one.tar");
    std::fs::write(dir.path().join("file"), b"content").expect("a file");
    let mut tar = tar::Builder::new(std::fs::File::create(&archive).expect("an archive"));
    tar.append_path_with_name(dir.path().join("file"), "file").expect("packed");
    tar.finish().expect("packed");
    drop(tar);
    let done = run(&["untar", path(&archive), &serving.url]);
    assert!(done.status.success(), "{}", stderr(&done));

    let (_, after) = http(addr, "GET /metrics");
    assert!(value(&after, "landfast_compounds_total") > 0.0);
    assert!(
        value(
            &after,
            "landfast_log_flushes_total{export=\"EXPORT\"}".replace("EXPORT", path(&data)).as_str()
        ) > 0.0
    );
    assert!(value(&after, "landfast_request_seconds_count{program=\"nfs4\"}") > 0.0);
    let sessions = after.lines().find(|l| {
        l.starts_with("landfast_operations_total{")
            && l.contains("\"CREATE_SESSION\"")
            && l.contains("\"nfs4.")
    });
    assert!(sessions.is_some_and(|l| l.ends_with(" 1")), "{sessions:?}");

    assert!(http(addr, "GET /").0.starts_with("HTTP/1.1 404 "));
    assert!(http(addr, "POST /metrics").0.starts_with("HTTP/1.1 405 "));
    assert!(http(addr, "no http at all,").0.starts_with("HTTP/1.1 400 "));
}
