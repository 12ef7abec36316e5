//! `landfast trace --report`: pages of captures of all kinds, looked at in a browser (Debian's chromium).

mod common;
#[path = "../../trace/tests/wire/mod.rs"]
#[allow(dead_code)]
mod wire;

use common::{one_line_with, path, run, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wire::{Captured, Wire, call, pcap, reply};

const MS: i64 = 1_000_000;
/// What the page allows itself, and what a copy of it is allowed that has the test's script in it.
const ALLOWED: &str = "default-src 'none'; style-src 'unsafe-inline'";
const LOOKED_AT: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

fn browser() -> Option<&'static str> {
    let there = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let found = there.into_iter().find(|program| Path::new(program).exists());
    if found.is_none() {
        println!("skipped: needs Debian's chromium");
    }
    found
}

fn write_pcap(at: &Path, frames: &[Captured]) {
    fs::write(at, pcap(frames)).expect("a capture");
}

fn handle(of: u32) -> Vec<u8> {
    [8u32.to_be_bytes(), of.to_be_bytes(), 77u32.to_be_bytes()].concat()
}

/// `tar -x` of small files over version 3, on storage that needs so long.
fn untar(wire: &mut Wire, files: std::ops::Range<u32>, flush: i64) {
    let mut xid = 0;
    for file in files {
        let name = format!("file{file:07}x");
        let named: Vec<u8> = [handle(0), 12u32.to_be_bytes().to_vec(), name.into_bytes()].concat();
        let own = handle(file + 1);
        let made = [&0u32.to_be_bytes()[..], &1u32.to_be_bytes(), &own].concat();
        let data = [&own[..], &[0; 8], &[0, 0, 0, 64, 0, 0, 0, 2, 0, 0, 0, 64], &[7; 64]].concat();
        let (noent, ok) = (2u32.to_be_bytes().to_vec(), vec![0; 4]);
        for (procedure, arguments, results) in
            [(3, &named, &noent), (8, &named, &made), (2, &own, &ok), (7, &data, &ok), (2, &own, &ok)]
        {
            xid += 1;
            wire.send(true, &call(xid, 100_003, 3, procedure, arguments));
            // Times differ as those of a disk do.
            let spread = i64::from(file % 17) * flush / 40;
            wire.wait(
                300_000 + i64::from(xid % 7) * 20_000 + if procedure == 3 { 0 } else { flush + spread },
            );
            wire.send(false, &reply(xid, results));
            wire.wait(400_000);
        }
    }
}

/// READs only.
fn reads(wire: &mut Wire, calls: u32, pause: i64) {
    for xid in 1..=calls {
        let arguments = [&handle(xid % 3)[..], &[0; 8], &4096u32.to_be_bytes()].concat();
        wire.send(true, &call(xid, 100_003, 3, 6, &arguments));
        wire.wait(2 * MS);
        let results =
            [&[0; 8][..], &4096u32.to_be_bytes(), &[0; 4], &4096u32.to_be_bytes(), &[1; 4096]].concat();
        wire.send(false, &reply(xid, &results));
        wire.wait(pause);
    }
}

fn opened(client: u8) -> Wire {
    let mut wire = Wire::new(995);
    wire.addrs.0 = [10, 0, 0, client];
    wire.open();
    wire
}

/// What a capture's page says, and what the same capture's `--json` says.
struct Page {
    at: PathBuf,
    text: String,
    json: Value,
}

fn page(dir: &Path, name: &str, frames: &[Captured]) -> Page {
    page_with(dir, name, frames, &[])
}

fn page_with(dir: &Path, name: &str, frames: &[Captured], more: &[&str]) -> Page {
    let (capture, at) = (dir.join(name), dir.join(format!("{name}.html")));
    write_pcap(&capture, frames);
    let o = run(&[&["trace", "--json", "--report", path(&at), path(&capture)], more].concat());
    assert!(o.status.success(), "{name}: {}", stderr(&o));
    let text = fs::read_to_string(&at).expect("the page");
    Page { at, text, json: serde_json::from_str(&stdout(&o)).expect("JSON") }
}

/// Runs in the page: what is in the boxes, and the numbers.
const SCRIPT: &str = r#"
const wrong = [], kinds = {};
const inside = (b, w, h) => b.x >= -0.6 && b.y >= -0.6 && b.x + b.width <= w + 0.6 && b.y + b.height <= h + 0.6;
const light = c => {
  const [r, g, b] = c.match(/[\d.]+/g).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
for (const svg of document.querySelectorAll('svg')) {
  if (!svg.getClientRects().length) continue;
  const label = svg.getAttribute('aria-label'), box = svg.viewBox.baseVal;
  const marks = [...svg.querySelectorAll('.mark')];
  kinds[label] = marks.length;
  for (const mark of marks) {
    if (mark.tagName === 'path' && !mark.getAttribute('d')) continue;
    if (!inside(mark.getBBox(), box.width, box.height)) wrong.push(label + ': outside: ' + mark.outerHTML);
  }
  const texts = [...svg.querySelectorAll('text')].map(t => [t, t.getBBox()]);
  for (const [t, b] of texts) {
    if (!inside(b, box.width, box.height)) wrong.push(label + ': text outside: ' + t.outerHTML);
    for (const [u, c] of texts) {
      if (t !== u && b.x < c.x + c.width - 0.5 && c.x < b.x + b.width - 0.5 && b.y < c.y + c.height - 3 && c.y < b.y + b.height - 3)
        wrong.push(label + ': texts overlap: ' + t.textContent + ' | ' + u.textContent);
    }
    const under = t.classList.contains('on') && t.parentNode.querySelector('rect');
    if (under && contrast(getComputedStyle(t).fill, getComputedStyle(under).fill) < 4.5)
      wrong.push(label + ': hard to read: ' + t.outerHTML);
  }
}
const page = getComputedStyle(document.body);
if (contrast(page.color, page.backgroundColor) < 7) wrong.push('hard to read');
if (document.scrollingElement.scrollWidth > innerWidth) wrong.push('the page is wider than the window');
const cells = (rows) => [...document.querySelectorAll(rows)].map(r => [...r.children].map(c => c.textContent.trim()));
const value = (at) => document.querySelector(at)?.value ?? null;
const parts = {};
for (const row of document.querySelectorAll('#parts tbody tr')) parts[row.dataset.part] = row.querySelector('data').value;
const typical = [...document.querySelectorAll('#typical .wide svg')].map(svg => [...svg.querySelectorAll('.call')].map(call => {
  const pieces = [...call.querySelectorAll('.piece')].map(p => [p.classList.item(2), +p.getAttribute('x'), +p.getAttribute('width')]);
  return {name: call.querySelector('.name').textContent, s: +call.dataset.s, from: pieces[0][1], pieces};
}));
const found = {
  typical,
  wrong, kinds, parts, dark: light(page.backgroundColor) < 0.1,
  bound: document.querySelector('#verdict').dataset.bound,
  calls: value('#calls'), trip: value('#round-trip'), persistence: value('#persistence'),
  waits: [...document.querySelectorAll('data[data-calls]')].map(d => d.value),
  procedures: cells('table.procedures[data-program=NFS] tbody tr'),
  ends: [...document.querySelectorAll('#both-ends tbody tr')].map(r => [r.children[0].textContent, ...[...r.querySelectorAll('data')].map(d => d.value)]),
  trust: cells('#trust tr'), files: cells('#files tbody tr'), pairs: cells('#pairs tbody tr'),
};
console.log('looked at');
const out = document.createElement('pre');
out.id = 'found';
out.textContent = JSON.stringify(found);
document.body.replaceChildren(out);
"#;

/// Opens a page and looks at it.
fn look(browser: &str, page: &Page, (width, dark): (u32, bool)) -> Value {
    assert!(page.text.contains(ALLOWED));
    let copy = page.at.with_extension("looked-at.html");
    let script = format!("<script>{SCRIPT}</script></body>");
    fs::write(&copy, page.text.replace(ALLOWED, LOOKED_AT).replace("</body>", &script)).expect("a copy");
    let profile = tempfile::tempdir().expect("a directory");
    let o = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", path(profile.path())))
        .arg(format!("--window-size={width},900"))
        .args(dark.then_some("--blink-settings=preferredColorScheme=0"))
        .arg(format!("file://{}", path(&copy)))
        .stdin(Stdio::null())
        .output()
        .expect("the browser runs");
    let (dom, said) = (stdout(&o), stderr(&o));
    let console: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.len() == 1 && console[0].contains("looked at"), "{console:?}");
    let json = dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let json = json.unwrap_or_else(|| panic!("the script did not end: {dom}\n{said}")).0;
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&json).expect("what was found")
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .or_else(|| value.as_str()?.replace(',', "").parse().ok())
        .unwrap_or_else(|| panic!("no number: {value}"))
}

fn same(page: &Value, json: &Value, within: f64) {
    let (a, b) = (number(page), number(json));
    assert!((a - b).abs() <= within.max(b.abs() * 1e-9), "{page} {json}");
}

/// The page is as it should be in windows of all kinds, and says what `--json` says.
fn check(browser: &str, page: &Page, name: &str) -> Value {
    let mut first = None;
    for window in [(1100, false), (1100, true), (500, false)] {
        let found = look(browser, page, window);
        assert_eq!(found["wrong"], serde_json::json!([]), "{name} {window:?}");
        assert_eq!(found["dark"], window.1, "{name}");
        first.get_or_insert(found);
    }
    let found = first.expect("three windows");
    let json = &page.json;
    assert_eq!(found["bound"], json["verdict"]["bound"], "{name}");
    for (part, s) in json["verdict"]["shares"].as_object().expect("shares") {
        same(&found["parts"][part], s, 0.0);
    }
    same(&found["parts"]["irregular"], &json["verdict"]["irregular_s"], 0.0);
    same(&found["calls"], &json["work"]["calls"], 0.0);
    same(&found["trip"], &json["terms"]["round_trip_s"], 0.0);
    same(&found["persistence"], &json["terms"]["persistence_s"], 0.0);
    let waits: f64 = found["waits"].as_array().expect("a list").iter().map(number).sum();
    same(&waits.into(), &json["work"]["calls"], 0.0);
    let rows = json["procedures"].as_array().expect("rows");
    let shown = found["procedures"].as_array().expect("rows");
    assert_eq!(shown.len(), rows.len(), "{name}");
    for (shown, row) in shown.iter().zip(rows) {
        assert_eq!(shown[1], row["name"]);
        same(&shown[2], &row["calls"], 0.0);
        for (i, key) in ["min_s", "max_s", "avg_s", "sum_s", "median_s", "p99_s"].iter().enumerate() {
            same(&shown[3 + i], &row[*key], 1.01e-6);
        }
    }
    let coverage = found["trust"][0][2].as_str().expect("a text").replace(',', "");
    assert!(
        coverage.starts_with(&format!("{} of {} calls", json["calls_matched"], json["calls_seen"])),
        "{coverage}"
    );
    found
}

#[test]
fn a_page_says_what_json_says_and_all_charts_are_whole() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let mut tar = opened(2);
    untar(&mut tar, 0..60, 20 * MS);
    let tar = page(dir, "tar", &tar.frames);
    let found = check(browser, &tar, "tar");
    assert_eq!(found["bound"], "persistence");
    // All charts are there, with what they show.
    let kinds = found["kinds"].as_object().expect("charts");
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    assert!(kinds.values().all(|marks| number(marks) > 0.0), "{kinds:?}");
    // Each file: LOOKUP, CREATE, SETATTR, WRITE, SETATTR: 5 RPCs, 4 synchronous.
    let shape = &found["files"][0];
    assert_eq!(
        (shape[0].as_str(), shape[1].as_str(), shape[2].as_str(), shape[4].as_str()),
        (Some("60"), Some("5"), Some("4"), Some("LOOKUP NOENT, CREATE, SETATTR, WRITE, SETATTR"))
    );
    // A typical file: all of its calls, in proportion, and what each waited for.
    let (drawn, told) = (&found["typical"][0], &tar.json["typical_files"][0]["calls"]);
    let names = ["LOOKUP NOENT", "CREATE", "SETATTR", "WRITE", "SETATTR"];
    let calls = drawn.as_array().expect("calls");
    assert_eq!(calls.iter().map(|call| call["name"].as_str()).collect::<Vec<_>>(), names.map(Some));
    let width =
        |call: &Value| call["pieces"].as_array().expect("pieces").iter().map(|p| number(&p[2])).sum::<f64>();
    let scale = width(&calls[3]) / number(&calls[3]["s"]);
    for (call, told) in calls.iter().zip(told.as_array().expect("calls")) {
        let took = ["upload_s", "wait_s", "reply_s"].map(|key| number(&told[key])).iter().sum::<f64>();
        same(&call["s"], &took.into(), 1e-9);
        assert!((width(call) - took * scale).abs() < 0.5, "{call}");
        let from = number(&call["from"]) - number(&calls[0]["from"]);
        assert!((from - number(&told["at_s"]) * scale).abs() < 0.5, "{call}");
        let longest = call["pieces"]
            .as_array()
            .expect("pieces")
            .iter()
            .max_by(|a, b| number(&a[2]).total_cmp(&number(&b[2])));
        let waited_for = if told["synchronous"] == true { "persistence" } else { "rtt" };
        assert_eq!(longest.expect("a piece")[0], waited_for, "{call}");
    }
    assert!(tar.text.contains("<h3>60 of 60 files: 5 calls, 4 synchronous</h3>"));
    assert!(tar.text.contains("<b>Worth it: </b>log device of 50 µs"), "what to buy");
    assert!(tar.text.contains("<b>Not worth it: </b>round trip of"), "what not to buy");

    // One call.
    let mut wire = opened(2);
    reads(&mut wire, 1, 0);
    check(browser, &page(dir, "one", &wire.frames), "one");
    // Only reads: nothing had to be stable.
    let mut wire = opened(2);
    reads(&mut wire, 500, MS);
    let found = check(browser, &page(dir, "reads", &wire.frames), "reads");
    assert_eq!(found["waits"].as_array().expect("a list").len(), 1);
    // Five days.
    let mut wire = opened(2);
    reads(&mut wire, 50, 5 * 86_400_000 * MS / 50);
    let days = page(dir, "days", &wire.frames);
    check(browser, &days, "days");
    assert!(days.text.contains(">4 d<"), "days on the axis");
    // Many files, and many clients.
    let mut frames = Vec::new();
    for client in 2..42 {
        let mut wire = opened(client);
        let first = u32::from(client) * 1000;
        untar(&mut wire, first..first + 150, MS / 10);
        frames.extend(wire.frames);
    }
    frames.sort_by_key(|f| f.ns);
    let many = check(browser, &page(dir, "many", &frames), "many");
    assert_eq!(many["files"][0][0], "6,000");
    assert!(many["pairs"].as_array().expect("rows").len() >= 30);
}

#[test]
fn the_answer_and_its_picture_come_first_and_stalls_sell_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut wire = opened(2);
    for xid in 1..=200 {
        let handle = handle(7);
        wire.send(true, &call(xid, 100_003, 3, if xid % 2 == 0 { 2 } else { 1 }, &handle));
        wire.wait(if xid == 60 { 2000 * MS } else { MS });
        wire.send(false, &reply(xid, &[0; 4]));
        wire.wait(MS / 2);
    }
    let page = page(dir.path(), "stall", &wire.frames);
    let stalls = &page.json["verdict"]["stalls"];
    assert_eq!((stalls["count"].as_u64(), stalls["calls"].as_u64()), (Some(1), Some(1)), "{stalls}");
    assert!((number(&stalls["longest"][0]["seconds"]) - 2.0).abs() < 0.01, "{stalls}");
    let at = |text: &str| page.text.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(
        at("Confidence: ") < at("<svg") && at("<svg") < at("What says so"),
        "the answer, the picture, the words"
    );
    assert!(page.text.contains("Nothing, before it is known why calls were let wait"));
    assert!(!page.text.contains("Worth it: ") && page.text.contains("data-part=\"stalls\""));
    assert!(page.text.contains("the server answered nobody for 2.00 s"));
}

/// The same traffic at the server: the way there and back takes so long.
fn at_the_server(client: &[Captured], way: i64) -> Vec<Captured> {
    let moved = |frame: &Captured| {
        // By the last byte of the address that it comes from.
        let up = frame.data[29] != 1;
        Captured { ns: frame.ns + if up { way } else { -way }, ..frame.clone() }
    };
    let mut frames: Vec<Captured> = client.iter().map(moved).collect();
    frames.sort_by_key(|frame| frame.ns);
    frames
}

#[test]
fn a_page_of_two_captures_has_what_each_end_measured() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let mut tar = opened(2);
    untar(&mut tar, 0..40, 20 * MS);
    let server = dir.join("server");
    write_pcap(&server, &at_the_server(&tar.frames, 100_000));
    let page = page_with(dir, "client", &tar.frames, &["--merge", path(&server)]);
    let found = check(browser, &page, "client");
    let kinds = found["kinds"].as_object().expect("charts");
    assert!(number(&kinds["Service times at both ends"]) > 0.0, "{kinds:?}");
    let (both, shown) = (&page.json["both_ends"], found["ends"].as_array().expect("rows"));
    let rows = both["procedures"].as_array().expect("rows").iter().chain([&both["all"]]);
    for row in rows.clone() {
        let shown = shown.iter().find(|shown| shown[0] == row["name"]).expect("its row");
        for (value, key) in
            shown.as_array().expect("values")[1..].iter().zip(["client_s", "server_s", "network_s"])
        {
            same(value, &(number(&row[key]) / number(&row["calls"])).into(), 1e-9);
        }
        same(&shown[3], &0.0002.into(), 1e-9);
    }
    assert_eq!(shown.len(), rows.count());
    // The one that is waited for longest first; all together last.
    assert_eq!((&shown[0][0], &shown[4][0]), (&"SETATTR".into(), &"all".into()));
    assert!(page.text.contains("200 of 200 calls are in both captures"));
    assert!(page.text.contains(&format!("client and {}</h1>", path(&server))));
    // Two that have nothing to do with each other.
    let mut wire = opened(2);
    reads(&mut wire, 3, MS);
    let page = page_with(dir, "reads", &wire.frames, &["--merge", path(&server)]);
    assert!(page.text.contains("no call in common"));
    assert_eq!(check(browser, &page, "reads")["ends"], serde_json::json!([]));
}

#[test]
fn a_page_needs_nothing_else_and_runs_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut wire = opened(2);
    untar(&mut wire, 0..3, MS);
    // What people call their files is text, whatever it looks like.
    let page = page(dir.path(), "<script>alert(1)<_script>&\"'", &wire.frames);
    assert!(!page.text.contains("<script") && page.text.contains("&lt;script&gt;alert(1)"));
    for elsewhere in ["http:", "https:", "src=", "href=", "url(", "@import", "<link", "<iframe"] {
        assert!(!page.text.contains(elsewhere), "{elsewhere}");
    }
    assert!(page.text.contains(ALLOWED));
}

#[test]
fn what_was_never_tried_is_told_as_such() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().join("page.html");
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/captures/disk.pcap.gz");
    assert!(run(&["trace", "--report", path(&at), path(&capture)]).status.success());
    let text = fs::read_to_string(&at).expect("the page");
    let told = |change: &str| {
        let from = text.find(&format!("<li>{change}: ")).unwrap_or_else(|| panic!("{change}: {text}"));
        text[from..].split_once("</li>").expect("its end").0.contains("never tried")
    };
    assert!(told("delegations") && !told("4 streams"));
    let row =
        text.split_once("<th>delegations</th>").expect("its row").1.split_once("</tr>").expect("its end").0;
    assert!(row.contains("not tried"), "{row}");
}

#[test]
fn where_a_page_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let capture = dir.join("capture");
    let mut wire = opened(2);
    reads(&mut wire, 3, MS);
    write_pcap(&capture, &wire.frames);
    let bytes = fs::read(&capture).expect("it");
    // Not over the capture, under whatever name it goes.
    std::os::unix::fs::symlink(&capture, dir.join("link")).expect("a link");
    fs::hard_link(&capture, dir.join("other name")).expect("a link");
    for name in ["capture", "link", "other name"] {
        let o = run(&["trace", "--report", path(&dir.join(name)), path(&capture)]);
        assert_eq!(o.status.code(), Some(2), "{name}");
        one_line_with(&stderr(&o), &[name, "the capture"]);
    }
    assert_eq!(fs::read(&capture).expect("it"), bytes);
    for (to, why) in [("no such/page.html", "no such directory"), ("", "is a directory")] {
        let o = run(&["trace", "--report", path(&dir.join(to)), path(&capture)]);
        assert_eq!(o.status.code(), Some(2));
        one_line_with(&stderr(&o), &[why]);
    }
    // What was there is replaced as a whole; the table is printed as without a page.
    let out = dir.join("out.html");
    fs::write(&out, "what was there").expect("a file");
    let o = run(&["trace", "--report", path(&out), path(&capture)]);
    assert!(o.status.success() && stdout(&o).contains("READ "), "{}", stderr(&o));
    assert!(fs::read_to_string(&out).expect("the page").ends_with("</html>"));
    // What is no capture leaves it as it was, and nothing beside it.
    let before = fs::read(&out).expect("the page");
    let broken = dir.join("broken");
    fs::write(&broken, "this is no capture at all, but text").expect("a file");
    assert_eq!(run(&["trace", "--report", path(&out), path(&broken)]).status.code(), Some(2));
    assert_eq!(fs::read(&out).expect("the page"), before);
    let left = fs::read_dir(dir).expect("a directory").filter_map(Result::ok);
    let left: Vec<_> = left.filter(|e| e.file_name().to_string_lossy().starts_with(".landfast")).collect();
    assert!(left.is_empty(), "{left:?}");
    // A capture of nothing has a page that says so.
    write_pcap(&capture, &[]);
    let o = run(&["trace", "--report", path(&out), path(&capture)]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["no calls to NFS in it"]);
    let text = fs::read_to_string(&out).expect("the page");
    assert!(text.contains("Nothing can be said") && text.contains("no calls to NFS in it"));
    // To a device it is written, and what that says is said.
    write_pcap(&capture, &wire.frames);
    let o = run(&["trace", "--report", "/dev/full", path(&capture)]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["/dev/full"]);
}
