//! Each operation, by each caller, under each version, on files of several owners and modes. What must come of it is computed
//! from the caller's rights to the file, as the mode gives them, and from nothing else.

use super::ops::{self, Needs, Op};
use super::victim::*;
use crate::common::name;
use landfast_nfs::v4::args::*;
use landfast_nfs::v4::*;
use std::os::unix::fs::PermissionsExt;

/// Who presents the victim's stateid, from where, in whose name.
#[derive(Debug, Clone, Copy)]
struct Who {
    host: u8,
    uid: u32,
    /// In the name of a client of his own, not in the victim's.
    own_client: bool,
}

const fn who(host: u8, uid: u32) -> Who {
    Who { host, uid, own_client: false }
}

const CALLERS: &[Who] = &[
    who(HONEST, 0),
    who(HONEST, 1000),
    who(HONEST, 2000),
    who(ROOT_SQUASH, 0),
    who(ROOT_SQUASH, 1000),
    who(ALL_SQUASH, 0),
    who(ALL_SQUASH, 1000),
    who(READ_ONLY, 0),
    who(READ_ONLY, 1000),
    who(READ_ONLY, 2000),
    who(OUTSIDER, 0),
    Who { host: HONEST, uid: 0, own_client: true },
    Who { host: HONEST, uid: 1000, own_client: true },
    Who { host: ROOT_SQUASH, uid: 0, own_client: true },
];

/// Owner and mode of the file.
const FILES: &[(u32, u32)] =
    &[(0, 0o600), (1000, 0o600), (1000, 0o444), (1000, 0o644), (1000, 0o602), (1000, 0o111), (0, 0o666)];

impl Who {
    /// Whom the export takes him for.
    fn user(self) -> u32 {
        match self.host {
            ALL_SQUASH => NOBODY,
            ROOT_SQUASH if self.uid == 0 => NOBODY,
            _ => self.uid,
        }
    }

    /// Whether he may read and write the file. Nobody is in its group.
    fn rights(self, (owner, mode): (u32, u32)) -> (bool, bool) {
        let all = self.user() == 0 || self.user() == owner;
        // What may be executed may be read: a client must load it.
        (all || mode & 0o5 != 0, all || mode & 0o2 != 0)
    }

    /// What he must be told; one of these.
    fn expected(self, op: &Op, minor: u32, file: (u32, u32)) -> Vec<NfsStat> {
        if self.host == OUTSIDER {
            return vec![NfsStat::NFS4ERR_ACCESS];
        }
        if self.own_client && op.stateid && minor > 0 {
            return vec![NfsStat::NFS4ERR_BAD_STATEID];
        }
        let names_client = op.name == "LOCKT" || op.name.starts_with("LOCK new");
        if names_client && minor == 0 && self.host != HONEST {
            // The client ID is no secret, and the client was never heard from this address.
            return vec![NfsStat::NFS4ERR_DELAY];
        }
        let (read, write) = self.rights(file);
        let may = match op.needs {
            Needs::Read => read,
            Needs::Write => write,
            Needs::Either => read || write,
            Needs::Nothing => true,
        };
        match (self.host == READ_ONLY && op.modifies, may) {
            (false, true) => [&[NfsStat::NFS4_OK], op.also].concat(),
            // RFC 7530 section 13.4 has no ROFS for LOCK.
            (true, true) if minor == 0 && op.name.starts_with("LOCK ") => vec![NfsStat::NFS4ERR_ACCESS],
            (true, true) => vec![NfsStat::NFS4ERR_ROFS],
            (false, false) => vec![NfsStat::NFS4ERR_ACCESS],
            (true, false) => vec![NfsStat::NFS4ERR_ROFS, NfsStat::NFS4ERR_ACCESS],
        }
    }
}

async fn every_operation_by_every_caller(minor: u32) {
    let rig = Rig::new("unsafe").await;
    let mut wires = Vec::new();
    for host in 1..=OUTSIDER {
        wires.push(rig.from(host).await);
    }
    let mut honest = Party::new(&mut wires[0], minor, b"honest").await;
    let mut others = Party::new(&mut wires[0], minor, b"other").await;
    let common = honest.file_for_all(&mut wires[0], "common").await;
    let mut wrong = Vec::new();
    let (mut allowed, mut refused) = (0, 0);
    for op in ops::all().iter().filter(|op| op.since <= minor) {
        for caller in CALLERS {
            for file in FILES {
                let victim = Victim::new(&mut honest, &mut wires[0], *file, &common).await;
                let party = if caller.own_client { &mut others } else { &mut honest };
                let wire = &mut wires[usize::from(caller.host) - 1];
                let res = party.run(wire, caller.uid, (op.say)(&victim)).await;
                let last = res.last().expect("a result");
                let status = last.status;
                // An outsider's PUTFH is refused as docs/exports.md says; Linux' server says ROFS to COMMIT, too.
                let known = matches!(
                    (last.op, status),
                    (OpNum::PUTFH, NfsStat::NFS4ERR_ACCESS) | (OpNum::COMMIT, NfsStat::NFS4ERR_ROFS)
                );
                let valid = known || valid::is_valid(minor, last.op, status);
                assert!(valid, "{} may not be {status}", last.op);
                let expected = caller.expected(op, minor, *file);
                if !expected.contains(&status) {
                    wrong.push(format!("{} of {file:?} by {caller:?}: {status}, not {expected:?}", op.name));
                }
                if status.is_ok() {
                    allowed += 1;
                } else {
                    refused += 1;
                    let now = std::fs::read(rig.path(&victim.file)).expect("the file");
                    if now != SECRET {
                        wrong.push(format!("{} of {file:?} by {caller:?} was refused and is done", op.name));
                    }
                }
                victim.close(&mut honest, &mut wires[0]).await;
            }
        }
    }
    println!("NFSv4.{minor}: {allowed} allowed, {refused} refused");
    assert!(allowed > 300 && refused > 300, "{allowed}, {refused}: the matrix has lost a side");
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nobody_does_more_under_a_stateid_of_4_0_than_he_may() {
    every_operation_by_every_caller(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nobody_does_more_under_a_stateid_of_4_1_than_he_may() {
    every_operation_by_every_caller(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn nobody_does_more_under_a_stateid_of_4_2_than_he_may() {
    every_operation_by_every_caller(2).await;
}

/// Under each version: a stateid of one export with a file of another, whose rules are others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn a_stateid_of_one_export_opens_nothing_in_another() {
    let rig = Rig::of_several().await;
    let mut wire = rig.from(HONEST).await;
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for minor in [0, 1, 2] {
        let mut party = Party::new(&mut wire, minor, format!("honest-{minor}").as_bytes()).await;
        party.at = Some("a");
        let common = party.file_for_all(&mut wire, &format!("common-{minor}")).await;
        for (export, _) in &SEVERAL[1..] {
            let path = rig.dir.path().join(&export[1..]).join(format!("roots-{minor}"));
            std::fs::write(&path, SECRET).expect("root's own file");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("a mode");
            let lookups = [&export[1..], &format!("roots-{minor}")].map(|n| ArgOp::Lookup(name(n)));
            let ops = [vec![ArgOp::Putrootfh], lookups.to_vec(), vec![ArgOp::Getfh]].concat();
            let res = party.run(&mut wire, 0, ops).await;
            let Some(ResOp { body: ResBody::Getfh(fh), .. }) = res.last() else { panic!("{res:?}") };
            for op in ops::all().iter().filter(|op| op.since <= minor && op.name != "FREE_STATEID") {
                let victim = Victim::new(&mut party, &mut wire, (0, 0o600), &common).await;
                let victim = Victim { fh: fh.clone(), ..victim };
                let status = party.status(&mut wire, 0, (op.say)(&victim)).await;
                let read_only = *export == "/read-only";
                let expected = match op.stateid {
                    true if read_only && op.modifies => {
                        vec![NfsStat::NFS4ERR_BAD_STATEID, NfsStat::NFS4ERR_ROFS]
                    }
                    true => vec![NfsStat::NFS4ERR_BAD_STATEID],
                    // COMMIT and LOCKT show none: the rights are root's, or whose he is here.
                    false if read_only && op.modifies => vec![NfsStat::NFS4ERR_ROFS],
                    false if read_only => vec![NfsStat::NFS4_OK],
                    false => vec![NfsStat::NFS4ERR_ACCESS],
                };
                tried += 1;
                if !expected.contains(&status) {
                    wrong.push(format!("4.{minor}: {} in {export}: {status}, not {expected:?}", op.name));
                }
                if std::fs::read(&path).expect("the file") != SECRET {
                    wrong.push(format!("4.{minor}: {} in {export} has changed the file", op.name));
                }
            }
        }
    }
    assert!(tried > 150, "{tried}: the matrix has lost a side");
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
