//! The journal's format. No I/O.
//!
//! The journal is a text file that is only appended to. Each line is a record, framed as in the journal of `landfast verify`:
//!
//! ```text
//! CRC SEQ DURABLE JSON
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | CRC | CRC32C of the rest of the line, without the space before it and without the newline; 8 hexadecimal digits in lower case |
//! | SEQ | 1 for the first line, then +1 |
//! | DURABLE | the number of the last line that was known to be durable when this one was written |
//! | JSON | the [`Record`] |
//!
//! Records, in order:
//! 1. The first one describes the job.
//! 2. Each further one lists what became durable since the one before. It counts as a whole or not at all.
//! 3. The last one of a finished job says that the job is finished.
//!
//! A reader ignores fields that it does not know. So older programs ignore `parts` and `streamed`, and start large files over.
//!
//! When this machine loses power, anything may follow the last durable line. So the reader stops at the first line that is
//! incomplete or has the wrong number, and drops the rest (the torn tail); that work is done again. But if a valid line in
//! the rest says that a dropped line was already durable, the file was damaged later, and the reader refuses it.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

use super::batch::Batch;
use super::done::DoneBefore;

pub(super) const VERSION: u64 = 1;

/// The command and its operands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// For example `untar`.
    pub command: String,
    /// Sources, destinations, and options that change the result, under the names that messages show.
    pub about: BTreeMap<String, String>,
}

impl Job {
    #[must_use]
    pub fn new(command: &str) -> Job {
        Job { command: command.to_owned(), about: BTreeMap::new() }
    }

    #[must_use]
    pub fn about(mut self, name: &str, value: impl Into<String>) -> Job {
        self.about.insert(name.to_owned(), value.into());
        self
    }

    /// The first difference between this job and `now`, as a text for people.
    pub(super) fn differs(&self, now: &Job) -> Option<String> {
        if self.command != now.command {
            return Some(format!("that was `landfast {}`", self.command));
        }
        let names = self.about.keys().chain(now.about.keys());
        names.into_iter().find_map(|name| {
            let of = |job: &Job| job.about.get(name).cloned().unwrap_or_default();
            let (was, is) = (of(self), of(now));
            (was != is).then(|| format!("its {name} was `{was}`, now it is `{is}`"))
        })
    }
}

/// The first record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// [`VERSION`].
    pub(super) landfast_resume: u64,
    pub(super) job: Job,
    /// What the first run found out, and what holds for all runs.
    pub(super) facts: BTreeMap<String, String>,
    /// The secret key of the hashes that stand for paths and archives. Without it, nobody can make an archive whose hashes
    /// collide.
    #[serde(with = "super::batch::hex")]
    pub(super) key: Vec<u64>,
    /// Seconds since 1970.
    pub(super) started: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Record {
    Job(Header),
    /// What became durable since the record before.
    Done(Batch),
    /// The job was finished at this time, in seconds since 1970.
    End(u64),
}

/// A record as a line, with its newline.
pub(super) fn encode(seq: u64, durable: u64, record: &Record) -> String {
    // JSON can express every record, so this does not fail.
    framed(seq, durable, &serde_json::to_string(record).unwrap_or_default())
}

fn checksum(body: &str) -> String {
    format!("{:08x}", crc32c::crc32c(body.as_bytes()))
}

fn decode(line: &[u8]) -> Option<(u64, u64, &str)> {
    let (crc, body) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    if crc != checksum(body) {
        return None;
    }
    let mut fields = body.splitn(3, ' ');
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?, fields.next()?))
}

#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct Contents {
    pub(super) header: Header,
    pub(super) before: DoneBefore,
    /// When the job was finished, in seconds since 1970.
    pub(super) ended: Option<u64>,
    pub(super) lines: u64,
    /// Bytes of the valid lines.
    pub(super) len: usize,
}

/// A summary of a journal's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub lines: u64,
    pub bytes: usize,
    pub done: u64,
    pub finished: bool,
}

impl Summary {
    /// `None`: the bytes are not a journal that a run can continue.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Summary> {
        let Contents { before, ended, lines, len, .. } = parse(bytes).ok()?.ok()?;
        Some(Summary { lines, bytes: len, done: before.count(), finished: ended.is_some() })
    }
}

/// A line for a record that is already JSON, with its newline.
#[must_use]
pub fn framed(seq: u64, durable: u64, json: &str) -> String {
    let body = format!("{seq} {durable} {json}");
    format!("{} {body}\n", checksum(&body))
}

/// Why a run cannot continue a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The file is not a journal.
    Foreign,
    /// The journal has this other format version.
    Version(u64),
    /// The line with this number, at this offset, is damaged.
    Damaged(u64, usize),
}

/// Whether a file that begins with these bytes may be a journal.
pub(super) fn begins(bytes: &[u8]) -> bool {
    let (crc, rest) = bytes.split_at(bytes.len().min(8));
    crc.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) && rest.starts_with(b" 1 0 {\"job\":{")
}

/// The number of bytes that [`begins`] needs.
pub(super) const BEGINNING: usize = 8 + " 1 0 {\"job\":{".len();

/// Reads a journal, a line at a time: it may be larger than the memory.
///
/// # Errors
/// Those of the reader.
pub(super) fn parse(mut from: impl BufRead) -> io::Result<Result<Contents, Flaw>> {
    let (mut lines, mut len) = (0, 0);
    let mut header = None;
    let mut before = DoneBefore::default();
    let mut ended = None;
    let mut line = Vec::new();
    // Afterwards `line` is the first one that does not count, or empty at the end.
    while from.read_until(b'\n', &mut line)? > 0 {
        let Some((seq, _, json)) = line.strip_suffix(b"\n").and_then(decode) else { break };
        if seq != lines + 1 {
            break;
        }
        if header.is_none() {
            header = match first(json) {
                Ok(first) => Some(first),
                Err(flaw) => return Ok(Err(flaw)),
            };
        } else {
            match serde_json::from_str(json) {
                Ok(Record::Done(batch)) => before.take(batch),
                Ok(Record::End(when)) => ended = Some(when),
                // The checksum is right, but this program writes no such record here.
                Ok(Record::Job(_)) | Err(_) => return Ok(Err(Flaw::Damaged(seq, len))),
            }
        }
        lines = seq;
        len += line.len();
        line.clear();
    }
    let next = lines + 1;
    while !line.is_empty() {
        let whole = line.strip_suffix(b"\n").unwrap_or(&line);
        if decode(whole).is_some_and(|(_, durable, _)| durable >= next) {
            return Ok(Err(Flaw::Damaged(next, len)));
        }
        line.clear();
        from.read_until(b'\n', &mut line)?;
    }
    let Some(header) = header else { return Ok(Err(Flaw::Foreign)) };
    Ok(Ok(Contents { header, before, ended, lines, len }))
}

fn first(json: &str) -> Result<Header, Flaw> {
    let value: serde_json::Value = serde_json::from_str(json).map_err(|_| Flaw::Foreign)?;
    let version = value["job"]["landfast_resume"].as_u64().ok_or(Flaw::Foreign)?;
    if version != VERSION {
        return Err(Flaw::Version(version));
    }
    match serde_json::from_value(value) {
        Ok(Record::Job(header)) if header.key.len() == 2 => Ok(header),
        _ => Err(Flaw::Damaged(1, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> Result<Contents, Flaw> {
        super::parse(bytes).unwrap()
    }

    fn header() -> Header {
        Header {
            landfast_resume: VERSION,
            job: Job::new("untar").about("archive", "/a.tar").about("destination", "h:2049/x"),
            facts: BTreeMap::new(),
            key: vec![1, u64::MAX],
            started: 7,
        }
    }

    fn batch() -> impl Strategy<Value = Batch> {
        let numbers = || prop::collection::vec(any::<u64>(), 0..4);
        let pairs = || prop::collection::vec(any::<(u64, u64)>(), 0..4);
        let bytes = prop::collection::vec(any::<u8>(), 0..6);
        let members = prop::collection::vec((0u64..50, 50u64..100), 0..3);
        let begun = prop::collection::vec((any::<u32>(), bytes), 0..3);
        let gone = prop::collection::vec(any::<u32>(), 0..3);
        let fh = prop::collection::vec(any::<u8>(), 0..6);
        let part = || (any::<u64>(), any::<u64>(), any::<u64>(), fh.clone());
        let parts = prop::collection::vec(part(), 0..3);
        let streamed = prop::collection::vec((part(), any::<u64>()), 0..2);
        (members, pairs(), (parts, streamed), numbers(), numbers(), pairs(), begun, gone, 0u64..1000)
            .prop_map(|(members, objects, (parts, streamed), made, met, marks, begun, gone, removed)| Batch {
                members,
                objects,
                parts,
                streamed: streamed.into_iter().map(|((p, o, u, fh), d)| (p, o, u, fh, d)).collect(),
                made,
                met,
                marks,
                begun,
                gone,
                removed,
            })
    }

    /// A journal whose lines were each durable before the next was written, and where its lines end.
    fn written(batches: &[Batch], end: bool) -> (Vec<u8>, Vec<usize>) {
        let mut out = encode(1, 0, &Record::Job(header())).into_bytes();
        let mut ends = vec![out.len()];
        let records = batches.iter().cloned().map(Record::Done).chain(end.then_some(Record::End(9)));
        for (seq, record) in (2..).zip(records) {
            out.extend(encode(seq, seq - 1, &record).into_bytes());
            ends.push(out.len());
        }
        (out, ends)
    }

    fn all(batches: &[Batch]) -> DoneBefore {
        let mut before = DoneBefore::default();
        batches.iter().cloned().for_each(|batch| before.take(batch));
        before
    }

    #[test]
    fn other_files_other_jobs_and_newer_formats_are_told_apart() {
        assert_eq!(parse(b"hello\nworld\n"), Err(Flaw::Foreign));
        assert!(!begins(b"hello\nworld\n, more than twenty-one bytes"));
        let mut newer = header();
        newer.landfast_resume = 2;
        let newer = encode(1, 0, &Record::Job(newer));
        assert!(begins(&newer.as_bytes()[..BEGINNING]));
        assert_eq!(parse(newer.as_bytes()), Err(Flaw::Version(2)));
        let job = header().job;
        assert_eq!(job.differs(&job), None);
        let other = Job::new("untar").about("archive", "/b.tar").about("destination", "h:2049/x");
        assert_eq!(job.differs(&other).unwrap(), "its archive was `/a.tar`, now it is `/b.tar`");
        let more = job.clone().about("options", "-m");
        assert_eq!(job.differs(&more).unwrap(), "its options was ``, now it is `-m`");
        assert!(job.differs(&Job::new("rm")).unwrap().contains("landfast untar"));
    }

    #[test]
    fn what_is_not_known_in_a_record_is_passed_over() {
        let mut bytes = encode(1, 0, &Record::Job(header())).into_bytes();
        let body = r#"2 1 {"done":{"gone":[3],"later":[[1,"x"]]}}"#;
        bytes.extend(format!("{} {body}\n", checksum(body)).into_bytes());
        assert_eq!(parse(&bytes).unwrap().before, all(&[Batch { gone: vec![3], ..Batch::default() }]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(batches in prop::collection::vec(batch(), 0..6), end in any::<bool>()) {
            let (bytes, _) = written(&batches, end);
            let read = parse(&bytes).unwrap();
            prop_assert_eq!((read.header, read.before), (header(), all(&batches)));
            prop_assert_eq!((read.ended, read.len), (end.then_some(9), bytes.len()));
        }

        #[test]
        fn a_tail_torn_anywhere_is_dropped(
            batches in prop::collection::vec(batch(), 1..5),
            cut in any::<prop::sample::Index>(),
            noise in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let (bytes, ends) = written(&batches, false);
            let cut = ends[0] + cut.index(bytes.len() - ends[0] + 1);
            let whole = ends.iter().filter(|e| **e <= cut).count();
            let mut torn = bytes[..cut].to_vec();
            torn.extend(&noise);
            let read = parse(&torn).unwrap();
            // A newline of the noise may end a line that lacked only that.
            let lines = read.lines as usize;
            prop_assert!(lines == whole || lines == whole + 1, "{} of {}", lines, whole);
            prop_assert_eq!(read.before, all(&batches[..lines - 1]));
        }

        #[test]
        fn damage_before_a_durable_line_is_refused(
            batches in prop::collection::vec(batch(), 2..6),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let (mut bytes, ends) = written(&batches, false);
            // The last line says that the one before it was durable, unless it is no line of its own any more.
            let durable = ends[ends.len() - 2] - 1;
            let at = at.index(durable);
            bytes[at] ^= flip;
            prop_assert!(parse(&bytes).is_err());
        }

        #[test]
        fn damage_in_the_last_line_costs_that_line(
            batches in prop::collection::vec(batch(), 1..5),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let (mut bytes, ends) = written(&batches, false);
            let from = ends[ends.len() - 2];
            let at = from + at.index(bytes.len() - from);
            bytes[at] ^= flip;
            let read = parse(&bytes).unwrap();
            prop_assert_eq!(read.before, all(&batches[..batches.len() - 1]));
            prop_assert_eq!(read.len, from);
        }
    }
}
