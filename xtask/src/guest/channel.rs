//! The command channel between host and guest: a virtio serial port, a Unix socket on this end.
//!
//! The guest's agent (`xtask/guest/agent`) announces itself with one line when it is ready. For each command the
//! host sends `TOKEN SCRIPT_BYTES INPUT_BYTES`, the script and its standard input; the guest answers with the
//! output of the script (both streams, as it comes) and a line `TOKEN EXIT_CODE`. Tokens are random, so that no
//! output can be taken for an end.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What the agent's announcement starts with; the kernel's release follows.
const GREETING: &str = "landfast-guest ";

/// The longest announcement, in bytes.
const GREETING_BYTES_MAX: usize = 256;

/// Bytes read at a time.
const READ_BYTES: usize = 64 * 1024;

/// How often it is asked whether a silent guest has failed.
const ASK_EACH: Duration = Duration::from_secs(5);

/// The host's end of the channel.
pub struct Channel {
    stream: UnixStream,
}

impl Channel {
    /// Takes over a connection, and waits for the agent's announcement until `deadline`; returns the guest's kernel release too.
    pub fn greet(stream: UnixStream, deadline: Instant) -> Result<(Channel, String), String> {
        let mut channel = Channel { stream };
        let mut line = Vec::new();
        let mut byte = [0];
        while line.len() < GREETING_BYTES_MAX {
            if channel.read(&mut byte, deadline, &|| None)? == 0 {
                return Err("the guest ended before it was ready".to_owned());
            }
            if byte[0] == b'\n' {
                let text = String::from_utf8_lossy(&line).into_owned();
                return match text.strip_prefix(GREETING) {
                    Some(release) => Ok((channel, release.to_owned())),
                    None => Err(format!("the guest announced itself as {text:?}")),
                };
            }
            line.push(byte[0]);
        }
        Err("the guest's announcement has no end".to_owned())
    }

    /// Runs a script in the guest; its output goes to `sink` as it comes. Returns its exit code. `fails` is asked now and then,
    /// and ends it with what it says.
    pub fn run(
        &mut self,
        (script, input): (&str, &[u8]),
        limit: Duration,
        sink: &mut dyn Write,
        fails: &dyn Fn() -> Option<String>,
    ) -> Result<i32, String> {
        let token = token()?;
        let deadline = Instant::now() + limit;
        let header = format!("{token} {} {}\n", script.len(), input.len());
        for part in [header.as_bytes(), script.as_bytes(), input] {
            self.stream.write_all(part).map_err(|e| format!("to the guest: {e}"))?;
        }
        let mut end = EndLine::new(&token);
        let mut bytes = vec![0; READ_BYTES];
        loop {
            let got = self
                .read(&mut bytes, deadline, fails)
                .map_err(|e| format!("{e} (limit {} s)", limit.as_secs()))?;
            if got == 0 {
                return Err("the guest ended in the middle of a command".to_owned());
            }
            let (output, code) = end.feed(&bytes[..got]);
            sink.write_all(&output)
                .and_then(|()| sink.flush())
                .map_err(|e| format!("the guest's output: {e}"))?;
            if let Some(code) = code {
                return Ok(code);
            }
        }
    }

    /// Reads some bytes before `deadline`; 0 at the end.
    fn read(
        &mut self,
        bytes: &mut [u8],
        deadline: Instant,
        fails: &dyn Fn() -> Option<String>,
    ) -> Result<usize, String> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("no answer from the guest in time".to_owned());
            }
            self.stream
                .set_read_timeout(Some(left.min(ASK_EACH)))
                .map_err(|e| format!("from the guest: {e}"))?;
            match self.stream.read(bytes) {
                Ok(got) => return Ok(got),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if let Some(why) = fails() {
                        return Err(why);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(format!("from the guest: {e}")),
            }
        }
    }
}

/// A token that no output contains by accident: 64 random bits.
fn token() -> Result<String, String> {
    let mut bytes = [0; 8];
    let mut random = std::fs::File::open("/dev/urandom").map_err(|e| format!("/dev/urandom: {e}"))?;
    random.read_exact(&mut bytes).map_err(|e| format!("/dev/urandom: {e}"))?;
    Ok(format!("landfast-end-{:016x}", u64::from_ne_bytes(bytes)))
}

/// Finds the end line in a stream that comes in pieces, and lets the rest through as early as it may.
struct EndLine {
    marker: Vec<u8>,
    held: Vec<u8>,
}

impl EndLine {
    fn new(token: &str) -> EndLine {
        EndLine { marker: format!("\n{token} ").into_bytes(), held: Vec::new() }
    }

    /// Takes a piece; returns the output that it releases, and the exit code at the end.
    fn feed(&mut self, piece: &[u8]) -> (Vec<u8>, Option<i32>) {
        self.held.extend_from_slice(piece);
        let found = self.held.windows(self.marker.len()).position(|window| window == self.marker);
        if let Some(at) = found {
            let tail = &self.held[at + self.marker.len()..];
            let code = match tail.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    std::str::from_utf8(&tail[..end]).ok().and_then(|code| code.parse().ok()).or(Some(255))
                }
                None => None,
            };
            let output = self.held[..at].to_vec();
            self.held.drain(..at);
            return (output, code);
        }
        // Keep back only what may be the start of the end line.
        let keep = (1..=self.marker.len().min(self.held.len()))
            .rev()
            .find(|len| self.held.ends_with(&self.marker[..*len]))
            .unwrap_or(0);
        let output = self.held.drain(..self.held.len() - keep).collect();
        (output, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed_all(end: &mut EndLine, text: &[u8], piece: usize) -> (Vec<u8>, Option<i32>) {
        let mut output = Vec::new();
        for bytes in text.chunks(piece) {
            let (more, code) = end.feed(bytes);
            output.extend(more);
            if code.is_some() {
                return (output, code);
            }
        }
        (output, None)
    }

    #[test]
    fn output_and_code_are_split_at_any_piece_size() {
        let text = b"one\n\nt two\nt \nlandfast\nT 7\n";
        for piece in 1..text.len() {
            let (output, code) = feed_all(&mut EndLine::new("T"), text, piece);
            assert_eq!(output, b"one\n\nt two\nt \nlandfast", "piece {piece}");
            assert_eq!(code, Some(7), "piece {piece}");
        }
    }

    #[test]
    fn output_is_let_through_before_the_end() {
        let mut end = EndLine::new("T");
        assert_eq!(end.feed(b"progress 1\nprogress 2\n"), (b"progress 1\nprogress 2".to_vec(), None));
        assert_eq!(end.feed(b"more"), (b"\nmore".to_vec(), None));
    }

    #[test]
    fn a_command_runs_over_a_socket_pair() {
        let (host, mut guest) = UnixStream::pair().expect("a socket pair");
        let agent = std::thread::spawn(move || {
            guest.write_all(b"landfast-guest 6.1.0\n").expect("greeting");
            let mut got = Vec::new();
            let mut byte = [0];
            while guest.read(&mut byte).expect("header") == 1 && byte[0] != b'\n' {
                got.push(byte[0]);
            }
            let header = String::from_utf8(got).expect("text");
            let words: Vec<&str> = header.split(' ').collect();
            assert_eq!(words[1..], ["4", "2"]);
            let mut rest = [0; 6];
            guest.read_exact(&mut rest).expect("script and input");
            assert_eq!(&rest, b"truein");
            guest.write_all(format!("said\n\n{} 3\n", words[0]).as_bytes()).expect("answer");
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        let (mut channel, release) = Channel::greet(host, deadline).expect("greeting");
        assert_eq!(release, "6.1.0");
        let mut output = Vec::new();
        let code = channel.run(("true", b"in"), Duration::from_secs(10), &mut output, &|| None);
        assert_eq!(code, Ok(3));
        assert_eq!(output, b"said\n");
        agent.join().expect("agent");
    }

    #[test]
    fn a_guest_that_says_nothing_is_given_up() {
        let (host, _guest) = UnixStream::pair().expect("a socket pair");
        assert!(Channel::greet(host, Instant::now() + Duration::from_millis(20)).is_err());
    }
}
