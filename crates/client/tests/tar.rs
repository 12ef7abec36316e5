//! Archives of trees that change while they are read.

mod common;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;

use common::{Rig, shell};
use landfast_client::archive::{ArchiveReader, Kind};
use landfast_client::fs::{AsNamed, Nfs, Owner, OwnerNames};
use landfast_client::tar::{self, Complaint, Root, Sink, TarOptions, Watch};

/// Is asked for an owner between the listing of a directory and the reading of its files, and changes files then.
struct Meddler {
    dir: PathBuf,
    done: Mutex<bool>,
    script: &'static str,
}

impl OwnerNames for Meddler {
    fn user(&self, owner: &Owner) -> (u32, Vec<u8>) {
        // The one that comes last.
        if *owner == Owner::Id(77) && !std::mem::replace(&mut *self.done.lock().unwrap(), true) {
            shell(&self.dir, self.script);
        }
        AsNamed.user(owner)
    }

    fn group(&self, owner: &Owner) -> (u32, Vec<u8>) {
        AsNamed.group(owner)
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<(String, Complaint)>>);

impl Watch for Heard {
    fn complaint(&self, path: &[u8], what: &Complaint) {
        let path = String::from_utf8_lossy(path).into_owned();
        self.0.lock().unwrap().push((path, what.clone()));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn what_changes_or_goes_away_meanwhile_is_said_and_the_archive_stays_whole() {
    let rig = Rig::new().await;
    for version in ["4.2", "3"] {
        shell(
            &rig.dest(),
            &format!(
                "mkdir t{version}; cd t{version}; seq 1000 > grows; seq 1000 > shrinks; seq 1000 > goes; \
                 seq 1000 > stays; seq 1000 > first; ln first second; echo 1 > touched; echo end > zz; chown 77 zz; \
                 head -c 9000000 /dev/zero > large-goes; head -c 9000000 /dev/zero > large-shrinks; \
                 head -c 9000000 /dev/zero > large-grows"
            ),
        );
    }
    for version in ["4.2", "3"] {
        let tree = format!("t{version}");
        let meddler = Meddler {
            dir: rig.dest().join(&tree),
            done: Mutex::new(false),
            script: "echo more >> grows; truncate -s 100 shrinks; rm goes first large-goes; echo 2 > touched; \
                     truncate -s 5000000 large-shrinks; echo more >> large-grows",
        };
        let url = format!("nfs://{}{}?version={version}", rig.addr(), rig.top(version));
        let nfs = Nfs::connect(&url.parse().unwrap()).await.unwrap();
        let object = nfs.getattrs([&tree]).await.remove(0).into_result();
        let root = Root { nfs, name: b"t".to_vec(), object };
        let at = rig.work().join("x.tar");
        let heard = Heard::default();
        let options = TarOptions { who: Box::new(meddler), ..TarOptions::default() };
        let report = tar::create(vec![root], Sink::File(at.clone()), options, &heard).await.unwrap();
        let mut heard: Vec<_> =
            heard.0.into_inner().unwrap().into_iter().map(|(p, c)| (p, c.text(|e| e.to_string()))).collect();
        heard.sort();
        let said = |path: &str, what: &str| (format!("t/{path}"), what.to_owned());
        let expected = [
            said("goes", "File removed before we read it"),
            said("grows", "file changed as we read it"),
            said("large-goes", "File removed before we read it"),
            said("large-grows", "file changed as we read it"),
            said("large-shrinks", "File shrank by 4000000 bytes; padding with zeros"),
            said("shrinks", "File shrank by 3793 bytes; padding with zeros"),
            said("touched", "file changed as we read it"),
        ];
        let expected: Vec<_> = expected.into_iter().collect();
        let without_first: Vec<_> = heard.iter().filter(|(p, _)| p != "t/first").cloned().collect();
        assert_eq!(without_first, expected, "{version}");
        assert_eq!(report.differing, heard.len() as u64);
        assert!(!report.complete());
        // All others are there, and each file has as many bytes as its header says.
        let mut reader = ArchiveReader::new(fs::File::open(&at).unwrap());
        let mut members = Vec::new();
        while let Some(member) = reader.next_member().unwrap() {
            let mut data = Vec::new();
            loop {
                let more = reader.data(1 << 20).unwrap();
                if more.is_empty() {
                    break;
                }
                data.write_all(&more).unwrap();
            }
            assert_eq!(data.len() as u64, member.stored);
            members.push((String::from_utf8(member.path).unwrap(), member.kind, data));
        }
        let names: Vec<&str> = members.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(
            names,
            [
                "t/",
                "t/first",
                "t/grows",
                "t/large-grows",
                "t/large-shrinks",
                "t/second",
                "t/shrinks",
                "t/stays",
                "t/touched",
                "t/zz"
            ],
            "{version}"
        );
        let of = |name: &str| members.iter().find(|(path, ..)| path == name).unwrap();
        let stays: String = (1..=1000).map(|n| format!("{n}\n")).collect();
        assert_eq!(of("t/stays").2, stays.as_bytes());
        assert_eq!(of("t/shrinks").2, [&stays.as_bytes()[..100], &vec![0; 3793]].concat());
        assert_eq!((of("t/first").1, &of("t/first").2[..]), (Kind::File, stays.as_bytes()));
        assert_eq!(of("t/second").1, Kind::HardLink);
    }
    rig.stop().await;
}
