//! `landfast ls`, as GNU's. Names are sorted by their bytes, as in the C locale.

pub mod args;

use super::common::Time;
use super::operand::{Operand, Place};
use super::show::{self, Names};
use super::tool::{self, Tool};
use super::{message, mode, quote};
use crate::exit::Exit;
use crate::progress::Counter;
use crate::say;
use args::{Layout, LsArgs, Quoting, Sort, TimeStyle};
use landfast_client::fs::{Entry, Listing, Meta, Nfs, Object, Outcome, Start, WalkOptions};
use landfast_client::glob;
use landfast_nfs::v4::{FileType, NfsTime};
use serde_json::json;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};
use term_grid::{Direction, Filling, Grid, GridOptions};
use unicode_width::UnicodeWidthStr;

/// Width of a line if the terminal does not tell.
const COLUMNS_DEFAULT: usize = 80;

pub fn run(args: LsArgs) -> Exit {
    tool::run("ls", args.common, |tool| list(tool, args))
}

struct Shown {
    name: Vec<u8>,
    meta: Meta,
    text: Option<Vec<u8>>,
}

struct Top {
    operand: Operand,
    object: Object,
    meta: Meta,
    /// The attributes of `..`, for -a.
    above: Option<Meta>,
}

async fn list(mut tool: Tool, args: LsArgs) -> Tool {
    let operands = tool.places(&args.urls, "cannot access", Exit::Failed).await;
    let many = args.urls.len() > 1;
    let mut style = Style::new(&args);
    let (files, dirs) = operands_of(&tool, operands, &style).await;
    let mut objects = files.len() as u64;
    let mut said = !files.is_empty();
    if said {
        show_all(&mut tool, &mut style, files, None);
    }
    let listed = Counter::new("listed", None, true);
    for (nfs, mut tops) in dirs {
        style.sort_by(&mut tops, |top| (top.operand.shown.as_bytes(), &top.meta));
        let mut job = Listings {
            style: &mut style,
            headed: many || args.recursive,
            said,
            objects: 0,
            tops,
            arrived: HashMap::new(),
            held: 0,
            stack: Vec::new(),
            above: HashMap::new(),
        };
        job.stack = (0..job.tops.len()).rev().collect();
        let starts: Vec<_> = job
            .tops
            .iter()
            .map(|top| Start {
                path: top.operand.shown.clone().into_bytes(),
                fh: top.object.fh.clone(),
                first_page: top.object.first_page.clone(),
            })
            .collect();
        let options = WalkOptions {
            texts: args.in_lines() || tool.json(),
            depth_max: if args.recursive { usize::MAX } else { 0 },
            by_name: args.sort() != Sort::None,
            parts: false,
        };
        nfs.walk_held(starts, options, |listing| {
            listed.more(listing.len() as u64);
            job.arrived(&mut tool, listing)
        })
        .await;
        objects += job.objects;
        said = job.said;
    }
    tool.summary("listed", objects);
    tool
}

/// Looks the operands up. Returns the files among them, and the directories by their servers.
async fn operands_of(
    tool: &Tool,
    operands: Vec<(Operand, Place)>,
    style: &Style<'_>,
) -> (Vec<Shown>, Vec<(Nfs, Vec<Top>)>) {
    let places: Vec<Place> = operands.iter().map(|(_, place)| place.clone()).collect();
    let own = async {
        match style.args.directory {
            true => tool.servers.look(&places, false).await,
            false => tool.servers.look_into(&places, false).await,
        }
    };
    let with_above = style.args.all() && !style.args.directory;
    let above: Vec<Place> = places
        .iter()
        .filter(|_| with_above)
        .map(|p| p.split().map_or(p.clone(), |(above, _)| above))
        .collect();
    let (own, above) = tokio::join!(own, tool.servers.look(&above, true));
    let mut above = above.into_iter().map(Result::ok);
    // A symbolic link to a directory is listed as that directory, unless -l, -d or -F is given.
    let through = !style.args.directory && !style.long && !style.args.classify;
    let is_link = |n: &usize| own[*n].as_ref().is_ok_and(|object| Meta::of(&object.attrs).is_link());
    let links: Vec<usize> = (0..places.len()).filter(|n| through && is_link(n)).collect();
    let targets: Vec<Place> = links.iter().map(|n| places[*n].clone()).collect();
    let mut behind = vec![None; places.len()];
    for (n, found) in links.into_iter().zip(tool.servers.look_into(&targets, true).await) {
        behind[n] = found.ok();
    }
    let mut files = Vec::new();
    let mut dirs: HashMap<usize, Vec<Top>> = HashMap::new();
    let trees: Vec<(Nfs, Vec<usize>)> =
        tool.servers.by_tree(&places).into_iter().map(|(nfs, n)| (nfs.clone(), n)).collect();
    let tree_of = |n: usize| trees.iter().position(|(_, numbers)| numbers.contains(&n)).unwrap_or_default();
    for (n, ((operand, place), (own, behind))) in
        operands.into_iter().zip(own.into_iter().zip(behind)).enumerate()
    {
        let above = above.next().flatten();
        let object = match own {
            Ok(object) => object,
            Err(e) => {
                let name = quote::shown(operand.shown.as_bytes());
                tool.complain_as(&format!("cannot access {name}: {}", message::of(&e)), Exit::Failed);
                continue;
            }
        };
        let object = behind.filter(|behind| Meta::of(&behind.attrs).is_dir()).unwrap_or(object);
        let meta = Meta::of(&object.attrs);
        if meta.is_dir() && !style.args.directory {
            let above = above.map(|above| Meta::of(&above.attrs));
            dirs.entry(tree_of(n)).or_default().push(Top { operand, object, meta, above });
        } else {
            let text = match meta.is_link() && (style.long || tool.json()) {
                true => {
                    let nfs = &trees[tree_of(n)].0;
                    let read = nfs.readlinks([place.joined()]).await.pop();
                    read.and_then(|r| r.into_result().ok()).map(|text| text.to_vec())
                }
                false => None,
            };
            files.push(Shown { name: operand.shown.into_bytes(), meta, text });
        }
    }
    let dirs =
        trees.into_iter().enumerate().filter_map(|(n, (nfs, _))| Some((nfs, dirs.remove(&n)?))).collect();
    (files, dirs)
}

/// Prints directories in their order while their listings arrive.
struct Listings<'a, 'b> {
    style: &'a mut Style<'b>,
    headed: bool,
    said: bool,
    objects: u64,
    tops: Vec<Top>,
    arrived: HashMap<usize, Listing>,
    /// Entries of these.
    held: usize,
    /// Directories that are to be printed, the next one last.
    stack: Vec<usize>,
    /// The attributes of `.` and `..` in directories below, for -a.
    above: HashMap<usize, (Meta, Meta)>,
}

impl Listings<'_, '_> {
    /// Prints what it is the turn of. Returns how many entries wait for theirs.
    fn arrived(&mut self, tool: &mut Tool, listing: Listing) -> usize {
        self.held += listing.len();
        self.arrived.insert(listing.number, listing);
        while let Some(listing) = self.stack.last().and_then(|next| self.arrived.remove(next)) {
            self.stack.pop();
            self.held -= listing.len();
            self.print(tool, listing);
        }
        self.held
    }

    fn print(&mut self, tool: &mut Tool, listing: Listing) {
        let Listing { number, path, entries, next: _ } = listing;
        let entries = match entries {
            Outcome::Committed(entries) => entries,
            other => {
                let Err(e) = other.into_result() else { return };
                let name = quote::shown(&path);
                let exit = if number < self.tops.len() { Exit::Failed } else { Exit::Partly };
                return tool.complain_as(&format!("cannot open directory {name}: {}", message::of(&e)), exit);
            }
        };
        let args = self.style.args;
        let wanted = |name: &[u8]| self.style.wants(name);
        let mut entries: Vec<Entry> = entries.into_iter().filter(|e| wanted(&e.name)).collect();
        self.style.sort_by(&mut entries, |e| (&e.name, &e.meta));
        let dots = args.all().then(|| match self.tops.get(number) {
            Some(top) => (top.meta.clone(), top.above.clone().unwrap_or_else(|| top.meta.clone())),
            None => self
                .above
                .remove(&number)
                .unwrap_or_else(|| (Meta::of(&Default::default()), Meta::of(&Default::default()))),
        });
        for entry in entries.iter().rev() {
            if let Some(listing) = entry.listing {
                self.stack.push(listing);
                if let Some((own, _)) = &dots {
                    self.above.insert(listing, (entry.meta.clone(), own.clone()));
                }
            }
        }
        let mut shown: Vec<Shown> = Vec::with_capacity(entries.len() + 2);
        if let Some((own, above)) = dots {
            shown.push(Shown { name: b".".to_vec(), meta: own, text: None });
            shown.push(Shown { name: b"..".to_vec(), meta: above, text: None });
        }
        let own = entries.into_iter().map(|e| Shown {
            name: e.name.into_vec(),
            meta: e.meta,
            text: e.text.map(|t| t.to_vec()),
        });
        shown.extend(own);
        if args.all() {
            self.style.sort_by(&mut shown, |s| (&s.name, &s.meta));
        }
        self.objects += shown.len() as u64;
        if !tool.json() {
            if self.said {
                tool.print(b"\n");
            }
            if self.headed {
                let name = match self.style.quoting {
                    // GNU's ls escapes spaces in names, but not in the heading.
                    Quoting::Escapes => quote::escaped(&path),
                    _ => self.style.name(&path),
                };
                tool.print(&[&name[..], b":\n"].concat());
            }
        }
        self.said = true;
        show_all(tool, self.style, shown, Some(&path));
    }
}

struct Style<'a> {
    args: &'a LsArgs,
    long: bool,
    quoting: Quoting,
    layout: Layout,
    /// Width of a line; 0: no limit.
    width: usize,
    now: NfsTime,
    names: Names,
}

impl<'a> Style<'a> {
    fn new(args: &'a LsArgs) -> Style<'a> {
        let terminal = std::io::stdout().is_terminal();
        let long = args.in_lines();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let of_terminal = || if terminal { crate::sys::columns(&std::io::stdout().as_fd()) } else { None };
        let width = args.width.or_else(of_terminal).or_else(|| std::env::var("COLUMNS").ok()?.parse().ok());
        Style {
            args,
            long,
            quoting: args.quoting(terminal),
            layout: args.layout(terminal),
            width: width.unwrap_or(COLUMNS_DEFAULT),
            now: NfsTime { seconds: now.as_secs().cast_signed(), nseconds: now.subsec_nanos() },
            names: Names::new(args.numeric),
        }
    }

    fn sort_by<T>(&self, all: &mut [T], of: impl for<'x> Fn(&'x T) -> (&'x [u8], &'x Meta)) {
        let sort = self.args.sort();
        if sort == Sort::None {
            return;
        }
        all.sort_by(|a, b| {
            let ((a_name, a), (b_name, b)) = (of(a), of(b));
            let first = match sort {
                Sort::Time => self.time(b).cmp(&self.time(a)),
                Sort::Size => b.size.cmp(&a.size),
                Sort::Extension => extension(a_name).cmp(extension(b_name)),
                Sort::Name | Sort::None => Ordering::Equal,
            };
            let order = first.then_with(|| a_name.cmp(b_name));
            let order = if self.args.reverse { order.reverse() } else { order };
            match self.args.group_directories_first {
                true => b.is_dir().cmp(&a.is_dir()).then(order),
                false => order,
            }
        });
    }

    fn time(&self, meta: &Meta) -> NfsTime {
        match self.args.time() {
            Time::Mtime => meta.modified,
            Time::Atime => meta.accessed,
            Time::Ctime => meta.changed,
        }
    }

    fn wants(&self, name: &[u8]) -> bool {
        let args = self.args;
        let hidden = !args.all() && !args.almost_all;
        // A name that begins with a dot only matches patterns that do.
        let like = |pattern: &String| {
            name.starts_with(b".") == pattern.starts_with('.') && glob::matches(pattern.as_bytes(), name)
        };
        !(hidden && (name.starts_with(b".") || args.hide.iter().any(like))
            || args.ignore_backups && name.ends_with(b"~")
            || args.ignore.iter().any(like))
    }

    fn mark(&self, meta: &Meta) -> &'static [u8] {
        match meta.kind {
            Some(FileType::Dir) if self.args.classify || self.args.slashes => b"/",
            _ if !self.args.classify => b"",
            Some(FileType::Lnk) => b"@",
            Some(FileType::Fifo) => b"|",
            Some(FileType::Sock) => b"=",
            Some(FileType::Reg) if meta.mode & 0o111 != 0 => b"*",
            _ => b"",
        }
    }

    fn blocks(&self, bytes: u64) -> String {
        let bytes = bytes.div_ceil(512) * 512;
        match (self.args.human_readable, self.args.si) {
            (false, false) => bytes.div_ceil(1024).to_string(),
            _ => self.size(bytes),
        }
    }

    fn total(&self, all: &[Shown]) -> Vec<u8> {
        let bytes = all.iter().map(|s| s.meta.used.div_ceil(512) * 512).sum();
        format!("total {}\n", self.blocks(bytes)).into_bytes()
    }

    fn name(&self, name: &[u8]) -> Vec<u8> {
        match self.quoting {
            Quoting::None if say::to_terminal() => say::marked(name).into_owned(),
            Quoting::None => name.to_vec(),
            Quoting::Shell => quote::if_needed(name),
            Quoting::Quotes => quote::in_c(name, true),
            Quoting::Escapes => quote::in_c(name, false),
        }
    }

    /// Whether some names are quoted, so that the others are indented by one column.
    fn indents(&self, all: &[Shown]) -> bool {
        self.quoting == Quoting::Shell && all.iter().any(|s| self.name(&s.name) != s.name)
    }

    fn size(&self, bytes: u64) -> String {
        match (self.args.human_readable, self.args.si) {
            (true, _) => show::human(bytes),
            (_, true) => show::si(bytes),
            _ => bytes.to_string(),
        }
    }
}

/// Prints the entries of one directory (at `dir`), or the operands that are not directories.
fn show_all(tool: &mut Tool, style: &mut Style<'_>, mut all: Vec<Shown>, dir: Option<&[u8]>) {
    if dir.is_none() {
        style.sort_by(&mut all, |s| (&s.name, &s.meta));
    }
    if tool.json() {
        for shown in &all {
            let object = as_json(shown, dir);
            tool.print_object(&object);
        }
        return;
    }
    let mut out = Vec::new();
    if style.long {
        long(&mut out, style, &all, dir.is_some());
    } else {
        if style.args.blocks && dir.is_some() {
            out.extend_from_slice(&style.total(&all));
        }
        let width = all.iter().map(|s| s.meta.fileid.to_string().len()).max().unwrap_or_default();
        let blocks = if style.args.blocks {
            all.iter().map(|s| style.blocks(s.meta.used).len()).max().unwrap_or_default()
        } else {
            0
        };
        let in_columns = matches!(style.layout, Layout::Down | Layout::Across);
        let some_quoted = in_columns && style.indents(&all);
        let (width, blocks) = if style.layout == Layout::Commas { (0, 0) } else { (width, blocks) };
        let names: Vec<Vec<u8>> = all
            .iter()
            .map(|s| {
                let mut out = Vec::new();
                if style.args.inode {
                    out.extend_from_slice(format!("{:>width$} ", s.meta.fileid).as_bytes());
                }
                if style.args.blocks {
                    out.extend_from_slice(format!("{:>blocks$} ", style.blocks(s.meta.used)).as_bytes());
                }
                let name = style.name(&s.name);
                if some_quoted && name == s.name {
                    out.push(b' ');
                }
                out.extend_from_slice(&name);
                out.extend_from_slice(style.mark(&s.meta));
                out
            })
            .collect();
        match style.layout {
            Layout::Down => columns(&mut out, &names, style.width, false),
            Layout::Across => columns(&mut out, &names, style.width, true),
            Layout::Commas => commas(&mut out, &names, style.width),
            Layout::Single => {
                names.iter().for_each(|name| out.extend_from_slice(&[&name[..], b"\n"].concat()))
            }
        }
    }
    tool.print(&out);
}

fn long(out: &mut Vec<u8>, style: &mut Style<'_>, all: &[Shown], total: bool) {
    if total {
        out.extend_from_slice(&style.total(all));
    }
    struct Row {
        inode: String,
        blocks: String,
        links: String,
        owner: Vec<u8>,
        group: Vec<u8>,
        size: String,
        device: Option<(String, String)>,
    }
    let rows: Vec<Row> = all
        .iter()
        .map(|s| Row {
            inode: s.meta.fileid.to_string(),
            blocks: if style.args.blocks { style.blocks(s.meta.used) } else { String::new() },
            links: s.meta.links.to_string(),
            owner: style.names.owner(&s.meta.owner),
            group: style.names.group(&s.meta.group),
            size: style.size(s.meta.size),
            device: matches!(s.meta.kind, Some(FileType::Blk | FileType::Chr))
                .then(|| (s.meta.rdev.0.to_string(), s.meta.rdev.1.to_string())),
        })
        .collect();
    let widest = |of: &dyn Fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or_default();
    let blocks = widest(&|r| r.blocks.len());
    let (inode, links) = (widest(&|r| r.inode.len()), widest(&|r| r.links.len()));
    let (owner, group) = (widest(&|r| width_of(&r.owner)), widest(&|r| width_of(&r.group)));
    let major = widest(&|r| r.device.as_ref().map_or(0, |d| d.0.len()));
    let minor = widest(&|r| r.device.as_ref().map_or(0, |d| d.1.len()));
    let sizes = widest(&|r| if r.device.is_some() { 0 } else { r.size.len() });
    let size = if major > 0 { sizes.max(major + 2 + minor) } else { sizes };
    let some_quoted = style.indents(all);
    for (s, row) in all.iter().zip(rows) {
        if style.args.inode {
            out.extend_from_slice(format!("{:>inode$} ", row.inode).as_bytes());
        }
        if style.args.blocks {
            out.extend_from_slice(format!("{:>blocks$} ", row.blocks).as_bytes());
        }
        let modes = mode::shown(s.meta.kind, s.meta.mode);
        out.extend_from_slice(format!("{modes} {:>links$} ", row.links).as_bytes());
        let (no_owner, no_group) = (style.args.no_owner, style.args.no_group());
        for (name, width, out_of_it) in [(&row.owner, owner, no_owner), (&row.group, group, no_group)] {
            if out_of_it {
                continue;
            }
            // Names are aligned to the left, numbers to the right.
            let gap = width - width_of(name);
            let number = name.iter().all(u8::is_ascii_digit);
            out.resize(out.len() + if number { gap } else { 0 }, b' ');
            out.extend_from_slice(name);
            out.resize(out.len() + if number { 0 } else { gap } + 1, b' ');
        }
        match row.device {
            Some((a, b)) => {
                let major = major + size.saturating_sub(major + 2 + minor);
                out.extend_from_slice(format!("{a:>major$}, {b:>minor$} ").as_bytes());
            }
            None => out.extend_from_slice(format!("{:>size$} ", row.size).as_bytes()),
        }
        let time = style.time(&s.meta);
        let time = match style.args.time_style() {
            TimeStyle::FullIso => show::long_time(time),
            TimeStyle::LongIso => show::iso_time(time),
            TimeStyle::Iso => show::short_iso_time(time, style.now),
            TimeStyle::Locale => show::short_time(time, style.now),
        };
        out.extend_from_slice(time.as_bytes());
        out.push(b' ');
        let name = style.name(&s.name);
        if some_quoted && name == s.name {
            out.push(b' ');
        }
        out.extend_from_slice(&name);
        match &s.text {
            Some(text) => {
                out.extend_from_slice(b" -> ");
                out.extend_from_slice(&style.name(text));
            }
            None => out.extend_from_slice(style.mark(&s.meta)),
        }
        out.push(b'\n');
    }
}

/// The part of a name from the last dot on; empty if there is no dot.
fn extension(name: &[u8]) -> &[u8] {
    name.iter().rposition(|b| *b == b'.').map_or(b"", |at| &name[at..])
}

fn width_of(text: &[u8]) -> usize {
    String::from_utf8_lossy(text).width()
}

/// Prints names separated by commas, as many on a line as fit.
fn commas(out: &mut Vec<u8>, names: &[Vec<u8>], width: usize) {
    let mut at = 0;
    for (n, name) in names.iter().enumerate() {
        let len = if width == 0 { 0 } else { width_of(name) };
        if n > 0 {
            let fits = width == 0 || at + len + 2 < width;
            out.extend_from_slice(if fits { b", " } else { b",\n" });
            at = if fits { at + 2 } else { 0 };
        }
        out.extend_from_slice(name);
        at += len;
    }
    if !names.is_empty() {
        out.push(b'\n');
    }
}

/// Prints names in as many columns as fit, filled downwards or (`across`) line by line, with two spaces between them. The grid says
/// which names share a column. The names themselves need not be UTF-8 and are written here, with gaps of tabs and spaces as in GNU's ls.
fn columns(out: &mut Vec<u8>, names: &[Vec<u8>], width: usize, across: bool) {
    const GAP: usize = 2;
    let options = GridOptions {
        filling: Filling::Spaces(GAP),
        direction: if across { Direction::LeftToRight } else { Direction::TopToBottom },
        // GNU's ls leaves the last column of the terminal free.
        width: if width == 0 { usize::MAX } else { width - 1 },
    };
    let grid = Grid::new(names.iter().map(|name| String::from_utf8_lossy(name)).collect(), options);
    let (rows, widths) = (grid.row_count(), grid.column_widths());
    for row in 0..rows {
        let (mut at, mut start) = (0, 0);
        for (column, column_width) in widths.iter().enumerate() {
            let n = if across { row * widths.len() + column } else { column * rows + row };
            let Some(name) = names.get(n) else { break };
            indent(out, at, start);
            out.extend_from_slice(name);
            at = start + width_of(name);
            start += column_width + GAP;
        }
        out.push(b'\n');
    }
}

/// Fills the gap between two columns with tabs (to tab stops of eight) and spaces.
fn indent(out: &mut Vec<u8>, mut from: usize, to: usize) {
    while from < to {
        if to / 8 > (from + 1) / 8 {
            out.push(b'\t');
            from += 8 - from % 8;
        } else {
            out.push(b' ');
            from += 1;
        }
    }
}

fn as_json(shown: &Shown, dir: Option<&[u8]>) -> serde_json::Value {
    let path = match dir {
        Some(dir) => super::object::below(dir, &shown.name),
        None => shown.name.clone(),
    };
    let mut object = super::object::meta_json(&path, &shown.meta);
    if let Some(text) = &shown.text {
        object["target"] = json!(String::from_utf8_lossy(text));
    }
    object
}
