//! The NFS client's own counters: `/proc/self/mountstats`, read as the number of RPCs of each kind, and as all that its
//! connections have carried.

use std::collections::BTreeMap;

/// RPCs by operation, as the kernel names them (`OPEN`, `SETATTR`, ...); operations never sent are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<String, u64>);

impl Counts {
    /// Reads the counters of the filesystem that is mounted on `mountpoint`.
    ///
    /// The format is the kernel's `nfs_show_stats`: a line `device ... mounted on DIR with fstype nfs4 ...` for each
    /// mount; below it, after a line `per-op statistics`, lines `NAME: operations transmissions timeouts ...`.
    /// The first number counts requests of the client, the second what it put on the wire (again after a timeout
    /// or a lost connection); the first is taken, which is what "RPCs" means here.
    pub fn parse(mountstats: &str, mountpoint: &str) -> Result<Counts, String> {
        let mut counts = BTreeMap::new();
        let mut operations = false;
        for line in lines_of(mountstats, mountpoint)? {
            if line.trim() == "per-op statistics" {
                operations = true;
            } else if operations {
                let Some((name, numbers)) = line.trim().split_once(':') else { continue };
                let first = numbers.split_whitespace().next().unwrap_or_default();
                let count: u64 = first.parse().map_err(|_| format!("mountstats: {line:?}"))?;
                if count > 0 {
                    // Two mounts on one place: the upper one is listed last.
                    counts.insert(name.to_owned(), count);
                }
            }
        }
        Ok(Counts(counts))
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        let changed = self.0.iter().filter_map(|(name, now)| {
            let more = now.saturating_sub(before.0.get(name).copied().unwrap_or(0));
            (more > 0).then(|| (name.clone(), more))
        });
        Counts(changed.collect())
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// RPCs of all mounts of one version, from `/proc/net/rpc/nfs`, which stays when a mount goes: with those of leases and sessions, which no
/// mount counts. `mountstats` of a mount of that version names the operations, in the order of these counters.
pub fn of_all_mounts(counters: &str, mountstats: &str, mountpoint: &str) -> Result<Counts, String> {
    let mut lines = lines_of(mountstats, mountpoint)?.into_iter();
    lines.find(|line| line.trim() == "per-op statistics").ok_or("mountstats: no operations")?;
    let names: Vec<&str> =
        lines.filter_map(|line| line.trim().split_once(':')).map(|(name, _)| name).collect();
    // NFSv3 has 22 procedures; all that COMPOUND carries in Linux's table for NFSv4 are more.
    for line in counters.lines().filter(|line| line.starts_with("proc")) {
        let numbers: Option<Vec<u64>> = line.split(' ').skip(1).map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some([length, numbers @ ..]) if usize::try_from(*length) == Ok(names.len()) => {
                let all = names.iter().zip(numbers).filter(|(_, number)| **number > 0);
                return Ok(Counts(all.map(|(name, number)| ((*name).to_owned(), *number)).collect()));
            }
            Some(_) => {}
            None => return Err(format!("/proc/net/rpc/nfs: {line:?}")),
        }
    }
    Err(format!("/proc/net/rpc/nfs: no line of {} counters", names.len()))
}

/// Calls that went out on the connections of the filesystem that is mounted on `mountpoint`: with those of its sideband protocols
/// (ACLs of version 3), of its lease, and what was sent again, which the counters of operations leave out.
pub fn sent(mountstats: &str, mountpoint: &str) -> Result<u64, String> {
    // Port, binds, connects, time to connect, idle time, sends, ...
    const SENDS: usize = 5;
    let mut sent = 0;
    for line in lines_of(mountstats, mountpoint)? {
        let Some(numbers) = line.trim().strip_prefix("xprt:\ttcp ") else { continue };
        let sends = numbers.split(' ').nth(SENDS).and_then(|number| number.parse::<u64>().ok());
        sent += sends.ok_or(format!("mountstats: {line:?}"))?;
    }
    Ok(sent)
}

/// The lines of one mount, without its first one.
fn lines_of<'a>(mountstats: &'a str, mountpoint: &str) -> Result<Vec<&'a str>, String> {
    let (mut ours, mut found, mut lines) = (false, false, Vec::new());
    for line in mountstats.lines() {
        if line.starts_with("device ") {
            let mut words = line.split(' ').skip_while(|word| *word != "on");
            ours = words.nth(1) == Some(mountpoint);
            found |= ours;
        } else if ours {
            lines.push(line);
        }
    }
    if found { Ok(lines) } else { Err(format!("mountstats: nothing is mounted on {mountpoint}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
device rootfs mounted on / with fstype rootfs
device 10.0.2.2:/ mounted on /mnt/nfs with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576
\tevents:\t1 2 3
\txprt:\ttcp 0 0 1 0 3 120 120 0 123 0 2 5 5
\tper-op statistics
\t        NULL: 1 1 0 44 24 1 0 1 0
\t        READ: 0 0 0 0 0 0 0 0 0
\t        OPEN: 200 201 0 1 2 3 4 5 0
\t     SETATTR: 800 800 0 1 2 3 4 5 3

device 10.0.2.2:/ mounted on /mnt/nfs2 with fstype nfs4 statvers=1.1
\tper-op statistics
\t        OPEN: 7 7 0 1 2 3 4 5 0
";

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        Counts(pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
    }

    #[test]
    fn counters_of_one_mount_are_read() {
        let wanted = counts(&[("NULL", 1), ("OPEN", 200), ("SETATTR", 800)]);
        assert_eq!(Counts::parse(TEXT, "/mnt/nfs"), Ok(wanted));
        assert_eq!(Counts::parse(TEXT, "/mnt/nfs2"), Ok(counts(&[("OPEN", 7)])));
        assert!(Counts::parse(TEXT, "/mnt").is_err());
    }

    #[test]
    fn what_went_out_is_read_from_all_connections() {
        assert_eq!(sent(TEXT, "/mnt/nfs"), Ok(120));
        let second = "\txprt:\ttcp 0 0 1 0 3 7 7 0 123 0 2 5 5\n\tper-op";
        assert_eq!(sent(&TEXT.replacen("\tper-op", second, 1), "/mnt/nfs"), Ok(127));
        assert_eq!(sent(TEXT, "/mnt/nfs2"), Ok(0));
        assert!(sent(TEXT, "/mnt").is_err());
        assert!(sent("device a mounted on /m with fstype nfs4\n\txprt:\ttcp 0\n", "/m").is_err());
    }

    #[test]
    fn counters_of_all_mounts_get_their_names_from_one() {
        let counters = "net 0 0 0 0\nrpc 40 0 0\nproc3 3 1 1 1\nproc4 4 1 2 0 30\n";
        let wanted = counts(&[("NULL", 1), ("READ", 2), ("SETATTR", 30)]);
        assert_eq!(of_all_mounts(counters, TEXT, "/mnt/nfs"), Ok(wanted));
        assert!(
            of_all_mounts(counters, TEXT, "/mnt/nfs2").is_err(),
            "a mount with another number of operations"
        );
        assert!(of_all_mounts("proc4 4 1 x 0 30\n", TEXT, "/mnt/nfs").is_err());
    }

    #[test]
    fn a_number_that_is_none_is_an_error() {
        let text = TEXT.replace("OPEN: 200", "OPEN: many");
        assert!(Counts::parse(&text, "/mnt/nfs").is_err());
    }

    #[test]
    fn differences_leave_out_what_did_not_change() {
        let before = counts(&[("NULL", 1), ("OPEN", 10)]);
        let after = counts(&[("NULL", 1), ("OPEN", 30), ("CLOSE", 20)]);
        let since = after.since(&before);
        assert_eq!(since, counts(&[("OPEN", 20), ("CLOSE", 20)]));
        assert_eq!(since.total(), 40);
    }
}
