//! Everything that reads bytes from the wire or the disk without state: no input makes it panic, and what decodes encodes to
//! something that decodes to the same.

use arbitrary::{Arbitrary, Unstructured};
use landfast_client::archive::{self, ArchiveReader};
use landfast_client::resume::{Summary, framed};
use landfast_intentlog::aligned::AlignedBuf;
use landfast_intentlog::format::{BatchBuf, BatchHeader, BatchPlace, FORMAT_VERSION, Identity, Superblock};
use landfast_intentlog::limits::{BLOCK_BYTES, RING_OFFSET};
use landfast_intentlog::replay::{ReadAt, Superblocks, read_superblocks, scan};
use landfast_nfs::v4::{AttrValues, CompoundArgs, CompoundRes, Fattr};
use landfast_nfs::{mount, nfsacl, nlm, nsm, v3};
use landfast_rpc::Credential;
use landfast_rpc::message::{Incoming, parse};
use landfast_rpc::record::Assembler;
use landfast_server::state::notes::Stamped;
use landfast_volume::record::Record;
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Reader};

/// An RPC message and the credential in it.
pub fn rpc_message(data: &[u8]) {
    if let Ok(Incoming::Call(call, body)) = parse(Bytes::copy_from_slice(data)) {
        assert!(body.len() <= data.len());
        if let Ok(cred) = Credential::from_opaque(&call.cred) {
            let again = Credential::from_opaque(&cred.to_opaque());
            assert_eq!(again.ok(), Some(cred));
        }
    }
}

/// Record marking: however the bytes are cut, the same records come out.
pub fn record_marking(data: &[u8]) {
    let Some((&piece, data)) = data.split_first() else { return };
    const MAX: usize = 4096;
    let whole = records(MAX, [data]);
    let pieces = records(MAX, data.chunks(usize::from(piece).max(1)));
    assert_eq!(whole, pieces);
    for record in whole.0 {
        assert!(record.len() <= MAX);
    }
}

fn records<'a>(max: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Bytes>, bool) {
    let (mut assembler, mut buf, mut out) = (Assembler::new(max), BytesMut::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            match assembler.next(&mut buf) {
                Ok(Some(record)) => out.push(record),
                Ok(None) => break,
                Err(_) => return (out, true),
            }
        }
    }
    (out, false)
}

/// The arguments of a COMPOUND of any minor version.
pub fn compound_args(data: &[u8]) {
    let mut r = Reader::new(Bytes::copy_from_slice(data));
    let Ok(args) = CompoundArgs::decode_limited(&mut r, 256) else { return };
    assert!(args.ops.len() <= 256 && args.ops.len() <= args.announced as usize);
    if args.ops.len() == args.announced as usize && !args.ops.iter().any(|op| op.ends_decoding()) {
        let again = CompoundArgs::decode_limited(&mut Reader::new(args.to_bytes()), 256);
        assert_eq!(again.ok(), Some(args));
    }
}

/// A COMPOUND's reply, as the client reads it.
pub fn compound_res(data: &[u8]) {
    if let Ok(res) = CompoundRes::from_bytes(Bytes::copy_from_slice(data)) {
        assert_eq!(CompoundRes::from_bytes(res.to_bytes()).ok(), Some(res));
    }
}

/// The arguments of any procedure of NFS version 3, and MOUNT's results as a client reads them.
pub fn v3_args(data: &[u8]) {
    let Some((&number, body)) = data.split_first() else { return };
    let body = Bytes::copy_from_slice(body);
    if let Ok(call) = v3::args::Call::decode(u32::from(number % 23), body.clone()) {
        let again = v3::args::Call::decode(call.number(), call.to_bytes());
        assert_eq!(again.ok(), Some(call));
    }
    if let Ok(res) = mount::MntRes::from_bytes(body) {
        assert_eq!(mount::MntRes::from_bytes(res.to_bytes()).ok(), Some(res));
    }
}

/// The arguments and results of NLM, NSM, NFSACL and MOUNT, which the server and its clients read in turn.
pub fn side_protocols(data: &[u8]) {
    fn same<T: Encode + Decode + PartialEq + std::fmt::Debug>(body: &Bytes) {
        if let Ok(read) = T::from_bytes(body.clone()) {
            assert_eq!(T::from_bytes(read.to_bytes()).ok(), Some(read));
        }
    }
    let Some((&kind, body)) = data.split_first() else { return };
    let body = &Bytes::copy_from_slice(body);
    match kind % 22 {
        0 => same::<nlm::TestArgs>(body),
        1 => same::<nlm::LockArgs>(body),
        2 => same::<nlm::CancelArgs>(body),
        3 => same::<nlm::UnlockArgs>(body),
        4 => same::<nlm::ShareArgs>(body),
        5 => same::<nlm::Notify>(body),
        6 => same::<nlm::TestRes>(body),
        7 => same::<nlm::Res>(body),
        8 => same::<nlm::ShareRes>(body),
        9 => same::<nsm::SmName>(body),
        10 => same::<nsm::MonId>(body),
        11 => same::<nsm::MyId>(body),
        12 => same::<nsm::Mon>(body),
        13 => same::<nsm::StatChange>(body),
        14 => same::<nsm::StatRes>(body),
        15 => same::<nfsacl::GetaclArgs>(body),
        16 => same::<nfsacl::SetaclArgs>(body),
        17 => same::<nfsacl::GetaclRes>(body),
        18 => same::<mount::MntRes>(body),
        19 => same::<v3::types::List<mount::MountEntry>>(body),
        20 => same::<v3::types::List<mount::ExportEntry>>(body),
        // A path: MNT and UMNT.
        _ => same::<Bytes>(body),
    }
}

/// File attributes.
pub fn attributes(data: &[u8]) {
    let Ok(raw) = Fattr::from_bytes(Bytes::copy_from_slice(data)) else { return };
    if let Ok(values) = AttrValues::from_fattr(&raw) {
        assert_eq!(AttrValues::from_fattr(&values.to_fattr(&AttrValues::KNOWN)), Ok(values));
    }
}

/// What the server's state keeps in the log.
pub fn notes(data: &[u8]) {
    if let Some(note) = Stamped::from_bytes(data) {
        assert_eq!(Stamped::from_bytes(&note.to_bytes()), Some(note));
    }
}

/// A log as it could be found: superblocks and batches that are well formed, with any fields, in any place, and then damaged.
#[derive(Debug, Arbitrary)]
struct Found {
    superblocks: [Option<Fields>; 2],
    batches: Vec<(u16, u8, u8, u8, bool, Vec<Vec<u8>>)>,
    damage: Vec<(u16, u8)>,
}

#[derive(Debug, Arbitrary)]
struct Fields {
    serial: u8,
    ring_blocks: u8,
    tail: u16,
    tail_seq: u8,
    checkpoint: u8,
    clean_end: Option<(u16, u8)>,
}

/// Bytes of the device that holds it.
const DEVICE_BYTES: usize = 128 << 10;

struct Image(Vec<u8>);

impl ReadAt for Image {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let from = at.checked_add(buf.len()).and_then(|end| self.0.get(at..end));
        buf.copy_from_slice(from.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Image {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(to) = at.checked_add(bytes.len()).and_then(|end| self.0.get_mut(at..end)) {
            to.copy_from_slice(bytes);
        }
    }
}

/// The blocks of the log: superblock, batch header, a whole small log.
pub fn log_blocks(data: &[u8]) {
    let identity = Identity { log_id: [7; 16], salt: 9 };
    let _ = Superblock::decode(data);
    if let Some(header) = BatchHeader::decode(data, &identity) {
        let _ = header.records(data, &identity);
    }
    let Ok(found) = Found::arbitrary(&mut Unstructured::new(data)) else { return };
    let mut image = Image(vec![0; DEVICE_BYTES]);
    for (slot, fields) in found.superblocks.iter().enumerate() {
        let Some(f) = fields else { continue };
        let clean_end = f.clean_end.map(|(at, seq)| (u64::from(at) * BLOCK_BYTES as u64, seq.into()));
        let block = Superblock {
            version: FORMAT_VERSION,
            identity,
            volume_id: [1; 16],
            serial: f.serial.into(),
            ring_bytes: u64::from(f.ring_blocks) * BLOCK_BYTES as u64,
            tail: u64::from(f.tail) * BLOCK_BYTES as u64,
            tail_seq: f.tail_seq.into(),
            checkpoint: f.checkpoint.into(),
            durable_end: clean_end.unwrap_or((0, 0)),
            clean_end,
        };
        image.put(slot * BLOCK_BYTES, &block.encode());
        if let Ok(read) = Superblock::decode(&block.encode()) {
            assert_eq!(read, block);
        }
    }
    for (block, generation, seq, checkpoint, restart, records) in &found.batches {
        let mut batch = BatchBuf::reusing(AlignedBuf::default());
        for record in records.iter().take(64) {
            batch.push(&[record]);
        }
        if batch.records() == 0 {
            continue;
        }
        let place = BatchPlace {
            offset: u64::from(*block) * BLOCK_BYTES as u64,
            generation: (*generation).into(),
            first_seq: (*seq).into(),
            checkpoint: (*checkpoint).into(),
            restart: *restart,
        };
        let at = RING_OFFSET as usize + usize::from(*block) * BLOCK_BYTES;
        image.put(at, batch.seal(&place, &identity));
    }
    for (at, xor) in &found.damage {
        if let Some(b) = image.0.get_mut(usize::from(*at)) {
            *b ^= xor;
        }
    }
    if let Ok(Superblocks::Found(superblock, _)) = read_superblocks(&image)
        && let Ok(scan) = scan(&image, &superblock)
    {
        assert!(scan.end >= scan.tail && scan.end - scan.tail <= superblock.ring_bytes);
        assert!(scan.records.iter().map(Vec::len).sum::<usize>() <= DEVICE_BYTES);
    }
}

/// A volume's records in the log.
pub fn log_records(data: &[u8]) {
    if let Ok(record) = Record::decode(data) {
        let again = record.encode().ok().and_then(|b| Record::decode(&b).ok());
        assert_eq!(again, Some(record));
    }
}

/// An archive for `landfast untar`.
pub fn archive(data: &[u8]) {
    let Ok((_, input)) = archive::open(Box::new(std::io::Cursor::new(data.to_vec()))) else { return };
    // A compressed stream may be a thousand times its input; so much of it is looked at.
    let mut reader = ArchiveReader::new(std::io::Read::take(input, 1 << 20));
    while let Ok(Some(member)) = reader.next_member() {
        if let Some(segments) = &member.sparse {
            assert_eq!(segments.iter().map(|s| s.len).sum::<u64>(), member.stored);
        }
        while reader.data(4096).is_ok_and(|d| !d.is_empty()) {}
    }
}

/// The journal of `--resume`. As it is: anything. Or the lines are records, whose frames are right: torn anywhere, with any bytes behind
/// it, a journal holds what its whole lines say, and what was durable is not passed over.
pub fn journal(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else { return };
    if let Some(read) = Summary::of(data) {
        assert!(read.bytes <= data.len());
        assert_eq!(Summary::of(&data[..read.bytes]), Some(read));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (mut whole, mut ends) = (String::new(), vec![0]);
    for (seq, json) in (1..).zip(text.lines()) {
        whole.push_str(&framed(seq, seq - 1, json));
        ends.push(whole.len());
    }
    let Some(read) = Summary::of(whole.as_bytes()) else { return };
    assert_eq!((read.lines as usize, read.bytes), (ends.len() - 1, whole.len()));
    let cut = whole.len() * usize::from(cut) / 256;
    let lines = ends.iter().filter(|end| **end <= cut).count() - 1;
    let torn = Summary::of(&whole.as_bytes()[..cut]);
    assert_eq!(torn.as_ref().map_or(0, |torn| torn.lines as usize), lines);
    if let Some(torn) = torn {
        assert!(torn.bytes == ends[lines] && torn.done <= read.done);
    }
    // A line in the middle is gone: the next one says that it was durable.
    if lines + 1 < ends.len() - 1 {
        let hole = [&whole[..ends[lines]], &whole[ends[lines + 1]..]].concat();
        assert_eq!(Summary::of(hole.as_bytes()), None);
    }
}
