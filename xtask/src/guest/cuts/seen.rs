//! What a capture shows of power cuts: what the client asked to have again, and how long it waited.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use crate::guest::captures::tables::tshark;

/// Seconds since 1970, as tshark prints them.
type Seconds = f64;

/// When the power went, and when a server could be reached again.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub gone: Seconds,
    pub back: Seconds,
}

/// What was seen in a capture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// OPENs that reclaim: CLAIM_PREVIOUS, CLAIM_DELEGATE_PREV, CLAIM_DELEG_PREV_FH (RFC 8881 section 18.16.1).
    pub opens: u64,
    /// LOCKs that reclaim (RFC 8881 section 18.10.1).
    pub locks: u64,
    /// RECLAIM_COMPLETE, which a client sends when it has a new client ID.
    pub completes: u64,
    pub exchanges: u64,
    pub sessions: u64,
    /// Results that say NFS4ERR_GRACE.
    pub graces: u64,
    /// For each cut that was not followed by another before: how long work waited though the server could be reached.
    pub pauses: Vec<Duration>,
}

impl Seen {
    pub fn add(&mut self, other: Seen) {
        self.opens += other.opens;
        self.locks += other.locks;
        self.completes += other.completes;
        self.exchanges += other.exchanges;
        self.sessions += other.sessions;
        self.graces += other.graces;
        self.pauses.extend(other.pauses);
    }

    pub fn reclaims(&self) -> u64 {
        self.opens + self.locks
    }
}

const RECLAIMING_CLAIMS: [u64; 3] = [1, 3, 6];

const EXCHANGE_ID: u64 = 42;
const CREATE_SESSION: u64 = 43;
const RECLAIM_COMPLETE: u64 = 58;

/// What programs wait for: ACCESS, CLOSE, COMMIT, CREATE, LINK, LOCK, LOCKU, LOOKUP, OPEN, READ, READDIR, REMOVE, RENAME, SETATTR, WRITE.
const WORK: [u64; 15] = [3, 4, 5, 6, 11, 12, 14, 15, 18, 25, 26, 28, 29, 34, 38];

/// Results that a program is told: NFS4_OK, NFS4ERR_NOENT, NFS4ERR_EXIST, NFS4ERR_DENIED. Behind all others the client asks again.
const RESULTS: [u64; 4] = [0, 2, 17, 10010];
const GRACE: u64 = 10013;

const FIELDS: [&str; 8] = [
    "frame.time_epoch",
    "ip.src",
    "rpc.msgtyp",
    "rpc.xid",
    "nfs.opcode",
    "nfs.open.claim_type",
    "nfs.lock.reclaim",
    "nfs.nfsstat4",
];

/// Reads a capture of what `guest` and a server at `port` sent each other, during which these cuts came, one after another.
pub fn read(capture: &Path, guest: &str, port: u16, cuts: &[Moment]) -> Result<Seen, String> {
    let fields = FIELDS.iter().flat_map(|field| ["-e", field]);
    let args: Vec<&str> = ["-Y", "rpc.program == 100003", "-T", "fields"].into_iter().chain(fields).collect();
    in_lines(&tshark(capture, port, &args)?, guest, cuts)
}

/// A frame's line: what its calls or replies have of each field.
struct Frame<'a> {
    time: Seconds,
    from: &'a str,
    xids: Vec<&'a str>,
    operations: Vec<u64>,
    claims: Vec<u64>,
    reclaims: u64,
    statuses: Vec<u64>,
}

impl<'a> Frame<'a> {
    fn parse(line: &'a str) -> Option<Frame<'a>> {
        let parts: Vec<&str> = line.split('\t').collect();
        let [time, from, _, xids, operations, claims, reclaims, statuses] = parts[..] else { return None };
        let list = |text: &'a str| text.split(',').filter(|part| !part.is_empty());
        let numbers = |text| list(text).map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>();
        Some(Frame {
            time: time.parse().ok()?,
            from,
            xids: list(xids).collect(),
            operations: numbers(operations)?,
            claims: numbers(claims)?,
            reclaims: list(reclaims).filter(|flag| ["1", "True"].contains(flag)).count() as u64,
            statuses: numbers(statuses)?,
        })
    }
}

fn in_lines(lines: &str, guest: &str, cuts: &[Moment]) -> Result<Seen, String> {
    let mut seen = Seen::default();
    // When work was asked for first, by transaction; when it was answered so that a program goes on.
    let mut asked: HashMap<&str, Seconds> = HashMap::new();
    let mut answered: Vec<(Seconds, Seconds)> = Vec::new();
    let mut first_asked: Vec<Seconds> = Vec::new();
    for line in lines.lines() {
        let frame = Frame::parse(line).ok_or(format!("tshark's fields: {line:?}"))?;
        if frame.from == guest {
            let count =
                |wanted| frame.operations.iter().filter(|operation| **operation == wanted).count() as u64;
            let opens = frame.claims.iter().filter(|claim| RECLAIMING_CLAIMS.contains(claim)).count() as u64;
            seen.opens += opens;
            seen.locks += frame.reclaims;
            seen.completes += count(RECLAIM_COMPLETE);
            seen.exchanges += count(EXCHANGE_ID);
            seen.sessions += count(CREATE_SESSION);
            let work = frame.operations.iter().any(|operation| WORK.contains(operation));
            if work && opens + frame.reclaims == 0 {
                for xid in frame.xids {
                    asked.entry(xid).or_insert_with(|| {
                        first_asked.push(frame.time);
                        frame.time
                    });
                }
            }
        } else {
            seen.graces += frame.statuses.iter().filter(|status| **status == GRACE).count() as u64;
            if frame.statuses.iter().all(|status| RESULTS.contains(status)) {
                answered.extend(frame.xids.iter().filter_map(|xid| Some((asked.remove(xid)?, frame.time))));
            }
        }
    }
    if answered.is_empty() {
        return Err("the capture shows no work".to_owned());
    }
    let mut went_on = 0.0;
    for (number, cut) in cuts.iter().enumerate() {
        let next = cuts.get(number + 1).map_or(Seconds::INFINITY, |next| next.gone);
        let after = |(_, at): &&(Seconds, Seconds)| *at > cut.back && *at < next;
        let Some((_, on)) = answered.iter().find(after) else { continue };
        // What was asked for since work went on after the last cut and was not answered in time: perhaps never, since the client has asked
        // anew on another session.
        let in_time: Vec<Seconds> =
            answered.iter().filter(|(_, at)| *at < cut.gone).map(|(asked, _)| *asked).collect();
        let waiting = first_asked.iter().filter(|asked| **asked > went_on && !in_time.contains(asked));
        let from = waiting.copied().fold(Seconds::INFINITY, Seconds::min).max(cut.back);
        seen.pauses.push(Duration::from_secs_f64((on - from).max(0.0)));
        went_on = *on;
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: &str = "10.0.2.15";

    /// OPEN is asked for and not answered; the power is away from 10.5 to 11.5; two OPENs and a LOCK are reclaimed; the OPEN is asked
    /// for again, told to wait, and answered.
    const LINES: &str = "\
9.0\t10.0.2.15\t0\t0x1\t53,22,38,9\t\t\t
9.1\t10.0.2.2\t1\t0x1\t53,22,38,9\t\t\t0,0,0,0,0
10.0\t10.0.2.15\t0\t0x2\t53,22,18,10\t0\t\t
12.0\t10.0.2.15\t0\t0x3\t42\t\t\t
12.1\t10.0.2.2\t1\t0x3\t42\t\t\t0,0
12.2\t10.0.2.15\t0\t0x4\t43\t\t\t
12.3\t10.0.2.15\t0,0\t0x5,0x6\t53,22,18,53,22,18\t1,1\t\t
12.4\t10.0.2.2\t1,1\t0x5,0x6\t53,22,18,53,22,18\t\t\t0,0,0,0
12.5\t10.0.2.15\t0\t0x7\t53,22,12\t\t1\t
12.6\t10.0.2.15\t0\t0x8\t53,58\t\t\t
13.0\t10.0.2.15\t0\t0x9\t53,22,18,10\t0\t\t
13.1\t10.0.2.2\t1\t0x9\t53,22,18\t\t\t10013,0,0,10013
14.0\t10.0.2.15\t0\t0x2\t53,22,18,10\t0\t0\t
14.1\t10.0.2.2\t1\t0x2\t53,22,18,10\t\t\t0,0,0,0
";
    const CUT: Moment = Moment { gone: 10.5, back: 11.5 };

    #[test]
    fn reclaims_are_counted_and_the_pause_is_what_work_waited() {
        let seen = in_lines(LINES, GUEST, &[CUT]).unwrap();
        let pauses = vec![Duration::from_secs_f64(14.1 - 11.5)];
        let wanted = Seen { opens: 2, locks: 1, completes: 1, exchanges: 1, sessions: 1, graces: 2, pauses };
        assert_eq!(seen, wanted);
        assert_eq!(seen.reclaims(), 3);
    }

    #[test]
    fn work_that_was_asked_for_later_waited_only_since_then() {
        let later = LINES.replace("10.0\t10.0.2.15\t0\t0x2", "13.5\t10.0.2.15\t0\t0x2");
        let seen = in_lines(&later, GUEST, &[CUT]).unwrap();
        assert_eq!(seen.pauses, [Duration::from_secs_f64(14.1 - 13.0)]);
    }

    #[test]
    fn work_that_was_never_answered_waited_all_the_same() {
        let anew = LINES.replace("14.0\t10.0.2.15\t0\t0x2", "14.0\t10.0.2.15\t0\t0xa");
        let anew = anew.replace("14.1\t10.0.2.2\t1\t0x2", "14.1\t10.0.2.2\t1\t0xa");
        let seen = in_lines(&anew, GUEST, &[CUT]).unwrap();
        assert_eq!(seen.pauses, [Duration::from_secs_f64(14.1 - 11.5)]);
    }

    #[test]
    fn a_cut_that_is_followed_by_another_at_once_has_no_pause_of_its_own() {
        let cuts = [CUT, Moment { gone: 11.6, back: 12.9 }];
        assert_eq!(in_lines(LINES, GUEST, &cuts).unwrap().pauses, [Duration::from_secs_f64(14.1 - 12.9)]);
    }

    #[test]
    fn what_shows_nothing_is_an_error() {
        assert!(in_lines("", GUEST, &[]).is_err());
        assert!(in_lines("1.0\t10.0.2.15\t0\n", GUEST, &[]).is_err());
    }
}
