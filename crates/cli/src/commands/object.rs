//! Objects of a tree as they are named and described, for people and for programs.

use landfast_client::fs::{Meta, Owner};
use landfast_nfs::v4::{FileType, NfsTime};
use serde_json::{Value, json};

/// `dir/name`, as GNU's tools put it together.
pub fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let between: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, between, name].concat()
}

/// An object for programs: its path (bytes that are not UTF-8 are replaced) and attributes.
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

/// What it is, as `stat` says it.
pub fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Dir => "directory",
        FileType::Lnk => "symbolic link",
        FileType::Blk => "block special file",
        FileType::Chr => "character special file",
        FileType::Sock => "socket",
        FileType::Fifo => "fifo",
        _ => "regular file",
    }
}
