//! Attacks that use up memory, connections or time. Each continues until it is stopped, and returns a summary of what
//! it did.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::nfs::{self, Channel, LIKE_LINUX, Ops, Session, v3};
use super::scene::Scene;
use super::target::{LARGE, LARGE_BYTES, MANY, SHARED};
use super::wire::{self, Link, NFS, ROOT, Xdr};

/// An address that a rule names.
pub fn insider(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 1)) + number)
}

/// An address that no rule names.
pub fn outsider(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 2, 0, 1)) + number)
}

/// Pause of an attacker after a refusal.
const AGAIN: Duration = Duration::from_millis(5);

type AttackResult = Result<String, String>;

/// Four insiders open sixteen connections each, announce a record of 4 MiB on each, and send one byte of it.
pub fn half_records(scene: &Scene) -> AttackResult {
    let held = scene.each(4, |number| {
        let mut links = Vec::new();
        while scene.goes_on() && links.len() < 16 {
            let Ok(mut link) = Link::open(insider(number), scene.nfs) else { break };
            let begin = [&(1u32 << 31 | 4 << 20).to_be_bytes()[..], &[0]].concat();
            if link.stream.write_all(&begin).is_ok() {
                links.push(link);
            }
        }
        scene.await_stop();
        links.len()
    });
    Ok(format!("{} records begun", held.iter().sum::<usize>()))
}

/// Five insiders request 512 MiB each and read no reply.
pub fn unread_replies(scene: &Scene) -> AttackResult {
    let asked = scene.each(5, |number| {
        let ask = || -> Result<u64, String> {
            let mut link = Link::open(insider(number), scene.nfs).map_err(|e| e.to_string())?;
            let root = v3::mount(&mut link, ROOT, "/x")?;
            let file = v3::lookup(&mut link, ROOT, &root, SHARED)?;
            link.stream.set_write_timeout(Some(Duration::from_millis(200))).map_err(|e| e.to_string())?;
            let mut asked = 0;
            for _ in 0..512 {
                if !scene.goes_on() || link.send((NFS, 3, 6), &v3::read_args(&file, 0, 1 << 20)).is_err() {
                    break;
                }
                asked += 1;
            }
            scene.await_stop();
            Ok(asked)
        };
        ask().unwrap_or(0)
    });
    Ok(format!("{} READs of 1 MiB", asked.iter().sum::<u64>()))
}

/// Outsiders open connections as fast as they can and hold them.
pub fn outsider_connections(scene: &Scene) -> AttackResult {
    connections(scene, if scene.long { (20, 500) } else { (4, 300) }, outsider)
}

/// Insiders open connections as fast as they can and hold them.
pub fn insider_connections(scene: &Scene) -> AttackResult {
    connections(scene, if scene.long { (4, 2500) } else { (4, 300) }, insider)
}

fn connections(scene: &Scene, (addresses, each): (u32, usize), from: fn(u32) -> Ipv4Addr) -> AttackResult {
    let tried = AtomicU64::new(0);
    let held = scene.each(addresses, |number| {
        let mut links: Vec<Link> = Vec::new();
        while scene.goes_on() {
            if links.len() >= each {
                // Closed connections are opened again.
                links.retain(|link| !closed(link));
                std::thread::sleep(AGAIN);
                continue;
            }
            tried.fetch_add(1, Ordering::Relaxed);
            match Link::open(from(number), scene.nfs) {
                Ok(link) => links.push(link),
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
        links.retain(|link| !closed(link));
        links.len()
    });
    Ok(format!("{} connections, {} open at the end", tried.into_inner(), held.iter().sum::<usize>()))
}

fn closed(link: &Link) -> bool {
    let mut byte = [0];
    let _ = link.stream.set_nonblocking(true);
    let ended = match (&link.stream).read(&mut byte) {
        Ok(0) => true,
        Ok(_) => false,
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
    };
    let _ = link.stream.set_nonblocking(false);
    ended
}

/// Insiders and outsiders send garbage, or calls of unknown procedures, as fast as they can.
pub fn garbage(scene: &Scene) -> AttackResult {
    let sent = AtomicU64::new(0);
    scene.each(4, |number| {
        let from = if number % 2 == 0 { insider(number) } else { outsider(number) };
        let mut random = u64::from(number) + 1;
        while scene.goes_on() {
            let Ok(mut link) = Link::open(from, scene.nfs) else {
                std::thread::sleep(AGAIN);
                continue;
            };
            let mut sink = match link.stream.try_clone() {
                Ok(stream) => stream,
                Err(_) => continue,
            };
            // Replies are read, so that unread replies are not another attack.
            let reader = std::thread::spawn(move || {
                let mut bytes = [0; 1 << 16];
                while sink.read(&mut bytes).is_ok_and(|read| read > 0) {}
            });
            while scene.goes_on() {
                let batch: Vec<u8> = (0..64).flat_map(|_| junk(&mut random)).collect();
                if link.stream.write_all(&batch).is_err() {
                    break;
                }
                sent.fetch_add(64, Ordering::Relaxed);
            }
            let _ = link.stream.shutdown(std::net::Shutdown::Both);
            drop(link);
            let _ = reader.join();
        }
    });
    let rate = sent.into_inner() as f64 / scene.seconds().max(0.001);
    Ok(format!("{rate:.0} requests a second"))
}

/// A record that is not a valid call: other programs, versions and procedures, and random arguments.
fn junk(random: &mut u64) -> Vec<u8> {
    let mut next = || {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) as u32
    };
    let program = if next() % 2 == 0 { NFS } else { next() };
    let args = (0..next() % 24).fold(Xdr::default(), |args, _| args.u32(next()));
    let message = wire::call(next(), program, next() % 6, next() % 30, Some((next(), next())), &args);
    wire::record(&message)
}

/// The largest session that can be requested.
const GREEDY: Channel = Channel { cached: 1 << 20, slots: 256 };

/// A small session, so that client records run out before the memory for sessions.
const SMALL: Channel = Channel { cached: 512, slots: 1 };

/// Creates clients and sessions as long as the server accepts them.
fn sessions(scene: &Scene, addresses: u32, from: fn(u32) -> Ipv4Addr, channel: Channel) -> AttackResult {
    let made = AtomicU64::new(0);
    let refused = AtomicU64::new(0);
    scene.each(addresses, |address| {
        let mut number = 0u64;
        let mut link = None;
        while scene.goes_on() {
            let Some(connection) = link.as_mut() else {
                link = Link::open(from(address), scene.nfs).ok();
                std::thread::sleep(AGAIN);
                continue;
            };
            number += 1;
            let owner = format!("greedy {address} {number}");
            let client = nfs::exchange_id(connection, ROOT, owner.as_bytes(), 1);
            match client.and_then(|client| nfs::create_session(connection, ROOT, client, channel)) {
                Ok(_) => {
                    made.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                    link = None;
                }
            }
        }
    });
    Ok(format!("{} sessions made, {} refused", made.into_inner(), refused.into_inner()))
}

/// Outsiders request the largest sessions.
pub fn outsider_sessions(scene: &Scene) -> AttackResult {
    sessions(scene, 4, outsider, GREEDY)
}

/// Insiders request the largest sessions, under a new name each time, and use none.
pub fn insider_sessions(scene: &Scene) -> AttackResult {
    sessions(scene, 2, insider, GREEDY)
}

/// An insider creates far more clients than there are records. For each new one, another is forgotten, and the log
/// must record that. A single attacker, because clients that are not confirmed yet are forgotten first, and the log
/// does not know them.
pub fn client_ids(scene: &Scene) -> AttackResult {
    sessions(scene, 1, insider, SMALL)
}

/// One insider creates as many clients as it can, each with an open file, and renews their leases. Another insider,
/// which only renews its own lease, must not lose its record.
pub fn client_records(scene: &Scene) -> AttackResult {
    let link = Link::open(insider(100), scene.nfs).map_err(|e| e.to_string())?;
    let mut idle = Session::create(link, ROOT, b"idle", SMALL)?;
    std::thread::scope(|threads| {
        let renewing = threads.spawn(|| {
            while scene.goes_on() {
                let renewed = Instant::now();
                while scene.goes_on() && renewed.elapsed() < RENEWS_EVERY {
                    std::thread::park_timeout(AGAIN);
                }
                idle.run(&Ops::default().put_root())?;
            }
            Ok(())
        });
        let said = records(scene);
        let renewed: Result<(), String> = renewing.join().map_err(|_| "the idle client's thread ended")?;
        renewed.map_err(|e| format!("an idle client of another address: {e}"))?;
        Ok(said)
    })
}

/// A third of the server's lease.
const RENEWS_EVERY: Duration = Duration::from_secs(5);

fn records(scene: &Scene) -> String {
    let made = AtomicU64::new(0);
    let refused = AtomicU64::new(0);
    scene.each(4, |thread| {
        // Their sessions with sequence numbers.
        let mut held: Vec<(Vec<u8>, u32)> = Vec::new();
        let mut renewed = 0;
        let mut link = None;
        for number in 0u64.. {
            if !scene.goes_on() {
                break;
            }
            let Ok(connection) = link.take().map_or_else(|| Link::open(insider(0), scene.nfs), Ok) else {
                std::thread::sleep(AGAIN);
                continue;
            };
            let owner = format!("record {thread} {number}");
            match holder(connection, owner.as_bytes()) {
                Ok(session) => {
                    made.fetch_add(1, Ordering::Relaxed);
                    held.push((session.id, session.sequence));
                    link = Some(session.link);
                }
                Err(_) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                    let Ok(mut connection) = Link::open(insider(0), scene.nfs) else { continue };
                    for _ in 0..16 {
                        renewed += 1;
                        let at = renewed % held.len().max(1);
                        let Some((session, sequence)) = held.get_mut(at) else { break };
                        *sequence += 1;
                        if nfs::renew(&mut connection, ROOT, session, *sequence).is_err() {
                            break;
                        }
                    }
                    link = Some(connection);
                }
            }
        }
    });
    format!("{} clients with a file open each, {} refused", made.into_inner(), refused.into_inner())
}

/// A client with an open file.
fn holder(link: Link, owner: &[u8]) -> Result<Session, String> {
    let mut session = Session::create(link, ROOT, owner, SMALL)?;
    let root = session.handle(&["x"])?;
    session.open(owner, 1, &root, "many0")?;
    Ok(session)
}

/// A session whose slots keep large replies.
const KEEPING: Channel = Channel { cached: 128 << 10, slots: 64 };

/// Four insiders fill all memory for kept replies and continue, so that the log starts over again and again. Each
/// time it must contain all of them.
pub fn kept_replies(scene: &Scene) -> AttackResult {
    let asked = AtomicU64::new(0);
    let refused = AtomicU64::new(0);
    let ended = scene.each(4, |address| {
        let keep = || -> Result<(), String> {
            let link = Link::open(insider(address), scene.nfs).map_err(|e| e.to_string())?;
            let owner = format!("keeper {address}");
            let mut session = Session::create(link, ROOT, owner.as_bytes(), KEEPING)?;
            let root = session.handle(&["x"])?;
            let name = format!("many{}", address % MANY);
            let stateid = session.open(b"keeper", 3, &root, &name)?;
            let file = session.handle(&["x", &name])?;
            session.run(&Ops::default().put(&file).write(&stateid, &vec![5; 120 << 10]))?;
            // Replies without a change are kept as long as those with one.
            let read = Ops::default().put(&file).read(&stateid, 120 << 10);
            let both = Ops::default().put(&file).write(&stateid, &[6]).read(&stateid, 120 << 10);
            let mut sequences = [0u32; 64];
            let mut at = 0;
            while scene.goes_on() {
                at += 1;
                // The first slot is the session's own.
                let slot = at % 63 + 1;
                let sequence = sequences.get_mut(slot as usize).ok_or("a slot")?;
                let ops = if at % 8 == 0 { &both } else { &read };
                *sequence += 1;
                asked.fetch_add(1, Ordering::Relaxed);
                if session.keep((slot, 63), *sequence, ops)? != nfs::OK {
                    *sequence -= 1;
                    refused.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(AGAIN);
                }
            }
            Ok(())
        };
        again(scene, AGAIN, keep)
    });
    let ended = one_of("; ", &ended);
    let (asked, refused) = (asked.into_inner(), refused.into_inner());
    Ok(format!("{asked} replies of 120 KiB to be kept, {refused} refused{ended}"))
}

/// Two insiders open files repeatedly, each time with a new open owner, even if refused.
pub fn opens(scene: &Scene) -> AttackResult {
    let (made, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let bound: u64 = if scene.long { 1_000_000 } else { 100_000 };
    let ended = scene.each(2, |address| {
        let open = || -> Result<(), String> {
            let link = Link::open(insider(address), scene.nfs).map_err(|e| e.to_string())?;
            let mut session = Session::create(link, ROOT, b"opener", LIKE_LINUX)?;
            let root = session.handle(&["x"])?;
            let mut number = 0u64;
            let sent = || made.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed);
            while scene.goes_on() && sent() < bound {
                let ops = (0..OPENS_AT_ONCE).fold(Ops::default(), |ops, _| {
                    number += 1;
                    let name = format!("many{}", number % u64::from(MANY));
                    ops.put(&root).open(&number.to_be_bytes(), 3, &name)
                });
                let counted = if session.status_as(ROOT, &ops)?.0 == nfs::OK { &made } else { &refused };
                counted.fetch_add(OPENS_AT_ONCE, Ordering::Relaxed);
            }
            Ok(())
        };
        let ended = open().err().map_or(String::new(), |why| format!("; {why}"));
        scene.await_stop();
        ended
    });
    let (made, refused) = (made.into_inner(), refused.into_inner());
    Ok(format!("{made} opens, {refused} in COMPOUNDs that were refused{}", ended.concat()))
}

const OPENS_AT_ONCE: u64 = 16;

/// Insiders send COMPOUNDs of copies of a large file and disconnect.
pub fn copies(scene: &Scene) -> AttackResult {
    let sent = AtomicU64::new(0);
    let ended = scene.each(4, |address| {
        let mut round = 0;
        again(scene, Duration::from_millis(200), || {
            round += 1;
            copy_flood(scene, address, round)?;
            sent.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    });
    let refused = one_of(", then ", &ended);
    Ok(format!("{} COMPOUNDs of 48 copies of {} MiB{refused}", sent.into_inner(), LARGE_BYTES >> 20))
}

fn copy_flood(scene: &Scene, address: u32, round: u32) -> Result<(), String> {
    let link = Link::open(insider(address), scene.nfs).map_err(|e| e.to_string())?;
    let owner = format!("copier {address} {round}");
    let mut session = Session::create(link, ROOT, owner.as_bytes(), LIKE_LINUX)?;
    let root = session.handle(&["x"])?;
    let from = session.open(b"copier", 3, &root, LARGE)?;
    let name = format!("many{}", address % MANY);
    let to = session.open(b"copier", 3, &root, &name)?;
    let (large, other) = (session.handle(&["x", LARGE])?, session.handle(&["x", &name])?);
    // Real data, so that a copy has something to do.
    session.run(&Ops::default().put(&large).write(&from, &vec![9; 512 << 10]))?;
    let ops = Ops::default().put(&large).save().put(&other);
    let ops = (0..48).fold(ops, |ops, at| ops.copy(&from, &to, at << 20, LARGE_BYTES, true));
    session.send(&ops).map_err(|e| e.to_string())
}

/// Repeats an action until the scene ends. Returns the last error.
fn again(scene: &Scene, pause: Duration, mut does: impl FnMut() -> Result<(), String>) -> String {
    let mut last = String::new();
    while scene.goes_on() {
        if let Err(why) = does() {
            last = why;
        }
        std::thread::sleep(pause);
    }
    last
}

/// The first text that is not empty, after `lead`.
fn one_of(lead: &str, all: &[String]) -> String {
    all.iter().find(|words| !words.is_empty()).map_or(String::new(), |words| format!("{lead}{words}"))
}

/// Retries of one COPY sent along with it.
const RETRIES: u32 = 200;

/// Four insiders have a large file copied and retry the request hundreds of times while it is in progress.
pub fn retries(scene: &Scene) -> AttackResult {
    let (copied, repeated) = (AtomicU64::new(0), AtomicU64::new(0));
    let ended = scene.each(4, |address| {
        let run = || -> Result<(), String> {
            let link = Link::open(insider(address), scene.nfs).map_err(|e| e.to_string())?;
            let owner = format!("repeater {address}");
            let mut session = Session::create(link, ROOT, owner.as_bytes(), LIKE_LINUX)?;
            let root = session.handle(&["x"])?;
            let from = session.open(b"repeater", 3, &root, LARGE)?;
            let name = format!("many{}", address % MANY);
            let to = session.open(b"repeater", 3, &root, &name)?;
            let (large, other) = (session.handle(&["x", LARGE])?, session.handle(&["x", &name])?);
            session.run(&Ops::default().put(&large).write(&from, &vec![9; 512 << 10]))?;
            let ops = Ops::default().put(&large).save().put(&other).copy(&from, &to, 0, 64 << 20, true);
            for sequence in 1.. {
                if !scene.goes_on() {
                    break;
                }
                for _ in 0..=RETRIES {
                    session.repeat(1, sequence, &ops).map_err(|e| e.to_string())?;
                }
                for _ in 0..=RETRIES {
                    session.link.receive()?;
                }
                copied.fetch_add(1, Ordering::Relaxed);
                repeated.fetch_add(u64::from(RETRIES), Ordering::Relaxed);
            }
            Ok(())
        };
        again(scene, AGAIN, run)
    });
    let ended = one_of("; ", &ended);
    Ok(format!("{} copies, {} retries{ended}", copied.into_inner(), repeated.into_inner()))
}

/// An insider starts a copy and never answers the callback about its end.
pub fn unanswered_callbacks(scene: &Scene) -> AttackResult {
    background(scene, 1, 17 << 20, Duration::from_millis(50))
}

/// Four insiders do so as fast as they can.
pub fn copies_in_background(scene: &Scene) -> AttackResult {
    background(scene, 4, 64 << 20, Duration::ZERO)
}

/// Copies of more than 16 MiB, which continue after the reply.
fn background(scene: &Scene, attackers: u32, bytes: u64, pause: Duration) -> AttackResult {
    let sent = AtomicU64::new(0);
    scene.each(attackers, |address| {
        let run = || -> Result<(), String> {
            let link = Link::open(insider(address), scene.nfs).map_err(|e| e.to_string())?;
            let owner = format!("deaf {address}");
            let mut session = Session::create(link, ROOT, owner.as_bytes(), LIKE_LINUX)?;
            let root = session.handle(&["x"])?;
            let from = session.open(b"deaf", 3, &root, LARGE)?;
            let name = format!("many{}", address % MANY);
            let to = session.open(b"deaf", 3, &root, &name)?;
            let (large, other) = (session.handle(&["x", LARGE])?, session.handle(&["x", &name])?);
            while scene.goes_on() {
                let ops = Ops::default().put(&large).save().put(&other);
                session.run(&ops.copy(&from, &to, 0, bytes, false))?;
                sent.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(pause);
            }
            Ok(())
        };
        while scene.goes_on() {
            // A callback arrived instead of a reply, or the server delays its reply: use a new connection.
            let _ = run();
            std::thread::sleep(AGAIN);
        }
    });
    Ok(format!("{} copies of {} MiB", sent.into_inner(), bytes >> 20))
}

/// Sixty clients of `/metrics` that do not read the reply, or do not finish their request.
pub fn slow_metrics(scene: &Scene) -> AttackResult {
    let opened = AtomicU64::new(0);
    scene.each(6, |address| {
        let mut links: Vec<Link> = Vec::new();
        while scene.goes_on() {
            links.retain(|link| !closed(link));
            if links.len() >= 10 {
                std::thread::sleep(AGAIN);
                continue;
            }
            let Ok(mut link) = Link::open(outsider(address), scene.metrics) else {
                std::thread::sleep(AGAIN);
                continue;
            };
            let question: &[u8] = match links.len() % 2 {
                0 => b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                _ => b"GET /met",
            };
            if link.stream.write_all(question).is_ok() {
                opened.fetch_add(1, Ordering::Relaxed);
                links.push(link);
            }
        }
    });
    Ok(format!("{} readers", opened.into_inner()))
}
