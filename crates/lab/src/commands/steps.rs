//! What is done on a server, and what must come of it.

use super::server::{Output, Server, differ};
use crate::error::{Context, Result};

type Mistakes = Vec<String>;

/// Does one thing, and says what is wrong with what came of it.
type Step = fn(&Server<'_>) -> Result<Mistakes>;

/// All of it, in this order: later steps need what earlier ones have made.
pub(super) const ALL: [(&str, Step); 12] = [
    ("mkdir", mkdir),
    ("untar", untar),
    ("find", find),
    ("stat", stat),
    ("ls", ls),
    ("du", du),
    ("cat", cat),
    ("cp", cp),
    ("tar", tar),
    ("diff-tree", diff_tree),
    ("sync-tree", sync_tree),
    ("rm", rm),
];

fn mkdir(at: &Server<'_>) -> Result<Mistakes> {
    let mut wrong = at.ours(&["mkdir", "-p"], &["a/b/c", "t"])?.expect(0);
    wrong.extend(at.ours(&["mkdir", "-p"], &["a/b"])?.expect(0));
    wrong.extend(at.ours(&["mkdir"], &["a/b"])?.expect(1));
    wrong.extend(at.ours(&["mkdir", "-m", "750"], &["a/d"])?.expect(0));
    let made = at.ours(&["stat", "-c", "%F %a"], &["a/d"])?;
    wrong.extend(differ("mkdir -m", &made.lines(b""), &[b"directory 750".to_vec()]));
    Ok(wrong)
}

fn untar(at: &Server<'_>) -> Result<Mistakes> {
    let archive = at.work.join("a.tar");
    let archive = archive.to_string_lossy();
    let made = at.local(&["tar", "--format=posix", "-cf", &archive, "."], &[])?;
    let mut wrong = made.expect(0);
    wrong.extend(at.ours(&["untar", "-p", &archive], &["t"])?.expect(0));
    wrong.extend(same(at, "t")?);
    Ok(wrong)
}

fn find(at: &Server<'_>) -> Result<Mistakes> {
    let mut wrong = Vec::new();
    let queries: [&[&str]; 4] = [
        &["-type", "f", "-name", "f1*"],
        &["-size", "+1k", "-type", "f"],
        &["-type", "l", "-o", "-size", "0"],
        &["-mindepth", "5", "-print"],
    ];
    for query in queries {
        let ours = found(at, "t", query)?;
        wrong.extend(ours.expect(0));
        let wanted = at.local(&[&["find", "."], query].concat(), &[])?;
        wrong.extend(differ(
            &format!("find {}", query.join(" ")),
            &ours.lines(at.shown("t").as_bytes()),
            &wanted.lines(b"."),
        ));
    }
    Ok(wrong)
}

fn stat(at: &Server<'_>) -> Result<Mistakes> {
    let mut wrong = at.ours(&["stat"], &["t/large", "t/link", "t/empty"])?.expect(0);
    wrong.extend(at.ours(&["stat"], &["t/missing"])?.expect(1));
    Ok(wrong)
}

fn ls(at: &Server<'_>) -> Result<Mistakes> {
    let ours = at.ours(&["ls", "-A1"], &["t/many0"])?;
    let mut wrong = ours.expect(0);
    wrong.extend(differ("ls -A1", &ours.lines(b""), &at.local(&["ls", "-A1"], &["many0"])?.lines(b"")));
    // Blocks and the sizes of directories are each filesystem's own, and so is how wide a column is.
    let long = |said: &Output| -> Vec<Vec<u8>> {
        let lines = said.lines(b"").into_iter().filter(|l| l.starts_with(b"-"));
        lines
            .map(|l| l.split(|b| *b == b' ').filter(|w| !w.is_empty()).collect::<Vec<_>>().join(&b' '))
            .collect()
    };
    let ours = at.ours(&["ls", "-lnR"], &["t"])?;
    wrong.extend(ours.expect(0));
    let wanted = at.local(&["ls", "-lnR"], &["."])?;
    wrong.extend(differ("ls -lnR", &long(&ours), &long(&wanted)));
    wrong.extend(at.ours(&["ls"], &["t/missing"])?.expect(2));
    Ok(wrong)
}

fn du(at: &Server<'_>) -> Result<Mistakes> {
    let ours = at.ours(&["du", "-ab"], &["t"])?;
    let mut wrong = ours.expect(0);
    // Directories are as large as their filesystem makes them.
    let of = |said: &Output, prefix: &str| -> Vec<Vec<u8>> {
        let lines = said.out.split(|b| *b == b'\n').filter_map(|l| {
            let at = l.iter().position(|b| *b == b'\t')?;
            let name = l[at + 1..].strip_prefix(prefix.as_bytes()).filter(|n| n.starts_with(b"/many"))?;
            name[1..].contains(&b'/').then(|| [&l[..at], name].concat())
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        lines
    };
    let wanted = at.local(&["du", "-ab", "."], &[])?;
    wrong.extend(differ("du -ab", &of(&ours, &at.shown("t")), &of(&wanted, ".")));
    wrong.extend(at.ours(&["du", "-sh"], &["t", "a"])?.expect(0));
    Ok(wrong)
}

fn cat(at: &Server<'_>) -> Result<Mistakes> {
    let mut wrong = at.ours(&["cat"], &["t/missing"])?.expect(1);
    wrong.extend(at.ours(&["cat"], &["t/empty"])?.expect(1));
    let ours = at.ours(&["cat"], &["t/large", "t/link", "t/empty file"])?;
    wrong.extend(ours.expect(0));
    let large = at.tree.join("large");
    let large = std::fs::read(&large).context(|| large.display().to_string())?;
    if ours.out != [&large[..], &large[..]].concat() {
        wrong.push("cat of a link: other contents".to_owned());
    }
    Ok(wrong)
}

fn cp(at: &Server<'_>) -> Result<Mistakes> {
    let tree = at.tree.to_string_lossy();
    let mut wrong = at.ours(&["cp", "-a", "-T", &tree], &["copy"])?.expect(0);
    wrong.extend(same(at, "copy")?);
    let copy = at.url("copy");
    wrong.extend(at.ours(&["cp", "-a", "-T", &copy], &["again"])?.expect(0));
    wrong.extend(same(at, "again")?);
    // Who has no extended attributes says so when they must be kept; some servers keep no times of symbolic links.
    let large = format!("{tree}/large");
    let kept = at.ours(&["cp", "--preserve=xattr", &large], &["kept"])?;
    let has_xattrs = !kept.err.contains("setting attributes for");
    wrong.extend(kept.expect(if has_xattrs { 0 } else { 1 }));
    let here = rustix::fs::getxattr(&*large, super::tree::XATTR, &mut [0; 8][..]).is_ok();
    for copy in ["copy", "again"].into_iter().filter(|_| here && has_xattrs) {
        let compare = ["diff-tree", "--quick", "--xattrs", "--ignore", "mtime", &tree];
        wrong.extend(at.ours(&compare, &[copy])?.expect(0));
    }
    let back = at.work.join("back");
    let back = back.to_string_lossy();
    wrong.extend(at.ours(&["cp", "-a", "-T", &copy, &back], &[])?.expect(0));
    wrong.extend(at.local(&["diff", "-r", "--no-dereference", "."], &[&back])?.expect(0));
    Ok(wrong)
}

fn tar(at: &Server<'_>) -> Result<Mistakes> {
    let archive = at.work.join("b.tar");
    let archive = archive.to_string_lossy();
    let mut wrong = at.ours(&["tar", "-cf", &archive, "-C", &at.url("t"), "."], &[])?.expect(0);
    // Types, modes, owners, times, sizes, links and contents.
    wrong.extend(at.local(&["tar", "-df", &archive], &[])?.expect(0));
    let names = |said: &Output| said.lines(b"./");
    let ours = at.local(&["tar", "--quoting-style=escape", "-tf", &archive], &[])?;
    let wanted =
        at.local(&["tar", "--quoting-style=escape", "-tf", &at.work.join("a.tar").to_string_lossy()], &[])?;
    wrong.extend(differ("names in the archive", &names(&ours), &names(&wanted)));
    Ok(wrong)
}

fn diff_tree(at: &Server<'_>) -> Result<Mistakes> {
    let tree = at.tree.to_string_lossy();
    // Some servers keep no times of symbolic links; those of all else were compared above.
    let mut wrong = at.ours(&["diff-tree", "--ignore", "mtime", &tree], &["t"])?.expect(0);
    wrong.extend(at.ours(&["rm"], &["t/many0/f7"])?.expect(0));
    let differs = at.ours(&["diff-tree", &tree], &["t"])?;
    wrong.extend(differs.expect(1));
    if !differs.out.windows(8).any(|w| w == b"many0/f7") {
        wrong.push("diff-tree does not name the file that is missing".to_owned());
    }
    Ok(wrong)
}

fn sync_tree(at: &Server<'_>) -> Result<Mistakes> {
    let tree = at.tree.to_string_lossy();
    // One file is missing since the last step; another one is nowhere here.
    let mut wrong = at.ours(&["mkdir"], &["t/stranger"])?.expect(0);
    wrong.extend(at.ours(&["sync-tree", "--delete", &tree], &["t"])?.expect(0));
    wrong.extend(same(at, "t")?);
    Ok(wrong)
}

fn rm(at: &Server<'_>) -> Result<Mistakes> {
    let mut wrong = at.ours(&["rm"], &["t/empty", "t/large"])?.expect(1);
    wrong.extend(at.ours(&["rm"], &["t/missing"])?.expect(1));
    wrong.extend(at.ours(&["rm", "-f"], &["t/missing"])?.expect(0));
    wrong.extend(at.ours(&["rm", "-r"], &[""])?.expect(0));
    wrong.extend(at.ours(&["stat"], &[""])?.expect(1));
    Ok(wrong)
}

/// Whether what is below `name` on the server is the tree: names, kinds, modes, owners, sizes, times, links, contents.
fn same(at: &Server<'_>, name: &str) -> Result<Mistakes> {
    let all = at.local(&["find", ".", "-print0"], &[])?;
    let ours = found(at, name, &["-print0"])?;
    let split = |out: &[u8], prefix: &str| -> Vec<Vec<u8>> {
        let names = out.split(|b| *b == 0).filter_map(|n| n.strip_prefix(prefix.as_bytes()));
        let mut names: Vec<_> = names.map(<[u8]>::to_vec).collect();
        names.sort();
        names
    };
    let wanted = split(&all.out, ".");
    let mut wrong = differ(&format!("names below {name}"), &split(&ours.out, &at.shown(name)), &wanted);
    let names: Vec<String> = wanted.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect();
    let (dirs, others): (Vec<&String>, Vec<&String>) = names
        .iter()
        .partition(|n| at.tree.join(n.trim_start_matches('/')).symlink_metadata().is_ok_and(|m| m.is_dir()));
    let (links, files): (Vec<&String>, Vec<&String>) =
        others.into_iter().partition(|n| at.tree.join(n.trim_start_matches('/')).is_symlink());
    for (what, list, format) in [
        ("directories", &dirs, "%F %a %u %g %Y"),
        ("links", &links, "%F %s %u %g %h"),
        ("files", &files, "%F %a %u %g %s %Y %h"),
    ] {
        let there: Vec<String> = list.iter().map(|n| format!("{name}{n}")).collect();
        let there: Vec<&str> = there.iter().map(String::as_str).collect();
        let here: Vec<String> = list.iter().map(|n| format!(".{n}")).collect();
        let here: Vec<&str> = here.iter().map(String::as_str).collect();
        let ours = at.ours(&["stat", "-c", format], &there)?;
        let wanted = at.local(&["stat", "-c", format, "--"], &here)?;
        wrong.extend(ours.expect(0));
        let lines = |said: &Output| -> Vec<Vec<u8>> {
            said.out.split(|b| *b == b'\n').zip(list).map(|(l, n)| [l, b" ", n.as_bytes()].concat()).collect()
        };
        wrong.extend(differ(&format!("stat of {what} below {name}"), &lines(&ours), &lines(&wanted)));
        if what == "files" {
            let ours = at.ours(&["cat"], &there)?;
            wrong.extend(ours.expect(0));
            if ours.out != at.local(&["cat", "--"], &here)?.out {
                wrong.push(format!("files below {name}: other contents"));
            }
        }
    }
    Ok(wrong)
}

/// `find` with options behind its directory.
fn found(at: &Server<'_>, name: &str, query: &[&str]) -> Result<Output> {
    let url = at.url(name);
    at.ours(&[&["find", &url], query].concat(), &[])
}
