//! A server's directory in which commands are run, and what they say.

use crate::error::{Context, Error, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// So many characters of what a program said are shown.
const SAID_MAX: usize = 600;

/// A directory on a server, and what is needed to work there.
pub(super) struct Server<'a> {
    pub(super) binary: &'a Path,
    /// The directory that everything is done in, without the options of its URL.
    pub(super) base: String,
    pub(super) query: &'a str,
    pub(super) tree: &'a Path,
    /// An empty directory on this machine.
    pub(super) work: &'a Path,
}

pub(super) struct Output {
    pub(super) args: String,
    pub(super) out: Vec<u8>,
    pub(super) err: String,
    pub(super) code: Option<i32>,
}

impl<'a> Server<'a> {
    pub(super) fn new(binary: &'a Path, url: &'a str, tree: &'a Path, work: &'a Path) -> Self {
        let (base, query) = url.split_at(url.find('?').unwrap_or(url.len()));
        let base = format!("{}/landfast-commands-{}", base.trim_end_matches('/'), std::process::id());
        Server { binary, base, query, tree, work }
    }

    /// The URL of a name below the directory.
    pub(super) fn url(&self, name: &str) -> String {
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
    pub(super) fn shown(&self, name: &str) -> String {
        let url = self.url(name);
        url.strip_suffix(self.query).unwrap_or(&url).to_owned()
    }

    /// Runs a command of Landfast's; each of `names` stands for its URL.
    pub(super) fn ours(&self, args: &[&str], names: &[&str]) -> Result<Output> {
        let mut command = Command::new(self.binary);
        command.args(args).args(names.iter().map(|name| self.url(name)));
        said(&mut command)
    }

    pub(super) fn local(&self, args: &[&str], names: &[&str]) -> Result<Output> {
        let [tool, args @ ..] = args else { return Err(Error::Unable("no tool is named".to_owned())) };
        said(Command::new(tool).args(args).args(names).current_dir(self.tree))
    }
}

impl Output {
    /// What is wrong with it unless it ended like this and, if all is well, said nothing on standard error.
    pub(super) fn expect(&self, code: i32) -> Vec<String> {
        if self.code == Some(code) && (code != 0 || self.err.is_empty()) {
            return Vec::new();
        }
        let said = [&self.err, &*String::from_utf8_lossy(&self.out)].concat();
        let said: String = said.trim_end().chars().take(SAID_MAX).collect();
        vec![format!("{}: exit status {:?}, not {code}: {said}", self.args, self.code)]
    }

    /// Its output in lines, in the order of their bytes, without `prefix`.
    pub(super) fn lines(&self, prefix: &[u8]) -> Vec<Vec<u8>> {
        let lines = self.out.split(|b| *b == b'\n').filter(|l| !l.is_empty());
        let mut lines: Vec<_> = lines.map(|l| l.strip_prefix(prefix).unwrap_or(l).to_vec()).collect();
        lines.sort();
        lines
    }
}

pub(super) fn said(command: &mut Command) -> Result<Output> {
    let shown = command.get_args().next().map(|a| a.to_string_lossy().into_owned()).unwrap_or_default();
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).env("LC_ALL", "C.UTF-8").output();
    let output = output.context(|| format!("run {name}"))?;
    Ok(Output {
        args: format!("{} {shown}", name.rsplit('/').next().unwrap_or_default()),
        out: output.stdout,
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    })
}

/// Where two lists differ, first.
pub(super) fn differ(what: &str, ours: &[Vec<u8>], wanted: &[Vec<u8>]) -> Vec<String> {
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
