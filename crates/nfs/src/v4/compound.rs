//! COMPOUND: the request and the reply (RFC 8881 section 16.2).

use super::NfsStat;
use super::args::ArgOp;
use super::res::ResOp;
use landfast_xdr::{Bytes, BytesMut, Decode, Encode, Error, Reader};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompoundArgs {
    /// Comes back in the reply.
    pub tag: Bytes,
    /// 0, 1 or 2 here; others decode with no operations.
    pub minor_version: u32,
    /// How many operations the request announced; there are fewer in `ops` when one could not be decoded, or when
    /// there are more than the limit given to [`CompoundArgs::decode_limited`].
    pub announced: u32,
    pub ops: Vec<ArgOp>,
}

impl CompoundArgs {
    /// Decodes a request, at most `ops_max` operations of it: more are not looked at, `announced` tells. Nor is what stands behind
    /// the last operation, as in Linux' server: it is counted with the request and goes with it.
    /// Errors: [`Error`] when not even the header decodes (the RPC answer is GARBAGE_ARGS). An operation that does not
    /// decode is not an error here: see [`ArgOp::Malformed`].
    pub fn decode_limited(r: &mut Reader, ops_max: u32) -> Result<CompoundArgs, Error> {
        let tag = Bytes::decode(r)?;
        let minor_version = r.u32()?;
        let announced = r.u32()?;
        let mut ops = Vec::with_capacity(announced.min(ops_max).min(64) as usize);
        if minor_version <= 2 && announced <= ops_max {
            while ops.len() < announced as usize {
                match ArgOp::decode_lenient(r) {
                    Ok(op) => {
                        let last = op.ends_decoding();
                        ops.push(op);
                        if last {
                            break;
                        }
                    }
                    Err(e) if ops.is_empty() => return Err(e),
                    Err(_) => {
                        ops.push(ArgOp::Malformed(super::OpNum::ILLEGAL));
                        break;
                    }
                }
            }
        }
        Ok(CompoundArgs { tag, minor_version, announced, ops })
    }
}

impl Encode for CompoundArgs {
    fn encode(&self, out: &mut BytesMut) {
        self.tag.encode(out);
        self.minor_version.encode(out);
        self.ops.encode(out);
    }
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompoundRes {
    /// The status of the last operation executed.
    pub status: NfsStat,
    /// From the request.
    pub tag: Bytes,
    /// One for each operation executed.
    pub results: Vec<ResOp>,
}

impl Encode for CompoundRes {
    fn encode(&self, out: &mut BytesMut) {
        self.status.encode(out);
        self.tag.encode(out);
        self.results.encode(out);
    }
}

impl Decode for CompoundRes {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(CompoundRes { status: Decode::decode(r)?, tag: Decode::decode(r)?, results: Decode::decode(r)? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::*;
    use super::super::types::*;
    use super::super::{Bitmap, Fattr, OpNum};
    use super::*;
    use proptest::prelude::*;

    fn round(ops: Vec<ArgOp>) -> Vec<ArgOp> {
        let c = CompoundArgs { tag: Bytes::new(), minor_version: 2, announced: ops.len() as u32, ops };
        let mut r = Reader::new(c.to_bytes());
        let d = CompoundArgs::decode_limited(&mut r, 100).expect("decodes");
        assert_eq!(r.remaining(), 0);
        d.ops
    }

    #[test]
    fn an_untar_compound_round_trips() {
        let ops = vec![
            ArgOp::Sequence(SequenceArgs {
                sessionid: [7; 16],
                sequenceid: 1,
                slotid: 0,
                highest_slotid: 0,
                cachethis: true,
            }),
            ArgOp::Putrootfh,
            ArgOp::Lookup(Bytes::from_static(b"a")),
            ArgOp::Open(OpenArgs {
                seqid: 0,
                share_access: 2,
                share_deny: 0,
                owner: owner(1, b"o"),
                openhow: OpenHow::Create(CreateHow::Guarded(Fattr::default())),
                claim: OpenClaim::Null(Bytes::from_static(b"f")),
            }),
            ArgOp::Getfh,
            ArgOp::Write(WriteArgs {
                stateid: Stateid::CURRENT,
                offset: 0,
                stable: StableHow::FileSync,
                data: Bytes::from_static(b"hello"),
            }),
            ArgOp::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT }),
            ArgOp::Getattr(Bitmap::of(&[1, 33])),
        ];
        assert_eq!(round(ops.clone()), ops);
    }

    #[test]
    fn what_follows_an_unknown_operation_is_not_decoded() {
        let ops = vec![ArgOp::Putrootfh, ArgOp::Other(OpNum(4711)), ArgOp::Getfh];
        let c = CompoundArgs { tag: Bytes::new(), minor_version: 1, announced: 3, ops };
        let d = CompoundArgs::decode_limited(&mut Reader::new(c.to_bytes()), 100).expect("decodes");
        assert_eq!(d.announced, 3);
        assert_eq!(d.ops, [ArgOp::Putrootfh, ArgOp::Other(OpNum(4711))]);
    }

    #[test]
    fn more_operations_than_the_limit_are_not_looked_at() {
        let ops = vec![ArgOp::Getfh; 11];
        let c = CompoundArgs { tag: Bytes::new(), minor_version: 1, announced: 11, ops };
        let d = CompoundArgs::decode_limited(&mut Reader::new(c.to_bytes()), 10).expect("decodes");
        assert_eq!((d.announced, d.ops.len()), (11, 0));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_request_or_an_error(b in proptest::collection::vec(any::<u8>(), 0..256)) {
            let mut wire = vec![0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3];
            wire.extend(b);
            let _ = CompoundArgs::decode_limited(&mut Reader::new(Bytes::from(wire)), 100);
        }

        #[test]
        fn any_bytes_give_a_reply_or_an_error(b in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = CompoundRes::from_bytes(Bytes::from(b));
        }

        #[test]
        fn every_operation_takes_any_arguments(op in 0u32..80, b in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut wire = op.to_be_bytes().to_vec();
            wire.extend(b);
            let _ = ArgOp::decode_lenient(&mut Reader::new(Bytes::from(wire)));
        }
    }
}
