//! The MOUNT protocol, version 3 (RFC 1813 section 5), on the same port as NFS.
//!
//! - MNT finds an export by its path or by its name in the pseudo root, and directories below it, as the superuser sees
//!   them: a handle alone gives no rights. So it is answered whatever the call's flavor, with the flavors that the
//!   export allows this client.
//! - EXPORT lists the exports whose rules name the caller, each with the names by which they do.
//! - DUMP lists what the caller itself says it has mounted: bounded, and forgotten when the server stops.
//!
//! Nobody is told what others use. A stranger gets two empty lists, and `ACCES` for every MNT. (Linux' mountd tells
//! everybody everything; but clients use either list only for what they may mount.)

use crate::admission;
use crate::exports::caller::Admission;
use crate::exports::rules::ClientSpec;
use crate::exports::{Caller, Export, Exports};
use crate::limits;
use crate::shared::Shared;
use crate::state::delegations::Touch;
use crate::state::notes::Stamped;
use crate::touches::Touching;
use bytes::Bytes;
use landfast_nfs::mount::{ExportEntry, MntRes, MountEntry, MountStat, Mounted, NAME_MAX, PATH_MAX, proc};
use landfast_nfs::v3::types::List;
use landfast_nfs::v3::{FHSIZE, FileHandle};
use landfast_rpc::auth::{AUTH_NONE, AUTH_SYS};
use landfast_rpc::conn::{CallHeader, ConnInfo, Response};
use landfast_volume::{Cred, Error, Kind, Node};
use landfast_xdr::{Decode, Encode};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// Who has mounted what, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Mutex<VecDeque<MountEntry>>);

impl Mounts {
    fn add(&self, row: MountEntry) {
        let mut rows = self.0.lock();
        rows.retain(|r| *r != row);
        if rows.len() >= limits::MOUNTS_MAX {
            rows.pop_front();
        }
        rows.push_back(row);
    }

    /// Takes away a row, or all of a host's.
    fn remove(&self, host: &Bytes, directory: Option<&Bytes>) {
        self.0.lock().retain(|r| r.host != *host || directory.is_some_and(|d| r.directory != *d));
    }

    fn rows(&self, host: &Bytes) -> List<MountEntry> {
        List(self.0.lock().iter().filter(|r| r.host == *host).cloned().collect())
    }
}

impl Mounts {
    pub(crate) async fn call(
        &self,
        sh: &Shared,
        conn: &Arc<ConnInfo>,
        header: CallHeader,
        body: Bytes,
    ) -> Response {
        let CallHeader { cred, mut turn, .. } = header;
        let caller = turn.before(pin!(sh.caller_as_host(conn.peer(), cred))).await;
        // The lists are long at worst: names and paths of so many hosts.
        let lists = matches!(header.proc, proc::DUMP | proc::EXPORT);
        let room =
            turn.before(pin!(conn.room(if lists { limits::RESPONSE_BYTES_MAX as usize } else { 0 }))).await;
        let host = Bytes::from(caller.addr.to_string());
        let reply = match header.proc {
            proc::NULL => nothing(body, |()| ()),
            proc::MNT => match Bytes::from_bytes(body) {
                Ok(path) => {
                    let res = turn.before(pin!(self.mnt(sh, &caller, &host, path))).await;
                    let status = if let MntRes::Fail(status) = &res { status.0 } else { 0 };
                    sh.counters.mount(proc::MNT, status);
                    Ok(res.to_bytes())
                }
                Err(e) => Err(e),
            },
            proc::DUMP => nothing(body, |()| self.rows(&host)),
            proc::UMNT => Bytes::from_bytes(body).map(|path| {
                self.remove(&host, Some(&path));
                Bytes::new()
            }),
            proc::UMNTALL => nothing(body, |()| self.remove(&host, None)),
            proc::EXPORT => nothing(body, |()| exported(&sh.exports(), &caller)),
            _ => return Response::ProcUnavail,
        };
        if header.proc != proc::MNT && reply.is_ok() {
            sh.counters.mount(header.proc, 0);
        }
        reply.map_or(Response::GarbageArgs, Response::Success).in_room(room)
    }

    async fn mnt(&self, sh: &Shared, caller: &Caller, host: &Bytes, path: Bytes) -> MntRes {
        match find_in_time(sh, caller, &path).await {
            Ok((node, auth_flavors)) => {
                // The row outlives the buffer that the path was received in.
                let directory = Bytes::copy_from_slice(&path);
                self.add(MountEntry { host: host.clone(), directory });
                MntRes::Ok(Mounted { handle: FileHandle(node.fh()), auth_flavors })
            }
            Err(status) => MntRes::Fail(status),
        }
    }
}

fn nothing<T: Encode>(body: Bytes, act: impl FnOnce(()) -> T) -> Result<Bytes, landfast_xdr::Error> {
    <()>::from_bytes(body).map(|()| act(()).to_bytes())
}

/// Why a path leads nowhere.
enum Failed {
    As(MountStat),
    /// A client has a write delegation of a directory on the way. It is recalled.
    Delegated,
    /// Clients are gone that had one, and the log has to know that.
    Gone(Vec<Stamped>),
}

impl From<MountStat> for Failed {
    fn from(status: MountStat) -> Failed {
        Failed::As(status)
    }
}

/// [`find`], which waits for delegations that are in the way. MOUNT has no status for "try again later".
async fn find_in_time(sh: &Shared, caller: &Caller, path: &[u8]) -> Result<(Node, Vec<u32>), MountStat> {
    let until = Instant::now() + limits::MNT_RECALL_WAIT;
    loop {
        let mut ended = pin!(sh.delegation_ended().notified());
        ended.as_mut().enable();
        match find(sh, caller, path) {
            Ok(found) => return Ok(found),
            Err(Failed::As(status)) => return Err(status),
            Err(Failed::Delegated) => {
                timeout_at(until, ended).await.map_err(|_| MountStat::SERVERFAULT)?;
            }
            Err(Failed::Gone(notes)) => {
                if !Box::pin(sh.write_down(notes)).await {
                    return Err(MountStat::SERVERFAULT);
                }
            }
        }
    }
}

/// The directory of a path, of the export whose path is the longest beginning of it; and the flavors that are taken there.
fn find(sh: &Shared, caller: &Caller, path: &[u8]) -> Result<(Node, Vec<u32>), Failed> {
    let exports = sh.exports();
    if path.len() > PATH_MAX {
        return Err(MountStat::NAMETOOLONG.into());
    }
    if path.first() != Some(&b'/') {
        return Err(MountStat::NOENT.into());
    }
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
    let (export, below) = (0..=parts.len())
        .rev()
        .find_map(|n| {
            let (of_export, below) = parts.split_at(n);
            let name = [&b"/"[..], &of_export.join(&b"/"[..])].concat();
            let found = match exports.by_name(&name) {
                Some(export) => Ok(export),
                None => Err(exports.down_by_name(&name)?),
            };
            Some((found, below))
        })
        .ok_or_else(|| {
            match admission::admit(&exports, caller.addr, caller.port, caller.names.as_deref()) {
                Admission::Taken => MountStat::NOENT,
                // A stranger does not hear what exports are called.
                Admission::NotYet | Admission::Refused(_) => MountStat::ACCES,
            }
        })?;
    let rules = export.map_or_else(|down| &down.of.rules, |export| &export.rules);
    let admission = rules.admits(caller.addr, caller.port, caller.names.as_deref());
    if let (Ok(export), Admission::Refused(_)) = (export, admission) {
        sh.refused_clients.log_export(caller, export, true);
    }
    if admission != Admission::Taken {
        return Err(MountStat::ACCES.into());
    }
    // RFC 1813 section 5.1.5 has no status for what will be there later.
    let export = export.map_err(|_| MountStat::SERVERFAULT)?;
    let (sys, none) = export.flavors(caller);
    let flavors: Vec<u32> =
        [sys.then_some(AUTH_SYS), none.then_some(AUTH_NONE)].into_iter().flatten().collect();
    let mut node = export.root.clone();
    for name in below {
        let looking = look_into(sh, &exports, export, &node)?;
        node = export.volume.lookup(&Cred::root(), &node, name).map_err(status)?;
        drop(looking);
    }
    match node.kind() {
        Kind::Dir if node.fh().len() <= FHSIZE => Ok((node, flavors)),
        Kind::Dir => Err(MountStat::SERVERFAULT.into()),
        _ => Err(MountStat::NOTDIR.into()),
    }
}

/// Announces that a name is looked up in the directory, and makes sure that no delegation is in the way.
fn look_into(sh: &Shared, exports: &Exports, export: &Export, dir: &Node) -> Result<Touching, Failed> {
    let touching = sh.touches.begin_as(Kind::Dir, Touch::Looks, dir.wire());
    if export.features.write_delegations {
        sh.looks_into(dir.wire(), None);
    }
    if !sh.touches.any_in_the_way(Kind::Dir, Touch::Looks) {
        return Ok(touching);
    }
    let (clear, gone) = {
        let mut st = sh.state();
        (st.clear_delegations(sh.now(), dir.wire(), None, Touch::Looks), st.removals.of_file(dir.wire()))
    };
    if !clear {
        return Err(Failed::Delegated);
    }
    let gone = exports.relied_on(gone);
    if gone.is_empty() { Ok(touching) } else { Err(Failed::Gone(gone)) }
}

fn status(e: Error) -> MountStat {
    match e {
        // A symbolic link is for the client to follow, which sees where it leads.
        Error::NotDir | Error::Symlink => MountStat::NOTDIR,
        Error::NoEnt | Error::Stale | Error::NameDots => MountStat::NOENT,
        Error::NameTooLong => MountStat::NAMETOOLONG,
        Error::Access | Error::Perm | Error::Mounted => MountStat::ACCES,
        Error::NameChar => MountStat::INVAL,
        _ => MountStat::IO,
    }
}

/// The path by which an export is told to clients.
fn shown_path(export: &Export) -> Bytes {
    use std::os::unix::ffi::OsStrExt;
    if export.name.is_empty() {
        return Bytes::copy_from_slice(export.path.as_os_str().as_bytes());
    }
    Bytes::from([&b"/"[..], &export.name.join(&b"/"[..])].concat())
}

/// The exports whose rules name the caller, from whichever port: `showmount` is nobody's in particular.
fn exported(exports: &Exports, caller: &Caller) -> List<ExportEntry> {
    let entry = |e: &Arc<Export>| {
        let by = e.rules.matching_clients(caller.addr, caller.names.as_deref());
        (!by.is_empty()).then(|| ExportEntry { directory: shown_path(e), groups: List(groups(by)) })
    };
    List(exports.iter().filter_map(entry).collect())
}

/// Clients as exports(5) writes them, each once. What is longer than the protocol allows is left out: clients would not read any
/// of the list.
fn groups<'a>(clients: impl IntoIterator<Item = &'a ClientSpec>) -> Vec<Bytes> {
    let mut seen = HashSet::new();
    clients
        .into_iter()
        .map(|client| Bytes::from(client.to_string()))
        .filter(|name| name.len() <= NAME_MAX && seen.insert(name.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(host: &str, directory: &str) -> MountEntry {
        let bytes = |s: &str| Bytes::copy_from_slice(s.as_bytes());
        MountEntry { host: bytes(host), directory: bytes(directory) }
    }

    #[test]
    fn rfc1813_5_2_the_table_of_mounts() {
        let mounts = Mounts::default();
        for r in [row("a", "/x"), row("a", "/y"), row("b", "/x"), row("a", "/x")] {
            mounts.add(r);
        }
        let of = |host: &'static str| mounts.rows(&Bytes::from_static(host.as_bytes())).0;
        assert_eq!(of("a"), [row("a", "/y"), row("a", "/x")]);
        assert_eq!(of("b"), [row("b", "/x")]);
        mounts.remove(&row("a", "/x").host, Some(&row("a", "/x").directory));
        assert_eq!(of("a"), [row("a", "/y")]);
        mounts.remove(&row("a", "/y").host, None);
        assert_eq!((of("a"), of("b")), (vec![], vec![row("b", "/x")]));
    }

    #[test]
    fn the_oldest_mounts_go_at_the_limit() {
        let mounts = Mounts::default();
        for n in 0..limits::MOUNTS_MAX + 3 {
            mounts.add(row("host", &n.to_string()));
        }
        let rows = mounts.rows(&Bytes::from_static(b"host")).0;
        assert_eq!((rows.len(), &rows[0]), (limits::MOUNTS_MAX, &row("host", "3")));
    }
}
