//! Large files: those that a server copies after it has answered (RFC 7862 section 4.5), and those that `--resume` goes on with.

use super::copying::local;
use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant, SystemTime};

const MIB: u64 = 1 << 20;
/// Bytes of a file that is copied: three parts of what the journal notes one by one, and some.
const LARGE: u64 = 200 * MIB;
/// The same with two.
const PARTED: u64 = 136 * MIB;
/// What stands in the place of a part that is not sent again.
const MARK: &[u8] = b"this part is not sent again";
/// Where: in the first part.
const AT: u64 = 5 * MIB;

/// A server with metrics.
fn measured() -> Option<(Rig, String)> {
    if !common::root() {
        return None;
    }
    let dir = tempfile::Builder::new().prefix("landfast-large-").tempdir_in("/var/tmp").expect("a directory");
    let (volume, log) = (dir.path().join("volume"), dir.path().join("log"));
    fs::create_dir(&volume).expect("a directory");
    let options = ["--log", path(&log), "--log-size", "32M", "--metrics", "127.0.0.1:0"];
    let server = Serving::with(&volume, &options);
    let said = server.words.lines().find_map(|l| l.strip_prefix("landfast: metrics at http://"));
    let metrics = said.and_then(|rest| rest.strip_suffix("/metrics")).expect("where").to_owned();
    Some((Rig { dir, server }, metrics))
}

/// How often the server has executed an operation well.
fn executed(metrics: &str, op: &str) -> u64 {
    let mut stream = TcpStream::connect(metrics).expect("the metrics' address");
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    let of = |l: &&str| l.starts_with("landfast_operations_total{") && l.contains(&format!("\"{op}\""));
    page.lines()
        .filter(of)
        .map(|l| l.rsplit(' ').next().expect("a word").parse::<u64>().expect("a number"))
        .sum()
}

/// A file whose parts are all different.
fn large(path: &Path, bytes: u64) {
    let file = fs::File::create(path).expect("a file");
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut block = vec![0; MIB as usize];
    for at in (0..bytes).step_by(block.len()) {
        for word in block.chunks_exact_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all_at(&block, at).expect("room");
    }
}

/// Whether one is as the other; `marked`: but for the mark in it.
#[track_caller]
fn assert_copied(from: &Path, to: &Path, marked: bool, what: &str) {
    let (from, mut to) = (fs::read(from).expect("the source"), fs::read(to).expect("the copy"));
    let mark = AT as usize..AT as usize + MARK.len();
    assert_eq!(to[mark.clone()] == *MARK, marked, "{what}: the mark");
    to[mark.clone()].copy_from_slice(&from[mark]);
    assert!(from == to, "{what}: from byte {:?} on", from.iter().zip(&to).position(|(a, b)| a != b));
}

#[test]
fn a_large_file_is_copied_by_a_server_that_tells_of_its_end() {
    let Some((rig, metrics)) = measured() else { return };
    large(&rig.at("from"), LARGE);
    let end = said(landfast().args(["cp", "--json", "-p", &rig.url("from", "4.2"), &rig.url("to", "4.2")]));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.summary()["bytes_sent"].as_u64() < Some(MIB), "{end:?}");
    // What it says is on the disk.
    let (volume, log) = (rig.at(""), rig.dir.path().join("log"));
    let copies = executed(&metrics, "COPY") + executed(&metrics, "CLONE");
    let bound = executed(&metrics, "BIND_CONN_TO_SESSION");
    let Rig { dir, mut server } = rig;
    server.again(&volume, &log);
    let rig = Rig { dir, server };
    assert_copied(&rig.at("from"), &rig.at("to"), false, "copied");
    // A filesystem that clones has no need of it: a CLONE and its probe.
    if copies > 2 {
        assert!(bound > 0, "nothing was bound for callbacks");
        assert!(copies <= LARGE.div_ceil(64 * MIB) + 3, "{copies} copies");
    }
}

/// The check of a journal's line.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 & 0u32.wrapping_sub(crc & 1)))
    })
}

/// Leaves of a finished journal the parts of the large file, as if its end had not come.
fn cut(journal: &Path) {
    let text = fs::read_to_string(journal).expect("a journal");
    let mut kept = String::new();
    for line in text.lines().filter(|l| !l.contains("{\"end\":")) {
        let (crc, body) = line.split_once(' ').expect("a check");
        assert_eq!(crc, format!("{:08x}", crc32c(body.as_bytes())), "{line}");
        let (numbers, json) = body.split_at(body.find('{').expect("a record"));
        let mut record: serde_json::Value = serde_json::from_str(json).expect("JSON");
        for name in ["objects", "members"] {
            record.get_mut("done").and_then(serde_json::Value::as_object_mut).map(|done| done.remove(name));
        }
        let body = if line.contains("{\"job\":") { body.to_owned() } else { format!("{numbers}{record}") };
        kept.push_str(&format!("{:08x} {body}\n", crc32c(body.as_bytes())));
    }
    assert!(kept.contains("\"parts\":"), "no part was noted: {text}");
    fs::write(journal, kept).expect("a journal");
}

#[test]
fn a_large_file_goes_on_behind_what_is_stable() {
    let Some((rig, _)) = measured() else { return };
    let local = local(&rig);
    large(&local.join("large"), PARTED);
    fs::create_dir_all(rig.at("s")).expect("a directory");
    fs::copy(local.join("large"), rig.at("s/large")).expect("a copy");
    fs::write(local.join("short"), "short").expect("a file");
    fs::copy(local.join("large"), local.join("marked")).expect("a copy");
    let marked = fs::File::options().write(true).open(local.join("marked")).expect("it");
    marked.write_all_at(MARK, AT).expect("a mark");
    let others = |words: &[&str]| {
        let end = said(landfast().args(words));
        assert_eq!(end.code, Some(0), "{end:?}");
    };
    let made = Command::new("tar").args(["-cf", "large.tar", "large"]).current_dir(&local).status();
    assert!(made.expect("tar").success());
    let (here, archive) = (path(&local.join("large")).to_owned(), path(&local.join("large.tar")).to_owned());
    for (name, version, from, words) in [
        ("here", "4.2", here.clone(), &["cp", "-p"][..]),
        ("three", "3", here.clone(), &["cp"]),
        ("forty", "4.0", here.clone(), &["cp", "-p"]),
        ("tar", "4.1", archive, &["untar", "-p"]),
        ("there", "4.2", rig.url("s/large", "4.2"), &["cp", "-p"]),
        ("read", "4.2", rig.url("s/large", "4.2"), &["cp", "-p", "--reflink=never"]),
    ] {
        fs::create_dir(rig.at(name)).expect("a directory");
        let (to, journal, dest) =
            (rig.url(name, version), local.join(format!("{name}.j")), rig.at(name).join("large"));
        let mut args = words.to_vec();
        args.extend(["--json", &from, &to, "--resume", path(&journal)]);
        let run = || {
            let end = said(landfast().args(&args));
            assert_eq!(end.code, Some(0), "{name}: {end:?}");
            fs::read_to_string(&journal).expect("a journal")
        };
        let whole = run();
        // One that clones has no parts.
        if name == "there" && !whole.contains("\"parts\":") {
            continue;
        }
        assert_copied(&local.join("large"), &dest, false, name);
        let unfinished = |journal: &Path| {
            fs::write(journal, &whole).expect("a journal");
            cut(journal);
        };
        unfinished(&journal);
        let file = fs::File::options().write(true).open(&dest).expect("the copy");
        file.write_all_at(MARK, AT).expect("a mark");
        // What came behind was not all there.
        file.write_all_at(&[0; MIB as usize], PARTED - MIB).expect("zeroes");
        drop(file);
        fs::set_permissions(&dest, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a mode");
        run();
        assert_copied(&local.join("large"), &dest, true, name);
        let mode = |path: &Path| {
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).expect("a file").permissions())
        };
        assert_eq!(mode(&dest), mode(&local.join("large")), "{name}");
        if !matches!(name, "here" | "there") {
            fs::remove_file(&dest).expect("room for the next");
            continue;
        }
        // Too short by now, or another file: all of it.
        let at = rig.url(&format!("{name}/large"), version);
        unfinished(&journal);
        others(&["cp", path(&local.join("short")), &at]);
        run();
        assert_copied(&local.join("large"), &dest, false, name);
        unfinished(&journal);
        others(&["rm", &at]);
        others(&["cp", path(&local.join("marked")), &at]);
        run();
        assert_copied(&local.join("large"), &dest, false, name);
        fs::remove_file(&dest).expect("room for the next");
    }
    // The source is another one now.
    fs::create_dir(rig.at("changed")).expect("a directory");
    let (to, journal, dest) = (rig.url("changed", "4.2"), local.join("changed.j"), rig.at("changed/large"));
    let run = || said(landfast().args(["cp", &here, &to, "--resume", path(&journal)])).code;
    assert_eq!(run(), Some(0));
    cut(&journal);
    fs::File::options().write(true).open(&dest).expect("the copy").write_all_at(MARK, AT).expect("a mark");
    let file = fs::File::options().write(true).open(&here).expect("the source");
    file.set_modified(SystemTime::now() + Duration::from_secs(5)).expect("a time");
    assert_eq!(run(), Some(0));
    assert_copied(Path::new(&here), &dest, false, "changed");
}

#[test]
fn a_large_file_goes_on_after_kills() {
    let Some((rig, _)) = measured() else { return };
    let local = local(&rig);
    large(&local.join("large"), LARGE);
    let (from, to, journal) = (local.join("large"), rig.url("copy", "4.2"), local.join("j"));
    let args = ["cp", "--json", path(&from), &to, "--resume", path(&journal)];
    let mut parts = 0;
    for _ in 0..2 {
        let mut child =
            landfast().args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("cp");
        let begun = Instant::now();
        let noted = || fs::read_to_string(&journal).unwrap_or_default().matches("\"parts\":").count();
        while noted() <= parts && child.try_wait().expect("a child").is_none() {
            assert!(begun.elapsed() < Duration::from_secs(100), "no part is noted");
            std::thread::sleep(Duration::from_millis(1));
        }
        parts = noted();
        child.kill().expect("it is there");
        child.wait().expect("it ends");
    }
    assert!(parts > 0);
    let end = said(landfast().args(args));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.summary()["bytes_sent"].as_u64() < Some(LARGE - 60 * MIB), "{end:?}");
    assert_copied(&from, &rig.at("copy"), false, "killed");
}
