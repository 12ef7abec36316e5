//! What a peer is to copy: a local tree, read before its clock starts.

use std::path::{Path, PathBuf};

/// Names from the tree's top, directories before what is in them.
#[derive(Default)]
pub struct Tree {
    pub dirs: Vec<PathBuf>,
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl Tree {
    pub fn read(top: &Path) -> std::io::Result<Tree> {
        let mut tree = Tree::default();
        let mut rest = vec![PathBuf::new()];
        while let Some(dir) = rest.pop() {
            for entry in std::fs::read_dir(top.join(&dir))? {
                let entry = entry?;
                let path = dir.join(entry.file_name());
                if entry.file_type()?.is_dir() {
                    tree.dirs.push(path.clone());
                    rest.push(path);
                } else {
                    tree.files.push((path.clone(), std::fs::read(top.join(&path))?));
                }
            }
        }
        tree.dirs.sort();
        tree.files.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(tree)
    }
}
