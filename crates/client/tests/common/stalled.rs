//! Between a client and a server: a server whose storage stalls, as Linux's shows it. One request stays unanswered and its connection
//! ends. While it runs, its slot is in use, and whatever is sent on that slot is answered with DELAY. Then the next request with its
//! number is taken for the same one and gets its reply.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use landfast_nfs::v4::{ArgOp, CompoundArgs, CompoundRes, NfsStat, OpNum, ResOp};
use landfast_xdr::{Bytes, Encode};
use tokio::sync::Notify;

/// The words of the RPC header of a reply: accepted, no verifier, success.
const ACCEPTED: [u32; 5] = [1, 0, 0, 0, 0];

/// A slot of a session, with a sequence number.
type Numbered = ([u8; 16], u32, u32);

enum State {
    /// The next request with an OPEN stalls.
    Waiting,
    Running(Numbered, Vec<u8>),
    /// With the reply.
    Done(Numbered, Vec<u8>),
}

struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    delayed: Notify,
}

pub struct Stalled {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Stalled {
    /// Before the server at this address.
    pub fn new(server: SocketAddr) -> Stalled {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { server, state: Mutex::new(State::Waiting), delayed: Notify::new() });
        let all = shared.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let all = all.clone();
                thread::spawn(move || all.serve(client));
            }
        });
        Stalled { addr, shared }
    }

    /// Waits until the request was sent again and answered with DELAY.
    pub async fn delayed(&self) {
        self.shared.delayed.notified().await;
    }

    /// The storage works again: the request is executed.
    pub fn thaw(&self) {
        let mut state = self.shared.state.lock().unwrap();
        let State::Running(numbered, record) = &*state else { panic!("nothing has stalled") };
        let mut server = TcpStream::connect(self.shared.server).unwrap();
        write_record(&mut server, record).unwrap();
        *state = State::Done(*numbered, read_record(&mut server).unwrap());
    }
}

impl Shared {
    /// One call after another: the client of the tests makes no more at a time.
    fn serve(&self, mut client: TcpStream) {
        let Ok(mut server) = TcpStream::connect(self.server) else { return };
        while let Ok(record) = read_record(&mut client) {
            let Some(answer) = self.answer(&record, &mut server) else { break };
            if write_record(&mut client, &answer).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }

    /// `None`: the connection ends.
    fn answer(&self, record: &[u8], server: &mut TcpStream) -> Option<Vec<u8>> {
        let xid = &record[..4];
        if let Some((numbered, opens)) = numbered(record) {
            let mut state = self.state.lock().unwrap();
            match &*state {
                State::Waiting if opens => {
                    *state = State::Running(numbered, record.to_vec());
                    return None;
                }
                State::Running(running, _) if *running == numbered => {
                    self.delayed.notify_one();
                    let status = NfsStat::NFS4ERR_DELAY;
                    let results = vec![ResOp::failed(OpNum::SEQUENCE, status)];
                    let reply = CompoundRes { status, tag: Bytes::new(), results };
                    let header = ACCEPTED.map(u32::to_be_bytes).concat();
                    return Some([xid, &header, &reply.to_bytes()].concat());
                }
                State::Done(done, reply) if *done == numbered => return Some([xid, &reply[4..]].concat()),
                _ => {}
            }
        }
        write_record(server, record).ok()?;
        read_record(server).ok()
    }
}

/// The slot of a COMPOUND with a session, and whether it opens anything.
fn numbered(record: &[u8]) -> Option<(Numbered, bool)> {
    let word = |n: usize| u32::from_be_bytes(record[4 * n..4 * n + 4].try_into().unwrap());
    // A call of NFS version 4, procedure 1.
    if record.len() < 40 || !(1..6).map(word).eq([0, 2, 100_003, 4, 1]) {
        return None;
    }
    // A credential and a verifier, which is empty.
    let header = 32 + word(7) as usize + 8;
    let mut reader = landfast_xdr::Reader::new(Bytes::copy_from_slice(&record[header..]));
    let call = CompoundArgs::decode_limited(&mut reader, u32::MAX).unwrap();
    let ArgOp::Sequence(sequence) = call.ops.first()? else { return None };
    let numbered = (sequence.sessionid, sequence.slotid, sequence.sequenceid);
    Some((numbered, call.ops.iter().any(|op| matches!(op, ArgOp::Open(_)))))
}

/// RFC 5531 section 11.
fn read_record(from: &mut TcpStream) -> io::Result<Vec<u8>> {
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

fn write_record(to: &mut TcpStream, record: &[u8]) -> io::Result<()> {
    to.write_all(&[&(record.len() as u32 | 1 << 31).to_be_bytes(), record].concat())
}
