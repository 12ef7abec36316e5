//! FSSTAT, FSINFO, PATHCONF (RFC 1813 sections 3.3.18 to 3.3.20).

use super::context::Context;
use super::errors::status;
use crate::attr::FILE_SIZE_MAX;
use crate::limits;
use landfast_nfs::v3::res::{FsinfoOk, FsinfoRes, FsstatOk, FsstatRes, PathconfOk, PathconfRes};
use landfast_nfs::v3::{FileHandle, Time, fsf};

/// What transfers are best a multiple of, bytes.
const BLOCK: u32 = 4096;

impl Context<'_> {
    pub(super) fn fsstat(&mut self, root: &FileHandle) -> FsstatRes {
        self.reading(root, |ctx, obj| {
            let s = obj.volume().statfs().map_err(status)?;
            let room = ctx.sh.space.of_user(ctx.sh.now(), obj.volume(), obj.cred(), None).map_err(status)?;
            Ok(FsstatOk {
                attrs: ctx.attrs(obj),
                tbytes: s.total_bytes,
                fbytes: s.free_bytes,
                abytes: s.avail_bytes.min(room.bytes),
                tfiles: s.total_files,
                ffiles: s.free_files,
                afiles: s.free_files.min(room.files),
                invarsec: 0,
            })
        })
    }

    pub(super) fn fsinfo(&mut self, root: &FileHandle) -> FsinfoRes {
        let io = limits::V3_IO_BYTES_MAX;
        self.reading(root, |ctx, obj| {
            Ok(FsinfoOk {
                attrs: ctx.attrs(obj),
                rtmax: io,
                rtpref: io,
                rtmult: BLOCK,
                wtmax: io,
                wtpref: io,
                wtmult: BLOCK,
                dtpref: limits::V3_READDIR_PREFERRED,
                maxfilesize: FILE_SIZE_MAX,
                time_delta: Time { seconds: 0, nseconds: 1 },
                properties: fsf::LINK | fsf::SYMLINK | fsf::HOMOGENEOUS | fsf::CANSETTIME,
            })
        })
    }

    pub(super) fn pathconf(&mut self, object: &FileHandle) -> PathconfRes {
        self.reading(object, |ctx, obj| {
            let s = obj.volume().statfs().map_err(status)?;
            Ok(PathconfOk {
                attrs: ctx.attrs(obj),
                linkmax: limits::V3_LINKS_MAX,
                name_max: s.name_max,
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: false,
                case_preserving: true,
            })
        })
    }
}
