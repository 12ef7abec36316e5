//! The kernel as the volume sees it: every system call of this crate, with descriptors, clocks and randomness.
//!
//! Nothing else in the crate calls the system ([`tests::nobody_goes_past_this_module`]). The layer consists of re-exported
//! calls and inline functions ([`real`]), so that it costs nothing. In the crate's own tests a descriptor may also belong to
//! a simulated kernel (`either.rs`, `sim/`).

use rustix::fs::Statx;

mod backing;
#[cfg(test)]
#[allow(unsafe_code)] // structures of zeroes
mod either;
#[allow(unsafe_code)]
#[cfg_attr(test, allow(unused_imports))] // tests have calls of the same names that also serve the simulation
mod real;
#[cfg(test)]
pub mod sim;
mod switch;

pub(crate) use backing::files_below;
#[cfg(test)]
pub(crate) use either::*;
#[cfg(not(test))]
pub(crate) use real::*;
#[cfg(not(test))]
pub(crate) use switch::try_switch;

/// The birth time in nanoseconds since 1970; 0 where the filesystem keeps none.
pub(crate) fn btime_ns(sx: &Statx) -> i64 {
    if sx.stx_mask & rustix::fs::StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    sx.stx_btime.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(sx.stx_btime.tv_nsec))
}

/// A random number. Without a source of randomness it is made from the time, which only makes repetition less likely.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    match fill_random(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => wall_clock_ns(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                found.push(path);
            }
        }
    }

    /// Calls show the module they come from: `rustix::fs::openat(`, `SystemTime::now(`.
    fn goes_past(line: &str) -> bool {
        let calls_rustix =
            ["rustix::fs::", "rustix::io::", "rustix::process::", "rustix::thread::"].iter().any(|module| {
                line.match_indices(module).any(|(at, _)| {
                    let name = &line[at + module.len()..];
                    let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '_' && !c.is_ascii_digit());
                    end.is_some_and(|end| end > 0 && name[end..].starts_with('('))
                })
            });
        let others = [
            "libc::syscall",
            "Instant::now(",
            "SystemTime::now(",
            "getrandom::fill(",
            "std::fs::",
            "std::os::fd::",
        ];
        calls_rustix || others.iter().any(|call| line.contains(call))
    }

    #[test]
    fn nobody_goes_past_this_module() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut files = Vec::new();
        sources(&root, &mut files);
        assert!(files.len() > 30, "{files:?}");
        for file in files {
            let within = file.strip_prefix(&root).unwrap();
            if ["kernel", "recover/sim", "simulation"].iter().any(|dir| within.starts_with(dir)) {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            // Tests use the system to prepare their inputs.
            let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            for (n, line) in product.lines().enumerate() {
                assert!(!goes_past(line), "{}:{}: {line}", within.display(), n + 1);
                let flushes = ["fsync(", "fdatasync(", "syncfs("]
                    .iter()
                    .any(|call| line.contains(&format!("kernel::{call}")));
                assert!(
                    !flushes || within == Path::new("flush.rs"),
                    "{}:{}: {line}",
                    within.display(),
                    n + 1
                );
            }
        }
    }

    #[test]
    fn what_goes_past_is_recognised() {
        assert!(goes_past("let fd = rustix::fs::openat(dir, name, flags, mode)?;"));
        assert!(goes_past("let begun = Instant::now();"));
        assert!(!goes_past("use rustix::fs::{Mode, OFlags};"));
        assert!(!goes_past("fn f(look: rustix::fs::Statx) {"));
        assert!(!goes_past("kernel::openat(dir, name, flags, mode)?"));
    }
}
