//! Copies the files of a local tree into the root of an NFS server with the crate `vnfs`, into directories that are made before
//! the clock starts: `landfast-peer-vnfs URL WAY DIR SESSIONS SECONDS`, `landfast-peer-vnfs --ways`.
//! URL is `nfs://HOST:PORT/PATH`.
//!
//! WAY is NFS's version and one of two vectored calls: `write_files`, the crate's public one, opens, writes and closes many files
//! in a COMPOUND each, and `vwrite`, its backend's by path, opens, writes and closes a file in the same COMPOUND as many others.
//! A session of a pool has one COMPOUND under way, so there are several, each on a thread, and each call has as many files as
//! fall to one session. All their WRITEs are FILE_SYNC. Sessions are made before the clock starts.
//!
//! After so many seconds no further call is begun. Prints one JSON object: files, seconds, and whether that was all.

#![forbid(unsafe_code)]

#[path = "../../tree.rs"]
mod tree;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tree::Tree;
use vfsi_nfs::{NfsClientBuilder, NfsVecFs};
use vfsi_sync::backend::VectorBackend;
use vfsi_sync::{AttrMask, FileOperand, VfAttrs, VfOffset, WriteOp};
use vnfs::directory::MkDirOp;
use vnfs::nfs::{Nfs, NfsClient, NfsVersion};
use vnfs::{Vfsi as _, VfsiExt as _};

type Any = Box<dyn Error + Send + Sync>;

const FULL: &str = "4.2 write_files";
const MERGED: &str = "4.2 vwrite";

/// Files of one call at most: some twenty COMPOUNDs, whose ends cost little, and their memory.
const CALL_FILES: usize = 1024;

/// A directory's.
const MODE: u32 = 0o755;

/// A request may wait for others on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One session and the call that it is for.
enum Session {
    Files(NfsClient),
    Merged(Box<NfsVecFs>),
}

impl Session {
    /// Makes directories, a level in a call: none lies in another of the same.
    fn make_dirs(&mut self, dirs: &[PathBuf]) -> Result<(), Any> {
        let mut levels = BTreeMap::<usize, Vec<&PathBuf>>::new();
        for dir in dirs {
            levels.entry(dir.components().count()).or_default().push(dir);
        }
        for level in levels.values() {
            match self {
                Session::Files(client) => {
                    client.vmkdir(&level.iter().map(|dir| MkDirOp::new(dir, MODE)).collect::<Vec<_>>())?;
                }
                Session::Merged(client) => {
                    let dir = |dir: &&PathBuf| VfAttrs {
                        file: FileOperand::from_os_path(dir),
                        masks: AttrMask::MODE,
                        mode: MODE,
                        ..VfAttrs::default()
                    };
                    client.vmkdir_impl(&level.iter().map(dir).collect::<Vec<_>>())?;
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, files: &[(PathBuf, Vec<u8>)]) -> Result<(), Any> {
        match self {
            Session::Files(client) => client.write_files(files)?,
            Session::Merged(client) => {
                let names: Vec<_> = files.iter().map(|(path, _)| FileOperand::from_os_path(path)).collect();
                let writes: Vec<_> = names
                    .iter()
                    .zip(files)
                    .map(|(name, (_, data))| {
                        WriteOp::new(name, VfOffset::At(0), data.as_slice()).with_creation().with_truncate()
                    })
                    .collect();
                let written = client.vwrite_impl(&writes)?;
                let whole = |(done, (_, data)): (&vfsi_sync::WriteResult, &(PathBuf, Vec<u8>))| {
                    done.bytes_written == data.len() && done.stable
                };
                if written.len() != files.len() || !written.iter().zip(files).all(whole) {
                    return Err("what was written is not whole, or not stable".into());
                }
            }
        }
        Ok(())
    }
}

fn sessions(endpoint: &str, root: &str, way: &str, n: usize) -> Result<Vec<Session>, Any> {
    Ok(match way {
        FULL => {
            let pool = Nfs::builder(endpoint).root(root).version(NfsVersion::V4_2).request_timeout(PATIENCE);
            let pool = pool.connect_pool(n)?;
            (0..n).filter_map(|i| pool.client(i).cloned()).map(Session::Files).collect()
        }
        MERGED => {
            let pool =
                NfsClientBuilder::new(endpoint).root(root).minor_version(Some(2)).request_timeout(PATIENCE);
            pool.connect_pool(n)?.into_iter().map(|client| Session::Merged(Box::new(client))).collect()
        }
        _ => return Err(format!("no such way: {way}").into()),
    })
}

fn main() -> Result<(), Any> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().map(String::as_str).eq(["--ways"]) {
        let ways = [(FULL, 1), (FULL, 8), (MERGED, 1), (MERGED, 8)];
        let ways =
            ways.map(|(name, n)| serde_json::json!({ "name": name, "at_a_time": n, "vectored": true }));
        println!("{}", serde_json::Value::from_iter(ways));
        return Ok(());
    }
    let [url, way, top, sessions_wanted, seconds] = args.as_slice() else {
        return Err("usage: landfast-peer-vnfs URL WAY DIR SESSIONS SECONDS, or --ways".into());
    };
    let (endpoint, root) = url.trim_start_matches("nfs://").split_once('/').ok_or("a URL without a path")?;
    let (n, budget): (usize, f64) = (sessions_wanted.parse()?, seconds.parse()?);
    let budget = Duration::from_secs_f64(budget);
    let root = format!("/{root}");
    let tree = Tree::read(Path::new(top))?;
    // Paths are the configured root's.
    let dirs: Vec<PathBuf> = tree.dirs.iter().map(|dir| Path::new("/").join(dir)).collect();
    let files: Vec<_> =
        tree.files.into_iter().map(|(path, data)| (Path::new("/").join(path), data)).collect();
    let mut sessions = sessions(endpoint, &root, way, n.max(1))?;
    sessions.first_mut().ok_or("no session")?.make_dirs(&dirs)?;

    let of_call = files.len().div_ceil(sessions.len()).clamp(1, CALL_FILES);
    let calls: Vec<_> = files.chunks(of_call).collect();
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let done = std::thread::scope(|scope| {
        let work = |session: &mut Session| {
            let mut done = 0;
            while start.elapsed() < budget {
                let Some(call) = calls.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                session.put(call)?;
                done += call.len();
            }
            Ok::<usize, Any>(done)
        };
        let threads: Vec<_> = sessions.iter_mut().map(|session| scope.spawn(move || work(session))).collect();
        threads.into_iter().map(|t| t.join().map_err(|_| "a thread panicked")?).sum::<Result<usize, Any>>()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{}", serde_json::json!({ "files": done, "seconds": seconds, "complete": done == files.len() }));
    Ok(())
}
