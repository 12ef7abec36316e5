//! Who holds a lock that was refused: for the person who has to stop it.

use std::os::fd::AsFd;

/// The process that holds a `flock` on an open file, in words: `/proc/locks` knows. "another process" where it does not say
/// (another machine's or container's processes have no number here).
pub fn of(file: impl AsFd) -> String {
    named(file).unwrap_or_else(|| "another process".to_owned())
}

fn named(file: impl AsFd) -> Option<String> {
    let stat = rustix::fs::fstat(file).ok()?;
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let place = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder(&locks, &place).map(|pid| format!("process {pid}"))
}

/// Lines are `1: FLOCK  ADVISORY  WRITE 4217 fe:00:7776542 0 EOF`, those who wait have an arrow behind the number.
fn holder(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, _, _) = (words.next()?, words.next()?, words.next()?);
        let pid: u32 = words.next()?.parse().ok()?;
        (kind == "FLOCK" && pid != 0 && words.next()? == place).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_named() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 4217 fe:00:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 0 fe:00:78 0 EOF\n";
        assert_eq!(holder(locks, "fe:00:77"), Some(4217));
        assert_eq!(holder(locks, "fe:00:78"), None);
        assert_eq!(holder("nonsense", "fe:00:78"), None);
    }

    #[test]
    fn this_process_is_found() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(of(&file), "another process");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        // Where the filesystem's device is another than the system's list says, nobody is named.
        assert!([format!("process {}", std::process::id()), "another process".into()].contains(&of(&file)));
    }
}
