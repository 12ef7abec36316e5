//! NFS version 4: arguments and results of each operation (RFC 7531, RFC 5662, RFC 7863).

use super::scrub::{Scrub, sys};
use landfast_nfs::v4::OpNum;

pub(super) fn call(s: &mut Scrub<'_>) -> Option<()> {
    s.name()?;
    s.keep(4)?;
    s.array(|s| {
        let op = OpNum(s.word()?);
        arguments(op, s)
    })
}

pub(super) fn reply(s: &mut Scrub<'_>) -> Option<()> {
    s.keep(4)?;
    s.name()?;
    s.array(|s| {
        let op = OpNum(s.word()?);
        let status = s.word()?;
        results(op, status, s)
    })
}

fn arguments(op: OpNum, s: &mut Scrub<'_>) -> Option<()> {
    match op {
        OpNum::GETFH | OpNum::LOOKUPP | OpNum::PUTPUBFH | OpNum::PUTROOTFH | OpNum::READLINK => Some(()),
        OpNum::RESTOREFH | OpNum::SAVEFH | OpNum::ILLEGAL => Some(()),
        OpNum::ACCESS | OpNum::OPENATTR | OpNum::SECINFO_NO_NAME | OpNum::RECLAIM_COMPLETE => s.keep(4),
        OpNum::DELEGPURGE | OpNum::RENEW | OpNum::DESTROY_CLIENTID => s.fixed(8),
        OpNum::COMMIT => s.keep(12),
        OpNum::LISTXATTRS => {
            s.fixed(8)?;
            s.keep(4)
        }
        OpNum::DELEGRETURN | OpNum::FREE_STATEID => s.stateid(),
        OpNum::OFFLOAD_CANCEL | OpNum::OFFLOAD_STATUS => s.stateid(),
        OpNum::DESTROY_SESSION => s.fixed(16),
        OpNum::SETCLIENTID_CONFIRM => {
            s.fixed(8)?;
            s.fixed(8)
        }
        OpNum::CLOSE => {
            s.keep(4)?;
            s.stateid()
        }
        OpNum::OPEN_CONFIRM => {
            s.stateid()?;
            s.keep(4)
        }
        OpNum::BIND_CONN_TO_SESSION => {
            s.fixed(16)?;
            s.keep(8)
        }
        OpNum::GETDEVICELIST => {
            s.keep(8)?;
            s.fixed(8)?;
            s.fixed(8)
        }
        OpNum::OPEN_DOWNGRADE | OpNum::READ | OpNum::READ_PLUS | OpNum::SEEK => {
            s.stateid()?;
            s.keep(12)
        }
        OpNum::SEQUENCE => {
            s.fixed(16)?;
            s.keep(16)
        }
        OpNum::ALLOCATE | OpNum::DEALLOCATE => {
            s.stateid()?;
            s.keep(16)
        }
        OpNum::LOCKU => {
            s.keep(8)?;
            s.stateid()?;
            s.keep(16)
        }
        OpNum::LAYOUTGET => {
            s.keep(36)?;
            s.stateid()?;
            s.keep(4)
        }
        OpNum::CLONE => {
            s.stateid()?;
            s.stateid()?;
            s.keep(24)
        }
        OpNum::GETATTR => s.bitmap().map(drop),
        OpNum::NVERIFY | OpNum::VERIFY => attributes(s),
        OpNum::LINK | OpNum::LOOKUP | OpNum::REMOVE | OpNum::SECINFO => s.name(),
        OpNum::GETXATTR | OpNum::REMOVEXATTR => s.name(),
        OpNum::PUTFH => s.opaque(),
        OpNum::RENAME => {
            s.name()?;
            s.name()
        }
        OpNum::SET_SSV => {
            s.blank()?;
            s.blank()
        }
        OpNum::CREATE => {
            match s.word()? {
                3 | 4 => s.keep(8)?,
                5 => s.name()?,
                _ => {}
            }
            s.name()?;
            attributes(s)
        }
        OpNum::LOCK => {
            s.keep(24)?;
            if s.word()? == 0 {
                s.stateid()?;
                return s.keep(4);
            }
            s.keep(4)?;
            s.stateid()?;
            s.keep(4)?;
            owner(s)
        }
        OpNum::LOCKT => {
            s.keep(20)?;
            owner(s)
        }
        OpNum::RELEASE_LOCKOWNER => owner(s),
        OpNum::OPEN => open(s),
        OpNum::READDIR => {
            s.fixed(8)?;
            s.fixed(8)?;
            s.keep(8)?;
            s.bitmap().map(drop)
        }
        OpNum::SETATTR => {
            s.stateid()?;
            attributes(s)
        }
        OpNum::WRITE => {
            s.stateid()?;
            s.keep(12)?;
            s.blank()
        }
        OpNum::SETXATTR => {
            s.keep(4)?;
            s.name()?;
            s.blank()
        }
        OpNum::SETCLIENTID => {
            s.fixed(8)?;
            s.opaque()?;
            s.keep(4)?;
            s.name()?;
            s.name()?;
            s.keep(4)
        }
        OpNum::BACKCHANNEL_CTL => {
            s.keep(4)?;
            s.array(security)
        }
        OpNum::EXCHANGE_ID => {
            s.fixed(8)?;
            s.opaque()?;
            s.keep(4)?;
            protection_of_state(s)?;
            s.array(implementation)
        }
        OpNum::CREATE_SESSION => {
            s.fixed(8)?;
            s.keep(8)?;
            channel(s)?;
            channel(s)?;
            s.keep(4)?;
            s.array(security)
        }
        OpNum::TEST_STATEID => s.array(Scrub::stateid),
        OpNum::GET_DIR_DELEGATION => {
            s.keep(4)?;
            s.bitmap()?;
            s.zero(24)?;
            s.bitmap()?;
            s.bitmap().map(drop)
        }
        OpNum::GETDEVICEINFO => {
            s.fixed(16)?;
            s.keep(8)?;
            s.bitmap().map(drop)
        }
        OpNum::LAYOUTCOMMIT => {
            s.keep(20)?;
            s.stateid()?;
            s.optional(|s| s.keep(8))?;
            s.optional(|s| s.zero(12))?;
            s.keep(4)?;
            s.blank()
        }
        OpNum::LAYOUTRETURN => {
            s.keep(12)?;
            if s.word()? != 1 {
                return Some(());
            }
            s.keep(16)?;
            s.stateid()?;
            s.blank()
        }
        OpNum::WANT_DELEGATION => {
            s.keep(4)?;
            if s.word()? == 1 { s.keep(4) } else { Some(()) }
        }
        OpNum::COPY => {
            s.stateid()?;
            s.stateid()?;
            s.keep(32)?;
            s.array(location)
        }
        OpNum::COPY_NOTIFY => {
            s.stateid()?;
            location(s)
        }
        OpNum::IO_ADVISE => {
            s.stateid()?;
            s.keep(16)?;
            s.bitmap().map(drop)
        }
        OpNum::LAYOUTERROR => {
            s.keep(16)?;
            s.stateid()?;
            s.array(|s| {
                s.fixed(16)?;
                s.keep(8)
            })
        }
        OpNum::LAYOUTSTATS => {
            s.keep(16)?;
            s.stateid()?;
            s.keep(32)?;
            s.fixed(16)?;
            s.keep(4)?;
            s.blank()
        }
        OpNum::WRITE_SAME => {
            s.stateid()?;
            s.keep(48)?;
            s.blank()
        }
        _ => None,
    }
}

fn results(op: OpNum, status: u32, s: &mut Scrub<'_>) -> Option<()> {
    const DENIED: u32 = 10010;
    const CLID_INUSE: u32 = 10017;
    match (op, status) {
        (OpNum::SETATTR, _) => return s.bitmap().map(drop),
        (OpNum::LOCK | OpNum::LOCKT, DENIED) => {
            s.keep(20)?;
            return owner(s);
        }
        (OpNum::SETCLIENTID, CLID_INUSE) => {
            s.name()?;
            return s.name();
        }
        (_, 0) => {}
        _ => return Some(()),
    }
    match op {
        OpNum::PUTFH | OpNum::PUTROOTFH | OpNum::PUTPUBFH | OpNum::SAVEFH | OpNum::RESTOREFH => Some(()),
        OpNum::LOOKUP | OpNum::LOOKUPP | OpNum::VERIFY | OpNum::NVERIFY | OpNum::OPENATTR => Some(()),
        OpNum::RENEW | OpNum::RECLAIM_COMPLETE | OpNum::DELEGPURGE | OpNum::DELEGRETURN => Some(()),
        OpNum::DESTROY_SESSION | OpNum::DESTROY_CLIENTID | OpNum::FREE_STATEID => Some(()),
        OpNum::RELEASE_LOCKOWNER | OpNum::SETCLIENTID_CONFIRM | OpNum::BACKCHANNEL_CTL => Some(()),
        OpNum::ALLOCATE | OpNum::DEALLOCATE | OpNum::CLONE | OpNum::OFFLOAD_CANCEL => Some(()),
        OpNum::LOCKT | OpNum::LAYOUTERROR | OpNum::LAYOUTSTATS => Some(()),
        OpNum::GETFH => s.opaque(),
        OpNum::GETATTR => attributes(s),
        OpNum::ACCESS => s.keep(8),
        OpNum::CLOSE | OpNum::LOCK | OpNum::LOCKU => s.stateid(),
        OpNum::OPEN_CONFIRM | OpNum::OPEN_DOWNGRADE => s.stateid(),
        OpNum::COMMIT => s.fixed(8),
        OpNum::CREATE => {
            change(s)?;
            s.bitmap().map(drop)
        }
        OpNum::LINK | OpNum::REMOVE | OpNum::SETXATTR | OpNum::REMOVEXATTR => change(s),
        OpNum::RENAME => {
            change(s)?;
            change(s)
        }
        OpNum::OPEN => {
            s.stateid()?;
            change(s)?;
            s.keep(4)?;
            s.bitmap()?;
            delegation(s)
        }
        OpNum::READ => {
            s.keep(4)?;
            s.blank()
        }
        OpNum::READ_PLUS => {
            s.keep(4)?;
            s.array(|s| match s.word()? {
                0 => {
                    s.keep(8)?;
                    s.blank()
                }
                1 => s.keep(16),
                _ => None,
            })
        }
        OpNum::READDIR => {
            s.fixed(8)?;
            s.list(|s| {
                s.fixed(8)?;
                s.name()?;
                attributes(s)
            })?;
            s.keep(4)
        }
        OpNum::READLINK => s.name(),
        OpNum::SECINFO | OpNum::SECINFO_NO_NAME => s.array(|s| {
            if s.word()? == 6 {
                s.blank()?;
                s.keep(8)?;
            }
            Some(())
        }),
        OpNum::SETCLIENTID => {
            s.fixed(8)?;
            s.fixed(8)
        }
        OpNum::WRITE => {
            s.keep(8)?;
            s.fixed(8)
        }
        OpNum::SEQUENCE => {
            s.fixed(16)?;
            s.keep(20)
        }
        OpNum::CREATE_SESSION => {
            s.fixed(16)?;
            s.keep(8)?;
            channel(s)?;
            channel(s)
        }
        OpNum::EXCHANGE_ID => {
            s.fixed(8)?;
            s.keep(8)?;
            protection_of_state(s)?;
            s.keep(8)?;
            s.opaque()?;
            s.opaque()?;
            s.array(implementation)
        }
        OpNum::BIND_CONN_TO_SESSION => {
            s.fixed(16)?;
            s.keep(8)
        }
        OpNum::TEST_STATEID => s.array(|s| s.keep(4)),
        OpNum::GETXATTR => s.blank(),
        OpNum::LISTXATTRS => {
            s.fixed(8)?;
            s.array(Scrub::name)?;
            s.keep(4)
        }
        OpNum::SEEK => s.keep(12),
        OpNum::COPY => {
            s.array(Scrub::stateid)?;
            s.keep(12)?;
            s.fixed(8)?;
            s.keep(8)
        }
        OpNum::COPY_NOTIFY => {
            s.zero(12)?;
            s.stateid()?;
            s.array(location)
        }
        OpNum::OFFLOAD_STATUS => {
            s.keep(8)?;
            s.array(|s| s.keep(4))
        }
        OpNum::IO_ADVISE => s.bitmap().map(drop),
        _ => None,
    }
}

/// CB_COMPOUND (RFC 8881 section 20).
pub(super) fn callback(s: &mut Scrub<'_>) -> Option<()> {
    s.name()?;
    s.keep(8)?;
    s.array(|s| match s.word()? {
        3 => {
            s.opaque()?;
            s.bitmap().map(drop)
        }
        4 => {
            s.stateid()?;
            s.keep(4)?;
            s.opaque()
        }
        8 => {
            s.keep(4)?;
            s.bitmap().map(drop)
        }
        9 => Some(()),
        10 => s.keep(4),
        11 => {
            s.fixed(16)?;
            s.keep(16)?;
            s.array(|s| {
                s.fixed(16)?;
                s.array(|s| s.keep(8))
            })
        }
        13 => {
            s.opaque()?;
            owner(s)
        }
        _ => None,
    })
}

pub(super) fn callback_reply(s: &mut Scrub<'_>) -> Option<()> {
    s.keep(4)?;
    s.name()?;
    s.array(|s| match (s.word()?, s.word()?) {
        (3, 0) => attributes(s),
        (11, 0) => {
            s.fixed(16)?;
            s.keep(16)
        }
        (3..=14, _) => Some(()),
        _ => None,
    })
}

/// `fattr4`.
fn attributes(s: &mut Scrub<'_>) -> Option<()> {
    let set = s.bitmap()?;
    s.inside(|s| set.iter().try_for_each(|number| attribute(*number, s)))
}

/// One attribute. `None`: unknown, so what follows cannot be found.
fn attribute(number: u32, s: &mut Scrub<'_>) -> Option<()> {
    match number {
        // supported_attrs, suppattr_exclcreat
        0 | 75 => s.bitmap().map(drop),
        // type, fh_expire_type, booleans, lease_time, rdattr_error, error, aclsupport
        1 | 2 | 5..=7 | 9..=11 | 13..=18 | 25 | 26 | 34 | 46 | 65 | 76 => s.keep(4),
        // size, maxfilesize, maxread, maxwrite
        4 | 27 | 30 | 31 => s.keep(8),
        // maxlink, maxname, mode, numlinks
        28 | 29 | 33 | 35 => s.keep(4),
        // change, fileid, files, space, mounted_on_fileid
        3 | 20..=23 | 42..=45 | 55 => s.zero(8),
        // fsid
        8 => s.fixed(16),
        19 => s.opaque(),
        // owner, owner_group
        36 | 37 => s.name(),
        // rawdev
        41 => s.keep(8),
        // times
        47 | 49..=53 | 84 | 85 => s.zero(12),
        48 | 54 => {
            if s.word()? == 1 {
                s.zero(12)?;
            }
            Some(())
        }
        // quotas
        38..=40 => s.zero(8),
        // layout types, layout block size
        62 => s.array(|s| s.keep(4)),
        // mode and its mask
        74 => s.keep(8),
        // clone_blksize, space_freed, change_attr_type, sec_label, mode_umask, xattr_support
        77 | 79 | 82 => s.keep(4),
        78 => s.keep(8),
        81 => s.keep(8),
        _ => None,
    }
}

fn owner(s: &mut Scrub<'_>) -> Option<()> {
    s.fixed(8)?;
    s.opaque()
}

/// `change_info4`.
fn change(s: &mut Scrub<'_>) -> Option<()> {
    s.keep(4)?;
    s.zero(16)
}

fn open(s: &mut Scrub<'_>) -> Option<()> {
    s.keep(12)?;
    owner(s)?;
    if s.word()? != 0 {
        match s.word()? {
            2 => s.fixed(8)?,
            3 => {
                s.fixed(8)?;
                attributes(s)?;
            }
            _ => attributes(s)?,
        }
    }
    match s.word()? {
        0 | 3 => s.name(),
        1 => s.keep(4),
        2 => {
            s.stateid()?;
            s.name()
        }
        5 => s.stateid(),
        _ => Some(()),
    }
}

fn delegation(s: &mut Scrub<'_>) -> Option<()> {
    let kind = s.word()?;
    match kind {
        1 | 2 | 4 | 5 => {
            s.stateid()?;
            s.keep(if matches!(kind, 1 | 4) { 4 } else { 16 })?;
            s.keep(12)?;
            s.name()
        }
        3 => {
            if matches!(s.word()?, 1 | 2) {
                s.keep(4)?;
            }
            Some(())
        }
        _ => Some(()),
    }
}

/// State protection. Only SP4_NONE is parsed.
fn protection_of_state(s: &mut Scrub<'_>) -> Option<()> {
    match s.word()? {
        0 => Some(()),
        1 => {
            s.bitmap()?;
            s.bitmap().map(drop)
        }
        _ => None,
    }
}

fn implementation(s: &mut Scrub<'_>) -> Option<()> {
    s.name()?;
    s.name()?;
    s.zero(12)
}

fn channel(s: &mut Scrub<'_>) -> Option<()> {
    s.keep(24)?;
    s.array(|s| s.keep(4))
}

fn security(s: &mut Scrub<'_>) -> Option<()> {
    match s.word()? {
        1 => sys(s),
        6 => {
            s.keep(4)?;
            s.opaque()?;
            s.opaque()
        }
        _ => Some(()),
    }
}

fn location(s: &mut Scrub<'_>) -> Option<()> {
    let kind = s.word()?;
    s.name()?;
    if kind == 3 { s.name() } else { Some(()) }
}
