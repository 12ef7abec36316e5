//! `landfast sync-tree`: makes one tree the same as another, to, from or between servers. Only differences are sent.

use super::causes::Causes;
use super::diff_tree::{both, shown, tree};
use super::message::plain;
use super::operand::Place;
use super::owners::LocalNames;
use super::tool::{self, Tool};
use super::trees_args::SyncTreeArgs;
use super::{message, quote};
use crate::exit::Exit;
use crate::progress::Counter;
use crate::say;
use landfast_client::archive::Filter;
use landfast_client::cred::Identity;
use landfast_client::fs::Nfs;
use landfast_client::put::MemberError;
use landfast_client::trees::{
    Key, LocalTarget, OnProgress, Plan, PlanOptions, SyncProgress, SyncReport, Target, Tree, plan, sync,
    sync_local, to_digest, with_xattrs,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub fn run(args: SyncTreeArgs) -> Exit {
    tool::run("sync-tree", args.common, |tool| synchronise(tool, args))
}

async fn synchronise(mut tool: Tool, mut args: SyncTreeArgs) -> Tool {
    tool.exit_on_interrupt();
    for file in &args.exclude_from {
        match super::tar::patterns(file) {
            Ok(patterns) => args.exclude.extend(patterns),
            Err(why) => {
                tool.complain_as(&why, Exit::Failed);
                return tool;
            }
        }
    }
    match start(&mut tool, &args).await {
        Ok(report) => {
            if report.failures > 0 {
                tool.set_status(Exit::Partly);
            }
            if !tool.json() {
                let SyncReport { sent, bytes, removed, set, .. } = report;
                let done = if args.dry_run { "to be sent" } else { "sent" };
                let line =
                    format!("{done}: {sent}, removed: {removed}, attributes set: {set}, bytes: {bytes}\n");
                tool.print(line.as_bytes());
            }
            tool.summary("synchronised", report.sent + report.removed + report.set);
        }
        Err(why) => tool.complain_as(&why, Exit::Failed),
    }
    tool
}

async fn start(tool: &mut Tool, args: &SyncTreeArgs) -> Result<SyncReport, String> {
    let there = |operand: &OsStr| operand.as_bytes().starts_with(b"nfs://");
    match (there(&args.source), there(&args.dest)) {
        (from, true) => push(tool, args, from).await,
        (true, false) => pull(tool, args).await,
        (false, false) => {
            Err("source or destination must be on a server (nfs://); for two local ones use rsync".to_owned())
        }
    }
}

/// The destination is on a server; `from_there`: so is the source.
async fn push(tool: &mut Tool, args: &SyncTreeArgs, from_there: bool) -> Result<SyncReport, String> {
    let (filter, key) = (Filter::new(0, &args.exclude), Key::random());
    let listed = Counter::new("listed", None, prints(tool, args)).heard();
    let (operand, place) = tool.place(&args.dest.to_string_lossy()).await?;
    let (source, from) = match from_there {
        false => (local(&args.source, &filter, &listed).await?, None),
        true => {
            let from = apart(tool, &args.source, (&place, &operand.url.host)).await?;
            (server(tool, &args.source, &filter, key, &listed).await?, Some(from))
        }
    };
    let nfs = tool.servers.nfs(&place).clone();
    // Only missing directories are made: with version 3 those above an export cannot be looked up.
    let above: Vec<Place> = place.and_above().collect();
    let missing = tool.servers.look(&above, true).await.iter().take_while(|found| found.is_err()).count();
    let there = missing == 0;
    if !args.dry_run {
        for dir in above[..missing].iter().rev() {
            let made = nfs.mkdir([dir.joined()], 0o755).await.pop().ok_or("no answer")?;
            made.into_result().map_err(|e| format!("{}: {}", operand.shown, message::of(&e)))?;
        }
    }
    let dest = match there || !args.dry_run {
        true => {
            let dest = tree(tool, &args.dest, &filter, key, &listed).await;
            dest.map_err(|e| format!("{}: {e}", operand.shown))?
        }
        false => Tree::nothing(nfs.clone()),
    };
    drop(listed);
    let mut both = xattrs(tool, args, &nfs, &place).await;
    if let Some(from) = from.filter(|_| both) {
        let nfs = tool.servers.nfs(&from).clone();
        both = xattrs(tool, args, &nfs, &from).await;
    }
    let xattrs = both;
    let root = nfs.session().options().identity.uid == 0;
    let (plan, options) = planned(tool, args, &source, &dest, (root, xattrs), key).await;
    let screen = Screen::new(tool, args, &plan);
    if args.dry_run {
        return Ok(foresee(&plan, &screen));
    }
    let stop = Some(tool.stop_on_signals());
    let target = Target { nfs: &nfs, path: place.joined(), owners: options.owners, xattrs, stop };
    let screen = Arc::new(screen);
    let report = sync(&source, &dest, &plan, &target, screen.clone(), message::of).await;
    screen.causes.print_others("sync-tree", screen.verbose);
    report.map_err(|e| e.to_string())
}

/// The source is on a server, the destination on this machine.
async fn pull(tool: &mut Tool, args: &SyncTreeArgs) -> Result<SyncReport, String> {
    let (filter, key) = (Filter::new(0, &args.exclude), Key::random());
    let listed = Counter::new("listed", None, prints(tool, args)).heard();
    let source = server(tool, &args.source, &filter, key, &listed).await?;
    let dir = Path::new(&args.dest);
    let failed = |e: std::io::Error| format!("{}: {}", dir.display(), plain(&e));
    let there = match std::fs::metadata(dir) {
        Ok(meta) if meta.is_dir() => true,
        Ok(_) => return Err(format!("{}: Not a directory", dir.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => false,
        Err(e) => return Err(failed(e)),
    };
    if !there && !args.dry_run {
        make_all(dir).map_err(failed)?;
    }
    let dest = match there || !args.dry_run {
        true => local(&args.dest, &filter, &listed).await?,
        false => Tree::missing(dir),
    };
    drop(listed);
    let (_, place) = tool.place(&args.source.to_string_lossy()).await?;
    let nfs = tool.servers.nfs(&place).clone();
    let xattrs = xattrs(tool, args, &nfs, &place).await;
    let root = Identity::of_process().uid == 0;
    let (plan, options) = planned(tool, args, &source, &dest, (root, xattrs), key).await;
    let screen = Screen::new(tool, args, &plan);
    if args.dry_run {
        return Ok(foresee(&plan, &screen));
    }
    tool.stop_on_signals();
    let here = LocalTarget { dir: dir.to_owned(), owners: options.owners, xattrs, stop: tool.stop_flag() };
    let screen = Arc::new(screen);
    let report = sync_local(&source, &plan, &here, screen.clone()).await;
    screen.causes.print_others("sync-tree", screen.verbose);
    report.map_err(failed)
}

/// Lists a server's directory. Owners become the numbers of this machine.
async fn server(
    tool: &mut Tool,
    url: &OsStr,
    filter: &Filter,
    key: Key,
    heard: &OnProgress,
) -> Result<Tree, String> {
    let name = url.to_string_lossy();
    let mut source = tree(tool, url, filter, key, heard).await.map_err(|e| format!("{name}: {e}"))?;
    if !source.nodes.get(&b""[..]).is_some_and(|top| top.meta.is_dir()) {
        return Err(format!("{name}: Not a directory"));
    }
    source.number_owners(&LocalNames::default());
    Ok(source)
}

/// Resolves the source. Refuses two directories one of which is inside of the other, or is the other: making one would change the other.
async fn apart(tool: &mut Tool, source: &OsStr, (dest, host): (&Place, &str)) -> Result<Place, String> {
    let name = source.to_string_lossy();
    let (operand, source) = tool.place(&name).await?;
    // Different versions may not show that they belong to one server.
    if !source.on_one_server(dest) && operand.url.host != host {
        return Ok(source);
    }
    let mut handles = Vec::new();
    for place in [&source, dest] {
        let above: Vec<Place> = place.and_above().collect();
        let found = tool.servers.look(&above, true).await;
        handles.push(found.into_iter().map(|object| object.ok().map(|object| object.fh)).collect::<Vec<_>>());
    }
    let lies_in = |one: usize, other: usize| {
        let top = handles[other].first().and_then(Option::as_ref);
        top.is_some_and(|top| handles[one].iter().flatten().any(|fh| fh == top))
    };
    match lies_in(0, 1) || lies_in(1, 0) {
        true => Err(format!("{name}: source and destination are the same, or one is inside of the other")),
        false => Ok(source),
    }
}

/// Makes a directory and those above it, durably.
fn make_all(dir: &Path) -> std::io::Result<()> {
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !above.is_dir() {
        make_all(above)?;
    }
    std::fs::create_dir(dir)?;
    std::fs::File::open(above)?.sync_all()
}

async fn local(dir: &OsStr, filter: &Filter, heard: &OnProgress) -> Result<Tree, String> {
    let (from, filter, heard) = (Path::new(dir).to_owned(), filter.clone(), heard.clone());
    let found = std::fs::metadata(&from).map_err(|e| format!("{}: {}", from.display(), plain(&e)))?;
    if !found.is_dir() {
        return Err(format!("{}: Not a directory", from.display()));
    }
    tokio::task::spawn_blocking(move || Tree::local(&from, &filter, &heard)).await.map_err(|e| e.to_string())
}

/// Plans the work. `root`: owners can be set; `xattrs`: extended attributes count.
async fn planned(
    tool: &Tool,
    args: &SyncTreeArgs,
    source: &Tree,
    dest: &Tree,
    (root, xattrs): (bool, bool),
    key: Key,
) -> (Plan, PlanOptions) {
    for (path, why) in source.failures.iter().chain(&dest.failures) {
        tool.complain(&format!("{}: {why}", shown(path)));
    }
    // What could not be listed may still exist: then nothing is removed.
    let whole = source.failures.is_empty();
    if args.delete && !whole {
        tool.complain("the source could not be listed completely: nothing is removed from the destination");
    }
    let options = PlanOptions { delete: args.delete && whole, owners: root && !args.no_owner };
    let digests = match args.checksum {
        false => None,
        true => {
            let paths = to_digest(source, dest);
            Some(both((source, dest), paths, (true, false), key, prints(tool, args)).await)
        }
    };
    let plan = plan(source, dest, options, digests.as_ref().map(|(a, b)| (a, b)));
    for path in &plan.kept {
        eprintln!(
            "sync-tree: {}: the directory is kept, because something in it is excluded, or it could not be listed",
            shown(path)
        );
    }
    for path in &plan.blocked {
        tool.complain(&format!(
            "{}: not sent: a directory has its name, and is kept because something in it is excluded, or it could not be listed",
            shown(path)
        ));
    }
    if !xattrs {
        return (plan, options);
    }
    let paths = with_xattrs(source, dest);
    let (ours, theirs) = both((source, dest), paths, (false, true), key, prints(tool, args)).await;
    for (path, unread) in ours.iter().chain(&theirs) {
        if let Err(why) = unread {
            tool.complain(&format!("{}: {why}", shown(path)));
        }
    }
    (plan.with_xattrs(source, &ours, &theirs), options)
}

/// Whether to synchronise extended attributes: if that was asked for, and the server has them.
async fn xattrs(tool: &Tool, args: &SyncTreeArgs, nfs: &Nfs, place: &Place) -> bool {
    if !args.xattrs {
        return false;
    }
    // If the destination does not exist yet, the directory above it can tell.
    for place in place.and_above() {
        if let Some(Ok(object)) = tool.servers.look(&[place], true).await.pop() {
            let has = nfs.has_xattrs(&object.fh).await;
            if !has {
                tool.complain("the server does not support extended attributes: they are not synchronised");
            }
            return has;
        }
    }
    false
}

/// `--dry-run`: prints the plan.
fn foresee(plan: &Plan, screen: &Screen) -> SyncReport {
    let none = BTreeSet::new();
    let touched = if plan.touched.is_empty() { &none } else { &plan.touched };
    plan.remove.iter().for_each(|path| screen.removed(path));
    let sent: Vec<_> = plan.send.iter().filter(|path| !touched.contains(*path)).collect();
    sent.iter().for_each(|path| screen.sent(path));
    let set: Vec<_> = plan.set.iter().chain(plan.xattrs_only()).collect();
    set.iter().for_each(|path| screen.set(path));
    SyncReport {
        removed: plan.remove.len() as u64,
        sent: sent.len() as u64,
        set: set.len() as u64,
        ..SyncReport::default()
    }
}

/// Whether more than one line goes to standard output.
fn prints(tool: &Tool, args: &SyncTreeArgs) -> bool {
    args.verbose || args.dry_run || tool.json()
}

/// Prints the objects that are sent, set and removed.
struct Screen {
    json: bool,
    verbose: bool,
    done: bool,
    progress: Counter,
    /// How many of the sent objects were counted.
    arrived: AtomicU64,
    causes: Causes,
}

impl Screen {
    fn new(tool: &Tool, args: &SyncTreeArgs, plan: &Plan) -> Screen {
        let all = plan.remove.len() + plan.send.len() + plan.set.len() + plan.xattrs_only().count();
        Screen {
            json: tool.json(),
            verbose: args.verbose,
            done: !args.dry_run,
            progress: Counter::new("synchronised", Some(all as u64), prints(tool, args)),
            arrived: AtomicU64::new(0),
            causes: Causes::default(),
        }
    }

    fn line(&self, action: &str, path: &[u8]) {
        let path: &[u8] = if path.is_empty() { b"." } else { path };
        let line = match (self.json, self.verbose || !self.done) {
            (true, _) => {
                let path = String::from_utf8_lossy(path);
                json!({ "path": path, "action": action, "done": self.done }).to_string().into_bytes()
            }
            (false, true) => [action.as_bytes(), b" ", &quote::if_needed(path)].concat(),
            (false, false) => return,
        };
        // The work goes on if the reader of its output goes away.
        let _ = say::stdout().write_all(&[&line[..], b"\n"].concat());
    }
}

impl SyncProgress for Screen {
    fn removed(&self, path: &[u8]) {
        self.progress.more(1);
        self.line("remove", path);
    }

    fn arrived(&self, objects: u64) {
        let before = self.arrived.fetch_max(objects, Ordering::Relaxed);
        self.progress.more(objects.saturating_sub(before));
    }

    fn sent(&self, path: &[u8]) {
        self.line("send", path);
    }

    fn set(&self, path: &[u8]) {
        self.progress.more(1);
        self.line("set", path);
    }

    fn failed(&self, path: &[u8], why: &str) {
        eprintln!("sync-tree: {}: {why}", shown(path));
    }

    fn unsent(&self, path: &[u8], why: &MemberError) {
        if let Some(words) = self.causes.told(why, "--no-owner", self.verbose) {
            self.failed(path, &words);
        }
    }

    fn warning(&self, text: &str) {
        eprintln!("sync-tree: {text}");
    }
}
