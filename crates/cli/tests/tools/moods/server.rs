//! A server with a mood: our own, and before it something that takes COMPOUNDs apart, lets the server execute some of their
//! operations and answers the next one itself, as RFC 8881 and RFC 7530 allow a server to answer.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use landfast_nfs::v4::{ArgOp, CompoundArgs, CompoundRes, NfsStat, OpNum, ResOp, SessionId};
use landfast_xdr::{Bytes, BytesMut, Decode as _, Encode as _, Reader};

/// What becomes of a COMPOUND.
pub enum Act {
    /// It is executed.
    Pass,
    /// So many operations are executed, the next one has this status.
    Fail(usize, NfsStat),
    /// This is executed in its place.
    Instead(Vec<ArgOp>),
    /// The session is destroyed, and the answer is that of a server that does not know it.
    Lose(SessionId),
    /// No answer comes.
    Hang,
    /// The server says that it cannot decode it (GARBAGE_ARGS).
    Garbage,
    /// The connection is closed within the reply.
    Cut,
}

/// Says it of each; a reply may be changed as well.
pub trait Mood: Send {
    fn act(&mut self, _call: &CompoundArgs) -> Act {
        Act::Pass
    }

    fn reply(&mut self, _reply: &mut CompoundRes) {}

    /// The same of a call of version 3 with these arguments.
    fn procedure(&mut self, _procedure: u32, _arguments: Bytes) -> Old {
        Old::Pass
    }
}

/// What becomes of a call of version 3.
pub enum Old {
    Pass,
    /// It fails with this `nfsstat3` before anything is executed.
    Fail(u32),
    /// It is executed with these arguments.
    With(Bytes),
    Cut,
}

/// How many words of nothing, attributes that are not there, stand behind the status of a failure, by procedure (RFC 1813
/// section 3.3).
const NOTHING: [usize; 22] = [0, 0, 2, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 4, 3, 1, 1, 1, 1, 1, 2];

/// Of the connections of one client.
pub struct Moody {
    /// Where it listens.
    pub addr: String,
    mood: Arc<Mutex<Box<dyn Mood>>>,
}

impl Moody {
    /// Before the server at this address.
    pub fn new(server: &str, mood: Box<dyn Mood>) -> Moody {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let addr = listener.local_addr().expect("an address").to_string();
        let mood = Arc::new(Mutex::new(mood));
        let (server, shared) = (server.to_owned(), mood.clone());
        // It ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let both = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
                let (Some(down), mood) = (both(), shared.clone()) else { continue };
                let link = Arc::new(Link { mood, pending: Mutex::default(), down: Mutex::default() });
                let up = link.clone();
                thread::spawn(move || up.calls(client, server));
                thread::spawn(move || link.replies(down.1, down.0));
            }
        });
        Moody { addr, mood }
    }

    /// Another one from now on.
    pub fn becomes(&self, mood: Box<dyn Mood>) {
        *lock(&self.mood) = mood;
    }
}

fn lock<T: ?Sized>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("no panic")
}

/// What is to be done to a reply.
enum Then {
    /// This operation comes behind its results, if all were good.
    Add(ResOp),
    Cut,
    Look,
    /// This in its place.
    Say(CompoundRes),
}

/// A connection.
struct Link {
    mood: Arc<Mutex<Box<dyn Mood>>>,
    /// By transaction IDs.
    pending: Mutex<HashMap<u32, Then>>,
    /// Held while a record goes to the client.
    down: Mutex<()>,
}

impl Link {
    fn calls(&self, mut client: TcpStream, mut server: TcpStream) {
        while let Ok(mut record) = read_record(&mut client) {
            if let Some(procedure) = procedure(&record) {
                let (xid, header) = (word(&record, 0), header(&record));
                let arguments = Bytes::copy_from_slice(&record[header..]);
                let old = lock(&self.mood).procedure(procedure, arguments);
                match old {
                    Old::Pass => {}
                    Old::With(arguments) => {
                        record.truncate(header);
                        record.extend_from_slice(&arguments);
                    }
                    Old::Cut => _ = lock(&self.pending).insert(xid, Then::Cut),
                    Old::Fail(status) => {
                        let mut reply = [xid, 1, 0, 0, 0, 0, status].map(u32::to_be_bytes).concat();
                        reply.resize(reply.len() + 4 * NOTHING[procedure as usize], 0);
                        let _down = lock(&self.down);
                        if write_record(&mut client, &[&reply]).is_err() {
                            break;
                        }
                        continue;
                    }
                }
            }
            let Some((header, call)) = compound(&record) else {
                if write_record(&mut server, &[&record]).is_err() {
                    break;
                }
                continue;
            };
            let xid = word(&record, 0);
            let act = lock(&self.mood).act(&call);
            let (ops, then) = match act {
                Act::Pass => (call.ops, Then::Look),
                Act::Cut => (call.ops, Then::Cut),
                Act::Instead(ops) => (ops, Then::Look),
                Act::Hang => continue,
                Act::Garbage => {
                    let garbage = [xid, 1, 0, 0, 0, 4].map(u32::to_be_bytes).concat();
                    let _down = lock(&self.down);
                    if write_record(&mut client, &[&garbage]).is_err() {
                        break;
                    }
                    continue;
                }
                Act::Lose(session) => {
                    let status = NfsStat::NFS4ERR_BADSESSION;
                    let results = vec![ResOp::failed(OpNum::SEQUENCE, status)];
                    let reply = CompoundRes { status, tag: call.tag.clone(), results };
                    (vec![ArgOp::DestroySession(session)], Then::Say(reply))
                }
                Act::Fail(at, status) => {
                    let failed = ResOp::failed(call.ops[at].op(), status);
                    if at == 0 {
                        let reply = CompoundRes { status, tag: call.tag, results: vec![failed] };
                        let accepted = [xid, 1, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
                        let _down = lock(&self.down);
                        if write_record(&mut client, &[&accepted, &reply.to_bytes()]).is_err() {
                            break;
                        }
                        continue;
                    }
                    (call.ops[..at].to_vec(), Then::Add(failed))
                }
            };
            lock(&self.pending).insert(xid, then);
            let args = CompoundArgs { announced: ops.len() as u32, ops, ..call };
            if write_record(&mut server, &[&record[..header], &args.to_bytes()]).is_err() {
                break;
            }
        }
        let _ = (server.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both));
    }

    fn replies(&self, mut server: TcpStream, mut client: TcpStream) {
        while let Ok(record) = read_record(&mut server) {
            // Not a call to the client.
            let then =
                if word(&record, 1) == 1 { lock(&self.pending).remove(&word(&record, 0)) } else { None };
            let sent = match then {
                Some(Then::Cut) => {
                    let _down = lock(&self.down);
                    let marker = (record.len() as u32 | 1 << 31).to_be_bytes();
                    let _ = client.write_all(&[&marker, &record[..record.len() / 2]].concat());
                    break;
                }
                Some(then) => {
                    // Accepted, no verifier, success.
                    let mut r = Reader::new(Bytes::copy_from_slice(&record[24..]));
                    let mut reply = CompoundRes::decode(&mut r).expect("our server's reply");
                    match then {
                        Then::Add(failed) if reply.status.is_ok() => {
                            reply.status = failed.status;
                            reply.results.push(failed);
                        }
                        Then::Say(other) => reply = other,
                        _ => {}
                    }
                    lock(&self.mood).reply(&mut reply);
                    let _down = lock(&self.down);
                    write_record(&mut client, &[&record[..24], &reply.to_bytes()])
                }
                None => {
                    let _down = lock(&self.down);
                    write_record(&mut client, &[&record])
                }
            };
            if sent.is_err() {
                break;
            }
        }
        let _ = (server.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both));
    }
}

/// The COMPOUND that a record is, and how long its RPC header is.
fn compound(record: &[u8]) -> Option<(usize, CompoundArgs)> {
    // A call of NFS version 4, procedure 1.
    let is = record.len() >= 40 && (1..6).map(|n| word(record, n)).eq([0, 2, 100_003, 4, 1]);
    is.then(|| {
        let header = header(record);
        let mut r = Reader::new(Bytes::copy_from_slice(&record[header..]));
        let call = CompoundArgs::decode_limited(&mut r, u32::MAX).expect("our client's call");
        (header, call)
    })
}

/// How long the RPC header of a call is: two of its words, a credential and a verifier, which is empty.
fn header(record: &[u8]) -> usize {
    32 + word(record, 7) as usize + 8
}

/// The procedure of version 3 that a record calls, but for NULL.
fn procedure(record: &[u8]) -> Option<u32> {
    let is = record.len() >= 40 && (1..5).map(|n| word(record, n)).eq([0, 2, 100_003, 3]);
    is.then(|| word(record, 5)).filter(|procedure| (1..22).contains(procedure))
}

/// The `n`th word of a record, 0 where it has none.
pub fn word(record: &[u8], n: usize) -> u32 {
    record.get(4 * n..4 * n + 4).map_or(0, |w| u32::from_be_bytes(w.try_into().expect("four bytes")))
}

/// RFC 5531 section 11.
pub fn read_record(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut record = Vec::new();
    loop {
        let mut marker = [0; 4];
        from.read_exact(&mut marker)?;
        let marker = u32::from_be_bytes(marker);
        from.take(u64::from(marker & !(1 << 31))).read_to_end(&mut record)?;
        if marker >> 31 == 1 {
            return Ok(record);
        }
    }
}

pub fn write_record(to: &mut TcpStream, parts: &[&[u8]]) -> io::Result<()> {
    let body = parts.concat();
    let mut all = BytesMut::with_capacity(body.len() + 4);
    all.extend_from_slice(&(body.len() as u32 | 1 << 31).to_be_bytes());
    all.extend_from_slice(&body);
    to.write_all(&all)
}
