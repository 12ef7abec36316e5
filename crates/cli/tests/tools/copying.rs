//! `cp`.

use super::*;
use std::os::unix::ffi::OsStrExt;

/// Everything that can be seen of a tree: names, kinds, modes, owners, sizes, links, times, data, attributes.
pub fn picture(dir: &Path, times: bool) -> String {
    let time = if times { "%T@" } else { "" };
    let script = format!(
        "find . -mindepth 1 \\( -type d -printf '%p %y %m %U %G {time}\\n' \\) -o -printf '%p %y %m %U %G %s %n %l {time}\\n' | sort; \
         find . -type f -print0 | sort -z | xargs -0r sha256sum; \
         find . \\( -type f -o -type d \\) -print0 | sort -z | xargs -0r getfattr -d -m user. 2>/dev/null || true"
    );
    let end = Command::new("bash").args(["-c", &script]).current_dir(dir).output().expect("a shell");
    let lines = [String::from_utf8_lossy(&end.stdout).into_owned()];
    lines.into_iter().chain(names(dir).iter().map(|name| xattrs(dir, name))).collect()
}

/// The extended attributes of an object, a line each.
pub fn xattrs(dir: &Path, name: &Path) -> String {
    let at = dir.join(name);
    let mut keys = vec![0; 4096];
    let len = rustix::fs::llistxattr(&at, &mut keys[..]).expect("names");
    let line = |key: &[u8]| {
        let mut value = vec![0; 65536];
        let key = OsStr::from_bytes(key);
        let len = rustix::fs::lgetxattr(&at, key, &mut value[..]).expect("a value");
        format!("{} {} {}\n", name.display(), key.display(), value[..len].escape_ascii())
    };
    let mut keys: Vec<&[u8]> = keys[..len].split(|b| *b == 0).filter(|k| k.starts_with(b"user.")).collect();
    keys.sort();
    keys.into_iter().map(line).collect()
}

/// Where sources and local destinations are.
pub fn local(rig: &Rig) -> PathBuf {
    let dir = rig.at("").parent().expect("a directory").join("local");
    fs::create_dir_all(&dir).expect("a directory");
    dir
}

/// Takes a directory away and lets it live: what is made in its place has inode numbers of its own. The server, behind whose back it
/// happens, shows what had a number before for up to a second.
const ASIDE: &str =
    "aside() { [ ! -e $1 ] || { mkdir -p ../gone; mv $1 $(mktemp -d ../gone/XXXXXX); }; }; aside";

/// `cp` of ours and of GNU's, from and to places as `$S`, `$D` of a script's words say: what was said, and what is there.
struct Pair<'a> {
    rig: &'a Rig,
    version: &'a str,
    local: PathBuf,
    /// What stands on standard input.
    answers: String,
    uid: u32,
}

impl Pair<'_> {
    /// `words` with `@x` for a local path and `%x` for one of the export; the destination is emptied and made by `before`.
    fn run(&self, before: &str, words: &[&str]) -> [(Said, String); 2] {
        let times = words.iter().any(|w| w.starts_with("-a") || w.starts_with("-p"));
        [true, false].map(|ours| {
            self.rig.shell(&format!(
                "for d in {} .; do {ASIDE} $d/dest; mkdir $d/dest; cd $d/dest; :; {before}\ncd -; done",
                path(&self.local)
            ));
            let words: Vec<String> = words
                .iter()
                .map(|word| match word.split_at_checked(1) {
                    Some(("@", name)) => path(&self.local.join(name)).to_owned(),
                    Some(("%", name)) if ours => self.rig.url(name, self.version),
                    Some(("%", name)) => path(&self.rig.at(name)).to_owned(),
                    _ => (*word).to_owned(),
                })
                .collect();
            let mut command = if ours { landfast() } else { Command::new("env") };
            use std::os::unix::process::CommandExt;
            command.args(["cp"]).args(&words).current_dir(&self.local).uid(self.uid).gid(self.uid);
            let said = said_with(&mut command, &self.answers);
            let (from, to) = (self.rig.shown("", self.version), path(&self.rig.at("")).to_owned());
            let text = |bytes: &[u8]| replaced(bytes, &from, &to);
            let said = Said { out: text(&said.out), err: text(&said.err), code: said.code };
            let made =
                picture(&self.rig.at("dest"), times) + "here\n" + &picture(&self.local.join("dest"), times);
            (said, made)
        })
    }

    /// What differs, with these answers to questions, whose order is not compared.
    fn differ_answered(&mut self, before: &str, words: &[&str], answers: &str) -> Option<String> {
        self.answers = answers.to_owned();
        let [(ours, made), (gnu, wanted)] = self.run(before, words);
        let parts = |said: &Said| {
            let mut parts: Vec<String> = said.text().lines().map(str::to_owned).collect();
            parts.extend(said.errors().split_inclusive("? ").flat_map(str::lines).map(str::to_owned));
            parts.sort();
            parts
        };
        let same = parts(&ours) == parts(&gnu) && ours.code == gnu.code && made == wanted;
        let what = format!("{} {words:?} after {before:?} with {answers:?}", self.version);
        (!same).then(|| format!("{what}\n{ours:?}\nGNU: {gnu:?}\n{made}GNU:\n{wanted}"))
    }

    /// What differs.
    fn differ(&self, before: &str, words: &[&str]) -> Option<String> {
        let [(ours, made), (gnu, wanted)] = self.run(before, words);
        let lines = |said: &Said| {
            let mut lines: Vec<String> =
                said.text().lines().chain(said.errors().lines()).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let tree = made.lines().zip(wanted.lines()).find(|(a, b)| a != b);
        let same = lines(&ours) == lines(&gnu) && ours.code == gnu.code && made == wanted;
        let what = format!("{} {words:?} after {before:?}", self.version);
        let counts = (made.lines().count(), wanted.lines().count());
        (!same).then(|| format!("{what}\n{ours:?}\nGNU: {gnu:?}\n{tree:?} {counts:?}"))
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn cp_makes_what_gnu_cp_makes_and_says_the_same() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell("cd ../local; mkdir -p s/sub/deep s/empty other; echo one > s/one; echo two > s/sub/two; ln -s one s/link; \
        ln s/one s/hard; ln -s nowhere s/broken; mkfifo s/fifo; chmod 751 s/sub; chmod 6755 s/sub/two; echo x > s/sub/deep/x; \
        chmod 0555 s/sub/deep; chmod 1777 s/empty; touch -d 2001-02-03T04:05:06.789 s/one s/sub; chown 12:34 s/sub/two; \
        truncate -s 3M s/sparse; head -c 600000 /dev/zero > s/large; echo other > other/one; ln -s s dirlink; cp -a s dirlink ../volume");
    let mut differ = Vec::new();
    for version in VERSIONS {
        let pair = Pair { rig: &rig, version, local: local.clone(), answers: String::new(), uid: 0 };
        let all: &[(&str, &[&str])] = &[
            ("", &["-a", "@s", "%dest"]),
            ("", &["-a", "%s", "@dest"]),
            ("", &["-a", "%s", "%dest"]),
            (
                "mkdir s; echo old > s/one; ln s/one s/also; echo old > s/large; mkdir s/sub; chmod 700 s/sub; touch -d 2030-01-01 s/one",
                &["-rv", "@s", "%dest"],
            ),
            (
                "mkdir s; echo old > s/one; ln s/one s/also; mkdir s/sub; chmod 700 s/sub; touch -d 2002-01-01 s/one s/sub s",
                &["-a", "@s", "%dest"],
            ),
            (
                "mkdir s; echo old > s/one; ln s/one s/also; mkdir s/sub; chmod 700 s/sub; touch -d 2002-01-01 s/one s/sub s",
                &["-rv", "%s", "@dest"],
            ),
            ("", &["-r", "@s", "%dest/new"]),
            ("mkdir -p s/one; echo x > s/sub", &["-r", "@s", "%dest"]),
            ("", &["-rT", "@s", "%dest"]),
            ("", &["-r", "@s/.", "%dest"]),
            ("", &["@s/one", "@s/link", "@s/hard", "%dest"]),
            ("", &["-d", "@s/one", "@s/link", "@s/hard", "%dest"]),
            ("", &["@s/one", "%dest/no/x"]),
            // A link that is left as it is holds up nothing.
            ("mkdir s; echo old > s/one; echo older > s/hard", &["-rn", "--preserve=links", "@s", "%dest"]),
            ("mkdir s; echo old > s/one; echo older > s/hard", &["-rn", "--preserve=links", "%s", "@dest"]),
            ("", &["@s/one", "%dest/no/"]),
            ("", &["-T", "@s/one", "%dest/no/"]),
            ("", &["-r", "@s/sub", "%dest/no/"]),
            ("touch x", &["@s/one", "%dest/x/"]),
            ("touch x", &["-r", "@s", "%dest/x/"]),
            ("mkdir x", &["@s/one", "%dest/x/"]),
            ("", &["%s/one", "@dest/no/"]),
            ("touch x", &["%s/one", "@dest/x/"]),
            ("", &["-r", "@s/sub", "%dest/no/x"]),
            ("", &["@s", "@s/one", "@nothing", "%dest"]),
            ("", &["-v", "@s/one", "@other/one", "%dest"]),
            ("echo old > one", &["-n", "@s/one", "@s/sub/two", "%dest"]),
            (
                "echo old > one; echo older > two; touch -d 1990-01-01 two",
                &["-u", "@s/one", "@s/sub/two", "%dest"],
            ),
            ("echo old > one", &["--remove-destination", "@s/one", "%dest"]),
            ("echo old > x", &["-t", "%dest/x", "@s/one"]),
            ("echo old > x", &["@s/one", "@s/sub/two", "%dest/x"]),
            ("", &["@s/one", "@s/sub/two", "%dest/nothing"]),
            ("", &["-rL", "@dirlink", "%dest"]),
            ("", &["-rH", "@dirlink", "%dest"]),
            ("", &["-r", "--preserve=mode,timestamps", "@s/sub", "%dest"]),
            ("", &["-p", "@s/sub/two", "%dest"]),
            ("", &["-a", "--no-preserve=ownership", "@s/sub", "%dest"]),
            ("", &["--sparse=always", "@s/large", "%dest"]),
            (
                "mkdir s; echo old > s/one; ln s/one s/also; mkdir s/sub; chmod 700 s/sub; touch -d 2002-01-01 s/one s/sub s",
                &["-a", "%s", "@dest"],
            ),
            ("mkdir -p s/one; echo x > s/sub", &["-r", "%s", "@dest"]),
            ("", &["%s/one", "%s/link", "@s/sub/two", "@dest"]),
            ("", &["%s", "%nothing", "%s/one", "@dest"]),
            ("", &["%s/one", "@dest/no/x"]),
            ("echo old > one", &["-n", "%s/one", "%s/sub/two", "@dest"]),
            (
                "echo old > one; echo older > two; touch -d 1990-01-01 two",
                &["-u", "%s/one", "%s/sub/two", "@dest"],
            ),
            ("echo old > one", &["--remove-destination", "%s/one", "@dest"]),
            ("", &["-v", "%s/one", "@other/one", "@dest"]),
        ];
        for (before, words) in some(version, all, 4) {
            if words.contains(&"-rL") {
                rig.shell("rm -f ../local/s/broken");
            }
            differ.extend(pair.differ(before, words));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
}

/// GNU's copies the file once more for them.
/// A user who is not root copies files and directories with set-ID and sticky bits: their own, of a group that they are not in, and of
/// others. What cannot keep its owner and group loses these bits.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn cp_of_a_user_keeps_set_id_bits_as_gnu_cp_does() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell(
        "chmod 755 .. ../local; cd ../local; mkdir s; cd s; for owner in 1234:1234 1234:5678 5:1234 5:6; do for mode in 4755 2755 6755 1777 755; do \
        n=$owner-$mode; echo $n > $n; mkdir d$n; echo in > d$n/in; chown -R $owner $n d$n; chmod $mode $n d$n; done; done; \
        cd ..; cp -a s ../volume",
    );
    let mut differ = Vec::new();
    for version in VERSIONS {
        let pair = Pair { rig: &rig, version, local: local.clone(), answers: String::new(), uid: 1234 };
        let all: &[&[&str]] = &[
            &["-a", "@s", "%dest"],
            &["-a", "%s", "@dest"],
            &["-a", "%s", "%dest"],
            &["-rp", "@s", "%dest"],
            &["-r", "--preserve=mode", "@s", "%dest"],
            &["-r", "--preserve=mode", "%s", "@dest"],
        ];
        differ.extend(some(version, all, 2).iter().filter_map(|words| pair.differ("chmod 777 .", words)));
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn cp_makes_no_name_of_what_was_there_in_place_of_a_file() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell(
        "cd ../local; mkdir s; echo new > s/a; ln s/a s/b; ln s/a s/c; echo x > s/x; cp -a s ../volume/s",
    );
    for (n, version) in VERSIONS.iter().enumerate() {
        for (from, to) in [("local", "volume"), ("volume", "local"), ("volume", "volume")] {
            let name = |place: &str, name: &str| match place {
                "local" => path(&local.join(name)).to_owned(),
                _ => rig.url(name, version),
            };
            let mut all_missing = 0;
            for there in ["a", "b", "c"] {
                let dest = format!("{from}-{to}-{n}-{there}");
                rig.shell(&format!("mkdir -p ../{to}/{dest}/s; echo old > ../{to}/{dest}/s/{there}"));
                let end = said(landfast().args(["cp", "-an", &name(from, "s"), &name(to, &dest)]));
                let place = local.parent().expect("a directory").join(to).join(&dest).join("s");
                let is = |name: &str| fs::read_to_string(place.join(name)).ok();
                assert_eq!(
                    (is(there).as_deref(), is("x").as_deref()),
                    (Some("old\n"), Some("x\n")),
                    "{dest}"
                );
                let mut missing = 0;
                for name in ["a", "b", "c"].iter().filter(|name| **name != there) {
                    let told =
                        |line: &str| line.contains(&format!("/{name}'")) && line.contains("another name");
                    match is(name) {
                        Some(text) => assert_eq!(text, "new\n", "{dest}: {name}"),
                        None => {
                            assert!(end.errors().lines().any(told), "{dest}: {name}: {end:?}");
                            missing += 1;
                        }
                    }
                }
                assert_eq!(end.code, Some(i32::from(missing > 0)), "{dest}: {end:?}");
                assert_eq!(end.errors().lines().count(), missing, "{dest}: {end:?}");
                all_missing += missing;
            }
            // The directory's order says which name is the first; the others are further names of it.
            assert_eq!(all_missing, 2, "{version}, {from} to {to}");
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn cp_takes_few_requests_and_counts_what_is_stable() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell("cd ../local; mkdir t; cd t; for d in $(seq 40); do mkdir $d; (cd $d; for f in $(seq 50); do echo $d $f > $f; done); done; mkdir ../u");
    let said = |words: &[&str]| said(landfast().args(["cp", "-r", "--json"]).args(words));
    let (t, url) = (local.join("t"), rig.url("", "4.2"));
    for words in [[path(&t), &url], [&rig.url("t", "4.2"), path(&local.join("u"))]] {
        let end = said(&words);
        assert_eq!(end.code, Some(0), "{end:?}");
        let summary = end.summary();
        assert_eq!(summary["copied"], 1 + 40 + 2000, "{summary}");
        assert_eq!(end.text().lines().count(), 1 + 40 + 2000 + 1);
        let rpcs = summary["rpcs"].as_u64().expect("a number");
        assert!(rpcs <= 100, "{rpcs} RPCs for 2,000 files");
    }
    let same = Command::new("diff").arg("-r").args([&t, &local.join("u/t")]).status().expect("diff");
    assert!(same.success());
    // What was typed wrongly.
    for words in
        [&["-r"][..], &["a"], &["-T", "a", "b", "c"], &["--no-such", "a", "b"], &["--sparse=x", "a", "b"]]
    {
        assert_eq!(said(words).code, Some(1), "{words:?}");
    }
    let cut = rig.url("", "4.2").replace("127.0.0.1", "127.0.0.1:x");
    assert_eq!(said(&[path(&t), &cut]).code, Some(1));
}

/// RFC 7862 sections 15.2 and 15.13; RFC 8881 section 2.10.4.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn cp_has_a_server_copy_what_it_has_already_and_moves_no_data() {
    let rig = Rig::new();
    rig.shell("mkdir -p s/sub dest; for f in $(seq 120); do head -c 20000 /dev/urandom > s/sub/$f; done; head -c 9000000 /dev/urandom > s/large; \
        : > s/empty; ln s/large s/hard; ln -s large s/link; chmod 4755 s/sub/7; chmod 0 s/sub/8; chown 12:34 s/sub/9; touch -d 2001-02-03 s/sub/* s/large s/sub");
    let bytes = 120 * 20_000 + 9_000_000;
    let cp = |words: &[&str]| said(landfast().args(["cp", "-a", "--json"]).args(words));
    let moved = |end: &Said| {
        assert_eq!(end.code, Some(0), "{end:?}");
        let summary = end.summary();
        ["bytes_sent", "bytes_received"].map(|way| summary[way].as_u64().expect("a number"))
    };
    // One server under two names.
    let elsewhere = rig.url("dest/two", "4.2").replace("127.0.0.1", "localhost");
    for dest in [rig.url("dest/one", "4.2"), elsewhere] {
        let end = cp(&[&rig.url("s", "4.2"), &dest]);
        let [sent, received] = moved(&end);
        assert!(sent + received < bytes / 50, "{sent} bytes sent, {received} received");
        let rpcs = end.summary()["rpcs"].as_u64().expect("a number");
        assert!(rpcs <= 45, "{rpcs} RPCs for 120 files");
    }
    // Those who ask for it have the data moved; a version without COPY cannot else.
    for (name, words, version) in [("three", "--reflink=never", "4.2"), ("four", "--reflink=auto", "4.1")] {
        let end = cp(&[words, &rig.url("s", version), &rig.url(&format!("dest/{name}"), version)]);
        let [sent, received] = moved(&end);
        assert!(sent > bytes && received > bytes, "{sent} bytes sent, {received} received");
    }
    // What was said to be copied is there whatever becomes of the server.
    let (volume, log) = (rig.at(""), rig.dir.path().join("log"));
    let Rig { dir, server } = rig;
    server.end(rustix::process::Signal::KILL);
    let rig = Rig { dir, server: Serving::start(&volume, &log) };
    let wanted = picture(&rig.at("s"), true);
    for name in ["one", "two", "three", "four"] {
        let made = picture(&rig.at("dest").join(name), true);
        assert!(made == wanted, "{name}: {:?}", made.lines().zip(wanted.lines()).find(|(a, b)| a != b));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn cp_copies_no_file_onto_itself_and_clones_or_says_that_it_cannot() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell("mkdir -p s/in t; head -c 5000000 /dev/urandom > s/large; echo small > s/small; ln s/large t/large; ln s/small t/small; \
        ln -s s again; echo x > s/in/x; cd ../local; echo here > here");
    let sums = || picture(&rig.at("s"), false);
    let before = sums();
    for version in VERSIONS {
        for (words, of) in [
            (&["%s/large", "%t/large"][..], "are the same file"),
            (&["%s/large", "%again/large"], "are the same file"),
            (&["%s/small", "%s/large", "%t"], "are the same file"),
            (&["-r", "%s", "%s/in"], "into itself"),
        ] {
            let pair = Pair { rig: &rig, version, local: local.clone(), answers: String::new(), uid: 0 };
            let [(ours, _), (gnu, _)] = pair.run("", words);
            assert_eq!((ours.code, gnu.code), (Some(1), Some(1)), "{version} {words:?}: {ours:?} {gnu:?}");
            // What the server says of two files comes in any order.
            let sorted = |said: &Said| {
                let mut lines: Vec<String> = said.errors().lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&ours), sorted(&gnu), "{version} {words:?}");
            assert!(ours.errors().contains(of), "{ours:?}");
            rig.shell("rm -rf s/in/s");
            assert_eq!(sums(), before, "{version} {words:?}");
        }
    }
    // In trees, too: only the server sees that.
    let end = rig.ours("4.2", &["cp", "-r", "-T"], &["s", "t"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.errors().matches("are the same file").count() == 2, "{end:?}");
    assert_eq!((sums(), fs::read(rig.at("t/in/x")).expect("a file")), (before, b"x\n".to_vec()));
    // As GNU cp on this filesystem, whichever it is: clones, or an error and no file (up to coreutils 9.1 an empty one).
    let pair = Pair { rig: &rig, version: "4.2", local, answers: String::new(), uid: 0 };
    for words in [
        &["--reflink=always", "%s/large", "%s/small", "%dest"][..],
        &["--reflink", "%s/large", "%dest/name"],
        &["--reflink=always", "--sparse=never", "%s/large", "%dest"],
    ] {
        let [(ours, made), (gnu, wanted)] = pair.run("", words);
        // Several files go at the same time.
        let lines = |said: &Said| {
            let mut lines: Vec<String> =
                said.errors().replace("landfast cp", "cp").lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!((ours.code, lines(&ours)), (gnu.code, lines(&gnu)), "{words:?}");
        assert_eq!(made, if gnu.code == Some(0) { wanted } else { "here\n".to_owned() }, "{words:?}");
    }
    for [from, to] in [["@here", "%dest"], ["%s/small", "@dest"]] {
        let [(ours, made), _] = pair.run("", &["--reflink=always", from, to]);
        assert!(ours.code == Some(1) && ours.errors().contains("failed to clone"), "{ours:?}");
        assert_eq!(made, "here\n");
    }
}

/// RFC 8276.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn cp_and_untar_keep_extended_attributes_where_there_are_any() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell("cd ../local; mkdir -p s/sub t old/s/sub; echo one > s/one; head -c 600000 /dev/urandom > s/large; : > s/sub/empty; ln -s one s/link; \
        ln s/large s/hard; for n in $(seq 60); do echo $n > s/sub/$n; done; echo old > old/s/one");
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(local.join(name), key, value, rustix::fs::XattrFlags::empty()).expect("set");
    };
    set("s/one", "user.a", b"1");
    set("s/one", "user.b", &[0, 1, 2, 255]);
    set("s/large", "user.large", &[b'x'; 300]);
    set("s/sub", "user.dir", b"d");
    set("s/sub/empty", "user.none", b"");
    set("old/s/one", "user.old", b"o");
    set("old/s/sub", "user.old", b"o");
    for n in 1..=60 {
        set(&format!("s/sub/{n}"), "user.n", n.to_string().as_bytes());
    }
    rig.shell("cd ../local; touch -d 2001-02-03 s/one s/large s/sub; chmod 444 s/one; cp -a s old ../volume; tar --xattrs --format=posix -cf a.tar -C s .");
    let pair = |version| Pair { rig: &rig, version, local: local.clone(), answers: String::new(), uid: 0 };
    let there = "cp -a ../old/s .";
    let mut differ: Vec<String> = Vec::new();
    for (before, words) in [
        ("", &["-a", "@s", "%dest"][..]),
        ("", &["-a", "%s", "@dest"]),
        ("", &["-a", "%s", "%dest"]),
        ("", &["-a", "--reflink=never", "%s", "%dest"]),
        (there, &["-a", "@s", "%dest"]),
        (there, &["-a", "%s", "@dest"]),
        ("", &["-r", "--preserve=xattr", "%s", "%dest"]),
        ("", &["-r", "@s", "%dest"]),
        ("", &["-a", "--no-preserve=xattr", "@s", "%dest"]),
        ("", &["--preserve=all", "@s/one", "%dest"]),
    ] {
        differ.extend(pair("4.2").differ(before, words));
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
    // Many files with their attributes in one COMPOUND.
    let end = said(landfast().args(["cp", "-a", "--json"]).arg(local.join("s")).arg(rig.url("few", "4.2")));
    assert!(end.summary()["rpcs"].as_u64().is_some_and(|n| n < 25), "{end:?}");
    // A version without them: nothing is said, unless they were asked for.
    let [(ours, _), _] = pair("4.1").run("", &["-a", "@s", "%dest"]);
    assert_eq!((ours.code, ours.errors()), (Some(0), String::new()));
    let [(ours, made), _] = pair("4.1").run("", &["--preserve=xattr", "@s/one", "@s/link", "%dest"]);
    assert_eq!(ours.code, Some(1));
    assert_eq!(ours.errors().matches("setting attributes for").count(), 2, "{ours:?}");
    assert!(made.contains("./one f"), "{made}");
    // An archive's.
    let archive = local.join("a.tar");
    let untar = |words: &[&str], version: &str| {
        rig.shell(&format!("{ASIDE} dest; mkdir dest"));
        let end = said(landfast().arg("untar").args(words).arg(&archive).arg(rig.url("dest", version)));
        (end, picture(&rig.at("dest"), true))
    };
    let wanted = picture(&local.join("s"), true);
    let (end, made) = untar(&["--xattrs"], "4.2");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(made, wanted);
    let (end, made) = untar(&[], "4.2");
    assert!(end.code == Some(0) && !made.contains("user."), "{end:?}");
    let (end, _) = untar(&["--xattrs"], "4.1");
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.errors().contains("extended attributes are not set"), "{end:?}");
}

const CLONES: &str = r#"
set -eu
cd "$WORK"
truncate -s 400M disk
mkfs.xfs -q -m reflink=1 disk
mkdir m
mount -o loop disk m
mkdir -p m/v/s/sub
"$LANDFAST" serve m/v --log log --log-size 32M --listen 127.0.0.1:0 2> said &
server=$!
trap 'kill $server; wait || true; umount m' EXIT
for _ in $(seq 600); do if grep -q nfs:// said; then break; fi; sleep 0.05; done
url=$(grep -o 'nfs://[^/ ]*' said | head -n 1)
for n in $(seq 40); do head -c 100000 /dev/urandom > m/v/s/sub/$n; done
head -c 30000000 /dev/urandom > m/v/s/large; echo small > m/v/s/small
free() { sync -f m; stat -f -c %f m; }
before=$(free)
for how in always auto; do
    "$LANDFAST" cp -a --reflink=$how $url/s $url/$how
    diff -r m/v/s m/v/$how
done
echo shared $((before - $(free)))
before=$(free)
"$LANDFAST" cp -a --reflink=never $url/s $url/never
diff -r m/v/s m/v/never
echo apart $((before - $(free)))
"#;

/// RFC 7862 section 15.13, on a filesystem that shares storage.
#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn cp_clones_where_the_filesystem_does() {
    if !common::emulates_disks() || !common::makes("xfs") {
        return;
    }
    let work =
        tempfile::Builder::new().prefix("landfast-tools-").tempdir_in("/var/tmp").expect("a directory");
    let out = Command::new("unshare")
        .args(["--mount", "bash", "-c", CLONES])
        .env("LANDFAST", env!("CARGO_BIN_EXE_landfast"))
        .env("WORK", work.path())
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .output()
        .expect("it runs");
    let text = common::stdout(&out);
    assert!(out.status.success(), "{text}{}", common::stderr(&out));
    let blocks = |word: &str| -> i64 {
        let line = text.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_default();
        line.trim().parse().unwrap_or_else(|e| panic!("{e}: {text}"))
    };
    // Of 34 MB, blocks of 4 KiB.
    assert!(blocks("shared") < 500, "{text}");
    assert!(blocks("apart") > 8000, "{text}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn cp_asks_as_gnu_cp_does() {
    let rig = Rig::new();
    let local = local(&rig);
    rig.shell("chmod 755 .. ../local; cd ../local; mkdir -p s/sub/new s/dir tree; echo one > s/one; echo two > s/sub/two; ln -s one s/link; \
        echo three > s/sub/new/three; ln s/one s/hard; echo x > s/dir/x; echo t > tree/t; cp -a s tree ../volume; chown -R 4321:4321 s tree ../volume/s");
    let there = "cp -a ../s s; cp -a ../tree tree; echo old > s/one; echo old > s/sub/two; rm -r s/sub/new s/hard; \
        rm s/link; ln -s away s/link; rm -r s/dir; echo f > s/dir; echo old > one; chmod 1444 one; chown -R 4321:4321 .; \
        find . -exec touch -h -d 2001-01-01 {} +";
    let (yes, no) = ("y\n".repeat(20), "n\n".repeat(20));
    let mut differ = Vec::new();
    for version in VERSIONS {
        let mut pair = Pair { rig: &rig, version, local: local.clone(), answers: String::new(), uid: 0 };
        let all: &[(&[&str], &str)] = &[
            (&["-ri", "@s", "%dest"], &yes),
            (&["-ri", "@s", "%dest"], &no),
            (&["-ai", "%s", "@dest"], &yes),
            (&["-ri", "%s", "%dest"], &yes),
            (&["-ri", "%s", "@dest"], &no),
            (&["-ri", "%s", "%dest"], ""),
            (&["-riu", "@s", "%dest"], &yes),
            (&["-riv", "@tree", "%dest"], "y\n"),
            (&["-riv", "@tree", "%dest"], "Yes\n"),
            (&["-riv", "@tree", "%dest"], "no\n"),
            (&["-riv", "@tree", "%dest"], "\n"),
            (&["-i", "@s/one", "%dest"], &yes),
            (&["-if", "@s/one", "%dest"], &yes),
            (&["-fi", "@s/one", "%dest"], &no),
            (&["-i", "--remove-destination", "%s/one", "%dest"], &yes),
            (&["-in", "@s/one", "%dest"], &yes),
            (&["-ni", "@s/one", "%dest"], &no),
            (&["-i", "@s/one", "%dest/new"], ""),
            (&["-riT", "@s/sub", "%dest/s/sub"], &yes),
            (&["-riT", "@s", "%dest/s"], &no),
        ];
        for (words, answers) in some(version, all, 6) {
            for uid in [0, 4321] {
                pair.uid = uid;
                differ.extend(pair.differ_answered(there, words, answers));
            }
        }
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
    // What answers are expected from is not what is copied.
    let mut command = landfast();
    command.args(["cp", "-i", "/dev/stdin", &rig.url("dest/one", "4.2")]);
    let refused = said_with(&mut command, "y\n");
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.errors().starts_with("cp: -i: standard input is '/dev/stdin', which is one of the sources"),
        "{refused:?}"
    );
    // What is not there is not looked at.
    let counted = |flags: &str| {
        rig.shell("rm -rf dest; mkdir dest");
        let (from, to) = (local.join("s"), rig.url("dest", "4.2"));
        rpcs(&said(landfast().args(["cp", flags, "--rpc-counts", path(&from), &to])))
    };
    let (plain, asked) = (counted("-r"), counted("-ri"));
    assert!(asked <= plain + 1, "{plain} RPCs, and {asked} where it might ask");
}

fn rpcs(said: &Said) -> u64 {
    let text = said.errors();
    let before = text.split_once(" RPCs").map(|(before, _)| before);
    let number = before.and_then(|text| text.rsplit(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{said:?}"))
}
