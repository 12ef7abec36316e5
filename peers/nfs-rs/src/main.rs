//! Copies the files of a local tree into the root of an NFS server with the crate `nfs-rs`, as its documentation shows, on
//! handles of directories that are made before the clock starts: `landfast-peer-nfs-rs URL VERSION DIR IN_FLIGHT SECONDS`,
//! `landfast-peer-nfs-rs --ways`.
//! URL is `nfs://HOST:PORT/PATH`; MOUNT is on the same port.
//!
//! After so many seconds no further file is begun. Prints one JSON object: files, seconds, and whether that was all.

#![forbid(unsafe_code)]

#[path = "../../tree.rs"]
mod tree;

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nfs_rs::Mount;
use tokio::task::JoinSet;
use tree::Tree;

type Any = Box<dyn Error + Send + Sync>;

/// The directory and the name in it.
fn split(path: &Path) -> Result<(&Path, &str), Any> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or("a name that is not UTF-8")?;
    Ok((path.parent().unwrap_or(Path::new("")), name))
}

async fn put(mount: &dyn Mount, dir: Bytes, name: &str, data: Bytes) -> Result<(), Any> {
    let made = mount.create(dir, name, Some(0o644)).await?;
    let written = nfs_rs::write_all(mount, made.fh.clone(), 0, data).await;
    mount.close(made.fh).await?;
    written?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Any> {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == "--ways") {
        let ways = [("3", 1), ("3", 64), ("4.2", 64)];
        let ways = ways.map(|(name, n)| serde_json::json!({ "name": name, "at_a_time": n }));
        println!("{}", serde_json::Value::from_iter(ways));
        return Ok(());
    }
    let [_, url, version, top, in_flight, seconds] = args.as_slice() else {
        return Err("usage: landfast-peer-nfs-rs URL VERSION DIR IN_FLIGHT SECONDS, or --ways".into());
    };
    let authority = url.trim_start_matches("nfs://").split('/').next().unwrap_or_default();
    let port = authority.rsplit_once(':').map_or("2049", |(_, port)| port);
    let url = format!("{url}?version={version}&nfsport={port}&mountport={port}&noresvport=true");
    let (in_flight, budget): (usize, f64) = (in_flight.parse()?, seconds.parse()?);
    let tree = Tree::read(Path::new(top))?;
    let mount: Arc<dyn Mount> = Arc::from(nfs_rs::parse_url_and_mount(&url).await?);
    let mut dirs = HashMap::from([(PathBuf::new(), mount.lookup_path(".").await?.fh)]);
    for dir in &tree.dirs {
        let (above, name) = split(dir)?;
        let above = dirs.get(above).cloned().ok_or("a directory without one above it")?;
        dirs.insert(dir.clone(), mount.mkdir(above, name, 0o755).await?.fh);
    }

    let all = tree.files.len();
    let files: Vec<_> = tree.files.into_iter().map(|(path, data)| (path, Bytes::from(data))).collect();
    let (files, dirs, next) = (Arc::new(files), Arc::new(dirs), Arc::new(AtomicUsize::new(0)));
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..in_flight.max(1) {
        let (mount, files, dirs, next) = (mount.clone(), files.clone(), dirs.clone(), next.clone());
        workers.spawn(async move {
            let mut done = 0;
            while start.elapsed() < Duration::from_secs_f64(budget) {
                let Some((path, data)) = files.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                let (dir, name) = split(path)?;
                let dir = dirs.get(dir).cloned().ok_or("a file without a directory")?;
                put(&*mount, dir, name, data.clone()).await?;
                done += 1;
            }
            Ok::<usize, Any>(done)
        });
    }
    let mut done = 0;
    while let Some(worker) = workers.join_next().await {
        done += worker??;
    }
    let seconds = start.elapsed().as_secs_f64();
    mount.umount().await?;
    println!("{}", serde_json::json!({ "files": done, "seconds": seconds, "complete": done == all }));
    Ok(())
}
