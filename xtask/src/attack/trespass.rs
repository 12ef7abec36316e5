//! Attempts to do what the caller may not. Each must fail, and the victim must not notice.

use std::time::{Duration, SystemTime};

use super::floods::{insider, outsider};
use super::nfs::{self, LIKE_LINUX, OK, Ops, Session, v3};
use super::scene::Scene;
use super::target::{KEYS, MANY, SECRET, SHARED};
use super::wire::{self, Link, MOUNT, NFS, NLM, ROOT, Reader, User, Xdr};

type Verdict = Result<String, String>;

/// A user other than root.
const MALLORY: User = (1000, 1000);

fn link(scene: &Scene, from: std::net::Ipv4Addr) -> Result<Link, String> {
    Link::open(from, scene.nfs).map_err(|e| format!("a connection from {from}: {e}"))
}

fn refused(what: &str, status: Result<u32, String>) -> Result<(), String> {
    match status {
        Ok(OK) => Err(format!("{what} was done")),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Root has its own file open. Another user of the same session, and root of another host under `root_squash`,
/// present its stateid.
pub fn others_stateid(scene: &Scene) -> Verdict {
    let mut root = Session::create(link(scene, [127, 0, 0, 1].into())?, ROOT, b"owner", LIKE_LINUX)?;
    let dir = root.handle(&["x"])?;
    let file = root.handle(&["x", SECRET])?;
    let stateid = root.open(b"root", 3, &dir, SECRET)?;
    let read = Ops::default().put(&file).read(&stateid, 100);
    let write = Ops::default().put(&file).write(&stateid, b"mallory was here");
    root.run(&read).map_err(|e| format!("root itself may not: {e}"))?;
    refused("READ by another user", root.status_as(MALLORY, &read).map(|(status, _)| status))?;
    refused("WRITE by another user", root.status_as(MALLORY, &write).map(|(status, _)| status))?;
    let mut other = Session::create(link(scene, insider(1))?, ROOT, b"other", LIKE_LINUX)?;
    let mut tried = 2;
    // The stateid itself, and those that a counter would produce.
    for changed in 0..64u8 {
        let mut guess = stateid;
        if changed > 0 {
            guess[15] = guess[15].wrapping_add(changed);
        }
        for (what, ops) in [
            ("READ by another host", Ops::default().put(&file).read(&guess, 100)),
            ("WRITE by another host", Ops::default().put(&file).write(&guess, b"mallory")),
        ] {
            refused(what, other.status_as(ROOT, &ops).map(|(status, _)| status))?;
            tried += 1;
        }
    }
    for special in [[0; 16], [255; 16]] {
        let ops = Ops::default().put(&file).read(&special, 100);
        refused("READ with a special stateid", root.status_as(MALLORY, &ops).map(|(status, _)| status))?;
        tried += 1;
    }
    root.run(&read).map_err(|e| format!("root's own stateid is of no use any more: {e}"))?;
    let text = std::fs::read_to_string(scene.export.join(SECRET)).map_err(|e| e.to_string())?;
    if text.contains("mallory") {
        return Err("root's file was written".to_owned());
    }
    Ok(format!("{tried} tries"))
}

/// Another address, and another user, use the victim's owner string, client ID and session.
pub fn others_session(scene: &Scene) -> Verdict {
    let mut victim = Session::create(link(scene, insider(10))?, ROOT, b"victim", LIKE_LINUX)?;
    let alive = Ops::default().put_root();
    for (from, user) in [(insider(11), ROOT), (insider(10), MALLORY), (outsider(1), ROOT)] {
        // If the connection is refused, there is nothing to try.
        let Ok(mut thief) = link(scene, from) else { continue };
        // For the server this is a restarted client, whose state is dropped when it confirms.
        if let Ok(client) = nfs::exchange_id(&mut thief, user, b"victim", 2) {
            let _ = nfs::create_session(&mut thief, user, client, LIKE_LINUX);
        }
        victim.run(&alive).map_err(|e| format!("the victim's session after EXCHANGE_ID from {from}: {e}"))?;
        let mut thief = link(scene, from)?;
        refused("DESTROY_SESSION", nfs::destroy_session(&mut thief, user, &victim.id))?;
        for sequence in 2..24 {
            let Ok(mut thief) = link(scene, from) else { break };
            let _ = nfs::create_session(&mut thief, user, (victim.client, sequence), LIKE_LINUX);
        }
        victim
            .run(&alive)
            .map_err(|e| format!("the victim's session after CREATE_SESSION from {from}: {e}"))?;
    }
    Ok("3 thieves".to_owned())
}

/// Another user of root's session, and root of another host, request what needs no stateid: extended attributes,
/// ACCESS, COPY_NOTIFY. Another user also sends RECLAIM_COMPLETE, which would take away what others can still
/// reclaim.
pub fn others_attributes(scene: &Scene) -> Verdict {
    let mut root = Session::begin(link(scene, [127, 0, 0, 1].into())?, ROOT, b"reclaims", LIKE_LINUX)?;
    let complete = Ops::default().reclaim_complete();
    refused(
        "RECLAIM_COMPLETE by another user",
        root.status_as(MALLORY, &complete).map(|(status, _)| status),
    )?;
    match root.status_as(ROOT, &complete)?.0 {
        OK => {}
        nfs::COMPLETE_ALREADY => return Err("RECLAIM_COMPLETE by another user was done".to_owned()),
        status => return Err(format!("RECLAIM_COMPLETE of root: status {status}")),
    }
    let dir = root.handle(&["x"])?;
    let file = root.handle(&["x", SECRET])?;
    let stateid = root.open(b"root", 3, &dir, SECRET)?;
    let at = || Ops::default().put(&file);
    root.run(&at().set_xattr("roots", b"own"))?;
    let asks = [
        ("GETXATTR", at().get_xattr("roots")),
        ("SETXATTR", at().set_xattr("roots", b"mallory's")),
        ("SETXATTR of a new one", at().set_xattr("mallory", b"was here")),
        ("REMOVEXATTR", at().remove_xattr("roots")),
        ("COPY_NOTIFY", at().copy_notify(&stateid)),
    ];
    let mut other = Session::create(link(scene, insider(50))?, ROOT, b"other", LIKE_LINUX)?;
    let mut tried = 1;
    for (what, ops) in &asks {
        let by_user = root.status_as(MALLORY, ops).map(|(status, _)| status);
        refused(&format!("{what} by another user"), by_user)?;
        let by_host = other.status_as(ROOT, ops).map(|(status, _)| status);
        refused(&format!("{what} by another host's root"), by_host)?;
        tried += 2;
    }
    for (who, answer) in [
        ("another user", root.run_as(MALLORY, &at().access())),
        ("another host's root", other.run(&at().access())),
    ] {
        tried += 1;
        let Ok(results) = answer else { continue };
        // Skip PUTFH. ACCESS: supported bits, allowed bits.
        let mut reader = Reader(&results);
        reader.fixed(4 * 4 + 4)?;
        if reader.u32()? != 0 {
            return Err(format!("ACCESS gives {who} rights to root's file"));
        }
    }
    let value = root.run(&at().get_xattr("roots"))?;
    if !value.windows(3).any(|bytes| bytes == b"own") {
        return Err("root's extended attribute was changed".to_owned());
    }
    let names = root.run(&at().list_xattrs())?;
    if names.windows(7).any(|bytes| bytes == b"mallory") {
        return Err("root's file was given an extended attribute".to_owned());
    }
    Ok(format!("{tried} tries"))
}

/// The reply to root's read of its own file is kept for a retry. Someone who knows the session ID and the whole
/// request repeats it, as another user, and as root of a host with root_squash.
pub fn others_reply(scene: &Scene) -> Verdict {
    let mut root = Session::create(link(scene, [127, 0, 0, 1].into())?, ROOT, b"kept", LIKE_LINUX)?;
    let dir = root.handle(&["x"])?;
    let file = root.handle(&["x", SECRET])?;
    let stateid = root.open(b"root", 3, &dir, SECRET)?;
    let read = Ops::default().put(&file).read(&stateid, 100);
    let id = root.id.clone();
    let has = |results: &[u8]| results.windows(6).any(|bytes| bytes == b"secret");
    let (_, told) = nfs::on_slot(&mut root.link, ROOT, (&id, (1, 1), 1), &read)?;
    let (_, again) = nfs::on_slot(&mut root.link, ROOT, (&id, (1, 1), 1), &read)?;
    if !has(&told) || told != again {
        return Err("root's own retry has not got the reply".to_owned());
    }
    let mut same = link(scene, [127, 0, 0, 1].into())?;
    let mut other = link(scene, insider(51))?;
    for (who, link, user) in [("another user", &mut same, MALLORY), ("another host's root", &mut other, ROOT)]
    {
        match nfs::on_slot(link, user, (&id, (1, 1), 1), &read) {
            Ok((nfs::FALSE_RETRY, results)) if !has(&results) => {}
            Ok((_, results)) if has(&results) => return Err(format!("{who} was told root's reply")),
            Ok((status, _)) => return Err(format!("a retry of {who}: status {status}")),
            Err(why) => return Err(format!("a retry of {who}: {why}")),
        }
    }
    Ok("2 tries".to_owned())
}

/// NFS and MOUNT over UDP, which are not served: the socket is for locks. No reply may be larger than its request.
pub fn datagrams(scene: &Scene) -> Verdict {
    let mut friend = link(scene, insider(60))?;
    let root = v3::mount(&mut friend, ROOT, "/x")?;
    let file = v3::lookup(&mut friend, ROOT, &root, SHARED)?;
    let (mut tried, mut answered) = (0, 0);
    for from in [insider(60), outsider(4)] {
        let socket = std::net::UdpSocket::bind((from, 0)).map_err(|e| format!("a socket at {from}: {e}"))?;
        socket.set_read_timeout(Some(Duration::from_millis(500))).map_err(|e| e.to_string())?;
        let handle = Xdr::default().opaque(&file);
        let calls = [
            ("GETATTR", wire::call(1, NFS, 3, 1, Some(ROOT), &handle)),
            ("READ", wire::call(2, NFS, 3, 6, Some(ROOT), &v3::read_args(&file, 0, 100))),
            (
                "READDIR",
                wire::call(3, NFS, 3, 16, Some(ROOT), &Xdr::default().opaque(&root).u64(0).u64(0).u32(4096)),
            ),
            (
                "COMPOUND",
                wire::call(4, NFS, 4, 1, Some(ROOT), &Xdr::default().opaque(b"").u32(0).u32(1).u32(24)),
            ),
            ("MNT", wire::call(5, MOUNT, 3, 1, Some(ROOT), &Xdr::default().opaque(b"/x"))),
            ("EXPORT", wire::call(6, MOUNT, 3, 5, Some(ROOT), &Xdr::default())),
        ];
        for (what, call) in calls {
            tried += 1;
            socket.send_to(&call, scene.nfs).map_err(|e| format!("sending {what}: {e}"))?;
            let mut reply = [0; 65536];
            let Ok((length, _)) = socket.recv_from(&mut reply) else { continue };
            answered += 1;
            let reply = reply.get(..length).unwrap_or_default();
            if (1..=6).any(|xid| wire::results(reply, xid).is_ok()) {
                return Err(format!("{what} by datagram from {from} was executed"));
            }
            if length > call.len() {
                return Err(format!("{what} of {} bytes was answered with {length}", call.len()));
            }
        }
    }
    Ok(format!("{tried} calls, {answered} refused with an answer"))
}

/// An exclusive create of root's empty file, with a verifier that matches its times.
pub fn exclusive_create(scene: &Scene) -> Verdict {
    let keys =
        std::fs::File::options().write(true).open(scene.export.join(KEYS)).map_err(|e| e.to_string())?;
    let at = |seconds: u32| SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(seconds));
    let (one, two) = (0x1234_5678, 0x2345_6789);
    let times = std::fs::FileTimes::new().set_accessed(at(one)).set_modified(at(two));
    keys.set_times(times).map_err(|e| e.to_string())?;
    let mut tried = 0;
    for user in [ROOT, MALLORY] {
        for verifier in [[one, two], [two, one]] {
            let mut thief = link(scene, insider(20))?;
            let root = v3::mount(&mut thief, user, "/x")?;
            let created = v3::create_exclusive(&mut thief, user, &root, KEYS, verifier);
            refused("CREATE EXCLUSIVE in NFSv3", created)?;
            let mut session = Session::create(link(scene, insider(20))?, user, b"thief", LIKE_LINUX)?;
            let dir = session.handle(&["x"])?;
            let ops = Ops::default().put(&dir).open_exclusive(b"thief", 3, KEYS, verifier);
            refused("OPEN EXCLUSIVE4", session.status_as(user, &ops).map(|(status, _)| status))?;
            session.destroy()?;
            tried += 2;
        }
    }
    Ok(format!("{tried} tries"))
}

/// Procedures of NLM version 4.
const NLM_TEST: u32 = 1;
const NLM_LOCK: u32 = 2;
const NLM_UNLOCK: u32 = 4;
const NLM_FREE_ALL: u32 = 23;

fn nlm_lock(name: &str, file: &[u8], svid: u32) -> Xdr {
    let lock = Xdr::default().opaque(name.as_bytes()).opaque(file).opaque(b"owner").u32(svid);
    lock.u64(0).u64(10)
}

fn nlm(link: &mut Link, user: User, procedure: u32, args: &Xdr) -> Result<u32, String> {
    let results = link.call((NLM, 4, procedure), Some(user), args)?;
    let mut reader = Reader(&results);
    reader.opaque()?;
    reader.u32()
}

/// An insider holds an NFSv3 lock. Another address, and an outsider, claim to be it and release the lock.
pub fn others_nlm_lock(scene: &Scene) -> Verdict {
    let name = format!("many{}", MANY - 1);
    let mut holder = link(scene, insider(30))?;
    let root = v3::mount(&mut holder, ROOT, "/x")?;
    let file = v3::lookup(&mut holder, ROOT, &root, &name)?;
    let cookie = Xdr::default().opaque(b"c");
    let lock = cookie.clone().u32(0).u32(1).then(&nlm_lock("holder", &file, 1)).u32(0).u32(0);
    match nlm(&mut holder, ROOT, NLM_LOCK, &lock)? {
        OK => {}
        status => return Err(format!("the holder got no lock: status {status}")),
    }
    let is_held = |asker: &mut Link| -> Result<bool, String> {
        let test = cookie.clone().u32(1).then(&nlm_lock("asker", &file, 9));
        Ok(nlm(asker, ROOT, NLM_TEST, &test)? == 1)
    };
    let mut asker = link(scene, insider(31))?;
    if !is_held(&mut asker)? {
        return Err("the holder's lock is not there".to_owned());
    }
    for from in [insider(32), outsider(2)] {
        let Ok(mut thief) = link(scene, from) else { continue };
        let unlock = cookie.clone().then(&nlm_lock("holder", &file, 1));
        let _ = nlm(&mut thief, ROOT, NLM_UNLOCK, &unlock);
        let Ok(mut thief) = link(scene, from) else { continue };
        let all = Xdr::default().opaque(b"holder").u32(1);
        let _ = thief.call((NLM, 4, NLM_FREE_ALL), Some(ROOT), &all);
        if !is_held(&mut asker)? {
            return Err(format!("{from} freed the lock"));
        }
    }
    let unlock = cookie.clone().then(&nlm_lock("holder", &file, 1));
    nlm(&mut holder, ROOT, NLM_UNLOCK, &unlock)?;
    if is_held(&mut asker)? {
        return Err("the holder itself cannot free its lock".to_owned());
    }
    Ok("2 thieves".to_owned())
}

/// An outsider that knows handles requests everything that it must not get.
pub fn outsider_requests(scene: &Scene) -> Verdict {
    let mut friend = link(scene, insider(40))?;
    let root = v3::mount(&mut friend, ROOT, "/x")?;
    let file = v3::lookup(&mut friend, ROOT, &root, SHARED)?;
    let from = outsider(3);
    type Ask<'a> = &'a dyn Fn(&mut Link) -> Result<u32, String>;
    let asks: [(&str, Ask<'_>); 6] = [
        ("GETATTR", &|link| v3::getattr(link, ROOT, &file)),
        ("READ", &|link| v3::read(link, ROOT, &file, 10)),
        ("WRITE", &|link| v3::write(link, ROOT, &file, 2, b"x")),
        ("MNT", &|link| v3::mount(link, ROOT, "/x").map(|_| OK)),
        ("EXCHANGE_ID", &|link| nfs::exchange_id(link, ROOT, b"outsider", 1).map(|_| OK)),
        ("EXPORT", &|link| {
            // The list must be empty.
            let results = link.call((MOUNT, 3, 5), Some(ROOT), &Xdr::default())?;
            Ok(if Reader(&results).u32()? == 0 { 1 } else { OK })
        }),
    ];
    for (what, ask) in asks {
        let Ok(mut thief) = link(scene, from) else { continue };
        refused(&format!("{what} by an outsider"), ask(&mut thief))?;
    }
    Ok(format!("{} kinds of requests", asks.len()))
}
