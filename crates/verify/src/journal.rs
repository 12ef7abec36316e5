//! The journal: what was sent and what was acknowledged, on a disk of this machine.
//!
//! A text file that only grows, a record a line:
//!
//! ```text
//! CRC SEQ DURABLE JSON
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | CRC | CRC32C of what stands behind it and its space, without the newline; 8 hexadecimal digits in lower case |
//! | SEQ | 1 for the first line, then +1 |
//! | DURABLE | the last line of which it was known, as this one was written, that it is on stable storage |
//! | JSON | the [`Record`] |
//!
//! A cut of this machine's power may leave behind the last durable line whatever it likes. So reading ends at the first
//! line that is not whole and next, and all behind it is dropped: the torn tail. But if a whole line stands behind it that
//! says that it was durable already, then the file was damaged later, and it is refused.
//!
//! Durability: [`Journal::append`] only queues; [`Journal::sync`] returns when everything up to a line has been written
//! and `fdatasync` has returned. Of several clients that wait, one does it for all (group commit).

use crate::contents::OpNo;
use crate::error::{Error, Result};
use crate::limits::LINE_BYTES_MAX;
use crate::op::{Op, Reply};
use crate::rounds::{Answer, Prepared, Race};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The format that is written, and the newest that is read.
pub const VERSION: u32 = 2;

/// The oldest that is read: it has no pairs.
const VERSION_OLDEST: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub landfast_verify: u32,
    /// Names the run, and its directory on the server.
    pub id: String,
    pub url: String,
    /// The version of NFS: `3`, `4.0`, `4.1` or `4.2`.
    pub nfs: String,
    /// The file id of the URL's directory: whether it is the same one that is checked.
    pub base_fileid: u64,
    pub clients: u32,
    /// Pairs of clients that race.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pairs: u32,
    pub seed: u64,
    /// When it began, in seconds since 1970.
    pub started: u64,
}

// The serializer hands out references.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Header {
    /// The run's directory, below that of the URL.
    pub fn top(&self) -> String {
        format!("landfast-verify-{}", self.id)
    }

    pub fn client_dir(&self, client: u32) -> String {
        format!("{}/c{client}", self.top())
    }

    /// The directory of one of its pairs, in that of the run.
    pub fn pair_name(&self, pair: u32) -> String {
        format!("p{pair}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// All work is done.
    Done,
    Interrupted,
    /// The server did not answer any more.
    Gone,
    /// The server refused an operation.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    Header(Header),
    /// This operation is sent next. Operations are numbered from 0 on.
    Intent {
        no: OpNo,
        client: u32,
        op: Op,
    },
    /// The server did the operation.
    Ack {
        no: OpNo,
        reply: Reply,
    },
    /// The server refused the operation, or its reply made no sense; whether it was done is not known.
    Refused {
        no: OpNo,
        status: String,
    },
    /// A pair's two clients send these next; what `before` names was acknowledged. Each pair numbers its rounds from 0 on
    /// without a gap. The data depends on `tag`.
    Meet {
        pair: u32,
        round: u32,
        meeting: Race,
        tag: u64,
        before: Prepared,
    },
    /// The first or the second client of a pair was answered.
    Told {
        pair: u32,
        round: u32,
        second: bool,
        answer: Answer,
    },
    End(End),
}

/// The line of a record, with its newline.
pub fn encode(seq: u64, durable: u64, record: &Record) -> String {
    // A record has nothing that JSON cannot say.
    let json = serde_json::to_string(record).unwrap_or_default();
    let body = format!("{seq} {durable} {json}");
    format!("{} {body}\n", checksum(&body))
}

fn checksum(body: &str) -> String {
    format!("{:08x}", crc32c::crc32c(body.as_bytes()))
}

fn decode(line: &[u8]) -> Option<(u64, u64, Record)> {
    let text = std::str::from_utf8(line).ok().filter(|t| t.len() <= LINE_BYTES_MAX)?;
    let (crc, body) = text.split_once(' ')?;
    if crc != checksum(body) {
        return None;
    }
    let mut fields = body.splitn(3, ' ');
    let (seq, durable) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((seq, durable, serde_json::from_str(fields.next()?).ok()?))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    pub header: Header,
    pub records: Vec<Record>,
    /// Bytes behind the last whole record.
    pub torn: usize,
}

/// Reads a journal. Pure.
/// Errors: In words, when it is none, a newer one, or damaged.
pub fn parse(bytes: &[u8]) -> std::result::Result<Contents, String> {
    let mut records = Vec::new();
    let mut at = 0;
    let mut lines = bytes.split_inclusive(|b| *b == b'\n');
    for line in lines.by_ref() {
        let whole = line.strip_suffix(b"\n").and_then(decode);
        match whole {
            Some((seq, _, record)) if seq == records.len() as u64 + 1 => records.push(record),
            _ => break,
        }
        at += line.len();
    }
    let next = records.len() as u64 + 1;
    let damaged =
        bytes[at..].split(|b| *b == b'\n').filter_map(decode).any(|(_, durable, _)| durable >= next);
    if damaged {
        return Err(format!("it is damaged at line {next} (byte {at}), which was durable once"));
    }
    let mut records = records.into_iter();
    let Some(Record::Header(header)) = records.next() else {
        return Err("it is no journal of `landfast verify write`".to_owned());
    };
    if !(VERSION_OLDEST..=VERSION).contains(&header.landfast_verify) {
        return Err(format!(
            "it has format {}; this program reads {VERSION_OLDEST} to {VERSION}",
            header.landfast_verify
        ));
    }
    Ok(Contents { header, records: records.collect(), torn: bytes.len() - at })
}

/// Reads the journal at `path`.
pub fn read(path: &Path) -> Result<Contents> {
    let bytes = std::fs::read(path).map_err(|why| Error::File { path: path.to_owned(), why })?;
    parse(&bytes).map_err(|why| Error::Journal { path: path.to_owned(), why })
}

struct State {
    queued: Vec<u8>,
    /// The last line queued.
    seq: u64,
    /// The last line that is durable.
    durable: u64,
    busy: bool,
    broken: Option<std::io::ErrorKind>,
}

pub struct Journal {
    path: PathBuf,
    file: File,
    state: Mutex<State>,
    synced: Condvar,
}

impl Journal {
    /// Makes a journal where no file is, with its header durable, also its name.
    /// Errors: The file exists, or cannot be made or synced.
    pub fn create(path: &Path, header: Header) -> Result<Journal> {
        let fail = |why| Error::File { path: path.to_owned(), why };
        let file = File::options().append(true).create_new(true).open(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => Error::Journal {
                path: path.to_owned(),
                why: "it exists; each run needs a journal of its own".to_owned(),
            },
            _ => fail(e),
        })?;
        let state = State { queued: Vec::new(), seq: 0, durable: 0, busy: false, broken: None };
        let journal =
            Journal { path: path.to_owned(), file, state: Mutex::new(state), synced: Condvar::new() };
        let seq = journal.append(&Record::Header(header));
        journal.sync(seq)?;
        let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir).and_then(|d| d.sync_all()).map_err(fail)?;
        Ok(journal)
    }

    /// Queues a record; the number of its line.
    pub fn append(&self, record: &Record) -> u64 {
        let mut state = self.state.lock();
        state.seq += 1;
        let line = encode(state.seq, state.durable, record);
        state.queued.extend_from_slice(line.as_bytes());
        state.seq
    }

    /// Waits until line `seq` is durable.
    /// Errors: The disk's; after one, nothing is durable any more.
    pub fn sync(&self, seq: u64) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if let Some(kind) = state.broken {
                return Err(Error::File { path: self.path.clone(), why: kind.into() });
            }
            if state.durable >= seq {
                return Ok(());
            }
            if state.busy {
                self.synced.wait(&mut state);
                continue;
            }
            state.busy = true;
            let (bytes, upto) = (std::mem::take(&mut state.queued), state.seq);
            drop(state);
            let done = (&self.file).write_all(&bytes).and_then(|()| self.file.sync_data());
            state = self.state.lock();
            state.busy = false;
            match done {
                Ok(()) => state.durable = upto,
                Err(e) => state.broken = Some(e.kind()),
            }
            self.synced.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            landfast_verify: VERSION,
            id: "ab".into(),
            url: "nfs://h/".into(),
            nfs: "4.1".into(),
            base_fileid: 2,
            clients: 1,
            pairs: 0,
            seed: 7,
            started: 0,
        }
    }

    /// A journal of `n` operations, each acknowledged, made durable before each operation; and where its lines end.
    fn sample(n: u32) -> (Vec<u8>, Vec<usize>) {
        let mut out = encode(1, 0, &Record::Header(header())).into_bytes();
        let (mut seq, mut durable) = (1, 1);
        let mut ends = vec![out.len()];
        for no in 0..n {
            let op = Op::Remove { path: format!("f{no}") };
            for record in [Record::Intent { no, client: 0, op }, Record::Ack { no, reply: Reply::default() }]
            {
                seq += 1;
                out.extend(encode(seq, durable, &record).into_bytes());
                ends.push(out.len());
                if matches!(record, Record::Intent { .. }) {
                    durable = seq;
                }
            }
        }
        (out, ends)
    }

    #[test]
    fn what_is_written_is_read_and_a_second_run_gets_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let journal = Journal::create(&path, header()).unwrap();
        let intent = Record::Intent { no: 0, client: 3, op: Op::Commit { path: "a/b".into(), late: None } };
        journal.append(&intent);
        let last = journal.append(&Record::End(End::Gone));
        journal.sync(last).unwrap();
        let c = read(&path).unwrap();
        assert_eq!((c.header, c.torn), (header(), 0));
        assert_eq!(c.records, [intent, Record::End(End::Gone)]);
        assert!(Journal::create(&path, header()).is_err());
    }

    #[test]
    fn other_files_and_newer_formats_are_named() {
        assert!(parse(b"").unwrap_err().contains("no journal"));
        assert!(parse(b"hello\nworld\n").unwrap_err().contains("no journal"));
        let newer = Header { landfast_verify: VERSION + 1, ..header() };
        let bytes = encode(1, 0, &Record::Header(newer)).into_bytes();
        assert!(parse(&bytes).unwrap_err().contains(&format!("format {}", VERSION + 1)));
    }

    #[test]
    fn a_journal_of_the_first_format_is_read() {
        // As the program wrote it before there were pairs and late COMMITs.
        let line = |seq: u64, durable: u64, json: &str| {
            let body = format!("{seq} {durable} {json}");
            format!("{} {body}\n", checksum(&body))
        };
        let first = r#"{"header":{"landfast_verify":1,"id":"ab","url":"nfs://h/","nfs":"4.1","base_fileid":2,"clients":1,"seed":7,"started":0}}"#;
        let commit = r#"{"intent":{"no":0,"client":0,"op":{"commit":{"path":"f"}}}}"#;
        let c = parse([line(1, 0, first), line(2, 1, commit)].concat().as_bytes()).unwrap();
        assert_eq!(c.header, Header { landfast_verify: 1, ..header() });
        assert_eq!(
            c.records,
            [Record::Intent { no: 0, client: 0, op: Op::Commit { path: "f".into(), late: None } }]
        );
    }

    proptest! {
        #[test]
        fn a_tail_torn_anywhere_is_dropped(n in 1u32..20, cut in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let (bytes, ends) = sample(n);
            let cut = ends[0] + cut.index(bytes.len() - ends[0] + 1);
            let mut torn = bytes[..cut].to_vec();
            torn.extend(&noise);
            let whole = ends.iter().filter(|e| **e <= cut).count();
            let (all, kept) = (parse(&bytes).unwrap().records, parse(&torn).unwrap().records);
            // The header is not among the records. A newline of the noise may end a line that lacked only that.
            prop_assert!(kept.len() + 1 == whole || kept.len() == whole);
            prop_assert_eq!(&all[..kept.len()], &kept[..]);
        }

        #[test]
        fn damage_before_a_durable_line_is_refused(n in 2u32..20, at in any::<prop::sample::Index>(), flip in 1u8..) {
            let (mut bytes, ends) = sample(n);
            // Everything up to the intent of the last operation was durable, and the last line says so, unless it is not a
            // line of its own any more.
            let durable = ends[ends.len() - 2] - 1;
            let at = at.index(durable);
            bytes[at] ^= flip;
            prop_assert!(parse(&bytes).is_err());
        }
    }
}
