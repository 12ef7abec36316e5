//! The NFS client's own counters: `/proc/self/mountstats`, read as the number of RPCs of each kind.

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
        let mut ours = false;
        let mut found = false;
        let mut operations = false;
        for line in mountstats.lines() {
            if line.starts_with("device ") {
                let mut words = line.split(' ').skip_while(|word| *word != "on");
                ours = words.nth(1) == Some(mountpoint);
                found |= ours;
                operations = false;
            } else if ours && line.trim() == "per-op statistics" {
                operations = true;
            } else if ours && operations {
                let Some((name, numbers)) = line.trim().split_once(':') else { continue };
                let first = numbers.split_whitespace().next().unwrap_or_default();
                let count: u64 = first.parse().map_err(|_| format!("mountstats: {line:?}"))?;
                if count > 0 {
                    // Two mounts on one place: the upper one is listed last.
                    counts.insert(name.to_owned(), count);
                }
            }
        }
        if found {
            Ok(Counts(counts))
        } else {
            Err(format!("mountstats: nothing is mounted on {mountpoint}"))
        }
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Counts) -> Counts {
        let changed = self.0.iter().filter_map(|(name, now)| {
            let more = now.saturating_sub(before.0.get(name).copied().unwrap_or(0));
            (more > 0).then(|| (name.clone(), more))
        });
        Counts(changed.collect())
    }

    /// All RPCs.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
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
