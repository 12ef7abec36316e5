//! The reply of a COMPOUND. Results are appended one by one.

use crate::errors;
use crate::limits;
use crate::path::Outcome;
use bytes::{BufMut, Bytes, BytesMut};
use landfast_nfs::v4::{ArgOp, CompoundArgs, NfsStat, OpNum, ResBody, ResOp};
use landfast_xdr::{Encode, padding};

/// Bytes of an RPC reply's header: transaction, reply, accepted, verifier, status (RFC 5531 section 9).
pub(super) const RPC_REPLY_HEAD: usize = 24;
/// Bytes of a result that is only a status; every COMPOUND has room for one more.
pub(super) const STATUS_ONLY: usize = 8;

pub(super) struct Reply {
    /// The encoded reply without `data`.
    out: BytesMut,
    /// READ data that is not copied into `out`: the offset in `out` before which each piece belongs.
    data: Vec<(usize, Bytes)>,
    count_at: usize,
    count: u32,
    plain: Plain,
    pub(super) status: NfsStat,
}

/// The leading results that reveal nothing about an object but its handle. They are correct even if the log fails.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    count_at: usize,
    /// How many they are, and where they end.
    count: u32,
    end: usize,
    /// The same without the last one.
    all_but_one: (u32, usize),
}

impl Plain {
    fn push(&mut self, count: u32, end: usize) {
        self.all_but_one = (self.count, self.end);
        (self.count, self.end) = (count, end);
    }

    /// The reply to send instead of `whole` when its effects may not be durable: these results, then the error of the next operation.
    pub(super) fn refused(self, whole: &[u8], args: &CompoundArgs) -> Bytes {
        let (mut count, mut end) = (self.count, self.end);
        let mut op = args.ops.get(count as usize);
        if op.is_none() && count > 1 {
            (count, end) = self.all_but_one;
            op = args.ops.get(count as usize);
        }
        let Some(kept) = whole.get(..end) else {
            let first = args.ops.first().map(ArgOp::op);
            return Reply::of_failed(&args.tag, first, NfsStat::NFS4ERR_SERVERFAULT);
        };
        let mut reply = Reply { out: kept.into(), count_at: self.count_at, count, ..Reply::new(&args.tag) };
        if let Some(op) = op.map(ArgOp::op) {
            reply.push(&ResOp::failed(op, errors::status_of_failed(op)));
        }
        reply.finish()
    }
}

fn is_plain(op: OpNum) -> bool {
    matches!(
        op,
        OpNum::SEQUENCE
            | OpNum::PUTFH
            | OpNum::PUTROOTFH
            | OpNum::PUTPUBFH
            | OpNum::SAVEFH
            | OpNum::RESTOREFH
            | OpNum::GETFH
    )
}

impl Reply {
    pub(super) fn new(tag: &Bytes) -> Reply {
        let mut out = BytesMut::with_capacity(512);
        out.put_u32(0);
        tag.encode(&mut out);
        let count_at = out.len();
        out.put_u32(0);
        let end = out.len();
        let plain = Plain { count_at, count: 0, end, all_but_one: (0, end) };
        Reply { out, data: Vec::new(), count_at, count: 0, plain, status: NfsStat::NFS4_OK }
    }

    pub(super) fn push(&mut self, res: &ResOp) {
        match &res.body {
            ResBody::Read(read) if read.data.len() >= limits::REPLY_COPY_MAX => {
                res.op.0.encode(&mut self.out);
                res.status.encode(&mut self.out);
                read.eof.encode(&mut self.out);
                self.out.put_u32(read.data.len() as u32);
                self.data.push((self.out.len(), read.data.clone()));
                self.out.put_bytes(0, padding(read.data.len()));
            }
            _ => res.encode(&mut self.out),
        }
        self.count += 1;
        self.status = res.status;
        if res.status.is_ok() && self.plain.count + 1 == self.count && is_plain(res.op) {
            self.plain.push(self.count, self.out.len());
        }
    }

    /// The results that are right even if the log fails.
    pub(super) fn plain(&self) -> Plain {
        self.plain
    }

    pub(super) fn len(&self) -> usize {
        self.out.len() + self.data.iter().map(|(_, data)| data.len()).sum::<usize>()
    }

    /// A mark of how far the reply is, for [`Reply::pop`].
    pub(super) fn mark(&self) -> usize {
        self.out.len()
    }

    /// Removes the last result; `out` is the mark from before it was appended.
    pub(super) fn pop(&mut self, out: usize) {
        // A slot may keep what is left for long, so the room for what was taken out goes.
        self.out = BytesMut::from(&self.out[..out]);
        self.data.retain(|(at, _)| *at <= out);
        self.count -= 1;
        if self.plain.count > self.count {
            (self.plain.count, self.plain.end) = self.plain.all_but_one;
        }
    }

    /// The encoded reply in pieces, at least one.
    pub(super) fn into_pieces(mut self) -> Vec<Bytes> {
        self.out[..4].copy_from_slice(&self.status.0.to_be_bytes());
        self.out[self.count_at..self.count_at + 4].copy_from_slice(&self.count.to_be_bytes());
        let mut out = self.out.freeze();
        let (mut pieces, mut done) = (Vec::with_capacity(2 * self.data.len() + 1), 0);
        for (at, data) in self.data {
            pieces.push(out.split_to(at - done));
            pieces.push(data);
            done = at;
        }
        pieces.push(out);
        pieces
    }

    pub(super) fn finish(self) -> Bytes {
        let len = self.len();
        whole(len, self.into_pieces())
    }

    /// A reply that consists of one failed operation, or of a status only.
    pub(super) fn failed(tag: &Bytes, op: Option<OpNum>, status: NfsStat) -> Outcome {
        Outcome::at_once(vec![Reply::of_failed(tag, op, status)])
    }

    pub(super) fn of_failed(tag: &Bytes, op: Option<OpNum>, status: NfsStat) -> Bytes {
        let mut reply = Reply::new(tag);
        reply.status = status;
        if let Some(op) = op {
            reply.push(&ResOp::failed(op, status));
        }
        reply.finish()
    }
}

/// Joins the pieces of a reply of `len` bytes.
pub(super) fn whole(len: usize, mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.pop().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity(len);
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    all.freeze()
}

#[derive(Clone, Copy)]
pub(super) struct Budget {
    /// Bytes of the COMPOUND result.
    pub(super) max: usize,
    /// The status of an operation whose result does not fit.
    pub(super) over: NfsStat,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_of_a_reply_takes_no_room_any_more() {
        let mut reply = Reply::new(&Bytes::new());
        reply.push(&ResOp::ok(OpNum::PUTROOTFH, ResBody::Empty));
        let (mark, before) = (reply.mark(), reply.len());
        reply.push(&ResOp::ok(OpNum::READLINK, ResBody::Readlink(vec![b'x'; 1 << 20].into())));
        reply.pop(mark);
        assert_eq!((reply.len(), reply.count), (before, 1));
        reply.push(&ResOp::failed(OpNum::READLINK, NfsStat::NFS4ERR_REP_TOO_BIG));
        let whole = reply.finish();
        let room = whole.try_into_mut().expect("nobody else has it").capacity();
        assert!(room < 4096, "{room} bytes");
    }
}
