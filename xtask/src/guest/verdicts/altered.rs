//! Alters captures as they are in the field: the same traffic, recorded worse.

use std::fs;
use std::path::{Path, PathBuf};

use crate::guest::chance::Chance;

/// Bytes of a capture's head, and of each frame's.
const HEAD: usize = 24;
const FRAME_HEAD: usize = 16;

/// Bytes of an Ethernet header, and what stands in front of the fields of TCP without options of IP.
const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [8, 0];
const TCP: u8 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Altered {
    No,
    /// A filter drops acknowledgements without data.
    NoAcks,
    /// The same, and the IP identifications come from one counter for all connections of the machine.
    NoAcksSharedNumbers,
    /// A mirror delivers each frame twice, sometimes the second one after the next frame.
    Twice,
    /// The clock was set back in the middle.
    SetBack,
    /// Truncates each frame to this many bytes.
    Cut(usize),
    /// Only what the server sent.
    RepliesOnly,
    /// Drops one of this many frames.
    Holes(u64),
}

impl Altered {
    pub const ALL: [Altered; 7] = [
        Altered::NoAcks,
        Altered::NoAcksSharedNumbers,
        Altered::Twice,
        Altered::SetBack,
        Altered::Cut(96),
        Altered::RepliesOnly,
        Altered::Holes(33),
    ];
}

/// How far a clock is set back, in nanoseconds.
const BACK_NS: u64 = 1_500_000_000;

/// How much later a mirror brings a frame again, in nanoseconds.
const AGAIN_NS: u64 = 3_000;

struct Frame {
    ns: u64,
    long: u32,
    bytes: Vec<u8>,
}

/// Writes captures of one clock as one, altered.
pub fn write(files: &[PathBuf], altered: Altered, to: &Path) -> Result<(), String> {
    let (mut head, mut frames) = (Vec::new(), Vec::new());
    for file in files {
        let bytes = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
        head = bytes.get(..HEAD).ok_or("a capture without a head")?.to_vec();
        frames.extend(read(&bytes));
    }
    frames.sort_by_key(|frame| frame.ns);
    let mut out = head;
    for frame in alter(frames, altered) {
        let words = [(frame.ns / 1_000_000_000) as u32, (frame.ns % 1_000_000_000) as u32];
        let words = [words[0], words[1], frame.bytes.len() as u32, frame.long];
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        out.extend(frame.bytes);
    }
    fs::write(to, out).map_err(|e| format!("{}: {e}", to.display()))
}

fn read(bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut at = HEAD;
    while let Some(head) = bytes.get(at..at + FRAME_HEAD) {
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let long = word(8) as usize;
        let Some(data) = bytes.get(at + FRAME_HEAD..at + FRAME_HEAD + long) else { break };
        let ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4));
        frames.push(Frame { ns, long: word(12), bytes: data.to_vec() });
        at += FRAME_HEAD + long;
    }
    frames
}

impl Frame {
    /// The segment: its ports, its flags, and how many bytes of data it has.
    fn segment(&self) -> Option<([u16; 2], u8, usize)> {
        let ip = self.bytes.get(ETHERNET..).filter(|_| self.bytes[12..14] == IPV4)?;
        let header = usize::from(ip.first()? & 15) * 4;
        let whole = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
        let tcp = ip.get(header..header + 20).filter(|_| ip[9] == TCP)?;
        let port = |i: usize| u16::from_be_bytes([tcp[i], tcp[i + 1]]);
        let data = whole.checked_sub(header + usize::from(tcp[12] >> 4) * 4)?;
        Some(([port(0), port(2)], tcp[13], data))
    }

    /// An acknowledgement and nothing else.
    fn is_bare(&self) -> bool {
        const ACK: u8 = 0x10;
        self.segment().is_some_and(|(_, flags, data)| data == 0 && flags == ACK)
    }

    /// It comes from one of these ports.
    fn is_of_server(&self, ports: &[u16]) -> bool {
        self.segment().is_some_and(|([from, _], ..)| ports.contains(&from))
    }
}

fn alter(frames: Vec<Frame>, altered: Altered) -> Vec<Frame> {
    match altered {
        Altered::No => frames,
        Altered::NoAcks => frames.into_iter().filter(|frame| !frame.is_bare()).collect(),
        Altered::NoAcksSharedNumbers => {
            let mut number = 0u16;
            let mut frames: Vec<Frame> = frames.into_iter().filter(|frame| !frame.is_bare()).collect();
            for (frame, turn) in frames.iter_mut().zip(0u16..) {
                if frame.segment().is_some() {
                    // Others were sent meanwhile: one or some.
                    number = number.wrapping_add(1 + if turn.is_multiple_of(3) { turn % 7 } else { 0 });
                    frame.bytes[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&number.to_be_bytes());
                }
            }
            frames
        }
        Altered::Twice => {
            let nexts: Vec<Option<u64>> =
                frames.iter().skip(1).map(|next| Some(next.ns)).chain([None]).collect();
            let mut out = Vec::with_capacity(frames.len() * 2);
            for (turn, (frame, next)) in frames.into_iter().zip(nexts).enumerate() {
                // Every fifth comes again behind the next one, if that is not far.
                let late = next.filter(|next| turn % 5 == 0 && *next < frame.ns + 200_000);
                let ns = late.map_or(frame.ns + AGAIN_NS, |next| next + AGAIN_NS);
                let again = Frame { ns, long: frame.long, bytes: frame.bytes.clone() };
                out.extend([frame, again]);
            }
            out.sort_by_key(|frame| frame.ns);
            out
        }
        Altered::SetBack => {
            let mut frames = frames;
            let half = frames.len() / 2;
            frames.iter_mut().skip(half).for_each(|frame| frame.ns -= BACK_NS);
            frames
        }
        Altered::Cut(most) => {
            let mut frames = frames;
            frames.iter_mut().for_each(|frame| frame.bytes.truncate(most));
            frames
        }
        Altered::RepliesOnly => {
            // Who is sent the first segment of a connection, and nothing came from before, is the server.
            const SYN: u8 = 2;
            let begins = |frame: &Frame| frame.segment().filter(|(_, flags, _)| *flags & 0x12 == SYN);
            let servers: Vec<u16> = frames.iter().filter_map(|f| begins(f).map(|([_, to], ..)| to)).collect();
            frames.into_iter().filter(|frame| frame.is_of_server(&servers)).collect()
        }
        Altered::Holes(each) => {
            // Which frames are missing is chance, but the same each time.
            let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
            let mut missing = || (chance.next() >> 11).is_multiple_of(each);
            frames.into_iter().filter(|_| !missing()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment with so many bytes of data.
    fn segment(ns: u64, from: u16, to: u16, flags: u8, data: usize) -> Frame {
        let mut bytes = vec![0; ETHERNET - 2];
        bytes.extend(IPV4);
        bytes.extend([0x45, 0]);
        bytes.extend((40 + data as u16).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
        bytes.extend([0; 8]);
        bytes.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
        bytes.extend(vec![7; data]);
        Frame { ns, long: bytes.len() as u32, bytes }
    }

    fn some() -> Vec<Frame> {
        vec![
            segment(2_000_000_000, 900, 2049, 2, 0),
            segment(2_000_010_000, 2049, 900, 0x12, 0),
            segment(2_000_020_000, 900, 2049, 0x10, 0),
            segment(2_000_030_000, 900, 2049, 0x18, 100),
            segment(2_000_040_000, 2049, 900, 0x18, 60),
        ]
    }

    fn lengths(frames: &[Frame]) -> Vec<usize> {
        frames.iter().filter_map(|frame| frame.segment().map(|(_, _, data)| data)).collect()
    }

    #[test]
    fn each_alteration_does_what_it_says() {
        assert_eq!(lengths(&alter(some(), Altered::NoAcks)), [0, 0, 100, 60]);
        assert_eq!(lengths(&alter(some(), Altered::RepliesOnly)), [0, 60]);
        let twice = alter(some(), Altered::Twice);
        assert_eq!(lengths(&twice), [0, 0, 0, 0, 0, 0, 100, 100, 60, 60]);
        assert!(twice.is_sorted_by_key(|frame| frame.ns));
        let back = alter(some(), Altered::SetBack);
        assert!(!back.is_sorted_by_key(|frame| frame.ns));
        assert!(alter(some(), Altered::Cut(60)).iter().all(|frame| frame.bytes.len() <= 60));
        assert!(alter(some(), Altered::Holes(2)).len() < 5);
        let numbers = alter(some(), Altered::NoAcksSharedNumbers);
        let numbers: Vec<&[u8]> = numbers.iter().map(|f| &f.bytes[ETHERNET + 4..ETHERNET + 6]).collect();
        assert!(numbers.is_sorted() && numbers[0] != numbers[1]);
    }
}
