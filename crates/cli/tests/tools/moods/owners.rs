//! Servers of version 3 on which root is nobody: they leave out the owner that they are asked for, and say nothing.

use super::server::{Mood, Moody, Old};
use crate::{Rig, path, said};
use landfast_nfs::v3::args::{
    CreateArgs, CreateHow, MkdirArgs, MknodArgs, MknodWhat, SetattrArgs, SymlinkArgs,
};
use landfast_nfs::v3::types::Sattr;
use landfast_xdr::{Bytes, Decode, Encode, Reader};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// As Linux' server, to which a SETATTR of an owner is an error, or (`always`) as ganesha, which passes over it there, too.
struct Squashes {
    always: bool,
}

fn decoded<T: Decode>(arguments: Bytes) -> T {
    T::decode(&mut Reader::new(arguments)).expect("our client's call")
}

/// The same call without an owner.
fn without<T: Decode + Encode>(arguments: Bytes, attrs: impl FnOnce(&mut T) -> Option<&mut Sattr>) -> Old {
    let mut arguments: T = decoded(arguments);
    if let Some(attrs) = attrs(&mut arguments) {
        (attrs.uid, attrs.gid) = (None, None);
    }
    Old::With(arguments.to_bytes())
}

impl Mood for Squashes {
    fn procedure(&mut self, procedure: u32, arguments: Bytes) -> Old {
        match procedure {
            2 if !self.always => {
                let arguments: SetattrArgs = decoded(arguments);
                let owner = arguments.attrs.uid.is_some() || arguments.attrs.gid.is_some();
                // PERM.
                if owner { Old::Fail(1) } else { Old::Pass }
            }
            2 => without(arguments, |a: &mut SetattrArgs| Some(&mut a.attrs)),
            8 => without(arguments, |a: &mut CreateArgs| match &mut a.how {
                CreateHow::Unchecked(attrs) | CreateHow::Guarded(attrs) => Some(attrs),
                CreateHow::Exclusive(_) => None,
            }),
            9 => without(arguments, |a: &mut MkdirArgs| Some(&mut a.attrs)),
            10 => without(arguments, |a: &mut SymlinkArgs| Some(&mut a.attrs)),
            11 => without(arguments, |a: &mut MknodArgs| match &mut a.what {
                MknodWhat::Sock(attrs)
                | MknodWhat::Fifo(attrs)
                | MknodWhat::Blk(attrs, _)
                | MknodWhat::Chr(attrs, _) => Some(attrs),
                _ => None,
            }),
            _ => Old::Pass,
        }
    }
}

/// 300 files that give their owner's rights away, one that gives none, and one of each other kind; one file belongs to whom the server
/// gives all.
const TREE: &str = "umask 022; mkdir t t/shared; echo 5 > t/plain; echo mine > t/mine
    for n in $(seq 300); do echo $n > t/suid$n; done
    ln -s nowhere t/link; mkfifo t/fifo; chmod 640 t/plain
    chown -h -R 1234:1234 t; chown 0:0 t/mine
    chmod 4755 t/suid* t/mine; chmod 2775 t/shared
    touch -h -d @1000000000 t/* t
    tar -cf t.tar t";

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_owner_that_is_left_out_without_a_word_is_told_and_its_rights_are_not_given_away() {
    let rig = Rig::new();
    let local = rig.dir.path().join("local");
    fs::create_dir(&local).expect("a directory");
    super::super::trees::shell_in(&local, TREE);
    for always in [false, true] {
        let server = Moody::new(rig.server.address(), Box::new(Squashes { always }));
        for command in ["untar", "cp"] {
            rig.shell("mkdir to");
            let to = format!("nfs://{}{}?version=3", server.addr, path(&rig.at("to")));
            let mut landfast = Command::new(env!("CARGO_BIN_EXE_landfast"));
            match command {
                "untar" => landfast.args(["untar", "--json", path(&local.join("t.tar")), &to]),
                _ => landfast.args(["cp", "-a", "--rpc-counts", path(&local.join("t")), &to]),
            };
            let end = said(&mut landfast);
            let words = end.errors();
            assert_eq!(end.code, Some(1), "{command} {always}: {words}");
            // 302 files and three others are not whose they should be.
            match command {
                "untar" => {
                    let report: serde_json::Value = serde_json::from_slice(&end.out).expect("JSON");
                    let counts =
                        ["files", "dirs", "incomplete", "failures"].map(|name| report[name].as_u64());
                    assert_eq!(counts, [302, 2, 305, 305].map(Some), "{always}");
                    assert_eq!(words.lines().count(), 2, "{always}: {words}");
                    assert!(words.contains("--no-same-owner") && words.contains("304 more"), "{words}");
                }
                _ => {
                    let told = words.matches("failed to preserve attributes").count();
                    assert_eq!(told, 2, "{always}: {words}");
                    assert!(
                        words.contains("304 more") && words.contains("--no-preserve"),
                        "{always}: {words}"
                    );
                }
            }
            for (name, mode) in [
                ("plain", 0o640),
                ("suid1", 0o755),
                ("suid300", 0o755),
                ("mine", 0o4755),
                ("shared", 0o775),
                ("fifo", 0o644),
            ] {
                let meta = fs::symlink_metadata(rig.at("to/t").join(name)).expect("it is there");
                assert_eq!(meta.mode() & 0o7777, mode, "{command} {always}: {name}");
                assert_eq!(meta.mtime(), 1_000_000_000, "{command} {always}: {name}");
            }
            let risky = Command::new("find")
                .arg(rig.at("to"))
                .args(["-perm", "/6000", "!", "-name", "mine"])
                .output();
            assert_eq!(risky.expect("find").stdout, b"", "{command} {always}");
            rig.shell("rm -r to");
        }
    }
}
