//! `landfast tar -c`, as GNU's, from an NFS server. Messages have GNU tar's words.

pub mod args;

use super::message::plain;
use super::operand::Place;
use super::owners::LocalNames;
use super::tool::{self, Tool};
use super::{message, quote};
use crate::exit::Exit;
use crate::progress::Counter;
use crate::say;
use args::TarArgs;
use landfast_client::archive::Compression;
use landfast_client::fs::{AsNamed, OwnerNames};
use landfast_client::tar::{self, Complaint, Root, Severity, Sink, TarOptions, Watch};
use parking_lot::Mutex;
use serde_json::json;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub fn run(args: TarArgs) -> Exit {
    tool::run("tar", args.common, |tool| create(tool, args))
}

async fn create(mut tool: Tool, args: TarArgs) -> Tool {
    if args.paths.is_empty() && args.files_from.is_none() {
        tool.complain_as("Cowardly refusing to create an empty archive", Exit::Failed);
        return tool;
    }
    let worst = match start(&mut tool, args).await {
        Ok(worst) => worst,
        Err(why) => {
            tool.complain_as(&why, Exit::Failed);
            tool.complain_as("Error is not recoverable: exiting now", Exit::Failed);
            return tool;
        }
    };
    if worst == Exit::Failed {
        tool.complain_as("Exiting with failure status due to previous errors", Exit::Failed);
    }
    tool
}

/// The patterns in a file, one a line. A pattern that is not UTF-8 matches nothing that can be typed.
pub fn patterns(file: &Path) -> Result<Vec<String>, String> {
    let lines = listed(file, b'\n')?;
    Ok(lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect())
}

/// Returns how it ended, or why it could not start or go on.
async fn start(tool: &mut Tool, mut args: TarArgs) -> Result<Exit, String> {
    for file in &args.exclude_from {
        args.exclude.extend(patterns(file)?);
    }
    let mut paths = match &args.files_from {
        Some(list) => listed(list, if args.null { 0 } else { b'\n' })?,
        None => Vec::new(),
    };
    paths.extend(args.paths.iter().map(|p| p.as_bytes().to_vec()));
    if paths.is_empty() {
        return Err("Cowardly refusing to create an empty archive".to_owned());
    }
    let archive = args.file.as_deref().filter(|file| *file != Path::new("-"));
    if archive.is_none() && std::io::stdout().is_terminal() {
        return Err("Refusing to write archive contents to terminal (missing -f option?)".to_owned());
    }
    if archive.is_none() && tool.json() {
        return Err(
            "--json and the archive cannot both be written to standard output: use -f FILE".to_owned()
        );
    }
    let base = match &args.directory {
        Some(url) => Some(tool.place(url).await?.1),
        None => None,
    };
    let (places, names) = operands(tool, base.as_ref(), paths).await?;
    let found = tool.servers.look_into(&places, false).await;
    let root = |((place, name), object): ((&Place, _), _)| Root {
        nfs: tool.servers.nfs(place).clone(),
        name,
        object,
    };
    let roots = places.iter().zip(names).zip(found).map(root).collect();
    let compression = match archive {
        _ if args.gzip => Compression::Gzip,
        _ if args.bzip2 => Compression::Bzip2,
        _ if args.xz => Compression::Xz,
        _ if args.zstd => Compression::Zstd,
        Some(file) if args.auto_compress => Compression::of_name(file.as_os_str().as_bytes()),
        _ => Compression::None,
    };
    let (shown, sink) = match archive {
        Some(file) => (escaped(file.as_os_str().as_bytes()), Sink::File(file.to_owned())),
        None => {
            let out = std::io::stdout().as_fd().try_clone_to_owned(); // to become durable, if it is a file
            let out = std::fs::File::from(out.map_err(|e| plain(&e))?);
            let sink = match out.metadata().is_ok_and(|meta| meta.is_file()) {
                true => Sink::Open(out),
                false => Sink::Writer(Box::new(say::unbuffered().map_err(|e| plain(&e))?)),
            };
            ("-".to_owned(), sink)
        }
    };
    let who: Box<dyn OwnerNames> = match args.numeric_owner {
        true => Box::new(AsNamed),
        false => Box::new(LocalNames::default()),
    };
    let screen = Screen {
        json: tool.json(),
        verbose: args.verbose,
        to_stderr: archive.is_none(),
        progress: Counter::new("archived", None, args.verbose && archive.is_some()),
        state: Mutex::new((Vec::new(), Exit::Done)),
    };
    let options = TarOptions { compression, xattrs: args.xattrs, exclude: args.exclude, who };
    let report = tar::create(roots, sink, options, &screen).await;
    let said = screen.end();
    let report = match report.map_err(|e| plain(&e)) {
        Err(why) if why.contains("Broken pipe") => {
            // The reader has stopped reading, as `head` does.
            if archive.is_none() {
                say::output_failed(&std::io::ErrorKind::BrokenPipe.into());
                return Ok(said);
            }
            return Err("Cannot write: Broken pipe".to_owned());
        }
        // The failure was printed.
        Err(_) if archive.is_none() && say::is_full() => return Ok(said.max(Exit::Failed)),
        report => report.map_err(|why| format!("{shown}: {why}"))?,
    };
    tool.set_status(said);
    tool.summary("archived", report.counts.all());
    Ok(said)
}

fn listed(file: &Path, end: u8) -> Result<Vec<Vec<u8>>, String> {
    let mut text = Vec::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin().read_to_end(&mut text).map(drop),
        false => std::fs::read(file).map(|all| text = all),
    };
    read.map_err(|e| format!("{}: Cannot stat: {}", escaped(file.as_os_str().as_bytes()), plain(&e)))?;
    Ok(text.split(|b| *b == end).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// The places of operands, and their names in the archive.
async fn operands(
    tool: &mut Tool,
    base: Option<&Place>,
    paths: Vec<Vec<u8>>,
) -> Result<(Vec<Place>, Vec<Vec<u8>>), String> {
    let (mut places, mut names) = (Vec::with_capacity(paths.len()), Vec::with_capacity(paths.len()));
    let mut told = Vec::new();
    for path in paths {
        if path.starts_with(b"nfs://") {
            let (operand, place) = tool.place(&String::from_utf8_lossy(&path)).await?;
            places.push(place);
            names.push(inside(&operand.url.path.join(&b'/')).1.to_vec());
            continue;
        }
        let Some(base) = base else {
            return Err(format!(
                "{}: a relative path needs a directory: give -C nfs://HOST[:PORT]/PATH",
                escaped(&path)
            ));
        };
        let (outside, name) = inside(&path);
        // As in GNU tar, a slash at the end does not make it follow a symbolic link.
        places.push(base.at(trimmed(&path)));
        if !outside.is_empty() && !told.contains(&outside.to_vec()) {
            told.push(outside.to_vec());
            eprintln!("tar: Removing leading `{}' from member names", escaped(outside));
        }
        names.push(name.to_vec());
    }
    Ok((places, names))
}

/// Splits a path after the part that leads out of the directory into which the archive will be extracted. The rest has
/// no slashes at its end; it is `.` if nothing is left.
fn inside(path: &[u8]) -> (&[u8], &[u8]) {
    let mut begin = 0;
    let mut at = 0;
    for name in path.split(|b| *b == b'/') {
        let end = at + name.len();
        if name == b".." || (name.is_empty() && at == begin) {
            begin = (end + 1).min(path.len());
        }
        at = end + 1;
    }
    let (outside, rest) = path.split_at(begin);
    let rest = trimmed(rest);
    (outside, if rest.is_empty() { b"." } else { rest })
}

/// Removes slashes from the end, if something is before them.
fn trimmed(mut path: &[u8]) -> &[u8] {
    while let [shorter @ .., b'/'] = path
        && !shorter.is_empty()
    {
        path = shorter;
    }
    path
}

fn escaped(name: &[u8]) -> String {
    String::from_utf8_lossy(&quote::escaped(name)).into_owned()
}

struct Screen {
    json: bool,
    verbose: bool,
    to_stderr: bool,
    progress: Counter,
    /// Names that are not written yet; the worst exit status so far.
    state: Mutex<(Vec<u8>, Exit)>,
}

/// Names are collected up to this many bytes.
const NAMES_BYTES: usize = 64 << 10;

fn flush(to_stderr: bool, names: &mut Vec<u8>) {
    // The archive is completed if the reader of its names goes away.
    let _ = match to_stderr {
        true => say::lines_to_stderr(names),
        false => say::stdout().write_all(names),
    };
    names.clear();
}

impl Screen {
    fn end(self) -> Exit {
        let mut state = self.state.into_inner();
        flush(self.to_stderr, &mut state.0);
        state.1
    }
}

impl Watch for Screen {
    fn member(&self, path: &[u8]) {
        self.progress.more(1);
        if !self.verbose && !self.json {
            return;
        }
        let mut state = self.state.lock();
        match self.json {
            true => {
                let line = json!({ "path": String::from_utf8_lossy(path), "archived": true });
                state.0.extend_from_slice(line.to_string().as_bytes());
            }
            false => state.0.extend_from_slice(&quote::escaped(path)),
        }
        state.0.push(b'\n');
        if state.0.len() >= NAMES_BYTES {
            flush(self.to_stderr, &mut state.0);
        }
    }

    fn complaint(&self, path: &[u8], what: &Complaint) {
        let mut state = self.state.lock();
        flush(self.to_stderr, &mut state.0);
        state.1 = state.1.max(match what.severity() {
            Severity::Remark => Exit::Done,
            Severity::Differs => Exit::Partly,
            Severity::Missing => Exit::Failed,
        });
        eprintln!("tar: {}: {}", escaped(path), what.text(message::of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_in_an_archive_leads_out_of_where_it_is_extracted() {
        for (path, outside, rest) in [
            ("a/b", "", "a/b"),
            ("a/", "", "a"),
            (".", "", "."),
            ("./a", "", "./a"),
            ("/a/b", "/", "a/b"),
            ("//a", "//", "a"),
            ("/", "/", "."),
            ("../a", "../", "a"),
            ("..", "..", "."),
            ("a/../b", "a/../", "b"),
            ("a/../../b/c", "a/../../", "b/c"),
            ("a//b", "", "a//b"),
        ] {
            assert_eq!(inside(path.as_bytes()), (outside.as_bytes(), rest.as_bytes()), "{path}");
        }
    }
}
