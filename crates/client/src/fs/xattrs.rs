//! Sets and removes extended attributes (RFC 8276).

use std::collections::VecDeque;

use bytes::Bytes;
use landfast_nfs::v4::args::{SetxattrArgs, SetxattrOption};
use landfast_nfs::v4::{ArgOp, NfsStat, OpNum};

use super::action::{Action, AfterLostReply, Answer, Budget, Wants};
use super::item::Item;
use super::together::together;
use super::{Nfs, Outcome, Xattr};
use crate::compound::{OpError, Results};

/// SETXATTR and REMOVEXATTR, as many in a round as fit. Repeating them does no harm.
#[derive(Debug)]
struct SetXattrs {
    left: VecDeque<ArgOp>,
    /// How many of them are in this round.
    count: usize,
}

fn bytes(op: &ArgOp) -> usize {
    match op {
        ArgOp::Setxattr(args) => args.key.len() + args.value.len() + 32,
        ArgOp::Removexattr(name) => name.len() + 32,
        _ => 32,
    }
}

together!(SetXattrs);

impl Action for SetXattrs {
    type Out = ();

    fn wants(&self) -> Wants {
        Wants::Object { follow: false }
    }

    fn ops(&mut self, _: Option<&Bytes>, room: &Budget, out: &mut Vec<ArgOp>) {
        let mut request = 0;
        let fits = |op: &&ArgOp| {
            request += bytes(op);
            request <= room.request
        };
        let by_reply = match room.packs_data {
            true => (room.reply / 32).min(room.ops).max(1),
            false => 1,
        };
        self.count = self.left.iter().take(by_reply).take_while(fits).count().max(1);
        out.extend(self.left.iter().take(self.count).cloned());
    }

    fn changes(&self) -> bool {
        true
    }

    fn answer(&mut self, results: &mut Results) -> Result<Answer<()>, OpError> {
        for _ in 0..self.count {
            let Some(op) = self.left.front().map(ArgOp::op) else { break };
            match results.take(op) {
                Ok(_) => drop(self.left.pop_front()),
                // It is gone already. The results end here.
                Err(OpError::Failed { op: OpNum::REMOVEXATTR, status: NfsStat::NFS4ERR_NOXATTR }) => {
                    self.left.pop_front();
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(if self.left.is_empty() { Answer::Done(()) } else { Answer::More })
    }

    fn lost(&mut self) -> AfterLostReply {
        AfterLostReply::Again
    }
}

impl Nfs {
    /// Changes extended attributes of objects (RFC 8276, version 4.2): the path, those to set, and names to remove.
    /// Names have no namespace. Removing an attribute that does not exist is no error.
    pub async fn set_xattrs<P: AsRef<[u8]>>(
        &self,
        changes: impl IntoIterator<Item = (P, Vec<Xattr>, Vec<Bytes>)>,
    ) -> Vec<Outcome<()>> {
        let items = changes.into_iter().map(|(path, set, remove)| {
            let set = set.into_iter().map(|(key, value)| {
                ArgOp::Setxattr(SetxattrArgs { option: SetxattrOption::Either, key, value })
            });
            let left: VecDeque<ArgOp> = set.chain(remove.into_iter().map(ArgOp::Removexattr)).collect();
            Item::new(path.as_ref(), SetXattrs { left, count: 0 })
        });
        self.all(items).await
    }
}
