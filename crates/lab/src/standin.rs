//! A stand-in for a server: it answers each call at once, with nothing, after so much work. What its clients wait, the machine alone makes
//! them wait: its processors, its scheduler, its network stack, and the clients themselves.

use crate::error::{Context, Error, Result};
use crate::limits::SERIAL_PATIENCE;
use crate::serial::session::credential;
use landfast_verify::blocking::wire::{Procedure, Wire};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// NULL of NFSv3.
const NULL: Procedure = Procedure { prog: landfast_nfs::PROGRAM, vers: 3, proc: 0 };

/// An accepted reply without results, after its header and transaction id (RFC 5531 section 9).
const EMPTY_SUCCESS: [u8; 20] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Header of a record of one fragment that holds a reply (RFC 5531 section 11).
const REPLY_HEADER: u32 = 0x8000_0000 | (4 + EMPTY_SUCCESS.len() as u32);

/// Threads that serve a part of the connections each, every one in its turn. They end once the clients are gone.
pub struct StandIn(Vec<JoinHandle<io::Result<()>>>);

/// A connection to it.
pub struct Asker(Wire);

impl StandIn {
    /// Serves so many clients on so many threads. Each call takes `work` of the thread's processor time.
    pub fn start(clients: u64, threads: u64, work: Duration) -> Result<(StandIn, Vec<Asker>)> {
        let what = || "a stand-in for a server".to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(what)?;
        let addr = listener.local_addr().context(what)?;
        let mut served: Vec<Vec<TcpStream>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
        let mut askers = Vec::new();
        for n in 0..clients {
            let stream = TcpStream::connect(addr).context(what)?;
            let (accepted, _) = listener.accept().context(what)?;
            accepted.set_nodelay(true).context(what)?;
            let all = served.len();
            served[n as usize % all].push(accepted);
            let wire = Wire::over(stream, addr, credential("asker"), 0, SERIAL_PATIENCE);
            askers.push(Asker(wire.context(what)?));
        }
        let start =
            |part| std::thread::Builder::new().name("stand-in".into()).spawn(move || serve(part, work));
        let threads = served.into_iter().map(start).collect::<io::Result<_>>().context(what)?;
        Ok((StandIn(threads), askers))
    }

    /// Waits until all clients are gone.
    pub fn end(self) -> Result<()> {
        for thread in self.0 {
            let ended = thread.join().map_err(|_| Error::Child { role: "stand-in", what: "panic".into() })?;
            ended.context(|| "a stand-in for a server".to_owned())?;
        }
        Ok(())
    }
}

impl Asker {
    /// One call, and its reply.
    pub fn ask(&mut self) -> Result<()> {
        Ok(self.0.call(NULL, &()).map(drop)?)
    }
}

fn serve(mut clients: Vec<TcpStream>, work: Duration) -> io::Result<()> {
    while !clients.is_empty() {
        let mut fds: Vec<PollFd<'_>> = clients.iter().map(|c| PollFd::new(c, PollFlags::IN)).collect();
        poll(&mut fds, None)?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut left = Vec::with_capacity(clients.len());
        for (mut client, ready) in clients.into_iter().zip(ready) {
            if !ready || answer(&mut client, work)? {
                left.push(client);
            }
        }
        clients = left;
    }
    Ok(())
}

/// Answers the call that has arrived; `false`: the client is gone.
fn answer(client: &mut TcpStream, work: Duration) -> io::Result<bool> {
    let mut head = [0; 8];
    match client.read_exact(&mut head) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        read => read?,
    }
    let [length, xid] = [&head[..4], &head[4..]].map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    let mut rest = vec![0; (length & 0x7fff_ffff).saturating_sub(4) as usize];
    client.read_exact(&mut rest)?;
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let begun = used();
    while used() < begun + work {}
    client.write_all(&[&REPLY_HEADER.to_be_bytes()[..], &xid.to_be_bytes(), &EMPTY_SUCCESS].concat())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_everybody_and_ends_with_the_last() {
        let (stand_in, mut askers) = StandIn::start(5, 2, Duration::from_micros(1)).unwrap();
        for _ in 0..3 {
            for asker in &mut askers {
                asker.ask().unwrap();
            }
        }
        drop(askers);
        stand_in.end().unwrap();
    }
}
