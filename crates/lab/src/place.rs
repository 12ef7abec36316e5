//! The work of the experiments `nested-open` and `web-page` at a place that somebody else has made: a directory on a server, by the
//! library, or one of a mounted filesystem, by system calls, one after another as programs do it. So a kernel's client can be held
//! beside the library on the same server.
//!
//! Only the work is timed: a library is connected before, a filesystem mounted. What is read is compared with what must be there,
//! and what was written is on stable storage when a time ends; who has written it, `check` says later, as another client.

use crate::error::{Context, Error, Result};
use crate::experiments::web_page::{self, File, Use, expect};
use crate::experiments::{client_failed, nested_open};
use landfast_client::fs::{NewFile, Nfs};
use landfast_client::url::NfsUrl;
use landfast_verify::rng::Rng;
use serde::Serialize;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;
use tokio::runtime::Runtime;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A file below so many directories is opened, read and closed.
    NestedOpen(usize),
    /// A web page's hundred files are looked at, read and written.
    WebPage,
}

#[derive(Debug, Clone)]
pub enum Place {
    /// On a server, by the library.
    Url(Box<NfsUrl>),
    /// In a directory, by system calls.
    Dir(PathBuf),
}

impl FromStr for Place {
    type Err = landfast_client::url::UrlError;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text.contains("://") {
            true => text.parse().map(|url| Place::Url(Box::new(url))),
            false => Ok(Place::Dir(PathBuf::from(text))),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Round {
    pub seconds: f64,
    /// RPCs: those that the library sent, or what the connection of the mount did, if there is one below the directory.
    pub rpcs: Option<u64>,
}

pub fn make(work: Work, place: &Place) -> Result<()> {
    let files: Vec<(String, Vec<u8>)> = match work {
        Work::NestedOpen(depth) => {
            let dir = nested_open::directory(depth);
            vec![(format!("{dir}/file"), dir.into_bytes())]
        }
        Work::WebPage => web_page::files().into_iter().map(|f| (f.path, f.data.to_vec())).collect(),
    };
    let above = |path: &str| path.rsplit_once('/').map(|(dir, _)| dir.to_owned()).unwrap_or_default();
    match place {
        Place::Dir(dir) => files.iter().try_for_each(|(path, data)| {
            let at = dir.join(above(path));
            std::fs::create_dir_all(&at).context(|| format!("create {}", at.display()))?;
            write(&dir.join(path), data)
        }),
        Place::Url(url) => by_library(url, async |nfs| {
            let dirs: Vec<String> = files.iter().map(|(path, _)| above(path)).collect();
            for outcome in nfs.mkdirs(dirs, 0o755).await {
                outcome.into_result().map_err(|e| client_failed(&e))?;
            }
            let news = files.into_iter().map(|(path, data)| NewFile::new(path, data));
            for outcome in nfs.write_files(news).await {
                outcome.into_result().map_err(|e| client_failed(&e))?;
            }
            Ok(())
        }),
    }
}

/// Does the work so many times, one after another, as one client. `seed` says what a page's files are written with.
/// Errors: What keeps it from being done; contents that are not what they must be.
pub fn run(work: Work, place: &Place, rounds: u32, seed: u64) -> Result<Vec<Round>> {
    let files = page(seed);
    let mut done = Vec::new();
    match place {
        Place::Dir(dir) => {
            for _ in 0..rounds {
                let before = sent(dir)?;
                let start = Instant::now();
                match work {
                    Work::NestedOpen(depth) => {
                        let path = nested_open::directory(depth);
                        let data = read(&dir.join(&path).join("file"))?;
                        nested_open::same(&path, &data)?;
                    }
                    Work::WebPage => one_by_one(dir, &files)?,
                }
                let seconds = start.elapsed().as_secs_f64();
                let rpcs = before.zip(sent(dir)?).map(|(before, after)| after.saturating_sub(before));
                done.push(Round { seconds, rpcs });
            }
        }
        Place::Url(url) => by_library(url, async |nfs| {
            for _ in 0..rounds {
                let (seconds, rpcs) = match work {
                    Work::NestedOpen(depth) => {
                        nested_open::open(&nfs, &nested_open::directory(depth)).await?
                    }
                    Work::WebPage => web_page::at_once(&nfs, &files).await?,
                };
                done.push(Round { seconds, rpcs: Some(rpcs) });
            }
            Ok(())
        })?,
    }
    Ok(done)
}

/// Whether a page's files have what [`run`] with this seed has written.
pub fn check(place: &Place, seed: u64) -> Result<()> {
    let files: Vec<File> = page(seed).into_iter().filter(|f| f.used == Use::Write).collect();
    match place {
        Place::Dir(dir) => files.iter().try_for_each(|f| expect(f, &read(&dir.join(&f.path))?)),
        Place::Url(url) => by_library(url, async |nfs| {
            let found = nfs.read_files(files.iter().map(|f| &f.path)).await;
            files.iter().zip(found).try_for_each(|(file, data)| {
                expect(file, &data.into_result().map_err(|e| client_failed(&e))?)
            })
        }),
    }
}

/// A page's files; those that are written with new contents.
fn page(seed: u64) -> Vec<File> {
    let mut rng = Rng::new(seed);
    let mut files = web_page::files();
    for file in files.iter_mut().filter(|f| f.used == Use::Write) {
        let mut data = vec![0; file.data.len()];
        rng.fill(&mut data);
        file.data = data.into();
    }
    files
}

fn by_library<T>(url: &NfsUrl, work: impl AsyncFnOnce(Nfs) -> Result<T>) -> Result<T> {
    let runtime = Runtime::new().context(|| "start threads".to_owned())?;
    runtime.block_on(async {
        let nfs = Nfs::connect(url).await.map_err(|e| client_failed(&e))?;
        let done = work(nfs.clone()).await;
        nfs.disconnect().await;
        done
    })
}

/// A page, one file after another.
fn one_by_one(dir: &Path, files: &[File]) -> Result<()> {
    for file in files {
        let at = dir.join(&file.path);
        match file.used {
            Use::Look => {
                let size = std::fs::metadata(&at).context(|| format!("stat {}", at.display()))?.len();
                if size != file.data.len() as u64 {
                    return Err(Error::WrongData(format!("{}: {size} bytes", file.path)));
                }
            }
            Use::Read => expect(file, &read(&at)?)?,
            Use::Write => write(&at, &file.data)?,
        }
    }
    Ok(())
}

fn read(at: &Path) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    let done = std::fs::File::open(at).and_then(|mut file| file.read_to_end(&mut data));
    done.context(|| format!("read {}", at.display()))?;
    Ok(data)
}

/// On stable storage when it returns.
fn write(at: &Path, data: &[u8]) -> Result<()> {
    let done = std::fs::File::create(at).and_then(|mut file| {
        file.write_all(data)?;
        file.sync_all()
    });
    done.context(|| format!("write {}", at.display()))
}

/// Calls that the connections of the NFS mount have sent in which `dir` lies; nothing if it lies in another filesystem.
fn sent(dir: &Path) -> Result<Option<u64>> {
    const STATS: &str = "/proc/self/mountstats";
    match std::fs::read_to_string(STATS) {
        Ok(text) => Ok(sent_in(&text, dir)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).context(|| format!("read {STATS}")),
    }
}

/// The same in this text, which is as Linux writes it (`nfs_show_stats`).
fn sent_in(mountstats: &str, dir: &Path) -> Option<u64> {
    let lines: Vec<&str> = mountstats.lines().collect();
    let mountpoint = |line: &str| Some(line.split_once(" mounted on ")?.1.split_once(" with ")?.0.to_owned());
    let mounts = lines.iter().enumerate().filter_map(|(at, line)| Some((at, mountpoint(line)?)));
    // The nearest one; of two on one place the upper one, which is listed last.
    let (at, _) = mounts
        .filter(|(_, top)| dir.starts_with(top))
        .max_by_key(|(_, top)| Path::new(top).components().count())?;
    let ours = lines[at + 1..].iter().take_while(|line| !line.starts_with("device "));
    // Port, binds, connects, time to connect, idle time, sends, ...
    let sends = ours.filter_map(|line| line.trim().strip_prefix("xprt:\ttcp ")?.split(' ').nth(5));
    let sends: Vec<u64> = sends.filter_map(|number| number.parse().ok()).collect();
    (!sends.is_empty()).then(|| sends.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_works_are_done_and_checked_in_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Dir(dir.path().to_owned());
        for work in [Work::NestedOpen(3), Work::WebPage] {
            assert!(run(work, &place, 1, 1).is_err(), "nothing is there");
            make(work, &place).unwrap();
            let rounds = run(work, &place, 2, 1).unwrap();
            assert_eq!(rounds.iter().map(|r| r.rpcs).collect::<Vec<_>>(), [None, None]);
        }
        check(&place, 1).unwrap();
        assert!(check(&place, 2).is_err(), "somebody else's contents");
        std::fs::write(dir.path().join("site/htdocs/part0/file2"), "other").unwrap();
        assert!(run(Work::WebPage, &place, 1, 1).is_err(), "a file that is read has other contents");
    }

    #[test]
    fn what_a_mount_has_sent_is_read() {
        let text = "device a:/ mounted on /mnt with fstype nfs4 statvers=1.1\n\txprt:\ttcp 0 0 1 0 3 120 120 0 123\n\
                    \txprt:\ttcp 0 0 1 0 3 7 7 0 123\ndevice b:/ mounted on /mnt2 with fstype nfs statvers=1.1\n\
                    \txprt:\ttcp 0 0 1 0 3 5 5 0 1\ndevice tmp mounted on /tmp with fstype tmpfs\n\
                    device tmp mounted on /mnt/tmp with fstype tmpfs\n";
        let sent = |dir: &str| sent_in(text, Path::new(dir));
        assert_eq!([sent("/mnt"), sent("/mnt/a/b")], [Some(127); 2]);
        assert_eq!(sent("/mnt2"), Some(5));
        assert_eq!([sent("/tmp"), sent("/mnt/tmp/a"), sent("/elsewhere")], [None; 3]);
    }

    #[test]
    fn a_place_is_a_url_or_a_directory() {
        assert!(matches!("nfs://server/a".parse(), Ok(Place::Url(_))));
        assert!(matches!("/mnt/nfs".parse(), Ok(Place::Dir(_))));
        assert!("http://server/a".parse::<Place>().is_err());
    }
}
