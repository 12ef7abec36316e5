//! `ls`, `stat`, `du`, `find`, `cat`.

use super::*;

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn ls_shows_what_gnu_ls_shows() {
    let rig = Rig::new();
    odd_tree(&rig, "t");
    for version in VERSIONS {
        let all: &[&[&str]] = &[
            &["ls", "-laR"],
            &["ls", "-lhi"],
            &["ls", "-1Rr"],
            &["ls"],
            &["ls", "-l"],
            &["ls", "-lR"],
            &["ls", "-lA", "-t"],
            &["ls", "-lSr"],
            &["ls", "-n"],
            &["ls", "-ld"],
            &["ls", "-ad"],
            &["ls", "-aiR"],
            &["ls", "-C", "-w", "100"],
            &["ls", "-CRA", "-w", "60"],
            &["ls", "-aF"],
            &["ls", "-CF", "-w", "70"],
            &["ls", "-xR", "-w", "90"],
            &["ls", "-x", "-as"],
            &["ls", "-m"],
            &["ls", "-msiR", "-w", "60"],
            &["ls", "-mF", "-w", "0"],
            &["ls", "-QC", "-w", "100"],
            &["ls", "-lQb"],
            &["ls", "-bQR"],
            &["ls", "-xbN"],
            &["ls", "-mx1"],
            &["ls", "-xl"],
            &["ls", "-lm"],
            &["ls", "-Qm"],
            &["ls", "-bC"],
            &["ls", "-lp"],
            &["ls", "-s"],
            &["ls", "-lsiR"],
            &["ls", "-Csh", "-w", "80"],
            &["ls", "-g"],
            &["ls", "-oh"],
            &["ls", "-gG"],
            &["ls", "-lG", "--si"],
            &["ls", "-c"],
            &["ls", "-ltc"],
            &["ls", "-lc"],
            &["ls", "-ltu"],
            &["ls", "-l", "--time=ctime", "--sort=size"],
            &["ls", "--full-time"],
            &["ls", "-l", "--time-style=long-iso"],
            &["ls", "-l", "--time-style=iso"],
            &["ls", "-X"],
            &["ls", "-S", "-t", "--sort=extension"],
            &["ls", "-B", "-I", "f*", "-I", ".h*", "-A"],
            &["ls", "--hide=f*"],
            &["ls", "-A", "--hide=f*"],
            &["ls", "-RI", "deep", "-k", "--color=auto"],
        ];
        for args in some(version, all, 3).iter().copied() {
            let what = format!("{version} {args:?}");
            let many: &[&str] = &["t/five", "t/many", "t/todir", "t/nothing", "t/broken", "t/link", "t/a b"];
            // In columns the lengths of operands count, which are not the same.
            let columns =
                args[1..].iter().any(|flag| !flag.starts_with("--") && flag.contains(['C', 'x', 'm']));
            let operands: &[&[&str]] = if version == "4.2" && !columns { &[&["t"], many] } else { &[&["t"]] };
            for operands in operands {
                assert_same(&rig.ours(version, args, operands), &rig.gnu(args, operands), &what);
            }
        }
    }
    // Here links to directories are links.
    rig.shell("mkdir d; cd d; mkdir b c; touch a d; ln -s nowhere l");
    for args in [&["ls", "--group-directories-first"][..], &["ls", "-lrt", "--group-directories-first"]] {
        assert_same(&rig.ours("4.2", args, &["d"]), &rig.gnu(args, &["d"]), &format!("{args:?}"));
    }
    let raw = |said: Said| said.sorted();
    assert_same(&raw(rig.ours("4.2", &["ls", "-f"], &["t"])), &raw(rig.gnu(&["ls", "-f"], &["t"])), "-f");
    // With quotes, as on a terminal.
    for args in [&["ls", "-l"][..], &["ls", "-C", "-w", "90"], &["ls", "-1"]] {
        let ours = rig.ours("4.2", &[args, &["--quote"]].concat(), &["t"]);
        let gnu = rig.gnu(&[args, &["--quoting-style=shell-escape"]].concat(), &["t"]);
        assert_same(&ours, &gnu, &format!("{args:?} with quotes"));
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn ls_du_and_find_take_few_requests_for_a_tree() {
    let rig = Rig::new();
    rig.shell("mkdir t; cd t; mkdir -p d{0..39}/s{0..1}; for d in d*; do touch $d/f{0..49} $d/s0/g{0..24} $d/s1/h{0..24}; ln -s f0 $d/l; done");
    for (args, what, objects) in [
        (&["ls", "-lR", "--json"][..], "listed", 40 + 80 + 4000 + 40),
        (&["du", "--json"], "visited", 1 + 40 + 80 + 4000 + 40),
        (&["find", "--json"], "found", 1 + 40 + 80 + 4000 + 40),
    ] {
        let said = rig.ours("4.2", args, &["t"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let summary = said.summary();
        assert_eq!(summary[what], objects, "{summary}");
        let rpcs = summary["rpcs"].as_u64().expect("a number");
        assert!(rpcs <= 80, "{args:?}: {rpcs} RPCs for 4,000 files");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn stat_shows_what_gnu_stat_shows() {
    let rig = Rig::new();
    odd_tree(&rig, "t");
    let names = [
        "t",
        "t/five",
        "t/link",
        "t/ lead",
        "t/quote\"",
        "t/chr",
        "t/blk",
        "t/fifo",
        "t/.dot",
        "t/empty",
        "t/*",
        "t/nothing",
    ];
    rig.shell(
        "touch -d '1969-12-31 23:59:58.75 UTC' t/fifo; touch -d '1969-12-31 23:59:59.000000001 UTC' t/chr",
    );
    // A symbolic link that is read has another time of access: here it is read before.
    rig.shell("readlink t/link");
    for version in VERSIONS {
        // Version 3 has no times before 1970.
        let told = |name: &&str| version != "3" || !matches!(*name, "t/fifo" | "t/chr");
        let names: Vec<&str> = names.into_iter().filter(told).collect();
        let forms: &[&str] = &[
            "%a %A %b %B %f %F %g %G %h %i %n %N %o %s %t %T %u %U %X %Y %Z",
            "%x|%y|%z|%%|%-12s|%05s|%10.4A|%8i|%Hr,%Lr",
            "%.3X|%.Y|%9Y|%.9Z|%20.2Y|%-20.3X|%020.4Y|%.12Y|%+Y|% s|%+s|%-+9s|",
            "%#a|%#f|%06a|%#08f|%.6s|%8.6u|%-8h|%#o|%5A|%05n|%.2F|%#t",
        ];
        for form in forms {
            let args = ["stat", "-c", form];
            assert_same(
                &rig.ours(version, &args, &names),
                &rig.gnu(&args, &names),
                &format!("{version} {form}"),
            );
        }
        let printed = ["stat", "--printf", r#"%n\t%s\n\101\x41\e\a\"\\|\0|\q"#];
        assert_same(&rig.ours(version, &printed, &names), &rig.gnu(&printed, &names), version);
        // All but the device, and the birth, of which this tool knows nothing on each filesystem.
        let terse = |said: Said| {
            let without = |line: &str| {
                let mut fields: Vec<&str> = line.rsplitn(16, ' ').collect();
                fields.remove(9);
                fields.remove(1);
                fields.join(" ") + "\n"
            };
            Said { out: said.text().lines().map(without).collect::<String>().into_bytes(), ..said }
        };
        let args = ["stat", "-t"];
        assert_same(&terse(rig.ours(version, &args, &names)), &terse(rig.gnu(&args, &names)), version);
        // All but the device, which NFS does not tell, and the birth, which version 3 does not.
        let plain = |said: Said| {
            let lines = said
                .text()
                .lines()
                .map(|l| match l {
                    l if l.starts_with("Device") => l[l.find("Inode").expect("an inode")..].to_owned(),
                    l if l.starts_with(" Birth") && version == "3" => " Birth: -".to_owned(),
                    l => l.to_owned(),
                })
                .collect::<Vec<_>>()
                .join("\n");
            Said { out: lines.into_bytes(), ..said }
        };
        for args in [&["stat"][..], &["stat", "-L"]] {
            assert_same(
                &plain(rig.ours(version, args, &names)),
                &plain(rig.gnu(args, &names)),
                &format!("{version} {args:?}"),
            );
        }
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn du_adds_up_what_gnu_du_adds_up() {
    let rig = Rig::new();
    odd_tree(&rig, "t");
    for version in VERSIONS {
        let all: &[&[&str]] = &[
            &["du"],
            &["du", "-b"],
            &["du", "-s"],
            &["du", "-h"],
            &["du", "-a", "-d", "1"],
            &["du", "-d", "2", "-c"],
            &["du", "--apparent-size", "-s"],
            &["du", "-sh"],
            &["du", "-k"],
            &["du", "-hm"],
            &["du", "-mh", "-c"],
            &["du", "--si", "-c"],
            &["du", "-Sc"],
            &["du", "-Sah"],
            &["du", "--inodes"],
            &["du", "--inodes", "-sc"],
            &["du", "-lc"],
            &["du", "-0c"],
            &["du", "-x"],
            &["du", "-a", "--exclude=f*", "--exclude", "many/1?", "--exclude=deep"],
            &["du", "-t", "5k"],
            &["du", "-a", "--threshold=-4K"],
            &["du", "-s", "-d", "0"],
            &["du", "-s", "-a"],
            &["du", "-s", "-d", "1"],
            &["du", "-D"],
            &["du", "-aB512"],
            &["du", "-BM", "-c"],
            &["du", "-B", "KB"],
            &["du", "-hB1M"],
            &["du", "-Bk", "-m"],
            &["du", "-B", "3x"],
            &["du", "--time", "-ac"],
            &["du", "--time=ctime", "-S"],
        ];
        for args in some(version, all, 2).iter().copied() {
            for names in [&["t"][..], &["t/many", "t", "t/deep", "t/five", "t/hard1", "t/nothing", "t/todir"]]
            {
                let (ours, gnu) = (rig.ours(version, args, names), rig.gnu(args, names));
                let what = format!("{version} {args:?} {names:?}");
                // Which of a file's names counts depends on the order of a directory.
                let same = |said: &Said| {
                    Said { out: without_names_of(&rig, "t/five", said), ..said.clone() }.sorted()
                };
                let ours = Said { err: replaced(&ours.err, "landfast ", ""), ..ours };
                assert_same(&same(&ours), &same(&gnu), &what);
            }
        }
    }
}

/// Without the lines of a file's names: which one is there depends on the order in which they are met.
fn without_names_of(rig: &Rig, name: &str, said: &Said) -> Vec<u8> {
    use std::os::unix::fs::MetadataExt;
    let of = fs::metadata(rig.at(name)).expect("there").ino();
    let lines = said.out.split_inclusive(|b| *b == b'\n');
    let is = |line: &[u8]| {
        let path =
            line.splitn(2, |b| *b == b'\t').nth(1).and_then(|p| std::str::from_utf8(p.trim_ascii_end()).ok());
        path.is_some_and(|p| fs::symlink_metadata(p).is_ok_and(|m| m.ino() == of))
    };
    lines.filter(|line| !is(line)).flatten().copied().collect()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn find_finds_what_gnu_find_finds() {
    let rig = Rig::new();
    odd_tree(&rig, "t");
    let expressions = [
        "",
        "-print0",
        "-name f1*",
        "-iname F?1",
        "-type d",
        "-type f,l -name *i*",
        "-path */many/*2",
        "-size +1k -type f",
        "-size -2 -type f",
        "-size 5000c",
        "-mtime +90",
        "-mtime -1 -type f -name f29*",
        "-mmin -600 -type l",
        "-maxdepth 1",
        "-mindepth 3 -maxdepth 5",
        "-maxdepth 0",
        "-name many -prune -o -print",
        "( -name five -o -links 3 ) ! -type d",
        "-name five , -name hard1",
        "-not -name f* -type f",
        "-empty",
        "-empty -maxdepth 1",
        "-type d ! -empty",
        "-name many -prune , -empty",
        "-perm 644",
        "-perm -u+x,g=r -type d",
        "-perm /6000",
        "-perm -4000 -o -perm /1000",
        "-user root -group root -name f*",
        "-user 1234",
        "-nouser -nogroup",
        "-uid +100",
        "-gid -1 -type p,b,c",
        "-xdev -type l",
        "-newermt 2030-01-01",
        "-newermt 2001-02-03T04:05:06 ! -newermt @981169510",
        "-depth -name deep -prune -o -type d",
        "-depth -mindepth 1 -maxdepth 2 -empty",
        "-perm u",
        "-user nobody-is-called-so",
        "-group nobody-is-called-so",
    ];
    for version in VERSIONS {
        for expression in some(version, &expressions, 6) {
            let words: Vec<&str> = expression.split_whitespace().collect();
            let roots = ["t", "t/five", "t/nothing", "t/todir"];
            let ours = {
                let mut command = landfast();
                command.arg("find").args(roots.map(|n| rig.url(n, version))).args(&words);
                let said = said(&mut command);
                let (from, to) = (rig.shown("", version), path(&rig.at("")).to_owned());
                Said {
                    out: replaced(&said.out, &from, &to),
                    err: replaced(&said.err, &from, &to),
                    code: said.code,
                }
            };
            let gnu = said(Command::new("find").args(roots.map(|n| rig.at(n))).args(&words));
            let mut gnu = gnu.sorted();
            // In a UTF-8 locale this tool has other quotes.
            gnu.err = gnu.errors().replace(['‘', '’'], "'").into_bytes();
            assert_same(&ours.sorted(), &gnu, &format!("{version} {expression}"));
        }
    }
    // What is in a directory comes first.
    let deep = rig.ours("4.2", &["find", "-P"], &["t"]);
    let mut below = landfast();
    let depth = said(below.args(["find", &rig.url("t", "4.2"), "-depth", "-print0"]));
    let paths: Vec<&[u8]> = depth.out.split(|b| *b == 0).filter(|p| !p.is_empty()).collect();
    assert_eq!(paths.len(), deep.text().lines().count() - 1, "one name has a newline");
    for (n, path) in paths.iter().enumerate() {
        let dir = [path, &b"/"[..]].concat();
        assert!(!paths[n..].iter().any(|later| later.starts_with(&dir)), "{}", String::from_utf8_lossy(path));
    }
    let same = ["find", &rig.url("t", "4.2"), "-samefile", &rig.url("t/hard1", "4.2")];
    assert_eq!(said(landfast().args(same)).text().lines().count(), 3);
    let soon = said(landfast().args(["find", &rig.url("t", "4.2"), "-newermt", "soon"]));
    assert_eq!((soon.text(), soon.code), (String::new(), Some(1)), "{soon:?}");
    let newer = ["find", &rig.url("t", "4.2"), "-newer", &rig.url("t/.dot", "4.2"), "-name", "f29?"];
    let found = said(landfast().args(newer));
    assert_eq!((found.text().lines().count(), found.code), (10, Some(0)), "{found:?}");
    for wrong in ["-foo", "-name", "( -true", "-newer nfs://x"] {
        let words: Vec<&str> = wrong.split_whitespace().collect();
        let end = said(landfast().args(["find", &rig.url("t", "4.2")]).args(words));
        assert_eq!(end.code, Some(1), "{wrong}: {end:?}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn cat_prints_what_gnu_cat_prints() {
    let rig = Rig::new();
    odd_tree(&rig, "t");
    rig.shell("seq 2400000 > t/longer; head -c 16777217 t/longer > t/exact");
    for version in VERSIONS {
        let names = [
            "t/five",
            "t/many/f1",
            "t/longer",
            "t/nothing",
            "t/link",
            "t/many",
            "t/-dash",
            "t/exact",
            "t/sparse",
        ];
        let (ours, gnu) = (rig.ours(version, &["cat"], &names), rig.gnu(&["cat"], &names));
        assert!(ours.out == gnu.out, "{version}: {} and {} bytes", ours.out.len(), gnu.out.len());
        let lines = |said: &Said| {
            let mut lines: Vec<String> = said.errors().lines().map(str::to_owned).collect();
            lines.sort();
            (lines, said.code)
        };
        assert_eq!(lines(&ours), lines(&gnu), "{version}");
    }
    rig.shell("printf 'a\\n\\n\\n\\nb\\tc\\r\\n\\r' > t/lines; printf '\\n\\n\\351\\001 end' > t/more");
    for flags in ["-n", "-b", "-s", "-A", "-E", "-T", "-v", "-ebs", "-tn", "-u"] {
        let names = ["t/lines", "t/more", "t/nothing", "t/lines", "t/five"];
        let (ours, gnu) = (rig.ours("4.2", &["cat", flags], &names), rig.gnu(&["cat", flags], &names));
        assert_same(&ours, &gnu, flags);
    }
    rig.shell("mkdir s; for i in $(seq 1000); do echo $i > s/$i; done");
    let names: Vec<String> = (1..=1000).map(|n| format!("s/{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let said = rig.ours("4.2", &["cat", "--rpc-counts"], &names);
    assert_eq!(said.text().lines().count(), 1000);
    let rpcs = said.errors().split("s: ").nth(1).and_then(|t| t.split(' ').next()?.parse::<u64>().ok());
    assert!(rpcs.is_some_and(|n| n <= 90), "{said:?}");
}
