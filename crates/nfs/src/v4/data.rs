//! The data operations of NFSv4.2 on the wire (RFC 7862 section 15, RFC 7863): space, holes, copies, clones, advice.

use super::NfsStat;
use super::attr::Bitmap;
use super::limits;
use super::types::{StableHow, Stateid, Verifier};
use super::v40::ClientAddr;
use landfast_xdr::{Bytes, Decode, Encode};

/// `data_content4` (RFC 7862 section 15.11): data.
pub const CONTENT_DATA: u32 = 0;
/// `data_content4`: a hole.
pub const CONTENT_HOLE: u32 = 1;

/// The numbers of `IO_ADVISE_type4` (RFC 7862 section 15.5), which stand in a bitmap.
pub mod advice {
    pub const NORMAL: u32 = 0;
    pub const SEQUENTIAL: u32 = 1;
    pub const SEQUENTIAL_BACKWARDS: u32 = 2;
    pub const RANDOM: u32 = 3;
    pub const WILLNEED: u32 = 4;
    pub const WILLNEED_OPPORTUNISTIC: u32 = 5;
    pub const DONTNEED: u32 = 6;
    pub const NOREUSE: u32 = 7;
    pub const READ: u32 = 8;
    pub const WRITE: u32 = 9;
    pub const INIT_PROXIMITY: u32 = 10;
}

/// ALLOCATE and DEALLOCATE (RFC 7862 sections 15.1 and 15.4).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RangeArgs {
    /// As for a WRITE.
    pub stateid: Stateid,
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// SEEK (RFC 7862 section 15.11).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SeekArgs {
    /// As for a READ.
    pub stateid: Stateid,
    pub offset: u64,
    /// [`CONTENT_DATA`] or [`CONTENT_HOLE`].
    pub what: u32,
}

/// SEEK, when it succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SeekRes {
    /// Nothing was found before the end of the file.
    pub eof: bool,
    /// Where it was found.
    pub offset: u64,
}

/// IO_ADVISE (RFC 7862 section 15.5).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct IoAdviseArgs {
    /// As for a READ.
    pub stateid: Stateid,
    pub offset: u64,
    /// Bytes; 0 for all to the end.
    pub count: u64,
    pub hints: Bitmap,
}

/// `netloc4` (RFC 7862 section 4.5): a server.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum NetLoc {
    #[xdr(tag = 1)]
    Name(Bytes),
    #[xdr(tag = 2)]
    Url(Bytes),
    #[xdr(tag = 3)]
    Addr(ClientAddr),
}

/// COPY (RFC 7862 section 15.2): from the saved file to the current one.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CopyArgs {
    /// As for a READ of the source.
    pub src_stateid: Stateid,
    /// As for a WRITE of the destination.
    pub dst_stateid: Stateid,
    /// First byte in the source.
    pub src_offset: u64,
    /// First byte in the destination.
    pub dst_offset: u64,
    /// Bytes; 0 for all to the end of the source.
    pub count: u64,
    pub consecutive: bool,
    /// The reply has to wait for the end.
    pub synchronous: bool,
    /// The server that the source is on; none for this one.
    #[xdr(max = limits::SOURCE_SERVERS_MAX)]
    pub source_server: Vec<NetLoc>,
}

/// `write_response4` (RFC 7862 section 15.2).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteResponse {
    /// The operation goes on, under this stateid. (`wr_callback_id<1>` looks like optional data on the wire.)
    pub callback_id: Option<Stateid>,
    /// Bytes written.
    pub count: u64,
    /// How stable they are.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost.
    pub writeverf: Verifier,
}

/// `copy_requirements4` (RFC 7862 section 15.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CopyRequirements {
    pub consecutive: bool,
    /// The reply waits for the end.
    pub synchronous: bool,
}

/// COPY, when it succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CopyRes {
    /// What was written.
    pub response: WriteResponse,
    /// What was done of what could be required.
    pub requirements: CopyRequirements,
}

/// OFFLOAD_STATUS (RFC 7862 section 15.9), when it succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OffloadStatusRes {
    /// Bytes so far.
    pub count: u64,
    /// How it ended, if it has. (`osr_complete<1>` looks like optional data on the wire.)
    pub complete: Option<NfsStat>,
}

/// CLONE (RFC 7862 section 15.13): from the saved file to the current one.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CloneArgs {
    /// As for a READ of the source.
    pub src_stateid: Stateid,
    /// As for a WRITE of the destination.
    pub dst_stateid: Stateid,
    /// First byte in the source.
    pub src_offset: u64,
    /// First byte in the destination.
    pub dst_offset: u64,
    /// Bytes; 0 for all to the end of the source.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::super::{ArgOp, OpNum, ResBody, ResOp};
    use super::*;
    use landfast_xdr::Reader;
    use proptest::prelude::*;

    fn stateid(n: u8) -> Stateid {
        Stateid { seqid: 1, other: [n; 12] }
    }

    /// The bytes are RFC 7863's, written by hand.
    #[test]
    fn rfc7863_copy_and_its_result_byte_by_byte() {
        let copy = ArgOp::Copy(CopyArgs {
            src_stateid: stateid(1),
            dst_stateid: stateid(2),
            src_offset: 3,
            dst_offset: 4,
            count: 5,
            consecutive: true,
            synchronous: false,
            source_server: vec![NetLoc::Url(Bytes::from_static(b"nfs:"))],
        });
        let mut want = vec![0, 0, 0, 60, 0, 0, 0, 1];
        want.extend([1; 12]);
        want.extend([0, 0, 0, 1]);
        want.extend([2; 12]);
        for n in [3, 4, 5] {
            want.extend([0, 0, 0, 0, 0, 0, 0, n]);
        }
        want.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 4]);
        want.extend(b"nfs:");
        assert_eq!(copy.to_bytes(), want);
        assert_eq!(ArgOp::decode_lenient(&mut Reader::new(want.into())), Ok(copy));
        let response = WriteResponse {
            callback_id: Some(stateid(7)),
            count: 9,
            committed: StableHow::FileSync,
            writeverf: [8; 8],
        };
        let requirements = CopyRequirements { consecutive: true, synchronous: false };
        let res = ResOp::ok(OpNum::COPY, ResBody::Copy(CopyRes { response, requirements }));
        let mut want = vec![0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
        want.extend([7; 12]);
        want.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 2]);
        want.extend([8; 8]);
        want.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(res.to_bytes(), want);
        assert_eq!(ResOp::from_bytes(want.into()), Ok(res));
    }

    #[test]
    fn results_round_trip_and_more_than_one_callback_id_is_an_error() {
        let all = [
            ResOp::ok(OpNum::ALLOCATE, ResBody::Empty),
            ResOp::ok(OpNum::DEALLOCATE, ResBody::Empty),
            ResOp::ok(OpNum::CLONE, ResBody::Empty),
            ResOp::ok(OpNum::OFFLOAD_CANCEL, ResBody::Empty),
            ResOp::ok(OpNum::SEEK, ResBody::Seek(SeekRes { eof: true, offset: 1 << 40 })),
            ResOp::ok(OpNum::IO_ADVISE, ResBody::IoAdvise(Bitmap::of(&[advice::RANDOM]))),
            ResOp::ok(
                OpNum::OFFLOAD_STATUS,
                ResBody::OffloadStatus(OffloadStatusRes { count: 7, complete: Some(NfsStat::NFS4ERR_IO) }),
            ),
            ResOp {
                op: OpNum::COPY,
                status: NfsStat::NFS4ERR_OFFLOAD_NO_REQS,
                body: ResBody::CopyRequirements(CopyRequirements { consecutive: true, synchronous: false }),
            },
            ResOp::failed(OpNum::COPY, NfsStat::NFS4ERR_INVAL),
        ];
        for res in all {
            assert_eq!(ResOp::from_bytes(res.to_bytes()), Ok(res));
        }
        let mut two = vec![0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 2];
        two.extend([0; 80]);
        assert!(ResOp::from_bytes(two.into()).is_err());
    }

    proptest! {
        #[test]
        fn arguments_round_trip(offset in any::<u64>(), length in any::<u64>(), other in any::<[u8; 12]>(),
                                flags in any::<[bool; 2]>(), what in any::<u32>(), hints in 0u32..11) {
            let s = Stateid { seqid: what, other };
            let range = RangeArgs { stateid: s, offset, length };
            let ops = [
                ArgOp::Allocate(range.clone()),
                ArgOp::Deallocate(range),
                ArgOp::Seek(SeekArgs { stateid: s, offset, what }),
                ArgOp::IoAdvise(IoAdviseArgs { stateid: s, offset, count: length, hints: Bitmap::of(&[hints]) }),
                ArgOp::OffloadCancel(s),
                ArgOp::OffloadStatus(s),
                ArgOp::Clone(CloneArgs {
                    src_stateid: s, dst_stateid: s, src_offset: offset, dst_offset: length, count: offset,
                }),
                ArgOp::Copy(CopyArgs {
                    src_stateid: s, dst_stateid: s, src_offset: offset, dst_offset: length, count: offset,
                    consecutive: flags[0], synchronous: flags[1],
                    source_server: vec![
                        NetLoc::Name(Bytes::from_static(b"n")),
                        NetLoc::Addr(ClientAddr { netid: Bytes::from_static(b"tcp"), addr: Bytes::new() }),
                    ],
                }),
            ];
            for op in ops {
                prop_assert_eq!(ArgOp::decode_lenient(&mut Reader::new(op.to_bytes())), Ok(op));
            }
        }

        #[test]
        fn any_bytes_give_a_result_or_an_error(op in 59u32..72, b in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut wire = op.to_be_bytes().to_vec();
            wire.extend([0; 4]);
            wire.extend(b);
            let _ = ResOp::from_bytes(wire.into());
        }
    }
}
