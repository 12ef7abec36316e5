//! `landfast diff-tree`: prints a line for each difference between two trees.

use super::message::plain;
use super::object::kind_name;
use super::operand::Operand;
use super::tool::{self, Tool};
use super::trees_args::{DiffTreeArgs, Field};
use super::{message, quote, show};
use crate::exit::Exit;
use crate::progress::Counter;
use landfast_client::archive::Filter;
use landfast_client::fs::{Meta, Owner};
use landfast_client::trees::{
    ByPath, Compare, ContentsOptions, Difference, Key, OnProgress, Tree, What, compare, contents, of_contents,
};
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

pub fn run(args: DiffTreeArgs) -> Exit {
    tool::run("diff-tree", args.common, |tool| differ(tool, args))
}

async fn differ(mut tool: Tool, args: DiffTreeArgs) -> Tool {
    let filter = Filter::new(0, &args.exclude);
    let key = Key::random();
    let mut trees = Vec::with_capacity(2);
    let listed = Counter::new("listed", None, true).heard();
    for operand in [&args.first, &args.second] {
        match tree(&mut tool, operand, &filter, key, &listed).await {
            Ok(tree) => trees.push(tree),
            Err(why) => {
                let operand = String::from_utf8_lossy(operand.as_bytes()).into_owned();
                tool.complain_as(&format!("{operand}: {why}"), Exit::Failed);
                return tool;
            }
        }
    }
    drop(listed);
    let [a, b] = &trees[..] else { return tool };
    for (path, why) in a.failures.iter().chain(&b.failures) {
        tool.complain_as(&format!("{}: {why}", shown(path)), Exit::Failed);
    }
    let keeps = |field| !args.ignore.contains(&field);
    let what = Compare {
        mode: keeps(Field::Mode),
        owner: keeps(Field::Owner),
        group: keeps(Field::Group),
        times: keeps(Field::Mtime),
        dir_times: keeps(Field::Mtime) && keeps(Field::DirMtime),
        links: keeps(Field::Links),
    };
    let (mut all, same) = compare(a, b, &what);
    let data = !args.quick;
    if data || args.xattrs {
        let (x, y) = both((a, b), same, (data, args.xattrs), key, true).await;
        complain(&tool, &x);
        complain(&tool, &y);
        all.extend(of_contents(&x, &y));
        all.sort_by(|a, b| a.path.cmp(&b.path));
    }
    for difference in &all {
        say(&mut tool, difference, a, b);
    }
    if !all.is_empty() {
        tool.set_status(Exit::Partly);
    }
    tool.summary("compared", a.nodes.len().max(b.nodes.len()) as u64);
    tool
}

/// Reads the contents of both trees. `prints`: the command also writes lines to standard output.
pub async fn both(
    (a, b): (&Tree, &Tree),
    paths: Vec<Vec<u8>>,
    (data, xattrs): (bool, bool),
    key: Key,
    prints: bool,
) -> (ByPath, ByPath) {
    let mut asked = ContentsOptions { data, xattrs, key, on_progress: Arc::new(|_| ()) };
    let all = asked.reads(a, &paths) + asked.reads(b, &paths);
    asked.on_progress = Counter::new("read", Some(all), prints).heard();
    tokio::join!(contents(a, paths.clone(), &asked, message::of), contents(b, paths, &asked, message::of))
}

fn complain(tool: &Tool, contents: &ByPath) {
    for (path, contents) in contents {
        if let Err(why) = contents {
            tool.complain_as(&format!("{}: {why}", shown(path)), Exit::Failed);
        }
    }
}

/// Lists the tree of an operand. `heard` is told of listed objects.
pub async fn tree(
    tool: &mut Tool,
    operand: &OsStr,
    filter: &Filter,
    key: Key,
    heard: &OnProgress,
) -> Result<Tree, String> {
    if operand.as_bytes().starts_with(b"nfs://") {
        let operand = Operand::parse(&operand.to_string_lossy()).map_err(|e| e.to_string())?;
        let place = tool.servers.place(&operand).await.map_err(|e| e.to_string())?;
        let found = tool.servers.look_into(std::slice::from_ref(&place), true).await.pop();
        let top = found.ok_or("no answer")?.map_err(|e| message::of(&e))?;
        return Ok(Tree::server(tool.servers.nfs(&place), &top, filter, heard, message::of).await);
    }
    let (path, filter, heard) = (Path::new(operand).to_owned(), filter.clone(), heard.clone());
    let read = tokio::task::spawn_blocking(move || {
        let meta = std::fs::metadata(&path).map_err(|e| plain(&e))?;
        if meta.is_dir() {
            return Ok(Tree::local(&path, &filter, &heard));
        }
        let file = std::fs::File::open(&path).map_err(|e| plain(&e))?;
        Tree::archive(Box::new(file), &filter, key, &heard).map_err(|e| e.to_string())
    });
    read.await.map_err(|e| e.to_string())?
}

/// A path below the top of a tree, as it is printed; the top is `.`.
pub fn shown(path: &[u8]) -> String {
    let path = if path.is_empty() { b"." } else { path };
    String::from_utf8_lossy(&quote::if_needed(path)).into_owned()
}

fn say(tool: &mut Tool, Difference { path, what }: &Difference, a: &Tree, b: &Tree) {
    let of = |tree: &Tree, value: fn(&Meta) -> String| tree.nodes.get(path).map(|node| value(&node.meta));
    let both = |value: fn(&Meta) -> String| (of(a, value), of(b, value));
    let text = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into_owned());
    let (x, y) = match what {
        What::OnlyFirst | What::OnlySecond | What::Contents => (None, None),
        What::Type => both(|m| m.kind.map_or("unknown", kind_name).to_owned()),
        What::Mode => both(|m| format!("{:04o}", m.mode)),
        What::Owner => both(|m| owner(&m.owner)),
        What::Group => both(|m| owner(&m.group)),
        What::Size => both(|m| m.size.to_string()),
        What::Modified => both(|m| show::long_time(m.modified)),
        What::Device => both(|m| format!("{},{}", m.rdev.0, m.rdev.1)),
        What::Target(x, y) => (text(x), text(y)),
        What::Links(x, y) => (x.as_deref().and_then(text), y.as_deref().and_then(text)),
        What::Xattr(name) => (text(name), None),
    };
    if tool.json() {
        let path = String::from_utf8_lossy(path);
        tool.print_object(&json!({ "path": path, "difference": what.word(), "a": x, "b": y }));
        return;
    }
    let (x, y) = (x.unwrap_or_else(|| "-".to_owned()), y.unwrap_or_else(|| "-".to_owned()));
    let words = match what {
        What::OnlyFirst => "only in A".to_owned(),
        What::OnlySecond => "only in B".to_owned(),
        What::Contents => "contents differ".to_owned(),
        What::Xattr(_) => format!("extended attribute user.{x} differs"),
        what => format!("{}: {x}, {y}", what.word()),
    };
    tool.print(format!("{}: {words}\n", shown(path)).as_bytes());
}

fn owner(owner: &Owner) -> String {
    match owner {
        Owner::Id(id) => id.to_string(),
        Owner::Name(name) => String::from_utf8_lossy(name).into_owned(),
    }
}
