//! The client's commands on any server, each held against what GNU's tools say of the same tree on this machine.
//!
//! The lab makes a tree, brings it to the server with Landfast's commands, looks at it there with others, and removes it. It
//! sees the server through NFS alone, so the server may be anywhere; what it looks with is not what it wrote with.
//!
//! | room | subject |
//! |---|---|
//! | `tree` | the tree on this machine |
//! | `steps` | what is done, in this order, and what must come of it |

mod steps;
mod tree;

use crate::error::{Context, Error, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directories on servers, as URLs, each with its version.
    pub urls: Vec<String>,
    /// Small files of the tree.
    pub files: u64,
    /// The program with the commands.
    pub binary: PathBuf,
}

/// One command on one server.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// The directory it was done in.
    pub url: String,
    /// The command.
    pub command: &'static str,
    /// How long all calls of it took.
    pub seconds: f64,
    /// What is wrong; empty when nothing is.
    pub wrong: Vec<String>,
}

/// So many lines of what is wrong are kept of a step.
const WRONG_MAX: usize = 8;

/// So many characters of what a program said are shown.
const SAID_MAX: usize = 600;

/// Does everything on each server. `progress` hears of each step.
///
/// # Errors
/// What keeps the lab from working; what a command does wrong is in the steps.
pub fn run(options: &Options, mut progress: impl FnMut(&Step)) -> Result<Vec<Step>> {
    let scratch = tempfile::Builder::new()
        .prefix("landfast-commands-")
        .tempdir()
        .context(|| "make a temporary directory".to_owned())?;
    let tree = scratch.path().join("tree");
    tree::make(&tree, options.files)?;
    let mut done = Vec::new();
    for url in &options.urls {
        let work = scratch.path().join("work");
        std::fs::create_dir(&work).context(|| format!("create {}", work.display()))?;
        let server = Server::new(&options.binary, url, &tree, &work);
        for (command, does) in steps::ALL {
            let start = Instant::now();
            let mut wrong = does(&server).unwrap_or_else(|e| vec![e.to_string()]);
            wrong.truncate(WRONG_MAX);
            let step = Step { url: url.clone(), command, seconds: start.elapsed().as_secs_f64(), wrong };
            progress(&step);
            done.push(step);
        }
        std::fs::remove_dir_all(&work).context(|| format!("remove {}", work.display()))?;
    }
    Ok(done)
}

/// A directory on a server, and what is needed to work there.
struct Server<'a> {
    binary: &'a Path,
    /// The directory that everything is done in, without the options of its URL.
    base: String,
    /// The options, with their question mark.
    query: &'a str,
    /// The tree on this machine.
    tree: &'a Path,
    /// An empty directory on this machine.
    work: &'a Path,
}

/// What a program said.
struct Said {
    args: String,
    out: Vec<u8>,
    err: String,
    code: Option<i32>,
}

impl<'a> Server<'a> {
    fn new(binary: &'a Path, url: &'a str, tree: &'a Path, work: &'a Path) -> Self {
        let (base, query) = url.split_at(url.find('?').unwrap_or(url.len()));
        let base = format!("{}/landfast-commands-{}", base.trim_end_matches('/'), std::process::id());
        Server { binary, base, query, tree, work }
    }

    /// The URL of a name below the directory.
    fn url(&self, name: &str) -> String {
        let mut url = self.base.clone();
        if !name.is_empty() {
            url.push('/');
        }
        for byte in name.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                    url.push(char::from(byte))
                }
                byte => url.push_str(&format!("%{byte:02X}")),
            }
        }
        url + self.query
    }

    /// What commands call it.
    fn shown(&self, name: &str) -> String {
        let url = self.url(name);
        url.strip_suffix(self.query).unwrap_or(&url).to_owned()
    }

    /// Runs a command of Landfast's; each of `names` stands for its URL.
    fn ours(&self, args: &[&str], names: &[&str]) -> Result<Said> {
        let mut command = Command::new(self.binary);
        command.args(args).args(names.iter().map(|name| self.url(name)));
        said(&mut command)
    }

    /// Runs a tool in the tree on this machine.
    fn local(&self, args: &[&str], names: &[&str]) -> Result<Said> {
        let [tool, args @ ..] = args else { return Err(Error::Unable("no tool is named".to_owned())) };
        said(Command::new(tool).args(args).args(names).current_dir(self.tree))
    }
}

impl Said {
    /// What is wrong with it unless it ended like this and, if all is well, said nothing on standard error.
    fn expect(&self, code: i32) -> Vec<String> {
        if self.code == Some(code) && (code != 0 || self.err.is_empty()) {
            return Vec::new();
        }
        let said = [&self.err, &*String::from_utf8_lossy(&self.out)].concat();
        let said: String = said.trim_end().chars().take(SAID_MAX).collect();
        vec![format!("{}: exit status {:?}, not {code}: {said}", self.args, self.code)]
    }

    /// Its output in lines, in the order of their bytes, without `prefix`.
    fn lines(&self, prefix: &[u8]) -> Vec<Vec<u8>> {
        let lines = self.out.split(|b| *b == b'\n').filter(|l| !l.is_empty());
        let mut lines: Vec<_> = lines.map(|l| l.strip_prefix(prefix).unwrap_or(l).to_vec()).collect();
        lines.sort();
        lines
    }
}

fn said(command: &mut Command) -> Result<Said> {
    let shown = command.get_args().next().map(|a| a.to_string_lossy().into_owned()).unwrap_or_default();
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).env("LC_ALL", "C.UTF-8").output();
    let output = output.context(|| format!("run {name}"))?;
    Ok(Said {
        args: format!("{} {shown}", name.rsplit('/').next().unwrap_or_default()),
        out: output.stdout,
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    })
}

/// Where two lists differ, first.
fn differ(what: &str, ours: &[Vec<u8>], wanted: &[Vec<u8>]) -> Vec<String> {
    if ours == wanted {
        return Vec::new();
    }
    let at = ours.iter().zip(wanted).take_while(|(a, b)| a == b).count();
    let show =
        |list: &[Vec<u8>]| list.get(at).map_or("nothing".into(), |line| line.escape_ascii().to_string());
    vec![format!(
        "{what}: {} lines, {} wanted; the first that differs: {}, wanted: {}",
        ours.len(),
        wanted.len(),
        show(ours),
        show(wanted)
    )]
}
