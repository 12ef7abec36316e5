//! The client library on a server that is not ours: nfs-ganesha, where it is installed.
//!
//! The lab starts other programs through its own binary, which is this test here: so it has a `main`.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;

use landfast_client::fs::{NewFile, Nfs, Outcome};
use landfast_client::put::{PutOptions, Silent};
use landfast_client::untar::{Archive, run};
use landfast_lab::child;
use landfast_lab::peers::ganesha::{self, Ganesha};
use landfast_nfs::v4::NfsStat;

fn all<T: std::fmt::Debug>(version: &str, outcomes: Vec<Outcome<T>>) {
    let bad = outcomes.iter().find(|o| !matches!(o, Outcome::Committed(_)));
    assert!(bad.is_none(), "{version}: {bad:?}");
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let Some(ended) = child::if_asked(&args) {
        return ended;
    }
    if !rustix::process::geteuid().is_root() || ganesha::possible().is_err() {
        println!("test result: ok. 0 passed; 0 failed; 1 ignored, needs root and nfs-ganesha");
        return ExitCode::SUCCESS;
    }
    // Panics, and so fails, at the first difference.
    tokio::runtime::Runtime::new().unwrap().block_on(vectored_calls_and_untar_in_every_version());
    ExitCode::SUCCESS
}

async fn vectored_calls_and_untar_in_every_version() {
    let dir = tempfile::Builder::new().prefix("landfast-").tempdir_in("/var/tmp").unwrap();
    let (export, work) = (dir.path().join("export"), dir.path().join("work"));
    fs::create_dir_all(&export).unwrap();
    fs::create_dir_all(work.join("t/d")).unwrap();
    for n in 0..150 {
        fs::write(work.join(format!("t/d/f{n}")), format!("contents {n}")).unwrap();
    }
    fs::write(work.join("t/large"), vec![7; 3_000_000]).unwrap();
    let tar = std::process::Command::new("tar").args(["-cf", "a.tar", "t"]).current_dir(&work).status();
    assert!(tar.unwrap().success());
    let server = Ganesha::start(&export).unwrap();
    for version in ["4.0", "4.1", "4.2"] {
        fs::create_dir(export.join(version)).unwrap();
        let url = format!("nfs://{}/{version}?version={version}", server.addr()).parse().unwrap();
        let nfs = Nfs::connect(&url).await.unwrap();
        all(version, nfs.mkdirs(["a/b", "c"], 0o755).await);
        for _ in 0..2 {
            let files = (0..100).map(|n| NewFile::new(format!("a/b/f{n}"), format!("line {n}")));
            all(version, nfs.write_files(files).await);
        }
        all(version, nfs.write_files([NewFile::new("large", vec![9; 5_000_000])]).await);
        let exclusive = NewFile { exclusive: true, ..NewFile::new("large", "x") };
        let refused = nfs.write_files([exclusive]).await.remove(0).into_result();
        assert_eq!(refused.unwrap_err().status(), Some(NfsStat::NFS4ERR_EXIST), "{version}");
        let names: Vec<String> = (0..100).map(|n| format!("a/b/f{n}")).collect();
        for (n, data) in nfs.read_files(&names).await.into_iter().enumerate() {
            assert_eq!(data.into_result().unwrap(), format!("line {n}").as_bytes(), "{version}");
        }
        all(version, nfs.rename((0..20).map(|n| (format!("a/b/f{n}"), format!("c/g{n}")))).await);
        all(version, nfs.link([("c/g1", "again")]).await);
        all(version, nfs.remove((20..100).map(|n| format!("a/b/f{n}"))).await);
        assert_eq!(fs::read_dir(export.join(version).join("a/b")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(export.join(version).join("c")).unwrap().count(), 20);
        assert_eq!(fs::read(export.join(version).join("again")).unwrap(), b"line 1");
        assert_eq!(fs::metadata(export.join(version).join("large")).unwrap().len(), 5_000_000);
        nfs.session().clone().destroy().await;
        let archive = Archive::file(work.join("a.tar"));
        let report = run(PutOptions::default(), archive, &url, Arc::new(Silent)).await.unwrap();
        assert!(report.complete(), "{version}: {:?} {:?}", report.stopped, report.failed);
        for n in 0..150 {
            let data = fs::read(export.join(version).join(format!("t/d/f{n}"))).unwrap();
            assert_eq!(data, format!("contents {n}").as_bytes(), "{version}");
        }
        assert_eq!(fs::read(export.join(version).join("t/large")).unwrap(), vec![7; 3_000_000]);
        println!("{version}: {} requests for 151 files", report.rpcs);
    }
    server.kill();
}
