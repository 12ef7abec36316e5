//! How a pair's directory looks from outside the server.

use super::acts::Obj;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Data of `x` and `y` before anything happens.
pub const OLD_BYTES: usize = 6000;

/// Makes it.
pub fn prepare(dir: &Path) {
    let file = |name: &str, byte: u8| {
        let path = dir.join(name);
        fs::write(&path, vec![byte; OLD_BYTES]).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
    };
    fs::create_dir(dir).expect("a directory");
    ["x", "y", "h"].iter().zip(b'a'..).for_each(|(name, byte)| file(name, byte));
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(dir.join("x"), "user.there", b"old", flags).expect("an attribute");
    fs::hard_link(dir.join("h"), dir.join("l")).expect("a link");
    fs::create_dir(dir.join("s")).expect("a directory");
    fs::create_dir(dir.join("f")).expect("a directory");
    fs::write(dir.join("f/e"), b"").expect("a file");
    std::os::unix::fs::symlink("text", dir.join("k")).expect("a symbolic link");
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Type and permission bits.
    mode: u32,
    links: u64,
    owner: (u32, u32),
    /// The first of its names.
    first: String,
    mtime: (i64, i64),
    size: u64,
    /// Contents of a file, text of a symbolic link.
    data: Vec<u8>,
    attributes: BTreeMap<String, Vec<u8>>,
}

impl Entry {
    /// Without what unstable data makes different.
    fn without_data(mut self) -> Entry {
        (self.size, self.data, self.mtime) = (0, Vec::new(), (0, 0));
        self
    }
}

/// All that is in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    mtime: (i64, i64),
    entries: BTreeMap<String, Entry>,
    /// Names in the directories below.
    below: BTreeMap<String, Vec<String>>,
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut names: Vec<_> =
        entries.map(|e| e.expect("an entry").file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut list = vec![0; 4096];
    let used = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let keys = list[..used].split(|b| *b == 0).map(|key| String::from_utf8_lossy(key).into_owned());
    // The server's own are no client's.
    let keys = keys.filter(|key| key.starts_with("user.") || key.starts_with("system.posix_acl"));
    let value = |key: String| {
        let mut value = vec![0; 4096];
        let used = rustix::fs::lgetxattr(path, &*key, &mut value[..]).expect("a value");
        value.truncate(used);
        (key, value)
    };
    keys.map(value).collect()
}

impl Tree {
    pub fn of(dir: &Path) -> Tree {
        let (mut entries, mut below) = (BTreeMap::new(), BTreeMap::new());
        let mut first = HashMap::new();
        for name in names(dir) {
            let path = dir.join(&name);
            let m = path.symlink_metadata().expect("an object");
            let kind = m.file_type();
            let data = match () {
                () if kind.is_file() => fs::read(&path).expect("contents"),
                () if kind.is_symlink() => {
                    fs::read_link(&path).expect("a text").into_os_string().into_encoded_bytes()
                }
                () => Vec::new(),
            };
            if kind.is_dir() {
                below.insert(name.clone(), names(&path));
            }
            let entry = Entry {
                mode: m.mode(),
                links: m.nlink(),
                owner: (m.uid(), m.gid()),
                first: first.entry(m.ino()).or_insert_with(|| name.clone()).clone(),
                mtime: (m.mtime(), m.mtime_nsec()),
                // A directory's is the filesystem's own affair.
                size: if kind.is_dir() { 0 } else { m.size() },
                data,
                attributes: if kind.is_symlink() { BTreeMap::new() } else { attributes(&path) },
            };
            entries.insert(name, entry);
        }
        let m = dir.metadata().expect("the directory");
        Tree { mtime: (m.mtime(), m.mtime_nsec()), entries, below }
    }

    /// Names and what they lead to.
    fn named(&self) -> Vec<(&String, u32, &String)> {
        self.entries.iter().map(|(name, e)| (name, e.mode & 0o170_000, &e.first)).collect()
    }

    /// Whether these objects look as in `other`. `unstable`: data of `x` that nobody has committed may be missing.
    pub fn agrees(&self, other: &Tree, objects: &[Obj], unstable: bool) -> Result<(), String> {
        for object in objects {
            let entry = |tree: &Tree, name: &str| {
                let entry = tree.entries.get(name).cloned();
                if unstable && *object == Obj::X { entry.map(Entry::without_data) } else { entry }
            };
            let same = |name: &str| match (entry(self, name), entry(other, name)) {
                (a, b) if a == b => Ok(()),
                (a, b) => Err(format!("{name} is {}, not {}", shown(a.as_ref()), shown(b.as_ref()))),
            };
            match object {
                Obj::Dir if self.named() != other.named() => {
                    return Err(format!("the names are {:?}, not {:?}", self.named(), other.named()));
                }
                Obj::Dir if self.mtime != other.mtime => {
                    return Err(format!("the directory's mtime is {:?}, not {:?}", self.mtime, other.mtime));
                }
                Obj::Dir => {}
                Obj::X => same("x")?,
                Obj::Y => same("y")?,
                Obj::H => same("h").and_then(|()| same("l"))?,
                Obj::S | Obj::F => {
                    let name = if *object == Obj::S { "s" } else { "f" };
                    same(name)?;
                    if self.below.get(name) != other.below.get(name) {
                        return Err(format!("{name} has {:?}, not {:?}", self.below, other.below));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether everything looks as in `other`.
    pub fn is(&self, other: &Tree, unstable: bool) -> Result<(), String> {
        self.agrees(other, &[Obj::Dir, Obj::X, Obj::Y, Obj::H, Obj::S, Obj::F], unstable)?;
        // It may be a further name of `x`.
        let n = |tree: &Tree| {
            let entry = tree.entries.get("n").cloned();
            if unstable { entry.map(Entry::without_data) } else { entry }
        };
        if n(self) != n(other) {
            return Err(format!("n is {}, not {}", shown(n(self).as_ref()), shown(n(other).as_ref())));
        }
        if self.entries.get("k") != other.entries.get("k") {
            return Err("k is another one".to_owned());
        }
        Ok(())
    }
}

fn shown(entry: Option<&Entry>) -> String {
    let Some(e) = entry else { return "not there".to_owned() };
    let begin: Vec<char> = e.data.iter().take(4).map(|b| char::from(*b)).collect();
    format!(
        "mode {:o}, {} links, {} bytes {begin:?}, mtime {:?}, attributes {:?}",
        e.mode,
        e.links,
        e.size,
        e.mtime,
        e.attributes.keys().collect::<Vec<_>>()
    )
}
