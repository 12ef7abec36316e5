//! `rm` and `mkdir`.

use super::trees::shell_in;
use super::*;

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn rm_removes_what_gnu_rm_removes_and_says_the_same() {
    let rig = Rig::new();
    for (n, version) in VERSIONS.into_iter().enumerate() {
        let theirs = format!("t{n}");
        let make = |name: &str| {
            if n == 0 {
                odd_tree(&rig, name);
            } else {
                rig.shell(&format!("mkdir -p {name}/empty {name}/many; touch {name}/five {name}/many/f1"));
            }
            rig.shell(&format!("mkdir {name}x; echo kept > {name}x/kept; ln -s ../{name}x {name}/away; ln -s {name}x {name}link"));
        };
        let all: &[&[&str]] = &[
            &["rm", "-rv"],
            &["rm"],
            &["rm", "-r"],
            &["rm", "-d"],
            &["rm", "-f"],
            &["rm", "-vf"],
            &["rm", "-vrf"],
        ];
        for args in some(version, all, 2).iter().copied() {
            make(&theirs);
            let operands = ["", "/five", "/nothing", "/five/below", "link", "/empty", "/many/f1"]
                .map(|o| format!("{theirs}{o}"));
            let operands: Vec<&str> = operands.iter().rev().map(String::as_str).collect();
            let gnu = rig.gnu(args, &operands).sorted();
            let left = names(&rig.at(""));
            rig.shell(&format!("rm -rf {theirs} {theirs}x {theirs}link"));
            make(&theirs);
            let ours = rig.ours(version, args, &operands).sorted();
            assert_same(&ours, &gnu, &format!("{version} {args:?}"));
            assert_eq!(names(&rig.at("")), left, "{version} {args:?}");
            assert_eq!(fs::read(rig.at(&format!("{theirs}x/kept"))).expect("kept"), b"kept\n");
            rig.shell(&format!("rm -rf {theirs} {theirs}x {theirs}link"));
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn rm_takes_few_requests_and_counts_them() {
    let rig = Rig::new();
    rig.shell("mkdir t; cd t; mkdir -p d{0..39}/s{0..1}; for d in d*; do touch $d/f{0..49} $d/s0/g{0..24} $d/s1/h{0..24}; done");
    let said = rig.ours("4.2", &["rm", "-rf", "--json", "--rpc-counts"], &["t"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let summary = said.summary();
    assert_eq!(summary["removed"], 1 + 40 + 80 + 40 * 100, "{summary}");
    let rpcs = summary["rpcs"].as_u64().expect("a number");
    assert!(rpcs <= 80, "{rpcs} RPCs for 4,000 files");
    assert!(said.errors().contains(" RPCs, 0.0"), "{said:?}");
    assert_eq!(said.text().lines().count(), 1 + 40 + 80 + 4000 + 1);
    assert!(names(&rig.at("")).iter().all(|n| n.starts_with(".landfast")));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn rm_leaves_the_top_of_an_export_and_ends_as_gnu_when_typed_wrongly() {
    let rig = Rig::new();
    rig.shell("touch f");
    for version in VERSIONS {
        let said = rig.ours(version, &["rm", "-rf"], &[""]);
        assert_eq!(said.code, Some(1));
        assert!(said.errors().contains("this is the top of the export"), "{said:?}");
    }
    assert!(rig.at("f").exists());
    // What a directory is called in the one above it is not said.
    rig.shell("mkdir -p d/e; touch d/e/f");
    for version in VERSIONS {
        for args in [&["rm", "-r"][..], &["rm", "-rf"]] {
            let operands = ["d/.", "d/e/./", "d/././"];
            let what = format!("{version} {args:?}");
            assert_same(&rig.ours(version, args, &operands), &rig.gnu(args, &operands), &what);
            assert!(rig.at("d/e/f").exists(), "{what}");
        }
    }
    for args in [
        &["rm"][..],
        &["rm", "--no-such"],
        &["rm", "-rz", "x"],
        &["mkdir"],
        &["mkdir", "-Q", "x"],
        &["stat"],
        &["cp", "--no-such", "a", "b"],
        &["ls", "-l%"],
        &["du", "-@s"],
        &["cat", "--no-such=1"],
    ] {
        let (ours, gnu) = (said(landfast().args(args)), said(Command::new(args[0]).args(&args[1..])));
        let ours = Said { err: replaced(&ours.err, "landfast ", ""), ..ours };
        let gnu = Said { err: replaced(&gnu.err, "=1'", "'"), ..gnu };
        assert_same(&ours, &gnu, &format!("{args:?}"));
    }
    let nobody = said(landfast().args(["rm", "http://x/"]));
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.errors().starts_with("rm: `http://x/`"), "{nobody:?}");
}

/// With two exports the top of each has a name in the directory above it, which the server makes up.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn rm_leaves_the_top_of_each_of_several_exports() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let dir = fs::canonicalize(dir.path()).map(|at| (at, dir)).expect("a path");
    let mut text = "listen = \"127.0.0.1:0\"\n".to_owned();
    for name in ["one", "two"] {
        let at = dir.0.join(name);
        fs::create_dir_all(at.join("d")).expect("a directory");
        fs::write(at.join("d/f"), b"kept").expect("a file");
        text += &format!(
            "[[export]]\npath = \"{}\"\nname = \"/{name}\"\ndurability = \"sync\"\n\
             clients = [{{ from = \"*\", options = [\"rw\", \"no_root_squash\"] }}]\n",
            at.display()
        );
    }
    let file = dir.0.join("landfast.toml");
    fs::write(&file, text).expect("a file");
    let server = Serving::configured(&file);
    for version in VERSIONS {
        let top = |name: &str| match version {
            "3" => path(&dir.0.join(name)).to_owned(),
            _ => format!("/{name}"),
        };
        let base = format!("nfs://{}", server.address());
        let before = names(&dir.0.join("one"));
        for args in [&["rm", "-r"][..], &["rm", "-rf"]] {
            let url = format!("{base}{}?version={version}", top("one"));
            let end = said(landfast().args(args).arg(&url));
            assert_eq!(end.code, Some(1), "{version}: {end:?}");
            assert!(end.errors().contains("this is the top of the export"), "{version}: {end:?}");
            assert_eq!(names(&dir.0.join("one")), before, "{version}: {end:?}");
        }
        // What is below it goes.
        let url = format!("{base}{}/d?version={version}", top("two"));
        let end = said(landfast().args(["rm", "-r", &url]));
        assert_eq!((end.code, end.errors().as_str()), (Some(0), ""), "{version}: {end:?}");
        assert!(!dir.0.join("two/d").exists(), "{version}");
        fs::create_dir(dir.0.join("two/d")).expect("a directory");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn an_interrupted_rm_says_what_it_did() {
    let rig = Rig::new();
    rig.shell("mkdir t; cd t; for d in $(seq 60); do mkdir d$d; (cd d$d; touch $(seq 400)); done");
    let mut child = landfast()
        .args(["rm", "-rv", &rig.url("t", "4.2")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("landfast starts");
    // Its first words are those of its first removals.
    let mut out = child.stdout.take().expect("a pipe");
    let mut first = [0; 1];
    std::io::Read::read_exact(&mut out, &mut first).expect("words");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .expect("it is there");
    let mut words = first.to_vec();
    std::io::Read::read_to_end(&mut out, &mut words).expect("words");
    let end = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&end.stderr).into_owned();
    let removed = words.split(|b| *b == b'\n').filter(|l| l.starts_with(b"removed")).count();
    let all = 1 + 60 + 60 * 400;
    if removed == all {
        println!("it was faster than the signal");
        return;
    }
    assert_eq!(end.status.code(), Some(130), "{errors}");
    let left = names(&rig.at("t")).len() + 1;
    assert_eq!(removed + left, all, "{errors}");
    assert!(errors.contains("rm: interrupted: ") && errors.contains("the rest was not started"), "{errors}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn mkdir_makes_what_gnu_mkdir_makes_and_says_the_same() {
    let rig = Rig::new();
    for version in VERSIONS {
        let all: &[&[&str]] = &[
            &["mkdir", "-pv"],
            &["mkdir", "-v"],
            &["mkdir"],
            &["mkdir", "-p"],
            &["mkdir", "-pvm", "1750"],
            &["mkdir", "-m", "u=rwx,go="],
        ];
        for args in some(version, all, 2).iter().copied() {
            let before = "rm -rf t; mkdir -p t/there; touch t/file; ln -s there t/link; ln -s file t/flink";
            let operands = [
                "t/new", "t/there", "t/file", "t/a/b/c", "t/a/b/d", "t/link/x", "t/file/x", "t/link",
                "t/flink",
            ];
            rig.shell(before);
            let gnu = rig.gnu(args, &operands);
            let modes = |rig: &Rig| -> Vec<_> {
                let all = names(&rig.at("t")).into_iter();
                all.map(|n| {
                    (
                        std::os::unix::fs::MetadataExt::mode(
                            &fs::symlink_metadata(rig.at("t").join(&n)).expect("there"),
                        ),
                        n,
                    )
                })
                .collect()
            };
            let made = modes(&rig);
            rig.shell(before);
            let ours = rig.ours(version, args, &operands);
            // The order of failures is not that of the operands where one looks first and another does at once.
            let lines = |said: &Said| {
                // In a UTF-8 locale this one tool has other quotes than the others.
                let errors = said.errors().replace(['‘', '’'], "'");
                let mut lines: Vec<String> =
                    errors.lines().chain(said.text().lines()).map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(lines(&ours), lines(&gnu), "{version} {args:?}");
            assert_eq!(ours.code, gnu.code, "{version} {args:?}");
            assert_eq!(modes(&rig), made, "{version} {args:?}");
        }
    }
    assert!(!rig.at("var").exists(), "nothing was made above the export");
    let bad = said(landfast().args(["mkdir", "-m", "u+z", &rig.url("x", "4.2")]));
    assert_eq!((bad.code, bad.errors().as_str()), (Some(1), "mkdir: invalid mode 'u+z'\n"));
}

/// The examples of docs/client.md, as they stand there.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn the_examples_of_the_manual_work() {
    let rig = Rig::new();
    rig.shell(
        "mkdir -p src home/ann home/bob etc work build tmp; touch src/Makefile build/x tmp/new; echo hello > etc/motd
         touch -d '31 days ago' tmp/old",
    );
    // What the examples have on this machine.
    shell_in(
        rig.dir.path(),
        "mkdir -p home/ann/mail linux; echo hi > home/ann/mail/1; echo x > linux/README; tar -cJf linux.tar.xz linux",
    );
    let manual = include_str!("../../../../docs/client.md");
    let examples = manual.split("```sh\n").skip(1).filter_map(|text| text.split("```").next());
    let mut count = 0;
    for line in examples.flat_map(str::lines) {
        let line = line.replace("nfs://server/", &rig.server.url).replace("landfast ", "\"$LANDFAST\" ");
        let mut shell = Command::new("bash");
        shell
            .args(["-ec", &format!("set -o pipefail; {line}")])
            .env("LANDFAST", env!("CARGO_BIN_EXE_landfast"))
            .current_dir(rig.dir.path());
        let end = said(&mut shell);
        assert_eq!(end.code, Some(0), "{line}: {end:?}");
        count += 1;
    }
    assert!(count >= 8, "{count} examples");
    assert!(!rig.at("build").exists() && !rig.at("work/a").exists() && rig.at("work").exists());
    assert!(!rig.at("tmp/old").exists() && rig.at("tmp/new").exists());
}

/// `rm` of GNU's and of ours on `w/NAME`s, as made by a script, each with these answers on its standard input: what was said, and
/// what is left. GNU's is not run on the export: the server would show what had a number before for up to a second.
fn answered(
    rig: &Rig,
    (uid, version): (u32, &str),
    make: &str,
    flags: &[&str],
    operands: &[&str],
    answers: &str,
) -> [(Said, Vec<PathBuf>); 2] {
    use std::os::unix::process::CommandExt;
    [false, true].map(|ours| {
        let at = if ours { rig.at("w") } else { rig.at("").with_file_name("local").join("w") };
        rig.shell("mkdir -p ../gone ../local");
        rig.shell(&format!(
            "cd {}; [ ! -e w ] || mv w $(mktemp -d ../gone/XXXXXX); mkdir w; cd w; {make}; chown -R {uid}:{uid} .",
            path(&at.with_file_name(""))
        ));
        let mut command = if ours { landfast() } else { Command::new("rm") };
        if ours {
            let urls = operands.iter().map(|n| rig.url(&format!("w/{n}"), version));
            command.arg("rm").args(flags).args(urls);
        } else {
            command.args(flags).args(operands.iter().map(|n| at.join(n)));
        }
        let o = said_with(command.uid(uid).gid(uid), answers);
        let from = if ours { rig.shown("w", version) } else { path(&at).to_owned() };
        let text = |bytes: &[u8]| replaced(bytes, &from, "w");
        (Said { out: text(&o.out), err: text(&o.err), code: o.code }, names(&at))
    })
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn rm_asks_once_as_gnu_rm_does() {
    let rig = Rig::new();
    let few = ["a", "b", "c"];
    let many = ["a", "b", "c", "d"];
    let make = "touch a b c d; mkdir t; touch t/x";
    for (flags, operands, answer) in [
        (&["-I"][..], &few[..], ""),
        (&["-I"], &many, "y\n"),
        (&["-I"], &many, "Yes\n"),
        (&["-I"], &many, "n\n"),
        (&["-I"], &many, "\n"),
        (&["-I"], &many, ""),
        (&["--interactive=once"], &many, "y\n"),
        (&["--interactive=once", "--interactive=never"], &many, ""),
        (&["-rI"], &["t"], "y\n"),
        (&["-rI"], &["t"], "no\n"),
        (&["-r", "-I"], &["t", "a"], ""),
        (&["-fI"], &many, "n\n"),
        (&["-If"], &many, "n\n"),
    ] {
        let [gnu, ours] = answered(&rig, (0, "4.2"), make, flags, operands, answer);
        assert_same(&ours.0, &gnu.0, &format!("{flags:?} {answer:?}"));
        assert_eq!(ours.1, gnu.1, "{flags:?} {answer:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn rm_asks_about_each_object_as_gnu_rm_does() {
    let rig = Rig::new();
    // A user who is not root may look at it, too.
    rig.shell("chmod 755 ..");
    // In each directory one entry, as two have no order.
    let make = "mkdir -p t/s/e t2/s; echo x > t2/s/f; touch empty; echo x > full; ln -s full link; mkfifo fifo; ln -s t/s away; \
        mkdir bare; touch \"it's\"; touch t/s/e/old; chmod 444 full t2/s/f; chmod 555 bare t2/s; mknod node c 1 3 || true";
    let all = ["t", "full", "nothing", "empty", "link", "fifo", "away", "bare", "t2", "it's", "node"];
    let cases: &[(&[&str], &[&str], &str)] = &[
        (&["-ri"], &all, &"y\n".repeat(40)),
        (&["-ri"], &all, &"n\n".repeat(40)),
        (&["-ri"], &["t"], "y\ny\ny\nn\n"),
        (&["-ri"], &["t"], "y\ny\nn\n"),
        (&["-riv"], &["t", "full", "t2"], "y\ny\ny\ny\nn\nn\ny\ny\ny\n"),
        (&["-ri"], &["t", "empty"], ""),
        (&["-ri"], &["t", "full", "empty"], "y\ny\ny\ny\ny\nn\ny\nn\ny"),
        (&["-i"], &all, &"y\n".repeat(40)),
        (&["-i"], &["full", "empty", "link"], "Y\n yes\nyes\n"),
        (&["-di"], &all, &"y\n".repeat(40)),
        (&["-r", "--interactive"], &["t", "nothing"], &"y\n".repeat(9)),
        (&["-rfi"], &["t", "nothing"], &"n\n".repeat(9)),
        (&["-rif"], &["t", "nothing"], &"n\n".repeat(9)),
        (&["-rf", "--interactive=never"], &["t", "nothing"], ""),
        (&["-ri", "--interactive=never"], &["t", "nothing"], ""),
        (&["-rI", "--interactive=always"], &["t", "full"], &"y\n".repeat(9)),
        (&["-riI"], &["t", "full"], "y\n"),
    ];
    let mut differ = Vec::new();
    for version in VERSIONS {
        for (flags, operands, answers) in some(version, cases, 3) {
            for uid in [0, 4321] {
                let [gnu, ours] = answered(&rig, (uid, version), make, flags, operands, answers);
                if ours != gnu {
                    differ.push(format!("{version} {uid} {flags:?} {answers:?}\n{ours:?}\nGNU: {gnu:?}"));
                }
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn rm_that_asks_removes_at_once_and_ends_at_a_signal() {
    use std::io::{Read, Write};
    let rig = Rig::new();
    rig.shell("mkdir w; touch w/a w/b w/c");
    let mut child = landfast()
        .args(["rm", "-ri", "--rpc-counts", &rig.url("w", "4.2")])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (mut to, mut from) = (child.stdin.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let mut heard = String::new();
    let mut question = |heard: &mut String| {
        let before = heard.len();
        while !heard[before..].ends_with("? ") {
            let mut byte = [0];
            from.read_exact(&mut byte).expect("a question");
            heard.push(char::from(byte[0]));
        }
    };
    question(&mut heard);
    to.write_all(b"y\n").expect("it listens");
    question(&mut heard);
    to.write_all(b"y\n").expect("it listens");
    question(&mut heard);
    // Before the next question the answer to the last one has been acted on.
    assert_eq!(names(&rig.at("w")).len(), 2, "{heard}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    from.read_to_string(&mut heard).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{heard}");
    assert!(heard.contains("\nrm: interrupted: 1 removed; the rest was not started"), "{heard}");
    assert_eq!(names(&rig.at("w")).len(), 2);
    let journal = rig.dir.path().join("journal");
    let refused = said(landfast().args(["rm", "-ri", "--resume", path(&journal), &rig.url("w", "4.2")]));
    assert_eq!(refused.code, Some(1));
    assert!(refused.errors().starts_with("rm: --resume cannot be used with -i: "), "{refused:?}");
    assert!(!journal.exists());
}
