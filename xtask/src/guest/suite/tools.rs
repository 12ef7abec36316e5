//! The suites' programs: crates of pinned versions, built on the host and handed to the guest as a disk.
//!
//! The guest's userland and the host's are the same Debian release (`recipe::SUITE`), so what is linked here against
//! libc and libacl runs there.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::{image, recipe};
use crate::packages;
use crate::proc::{self, command, run};

/// A crate with the version that is built, and its program.
struct Tool {
    program: &'static str,
    version: &'static str,
}

const TOOLS: &[Tool] =
    &[Tool { program: "pjdfstest", version: "0.2.2" }, Tool { program: "fsx", version: "0.3.2" }];

/// What `exacl`, which pjdfstest builds on, links against.
const ACL_HEADER: &str = "/usr/include/sys/acl.h";

/// The directory with the programs, built unless it is cached.
pub fn build() -> Result<PathBuf, String> {
    let whats: Vec<String> = TOOLS.iter().map(|tool| format!("{}@={}", tool.program, tool.version)).collect();
    let parts: Vec<&str> = whats.iter().map(String::as_str).chain([recipe::SUITE]).collect();
    let cache = image::cache_dir();
    let done = cache.join(format!("tools-{}", recipe::key(&parts)));
    if done.is_dir() {
        return Ok(done.join("bin"));
    }
    packages::require(&[ACL_HEADER])?;
    fs::create_dir_all(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
    let part = tempfile::Builder::new()
        .prefix("tools-part-")
        .tempdir_in(&cache)
        .map_err(|e| format!("{}: {e}", cache.display()))?;
    let root = part.path().join("root");
    run(command(&proc::cargo(), ["install", "--quiet", "--locked", "--root"])
        .arg(&root)
        .args(&whats)
        // They are waited for once, and wait for the filesystem ever after; what they build on has next to nothing to do.
        .args(["--config", "profile.release.opt-level=1"])
        .args(["--config", "profile.release.package.\"*\".opt-level=0"])
        .env("CARGO_TARGET_DIR", part.path().join("build")))?;
    // Another process may have been faster; then its programs are as good.
    match fs::rename(&root, &done) {
        Err(e) if !done.is_dir() => Err(format!("{}: {e}", done.display())),
        _ => Ok(done.join("bin")),
    }
}

/// Packs the programs and these files into a tar archive, which the guest sees as a disk.
pub fn pack(archive: &Path, files: &[(String, String)]) -> Result<(), String> {
    let programs = build()?;
    let dir = tempfile::tempdir_in(image::cache_dir()).map_err(|e| format!("a directory: {e}"))?;
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    run(command("tar", ["-cf"])
        .arg(archive)
        .arg("-C")
        .arg(programs)
        .args(TOOLS.iter().map(|tool| tool.program))
        .arg("-C")
        .arg(dir.path())
        .args(files.iter().map(|(name, _)| name)))
}
