//! `landfast probe`: the latency that a server has is found, in each version; nothing is left behind, and what is left is named.

mod common;

use common::{Serving, landfast, one_line_with, own_network, path, run, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use tempfile::TempDir;

/// A directory to serve, with a log.
struct Served {
    _dir: TempDir,
    export: PathBuf,
    server: Serving,
}

fn serve(more: &[&str]) -> Served {
    let dir = tempfile::Builder::new().prefix("landfast-probe-").tempdir_in("/var/tmp").expect("a directory");
    let export = dir.path().join("export");
    std::fs::create_dir(&export).expect("a directory");
    let log = dir.path().join("log");
    let with_log = ["--log", path(&log), "--log-size", "32M"];
    let log: &[&str] = if more.contains(&"--durability") { &[] } else { &with_log };
    let server = Serving::with(&export, &[log, more].concat());
    Served { _dir: dir, export, server }
}

impl Served {
    fn url(&self, version: &str) -> String {
        let below = if version == "3" { path(&self.export) } else { "/" };
        format!("{}{below}?version={version}", self.server.url.trim_end_matches('/'))
    }

    /// What is there, but for the server's own.
    fn left(&self) -> Vec<String> {
        let names =
            std::fs::read_dir(&self.export).expect("a directory").map(|e| e.expect("an entry").file_name());
        names.map(|n| n.to_string_lossy().into_owned()).filter(|n| n != ".landfast").collect()
    }
}

fn probe(url: &str, more: &[&str]) -> (Output, Value) {
    let o = run(&[&["probe", "--json", url], more].concat());
    let report = serde_json::from_slice(&o.stdout).unwrap_or(Value::Null);
    (o, report)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn median(report: &Value, operation: &str) -> f64 {
    let all = report["latencies"].as_array().expect("latencies");
    let row = all.iter().find(|l| l["operation"] == operation).unwrap_or_else(|| panic!("{operation}"));
    number(&row["median_s"])
}

fn kinds(report: &Value) -> Vec<&str> {
    let remarks = report["verdict"]["remarks"].as_array().expect("remarks");
    remarks.iter().filter_map(|r| r["kind"].as_str()).collect()
}

/// How often a measurement is repeated that was disturbed: a busy machine makes all slower, now and then.
const TRIES: usize = 5;

/// What is not as a log says that waits 20 ms for each flush, where nothing else took long.
fn untimely(report: &Value) -> Option<String> {
    // What was injected, and what this machine adds to it when it is busy.
    let persistence = number(&report["terms"]["persistence_s"]);
    if !(0.019..0.030).contains(&persistence) {
        return Some(format!("{persistence} {}", report["latencies"]));
    }
    if report["verdict"]["bound"] != "persistence" {
        return Some(report["verdict"].to_string());
    }
    if let Some(other) = ["NULL", "GETATTR", "ACCESS"].iter().find(|other| median(report, other) >= 0.01) {
        return Some(format!("{other} {}", report["latencies"]));
    }
    let upload = &report["bandwidth"]["upload_bytes_per_s"];
    if number(upload) <= 1e6 {
        return Some(format!("{upload} bytes a second"));
    }
    // With many under way a flush is shared.
    let all = report["concurrency"].as_array().expect("rates");
    let rate = |n: u64| {
        let rate = all.iter().find(|r| r["operation"] == "CREATE" && r["in_flight"] == n);
        number(&rate.unwrap_or_else(|| panic!("CREATE {n}: {all:?}"))["calls_per_s"])
    };
    assert!(rate(1) < 50.0, "{all:?}");
    (rate(32) <= 150.0).then(|| format!("{all:?}"))
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_slow_log_is_found_in_each_version() {
    let served = serve(&["--inject-log-flush", "20ms"]);
    for version in ["3", "4.0", "4.1", "4.2"] {
        let measure = || {
            let (o, report) = probe(&served.url(version), &["--seconds", "2"]);
            assert_eq!(o.status.code(), Some(0), "{version}: {}", stderr(&o));
            assert_eq!(stderr(&o), "", "{version}");
            report
        };
        let mut report = measure();
        for left in (0..TRIES).rev() {
            let Some(why) = untimely(&report) else { break };
            assert!(left > 0, "{version}: {why}");
            report = measure();
        }
        assert_eq!(report["version"], version);
        assert_eq!(report["versions"], serde_json::json!(["3", "4.0", "4.1", "4.2"]));
        assert!(number(&report["verdict"]["shares"]["persistence"]) > 0.1, "{version}");
        for synchronous in ["CREATE", "COMMIT", "WRITE_FILE_SYNC", "SETATTR", "REMOVE"] {
            assert!(median(&report, synchronous) > 0.02, "{version} {synchronous}");
        }
        let operations = &report["operations_per_compound"];
        match version {
            "3" => assert!(operations.is_null(), "{operations}"),
            "4.0" => assert!(operations["promised"].is_null() && number(&operations["taken"]) >= 16.0),
            _ => assert!(number(&operations["taken"]) >= number(&operations["promised"]), "{operations}"),
        }
        assert_eq!(report["tls"]["offered"], false);
        // It gives none; in version 4.0 it does not even call back.
        for kind in ["times", "in_place_of_open", "directory", "write_directory"] {
            assert_eq!(report["delegations"][kind]["offered"], false, "{version} {kind}");
        }
        for kind in ["read", "write"] {
            let delegation = &report["delegations"][kind];
            let why = delegation["why"].as_str().expect("a reason");
            assert_eq!(delegation["offered"], false, "{version}");
            assert_eq!(why.contains("did not call back at port"), version == "4.0", "{version}: {why}");
        }
        assert_eq!(served.left(), [] as [String; 0], "{version}");
    }
}

/// Each kind of delegation that an export gives is found, and what a version does not have is not asked for.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn kinds_of_delegations_are_found() {
    let dir = tempfile::Builder::new().prefix("landfast-probe-").tempdir_in("/var/tmp").expect("a directory");
    let export = dir.path().join("export");
    std::fs::create_dir(&export).expect("a directory");
    for (given, versions) in [
        // To read, to write, of times, in the place of an open, of directories.
        ("read", [("4.2", [true, false, false, true, true]), ("4.1", [true, false, false, false, true])]),
        ("write", [("4.2", [true, true, false, true, true]), ("4.1", [true, true, false, false, true])]),
        ("times", [("4.2", [true, true, true, true, true]), ("4.1", [true, true, false, false, true])]),
    ] {
        let of_new_directories = given == "write";
        let config = dir.path().join("landfast.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nprotocols = [\"4.1\", \"4.2\"]\nrpcbind = \"off\"\n[[export]]\npath = {export:?}\n\
             name = \"/e\"\ndurability = \"sync\"\ndelegations = \"{given}\"\n\
             write_delegations = {of_new_directories}\nclients = [{{ from = \"*\", options = [\"rw\", \
             \"no_root_squash\", \"insecure\"] }}]\n"
        );
        std::fs::write(&config, text).expect("a configuration");
        let server = Serving::configured(&config);
        for (version, expected) in versions {
            let url = format!("{}/e?version={version}", server.url.trim_end_matches('/'));
            let (o, report) = probe(&url, &["--seconds", "1"]);
            assert_eq!(o.status.code(), Some(0), "{version}: {}", stderr(&o));
            let found = ["read", "write", "times", "in_place_of_open", "directory"]
                .map(|kind| report["delegations"][kind]["offered"] == true);
            assert_eq!(found, expected, "{given}, {version}: {}", report["delegations"]);
            let found = report["delegations"]["write_directory"]["offered"] == true;
            assert_eq!(found, of_new_directories, "{given}, {version}: {}", report["delegations"]);
        }
        assert_eq!(server.end(rustix::process::Signal::TERM).0, Some(0));
    }
}

/// Answers that nothing was made stable for look as they are.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_that_does_not_wait_looks_like_one() {
    let served = serve(&["--durability", "unsafe"]);
    // It compares times, and something else may take the processors for as long as one of the two is measured.
    let mut seen = String::new();
    let looks_like_one = (0..3).any(|_| {
        let (o, report) = probe(&served.url("4.2"), &["--seconds", "2"]);
        assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
        seen = format!("{}{}", report["verdict"], report["latencies"]);
        kinds(&report).contains(&"sync-as-fast")
    });
    assert!(looks_like_one, "{seen}");
    let text = stdout(&run(&["probe", &served.url("4.2"), "--count", "3", "--seconds", "1"]));
    for part in
        ["WRITE FILE_SYNC", "under way", "operations in a COMPOUND", "VERDICT: small files are bound by"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn what_a_killed_probe_left_is_named_and_an_interrupted_one_leaves_nothing() {
    let served = serve(&["--inject-log-flush", "20ms"]);
    let ended = |signal: Signal| {
        let url = served.url("4.2");
        let mut child = landfast();
        child.args(["probe", &url, "--seconds", "60", "--count", "1000000"]);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("landfast runs");
        // Nothing else tells that it is at work.
        let at_work = || {
            let dir = served.left().into_iter().next()?;
            std::fs::read_dir(served.export.join(dir)).ok()?.next()
        };
        while at_work().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), signal).expect("it is there");
        child.wait_with_output().expect("it ends")
    };
    for signal in [Signal::INT, Signal::TERM] {
        let o = ended(signal);
        assert_eq!(o.status.code(), Some(130), "{}", stderr(&o));
        one_line_with(&stderr(&o), &["interrupted"]);
        assert_eq!(served.left(), [] as [String; 0]);
    }
    ended(Signal::KILL);
    let left = served.left();
    let [name] = &left[..] else { panic!("{left:?}") };
    let (o, report) = probe(&served.url("4.2"), &["--count", "2", "--seconds", "0.2"]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    assert!(report["terms"].is_object());
    one_line_with(&stderr(&o), &[name, "landfast rm -r 'nfs://"]);
    assert_eq!(served.left(), left);
    // As it was told to.
    let line = stderr(&o);
    let url = line.split('\'').nth(1).expect("a URL in quotes");
    let o = run(&["rm", "-r", url]);
    assert_eq!((o.status.code(), served.left().len()), (Some(0), 0), "{}", stderr(&o));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn where_nothing_can_be_made_or_nobody_is_it_says_so() {
    let served = serve(&[]);
    let refused = |url: &str, parts: &[&str]| {
        let (o, _) = probe(url, &[]);
        assert_eq!(o.status.code(), Some(2), "{url}: {}", stdout(&o));
        one_line_with(&stderr(&o), parts);
    };
    refused(&format!("{}nowhere?version=4.1", served.server.url), &["/nowhere", "NFS4ERR_NOENT"]);
    std::fs::write(served.export.join("file"), "").expect("a file");
    refused(&format!("{}file?version=4.2", served.server.url), &["NFS4ERR_NOTDIR", "may write"]);
    refused(&format!("{}?version=5", served.server.url), &["no version of NFS"]);
    refused("nfs://127.0.0.1:9/", &["127.0.0.1:9", "refused"]);
    refused(&something_else(), &["127.0.0.1"]);
}

/// A way to the server on which the reply to the call that makes the probe's directory is lost with its connection. `ends`: from
/// then on nobody gets through.
fn losing_the_directory(server: &Serving, ends: bool) -> String {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let there = server.url.trim_start_matches("nfs://").trim_end_matches('/').to_owned();
    let lost = Arc::new(AtomicBool::new(false));
    let carry = move |mut from: TcpStream,
                      mut to: TcpStream,
                      lose: Arc<AtomicBool>,
                      up: bool,
                      lost: Arc<AtomicBool>| {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            let makes = up
                && bytes[..n].windows(31).any(|name| {
                    name.starts_with(b"landfast-probe-") && name[15..].iter().all(u8::is_ascii_hexdigit)
                });
            if makes && !lost.swap(true, Ordering::AcqRel) {
                lose.store(true, Ordering::Release);
            }
            if (!up && lose.load(Ordering::Acquire)) || to.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    };
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) =
                (client.expect("a client"), TcpStream::connect(&there).expect("the server"));
            if ends && lost.load(Ordering::Acquire) {
                continue;
            }
            let lose = Arc::new(AtomicBool::new(false));
            for up in [true, false] {
                let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
                let (from, to) =
                    if up { (copy(&client), copy(&server)) } else { (copy(&server), copy(&client)) };
                let (lose, lost, carry) = (lose.clone(), lost.clone(), carry);
                std::thread::spawn(move || carry(from, to, lose, up, lost));
            }
        }
    });
    address.to_string()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_directory_whose_reply_is_lost_is_removed_or_named() {
    let served = serve(&[]);
    for version in ["3", "4.0", "4.1"] {
        let address = losing_the_directory(&served.server, false);
        let url = served.url(version).replace(served.server.address(), &address);
        let (o, _) = probe(&url, &["--seconds", "0.2"]);
        assert_eq!(o.status.code(), Some(2), "{version}: {}", stdout(&o));
        one_line_with(&stderr(&o), &[&address]);
        assert_eq!(served.left(), [] as [String; 0], "{version}");
        let address = losing_the_directory(&served.server, true);
        let url = served.url(version).replace(served.server.address(), &address);
        let (o, _) = probe(&url, &["--seconds", "0.2"]);
        assert_eq!(o.status.code(), Some(2), "{version}: {}", stdout(&o));
        let left = served.left();
        let [name] = &left[..] else { panic!("{version}: {left:?}") };
        assert!(stderr(&o).contains(name) && stderr(&o).contains("landfast rm -r 'nfs://"), "{}", stderr(&o));
        std::fs::remove_dir(served.export.join(name)).expect("an empty directory");
    }
}

/// Something that listens and is no NFS server: it says what it is to whoever comes, and goes.
fn something_else() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("nfs://{}/", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let said = stream.and_then(|mut s| std::io::Write::write_all(&mut s, b"SSH-2.0-OpenSSH_9.2\r\n"));
            said.expect("it is said");
        }
    });
    url
}

const GANESHA: &str = r#"
cd "$WORK"
mkdir export read-only recovery
cat > ganesha.conf <<END
NFS_CORE_PARAM { NFS_Port = 2049; MNT_Port = 20048; NFS_Protocols = 3, 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = "$WORK/recovery"; Minor_Versions = 0, 1, 2; Delegations = true; }
EXPORT { Export_Id = 1; Path = "$WORK/export"; Pseudo = "/rw"; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP; FSAL { Name = VFS; } }
EXPORT { Export_Id = 2; Path = "$WORK/read-only"; Pseudo = "/ro"; Access_Type = RO; Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP; FSAL { Name = VFS; } }
LOG { Default_Log_Level = WARN; }
END
ganesha.nfsd -F -f ganesha.conf -L messages -p pid &
server=$!
waits rpcinfo -T tcp 127.0.0.1 nfs 3
waits rpcinfo -T tcp 127.0.0.1 nfs 4
for v in 3 4.0 4.1 4.2; do
    case $v in 3) at="$WORK/export"; ro="$WORK/read-only";; *) at=/rw; ro=/ro;; esac
    "$LANDFAST" probe "nfs://127.0.0.1$at?version=$v" --seconds 2 > $v.txt
    "$LANDFAST" probe --json "nfs://127.0.0.1$at?version=$v" --seconds 1 > $v.json
    test -z "$(ls -A export)"
    if "$LANDFAST" probe "nfs://127.0.0.1$ro?version=$v" 2> $v.ro; then echo "version $v: wrote to what is read-only"; exit 1; fi
    cat $v.txt $v.ro
done
"#;

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn nfs_ganesha_in_each_version() {
    let Some(mut script) = own_network(GANESHA, &["ganesha.nfsd"]) else { return };
    // Not below /run or /tmp, which may have no handles to export.
    let work =
        tempfile::Builder::new().prefix("landfast-probe-").tempdir_in("/var/tmp").expect("a directory");
    let out = script.env("WORK", work.path()).output().expect("unshare runs");
    let file = |name: String| std::fs::read_to_string(work.path().join(name)).unwrap_or_default();
    assert!(out.status.success(), "{}{}{}", stdout(&out), stderr(&out), file("messages".into()));
    print!("{}", stdout(&out));
    for version in ["3", "4.0", "4.1", "4.2"] {
        let report: Value = serde_json::from_str(&file(format!("{version}.json"))).expect("JSON");
        assert_eq!(report["version"], version);
        assert_eq!(report["versions"], serde_json::json!(["3", "4.0", "4.1", "4.2"]));
        assert!(number(&report["terms"]["round_trip_s"]) > 0.0);
        for operation in
            ["NULL", "GETATTR", "WRITE_UNSTABLE", "COMMIT", "WRITE_FILE_SYNC", "CREATE", "REMOVE"]
        {
            assert!(median(&report, operation) > 0.0, "{version} {operation}");
        }
        if version != "3" {
            assert!(number(&report["operations_per_compound"]["taken"]) >= 16.0, "{report}");
        }
        // Its files have none; in version 4.0 it finds out beforehand whether it could call back.
        if version == "4.0" {
            for kind in ["read", "write"] {
                assert_eq!(report["delegations"][kind]["why"], "the server called back, and gave none");
            }
        }
        let words = file(format!("{version}.ro"));
        one_line_with(&words, &["cannot make a directory to measure in", "ROFS", "may write"]);
    }
}
