//! Large files: those that a server copies after it has answered (RFC 7862 section 4.5), and those that `--resume` goes on with.

use super::copying::local;
use super::trees::shell_in;
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
fn measured() -> (Rig, String) {
    let dir = tempfile::Builder::new().prefix("landfast-large-").tempdir_in("/var/tmp").expect("a directory");
    let (volume, log) = (dir.path().join("volume"), dir.path().join("log"));
    fs::create_dir(&volume).expect("a directory");
    let options = ["--log", path(&log), "--log-size", "32M", "--metrics", "127.0.0.1:0"];
    let server = Serving::with(&volume, &options);
    let said = server.words.lines().find_map(|l| l.strip_prefix("landfast: metrics at http://"));
    let metrics = said.and_then(|rest| rest.strip_suffix("/metrics")).expect("where").to_owned();
    (Rig { dir, server }, metrics)
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
#[cfg_attr(not(root), ignore = "needs root")]
fn a_large_file_is_copied_by_a_server_that_tells_of_its_end() {
    let (rig, metrics) = measured();
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
        for name in ["objects", "members", "marks"] {
            record.get_mut("done").and_then(serde_json::Value::as_object_mut).map(|done| done.remove(name));
        }
        let body = if line.contains("{\"job\":") { body.to_owned() } else { format!("{numbers}{record}") };
        kept.push_str(&format!("{:08x} {body}\n", crc32c(body.as_bytes())));
    }
    let noted = kept.contains("\"parts\":") || kept.contains("\"streamed\":");
    assert!(noted, "no part was noted: {text}");
    fs::write(journal, kept).expect("a journal");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_large_file_goes_on_behind_what_is_stable() {
    let (rig, _) = measured();
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
#[cfg_attr(not(root), ignore = "needs root")]
fn a_large_file_goes_on_on_this_machine() {
    let (rig, _) = measured();
    let local = local(&rig);
    large(&rig.at("large"), PARTED);
    // A hole where a part ends.
    let from = fs::File::options().write(true).open(rig.at("large")).expect("the source");
    from.write_all_at(&[0; 2 * MIB as usize], 63 * MIB).expect("zeroes");
    for (n, (version, words)) in
        [("4.2", &["cp", "-p"][..]), ("3", &["cp"]), ("4.1", &["cp", "--sparse=always"])]
            .into_iter()
            .enumerate()
    {
        let (dest, journal) = (local.join(format!("copy{n}")), local.join(format!("{n}.j")));
        let mut args = words.to_vec();
        let url = rig.url("large", version);
        args.extend(["--json", &url, path(&dest), "--resume", path(&journal)]);
        let run = |what: &str| {
            let end = said(landfast().args(&args));
            assert_eq!(end.code, Some(0), "{version} {what}: {end:?}");
            end.summary()["bytes_received"].as_u64().expect("a number")
        };
        let all = run("at first");
        assert_copied(&rig.at("large"), &dest, false, version);
        let whole = fs::read_to_string(&journal).expect("a journal");
        let unfinished = || {
            fs::write(&journal, &whole).expect("a journal");
            cut(&journal);
            let file = fs::File::options().write(true).open(&dest).expect("the copy");
            file.write_all_at(MARK, AT).expect("a mark");
            // What came behind was not all there, and something else was.
            file.write_all_at(&[1; MIB as usize], PARTED - MIB).expect("other bytes");
            file.set_len(PARTED + 5).expect("more of them");
        };
        unfinished();
        let rest = run("behind what is stable");
        assert_copied(&rig.at("large"), &dest, true, version);
        assert!(rest < all - 60 * MIB, "{rest} bytes of {all} came again");
        // Shorter than what was stable, or another file: all of it.
        unfinished();
        fs::File::options().write(true).open(&dest).expect("the copy").set_len(MIB).expect("shorter");
        run("of a shorter one");
        assert_copied(&rig.at("large"), &dest, false, version);
        unfinished();
        fs::rename(&dest, local.join("aside")).expect("another name");
        fs::copy(local.join("aside"), &dest).expect("a copy of it");
        run("of another one");
        assert_copied(&rig.at("large"), &dest, false, version);
        // A link to it is not it.
        fs::remove_file(&dest).expect("its name");
        std::os::unix::fs::symlink(local.join("aside"), &dest).expect("a link");
        fs::write(&journal, &whole).expect("a journal");
        cut(&journal);
        run("behind a link");
        assert_copied(&rig.at("large"), &dest, false, version);
        assert!(!dest.is_symlink());
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_large_file_of_a_stream_goes_on_if_the_stream_is_the_same() {
    let (rig, _) = measured();
    let local = local(&rig);
    large(&local.join("large"), PARTED);
    shell_in(&local, "echo first > first; tar -cf a.tar first large; cp a.tar other.tar");
    // Another byte of what was done: the header of the first member, its data and the next header are before.
    let other = fs::File::options().write(true).open(local.join("other.tar")).expect("it");
    other.write_all_at(b"x", 3 * 512 + 2 * MIB).expect("a byte");
    for version in ["4.2", "3"] {
        let (name, journal) = (format!("s{version}"), local.join(format!("{version}.j")));
        fs::create_dir(rig.at(&name)).expect("a directory");
        let (to, dest) = (rig.url(&name, version), rig.at(&name).join("large"));
        let run = |archive: &str| {
            let input = fs::File::open(local.join(archive)).expect("an archive");
            let mut command = landfast();
            command.args(["untar", "--json", "--resume", path(&journal), "-", &to]).stdin(input);
            let o = command.output().expect("it runs");
            Said { out: o.stdout, err: o.stderr, code: o.status.code() }
        };
        assert_eq!(run("a.tar").code, Some(0));
        assert_copied(&local.join("large"), &dest, false, version);
        let whole = fs::read_to_string(&journal).expect("a journal");
        let unfinished = || {
            fs::write(&journal, &whole).expect("a journal");
            cut(&journal);
            let file = fs::File::options().write(true).open(&dest).expect("the copy");
            file.write_all_at(MARK, AT).expect("a mark");
            file.write_all_at(&[0; MIB as usize], PARTED - MIB).expect("zeroes");
        };
        unfinished();
        let before = fs::read(&dest).expect("the copy");
        let refused = run("other.tar");
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert!(refused.text().contains("this is not the archive that the journal is of"), "{refused:?}");
        assert!(fs::read(&dest).expect("the copy") == before, "nothing of another archive comes to it");
        let end = run("a.tar");
        assert_eq!(end.code, Some(0), "{end:?}");
        assert_copied(&local.join("large"), &dest, true, version);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_large_file_goes_on_after_kills() {
    let (rig, _) = measured();
    let local = local(&rig);
    large(&local.join("large"), LARGE);
    shell_in(&local, "tar -cf large.tar large");
    fs::copy(local.join("large"), rig.at("there")).expect("a copy");
    fs::create_dir(rig.at("streamed")).expect("a directory");
    let (here, down) = (path(&local.join("large")).to_owned(), local.join("down"));
    for (args, count, copy, input) in [
        (["cp", "--json", &here, &rig.url("copy", "4.2")], "bytes_sent", rig.at("copy"), "/dev/null"),
        (
            ["cp", "--json", &rig.url("there", "4.2"), path(&down)],
            "bytes_received",
            down.clone(),
            "/dev/null",
        ),
        (
            ["untar", "--json", "-", &rig.url("streamed", "4.2")],
            "bytes_sent",
            rig.at("streamed/large"),
            path(&local.join("large.tar")),
        ),
    ] {
        let journal = local.join("j");
        let _ = fs::remove_file(&journal);
        let command = || {
            let mut command = landfast();
            command.args(args).args(["--resume", path(&journal)]);
            command.stdin(fs::File::open(input).expect("an archive"));
            command
        };
        let mut parts = 0;
        for _ in 0..2 {
            let mut child = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
            let begun = Instant::now();
            let noted = || {
                let text = fs::read_to_string(&journal).unwrap_or_default();
                text.matches("\"parts\":").count() + text.matches("\"streamed\":").count()
            };
            while noted() <= parts && child.try_wait().expect("a child").is_none() {
                assert!(begun.elapsed() < Duration::from_secs(100), "no part is noted");
                std::thread::sleep(Duration::from_millis(1));
            }
            parts = noted();
            child.kill().expect("it is there");
            child.wait().expect("it ends");
        }
        assert!(parts > 0, "{args:?}");
        let o = command().output().expect("it runs");
        let end = Said { out: o.stdout, err: o.stderr, code: o.status.code() };
        assert_eq!(end.code, Some(0), "{args:?}: {end:?}");
        if args[0] == "cp" {
            assert!(end.summary()[count].as_u64() < Some(LARGE - 60 * MIB), "{args:?}: {end:?}");
        }
        assert_copied(&local.join("large"), &copy, false, args[3]);
    }
}
