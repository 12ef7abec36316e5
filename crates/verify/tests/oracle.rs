//! The whole way from plan to report against a server in memory that can forget: every acknowledged operation that it drops
//! and on which something depends is found, and nothing is found on one that forgets nothing.

use landfast_verify::blocking::nfs::{Attr, Created, Creation, Fh, Nfs, SetAttr, Written};
use landfast_verify::check::examine;
use landfast_verify::contents::OpNo;
use landfast_verify::error::{Error, Meaning, Result};
use landfast_verify::journal::{Contents, Header, Record};
use landfast_verify::judge::FileKind;
use landfast_verify::model::Model;
use landfast_verify::op::{Kind, Op};
use landfast_verify::perform::perform;
use landfast_verify::plan::{Abilities, Plan};
use landfast_verify::report::{Report, Verifier};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
struct Node {
    kind: FileKind,
    mode: u32,
    mtime: (i64, u32),
    bytes: Vec<u8>,
    xattrs: BTreeMap<String, Vec<u8>>,
    entries: BTreeMap<String, u64>,
}

/// A filesystem in memory: a handle is a file id.
#[derive(Debug, Clone)]
struct Memory {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    verf: [u8; 8],
    unstable: BTreeMap<u64, Vec<(usize, Vec<u8>)>>,
    /// The next call that changes anything is answered and not done.
    lies: bool,
    /// So many COMMITs are refused.
    refuses: usize,
    clock: i64,
}

const ROOT: u64 = 1;

fn refusal(meaning: Meaning) -> Error {
    Error::Refused { op: "memory".into(), status: format!("{meaning:?}"), meaning, code: None }
}

impl Memory {
    fn new() -> Memory {
        let mut m = Memory {
            nodes: BTreeMap::new(),
            next: ROOT,
            verf: [1; 8],
            unstable: BTreeMap::new(),
            lies: false,
            refuses: 0,
            clock: 5,
        };
        m.node(FileKind::Dir, 0o755);
        m
    }

    fn node(&mut self, kind: FileKind, mode: u32) -> u64 {
        let id = self.next;
        self.next += 1;
        let (bytes, xattrs, entries) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        self.nodes.insert(id, Node { kind, mode, mtime: (0, 0), bytes, xattrs, entries });
        id
    }

    fn id(&self, fh: &Fh) -> Result<u64> {
        let id = fh.as_slice().try_into().map(u64::from_be_bytes).unwrap_or(0);
        if self.nodes.contains_key(&id) { Ok(id) } else { Err(refusal(Meaning::Stale)) }
    }

    fn get(&mut self, fh: &Fh) -> Result<&mut Node> {
        let id = self.id(fh)?;
        self.clock += 1;
        Ok(self.nodes.get_mut(&id).unwrap())
    }

    fn attr_of(&self, id: u64) -> Attr {
        let n = &self.nodes[&id];
        Attr { kind: n.kind, mode: n.mode, size: n.bytes.len() as u64, fileid: id, mtime: n.mtime }
    }

    /// Whether this change is to be done, and not only answered.
    fn honest(&mut self) -> bool {
        !std::mem::take(&mut self.lies)
    }

    fn make(&mut self, dir: &Fh, name: &str, kind: FileKind, mode: u32) -> Result<Created> {
        if self.get(dir)?.entries.contains_key(name) {
            return Err(refusal(Meaning::Other));
        }
        let id = self.node(kind, mode);
        if self.honest() {
            self.get(dir)?.entries.insert(name.into(), id);
        } else {
            self.nodes.remove(&id);
        }
        Ok(Created { fh: id.to_be_bytes().to_vec(), fileid: id, mode_set: true, looked_up: false })
    }

    fn sweep(&mut self) {
        let live: BTreeSet<u64> =
            self.nodes.values().flat_map(|n| n.entries.values().copied()).chain([ROOT]).collect();
        self.nodes.retain(|id, _| live.contains(id));
    }

    /// What a power cut leaves of an honest server: unstable data goes, in part, and the verifier is another one.
    fn cut(&mut self, keep_one_in: usize) {
        self.verf = [2; 8];
        for (n, (id, writes)) in std::mem::take(&mut self.unstable).into_iter().enumerate() {
            if let Some(node) = self.nodes.get_mut(&id).filter(|_| keep_one_in > 0 && n % keep_one_in == 0) {
                writes.iter().for_each(|(offset, data)| put(&mut node.bytes, *offset, data));
            }
        }
    }

    /// As a reader before the cut sees it.
    fn settle(&mut self) {
        for (id, writes) in std::mem::take(&mut self.unstable) {
            if let Some(node) = self.nodes.get_mut(&id) {
                writes.iter().for_each(|(offset, data)| put(&mut node.bytes, *offset, data));
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

impl Nfs for Memory {
    fn base(&mut self) -> Result<(Fh, Attr)> {
        Ok((ROOT.to_be_bytes().to_vec(), self.attr_of(ROOT)))
    }
    fn lookup(&mut self, dir: &Fh, name: &str) -> Result<(Fh, Attr)> {
        let id = *self.get(dir)?.entries.get(name).ok_or_else(|| refusal(Meaning::NoEntry))?;
        Ok((id.to_be_bytes().to_vec(), self.attr_of(id)))
    }
    fn getattr(&mut self, fh: &Fh) -> Result<Attr> {
        self.id(fh).map(|id| self.attr_of(id))
    }
    fn create(&mut self, dir: &Fh, name: &str, mode: u32, _: Creation) -> Result<Created> {
        self.make(dir, name, FileKind::File, mode)
    }
    fn mkdir(&mut self, dir: &Fh, name: &str, mode: u32) -> Result<Created> {
        self.make(dir, name, FileKind::Dir, mode)
    }
    fn symlink(&mut self, dir: &Fh, name: &str, text: &str) -> Result<Created> {
        let made = self.make(dir, name, FileKind::Symlink, 0o777)?;
        if let Ok(node) = self.get(&made.fh) {
            node.bytes = text.as_bytes().to_vec();
        }
        Ok(made)
    }
    fn write(&mut self, fh: &Fh, offset: u64, data: Vec<u8>, stable: bool) -> Result<Written> {
        let (id, count, clock) = (self.id(fh)?, data.len() as u32, self.clock);
        if self.honest() {
            self.get(fh)?.mtime = (clock, 1);
            if stable {
                // The server has ordered them: what was pending is there before.
                let (before, pending) =
                    (self.nodes[&id].bytes.clone(), self.unstable.remove(&id).unwrap_or_default());
                let kept =
                    pending.into_iter().flat_map(|(o, d)| outside(o, d, offset as usize, count as usize));
                let kept: Vec<_> = kept.collect();
                let node = self.nodes.get_mut(&id).unwrap();
                node.bytes = before;
                put(&mut node.bytes, offset as usize, &data);
                self.unstable.insert(id, kept);
            } else {
                self.unstable.entry(id).or_default().push((offset as usize, data));
            }
        }
        Ok(Written { count, stable, verf: self.verf })
    }
    fn commit(&mut self, fh: &Fh) -> Result<[u8; 8]> {
        let id = self.id(fh)?;
        if self.refuses > 0 {
            self.refuses -= 1;
            return Err(refusal(Meaning::Other));
        }
        let writes = self.unstable.remove(&id).unwrap_or_default();
        if self.honest() {
            writes.iter().for_each(|(o, d)| put(&mut self.nodes.get_mut(&id).unwrap().bytes, *o, d));
        }
        Ok(self.verf)
    }
    fn set(&mut self, fh: &Fh, what: SetAttr) -> Result<()> {
        let id = self.id(fh)?;
        if self.honest() {
            let clock = self.clock;
            let node = self.get(fh)?;
            match what {
                SetAttr::Mode(mode) => node.mode = mode,
                SetAttr::Mtime(s) => node.mtime = (i64::from(s), 0),
                SetAttr::Size(size) => {
                    node.bytes.resize(size as usize, 0);
                    node.mtime = (clock, 1);
                    for (offset, data) in self.unstable.entry(id).or_default() {
                        data.truncate((size as usize).saturating_sub(*offset));
                    }
                    self.unstable.entry(id).or_default().retain(|w| !w.1.is_empty());
                }
            }
        }
        Ok(())
    }
    fn link(&mut self, fh: &Fh, dir: &Fh, name: &str) -> Result<()> {
        let id = self.id(fh)?;
        if self.honest() {
            self.get(dir)?.entries.insert(name.into(), id);
        }
        Ok(())
    }
    fn rename(&mut self, from: &Fh, old: &str, to: &Fh, new: &str) -> Result<()> {
        if self.honest() {
            let id = self.get(from)?.entries.remove(old).ok_or_else(|| refusal(Meaning::NoEntry))?;
            self.get(to)?.entries.insert(new.into(), id);
            self.sweep();
        }
        Ok(())
    }
    fn remove(&mut self, dir: &Fh, name: &str, _: bool) -> Result<()> {
        if self.honest() {
            self.get(dir)?.entries.remove(name).ok_or_else(|| refusal(Meaning::NoEntry))?;
            self.sweep();
        }
        Ok(())
    }
    fn names(&mut self, dir: &Fh, _: usize) -> Result<Vec<String>> {
        Ok(self.get(dir)?.entries.keys().cloned().collect())
    }
    fn read(&mut self, fh: &Fh, offset: u64, count: u32) -> Result<(Vec<u8>, bool)> {
        let bytes = &self.get(fh)?.bytes;
        let end = bytes.len().min((offset + u64::from(count)) as usize);
        Ok((bytes[(offset as usize).min(end)..end].to_vec(), end == bytes.len()))
    }
    fn readlink(&mut self, fh: &Fh) -> Result<String> {
        Ok(String::from_utf8(self.get(fh)?.bytes.clone()).unwrap())
    }
    fn set_xattr(&mut self, fh: &Fh, name: &str, value: Option<Vec<u8>>) -> Result<()> {
        if self.honest() {
            let xattrs = &mut self.get(fh)?.xattrs;
            match value {
                Some(v) => xattrs.insert(name.into(), v),
                None => xattrs.remove(name),
            };
        }
        Ok(())
    }
    fn new_xattr(&mut self, fh: &Fh, name: &str, value: Vec<u8>) -> Result<()> {
        if self.get(fh)?.xattrs.contains_key(name) {
            return Err(refusal(Meaning::Exists));
        }
        self.set_xattr(fh, name, Some(value))
    }
    fn allocate(&mut self, fh: &Fh, len: u64) -> Result<()> {
        let node = self.get(fh)?;
        node.bytes.resize(node.bytes.len().max(len as usize), 0);
        Ok(())
    }
    fn close_all(&mut self) -> Result<()> {
        Ok(())
    }
    fn xattr(&mut self, fh: &Fh, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.get(fh)?.xattrs.get(name).cloned())
    }
    fn abilities(&mut self) -> Result<Abilities> {
        Ok(ABLE)
    }
    fn leave(&mut self) {}
}

/// What of a pending write lies outside of a stable one.
fn outside(o: usize, d: Vec<u8>, offset: usize, len: usize) -> Vec<(usize, Vec<u8>)> {
    let end = o + d.len();
    let (left, right) = (offset.clamp(o, end), (offset + len).clamp(o, end));
    [(o, d[..left - o].to_vec()), (right, d[right - o..].to_vec())]
        .into_iter()
        .filter(|w| !w.1.is_empty())
        .collect()
}

const ABLE: Abilities = Abilities { xattrs: true, exclusive_is_bare: false };

/// A run against a server in memory.
struct Ran {
    journal: Contents,
    model: Model,
    /// The server after each operation.
    after: Vec<Memory>,
    ops: Vec<Op>,
}

/// Runs `n` operations; number `lie` is answered and not done, and the run ends when that shows.
fn ran(seed: u64, n: u32, lie: Option<OpNo>) -> Ran {
    let header = Header {
        landfast_verify: landfast_verify::journal::VERSION,
        id: "t".into(),
        url: "nfs://memory/".into(),
        nfs: "4.2".into(),
        base_fileid: ROOT,
        clients: 1,
        pairs: 0,
        seed,
        started: 0,
    };
    let (mut server, mut model) = (Memory::new(), Model::new());
    let base = server.base().unwrap().0;
    let mut plan = Plan::new(seed, header.client_dir(0), &[], ABLE);
    let mut r = Ran {
        journal: Contents { header: header.clone(), records: Vec::new(), torn: 0 },
        model: Model::new(),
        after: Vec::new(),
        ops: Vec::new(),
    };
    for no in 0..n {
        let op = match no {
            0 => Op::Mkdir { path: header.top(), mode: 0o755 },
            1 => Op::Mkdir { path: header.client_dir(0), mode: 0o755 },
            _ => plan.next(&model),
        };
        server.lies = lie == Some(no);
        let done = perform(&mut server, &base, &model, &op);
        if done.is_err() {
            assert!(lie.is_some_and(|lie| lie < no), "{op:?} on an honest server: {done:?}");
            // What was never done is in the way: the run ended just before.
            break;
        }
        let reply = done.unwrap();
        model.apply(no, &op, &reply).unwrap();
        if no == 0 {
            model.share(&header.top());
        }
        r.journal.records.push(Record::Intent { no, client: 0, op: op.clone() });
        r.journal.records.push(Record::Ack { no, reply });
        r.after.push(server.clone());
        r.ops.push(op);
    }
    r.model = model;
    r
}

fn check(server: &mut Memory, journal: &Contents) -> Report {
    let base = server.base().unwrap().0;
    examine(server, &base, &"nfs://memory/".parse().unwrap(), journal).unwrap()
}

/// The numbers of the operations that the report calls lost.
fn lost(report: &Report) -> BTreeSet<OpNo> {
    let number =
        |e: &String| e.strip_prefix("operation ").unwrap().split(',').next().unwrap().parse().unwrap();
    report.rows.iter().flat_map(|r| &r.examples).map(number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn nothing_is_lost_on_an_honest_server(seed: u64, n in 2u32..300, keep in 0usize..4) {
        let mut r = ran(seed, n, None);
        let last = r.after.last_mut().unwrap();
        let mut settled = last.clone();
        settled.settle();
        let report = check(&mut settled, &r.journal);
        prop_assert!(!report.has_losses(), "{report:#?}");
        last.cut(keep);
        let report = check(last, &r.journal);
        prop_assert!(!report.has_losses(), "after the cut: {report:#?}");
        prop_assert_eq!(report.acknowledged, u64::from(n));
    }

    #[test]
    fn an_operation_in_doubt_may_be_there_or_not(seed: u64, n in 3u32..300, there: bool) {
        let mut r = ran(seed, n, None);
        // The last reply is on its way for ever.
        r.journal.records.pop();
        let server = &mut r.after[n as usize - if there { 1 } else { 2 }];
        server.cut(2);
        let report = check(server, &r.journal);
        prop_assert!(!report.has_losses(), "{:?}: {report:#?}", r.ops.last());
        prop_assert_eq!((report.in_doubt, report.partly.count), (1, 0));
    }

    #[test]
    fn what_came_after_a_moment_that_the_server_went_back_to_is_lost_and_nothing_else(seed: u64, n in 3u32..200, back in any::<prop::sample::Index>()) {
        let mut r = ran(seed, n, None);
        let kept = back.index(n as usize);
        let server = &mut r.after[kept];
        server.cut(1);
        let report = check(server, &r.journal);
        let lost = lost(&report);
        for no in &lost {
            prop_assert!(*no as usize > kept, "{no} is not lost, {:?}: {report:#?}", r.ops[*no as usize]);
        }
        if let Some((_, o)) = r.model.objects().find(|(_, o)| o.born as usize > kept) {
            prop_assert!(report.lost > 0, "{:?} is lost: {report:#?}", r.ops[o.born as usize]);
        }
    }

    #[test]
    fn one_operation_that_was_answered_and_not_done_is_found(seed: u64, lie in 2u32..150, more in 0u32..100) {
        let mut r = ran(seed, lie + more, Some(lie));
        prop_assume!(r.after.len() > lie as usize);
        let stands = r.model.ops().any(|no| no == lie) && shows(&r, lie, seed);
        let server = r.after.last_mut().unwrap();
        server.settle();
        let report = check(server, &r.journal);
        if stands {
            prop_assert!(report.lost > 0, "{:?}: {report:#?}", r.ops[lie as usize]);
        }
    }
}

/// Whether it can be seen that operation `lie` was not done: it would have changed something, and no later one did the same.
fn shows(r: &Ran, lie: OpNo, seed: u64) -> bool {
    let last = r.ops.len() == lie as usize + 1;
    let honest = ran(seed, lie + 1, None);
    let [before, after] = [lie as usize - 1, lie as usize].map(|n| honest.after[n].clone());
    let bytes = |m: &Memory| m.nodes.values().map(|n| n.bytes.clone()).collect::<Vec<_>>();
    match r.ops[lie as usize] {
        // Nothing was promised.
        Op::Write { stable: false, .. } => false,
        // A later write that goes further fills the gap with the same zeroes.
        Op::Write { .. } | Op::Commit { .. } | Op::SetSize { .. } => last && bytes(&before) != bytes(&after),
        _ => format!("{:?}", before.nodes) != format!("{:?}", after.nodes),
    }
}

#[test]
fn data_that_goes_under_a_kept_verifier_is_lost_and_under_a_changed_one_is_not() {
    let with_unstable = |seed| {
        let r = ran(seed, 200, None);
        r.after.last().is_some_and(|s| s.unstable.values().any(|w| !w.is_empty())).then_some(r)
    };
    let mut r = (0..100).find_map(with_unstable).expect("some plan leaves data uncommitted");
    let server = r.after.last_mut().unwrap();
    server.cut(0);
    let report = check(server, &r.journal);
    assert!(
        !report.has_losses() && report.unstable_lost > 0 && report.verifier == Verifier::Changed,
        "{report:#?}"
    );
    // One file may be refused; without any verifier nobody knows that the data has to be written again.
    server.refuses = 1;
    assert_eq!(check(server, &r.journal).verifier, Verifier::Changed);
    server.refuses = usize::MAX;
    let report = check(server, &r.journal);
    assert!(report.has_losses() && report.verifier == Verifier::Unknown, "{report:#?}");
    server.refuses = 0;
    server.verf = [1; 8];
    let report = check(server, &r.journal);
    let row = report.rows.iter().find(|row| row.kind == Kind::WriteUnstable).unwrap();
    assert!(report.has_losses() && row.lost > 0 && report.verifier == Verifier::Kept, "{report:#?}");
}

#[test]
fn stale_handles_changed_file_ids_and_foreign_names_are_told() {
    let mut r = ran(4, 120, None);
    let server = r.after.last_mut().unwrap();
    server.settle();
    // The first file of the client gets another number, and somebody else puts a name beside it.
    let (dir, name, id) = server
        .nodes
        .iter()
        .filter(|(dir, _)| **dir > 3)
        .flat_map(|(dir, n)| n.entries.iter().map(move |(name, id)| (*dir, name.clone(), *id)))
        .find(|(_, _, id)| {
            let names = server.nodes.values().flat_map(|n| n.entries.values()).filter(|e| *e == id).count();
            server.nodes[id].kind == FileKind::File && names == 1
        })
        .expect("a file in a directory");
    let node = server.nodes.remove(&id).unwrap();
    let new = server.next;
    server.nodes.insert(new, node.clone());
    server.nodes.insert(new + 1, node);
    let entries = &mut server.nodes.get_mut(&dir).unwrap().entries;
    entries.insert(name, new);
    entries.insert("foreign".into(), new + 1);
    let report = check(server, &r.journal);
    assert_eq!(
        (report.lost, report.stale.count, report.renumbered.count, report.strange.count),
        (0, 1, 1, 1),
        "{report:#?}"
    );
}

#[test]
fn journals_that_no_run_can_have_written_are_refused() {
    let r = ran(4, 20, None);
    let base = Memory::new().base().unwrap().0;
    let refused = |change: &dyn Fn(&mut Contents), word: &str| {
        let mut journal = r.journal.clone();
        change(&mut journal);
        let mut server = r.after.last().unwrap().clone();
        let said = examine(&mut server, &base, &"nfs://memory/".parse().unwrap(), &journal).unwrap_err();
        assert!(said.to_string().contains(word), "{said}");
    };
    let intent = |no, client, op| Record::Intent { no, client, op };
    let remove = || Op::Remove { path: "nowhere".into() };
    refused(&|j| j.header.clients = u32::MAX, "clients");
    refused(&|j| j.records.push(Record::Header(j.header.clone())), "second header");
    refused(&|j| j.records.push(intent(900, 7, remove())), "client 7");
    refused(&|j| j.records.push(Record::Ack { no: 900, reply: Default::default() }), "never sent");
    refused(&|j| j.records.push(j.records[1].clone()), "twice");
    refused(&|j| j.records.extend([intent(900, 0, remove()), intent(901, 0, remove())]), "before another");
    refused(&|j| j.records.push(intent(900, 0, Op::SetSize { path: "f".into(), size: u64::MAX })), "further");
    let done = Record::Ack { no: 900, reply: Default::default() };
    refused(&|j| j.records.extend([intent(900, 0, remove()), done.clone()]), "does not fit");
    refused(
        &|j| j.records.push(intent(900, 0, Op::Commit { path: "nowhere".into(), late: None })),
        "does not fit",
    );
}
