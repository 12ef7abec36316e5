//! The client's commands, and mounts, on other servers: nfs-ganesha in each version, in a network and a mount namespace of its own with an
//! rpcbind of its own, which its version 3 needs. (The kernel's server: `cargo xtask guest commands`.)

mod common;

use common::{Serving, own_network, path, run, stderr, stdout};
use std::fs;
use std::path::Path;

const GANESHA: &str = r#"
cd "$WORK"
mkdir export recovery
cat > ganesha.conf <<END
NFS_CORE_PARAM { NFS_Port = 2049; MNT_Port = 20048; NFS_Protocols = 3, 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = "$WORK/recovery"; Minor_Versions = 0, 1, 2; }
EXPORT { Export_Id = 1; Path = "$WORK/export"; Pseudo = "/"; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP; FSAL { Name = VFS; } }
LOG { Default_Log_Level = WARN; }
END
ganesha.nfsd -F -f ganesha.conf -L messages -p pid &
server=$!
waits rpcinfo -T tcp 127.0.0.1 nfs 3
waits rpcinfo -T tcp 127.0.0.1 nfs 4
"#;

const COMMANDS: &str = r#"
"$LANDFAST" lab commands "nfs://127.0.0.1$WORK/export?version=3" nfs://127.0.0.1/?version=4.0 nfs://127.0.0.1/?version=4.1 nfs://127.0.0.1/?version=4.2
test -z "$(ls -A export)"
# It takes the data of many files in one request.
mkdir m; for f in $(seq 200); do head -c 5000 /dev/urandom > m/$f; done
for v in 4.1 4.2; do
    "$LANDFAST" cp -r --json m "nfs://127.0.0.1/$v?version=$v" > $v.json
    "$LANDFAST" diff-tree --ignore mtime,dir-mtime m "nfs://127.0.0.1/$v?version=$v"
    "$LANDFAST" cp -r --json "nfs://127.0.0.1/$v?version=$v" m$v >> $v.json
    diff -r m m$v
    for rpcs in $(grep -o '"rpcs": *[0-9]*' $v.json | grep -o '[0-9]*$'); do echo "version $v: $rpcs RPCs"; test $rpcs -lt 100; done
done
"#;

const KILLED: &str = r#"
mkdir t
for d in $(seq 20); do mkdir t/d$d; (cd t/d$d; for f in $(seq 60); do echo $d $f > $f; done; ln 1 h); done
head -c 3000000 /dev/urandom > t/large; chmod 0555 t/d*; tar -cf t.tar t
for v in 3 4.0 4.1 4.2; do
    mkdir export/$v
    case $v in 3) url="nfs://127.0.0.1$WORK/export/3?version=3";; *) url="nfs://127.0.0.1/$v?version=$v";; esac
    # It gets a part of the archive and waits for more.
    mkfifo $v.fifo
    "$LANDFAST" untar --resume $v.journal - "$url" < $v.fifo & client=$!
    exec 7> $v.fifo; head -c 800000 t.tar >&7
    # Two directories, which are made before anything else, and the first file of the second one.
    waits grep -qE '\[[0-2],([3-9]|[0-9]{2,})\]' $v.journal
    kill -9 $client; wait $client || echo "version $v: killed"; exec 7>&-
    "$LANDFAST" untar --resume $v.journal - "$url" < t.tar | tee $v.words
    grep -q 'done before' $v.words
    "$LANDFAST" diff-tree t.tar "$url"
done
"#;

const RESTARTED: &str = r#"
mkdir r; for d in $(seq 10); do mkdir r/d$d; for f in $(seq 30); do head -c $((d * f * 37)) /dev/urandom > r/d$d/$f; done; done
for f in $(seq 10); do head -c $((f * 777777)) /dev/urandom > r/l$f; done
tar -cf r.tar r; whole=$(du -sk r | cut -f1)
again() {
    kill -9 $server; wait $server || true
    ganesha.nfsd -F -f ganesha.conf -L messages -p pid &
    server=$!
    waits rpcinfo -T tcp 127.0.0.1 nfs 4
}
holds() { test "$(du -sk "$1" 2>/dev/null | cut -f1)" -ge "$2"; }
# Restarts when so many parts in a hundred are there.
restarts() { for part in 10 40 80; do waits holds "$1" $((whole * part / 100)); again; done; }
for v in 3 4.0 4.1 4.2; do
    mkdir export/$v back$v
    case $v in 3) top="nfs://127.0.0.1$WORK/export/3";; *) top="nfs://127.0.0.1/$v";; esac
    "$LANDFAST" untar r.tar "$top?version=$v" & client=$!
    restarts export/$v; wait $client
    diff -r r export/$v/r
    "$LANDFAST" cp -r "$top/r?version=$v" back$v & client=$!
    restarts back$v; wait $client
    diff -r r back$v/r
    "$LANDFAST" cp -r "$top/r?version=$v" "$top/s?version=$v" & client=$!
    restarts export/$v/s; wait $client
    diff -r r export/$v/s
    echo "version $v: whole"
done
"#;

const MOUNTED: &str = r#"
"$LANDFAST" lab mount-checks "nfs://127.0.0.1$WORK/export?version=3" nfs://127.0.0.1/?version=4.0 nfs://127.0.0.1/?version=4.1 nfs://127.0.0.1/?version=4.2
test -z "$(ls -A export)"
"#;

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_mount_of_nfs_ganesha_in_each_version() {
    if mounts() {
        on_ganesha(MOUNTED);
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn restarts_of_nfs_ganesha_break_no_file_in_any_version() {
    on_ganesha(RESTARTED);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn every_command_on_nfs_ganesha_in_each_version() {
    on_ganesha(COMMANDS);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_archive_goes_on_after_a_kill_on_nfs_ganesha_in_each_version() {
    on_ganesha(KILLED);
}

fn on_ganesha(script: &str) {
    let Some(mut script) = own_network(&[GANESHA, script].concat(), &["ganesha.nfsd"]) else { return };
    // Not below /run or /tmp, which may have no handles to export.
    let work =
        tempfile::Builder::new().prefix("landfast-servers-").tempdir_in("/var/tmp").expect("a directory");
    let out = script.env("WORK", work.path()).output().expect("unshare runs");
    let messages = || fs::read_to_string(work.path().join("messages")).unwrap_or_default();
    assert!(out.status.success(), "{}{}{}", stdout(&out), stderr(&out), messages());
    print!("{}", stdout(&out));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn every_command_on_our_own_server_in_each_version() {
    on_ours("commands");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_mount_of_our_own_server_in_each_version() {
    if mounts() {
        on_ours("mount-checks");
    }
}

/// Whether this machine can mount. Says so where it cannot.
fn mounts() -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there {
        println!("skipped: mounting needs /dev/fuse");
    }
    there
}

/// Runs a command of the lab on our own server, which must be empty again at its end.
fn on_ours(command: &str) {
    let dir =
        tempfile::Builder::new().prefix("landfast-servers-").tempdir_in("/var/tmp").expect("a directory");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    let server = Serving::start(&volume, &dir.path().join("log"));
    let volume = fs::canonicalize(&volume).expect("a path");
    let three = format!("{}{}?version=3", server.url.trim_end_matches('/'), path(&volume));
    let four = ["4.0", "4.1", "4.2"].map(|v| format!("{}?version={v}", server.url));
    let urls: Vec<&str> = std::iter::once(&three).chain(&four).map(String::as_str).collect();
    let out = run(&[&["lab", command], &urls[..]].concat());
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    assert_eq!(left(&volume), [] as [String; 0]);
}

/// What is in a directory, but for the server's own.
fn left(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").file_name());
    names.map(|n| n.to_string_lossy().into_owned()).filter(|n| n != ".landfast").collect()
}
