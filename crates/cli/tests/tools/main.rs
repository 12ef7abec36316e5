//! The commands that resemble GNU tools, beside those tools on the exported directory itself.

#[path = "../common/mod.rs"]
mod common;

mod archiving;
mod copying;
mod finding;
mod gate;
mod large;
mod listing;
mod moods;
mod removing;
mod resuming;
mod rounds;
mod trees;

use common::{Serving, landfast, path};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Versions that each command is tried with.
const VERSIONS: [&str; 4] = ["4.2", "4.1", "4.0", "3"];

/// All of a list with the first version, the first ones with the others, so that the tests stay quick.
fn some<'a, T>(version: &str, all: &'a [T], most: usize) -> &'a [T] {
    if version == VERSIONS[0] { all } else { &all[..most] }
}

/// An exported directory and its server.
struct Rig {
    dir: tempfile::TempDir,
    server: Serving,
}

impl Rig {
    fn new() -> Rig {
        let dir =
            tempfile::Builder::new().prefix("landfast-tools-").tempdir_in("/var/tmp").expect("a directory");
        let volume = dir.path().join("volume");
        fs::create_dir(&volume).expect("a directory");
        let server = Serving::start(&volume, &dir.path().join("log"));
        Rig { dir, server }
    }

    /// A directory or file of the export, on this machine.
    fn at(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).expect("a path").join("volume").join(name)
    }

    /// Its URL; with version 3 an export is called what its directory is called.
    fn url(&self, name: &str, version: &str) -> String {
        format!("{}?version={version}", self.shown(name, version))
    }

    /// The same without what stands behind `?`.
    fn shown(&self, name: &str, version: &str) -> String {
        match version {
            "3" => format!("{}{}", self.server.url.trim_end_matches('/'), path(&self.at(name))),
            _ => format!("{}{name}", self.server.url),
        }
    }

    fn shell(&self, script: &str) {
        let done =
            Command::new("bash").args(["-ec", script]).current_dir(self.at("")).output().expect("a shell");
        assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// What `landfast` says of `names`, with local paths in place of URLs.
    fn ours(&self, version: &str, args: &[&str], names: &[&str]) -> Said {
        let mut command = landfast();
        command.args(args).args(names.iter().map(|n| self.url(n, version)));
        let said = said(&mut command);
        let (from, to) = (self.shown("", version), path(&self.at("")).to_owned());
        Said { out: replaced(&said.out, &from, &to), err: replaced(&said.err, &from, &to), code: said.code }
    }

    /// What the GNU tool says of them on the export itself.
    fn gnu(&self, args: &[&str], names: &[&str]) -> Said {
        let mut command = Command::new(args[0]);
        command.args(&args[1..]).args(names.iter().map(|n| self.at(n)));
        said(&mut command)
    }
}

/// What a command said, and its exit status.
#[derive(PartialEq, Eq, Clone)]
struct Said {
    out: Vec<u8>,
    err: Vec<u8>,
    code: Option<i32>,
}

impl std::fmt::Debug for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (out, err) = (String::from_utf8_lossy(&self.out), String::from_utf8_lossy(&self.err));
        write!(f, "exit status {:?}\n{out}--- standard error\n{err}", self.code)
    }
}

impl Said {
    /// With lines in the order of their bytes.
    fn sorted(mut self) -> Said {
        let mut lines: Vec<&[u8]> = self.out.split_inclusive(|b| matches!(b, b'\n' | 0)).collect();
        lines.sort();
        self.out = lines.concat();
        self
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    fn errors(&self) -> String {
        String::from_utf8_lossy(&self.err).into_owned()
    }

    /// The summary that stands last with `--json`.
    fn summary(&self) -> serde_json::Value {
        let text = self.text();
        let last = text.lines().last().unwrap_or_default();
        let value: serde_json::Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        value["summary"].clone()
    }
}

fn said(command: &mut Command) -> Said {
    let o: Output = command
        .stdin(Stdio::null())
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "Europe/Berlin")
        .output()
        .expect("it runs");
    Said { out: o.stdout, err: o.stderr, code: o.status.code() }
}

/// The same with this on standard input.
fn said_with(command: &mut Command, input: &str) -> Said {
    use std::io::Write;
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.env("LC_ALL", "C.UTF-8").env("TZ", "Europe/Berlin").spawn().expect("it starts");
    // One that reads nothing may have ended.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let o = child.wait_with_output().expect("it ends");
    Said { out: o.stdout, err: o.stderr, code: o.status.code() }
}

fn replaced(text: &[u8], from: &str, to: &str) -> Vec<u8> {
    let from = from.as_bytes();
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(from) {
            out.extend_from_slice(to.as_bytes());
            rest = after;
        } else {
            out.push(rest[0]);
            rest = &rest[1..];
        }
    }
    out
}

/// The same output, the same messages, the same exit status; where not, the first lines that differ.
#[track_caller]
fn assert_same(ours: &Said, gnu: &Said, what: &str) {
    for (ours, gnu, stream) in [(&ours.out, &gnu.out, "output"), (&ours.err, &gnu.err, "messages")] {
        let split = |text: &[u8]| -> Vec<String> {
            text.split_inclusive(|b| matches!(b, b'\n' | 0))
                .map(|l| format!("{:?}", String::from_utf8_lossy(l)))
                .collect()
        };
        let (ours, gnu) = (split(ours), split(gnu));
        let at = ours.iter().zip(&gnu).take_while(|(a, b)| a == b).count();
        let some = |lines: &[String]| lines.iter().skip(at).take(6).cloned().collect::<Vec<_>>().join("\n  ");
        assert!(
            ours == gnu,
            "{what}: {stream} from line {at} of {} and {}\nours:\n  {}\nGNU's:\n  {}",
            ours.len(),
            gnu.len(),
            some(&ours),
            some(&gnu)
        );
    }
    assert_eq!(ours.code, gnu.code, "{what}: exit status");
}

/// Everything below a directory, sorted.
fn names(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut stack = vec![dir.to_owned()];
    while let Some(at) = stack.pop() {
        for entry in fs::read_dir(&at).expect("a directory") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() {
                stack.push(entry.path());
            }
            all.push(entry.path().strip_prefix(dir).expect("below").to_owned());
        }
    }
    all.sort();
    all
}

/// A tree with everything that names and kinds can be: called by the name of its own.
fn odd_tree(rig: &Rig, name: &str) {
    rig.shell(&format!("mkdir {name}; cd {name}; {ODD}"));
    let long = "n".repeat(255);
    fs::write(rig.at(name).join(&long), b"long").expect("a file");
    use std::os::unix::ffi::OsStrExt;
    fs::write(rig.at(name).join(OsStr::from_bytes(b"bytes \xff\xfe")), b"x").expect("a file");
}

const ODD: &str = r#"
mkdir -p 'a b' deep/1/2/3/4/5/6/7/8/9/10/11/12 many empty .hidden/in
echo one > 'a b/it'"'"'s'; echo two > $'new\nline'; echo three > ' lead'; echo > 'quote"'; echo > 'back\slash'; echo > '$(x)'; echo > '*'
touch .dot -- -dash '~' '#' '{' é $'tab\t'
head -c 5000 /dev/urandom > five; head -c 2000000 /dev/zero > large; truncate -s 3M sparse
ln five hard1; ln five deep/1/hard2; ln -s five link; ln -s a\ b todir; ln -s nowhere broken; ln -s /etc/passwd deep/abs; ln -s .. deep/1/2/up
mkfifo fifo; mknod chr c 1 3; mknod blk b 7 200
for i in $(seq 300); do echo $i > many/f$i; done
echo bottom > deep/1/2/3/4/5/6/7/8/9/10/11/12/bottom
chown 1234:5678 five; chmod 4755 ' lead'; chmod 2644 'quote"'; chmod 0 '$(x)'; chmod 1777 empty; chmod 0555 deep/1/2/3
touch -d '2001-02-03 04:05:06.789' five; touch -h -d '1999-12-31 23:59:59' link; touch -d '2040-01-01' '*'; touch -d '100 days ago' .dot; touch -d '300 days ago' '#'
"#;
