//! Resolves operands to places on this machine and on servers, and finds the name of each source at the destination.

use super::super::object::below;
use super::super::operand::{Operand, Place, Servers};
use super::super::tool::Tool;
use super::super::{message, quote};
use super::args::CpArgs;
use super::say::Shown;
use landfast_client::copy::Sparse;
use landfast_client::fs::{Meta, Object, Reflink};
use landfast_client::local::Follow;
use landfast_nfs::v4::FileHandle;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

const NOT_A_DIRECTORY: &str = "Not a directory";

#[derive(Debug, Clone)]
pub enum End {
    Here { path: PathBuf },
    There { place: Place, shown: Vec<u8> },
}

/// A source with the name of its copy.
#[derive(Debug, Clone)]
pub struct CopyTask {
    pub source: End,
    /// The name below the destination's root; empty for the root itself.
    pub name: Vec<u8>,
    pub dest: Vec<u8>,
    pub is_dir: bool,
    /// The object, if it is on a server and was looked up.
    pub found: Option<Object>,
}

impl From<&CopyTask> for Shown {
    fn from(task: &CopyTask) -> Shown {
        Shown { name: task.name.clone(), source: task.source.shown(), dest: task.dest.clone() }
    }
}

#[derive(Debug)]
pub struct Ends {
    pub root: End,
    pub handle: Option<FileHandle>,
    pub tasks: Vec<CopyTask>,
    /// The destination is a directory, and the sources go into it under their own names.
    pub into: bool,
}

enum OperandKind {
    /// The object, if it is on a server.
    Dir(Option<Object>),
    Other(Option<Object>),
    Missing(String),
}

impl End {
    /// Resolves an operand. `None`: the reason was printed.
    async fn of(tool: &mut Tool, text: &str, what: &str) -> Option<End> {
        if !text.starts_with("nfs://") {
            return Some(End::Here { path: text.into() });
        }
        let operand = match Operand::parse(text) {
            Ok(operand) => operand,
            Err(e) => {
                tool.complain(&e.to_string());
                return None;
            }
        };
        match tool.servers.place(&operand).await {
            Ok(place) => Some(End::There { place, shown: operand.shown.into_bytes() }),
            Err(e) => {
                tool.complain(&format!("{what} {}: {e}", quote::shown(text.as_bytes())));
                None
            }
        }
    }

    pub fn shown(&self) -> Vec<u8> {
        match self {
            End::Here { path } => path.as_os_str().as_bytes().to_vec(),
            End::There { shown, .. } => shown.clone(),
        }
    }

    /// Whether it ends in `/`, so that only a directory can be meant.
    fn must_be_dir(&self) -> bool {
        self.shown().ends_with(b"/") && !self.last().is_empty()
    }

    /// Whether both are on this machine, or on servers that are reached in the same way.
    pub fn beside(&self, other: &End) -> bool {
        match (self, other) {
            (End::Here { .. }, End::Here { .. }) => true,
            (End::There { place, .. }, End::There { place: other, .. }) => place.beside(other),
            _ => false,
        }
    }

    /// Whether `name` below the root is this object, or is inside of it. Symbolic links on a server are not resolved.
    fn holds(&self, root: &End, name: &[u8]) -> bool {
        match (self, root) {
            (End::Here { path }, End::Here { path: root }) => {
                let copy = root.join(std::ffi::OsStr::from_bytes(name));
                let real = copy.canonicalize().or_else(|_| root.canonicalize());
                matches!((path.canonicalize(), real), (Ok(own), Ok(real)) if real.starts_with(&own))
            }
            (End::There { place, .. }, End::There { place: root, .. }) if place.on_one_server(root) => {
                let names = name.split(|b| *b == b'/').filter(|n| !n.is_empty()).map(<[u8]>::to_vec);
                let copy: Vec<Vec<u8>> = root.path.iter().cloned().chain(names).collect();
                copy.starts_with(&place.path)
            }
            _ => false,
        }
    }

    /// Whether `name` below the root is another name of this file.
    async fn is_also(&self, tool: &Tool, root: &End, name: &[u8]) -> bool {
        let (End::There { place, .. }, End::There { place: root, .. }) = (self, root) else { return false };
        if !place.on_one_server(root) {
            return false;
        }
        let copy = root.at(&[&b"./"[..], name].concat());
        let found = tool.servers.look(&[place.clone(), copy], true).await;
        let id = |n: usize| found[n].as_ref().ok().and_then(|o| o.attrs.fsid.zip(o.attrs.fileid));
        id(0).is_some() && id(0) == id(1)
    }

    /// The last name of the path; empty for a root, `.` and `..`.
    fn last(&self) -> Vec<u8> {
        let shown = self.shown();
        let last = shown.rsplit(|b| *b == b'/').find(|name| !name.is_empty()).unwrap_or_default();
        match (last, self) {
            (b"." | b"..", _) => Vec::new(),
            (last, End::Here { .. }) => last.to_vec(),
            (_, End::There { place, .. }) => place.path.last().cloned().unwrap_or_default(),
        }
    }

    fn above(&self) -> End {
        match self {
            End::Here { path } => {
                let bytes = path.as_os_str().as_bytes();
                let len = bytes.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
                let above =
                    bytes[..len].iter().rposition(|b| *b == b'/').map_or(&b"."[..], |at| &bytes[..=at]);
                End::Here { path: PathBuf::from(std::ffi::OsString::from_vec(above.to_vec())) }
            }
            End::There { place, shown } => {
                let place = place.split().map_or_else(|| place.clone(), |(above, _)| above);
                End::There { place, shown: shown.clone() }
            }
        }
    }

    /// What kind of object it is. `into`: start to list it, if it is a directory on a server.
    async fn is(&self, tool: &Tool, follow: bool, into: bool) -> OperandKind {
        match self {
            End::Here { path } => {
                let found = if follow { path.metadata() } else { path.symlink_metadata() };
                match found {
                    Ok(meta) if meta.is_dir() => OperandKind::Dir(None),
                    Ok(_) => OperandKind::Other(None),
                    Err(e) => OperandKind::Missing(message::plain(&e)),
                }
            }
            End::There { place, .. } => {
                let place = std::slice::from_ref(place);
                let found = match into {
                    true => tool.servers.look_into(place, follow).await,
                    false => tool.servers.look(place, follow).await,
                };
                match found.into_iter().next() {
                    Some(Ok(object)) if Meta::of(&object.attrs).is_dir() => OperandKind::Dir(Some(object)),
                    Some(Ok(object)) => OperandKind::Other(Some(object)),
                    Some(Err(e)) => OperandKind::Missing(message::of(&e)),
                    None => OperandKind::Other(None),
                }
            }
        }
    }
}

/// The sources and the destination as typed, or a message that says what is wrong with them.
fn typed(args: &CpArgs) -> Result<(&[String], &String), String> {
    if args.reflink == Reflink::Always && args.sparse != Sparse::Auto {
        return Err("--reflink can be used only with --sparse=auto".to_owned());
    }
    let (sources, dest) = match (&args.target_directory, args.operands.split_last()) {
        (_, None) => return Err("missing file operand".to_owned()),
        (Some(dir), _) => (&args.operands[..], dir),
        (None, Some((only, []))) => {
            let after = quote::shown(only.as_bytes());
            return Err(format!("missing destination file operand after {after}"));
        }
        (None, Some((dest, sources))) => (sources, dest),
    };
    if args.no_target_directory && sources.len() > 1 {
        let extra = quote::shown(dest.as_bytes());
        return Err(format!("extra operand {extra}"));
    }
    Ok((sources, dest))
}

/// Resolves all operands; `None`: the reason was printed. `before`: whether the destination was a directory when a resumed job began.
pub async fn of(tool: &mut Tool, args: &CpArgs, before: Option<bool>) -> Option<Ends> {
    let (sources, dest) = match typed(args) {
        Ok(typed) => typed,
        Err(why) => {
            tool.complain(&why);
            eprintln!("Try 'landfast cp --help' for more information.");
            return None;
        }
    };
    let end = End::of(tool, dest, "cannot reach").await?;
    let shown = quote::shown(&end.shown());
    let is = end.is(tool, true, false).await;
    let handle = if let OperandKind::Dir(Some(object)) = &is { Some(object.fh.clone()) } else { None };
    let must_be_dir = args.target_directory.is_some() || sources.len() > 1;
    let what = if args.target_directory.is_some() { "target directory" } else { "target" };
    let wrong = match &is {
        OperandKind::Dir(_) if !args.no_target_directory => None,
        _ if before == Some(true) => {
            Some(format!("target {shown}: it was a directory when this job began, and is no longer one"))
        }
        OperandKind::Other(_) if must_be_dir => Some(format!("{what} {shown}: {NOT_A_DIRECTORY}")),
        OperandKind::Missing(why) if must_be_dir => Some(format!("{what} {shown}: {why}")),
        OperandKind::Other(_) if end.must_be_dir() => Some(format!("cannot stat {shown}: {NOT_A_DIRECTORY}")),
        OperandKind::Missing(why) if end.must_be_dir() && why == NOT_A_DIRECTORY => {
            Some(format!("cannot stat {shown}: {why}"))
        }
        _ => None,
    };
    if let Some(wrong) = wrong {
        tool.complain(&wrong);
        return None;
    }
    // The directory may be what an earlier run has made of the source: then `before` is `false`.
    let into = matches!(is, OperandKind::Dir(_)) && !args.no_target_directory && before.unwrap_or(true);
    let target = Target::new(end, into);
    let mut tasks = Vec::with_capacity(sources.len());
    for text in sources {
        let Some(source) = End::of(tool, text, "cannot stat").await else { continue };
        match target.task(tool, args, source).await {
            Ok(task) => tasks.push(task),
            Err(why) => tool.complain(&why),
        }
    }
    Some(Ends { root: target.root, handle: handle.filter(|_| into), tasks, into })
}

/// What to do if all sources are on this machine, and the destination on a server is either a directory for them
/// (`into`) or the name of the copy. `None`: the operands do not allow that, or not all of them can be copied.
pub async fn supposed(tool: &Tool, args: &CpArgs, into: bool) -> Option<(Operand, Ends)> {
    let (sources, dest) = typed(args).ok()?;
    let must_be = args.target_directory.is_some() || sources.len() > 1;
    if if into { args.no_target_directory } else { must_be } {
        return None;
    }
    let is_there = |text: &String| text.starts_with("nfs://");
    if !is_there(dest) || sources.iter().any(is_there) {
        return None;
    }
    let operand = Operand::parse(dest).ok()?;
    let (place, shown) = (Servers::first_place(&operand), operand.shown.clone().into_bytes());
    let target = Target::new(End::There { place, shown }, into);
    let mut tasks = Vec::with_capacity(sources.len());
    for text in sources {
        tasks.push(target.task(tool, args, End::Here { path: text.into() }).await.ok()?);
    }
    Some((operand, Ends { root: target.root, handle: None, tasks, into }))
}

struct Target {
    end: End,
    /// The directory below which all copies are made.
    root: End,
    /// The name of the only copy, if the sources do not go into the destination under their own names.
    itself: Option<Vec<u8>>,
}

impl Target {
    fn new(end: End, into: bool) -> Target {
        let (root, itself) = match (into, end.last()) {
            (true, _) => (end.clone(), None),
            // The root of an export, or a directory that was named by a dot.
            (false, name) if name.is_empty() => (end.clone(), Some(Vec::new())),
            (false, name) => (end.above(), Some(name)),
        };
        Target { end, root, itself }
    }

    /// Finds the name of a source's copy; the error is a message.
    async fn task(&self, tool: &Tool, args: &CpArgs, source: End) -> Result<CopyTask, String> {
        let shown = quote::shown(&source.shown());
        let (is_dir, found) = match source.is(tool, args.follow() != Follow::Never, args.recursive()).await {
            OperandKind::Missing(why) => return Err(format!("cannot stat {shown}: {why}")),
            OperandKind::Dir(_) if !args.recursive() => {
                return Err(format!("-r not specified; omitting directory {shown}"));
            }
            OperandKind::Dir(found) => (true, found),
            OperandKind::Other(found) => (false, found),
        };
        if self.itself.is_some() && !is_dir && self.end.must_be_dir() {
            let end = quote::shown(&self.end.shown());
            return Err(format!("cannot create regular file {end}: {NOT_A_DIRECTORY}"));
        }
        let (name, dest) = match &self.itself {
            Some(name) => (name.clone(), self.end.shown()),
            None => {
                let name = source.last();
                let end = self.end.shown();
                let dest = if name.is_empty() { end } else { below(&end, &name) };
                (name, dest)
            }
        };
        let same = source.holds(&self.root, &name)
            || !is_dir && !args.remove_destination && source.is_also(tool, &self.root, &name).await;
        if same {
            let to = quote::shown(&dest);
            return Err(match is_dir {
                true => format!("cannot copy a directory, {shown}, into itself, {to}"),
                false => format!("{shown} and {to} are the same file"),
            });
        }
        Ok(CopyTask { source, name, dest, is_dir, found })
    }
}
