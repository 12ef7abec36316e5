//! Round trips that a command waits for, one after another: it goes over a link that delivers each message after a while, and
//! that knows of each call which answers had come before it was sent.

use super::copying::local;
use super::moods::server::{read_record, word, write_record};
use super::{Rig, landfast, path, said};
use std::collections::HashMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long a message takes. In this time a command has said all that it can say without the next answer.
const ONE_WAY: Duration = Duration::from_millis(100);

/// A command may be kept waiting by others of this machine, and say something later than it could.
const TRIES: u32 = 12;

/// A link to a server that is far away.
struct Far {
    addr: String,
    /// The last round of calls that were made.
    called: Arc<AtomicU32>,
}

/// A message on its way, and its round.
type OnItsWay = (Instant, u32, Vec<u8>);

impl Far {
    fn new(server: &str) -> Far {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let addr = listener.local_addr().expect("an address").to_string();
        let (come, called) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (server, counts) = (server.to_owned(), (come, called.clone()));
        // It ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let both = (client.try_clone().expect("a stream"), server.try_clone().expect("a stream"));
                Self::link((client, server), both, counts.clone());
            }
        });
        Far { addr, called }
    }

    fn link(
        (mut client, server): (TcpStream, TcpStream),
        (client_in, mut server_out): (TcpStream, TcpStream),
        (come, called): (Arc<AtomicU32>, Arc<AtomicU32>),
    ) {
        let rounds: Arc<Mutex<HashMap<u32, u32>>> = Arc::default();
        let (up, calls) = mpsc::channel::<OnItsWay>();
        let (down, answers) = mpsc::channel::<OnItsWay>();
        let (asked, seen) = (rounds.clone(), come.clone());
        thread::spawn(move || {
            while let Ok(record) = read_record(&mut client) {
                let round = seen.load(Ordering::SeqCst) + 1;
                called.fetch_max(round, Ordering::SeqCst);
                asked.lock().expect("no panic").insert(word(&record, 0), round);
                let _ = up.send((Instant::now() + ONE_WAY, round, record));
            }
        });
        thread::spawn(move || {
            for (due, _, record) in calls {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if write_record(&mut server_out, &[&record]).is_err() {
                    break;
                }
            }
            let _ = server_out.shutdown(Shutdown::Both);
        });
        thread::spawn(move || {
            let mut server = server;
            while let Ok(record) = read_record(&mut server) {
                let round = rounds.lock().expect("no panic").remove(&word(&record, 0)).unwrap_or_default();
                let _ = down.send((Instant::now() + ONE_WAY, round, record));
            }
        });
        thread::spawn(move || {
            let mut client = client_in;
            for (due, round, record) in answers {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                come.fetch_max(round, Ordering::SeqCst);
                if write_record(&mut client, &[&record]).is_err() {
                    break;
                }
            }
            let _ = client.shutdown(Shutdown::Both);
        });
    }

    /// How many round trips were waited for: behind the last answer come the calls that end a session.
    fn rounds(&self) -> u32 {
        self.called.load(Ordering::SeqCst) - 1
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn commands_wait_for_few_round_trips() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell("cd ../local; for d in 1 2 3 4; do mkdir -p t/d$d/e; for f in $(seq 20); do echo $d $f > t/d$d/e/f$f; done; done; cp -a t ../volume/there; ls -lR t > listed");
    let url = |name: &str| format!("nfs://FAR/{name}?version=4.2");
    let tree = path(&local.join("t")).to_owned();
    let back = path(&local.join("new")).to_owned();
    // What is there before, the words, and the round trips, two of which are those of a session.
    let cases: &[(&str, &[&str], u32)] = &[
        ("mkdir into", &["cp", "-r", &tree, &url("into")], 3),
        ("mkdir into", &["cp", "-a", &tree, &url("into")], 3),
        ("", &["cp", "-rT", &tree, &url("new")], 3),
        ("", &["cp", "-r", &tree, &url("new")], 4),
        ("", &["stat", &url("there")], 3),
        ("", &["mkdir", &url("new")], 3),
        // A level of directories takes one.
        ("", &["ls", &url("there")], 3),
        ("", &["ls", "-lR", &url("there")], 5),
        ("", &["du", &url("there")], 5),
        ("", &["find", &url("there")], 5),
        ("", &["diff-tree", &tree, &url("there")], 6),
        ("", &["cp", "-r", &url("there"), &back], 6),
        ("cp -a there new", &["rm", "-r", &url("new")], 6),
        ("", &["cat", &url("there/d1/e/f1"), &url("there/d2/e/f2")], 3),
        ("", &["mkdir", "-p", &url("new/a/b/c/d")], 4),
        ("mkdir into", &["sync-tree", &tree, &url("into")], 6),
    ];
    for (before, words, most) in cases {
        let mut least = u32::MAX;
        for _ in 0..TRIES {
            rig.shell(&format!("rm -rf into new ../local/new; {before}"));
            let far = Far::new(rig.server.address());
            let said = said(landfast().args(words.iter().map(|word| word.replace("FAR", &far.addr))));
            assert_eq!(said.code, Some(0), "{words:?}: {said:?}");
            least = least.min(far.rounds());
            if least <= *most {
                break;
            }
        }
        assert!(least <= *most, "{words:?} waits for {least} round trips");
    }
}
