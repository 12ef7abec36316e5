//! Parses the kernel's text.

use super::{Counters, Mount, Mountstats, Transport};
use crate::limits::{MOUNT_OPERATIONS_MAX, MOUNT_TRANSPORTS_MAX, MOUNTS_MAX};

/// Parses the NFS mounts, as far as they are understood.
pub fn parse(text: &[u8]) -> Mountstats {
    let mut found = Mountstats::default();
    // The current mount. `None`: no NFS mount, or one beyond the limit.
    let mut mount: Option<Mount> = None;
    for line in text.split(|b| *b == b'\n') {
        let line = String::from_utf8_lossy(line);
        if let Some(device) = line.strip_prefix("device ") {
            found.mounts.extend(mount.take());
            mount = nfs(device);
            if mount.is_some() && found.mounts.len() >= MOUNTS_MAX {
                mount = None;
                found.too_many += 1;
            }
        } else if let Some(mount) = &mut mount {
            found.strange += u64::from(detail(mount, line.trim()).is_none());
        }
    }
    found.mounts.extend(mount.take());
    found
}

/// `SERVER:/PATH mounted on DIR with fstype nfs4 statvers=1.1`.
fn nfs(line: &str) -> Option<Mount> {
    let (place, kind) = line.rsplit_once(" with fstype ")?;
    let (device, on) = place.split_once(" mounted on ")?;
    let (fstype, rest) = kind.split_once(' ').unwrap_or((kind, ""));
    // Without counters it is not an NFS client mount, but a server's own directory.
    let statvers = rest.split_whitespace().find_map(|w| w.strip_prefix("statvers="))?;
    matches!(fstype, "nfs" | "nfs4").then(|| Mount {
        device: unescaped(device),
        on: unescaped(on),
        fstype: fstype.to_owned(),
        statvers: statvers.to_owned(),
        ..Mount::default()
    })
}

/// Spaces and similar are printed as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|d| first == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)));
        let byte =
            octal.and_then(|d| u8::try_from(d.iter().fold(0u32, |n, b| n * 8 + u32::from(b - b'0'))).ok());
        match byte {
            Some(byte) => {
                out.push(byte);
                rest = &behind[3..];
            }
            None => {
                out.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// One line of a mount. `None`: not understood.
fn detail(mount: &mut Mount, line: &str) -> Option<()> {
    if line.is_empty() || line == "per-op statistics" || line.starts_with("RPC iostats version") {
        return Some(());
    }
    let (key, rest) = line.split_once(':')?;
    let rest = rest.trim();
    match key {
        "opts" => rest.clone_into(&mut mount.options),
        "age" => mount.age_s = rest.parse().ok()?,
        "bytes" => {
            let all = numbers(rest)?;
            mount.server_bytes = (*all.get(4)?, *all.get(5)?);
        }
        "xprt" => {
            let transport = transport(rest)?;
            if mount.transports.len() >= MOUNT_TRANSPORTS_MAX {
                return None;
            }
            mount.transports.push(transport);
        }
        // Known but not needed.
        "impl_id" | "caps" | "nfsv4" | "sec" | "events" | "fsc" | "nfsvp" => {}
        name if is_operation(name) => {
            let counters = counters(rest)?;
            if mount.order.len() >= MOUNT_OPERATIONS_MAX || mount.operations.contains_key(name) {
                return None;
            }
            mount.order.push(name.to_owned());
            mount.operations.insert(name.to_owned(), counters);
        }
        _ => return None,
    }
    Some(())
}

fn is_operation(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split_whitespace().map(|w| w.parse().ok()).collect()
}

/// `tcp PORT BINDS CONNECTS CONNECT-TIME IDLE SENDS RECEIVES BAD-XIDS UNDER-WAY BACKLOG MOST SENDING PENDING`. For
/// udp, the columns for connects and times are missing; for rdma, others follow the backlog.
fn transport(rest: &str) -> Option<Transport> {
    let (kind, rest) = rest.split_once(' ')?;
    let all = numbers(rest)?;
    let first = match kind {
        "udp" => 2,
        _ => 5,
    };
    let at = |n: usize| all.get(first + n).copied();
    let (sends, receives) = (at(0)?, at(1)?);
    Some(Transport {
        kind: kind.to_owned(),
        sends,
        receives,
        bad_xids: at(2)?,
        under_way: at(3)?,
        backlog: at(4)?,
        pending: at(7).filter(|_| matches!(kind, "tcp" | "udp")),
        unanswered: sends.saturating_sub(receives),
    })
}

/// Eight columns, nine since Linux 5.3. More may follow.
fn counters(rest: &str) -> Option<Counters> {
    let all = numbers(rest)?;
    let &[ops, transmissions, timeouts, bytes_sent, bytes_received, queue_ms, rtt_ms, execute_ms] =
        all.first_chunk::<8>()?;
    Some(Counters {
        ops,
        transmissions,
        timeouts,
        bytes_sent,
        bytes_received,
        queue_ms,
        rtt_ms,
        execute_ms,
        errors: all.get(8).copied(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TEXT: &str = "device rootfs mounted on / with fstype rootfs
device 10.77.0.1:/export mounted on /mnt/with\\040space with fstype nfs statvers=1.1
\topts:\trw,vers=3,rsize=1048576,proto=tcp
\tage:\t31
\tevents:\t0 4075 0 9
\tbytes:\t0 673652 0 0 1 673653 0 262
\tRPC iostats version: 1.1  p/v: 100003/3 (nfs)
\txprt:\ttcp 683 0 2 0 0 1888 1887 0 3776 5 2 0 1777
\txprt:\tudp 683 1 10 10 0 10 0 0 0
\tsomething:\tnew
\tper-op statistics
\t     SETATTR: 827 829 1 119124 119088 141 12087 12382 3
\t        READ: 1 1 0 2 3 4 5 6
\t      FUTURE: 1 1 0 2 3 4 5 6 7 8 9
\t       SHORT: 1 1 0 2
device server:/x mounted on /y with fstype nfs4 statvers=1.0
\topts:\trw,vers=4,minorversion=1
\tage:\t7
device /dev/sda mounted on /z with fstype ext4
\tnot: ours
";

    fn all_of(transmissions: u64) -> BTreeMap<String, Counters> {
        BTreeMap::from([("READ".to_owned(), Counters { transmissions, ..Counters::default() })])
    }

    #[test]
    fn what_is_in_it() {
        let found = parse(TEXT.as_bytes());
        assert_eq!((found.mounts.len(), found.strange), (2, 2));
        let [m, other] = &found.mounts[..] else { panic!() };
        assert_eq!((m.device.as_str(), m.on.as_str(), m.age_s), ("10.77.0.1:/export", "/mnt/with space", 31));
        assert_eq!((m.version(), other.version()), ("3".into(), "4.1".into()));
        assert_eq!(m.server_bytes, (1, 673_653));
        let tcp = Transport {
            kind: "tcp".into(),
            sends: 1888,
            receives: 1887,
            bad_xids: 0,
            under_way: 3776,
            backlog: 5,
            pending: Some(1777),
            unanswered: 1,
        };
        assert_eq!(m.transports[0], tcp);
        assert_eq!((m.transports[1].sends, m.transports[1].under_way), (10, 10));
        assert_eq!(m.transports[1].pending, None);
        // That these connections are shared with another mount shows in what is sent.
        assert!((m.in_flight() - 1.0).abs() < 1e-9);
        let alone = Mount { operations: all_of(1898), ..m.clone() };
        assert!((alone.in_flight() - (1777.0 + 1888.0 + 10.0) / 1898.0).abs() < 1e-9);
        let c = m.operations["SETATTR"];
        assert_eq!((c.ops, c.retransmissions(), c.timeouts, c.errors), (827, 2, 1, Some(3)));
        assert!((c.average(c.rtt_ms) - 12087.0 / 827.0).abs() < 1e-9);
        assert_eq!((m.operations["READ"].errors, m.operations["FUTURE"].errors), (None, Some(7)));
        assert_eq!(m.order, ["SETATTR", "READ", "FUTURE"]);
    }

    #[test]
    fn numbers_that_are_none() {
        for bad in ["99999999999999999999 0 0 0 0 0 0 0", "-1 0 0 0 0 0 0 0", "1 1 0", ""] {
            let text = format!("device a:/ mounted on /b with fstype nfs statvers=1.1\n  READ: {bad}\n");
            let found = parse(text.as_bytes());
            assert_eq!((found.strange, found.mounts[0].order.len()), (1, 0), "{bad}");
        }
        assert_eq!(unescaped("a\\040b\\134c\\9\\0"), "a b\\c\\9\\0");
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn any_lines_give_an_answer(lines in prop::collection::vec(
            "(device [a:/ ]{0,9} mounted on [/b ]{0,9} with fstype nfs4? statvers=1.1|\tage:\t[0-9]{0,25}|\txprt:\t(tcp|udp|rdma)( [0-9]{0,22}){0,14}|\t(OPEN|WRITE): ([0-9]{1,20} ?){0,12}|\topts:\t[a-z,=0-9]{0,20})", 0..60)) {
            let found = parse(lines.join("\n").as_bytes());
            for mount in &found.mounts {
                prop_assert!(mount.in_flight() >= 1.0);
                let _ = (mount.ops(), mount.version(), super::super::findings::Findings::of(mount, None));
            }
            let again = super::super::difference(&found, &found);
            for mount in &again.mounts {
                prop_assert_eq!(mount.ops(), 0);
            }
        }

        #[test]
        fn counters_come_out_as_they_went_in(numbers in prop::collection::vec(any::<u64>(), 9)) {
            let line: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let text = format!("device a:/ mounted on /b with fstype nfs statvers=1.1\n\t LOOKUP: {}\n", line.join(" "));
            let c = parse(text.as_bytes()).mounts[0].operations["LOOKUP"];
            prop_assert_eq!(
                vec![c.ops, c.transmissions, c.timeouts, c.bytes_sent, c.bytes_received, c.queue_ms, c.rtt_ms, c.execute_ms, c.errors.unwrap()],
                numbers
            );
        }
    }
}
