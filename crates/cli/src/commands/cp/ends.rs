//! Operands as places, here and on servers, and what each source is called at the destination.

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
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

const NOT_A_DIRECTORY: &str = "Not a directory";

/// A source or a destination.
#[derive(Debug, Clone)]
pub enum End {
    /// A path of this machine.
    Here {
        /// The path.
        path: PathBuf,
    },
    /// A path on a server.
    There {
        /// Where.
        place: Place,
        /// How it is shown.
        shown: Vec<u8>,
    },
}

/// A source, and what becomes of it.
#[derive(Debug, Clone)]
pub struct Errand {
    /// What is copied.
    pub source: End,
    /// Its name below the root, empty for the root itself.
    pub name: Vec<u8>,
    /// How the copy is shown.
    pub dest: Vec<u8>,
    /// It is a directory.
    pub is_dir: bool,
    /// What was found, if it is on a server.
    pub found: Option<Object>,
}

impl From<&Errand> for Shown {
    fn from(errand: &Errand) -> Shown {
        Shown { name: errand.name.clone(), source: errand.source.shown(), dest: errand.dest.clone() }
    }
}

/// All that is to be done.
#[derive(Debug)]
pub struct Ends {
    /// The directory below which all copies are.
    pub root: End,
    /// Its handle, if it is known.
    pub handle: Option<FileHandle>,
    /// What is copied.
    pub errands: Vec<Errand>,
    /// The destination is a directory into which the sources go.
    pub into: bool,
}

/// What an operand is.
enum Is {
    /// On a server, this one.
    Dir(Option<Object>),
    Other(Option<Object>),
    Missing(String),
}

impl End {
    /// Understands an operand. `None`: it was told why not.
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

    /// How it is shown.
    pub fn shown(&self) -> Vec<u8> {
        match self {
            End::Here { path } => path.as_os_str().as_bytes().to_vec(),
            End::There { shown, .. } => shown.clone(),
        }
    }

    /// It ends in `/`: nothing but a directory can be meant.
    fn must_be_dir(&self) -> bool {
        self.shown().ends_with(b"/") && !self.last().is_empty()
    }

    /// Whether both are here, or reached in the same way.
    pub fn beside(&self, other: &End) -> bool {
        match (self, other) {
            (End::Here { .. }, End::Here { .. }) => true,
            (End::There { place, .. }, End::There { place: other, .. }) => place.beside(other),
            _ => false,
        }
    }

    /// Whether the name below the root is this object, or lies in it. Symbolic links on a server are not looked at.
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

    /// Whether the name below the root is another name of this file.
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

    /// Its last name; nothing for a top, `.` and `..`.
    fn last(&self) -> Vec<u8> {
        let shown = self.shown();
        let last = shown.rsplit(|b| *b == b'/').find(|name| !name.is_empty()).unwrap_or_default();
        match (last, self) {
            (b"." | b"..", _) => Vec::new(),
            (last, End::Here { .. }) => last.to_vec(),
            (_, End::There { place, .. }) => place.path.last().cloned().unwrap_or_default(),
        }
    }

    /// The directory that it is in.
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

    /// `into`: the listing of a directory of a server is begun.
    async fn is(&self, tool: &Tool, follow: bool, into: bool) -> Is {
        match self {
            End::Here { path } => {
                let found = if follow { path.metadata() } else { path.symlink_metadata() };
                match found {
                    Ok(meta) if meta.is_dir() => Is::Dir(None),
                    Ok(_) => Is::Other(None),
                    Err(e) => Is::Missing(strerror(&e)),
                }
            }
            End::There { place, .. } => {
                let place = std::slice::from_ref(place);
                let found = match into {
                    true => tool.servers.look_into(place, follow).await,
                    false => tool.servers.look(place, follow).await,
                };
                match found.into_iter().next() {
                    Some(Ok(object)) if Meta::of(&object.attrs).is_dir() => Is::Dir(Some(object)),
                    Some(Ok(object)) => Is::Other(Some(object)),
                    Some(Err(e)) => Is::Missing(message::of(&e)),
                    None => Is::Other(None),
                }
            }
        }
    }
}

/// The system's words for an error.
pub fn strerror(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// The sources and the destination as they were typed; the error says what is wrong with them.
fn typed(args: &CpArgs) -> Result<(&[String], &String), String> {
    if args.reflink() == Reflink::Always && args.sparse() != Sparse::Auto {
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

/// What is to be done; `None`: nothing can be, and it was told why. `before`: whether the destination was a directory when
/// the job began, where that was earlier.
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
    let handle = if let Is::Dir(Some(object)) = &is { Some(object.fh.clone()) } else { None };
    let into = match (is, args.no_target_directory) {
        // It may be what the earlier run has made of the source.
        (Is::Dir(_), false) => before.unwrap_or(true),
        _ if before == Some(true) => {
            tool.complain(&format!(
                "target {shown}: it was a directory when this was begun, and is none now"
            ));
            return None;
        }
        (Is::Other(_), _) if args.target_directory.is_some() => {
            tool.complain(&format!("target directory {shown}: Not a directory"));
            return None;
        }
        (Is::Missing(why), _) if args.target_directory.is_some() => {
            tool.complain(&format!("target directory {shown}: {why}"));
            return None;
        }
        (Is::Other(_), _) if sources.len() > 1 => {
            tool.complain(&format!("target {shown}: Not a directory"));
            return None;
        }
        (Is::Missing(why), _) if sources.len() > 1 => {
            tool.complain(&format!("target {shown}: {why}"));
            return None;
        }
        (Is::Other(_), _) if end.must_be_dir() => {
            tool.complain(&format!("cannot stat {shown}: {NOT_A_DIRECTORY}"));
            return None;
        }
        (Is::Missing(why), _) if end.must_be_dir() && why == NOT_A_DIRECTORY => {
            tool.complain(&format!("cannot stat {shown}: {why}"));
            return None;
        }
        _ => false,
    };
    let target = Target::new(end, into);
    let mut errands = Vec::with_capacity(sources.len());
    for text in sources {
        let Some(source) = End::of(tool, text, "cannot stat").await else { continue };
        match target.errand(tool, args, source).await {
            Ok(errand) => errands.push(errand),
            Err(why) => tool.complain(&why),
        }
    }
    Some(Ends { root: target.root, handle: handle.filter(|_| into), errands, into })
}

/// What is to be done if all that is copied is here, and the destination, on a server, is a directory for the sources (`into`) or a
/// name in one. `None`: it cannot be that, or not all of it can be done.
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
    let mut errands = Vec::with_capacity(sources.len());
    for text in sources {
        errands.push(target.errand(tool, args, End::Here { path: text.into() }).await.ok()?);
    }
    Some((operand, Ends { root: target.root, handle: None, errands, into }))
}

/// Where copies go.
struct Target {
    end: End,
    /// The directory below which they are.
    root: End,
    /// The name of the only one there, if they do not go into the destination under their own names.
    itself: Option<Vec<u8>>,
}

impl Target {
    fn new(end: End, into: bool) -> Target {
        let (root, itself) = match (into, end.last()) {
            (true, _) => (end.clone(), None),
            // A top, or a directory called by a dot.
            (false, name) if name.is_empty() => (end.clone(), Some(Vec::new())),
            (false, name) => (end.above(), Some(name)),
        };
        Target { end, root, itself }
    }

    /// What becomes of a source; the error is a message.
    async fn errand(&self, tool: &Tool, args: &CpArgs, source: End) -> Result<Errand, String> {
        let shown = quote::shown(&source.shown());
        let (is_dir, found) = match source.is(tool, args.follow() != Follow::Never, args.recursive()).await {
            Is::Missing(why) => return Err(format!("cannot stat {shown}: {why}")),
            Is::Dir(_) if !args.recursive() => {
                return Err(format!("-r not specified; omitting directory {shown}"));
            }
            Is::Dir(found) => (true, found),
            Is::Other(found) => (false, found),
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
        Ok(Errand { source, name, dest, is_dir, found })
    }
}
