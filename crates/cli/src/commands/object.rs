//! Names, types and attributes of objects, for people and as JSON.

use landfast_client::fs::{Meta, Owner};
use landfast_nfs::v4::{FileType, NfsTime};
use serde_json::{Value, json};

/// `dir/name`, as GNU's tools join them.
pub fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let between: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, between, name].concat()
}

/// The JSON object of an object: path (bytes that are not UTF-8 are replaced) and attributes.
pub fn meta_json(path: &[u8], meta: &Meta) -> Value {
    let owner = |owner: &Owner| match owner {
        Owner::Id(id) => json!(id),
        Owner::Name(name) => json!(String::from_utf8_lossy(name)),
    };
    let time = |t: NfsTime| json!(format!("{}.{:09}", t.seconds, t.nseconds));
    json!({
        "path": String::from_utf8_lossy(path),
        "type": meta.kind.map_or("unknown", kind_name),
        "mode": format!("{:04o}", meta.mode),
        "links": meta.links,
        "owner": owner(&meta.owner),
        "group": owner(&meta.group),
        "size": meta.size,
        "used": meta.used,
        "fileid": meta.fileid,
        "modified": time(meta.modified),
        "changed": time(meta.changed),
        "accessed": time(meta.accessed),
    })
}

/// How GNU's tools print a file type.
pub struct KindNames {
    /// In `stat`.
    pub name: &'static str,
    /// In `ls -l`.
    pub ls: char,
    /// In `find -type` and `-printf %y`.
    pub find: char,
    /// In `st_mode`.
    pub bits: u32,
}

pub fn names_of(kind: FileType) -> KindNames {
    let (name, ls, find, bits) = match kind {
        FileType::Dir => ("directory", 'd', 'd', 0o040_000),
        FileType::Lnk => ("symbolic link", 'l', 'l', 0o120_000),
        FileType::Blk => ("block special file", 'b', 'b', 0o060_000),
        FileType::Chr => ("character special file", 'c', 'c', 0o020_000),
        FileType::Sock => ("socket", 's', 's', 0o140_000),
        FileType::Fifo => ("fifo", 'p', 'p', 0o010_000),
        _ => ("regular file", '-', 'f', 0o100_000),
    };
    KindNames { name, ls, find, bits }
}

/// The name of a file type, as in `stat`.
pub fn kind_name(kind: FileType) -> &'static str {
    names_of(kind).name
}
