//! The machine's port mapper: what `showmount -e` and a mount without port numbers find, and that nothing is left behind.
//! In a network and a mount namespace of its own, with an rpcbind of its own.

mod common;

use common::{own_network, path, stderr, stdout};
use std::fs;

/// rpcbind comes up, the server registers; then `showmount` and `rpcinfo`, a clean stop, a crash and a start after it.
const SCRIPT: &str = r#"
serve() {
    "$LANDFAST" serve "$VOLUME" --log "$LOG" --log-size 32M --listen "$1" --rpcbind require &
    server=$!
    waits showmount -e 127.0.0.1
}
serve 127.0.0.1:2049
echo "== exports"; showmount -e 127.0.0.1 --no-headers
echo "== registered"; rpcinfo -p 127.0.0.1
rpcinfo -T tcp 127.0.0.1 nfs 3
rpcinfo -T tcp 127.0.0.1 nfs 4
rpcinfo -T tcp 127.0.0.1 mountd 3
rpcinfo -T udp 127.0.0.1 nlockmgr 4
kill -TERM $server; wait $server
echo "== stopped"; rpcinfo -p 127.0.0.1
serve 127.0.0.1:2049
kill -KILL $server; wait $server || true
serve 127.0.0.1:3049
echo "== moved"; rpcinfo -p 127.0.0.1
kill -TERM $server; wait $server
echo "== end"
"#;

/// Servers that a file describes: with `rpcbind` left out, and with `off`.
const FROM_A_FILE: &str = r#"
"$LANDFAST" serve --config "$AUTO" &
server=$!
waits showmount -e 127.0.0.1
echo "== exports"; showmount -e 127.0.0.1 --no-headers
echo "== auto"; rpcinfo -p 127.0.0.1
kill -TERM $server; wait $server
echo "== stopped"; rpcinfo -p 127.0.0.1
"$LANDFAST" serve --config "$OFF" &
server=$!
waits "$LANDFAST" ls nfs://127.0.0.1/
echo "== off"; rpcinfo -p 127.0.0.1
kill -TERM $server; wait $server
echo "== end"
"#;

/// What a script printed below `== name`.
fn part_of(text: &str, name: &str) -> String {
    let begin = text.find(&format!("== {name}")).unwrap_or_else(|| panic!("no {name} in {text}"));
    let rest = &text[begin + 3..];
    rest[..rest.find("== ").unwrap_or(rest.len())].to_owned()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn a_server_from_a_file_registers_as_the_file_says() {
    let Some(mut script) = own_network(FROM_A_FILE, &["showmount"]) else { return };
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    let export = format!(
        "[[export]]\npath = \"{}\"\ndurability = \"sync\"\nclients = [{{ from = \"*\" }}]\n",
        path(&volume)
    );
    let file = |name: &str, top: &str| {
        let file = dir.path().join(name);
        fs::write(&file, format!("{top}{export}")).expect("written");
        file
    };
    let script =
        script.env("AUTO", file("auto.toml", "")).env("OFF", file("off.toml", "rpcbind = \"off\"\n"));
    let out = script.output().expect("unshare runs");
    let text = stdout(&out);
    assert!(out.status.success(), "{text}{}", stderr(&out));
    let part = |name: &str| part_of(&text, name);
    assert!(part("exports").contains(path(&volume)), "{text}");
    for program in ["100003", "100005", "100021", "100024"] {
        assert!(part("auto").contains(program), "{program}: {text}");
        assert!(!part("stopped").contains(program) && !part("off").contains(program), "{program}: {text}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn showmount_finds_the_server_and_a_clean_stop_leaves_nothing() {
    let Some(mut script) = own_network(SCRIPT, &["showmount"]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let volume = dir.path().join("volume");
    fs::create_dir(&volume).expect("a directory");
    let script = script.env("VOLUME", &volume).env("LOG", dir.path().join("log"));
    let out = script.output().expect("unshare runs");
    let text = stdout(&out);
    assert!(out.status.success(), "{text}{}", stderr(&out));
    let part = |name: &str| part_of(&text, name);
    assert!(part("exports").contains(path(&volume)), "{text}");
    let by = |part: &str, program: &str, version: &str, transport: &str, port: &str| {
        part.lines().any(|l| {
            let words: Vec<_> = l.split_whitespace().collect();
            words.starts_with(&[program, version, transport, port])
        })
    };
    let row = |part: &str, program: &str, version: &str, port: &str| by(part, program, version, "tcp", port);
    let registered = part("registered");
    for (program, version) in [("100003", "3"), ("100003", "4"), ("100005", "3")] {
        assert!(row(&registered, program, version, "2049"), "{program} {version}: {text}");
        assert!(row(&part("moved"), program, version, "3049"), "{program} {version}: {text}");
        assert!(!row(&part("moved"), program, version, "2049"), "{program} {version}: {text}");
    }
    // The lock manager and the status monitor take datagrams as well.
    for (program, version) in [("100021", "4"), ("100024", "1")] {
        for transport in ["tcp", "udp"] {
            assert!(by(&registered, program, version, transport, "2049"), "{program} {transport}: {text}");
            assert!(
                !by(&part("stopped"), program, version, transport, "2049"),
                "{program} {transport}: {text}"
            );
        }
    }
    assert!(!by(&registered, "100003", "3", "udp", "2049"), "{text}");
    assert!(part("exports").contains('*'), "{text}");
    assert!(!part("stopped").contains("100003") && !part("stopped").contains("100005"), "{text}");
}
