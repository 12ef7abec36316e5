//! `docs/protocol.md`, made from the tables that the server itself goes by. The test fails when the file says anything else;
//! `cargo xtask docs` writes it anew.

use crate::attr::{self, Purpose};
use crate::v4::matrix::{self, Does, Place};
use landfast_nfs::v4::{AttrValues, Bitmap};
use std::fmt::Write;
use std::path::PathBuf;

/// Set to write the file instead of comparing it.
const WRITE: &str = "LANDFAST_WRITE_DOCS";

const HEAD: &str = "\
# The protocol as it is served

What clients can ask of the server, version by version. This file is made from the tables that the server itself goes by
(`crates/server/src/v4/matrix.rs`, `crates/server/src/attr.rs`): `cargo xtask docs` writes it, and a test fails while it says
anything else.

Each version, NLM and UDP can be turned off ([`protocols`](exports.md#at-the-top)): a version of NFS that is not served is
`PROG_MISMATCH`, a minor version `NFS4ERR_MINOR_VERS_MISMATCH`, another protocol `PROG_UNAVAIL`. Who may call what: for whom
EXCHANGE_ID to DESTROY_CLIENTID and NFSv4.0's client IDs are is in
[the internals](internals/nfsv4-state.md#which-host-a-client-is-identityrs-rfc-8881-sections-24-21083); addresses that no
[export names](exports.md#a-rule-for-clients) get NULL and MOUNT's refusal only.

";

const DELEGATIONS: &str = "\
## Delegations

An export gives them where its option [`delegations`](exports.md#delegations) says so, to clients of NFSv4.1 and 4.2. In NFSv4.0 there are none: the caller of a
SETATTR without an open cannot be told from others there, so Linux returns a delegation before each change of mode or owner, which costs more than it saves.
RFC 9754 leaves one thing to the server: a time that the holder sets and that lies before the file's own may be ignored. Here it is applied, since a program has
chosen it (`tar`, `cp -p`); one in the future becomes now. A later access time that comes alone is left to the file system, which would advance the change time with it: section 8.2
forbids that. WANT_DELEGATION and DELEGPURGE are not served, nor are claims by a delegation of a former client: no delegation
outlasts its client's restart. The holder of a directory delegation is told of no change (CB_NOTIFY): each by another client recalls it.

Callbacks that the server sends: CB_NULL, CB_SEQUENCE, CB_GETATTR, CB_RECALL, CB_RECALL_ANY (to clients that have so many delegations that there is hardly room for more), CB_OFFLOAD. CB_GETATTR asks the holder of a write delegation for change and size, and for
time_deleg_access and time_deleg_modify where it answers for the times, when another client asks for attributes that a writer changes (RFC 8881 section 10.4.3). If the holder has
more than the server, the file gets a new modify time and with it a new change attribute, and the other is told its size. The holder of a read delegation is not asked, though RFC 9754 section 5
would have it asked for the access time: Linux answers only for files that it may write.

";

const UNLINKED: &str = "\
## Files that are removed while they are open

In NFSv4.1 and 4.2, on an export with a log, such a file outlasts a restart of the server until it is closed, whoever removes its last name or renames another file over it. `OPEN4_RESULT_PRESERVE_UNLINKED` says so
to an OPEN that makes the file or changes something, as that waits for the log anyhow, and to further OPENs of the same owner. Where a full disk has no space to keep it, REMOVE and RENAME of such a file are `NFS4ERR_FILE_OPEN`. Until it is closed GETATTR says that it has no links, and LINK of it is `NFS4ERR_STALE`.
[The internals](internals/nfsv4-state.md#files-that-are-removed-while-they-are-open-preservedrs-unlinkedrs-unlinkedrs-rfc-8881-section-1816) say what else is kept so, and the [limits](limits.md) how many.

";

const OPERATIONS: &str = "\
## Operations of NFSv4

| mark | the server |
|---|---|
| yes | serves it |
| no | answers `NFS4ERR_NOTSUPP`; SET_SSV `NFS4ERR_INVAL`, since no client has SP4_SSV here |
| - | answers `NFS4ERR_OP_ILLEGAL`: the minor version does not have it |

*alone*: it may be the only operation of a COMPOUND without SEQUENCE (NFSv4.1 and 4.2). *log*: it changes the tree, so its
reply waits until the change is on stable storage.

";

const ATTRIBUTES: &str = "\
## Attributes of NFSv4

| mark | meaning |
|---|---|
| r | GETATTR, READDIR, VERIFY and NVERIFY |
| s | SETATTR, CREATE and OPEN |
| c | CREATE and OPEN only |
| x | OPEN with EXCLUSIVE4_1 as well |
| h | SETATTR by the holder of a delegation, where an export has `delegations = \"times\"`; elsewhere as - |
| - | not supported: left out of a reply, `NFS4ERR_ATTRNOTSUPP` when it is to be set or compared |

An attribute that is not in this table is not supported.

";

fn markdown() -> String {
    let minors: Vec<u32> =
        (0..=2).filter(|m| matrix::OPS.iter().any(|s| matrix::find(s.op, *m).is_some())).collect();
    let columns: String = minors.iter().map(|m| format!(" 4.{m} |")).collect();
    let rule: String = minors.iter().map(|_| "---|").collect();
    let mut out = HEAD.to_owned() + DELEGATIONS + UNLINKED + OPERATIONS;
    let _ = writeln!(out, "| operation | number |{columns} alone | log |\n|---|---|{rule}---|---|");
    for spec in matrix::OPS {
        let _ = write!(out, "| {} | {} |", spec.op.name().unwrap_or("?"), spec.op.0);
        for minor in &minors {
            let mark = match matrix::find(spec.op, *minor) {
                None => "-",
                Some(s) if s.does == Does::Unsupported || *minor > s.last || *minor < s.served_since => "no",
                Some(_) => "yes",
            };
            let _ = write!(out, " {mark} |");
        }
        let alone = spec.last > 0 && matches!(spec.place, Place::Alone | Place::InSessionOrAlone);
        let mark = |yes| if yes { "yes" } else { "" };
        let _ = writeln!(out, " {} | {} |", mark(alone), mark(spec.does == Does::Modifies));
    }
    out += "\n";
    out += ATTRIBUTES;
    let _ = writeln!(out, "| attribute | number |{columns}\n|---|---|{rule}");
    for number in AttrValues::KNOWN.iter() {
        let marks: Vec<String> = minors.iter().map(|m| attribute_marks(number, *m)).collect();
        if marks.iter().any(|m| m != "-") {
            let name = AttrValues::name(number).unwrap_or("?");
            let _ = writeln!(out, "| {name} | {number} | {} |", marks.join(" | "));
        }
    }
    out
}

fn attribute_marks(number: u32, minor: u32) -> String {
    let one = Bitmap::of(&[number]);
    if !attr::supported(minor).has(number) {
        let of_holders = minor >= 2 && attr::settable(minor, Purpose::SetByHolder).has(number);
        return if of_holders { "h" } else { "-" }.to_owned();
    }
    let readable = attr::readable(&one, minor).is_ok();
    let set = attr::settable(minor, Purpose::Set).has(number);
    let create = attr::settable(minor, Purpose::Create).has(number);
    let marks = [
        ("r", readable),
        ("s", set),
        ("c", create && !set),
        ("x", attr::settable(minor, Purpose::Exclusive).has(number)),
    ];
    marks.iter().filter(|(_, on)| *on).map(|(m, _)| *m).collect()
}

#[test]
fn docs_protocol_md_says_what_the_tables_say() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let wanted = markdown();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &wanted).expect("the file can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/protocol.md is not what the tables say: run `cargo xtask docs`");
}
