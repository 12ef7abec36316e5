//! `find`, beside GNU find: what it prints, matches and deletes.

use super::*;

/// What both say with these words behind one starting point, lines sorted.
fn both(rig: &Rig, version: &str, name: &str, words: &[&str]) -> (Said, Said) {
    let ours = said(landfast().arg("find").arg(rig.url(name, version)).args(words));
    let (from, to) = (rig.shown("", version), path(&rig.at("")).to_owned());
    // The directory above a starting point is shown without a slash.
    let (from, to) = (from.trim_end_matches('/'), to.trim_end_matches('/'));
    let plain = |text: &[u8]| replaced(text, from, to);
    let ours = Said { out: plain(&ours.out), err: plain(&ours.err), code: ours.code };
    let gnu = said(Command::new("find").arg(rig.at(name)).args(words));
    let unquoted = |said: &Said| said.errors().replace(['‘', '’', '`', '"'], "'").into_bytes();
    (Said { err: unquoted(&ours), ..ours }.sorted(), Said { err: unquoted(&gnu), ..gnu }.sorted())
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn find_says_of_objects_what_gnu_find_says() {
    let rig = Rig::new();
    odd_tree(&rig, "t");
    // The last access changes when files are read.
    let formats: &[&[&str]] = &[
        &["-printf", "%p %y %s %m %M %n %i %d|%u %U %g %G|%k %b\\n"],
        &["-printf", "%f|%h|%H|%P|%l\\0"],
        &["-ls"],
        &["-printf", "%t %c %T@ %C@ %T+\\n"],
        &[
            "-printf",
            "%Ta %TA %Tb %TB %Tc %Td %TD %Te %TF %TH %TI %Tj %Tk %Tl %Tm %TM %Tp %Tr %TS %TT %TU %Tw %TX %TY %TZ %Tz %TG %TV\\n",
        ],
        &["-name", "f*", "-printf", "%-10s|%10s|%.3f|%5d|%+d|%05d|%#m|%8.2M\\t\\101\\\\%%\\n"],
        &["-name", "f1?", "-printf", "%q %Tq \\q%{"],
        &["-name", "f1?", "-printf", "%q %T\\n\\q\\"],
        &["-name", "f1?", "-printf", "a\\cb", "-printf", "%"],
        &["-name", "f1?", "-printf", "a\\cb", "-ls", "-print0"],
        &["-type", "b,c", "-ls", "-printf", "%p\\n"],
    ];
    for version in VERSIONS {
        for words in some(version, formats, 3).iter().copied() {
            let (mut ours, mut gnu) = both(&rig, version, "t", words);
            if words.contains(&"-ls") {
                // How wide columns are depends on what came before.
                for said in [&mut ours, &mut gnu] {
                    let words: Vec<String> = said
                        .text()
                        .lines()
                        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
                        .collect();
                    said.out = words.concat().into_bytes();
                }
            }
            assert_same(&ours.sorted(), &gnu.sorted(), &format!("{version} {words:?}"));
        }
        // A starting point that is a symbolic link, and one with a slash.
        for name in ["t/link", "t/many/"] {
            let (ours, gnu) = both(&rig, version, name, &["-printf", "%p %f %h %H %P %l %d %y\\n"]);
            assert_same(&ours, &gnu, &format!("{version} {name}"));
        }
    }
    for refused in ["%F", "%D", "%S", "%Y", "%Z", "%Bk"] {
        let (ours, _) = both(&rig, "4.2", "t", &["-printf", refused]);
        assert_eq!((ours.code, ours.text()), (Some(1), String::new()), "{refused}: {ours:?}");
        assert!(ours.errors().contains("is not supported on NFS"), "{refused}: {ours:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn find_matches_what_gnu_find_matches() {
    let rig = Rig::new();
    rig.shell("mkdir h h/d h/dd; cd h; touch $'n\\nl' é É $'b\\xff' + a+ '{1}' 'a{2}' aa 'a|b' '(x)' 'a^b' 'a$b' '\\' w A ']' '-' '*' ab 'a b' a_b 5");
    // Behind the directory that all is in.
    let patterns = [
        ".*",
        ".",
        "n.l",
        "[^x]*",
        "d\\{2\\}",
        "d{2}",
        "a{2}",
        "a\\{2\\}",
        "a\\|.*b",
        "a|b",
        "\\(a\\|d\\)+",
        "[[:alpha:]]",
        "[[:upper:]]",
        "[[:punct:]]+",
        "[^[:alnum:]]",
        "\\w",
        "\\W",
        "a^b",
        "a$b",
        "\\(^b\\)",
        "[]-]",
        "[\\]",
        "[\\w]",
        "d?d",
        "\\d",
        "a\\+",
        "\\+",
        "\\(+\\)",
        "\\(*\\)",
        "\\(a\\|+\\)",
        "a\\b.*",
        ".*\\Bd",
        "\\<d\\>",
        "d**",
        "d+*",
        "d*?",
        "a\\s?b",
        ".\\?",
        "[a-b]*",
        "[b-a]",
        "\\(\\)a",
        "a\\(\\)",
        "A\\|",
        "a{1,}",
        "a{,2}",
        "(a|d){2}",
        "((a)|(b))+",
        "a{0}A",
        "\\`a",
        "a.b\\'",
        "a$",
        "[a",
        "\\(",
        "(",
        "É",
        "a\\",
    ];
    for version in ["4.2", "3"] {
        for pattern in some(version, &patterns, 3) {
            for words in [&["-regex"][..], &["-iregex"], &["-regextype", "posix-extended", "-regex"]] {
                let plain = pattern.len() > 4 || pattern.contains('\\');
                if words == ["-iregex"] && plain {
                    // Beside GNU's, which folds names but not an escaped letter.
                    continue;
                }
                let whole = format!(".*/h/{pattern}");
                let words = [words, &[&whole, "-print0"]].concat();
                let (ours, gnu) = both(&rig, version, "h", &words);
                let what = format!("{version} {words:?}");
                // Which words a mistake is told in is for the library that finds it.
                let told = |said: &Said| said.errors().split(": ").take(2).collect::<Vec<_>>().join(": ");
                assert_eq!(told(&ours), told(&gnu), "{what}");
                assert_same(&Said { err: Vec::new(), ..ours }, &Said { err: Vec::new(), ..gnu }, &what);
            }
        }
    }
    let (ours, _) = both(&rig, "4.2", "h", &["-regex", ".*\\(a\\)\\1"]);
    assert_eq!((ours.code, ours.text()), (Some(1), String::new()), "{ours:?}");
    let (ours, _) = both(&rig, "4.2", "h", &["-regextype", "sed", "-regex", "x"]);
    assert_eq!((ours.code, ours.text()), (Some(1), String::new()), "{ours:?}");
    for words in [&["-name", "d", "-quit"][..], &["-maxdepth", "0", "-print", "-quit"], &["-quit", "-print"]]
    {
        let (ours, gnu) = both(&rig, "4.2", "h", words);
        assert_same(&ours, &gnu, &format!("{words:?}"));
    }
    let (ours, _) = both(&rig, "4.2", "h", &["-type", "f", "-print0", "-quit"]);
    assert_eq!((ours.code, ours.out.iter().filter(|b| **b == 0).count()), (Some(0), 1), "{ours:?}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn find_deletes_what_gnu_find_deletes() {
    let rig = Rig::new();
    const TREE: &str = "rm -rf t u; mkdir -p t/a/b/c t/a/e/e/e t/x/y t/keep; for i in $(seq 60); do echo $i > t/a/f$i; echo > t/a/b/c/g$i; done; ln -s ../keep t/x/link; echo k > t/keep/k; ln t/keep/k t/x/k; mkfifo t/x/y/p; cp -a t u";
    let cases: &[&[&str]] = &[
        &["-name", "f*", "-delete", "-print"],
        &["-delete"],
        &["-type", "d", "-empty", "-delete", "-print"],
        &["-type", "f", "-delete"],
        &["-name", "[ab]", "-delete", "-print"],
        &["-mindepth", "1", "-delete"],
        &["(", "-name", "*3", "-o", "-name", "[xy]", ")", "-delete"],
        &["-name", "g*", "-delete", "-o", "-name", "c", "-delete", "-printf", "%f\\n"],
        &["-maxdepth", "2", "-type", "d", "-delete"],
        &["-name", "a", "-prune", "-delete"],
        &["-depth", "-name", "b", "-prune", "-delete"],
        &["!", "-name", "keep", "!", "-name", "k", "-delete"],
        &["-type", "l", "-delete", "-quit"],
        &["-empty", "-delete"],
        &["-type", "f", "-print0", "-delete", "-false", "-o", "-print"],
    ];
    for version in VERSIONS {
        for words in some(version, cases, 3).iter().copied() {
            rig.shell(TREE);
            let what = format!("{version} {words:?}");
            let ours = said(landfast().arg("find").arg(rig.url("t", version)).args(words));
            let gnu = said(Command::new("find").arg(rig.at("u")).args(words));
            let left = |name: &str| fs::symlink_metadata(rig.at(name)).is_ok().then(|| names(&rig.at(name)));
            assert_eq!(left("t"), left("u"), "{what}: {ours:?}");
            let plain = |said: &Said, from: &str| {
                let plain = |text: &[u8]| replaced(text, from, "TOP");
                // What is in several directories goes together.
                let err = Said { out: plain(&said.err), err: Vec::new(), code: None }.sorted().out;
                Said { out: plain(&said.out), err, code: said.code }.sorted()
            };
            let gnu = Said { err: gnu.errors().replace(['‘', '’'], "'").into_bytes(), ..gnu };
            assert_same(&plain(&ours, &rig.shown("t", version)), &plain(&gnu, path(&rig.at("u"))), &what);
        }
    }
    // What must stay stays, and is said to.
    rig.shell(TREE);
    for (version, name) in [("4.2", ""), ("3", ""), ("4.2", "t/keep/.")] {
        let end = said(landfast().args(["find", &rig.url(name, version), "-maxdepth", "0", "-delete"]));
        assert_eq!(end.code, Some(1), "{version} {name}: {end:?}");
        assert!(end.errors().contains("cannot delete"), "{version} {name}: {end:?}");
    }
    // Many in few requests, and more than wait at a time.
    rig.shell("mkdir m; cd m; for d in 1 2 3; do mkdir $d; (cd $d; seq 1700 | xargs touch); done");
    let end = said(landfast().args(["find", &rig.url("m", "4.2"), "-delete", "--json"]));
    assert_eq!((end.code, rig.at("m").exists()), (Some(0), false), "{end:?}");
    let summary = end.summary();
    assert_eq!(summary["deleted"], 1 + 3 + 3 * 1700, "{summary}");
    assert!(summary["rpcs"].as_u64().is_some_and(|n| n <= 100), "{summary}");
}
