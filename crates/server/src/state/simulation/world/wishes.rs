//! What a client asks for next.

use super::super::op::Op;
use super::super::rights::{DIRECTORY, File, Kind, Right, Who};
use super::{KINDS, World};
use crate::state::opens::{BOTH, READ, Share, WRITE};
use landfast_nfs::v4::Stateid;

impl World<'_> {
    pub(super) fn file(&mut self) -> Option<File> {
        let there: Vec<File> = self.s.names.iter().copied().flatten().collect();
        self.c.pick(&there)
    }

    pub(super) fn access(&mut self) -> (Share, Share) {
        let access = self.c.pick(&[READ, READ, WRITE, BOTH, BOTH]).unwrap_or(READ);
        let deny = self.c.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 0, READ, WRITE, BOTH]).unwrap_or(0);
        (access, deny)
    }

    fn name(&mut self) -> usize {
        self.c.below(self.names) as usize
    }

    /// A number below 100 of a kind of wish that there is in this run.
    fn wish(&mut self) -> u64 {
        for _ in 0..8 {
            let wish = self.c.below(100);
            let kind = KINDS.iter().rposition(|from| *from <= wish).unwrap_or(0);
            if self.kinds >> kind & 1 == 1 {
                return wish;
            }
        }
        0
    }

    pub(super) fn range(&mut self) -> (u64, u64) {
        let first = self.c.below(self.bytes);
        let last = if self.c.one_in(8) { u64::MAX } else { first + self.c.below(self.bytes) };
        (first, last)
    }

    /// What a client does next.
    pub(super) fn next(&mut self, who: Who) -> Option<Op> {
        let p = &mut self.p.all[who];
        if let Some(op) = p.again.pop() {
            return Some(op);
        }
        if p.tests {
            let stateids =
                self.m.of(who).map(|r| r.stateid).chain(p.free.iter().chain(&p.denied).copied()).collect();
            return Some(Op::Test { stateids });
        }
        if let Some(stateid) = p.free.pop() {
            return Some(Op::Free { stateid });
        }
        if !p.complete {
            return Some(self.reclaims(who));
        }
        let recalled = p.recalled.first().copied();
        if let Some(stateid) = recalled {
            let late = p.late;
            let right =
                self.m.of(who).find(|r| r.stateid.other == stateid.other).map(|r| (r.file, r.kind.clone()));
            match right {
                None => self.person(who).recalled.clear(),
                Some((file, kind)) => {
                    if !self.c.percent(late) {
                        if kind == (Kind::Delegation { write: true }) && self.c.one_in(3) {
                            let (access, _) = self.access();
                            let deny = 0;
                            return Some(Op::OpenFile {
                                file,
                                owner: 0,
                                access,
                                deny,
                                instead: false,
                                by: Some(stateid),
                            });
                        }
                        self.returns(who, 0, file, stateid);
                        return None;
                    }
                }
            }
        }
        let own: Vec<Right> = self.m.of(who).filter(|r| !r.reclaim).cloned().collect();
        let one = self.c.pick(&own);
        let of = |which: fn(&Kind) -> bool| {
            own.iter().filter(move |r| which(&r.kind)).cloned().collect::<Vec<_>>()
        };
        let opens = of(|k| matches!(k, Kind::Open { .. }));
        let locks = of(|k| matches!(k, Kind::Locks { .. }));
        let by = self.c.below(2) as u8;
        match self.wish() {
            0..24 => {
                let (access, deny) = self.access();
                let name = self.name();
                let (instead, make) = (!self.c.one_in(4), !self.c.one_in(4));
                Some(Op::Open { name, owner: by, access, deny, instead, make })
            }
            24..30 => {
                let (access, deny) = self.access();
                let (file, instead) = (self.file()?, !self.c.one_in(4));
                Some(Op::OpenFile { file, owner: by, access, deny, instead, by: None })
            }
            30..38 => {
                let open = self.c.pick(&opens)?;
                Some(Op::Close { file: open.file, stateid: open.stateid })
            }
            38..41 => {
                let open = self.c.pick(&opens)?;
                let Kind::Open { access, .. } = open.kind else { return None };
                let to = self.c.pick(&[READ, WRITE]).filter(|to| to & access != 0)?;
                Some(Op::Downgrade { file: open.file, stateid: open.stateid, access: to, deny: 0 })
            }
            41..53 => {
                let open = self.c.pick(&opens)?;
                let range = self.range();
                let before = locks.iter().find(|l| {
                    l.file == open.file && matches!(&l.kind, Kind::Locks { owner, open: o, .. } if *owner == by && *o == open.stateid.other)
                });
                let other = locks.iter().any(|l| {
                    l.file == open.file && matches!(&l.kind, Kind::Locks { owner, open: o, .. } if *owner == by && *o != open.stateid.other)
                });
                if other {
                    return None;
                }
                let known = before.map(|l| l.stateid);
                let exclusive = self.c.one_in(2);
                Some(Op::Lock {
                    file: open.file,
                    open: open.stateid,
                    owner: by,
                    known,
                    exclusive,
                    range,
                    reclaim: false,
                })
            }
            53..60 => {
                let lock = self.c.pick(&locks)?;
                Some(Op::Unlock { file: lock.file, stateid: lock.stateid, range: self.range() })
            }
            60..62 => {
                let (file, range, exclusive) = (self.file()?, self.range(), self.c.one_in(2));
                Some(Op::TestLock { file, owner: by, exclusive, range })
            }
            62..69 => {
                let right = one.filter(|r| !matches!(r.kind, Kind::Names { .. }));
                match right {
                    Some(r) if !self.c.one_in(6) => {
                        Some(Op::Read { file: r.file, stateid: Stateid { seqid: 0, ..r.stateid } })
                    }
                    _ => Some(Op::Read { file: self.file()?, stateid: Stateid::ANONYMOUS }),
                }
            }
            69..76 => {
                let writes = |r: &Right| match &r.kind {
                    Kind::Delegation { write } => *write,
                    Kind::Open { access, .. } => access & WRITE != 0,
                    _ => false,
                };
                match one.filter(writes) {
                    Some(r) if !self.c.one_in(6) => {
                        Some(Op::Write { file: r.file, stateid: Stateid { seqid: 0, ..r.stateid } })
                    }
                    _ => Some(Op::Write { file: self.file()?, stateid: Stateid::ANONYMOUS }),
                }
            }
            76..79 => Some(Op::SetAttributes { file: self.file()? }),
            79..84 => {
                let file = self.file()?;
                Some(Op::Look { file: if self.prints.is_multiple_of(5) { DIRECTORY } else { file } })
            }
            84..86 => Some(Op::Remove { name: self.name() }),
            86..89 => {
                let [from, to] = [(); 2].map(|()| self.name());
                Some(Op::Rename { from, to })
            }
            89..92 => {
                let r = one.filter(|r| matches!(r.kind, Kind::Delegation { .. } | Kind::Names { .. }))?;
                self.returns(who, 0, r.file, r.stateid);
                None
            }
            92..93 => Some(Op::Test { stateids: own.iter().map(|r| r.stateid).collect() }),
            93..95 => Some(Op::Directory { write: self.prints.is_multiple_of(2) }),
            95..97 => {
                // It writes to a file that it has a delegation of, and nobody knows.
                for (_, size) in &mut self.p.all[who].sizes {
                    *size += 10;
                }
                None
            }
            97..99 => self.forges(who),
            _ => Some(Op::Nothing),
        }
    }

    /// A client tries what is another's.
    pub(super) fn forges(&mut self, who: Who) -> Option<Op> {
        let others: Vec<Right> = self
            .m
            .rights
            .iter()
            .filter(|r| r.who != who && !r.reclaim && !self.p.all[r.who].v3)
            // Documented: who shows a former open's stateid first has it.
            .filter(|r| self.s.st.files.find(self.p.all[r.who].id, &r.stateid).is_ok())
            .cloned()
            .collect();
        let right = self.c.pick(&others)?;
        let (file, stateid) = (right.file, right.stateid);
        let op = match self.c.below(8) {
            0 => Op::Read { file, stateid },
            1 => Op::Write { file, stateid },
            2 => Op::Close { file, stateid },
            3 => Op::Return { file, stateid },
            4 => Op::Unlock { file, stateid, range: (0, u64::MAX) },
            5 => Op::Free { stateid },
            6 => Op::Downgrade { file, stateid, access: READ, deny: 0 },
            _ => Op::OpenFile { file, owner: 1, access: READ, deny: 0, instead: false, by: Some(stateid) },
        };
        self.m.figures.forged += 1;
        let of = self.p.all[right.who].id;
        self.sends(who, 0, op, Some(of));
        None
    }

    /// What a client does that has lost its state: it reclaims, then says that it is done.
    pub(super) fn reclaims(&mut self, who: Who) -> Op {
        let lost: Vec<Right> = self.m.of(who).filter(|r| r.reclaim).cloned().collect();
        for right in &lost {
            if let Kind::Open { owner, access, deny, .. } = right.kind {
                return Op::Reclaim { file: right.file, owner, access, deny };
            }
        }
        for right in &lost {
            if let Kind::Locks { owner, ranges, open } = &right.kind {
                let under =
                    self.m.of(who).find(|r| r.stateid.other == *open && !r.reclaim).map(|r| r.stateid);
                let (Some(open), Some((first, last, exclusive))) = (under, ranges.first().copied()) else {
                    let other = right.stateid;
                    self.m.gone(who, &other);
                    return Op::Nothing;
                };
                return Op::Lock {
                    file: right.file,
                    open,
                    owner: *owner,
                    known: None,
                    exclusive,
                    range: (first, last),
                    reclaim: true,
                };
            }
        }
        Op::Complete
    }
}
