//! A directory of the exported ext4 in which names that differ in case only are one; what the client makes of it.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::proc::{command, run};

/// Its name below the export.
pub const NAME: &str = "folded";

/// Of mkfs: a filesystem which may have such directories.
pub const MKFS: [&str; 2] = ["-O", "casefold"];

/// `EXT4_CASEFOLD_FL` and `EXT4_EXTENTS_FL`: what `chattr +F` makes of an empty directory.
const FLAGS: &str = "0x40080000";

/// Makes it on the image of a filesystem that is not mounted.
pub fn make(disk: &Path) -> Result<(), String> {
    for request in [format!("mkdir {NAME}"), format!("set_inode_field {NAME} flags {FLAGS}")] {
        run(command("debugfs", ["-w", "-R", &request]).arg(disk))?;
    }
    Ok(())
}

/// Two names that are one there, in an archive and in a tree: the first stays, the other is refused with the reason, and so it is over
/// what is there then. `dir` is this machine's, `url` leads to a directory that ignores case.
pub fn check(binary: &str, dir: &Path, url: &str) -> Result<(), String> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let tree = format!("tree-{query}");
    let made = fs::create_dir(dir.join(&tree)).and_then(|()| {
        let put = |(name, data)| fs::write(dir.join(&tree).join(name), data);
        [("Name", "one"), ("name", "two"), ("other", "three")].into_iter().try_for_each(put)
    });
    made.map_err(|e| format!("{}: {e}", dir.display()))?;
    let archive = dir.join(format!("{tree}.tar"));
    run(command("tar", ["--sort=name", "-cf"]).arg(&archive).arg("-C").arg(dir).arg(&tree))?;
    let (archive, local) = (archive.to_string_lossy(), dir.join(&tree));
    let copied = format!("{base}/{tree}-copy?{query}");
    for (at, args) in [
        (format!("{base}/{tree}"), ["untar", &archive, url].map(str::to_owned).to_vec()),
        (
            format!("{base}/{tree}-copy"),
            vec!["cp".into(), "-rT".into(), local.to_string_lossy().into(), copied],
        ),
    ] {
        for turn in ["first", "again"] {
            let told = said(binary, &args)?;
            let errors = String::from_utf8_lossy(&told.stderr);
            let listed = said(binary, &["ls".into(), format!("{at}?{query}")])?;
            let (kept, data): (&str, &[u8]) = match listed.stdout.as_slice() {
                b"Name\nother\n" => ("Name", b"one"),
                b"name\nother\n" => ("name", b"two"),
                other => return Err(format!("{args:?}, {turn}: left {}", String::from_utf8_lossy(other))),
            };
            let held = said(binary, &["cat".into(), format!("{at}/{kept}?{query}")])?;
            // A name that was just being replaced may be gone again when it is looked for.
            let reasons = [format!("as `{kept}`"), "as another name".to_owned()];
            let refused: usize = reasons.iter().map(|reason| errors.matches(reason).count()).sum();
            if told.status.success() || refused != 1 || held.stdout != data {
                return Err(format!("{args:?}, {turn}: {}, {kept} kept: {errors}", told.status));
            }
        }
    }
    println!("names that differ in case only: told from each other on {url}");
    Ok(())
}

fn said(binary: &str, args: &[String]) -> Result<Output, String> {
    command(binary, args).output().map_err(|e| format!("{binary}: {e}"))
}
