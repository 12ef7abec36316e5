//! NFSACL over a real socket: the ACLs of clients of version 3.

use crate::common;

use common::v3::{V3, setattr};
use common::*;
use landfast_nfs::nfsacl::{self, *};
use landfast_nfs::v3::{FileHandle, NfsStat3, Res, Sattr};
use landfast_rpc::{AcceptStat, CallError};
use landfast_xdr::{Bytes, Decode, Encode};

fn entry(kind: u32, id: u32, perm: u32) -> Entry {
    Entry { kind, id, perm }
}

fn list(entries: Vec<Entry>) -> List {
    List { count: entries.len() as u32, entries }
}

fn default(mut l: List) -> List {
    l.entries.iter_mut().for_each(|e| e.kind |= DEFAULT);
    l
}

/// rw for the owner and user 1001, r for the group, nothing for others.
fn named() -> List {
    list(vec![entry(1, 0, 6), entry(2, 1001, 6), entry(4, 0, 4), entry(16, 0, 6), entry(32, 0, 0)])
}

async fn get(c: &V3, object: &FileHandle, mask: u32) -> GetaclRes {
    let body = GetaclArgs { object: object.clone(), mask }.to_bytes();
    let res = c.program(nfsacl::PROGRAM, nfsacl::VERSION, nfsacl::proc::GETACL, body).await;
    GetaclRes::from_bytes(res.expect("an answer")).expect("a GETACL result")
}

async fn set(c: &V3, object: &FileHandle, mask: u32, access: List, default: List) -> SetaclRes {
    let body = SetaclArgs { object: object.clone(), lists: Lists { mask, access, default } }.to_bytes();
    let res = c.program(nfsacl::PROGRAM, nfsacl::VERSION, nfsacl::proc::SETACL, body).await;
    SetaclRes::from_bytes(res.expect("an answer")).expect("a SETACL result")
}

fn ok(res: GetaclRes) -> (u32, Lists) {
    match res {
        Res::Ok(ok) => (ok.attrs.expect("attributes").mode & 0o7777, ok.lists),
        Res::Fail(status, _) => panic!("GETACL gave {status}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn lists_are_read_and_set() {
    let mut rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let fh = c.file("f").await;
    // Permission bits, with a mask as every client expects.
    let bits = list(vec![entry(1, 0, 6), entry(4, 0, 4), entry(16, 0, 4), entry(32, 0, 4)]);
    let (mode, lists) = ok(get(&c, &fh, mask::ACL | mask::ACLCNT).await);
    assert_eq!((mode, &lists.access, &lists.default), (0o644, &bits, &List::default()));
    // Only the number.
    let (_, lists) = ok(get(&c, &fh, mask::ACLCNT).await);
    assert_eq!((lists.access.count, lists.access.entries.len()), (4, 0));
    let done = set(&c, &fh, mask::ACL, named(), List::default()).await;
    assert!(matches!(done, Res::Ok(Some(ref a)) if a.mode & 0o777 == 0o660));
    let (mode, lists) = ok(get(&c, &fh, mask::ACL | mask::DFACL).await);
    assert_eq!((mode, lists.access, lists.default), (0o660, named(), List::default()));
    // After a crash, too.
    rig.crash().await;
    let c = V3::new(&rig).await;
    assert_eq!(ok(get(&c, &fh, mask::ACL).await).1.access, named());
    // A mode is the mask.
    c.ok::<landfast_nfs::v3::WccData, landfast_nfs::v3::WccData>(setattr(
        &fh,
        Sattr { mode: Some(0o600), ..Sattr::default() },
    ))
    .await;
    assert_eq!(ok(get(&c, &fh, mask::ACL).await).1.access.entries[3], entry(16, 0, 0));
    // What was read of permission bits leaves permission bits.
    set(&c, &fh, mask::ACL, bits.clone(), List::default()).await;
    assert_eq!(
        ok(get(&c, &fh, mask::ACL).await),
        (0o644, Lists { mask: 1, access: bits, default: List::default() })
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn default_lists_of_directories() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let both = mask::ACL | mask::DFACL;
    let (_, root) = ok(get(&c, &c.root, both).await);
    let done = set(&c, &c.root, mask::DFACL, List::default(), default(named())).await;
    assert!(matches!(done, Res::Ok(_)));
    let (_, lists) = ok(get(&c, &c.root, both).await);
    assert_eq!((&lists.access, lists.default), (&root.access, default(named())));
    let fh = c.file("f").await;
    let (_, lists) = ok(get(&c, &fh, both).await);
    let inherited =
        list(vec![entry(1, 0, 6), entry(2, 1001, 6), entry(4, 0, 4), entry(16, 0, 4), entry(32, 0, 0)]);
    assert_eq!(lists.access, inherited, "mode 644 took writing from the mask");
    // An empty list takes it away.
    assert!(matches!(set(&c, &c.root, mask::DFACL, List::default(), List::default()).await, Res::Ok(_)));
    assert_eq!(ok(get(&c, &c.root, both).await).1.default, List::default());
    // Files have none to have or to lose.
    let no = set(&c, &fh, mask::DFACL, List::default(), default(named())).await;
    assert_eq!(no.status(), NfsStat3::INVAL);
    assert!(matches!(set(&c, &fh, mask::DFACL, List::default(), List::default()).await, Res::Ok(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(root), ignore = "needs root")]
async fn who_may_and_what_is_refused() {
    let rig = Rig::new().await;
    let c = V3::new(&rig).await;
    let fh = c.file("f").await;
    let stranger = c.by(1001);
    assert_eq!(ok(get(&stranger, &fh, mask::ACL).await).0, 0o644);
    let res = set(&stranger, &fh, mask::ACL, named(), List::default()).await;
    assert_eq!(res.status(), NfsStat3::PERM);
    let mut odd = named();
    odd.count = 7;
    assert_eq!(set(&c, &fh, mask::ACL, odd, List::default()).await.status(), NfsStat3::INVAL);
    let unmasked = list(vec![entry(1, 0, 6), entry(2, 1001, 6), entry(4, 0, 4), entry(32, 0, 0)]);
    assert_eq!(set(&c, &fh, mask::ACL, unmasked, List::default()).await.status(), NfsStat3::INVAL);
    assert_eq!(get(&c, &fh, 0x10).await.status(), NfsStat3::INVAL);
    assert_eq!(ok(get(&c, &fh, mask::ACL).await).0, 0o644, "nothing was set");
    let forged = FileHandle(Bytes::from_static(b"no handle"));
    assert_eq!(get(&c, &forged, mask::ACL).await.status(), NfsStat3::BADHANDLE);
    // What the program does not have.
    let short = c.program(nfsacl::PROGRAM, nfsacl::VERSION, nfsacl::proc::GETACL, Bytes::new()).await;
    assert!(matches!(short, Err(CallError::Failed(AcceptStat::GarbageArgs))), "{short:?}");
    let absent = c.program(nfsacl::PROGRAM, nfsacl::VERSION, 3, Bytes::new()).await;
    assert!(matches!(absent, Err(CallError::Failed(AcceptStat::ProcUnavail))), "{absent:?}");
    let version = c.program(nfsacl::PROGRAM, 2, nfsacl::proc::NULL, Bytes::new()).await;
    assert!(
        matches!(version, Err(CallError::Failed(AcceptStat::ProgMismatch { low: 3, high: 3 }))),
        "{version:?}"
    );
    let null = c.program(nfsacl::PROGRAM, nfsacl::VERSION, nfsacl::proc::NULL, Bytes::new()).await;
    assert_eq!(null.expect("an answer"), Bytes::new());
}
