//! Selects calls by client, server, file, procedure or time. No I/O.
//!
//! A [`Filter`] is an [`Observer`] in front of another one. It passes on only the selected calls and their replies,
//! so every analysis of a capture also works on a part of it. The client's other calls are passed on as such: they
//! show that it did not pause.

use crate::limits::{CALLS_MAX, FILES_MAX};
use crate::path::Shortest;
use crate::skim::facts::{self, WantedFiles};
use crate::skim::{self, Kind, Program, v2, v4};
use crate::trace::{Call, Ends, Observer, Reply};
use foldhash::fast::FixedState;
use foldhash::{HashSet, HashSetExt};
use landfast_nfs::{nlm, v3 as nfs3};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::str::FromStr;

/// An address, or all addresses with the same leading bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    addr: IpAddr,
    bits: u8,
}

impl Network {
    pub fn contains(&self, addr: IpAddr) -> bool {
        let shift = |width: u32| width - u32::from(self.bits);
        match (self.addr, addr.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(addr)) => (net.to_bits() ^ addr.to_bits()).checked_shr(shift(32)),
            (IpAddr::V6(net), IpAddr::V6(addr)) => {
                let differ = (net.to_bits() ^ addr.to_bits()).checked_shr(shift(128)).unwrap_or(0);
                Some(u32::from(differ != 0))
            }
            _ => return false,
        }
        .is_none_or(|differ| differ == 0)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (addr, bits) = text.split_once('/').map_or((text, None), |(addr, bits)| (addr, Some(bits)));
        let wrong =
            || "wanted: an IP address, or one with the number of its first bits that count, as 10.0.0.0/8";
        let addr = addr.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let all = if addr.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), str::parse).map_err(|_| wrong())?;
        if bits > all {
            return Err(format!("an address of this kind has {all} bits"));
        }
        Ok(Network { addr, bits })
    }
}

/// Name of a procedure of any program, or of an operation of NFSv4 or its callbacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Procedure(String);

impl Procedure {
    /// Whether a call is of this procedure, or is a COMPOUND sent for this operation.
    fn is(&self, call: &Call) -> bool {
        let Kind { program, version, procedure, .. } = call.head.kind;
        program.procedure(version, procedure) == Some(self.0.as_str())
            || skim::main_operations(program, &call.head.ops)
                .any(|op| program.operation(op.0) == Some(self.0.as_str()))
    }
}

impl Procedure {
    /// Procedures of versions 2 and 3, operations of version 4 and of its callbacks, without duplicates.
    pub fn names() -> Vec<&'static str> {
        let of = |program: Program| (0..u8::MAX).filter_map(move |n| program.operation(u32::from(n)));
        let mut seen = HashSet::new();
        let all = nfs3::PROC_NAMES
            .into_iter()
            .chain(v2::PROC_NAMES)
            .chain(of(Program::Nfs))
            .chain(of(Program::Callback));
        all.filter(|name| seen.insert(*name)).collect()
    }
}

impl FromStr for Procedure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.to_ascii_uppercase();
        let others = [(Program::NfsAcl, 3), (Program::Mount, 3), (Program::Nlm, 4), (Program::Callback, 4)];
        let of_others = || {
            others.iter().flat_map(|(program, version)| {
                (0..=nlm::proc::FREE_ALL).map(|n| program.procedure(*version, n))
            })
        };
        let known = name == "COMPOUND"
            || nfs3::PROC_NAMES.contains(&name.as_str())
            || v2::PROC_NAMES.contains(&name.as_str())
            || [Program::Nfs, Program::Callback].iter().any(|program| {
                (0..=u8::MAX).any(|n| program.operation(v4::number(n).0) == Some(name.as_str()))
            })
            || of_others().any(|other| other == Some(name.as_str()));
        if !known {
            return Err(
                "no such procedure or operation; names are those of the RFCs, as LOOKUP, WRITE, OPEN".into(),
            );
        }
        Ok(Procedure(name))
    }
}

/// A file, or a directory and what is done in it.
#[derive(Debug, Clone)]
pub enum File {
    /// By its name in any directory, if `matches(pattern, name)`.
    Name { pattern: Vec<u8>, matches: fn(&[u8], &[u8]) -> bool },
    /// By its handle as a listing shows it.
    Digest(u32),
}

/// Known handles of the wanted files.
#[derive(Debug)]
struct Files {
    file: File,
    handles: HashSet<u64>,
}

impl WantedFiles for Files {
    fn name(&self, name: &[u8]) -> bool {
        matches!(&self.file, File::Name { pattern, matches } if matches(pattern, name))
    }

    fn handle(&self, handle: &[u8]) -> bool {
        match self.file {
            File::Name { .. } => !self.handles.is_empty() && self.handles.contains(&facts::digest(handle)),
            File::Digest(digest) => skim::digest(handle) == digest,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Since(i64),
    At(i64),
}

impl Moment {
    fn ns(self, begun: i64) -> i64 {
        match self {
            Moment::Since(ns) => begun.saturating_add(ns),
            Moment::At(ns) => ns,
        }
    }
}

/// Criteria. A call must meet all that are given; of several procedures, one.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub client: Option<Network>,
    pub server: Option<Network>,
    pub file: Option<File>,
    /// One of these procedures; empty: any.
    pub procedures: Vec<Procedure>,
    /// Calls that began at or after this moment.
    pub from: Option<Moment>,
    /// Calls that began before this moment.
    pub to: Option<Moment>,
}

impl Wanted {
    pub fn is_all(&self) -> bool {
        let Wanted { client, server, file, procedures, from, to } = self;
        let whole = from.is_none() && to.is_none() && procedures.is_empty();
        whole && client.is_none() && server.is_none() && file.is_none()
    }

    /// Whether a connection between these ends may have wanted calls.
    fn may_fit(&self, Ends { from, to }: Ends) -> bool {
        let of = |net: Option<Network>, addr| net.is_none_or(|net| net.contains(addr));
        let between = |a: IpAddr, b: IpAddr| of(self.client, a) && of(self.server, b);
        between(from.ip(), to.ip()) || between(to.ip(), from.ip())
    }

    /// Whether a call is of a wanted client and in the wanted time.
    fn is_beside(&self, ends: Ends, call: &Call, begun: i64) -> bool {
        let (client, _) = parties(ends, call.head.kind);
        let at = call.times.first.ns;
        self.client.is_none_or(|net| net.contains(client))
            && self.from.is_none_or(|from| at >= from.ns(begun))
            && self.to.is_none_or(|to| at < to.ns(begun))
    }

    /// Whether a call that [`Wanted::is_beside`] is wanted itself.
    fn fits(&self, ends: Ends, call: &Call) -> bool {
        let (_, server) = parties(ends, call.head.kind);
        self.server.is_none_or(|net| net.contains(server))
            && (self.file.is_none() || call.head.facts.asked)
            && (self.procedures.is_empty() || self.procedures.iter().any(|p| p.is(call)))
    }
}

/// Client and server. The caller of callbacks, and of NLM's calls back to a client, is the server.
fn parties(Ends { from, to }: Ends, kind: Kind) -> (IpAddr, IpAddr) {
    let back = match kind.program {
        Program::Callback => true,
        Program::Nlm => {
            let sent_back = nlm::proc::TEST_RES..=nlm::proc::UNLOCK_RES;
            matches!(kind.procedure, nlm::proc::GRANTED | nlm::proc::GRANTED_MSG)
                || sent_back.contains(&kind.procedure)
        }
        _ => false,
    };
    if back { (to.ip(), from.ip()) } else { (from.ip(), to.ip()) }
}

/// The selected calls, counted like [`crate::trace::Totals`] counts all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub calls_seen: u64,
    /// NFS calls with a reply and both times known.
    pub calls_matched: u64,
    /// NFS calls with a reply, but call or reply ends in a hole of the capture.
    pub calls_unmeasured: u64,
    pub other_calls: u64,
}

/// The most memory, in bytes, for pending calls and handles of files.
#[cfg(test)]
pub(crate) const FILTER_BYTES_MAX: usize =
    (2 * (CALLS_MAX / 2 * 8 / 7).next_power_of_two() + FILES_MAX * 2 * 3 / 2) * (size_of::<u64>() + 1);

#[derive(Debug)]
pub struct Filter<O> {
    wanted: Wanted,
    all: bool,
    files: Option<Files>,
    begun: i64,
    /// Selected calls that wait for replies: recent ones, and older ones.
    passed: [HashSet<u64>; 2],
    counted: Counted,
    observer: O,
}

impl<O: Observer> Filter<O> {
    /// Stands in front of `observer`.
    pub fn new(wanted: Wanted, observer: O) -> Self {
        let passed = [HashSet::new(), HashSet::new()];
        let files = wanted.file.clone().map(|file| Files { file, handles: HashSet::new() });
        Filter {
            all: wanted.is_all(),
            wanted,
            files,
            begun: 0,
            passed,
            counted: Counted::default(),
            observer,
        }
    }

    /// Whether some of this time span is wanted.
    fn overlaps(&self, from_ns: i64, to_ns: i64) -> bool {
        let outside = self.wanted.to.is_some_and(|to| from_ns >= to.ns(self.begun))
            || self.wanted.from.is_some_and(|from| to_ns < from.ns(self.begun));
        !outside
    }

    /// The counts, unless everything was wanted, and the observer.
    pub fn finish(self) -> (Option<Counted>, O) {
        ((!self.all).then_some(self.counted), self.observer)
    }
}

/// The key by which a reply finds its call.
fn key(ends: Ends, xid: u32) -> u64 {
    FixedState::with_seed(0).hash_one((ends.from, ends.to, xid))
}

impl<O: Observer> Observer for Filter<O> {
    fn wants_detail(&self) -> bool {
        self.observer.wants_detail()
    }

    fn asked(&self) -> Option<&dyn WantedFiles> {
        self.files.as_ref().map(|files| files as &dyn WantedFiles)
    }

    fn begun(&mut self, ns: i64) {
        self.begun = ns;
        self.observer.begun(ns);
    }

    fn call(&mut self, ends: Ends, call: &Call) {
        if self.all {
            return self.observer.call(ends, call);
        }
        if !self.wanted.is_beside(ends, call, self.begun) {
            return;
        }
        if !self.wanted.fits(ends, call) {
            return self.observer.unwanted_call(ends, call);
        }
        let key = key(ends, call.head.xid);
        if self.passed[0].len() >= CALLS_MAX / 2 {
            // The older ones stayed without an answer. `Trace` forgets them as well.
            self.passed.swap(0, 1);
            self.passed[0].clear();
        }
        // A call that is already there was retransmitted on another connection.
        let first = !self.passed[1].contains(&key) && self.passed[0].insert(key);
        let nfs = call.head.kind.program == Program::Nfs;
        self.counted.calls_seen += u64::from(first && nfs);
        self.counted.other_calls += u64::from(first && !nfs);
        self.observer.call(ends, call);
    }

    fn reply(&mut self, ends: Ends, call: &Call, reply: &Reply) {
        if self.all {
            return self.observer.reply(ends, call, reply);
        }
        if let (Some(files), true, Some(handle)) =
            (&mut self.files, call.head.facts.finds_asked, reply.head.handle)
            && files.handles.len() < FILES_MAX
        {
            files.handles.insert(handle);
        }
        let key = key(Ends { from: ends.to, to: ends.from }, call.head.xid);
        if !self.passed.iter_mut().any(|passed| passed.remove(&key)) {
            if self.wanted.is_beside(Ends { from: ends.to, to: ends.from }, call, self.begun) {
                self.observer.unwanted_reply(ends, call, reply);
            }
            return;
        }
        if call.head.kind.program == Program::Nfs {
            let measured = call.times.counted().is_some() && reply.times.counted().is_some();
            self.counted.calls_matched += u64::from(measured);
            self.counted.calls_unmeasured += u64::from(!measured);
        }
        self.observer.reply(ends, call, reply);
    }

    fn counts_segments(&self, ends: Ends) -> bool {
        self.wanted.may_fit(ends)
    }

    fn stall(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        if self.overlaps(from_ns, to_ns) && self.wanted.may_fit(ends) {
            self.observer.stall(ends, from_ns, to_ns);
        }
    }

    fn moving(&mut self, ends: Ends, from_ns: i64, to_ns: i64) {
        if self.overlaps(from_ns, to_ns) && self.wanted.may_fit(ends) {
            self.observer.moving(ends, from_ns, to_ns);
        }
    }

    fn path(&mut self, ends: Ends, shortest: [Option<Shortest>; 2]) {
        if self.wanted.may_fit(ends) {
            self.observer.path(ends, shortest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in(net: &str, addr: &str) -> bool {
        net.parse::<Network>().expect(net).contains(addr.parse().expect(addr))
    }

    #[test]
    fn networks_are_addresses_and_their_first_bits() {
        assert!(is_in("10.0.2.11", "10.0.2.11") && !is_in("10.0.2.11", "10.0.2.10"));
        assert!(is_in("10.0.2.0/31", "10.0.2.1") && !is_in("10.0.2.0/31", "10.0.2.2"));
        assert!(is_in("0.0.0.0/0", "255.1.2.3") && !is_in("0.0.0.0/0", "::1"));
        assert!(is_in("::/0", "ff02::1") && !is_in("::/0", "10.0.0.1"));
        assert!(is_in("fe80::/10", "febf::1") && !is_in("fe80::/10", "fec0::1"));
        assert!(is_in("::1", "::1") && !is_in("::1", "::2"));
        assert!(is_in("10.0.0.1", "::ffff:10.0.0.1") && is_in("::ffff:10.0.0.1", "10.0.0.1"));
        for wrong in
            ["", "x", "10.0.0.1/33", "10.0.0.1/", "10.0.0.1/-1", "::/129", "10.0.0/8", "10.0.0.1/256"]
        {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn procedures_have_the_names_of_the_rfcs() {
        for name in [
            "lookup",
            "WRITE",
            "Open",
            "COMPOUND",
            "NULL",
            "GETACL",
            "MNT",
            "UNLOCK",
            "CB_COMPOUND",
            "ILLEGAL",
        ] {
            assert!(name.parse::<Procedure>().is_ok(), "{name}");
        }
        for name in ["", "WRITES", "LOOKUP "] {
            assert!(name.parse::<Procedure>().is_err(), "{name}");
        }
    }
}
