//! Reads the members of an archive in order.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use bytes::{Bytes, BytesMut};

use super::ArchiveError;
use super::header::{BLOCK, Header, Kind, RawMap, Time, gnu_sparse_block};
use super::pax::{Records, decimal};
use super::sparse::{self, PaxSparse, Segment};
use crate::limits::{
    ARCHIVE_META_MAX, ARCHIVE_READ_BUFFER, SMALL_DATA_BYTES, SMALL_DATA_TOGETHER, SPARSE_SEGMENTS_MAX,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name, unchanged.
    pub path: Vec<u8>,
    pub kind: Kind,
    /// Permission bits, 0 to 0o7777.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// The owner's name, unchanged. Empty: none.
    pub user: Vec<u8>,
    pub group: Vec<u8>,
    pub mtime: Time,
    /// The access time, if it is to be set.
    pub atime: Option<Time>,
    /// The target of a hard or symbolic link.
    pub link: Vec<u8>,
    /// The major and the minor number of a device.
    pub device: (u32, u32),
    /// The size of a file in bytes, including holes.
    pub size: u64,
    /// Bytes of data in the archive.
    pub stored: u64,
    /// For a sparse file: where the data goes. The lengths add up to `stored`.
    pub sparse: Option<Vec<Segment>>,
    /// Extended attributes (`SCHILY.xattr.`), sorted by name.
    pub xattrs: Vec<(Vec<u8>, Bytes)>,
}

#[cfg(test)]
impl Member {
    /// A member with only a name and a kind.
    pub(crate) fn plain(path: &[u8], kind: Kind) -> Member {
        Member {
            path: path.to_vec(),
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            user: Vec::new(),
            group: Vec::new(),
            mtime: Time::default(),
            atime: None,
            link: Vec::new(),
            device: (0, 0),
            size: 0,
            stored: 0,
            sparse: None,
            xattrs: Vec::new(),
        }
    }
}

/// Reads members. Data of a member that was not read is skipped before the next one.
pub struct ArchiveReader<R> {
    input: R,
    /// Bytes read so far.
    at: u64,
    /// Bytes of the current member's data that are not read yet.
    data_left: u64,
    /// Padding after that data.
    padding: u64,
    records: Records,
    ended: bool,
    /// Where the data of the next small members goes. It is read on one thread and freed on others: an allocation for each would cost
    /// more than its copy.
    room: BytesMut,
    /// Skips bytes without reading them, if the input can seek. Returns how many it skipped.
    leap: Option<Leap<R>>,
}

type Leap<R> = fn(&mut R, u64) -> io::Result<u64>;

impl<R: Read + Seek> ArchiveReader<BufReader<R>> {
    /// For an uncompressed archive in a file. What is skipped is not read.
    pub(crate) fn seeking(file: R) -> Self {
        let leap: Leap<BufReader<R>> = |input, n| {
            let buffered = input.buffer().len() as u64;
            if n <= buffered {
                input.consume(n as usize);
                return Ok(n);
            }
            let at = input.stream_position()?;
            let end = input.seek(SeekFrom::End(0))?;
            let to = end.min(at.saturating_add(n));
            input.seek(SeekFrom::Start(to))?;
            Ok(to.saturating_sub(at))
        };
        let reader = ArchiveReader::new(BufReader::with_capacity(ARCHIVE_READ_BUFFER, file));
        ArchiveReader { leap: Some(leap), ..reader }
    }
}

impl<R: Read> ArchiveReader<R> {
    /// `input` must be decompressed, and at the start of the archive.
    pub fn new(input: R) -> Self {
        ArchiveReader {
            input,
            at: 0,
            data_left: 0,
            padding: 0,
            records: Records::default(),
            ended: false,
            room: BytesMut::new(),
            leap: None,
        }
    }

    /// The next member; `None` at the end of the archive.
    pub fn next_member(&mut self) -> Result<Option<Member>, ArchiveError> {
        if self.ended {
            return Ok(None);
        }
        self.skip(self.data_left)?;
        self.end_data()?;
        self.records.forget_own();
        let (mut long_name, mut long_link) = (None, None);
        loop {
            let mut block = [0; BLOCK];
            self.block(&mut block)?;
            if block == [0; BLOCK] {
                return self.end().map(|()| None);
            }
            let first = self.at == BLOCK as u64;
            let Some(header) = Header::new(&block) else {
                return Err(if first { ArchiveError::NotTar } else { self.bad("checksum") });
            };
            let size = header.size().ok_or_else(|| self.bad("size"))?;
            match header.typeflag() {
                b'L' => long_name = Some(self.meta_text(size)?),
                b'K' => long_link = Some(self.meta_text(size)?),
                flag @ (b'x' | b'X' | b'g') => {
                    let data = self.meta(size)?;
                    self.records.add(&data, flag == b'g').ok_or_else(|| self.bad("pax record"))?;
                }
                // A volume label, and GNU's old table of long names: nothing to extract.
                b'V' | b'N' => {
                    self.skip(size)?;
                    self.skip(padding(size))?;
                }
                b'M' => return Err(self.bad("continuation of a member on another volume")),
                flag => return self.member(&header, flag, size, long_name, long_link).map(Some),
            }
        }
    }

    fn member(
        &mut self,
        header: &Header<'_>,
        flag: u8,
        size: u64,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Member, ArchiveError> {
        let records = &self.records;
        let bad = |what| ArchiveError::Header { at: self.at - BLOCK as u64, what };
        let size = match records.number("size") {
            Some(n) => n.ok_or_else(|| bad("pax size"))?,
            None => size,
        };
        let own = |key, from_header: Option<u64>, what| {
            let n = records.number(key).unwrap_or(from_header);
            n.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| bad(what))
        };
        let path = records.get("path").map(<[u8]>::to_vec).or(long_name).unwrap_or_else(|| header.name());
        let link = records.get("linkpath").map(<[u8]>::to_vec).or(long_link).unwrap_or_else(|| header.link());
        let mtime = match records.time("mtime") {
            Some(t) => t.ok_or_else(|| bad("pax mtime"))?,
            None => Time { seconds: header.mtime().ok_or_else(|| bad("mtime"))?, nanos: 0 },
        };
        let kind = match flag {
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::Char,
            b'4' => Kind::Block,
            b'5' | b'D' => Kind::Dir,
            b'6' => Kind::Fifo,
            // v7 has no type for directories.
            0 | b'0' if path.ends_with(b"/") => Kind::Dir,
            // An unknown type is extracted as a file, as POSIX requires.
            _ => Kind::File,
        };
        let mut member = Member {
            path,
            kind,
            mode: header.mode().ok_or_else(|| bad("mode"))?,
            uid: own("uid", header.uid(), "uid")?,
            gid: own("gid", header.gid(), "gid")?,
            user: records.get("uname").map(<[u8]>::to_vec).unwrap_or_else(|| header.user()),
            group: records.get("gname").map(<[u8]>::to_vec).unwrap_or_else(|| header.group()),
            mtime,
            atime: None,
            link,
            device: match kind {
                Kind::Char | Kind::Block => header.device().ok_or_else(|| bad("device number"))?,
                _ => (0, 0),
            },
            size,
            stored: size,
            sparse: None,
            xattrs: records.xattrs(),
        };
        // A hard link's header may have the size of its file, but no data follows.
        self.data_left = if kind == Kind::HardLink { 0 } else { size };
        self.padding = padding(self.data_left);
        if kind == Kind::File {
            self.make_sparse(&mut member, header, flag)?;
        } else {
            (member.size, member.stored) = (0, 0);
        }
        Ok(member)
    }

    fn make_sparse(
        &mut self,
        member: &mut Member,
        header: &Header<'_>,
        flag: u8,
    ) -> Result<(), ArchiveError> {
        let (map, size) = if flag == b'S' {
            let (mut map, size, mut more) = header.gnu_sparse().ok_or_else(|| self.bad("sparse map"))?;
            while more {
                let mut block = [0; BLOCK];
                self.block(&mut block)?;
                let (entries, another) = gnu_sparse_block(&block).ok_or_else(|| self.bad("sparse map"))?;
                if map.len() > SPARSE_SEGMENTS_MAX {
                    return Err(self.bad("sparse map too long"));
                }
                map.extend(entries);
                more = another;
            }
            (map, size)
        } else {
            match sparse::from_pax(&self.records).ok_or_else(|| self.bad("sparse records"))? {
                PaxSparse::No => return Ok(()),
                PaxSparse::Map { map, size } => (map, size),
                PaxSparse::InData { size } => (self.map_in_data()?, size),
            }
        };
        if let Some(name) = self.records.get("GNU.sparse.name") {
            member.path = name.to_vec();
        }
        member.stored = self.data_left;
        member.size = size;
        member.sparse = Some(sparse::check(&map, size, member.stored).ok_or_else(|| self.bad("sparse map"))?);
        Ok(())
    }

    /// Format 1.0: a count, then offsets and lengths, as decimal numbers, each on a line. They fill whole blocks.
    fn map_in_data(&mut self) -> Result<RawMap, ArchiveError> {
        let mut text: Vec<u8> = Vec::new();
        let mut at = 0;
        let mut numbers: Vec<u64> = Vec::new();
        let mut wanted = 1;
        while numbers.len() < wanted {
            let Some(end) = text[at..].iter().position(|b| *b == b'\n') else {
                if self.data_left < BLOCK as u64 || text.len() - at > BLOCK {
                    return Err(self.bad("sparse map"));
                }
                let mut block = [0; BLOCK];
                self.block(&mut block)?;
                self.data_left -= BLOCK as u64;
                text.drain(..at);
                at = 0;
                text.extend_from_slice(&block);
                continue;
            };
            let n = decimal(&text[at..at + end]).ok_or_else(|| self.bad("sparse map"))?;
            at += end + 1;
            numbers.push(n);
            if numbers.len() == 1 {
                if n > SPARSE_SEGMENTS_MAX as u64 {
                    return Err(self.bad("sparse map too long"));
                }
                wanted += 2 * n as usize;
            }
        }
        Ok(numbers[1..].chunks_exact(2).map(|p| (p[0], p[1])).collect())
    }

    /// Up to `max` bytes of the member's data. Empty at its end.
    pub fn data(&mut self, max: usize) -> Result<Bytes, ArchiveError> {
        let n = self.data_left.min(max as u64);
        let data = match usize::try_from(n) {
            Ok(n) if n <= SMALL_DATA_BYTES => self.take_small(n)?,
            _ => self.take(n)?.into(),
        };
        self.data_left -= n;
        Ok(data)
    }

    /// As [`ArchiveReader::take`], in memory that the next small members share.
    fn take_small(&mut self, n: usize) -> Result<Bytes, ArchiveError> {
        if self.room.len() < n {
            self.room = BytesMut::zeroed(SMALL_DATA_TOGETHER);
        }
        let mut data = self.room.split_to(n);
        let mut done = 0;
        while let Some(rest) = data.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => return Err(ArchiveError::Truncated(self.at)),
                Ok(read) => {
                    done += read;
                    self.at += read as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.io(e)),
            }
        }
        Ok(data.freeze())
    }

    /// Reads the input to its end after the end marker, so that a checksum there is verified and the writer of a pipe does not
    /// get SIGPIPE.
    fn end(&mut self) -> Result<(), ArchiveError> {
        self.ended = true;
        std::io::copy(&mut self.input, &mut std::io::sink()).map_err(|e| self.io(e))?;
        Ok(())
    }

    fn end_data(&mut self) -> Result<(), ArchiveError> {
        let padding = std::mem::take(&mut self.padding);
        self.data_left = 0;
        self.skip(padding)
    }

    fn meta(&mut self, size: u64) -> Result<Vec<u8>, ArchiveError> {
        if size > ARCHIVE_META_MAX {
            return Err(self.bad("header data too long"));
        }
        let data = self.take(size)?;
        self.skip(padding(size))?;
        Ok(data)
    }

    /// A long name, up to its NUL.
    fn meta_text(&mut self, size: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut text = self.meta(size)?;
        text.truncate(text.iter().position(|b| *b == 0).unwrap_or(text.len()));
        Ok(text)
    }

    fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<(), ArchiveError> {
        self.input.read_exact(block).map_err(|e| match (e.kind(), self.at) {
            (std::io::ErrorKind::UnexpectedEof, 0) => ArchiveError::NotTar,
            _ => self.io(e),
        })?;
        self.at += BLOCK as u64;
        Ok(())
    }

    fn take(&mut self, n: u64) -> Result<Vec<u8>, ArchiveError> {
        // Do not trust the announced size: reserve at most a megabyte at a time.
        let mut data = Vec::with_capacity(n.min(1 << 20) as usize);
        self.input.by_ref().take(n).read_to_end(&mut data).map_err(|e| self.io(e))?;
        self.at += data.len() as u64;
        if (data.len() as u64) < n { Err(ArchiveError::Truncated(self.at)) } else { Ok(data) }
    }

    fn skip(&mut self, n: u64) -> Result<(), ArchiveError> {
        let skipped = match self.leap {
            Some(leap) => leap(&mut self.input, n),
            None => io::copy(&mut self.input.by_ref().take(n), &mut io::sink()),
        };
        let skipped = skipped.map_err(|e| self.io(e))?;
        self.at += skipped;
        if skipped < n { Err(ArchiveError::Truncated(self.at)) } else { Ok(()) }
    }

    /// A compressed stream that ends too soon means a truncated archive, too.
    fn io(&self, e: std::io::Error) -> ArchiveError {
        match e.kind() {
            std::io::ErrorKind::UnexpectedEof => ArchiveError::Truncated(self.at),
            _ => ArchiveError::Io(e),
        }
    }

    fn bad(&self, what: &'static str) -> ArchiveError {
        ArchiveError::Header { at: self.at.saturating_sub(BLOCK as u64), what }
    }
}

fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}
