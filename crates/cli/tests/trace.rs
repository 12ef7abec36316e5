//! `landfast trace`: captures as they are found, and what is none.

mod common;
#[path = "../../trace/tests/wire/mod.rs"]
#[allow(dead_code)]
mod wire;

use common::{landfast, one_line_with, path, run, stderr, stdout};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use wire::{Captured, Wire, call, pcap, reply};

/// Three calls of NFSv3, the last without a reply.
fn capture() -> Vec<Captured> {
    let mut wire = Wire::new(995);
    wire.open();
    for xid in 1..=3u32 {
        let mut args = 4u32.to_be_bytes().to_vec();
        args.extend(b"ABCD");
        wire.send(true, &call(xid, 100_003, 3, 1, &args));
        wire.wait(1_500_000);
        if xid < 3 {
            wire.send(false, &reply(xid, &2u32.to_be_bytes()));
        }
    }
    wire.frames
}

fn file(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    File::create(&path).and_then(|mut f| f.write_all(bytes)).expect("a file");
    path
}

fn squeezed(with: &str, file: &Path) -> PathBuf {
    let status = std::process::Command::new(with).args(["-k", "-q", "-f", path(file)]).status();
    assert!(status.expect("a compressor").success());
    let ending = if with == "gzip" { "gz" } else { "zst" };
    PathBuf::from(format!("{}.{ending}", path(file)))
}

#[test]
fn the_table_and_json() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = file(dir.path(), "a capture", &pcap(&capture()));
    let o = run(&["trace", path(&plain)]);
    assert!(o.status.success(), "{}", stderr(&o));
    let text = stdout(&o);
    // As tshark's columns are, byte for byte.
    assert!(
        text.contains("\n    1  GETATTR                     2   0.001501   0.001501   0.001501   0.003002 "),
        "{text}"
    );
    let row: Vec<&str> = text
        .lines()
        .skip_while(|l| !l.starts_with("Index "))
        .nth(1)
        .expect("a row")
        .split_whitespace()
        .collect();
    assert_eq!(
        row,
        ["1", "GETATTR", "2", "0.001501", "0.001501", "0.001501", "0.003002", "0.001501", "0.001501"]
    );
    assert!(text.contains("2 of 3 calls matched"), "{text}");
    assert!(text.starts_with("Bound by round trips: 100 % of "), "{text}");
    let o = run(&["trace", "--json", path(&plain)]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&o)).expect("JSON");
    assert_eq!((json["calls_seen"].as_u64(), json["calls_matched"].as_u64()), (Some(3), Some(2)));
    let row = &json["procedures"][0];
    assert_eq!(
        (row["name"].as_str(), row["version"].as_u64(), row["calls"].as_u64()),
        (Some("GETATTR"), Some(3), Some(2))
    );
    assert_eq!((row["min_s"].as_f64(), row["sum_s"].as_f64()), (Some(0.001501), Some(0.003002)));
    // Compressed, and from a pipe.
    for other in [squeezed("gzip", &plain), squeezed("zstd", &plain)] {
        let again = run(&["trace", "--json", path(&other)]);
        assert_eq!(stdout(&again), stdout(&o), "{}", stderr(&again));
        let piped = landfast().args(["trace", "--json", "-"]).stdin(File::open(&other).expect("it")).output();
        assert_eq!(stdout(&piped.expect("landfast runs")), stdout(&o));
    }
}

#[test]
fn what_a_change_did_beside_what_was_predicted() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = |name: &str, wait: i64, calls: u32| {
        let mut wire = Wire::new(700);
        wire.acks = true;
        wire.open();
        wire.ack(true);
        for xid in 1..=calls {
            wire.send(true, &call(xid, 100_003, 3, 1, &[0; 36]));
            wire.wait(wait);
            wire.send(false, &reply(xid, &[0; 88]));
            wire.ack(true);
            wire.wait(500_000);
        }
        file(dir.path(), name, &pcap(&wire.frames))
    };
    let (before, after) = (capture("before", 9_500_000, 200), capture("after", 1_500_000, 200));
    let o = run(&["trace", "--compare", path(&before), path(&after)]);
    assert!(o.status.success(), "{}", stderr(&o));
    let text = stdout(&o);
    for part in [
        "2.00 s before, 400 ms after: 5.0 times as fast",
        "Before: Bound by round trips",
        "round trips                     1.90 s    300 ms",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let said = text.lines().last().expect("a line");
    assert!(
        said.starts_with("Predicted from the capture before, with round trip of 1.5 ms: ")
            && said.ends_with("; it took 400 ms"),
        "{said}"
    );
    let o = run(&["trace", "--json", "--compare", path(&before), path(&after)]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&o)).expect("JSON");
    let predicted = json["predicted"]["outlook"]["seconds"].as_f64().expect("seconds");
    assert!((predicted / 0.4 - 1.0).abs() < 0.05, "{predicted}");
    // Other work.
    let other = capture("other", 1_500_000, 50);
    let o = run(&["trace", "--compare", path(&before), path(&other)]);
    assert!(stdout(&o).contains("Nothing was predicted: the number of calls has changed"), "{}", stdout(&o));
    let o = run(&["trace", "--compare", "/no/such/file", path(&after)]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["/no/such/file"]);
}

#[test]
fn a_capture_of_one_way_is_named_as_such() {
    let dir = tempfile::tempdir().expect("a directory");
    // By the last byte of the address that a frame comes from.
    let one_way: Vec<Captured> = capture().into_iter().filter(|frame| frame.data[29] == 2).collect();
    let plain = file(dir.path(), "one way", &pcap(&one_way));
    let o = run(&["trace", path(&plain)]);
    assert!(stdout(&o).contains("0 of 3 calls matched"), "{}", stdout(&o));
    assert!(stderr(&o).contains("only the way to the server was captured"), "{}", stderr(&o));
}

#[test]
fn the_listing() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = file(dir.path(), "x", &pcap(&capture()));
    let o = run(&["trace", "--list", path(&plain)]);
    let text = stdout(&o);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines[0].starts_with("3 0.000001 0.000002 10.0.0.2 -> 10.0.0.1 NFS "), "{text}");
    assert!(lines[0].contains(" V3 GETATTR Call, FH: 0x"), "{text}");
    assert!(lines[1].ends_with(" V3 GETATTR Reply (Call In 3) Error: NFS3ERR_NOENT"), "{text}");
    // Whoever reads may stop.
    let mut child =
        landfast().args(["trace", "--list", path(&plain)]).stdout(Stdio::piped()).spawn().expect("landfast");
    drop(child.stdout.take());
    let ended = child.wait().expect("it ends").code();
    assert!(matches!(ended, Some(0 | 141)), "{ended:?}");
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let o = landfast().args(["trace", path(&plain)]).stdout(full).output().expect("landfast runs");
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["standard output"]);
}

#[test]
fn a_part_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = file(dir.path(), "x", &pcap(&capture()));
    let with = |more: &[&str]| run(&[&["trace", path(&plain)], more].concat());
    // The calls are at 0, 1.5 and 3 ms; 1970-01-01T00:16:40Z is the capture's first second.
    for (more, matched) in [
        (&["--to", "0.001"][..], "1 of 1 calls matched"),
        (&["--from", "0.001"], "1 of 2 calls matched"),
        (&["--from", "1970-01-01T01:16:40.001+01:00", "--client", "10.0.0.0/24"], "1 of 2 calls matched"),
        (&["--procedure", "write,getattr", "--server", "10.0.0.1"], "2 of 3 calls matched"),
        (&["--file", "0xdb1720a5"], "2 of 3 calls matched"),
    ] {
        let o = with(more);
        assert!(o.status.success() && stdout(&o).contains(matched), "{}{}", stdout(&o), stderr(&o));
        assert!(stdout(&o).contains(" of its 3 calls pass the filter"), "{}", stdout(&o));
        let list = stdout(&with(&[more, &["--list"]].concat()));
        assert_eq!(
            list.lines().filter(|l| l.contains(" Call, FH")).count().to_string(),
            matched[5..6],
            "{list}"
        );
    }
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&with(&["--json", "--to", "0.001"]))).expect("JSON");
    assert_eq!((json["calls_seen"].as_u64(), json["calls_in_capture"].as_u64()), (Some(1), Some(3)));
    assert_eq!(json["procedures"][0]["calls"].as_u64(), Some(1));
    assert_eq!(with(&["--file", "0xdb1720a4"]).status.code(), Some(2));
    let o = with(&["--procedure", "LOOKUP"]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &[path(&plain), "none of its 3 calls"]);
    for wrong in [
        ["--client", "10.0.0"],
        ["--procedure", "LOKUP"],
        ["--from", "noon"],
        ["--to", "inf"],
        ["--file", "a/b"],
    ] {
        let o = with(&wrong);
        assert_eq!(o.status.code(), Some(2), "{wrong:?}");
        assert!(stderr(&o).contains(wrong[1]), "{}", stderr(&o));
    }
}

#[test]
fn what_a_server_asks_of_its_clients() {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mut wire = Wire::new(996);
    wire.open();
    for xid in 1..=2 {
        // CB_RECALL of 4.0, without a tag.
        let recall = words(&[0, 0, 0, 1, 4, 1, 2, 3, 4, 0, 4, 5]);
        wire.send(false, &call(xid, 0x4000_0000, 1, 1, &recall));
        wire.wait(2_000_000 - wire.gap);
        wire.send(true, &reply(xid, &words(&[0, 0, 1, 4, 0])));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut frames = capture();
    frames.extend(wire.frames.into_iter().map(|frame| Captured { ns: frame.ns + 10_000_000, ..frame }));
    let plain = file(dir.path(), "x", &pcap(&frames));
    let row = "\n    4  CB_RECALL                   2   0.002000   0.002000   0.002000   0.004000 ";
    let o = run(&["trace", path(&plain)]);
    assert!(o.status.success() && stdout(&o).contains(row), "{}{}", stdout(&o), stderr(&o));
    let json = run(&["trace", "--json", "--procedure", "CB_RECALL", path(&plain)]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&json)).expect("JSON");
    let rows: Vec<_> =
        json["procedures"].as_array().expect("rows").iter().map(|row| row["name"].as_str()).collect();
    assert_eq!(rows, [Some("CB_COMPOUND"), Some("CB_RECALL")]);
    assert_eq!(json["calls_of_other_programs"].as_u64(), Some(2));
    let o = run(&["trace", "--procedure", "CB_RECALL", path(&plain)]);
    let text = stdout(&o);
    assert!(text.contains(row) && !text.contains("GETATTR"), "{text}");
    assert!(text.contains("0 of its 3 calls pass the filter, and 2 to other programs"), "{text}");
    let o = run(&["trace", "--procedure", "CB_GETATTR", path(&plain)]);
    assert_eq!(o.status.code(), Some(2));
    let o = run(&["trace", "--fail-if", "CB_RECALL.max>1ms", path(&plain)]);
    assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
    one_line_with(&stderr(&o), &["CB_RECALL.max>1ms", "2.00 ms"]);
}

#[test]
fn a_copy_for_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = file(dir.path(), "x", &pcap(&capture()));
    let copied = dir.path().join("copy.pcap");
    let o = run(&["trace", "--anonymise", path(&copied), path(&plain)]);
    assert!(o.status.success(), "{}", stderr(&o));
    one_line_with(&stderr(&o), &["7 frames, 3 calls"]);
    let table = |of: &Path| stdout(&run(&["trace", path(of)]));
    assert_eq!(table(&copied), table(&plain));
    let bytes = std::fs::read(&copied).expect("the copy");
    assert!(![&b"ABCD"[..], &[10, 0, 0, 2]].iter().any(|secret| bytes.windows(4).any(|w| w == *secret)));
    // From a pipe to a pipe, with a key of its own each time.
    let piped =
        landfast().args(["trace", "--anonymise", "-", "-"]).stdin(File::open(&plain).expect("it")).output();
    let piped = piped.expect("landfast runs").stdout;
    assert_eq!(piped.len(), bytes.len());
    assert_ne!(piped, bytes);
    let o = run(&["trace", "--anonymise", path(&plain), path(&plain)]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["this is the capture"]);
    assert_eq!(table(&plain), table(&copied), "it is still there");
    let o = run(&["trace", "--anonymise", "/no/such/dir/x", path(&plain)]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["/no/such/dir/x"]);
    let o = run(&["trace", "--anonymise", path(&copied), "--list", path(&plain)]);
    assert_eq!(o.status.code(), Some(2));
    let o = run(&["trace", "--anonymise", path(&copied), "--client", "10.0.0.2", path(&plain)]);
    assert_eq!(o.status.code(), Some(2));
}

#[test]
fn what_is_no_capture_or_not_a_whole_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let bytes = pcap(&capture());
    let refused = |name: &str, bytes: &[u8], parts: &[&str]| {
        let path_of = file(dir.path(), name, bytes);
        let o = run(&["trace", path(&path_of)]);
        assert_eq!(o.status.code(), Some(2), "{}", stderr(&o));
        one_line_with(&stderr(&o), &[&[path(&path_of)], parts].concat());
    };
    refused("text", b"this is a text, and a long one", &["not a capture"]);
    refused("nothing", b"", &["empty"]);
    refused("header", &bytes[..20], &["cut off in its header"]);
    refused("snoop", b"snoop\0\0\0\0\0\0\x02\0\0\0\x04", &["editcap"]);
    refused("no NFS", &bytes[..24], &["no calls to NFS", "0 frames"]);
    let o = run(&["trace", "/no/such/file"]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["/no/such/file"]);
    // Cut off: what is there counts.
    let cut = file(dir.path(), "cut", &bytes[..bytes.len() - 5]);
    let o = run(&["trace", path(&cut)]);
    assert!(o.status.success() && stdout(&o).contains("2 of 2 calls"), "{}", stdout(&o));
    one_line_with(&stderr(&o), &["cut off"]);
    // A probe for TLS, and then what nobody can read.
    let mut wire = Wire::new(700);
    wire.open();
    let mut probe = call(1, 100_003, 4, 0, &[]);
    // The flavour of its credential, behind record mark, xid, type, RPC version, program, version and procedure.
    probe[28..32].copy_from_slice(&7u32.to_be_bytes());
    wire.send(true, &probe);
    wire.send(false, &reply(1, &[]));
    wire.send(true, &[0x16, 3, 1, 2, 0, 1, 0, 1]);
    let tls = file(dir.path(), "tls", &pcap(&wire.frames));
    let o = run(&["trace", path(&tls)]);
    assert_eq!(o.status.code(), Some(2), "{}", stdout(&o));
    one_line_with(&stderr(&o), &["TLS", "xprtsec=none", "--mountstats"]);
}

#[test]
fn what_is_encrypted_is_told_as_far_as_it_can_be() {
    let dir = tempfile::tempdir().expect("a directory");
    let capture = |version: u32| {
        let mut wire = Wire::new(700);
        wire.open();
        for xid in 1..=60u32 {
            let create = xid % 2 == 0;
            let mut sent = call(
                xid,
                100_003,
                version,
                if version == 4 {
                    1
                } else if create {
                    8
                } else {
                    1
                },
                &[0x5a; 64],
            );
            // RPCSEC_GSS: its version, DATA, a number, privacy.
            for (at, word) in [(28, 6u32), (36, 1), (40, 0), (44, xid), (48, 3)] {
                sent[at..at + 4].copy_from_slice(&word.to_be_bytes());
            }
            wire.send(true, &sent);
            wire.wait(if create { 9_000_000 } else { 1_000_000 });
            wire.send(false, &reply(xid, &[0x5a; 64]));
        }
        file(dir.path(), &format!("v{version}"), &pcap(&wire.frames))
    };
    for (version, synchronous, bound) in [(3, 30, "persistence"), (4, 0, "server")] {
        let capture = capture(version);
        let json = run(&["trace", "--json", path(&capture)]);
        let json: serde_json::Value = serde_json::from_str(&stdout(&json)).expect("JSON");
        assert_eq!(json["work"]["synchronous_calls"].as_u64(), Some(synchronous), "{version}");
        assert_eq!(
            (json["calls_encrypted"].as_u64(), json["verdict"]["bound"].as_str()),
            (Some(60), Some(bound))
        );
        let o = run(&["trace", path(&capture)]);
        let text = stdout(&o).split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["(confidence: low)", "60 of 60 calls are encrypted (krb5p)", "--mountstats"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.contains("(encrypted, or not captured)"), version == 4, "{text}");
        let list = stdout(&run(&["trace", "--list", path(&capture)]));
        let name = if version == 4 { "COMPOUND" } else { "GETATTR" };
        let lines: Vec<&str> = list.lines().collect();
        assert!(lines[0].ends_with(&format!(" V{version} {name} Call (encrypted)")), "{}", lines[0]);
        assert!(
            lines[1].ends_with(&format!(" V{version} {name} Reply (Call In 3) (encrypted)")),
            "{}",
            lines[1]
        );
    }
}

#[test]
fn what_is_left_of_a_compressed_capture_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    // Data that no compressor makes small.
    let mut wire = Wire::new(700);
    wire.open();
    let mut noise = 1u32;
    for xid in 1..=600u32 {
        let data: Vec<u8> = (0..1024)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect();
        wire.send(true, &call(xid, 100_003, 3, 7, &data));
        wire.send(false, &reply(xid, &[0; 4]));
    }
    let plain = file(dir.path(), "capture", &pcap(&wire.frames));
    for with in ["gzip", "zstd"] {
        let whole = std::fs::read(squeezed(with, &plain)).expect("it");
        let half = file(dir.path(), "half", &whole[..whole.len() / 2]);
        let o = run(&["trace", path(&half)]);
        assert_eq!(o.status.code(), Some(0), "{with}: {}", stderr(&o));
        one_line_with(&stderr(&o), &[path(&half), "cut off"]);
        let o = run(&["trace", "--json", path(&half)]);
        let json: serde_json::Value = serde_json::from_str(&stdout(&o)).expect("JSON");
        let seen = json["calls_seen"].as_u64().expect("a count");
        assert!((100..500).contains(&seen) && json["capture"]["end"] == "cut off", "{with}: {seen}");
        // Of one that is damaged what is before that counts, too.
        let mut broken = whole.clone();
        broken[whole.len() / 2..].iter_mut().for_each(|byte| *byte ^= 0x5a);
        let o = run(&["trace", path(&file(dir.path(), "broken", &broken))]);
        assert_eq!(o.status.code(), Some(0), "{with}: {}", stderr(&o));
        assert!(stderr(&o).contains("damaged at byte ") || stderr(&o).contains("cut off"), "{}", stderr(&o));
        let o = run(&["trace", path(&file(dir.path(), "tiny", &whole[..20]))]);
        assert_eq!(o.status.code(), Some(2));
        one_line_with(&stderr(&o), &["compression is cut off"]);
    }
    let o = run(&["trace", path(dir.path())]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &[path(dir.path()), "Is a directory"]);
}

#[test]
fn whoever_has_seen_enough() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = file(dir.path(), "capture", &pcap(&capture()));
    for form in [&["--json"][..], &["--list"], &[]] {
        let mut child = landfast()
            .arg("trace")
            .args(form)
            .arg(&plain)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("landfast runs");
        drop(child.stdout.take());
        let o = child.wait_with_output().expect("it ends");
        // 141: it was not done when nobody read any more.
        assert!(matches!(o.status.code(), Some(0 | 141)), "{form:?}: {:?}", o.status);
        assert_eq!(stderr(&o), "", "{form:?}");
    }
}

#[test]
fn bounds_for_scripts() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = file(dir.path(), "capture", &pcap(&capture()));
    let with = |bounds: &[&str]| {
        let bounds = bounds.iter().flat_map(|b| ["--fail-if", b]);
        run(&["trace"].into_iter().chain(bounds).chain([path(&plain)]).collect::<Vec<_>>())
    };
    let o = with(&["GETATTR.max>1ms", "getattr.avg>1h", "matched<60%", "rtt>99%", "WRITE.max>0ms"]);
    assert_eq!(o.status.code(), Some(2), "an hour is no unit here: {}", stderr(&o));
    let o = with(&["GETATTR.max>1ms", "getattr.avg>100s", "matched<60%", "rtt>99%", "WRITE.max>0s"]);
    assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
    let said = stderr(&o);
    assert!(
        said.contains("GETATTR.max>1ms: it is 1.50 ms") && said.contains("rtt>99%: it is 100.0 %"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 2, "{said}");
    let o = with(&["calls>3", "calls<3"]);
    assert!(o.status.success(), "{}", stderr(&o));
}

#[test]
fn two_captures_of_the_same_traffic() {
    // The network takes 4 ms there and 6 ms back; the server works for 2 ms.
    let of = |client: bool, from: u32| {
        let mut wire = Wire::new(995);
        wire.open();
        for xid in from..from + 50 {
            let mut args = 4u32.to_be_bytes().to_vec();
            args.extend(b"ABCD");
            wire.send(true, &call(xid, 100_003, 3, 1, &args));
            wire.wait(if client { 12_000_000 } else { 2_000_000 });
            wire.send(false, &reply(xid, &2u32.to_be_bytes()));
            wire.wait(if client { 0 } else { 10_000_000 });
        }
        pcap(&wire.frames)
    };
    let dir = tempfile::tempdir().expect("a directory");
    let (client, server) =
        (file(dir.path(), "client", &of(true, 1)), file(dir.path(), "server", &of(false, 1)));
    let other = file(dir.path(), "other", &of(true, 1000));
    // Whichever comes first.
    for (one, other) in [(&client, &server), (&server, &client)] {
        let o = run(&["trace", "--json", "--merge", path(other), path(one)]);
        let json: serde_json::Value = serde_json::from_str(&stdout(&o)).expect("JSON");
        let all = &json["both_ends"]["all"];
        assert_eq!(all["calls"].as_u64(), Some(50), "{}", stderr(&o));
        let near = |value: &serde_json::Value, s: f64| (value.as_f64().expect("a time") - s).abs() < 0.001;
        assert!(near(&all["network_s"], 0.5) && near(&all["server_s"], 0.1), "{all}");
        let shares = &json["verdict"]["shares"];
        assert!(near(&shares["rtt"], 0.5) && near(&shares["server"], 0.1), "{shares}");
        assert!(near(&json["terms"]["round_trip_s"], 0.01), "{}", json["terms"]);
        assert_eq!(json["capture_side"], "client");
    }
    let o = run(&["trace", "--merge", path(&server), path(&other)]);
    assert!(o.status.success() && stderr(&o).contains("no call in common"), "{}", stderr(&o));
    let o = run(&["trace", "--merge", "/nowhere", path(&client)]);
    assert_eq!(o.status.code(), Some(2));
    assert!(stderr(&o).contains("/nowhere"), "{}", stderr(&o));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_comes_at_an_interface() {
    let o = run(&["trace", "--interface", "no-such-one"]);
    assert_eq!(o.status.code(), Some(2));
    one_line_with(&stderr(&o), &["no-such-one: there is no such interface"]);
    let dir = tempfile::tempdir().expect("a directory");
    let export = dir.path().join("export");
    std::fs::create_dir(&export).expect("a directory");
    let server = common::Serving::start(&export, &dir.path().join("log"));
    let mut watching = landfast()
        .args(["trace", "--interface", "lo", "--server", "127.0.0.1", "--count", "5", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("landfast runs");
    let mut said = BufReader::new(watching.stderr.take().expect("its errors"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert_eq!(line, "landfast: watching lo; Ctrl-C ends it\n");
    // From here on nothing is missed; each of these is several calls.
    for _ in 0..5 {
        let o = run(&["ls", &format!("nfs://{}/?version=3", server.address())]);
        assert!(o.status.success(), "{}", stderr(&o));
    }
    let o = watching.wait_with_output().expect("it ends");
    assert!(o.status.success());
    let json: serde_json::Value = serde_json::from_slice(&o.stdout).expect("JSON");
    assert!(json["calls_matched"].as_u64() >= Some(5), "{json}");
    assert_eq!(json["capture_side"], "loopback");
    assert!(json["verdict"]["bound"].is_string(), "{json}");
}

/// docs/diagnosis-examples.md shows what its commands print.
#[test]
fn the_examples_are_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/diagnosis-examples.md")).expect("the examples");
    let mut printed = String::new();
    let (mut commands, mut lines) = (0, 0);
    for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
        if let Some(command) = line.strip_prefix("$ landfast ") {
            let (first, second) = match command.split_once(" | landfast ") {
                Some((first, second)) => (first, Some(second)),
                None => (command, None),
            };
            let mut first = landfast()
                .args(first.split(' '))
                .current_dir(&root)
                .stdout(Stdio::piped())
                .spawn()
                .expect("it runs");
            let last = match second {
                Some(second) => {
                    let input = first.stdout.take().expect("its output");
                    landfast().args(second.split(' ')).stdin(input).output().expect("it runs")
                }
                None => {
                    let mut o = String::new();
                    first.stdout.take().expect("its output").read_to_string(&mut o).expect("text");
                    printed = o;
                    assert!(first.wait().expect("it ends").success());
                    commands += 1;
                    continue;
                }
            };
            assert!(last.status.success() && first.wait().expect("it ends").success(), "{}", stderr(&last));
            printed = stdout(&last);
            commands += 1;
        } else if !line.trim().is_empty() {
            // Spaces between columns depend on the widest row; lines of a table may be shown in part.
            let words = |l: &str| l.split_whitespace().collect::<Vec<_>>().join(" ");
            let wanted = words(line);
            assert!(
                printed.lines().any(|l| words(l).starts_with(&wanted)),
                "'{wanted}' is not in:\n{printed}"
            );
            lines += 1;
        }
    }
    assert_eq!(commands, 6);
    assert!(lines > 30, "{lines}");
}

#[test]
fn a_capture_with_replies_alone_is_named_as_such() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut wire = Wire::new(995);
    wire.open();
    for xid in 1..=3u32 {
        wire.send(true, &call(xid, 100_003, 3, 1, &[0; 36]));
        wire.wait(1_500_000);
        wire.send(false, &reply(xid, &[0; 88]));
    }
    // From the server, port 2049; with the beginning of the connection and without.
    let back = |frame: &&Captured| frame.data[34..36] == [8, 1];
    let replies: Vec<Captured> = wire.frames.iter().filter(back).cloned().collect();
    for frames in [&replies[..], &replies[1..]] {
        let o = run(&["trace", path(&file(dir.path(), "replies", &pcap(frames)))]);
        assert_eq!(o.status.code(), Some(2));
        one_line_with(&stderr(&o), &["no call is in the capture, only 3 replies", "capture both ways"]);
    }
    // What is no RPC is none of them.
    let mut wire = Wire::new(995);
    wire.open();
    wire.send(true, b"GET / HTTP/1.1");
    wire.send(false, &[0; 40]);
    let o = run(&["trace", path(&file(dir.path(), "others", &pcap(&wire.frames)))]);
    one_line_with(&stderr(&o), &["no calls to NFS in it"]);
}

#[test]
fn a_copy_takes_less_than_64_mib_whatever_is_under_way() {
    let connections: u16 = 200;
    let segments = 190;
    let mut child = landfast()
        .args(["trace", "--anonymise", "/dev/null", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("landfast starts");
    let mut input = child.stdin.take().expect("a pipe");
    // WRITEs that all are under way at once, of which none comes to its end: more than 50 MB.
    let mut wires: Vec<Wire> = (0..connections).map(|_| Wire::new(1_400)).collect();
    input.write_all(&pcap(&[])).expect("it reads");
    for (n, wire) in (0..connections).zip(&mut wires) {
        (wire.ports.0, wire.segment) = (700 + n, 1_400);
        wire.open();
        let mut message = call(1, 100_003, 3, 7, &vec![1; segments * 1_400]);
        message.truncate(message.len() - 10);
        wire.send(true, &message);
    }
    let rounds = wires.iter().map(|wire| wire.frames.len()).max().unwrap_or_default();
    for round in 0..rounds {
        let frames: Vec<Captured> = wires.iter().filter_map(|wire| wire.frames.get(round)).cloned().collect();
        input.write_all(&pcap(&frames)[24..]).expect("it reads");
    }
    // All but what the pipe holds is read; it waits for more.
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux tells");
    let kib: u64 = most.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number");
    drop(input);
    let o = child.wait_with_output().expect("it ends");
    assert!(o.status.success(), "{}", stderr(&o));
    assert!(stderr(&o).contains("messages took too long"), "{}", stderr(&o));
    println!("{kib} KiB");
    assert!(kib < 64 << 10, "{kib} KiB");
}
