//! Reads the frames of a pcap or pcapng file in bounded memory.

use crate::limits::{BLOCK_MAX, FRAME_MAX, INTERFACES_MAX, READ_BUFFER, SKIPPED_MAX};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Nanoseconds since 1970.
    pub ns: i64,
    /// Number of its link layer in libpcap's registry.
    pub link: i32,
    pub data: &'a [u8],
    /// Its length on the wire, in bytes.
    pub wire_len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// After a whole frame.
    Whole,
    /// Within a frame: the capturing program was stopped, or the file was truncated.
    CutOff,
    /// The bytes after this offset (after decompression) are no capture.
    Damaged(u64),
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Not a capture.
    #[error(
        "not a capture: it begins neither as pcap nor as pcapng does; tcpdump -w and Wireshark write such files, and its editcap -F pcap \
         makes them of other formats (snoop)"
    )]
    NotACapture,
    /// Not even the header is complete.
    #[error("cut off in its header: there is no frame in it")]
    HeaderCutOff,
    #[error("empty: not even the header of a capture is there")]
    Empty,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What the parser does not report about the reader: its error, and whether there were enough bytes to detect the
/// format.
#[derive(Debug, Default)]
struct ReadState {
    error: Option<io::Error>,
    has_magic: bool,
}

type Failure = Arc<Mutex<ReadState>>;

/// Ensures that the parser's first read suffices to detect the format, and keeps a read error.
struct Input<R> {
    inner: R,
    begun: bool,
    failure: Failure,
}

/// Length of the pcap header, enough of a pcapng file to know the length of its first block.
const HEADER: usize = 24;
/// Length of the magic number.
const MAGIC: usize = 4;

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (mut have, mut want) = (0, 1);
        if !std::mem::replace(&mut self.begun, true) {
            want = HEADER;
        }
        while have < want.min(buf.len()) {
            match self.inner.read(&mut buf[have..]) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.failure.lock().unwrap_or_else(PoisonError::into_inner).error = Some(e);
                    return Err(io::ErrorKind::Other.into());
                }
            }
            if want == HEADER
                && have >= HEADER
                && let Some(block) = first_block(buf)
            {
                want = block;
            }
        }
        if want > 1 {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).has_magic = have >= MAGIC;
        }
        Ok(have)
    }
}

fn first_block(buf: &[u8]) -> Option<usize> {
    let word = |at: usize| <[u8; 4]>::try_from(buf.get(at..at + 4)?).ok();
    let len = match (word(0)?, word(8)?) {
        ([0x0a, 0x0d, 0x0d, 0x0a], [0x1a, 0x2b, 0x3c, 0x4d]) => u32::from_be_bytes(word(4)?),
        ([0x0a, 0x0d, 0x0d, 0x0a], [0x4d, 0x3c, 0x2b, 0x1a]) => u32::from_le_bytes(word(4)?),
        _ => return None,
    };
    usize::try_from(len).ok()
}

/// An interface of a pcapng section: link layer, time units per second, seconds to add.
struct Interface {
    link: i32,
    resolution: u64,
    offset: i64,
}

/// What the headers said that came by.
struct State {
    is_pcapng: bool,
    /// The byte order of the file, or of the current section.
    is_big_endian: bool,
    link: i32,
    nanoseconds: bool,
    interfaces: Vec<Interface>,
}

impl State {
    /// The length of a block that begins with these bytes.
    fn block_len(&self, head: &[u8]) -> Option<u32> {
        // The length of a frame is the third of four words before it.
        let (at, beside) = if self.is_pcapng { (4, 0) } else { (8, 16) };
        let word = <[u8; 4]>::try_from(head.get(at..at + 4)?).ok()?;
        let len = if self.is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) };
        len.checked_add(beside)
    }
}

pub struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    failure: Failure,
    state: State,
    last_ns: i64,
    capacity: usize,
    read: u64,
    strange: u64,
}

impl Capture {
    /// Opens `input`, which must not be compressed.
    pub fn open(input: impl Read + Send + 'static) -> Result<Capture, SourceError> {
        let failure = Failure::default();
        let input = Input { inner: input, begun: false, failure: failure.clone() };
        let reader = create_reader(READ_BUFFER, input).map_err(|e| match (taken(&failure), e) {
            (Some(e), _) => SourceError::Io(e),
            (None, PcapError::Eof) => SourceError::Empty,
            (None, PcapError::Incomplete(_)) if has_magic(&failure) => SourceError::HeaderCutOff,
            _ => SourceError::NotACapture,
        })?;
        Ok(Capture {
            reader,
            failure,
            state: State {
                is_pcapng: false,
                is_big_endian: false,
                link: -1,
                nanoseconds: false,
                interfaces: Vec::new(),
            },
            last_ns: 0,
            capacity: READ_BUFFER,
            read: 0,
            strange: 0,
        })
    }

    /// Frames whose link layer or length is unknown, and blocks that are too large.
    pub fn strange(&self) -> u64 {
        self.strange
    }

    /// Calls `f` with each frame up to the end of what can be read.
    pub fn each(&mut self, mut f: impl FnMut(&Frame<'_>)) -> Result<End, SourceError> {
        loop {
            let wanted = match self.reader.next() {
                Ok((len, block)) => {
                    match frame(&block, &mut self.state, self.last_ns) {
                        Some(Ok(frame)) => {
                            self.last_ns = frame.ns;
                            f(&frame);
                        }
                        Some(Err(())) => self.strange += 1,
                        None => {}
                    }
                    drop(block);
                    self.read += len as u64;
                    if len == 0 {
                        return Ok(End::Damaged(self.read));
                    }
                    self.reader.consume(len);
                    continue;
                }
                Err(PcapError::Eof) => return Ok(End::Whole),
                Err(PcapError::UnexpectedEof) => return Ok(End::CutOff),
                Err(PcapError::Incomplete(_)) => false,
                Err(PcapError::BufferTooSmall) => true,
                Err(PcapError::ReadError) => return Err(self.failed()),
                Err(_) => return Ok(End::Damaged(self.read)),
            };
            let before = self.reader.data().len();
            if wanted || before >= self.capacity {
                if self.capacity >= BLOCK_MAX {
                    let len = self.state.block_len(self.reader.data());
                    let Some(len) =
                        len.filter(|len| (before..=SKIPPED_MAX as usize).contains(&(*len as usize)))
                    else {
                        return Ok(End::Damaged(self.read));
                    };
                    if !self.skip(len as usize)? {
                        return Ok(End::CutOff);
                    }
                    continue;
                }
                self.capacity *= 2;
                self.reader.grow(self.capacity);
            }
            if self.reader.refill().is_err() {
                return Err(self.failed());
            }
            if self.reader.reader_exhausted() && self.reader.data().len() == before && wanted {
                return Ok(End::CutOff);
            }
        }
    }

    /// Skips so many bytes. Returns whether they were there.
    fn skip(&mut self, len: usize) -> Result<bool, SourceError> {
        self.strange += 1;
        let mut left = len;
        loop {
            let n = self.reader.data().len().min(left);
            self.reader.consume(n);
            self.read += n as u64;
            left -= n;
            if left == 0 {
                return Ok(true);
            }
            if self.reader.reader_exhausted() {
                return Ok(false);
            }
            if self.reader.refill().is_err() {
                return Err(self.failed());
            }
        }
    }

    fn failed(&self) -> SourceError {
        SourceError::Io(taken(&self.failure).unwrap_or_else(|| io::ErrorKind::Other.into()))
    }
}

fn taken(failure: &Failure) -> Option<io::Error> {
    failure.lock().unwrap_or_else(PoisonError::into_inner).error.take()
}

fn has_magic(failure: &Failure) -> bool {
    failure.lock().unwrap_or_else(PoisonError::into_inner).has_magic
}

fn beginning(frame: &[u8]) -> &[u8] {
    &frame[..frame.len().min(FRAME_MAX)]
}

/// The frame in a block. `None`: the block contains something else.
fn frame<'a>(block: &PcapBlockOwned<'a>, state: &mut State, last_ns: i64) -> Option<Result<Frame<'a>, ()>> {
    let State { is_pcapng, is_big_endian, link, nanoseconds, interfaces } = state;
    Some(match block {
        PcapBlockOwned::LegacyHeader(header) => {
            *is_big_endian = header.is_bigendian();
            // The upper bits say whether frames end with a checksum.
            *link = header.network.0 & 0xffff;
            *nanoseconds = header.is_nanosecond_precision();
            return None;
        }
        PcapBlockOwned::Legacy(b) => {
            let ns = i64::from(b.ts_usec) * if *nanoseconds { 1 } else { 1000 };
            let ns = i64::from(b.ts_sec) * 1_000_000_000 + ns;
            Ok(Frame { ns, link: *link, data: beginning(b.data), wire_len: b.origlen.max(b.caplen) })
        }
        PcapBlockOwned::NG(Block::SectionHeader(header)) => {
            (*is_pcapng, *is_big_endian) = (true, header.big_endian());
            interfaces.clear();
            return None;
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(b)) => {
            if interfaces.len() < INTERFACES_MAX {
                let resolution = b.ts_resolution().unwrap_or(1_000_000).max(1);
                // The parser reads it as little-endian in any section.
                let offset = if *is_big_endian { b.ts_offset().swap_bytes() } else { b.ts_offset() };
                interfaces.push(Interface { link: b.linktype.0, resolution, offset });
            }
            return None;
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(b)) => {
            let interface = usize::try_from(b.if_id).ok().and_then(|i| interfaces.get(i));
            let data = usize::try_from(b.caplen).ok().and_then(|len| b.data.get(..len));
            let (Some(interface), Some(data)) = (interface, data) else { return Some(Err(())) };
            let units = (u64::from(b.ts_high) << 32) | u64::from(b.ts_low);
            let ns = u128::from(units) * 1_000_000_000 / u128::from(interface.resolution);
            let ns = i64::try_from(ns).unwrap_or(i64::MAX);
            let ns = ns.saturating_add(interface.offset.saturating_mul(1_000_000_000));
            let data = beginning(data);
            Ok(Frame { ns, link: interface.link, data, wire_len: b.origlen.max(b.caplen) })
        }
        PcapBlockOwned::NG(Block::SimplePacket(b)) => {
            let Some(interface) = interfaces.first() else { return Some(Err(())) };
            let len = b.data.len().min(b.origlen as usize);
            let data = beginning(&b.data[..len]);
            Ok(Frame { ns: last_ns, link: interface.link, data, wire_len: b.origlen })
        }
        PcapBlockOwned::NG(_) => return None,
    })
}
