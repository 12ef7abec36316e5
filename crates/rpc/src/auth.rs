//! Authentication flavours: AUTH_NONE (RFC 5531 section 10.1) and AUTH_SYS (appendix A).

use std::sync::Arc;

use landfast_xdr::{BytesMut, Decode, Encode, Error, Reader};

use crate::limits::{AUTH_SYS_GIDS_MAX, MACHINE_NAME_MAX};
use crate::message::{AuthStat, OpaqueAuth};

pub const AUTH_NONE: u32 = 0;
pub const AUTH_SYS: u32 = 1;

/// The caller as AUTH_SYS states it (RFC 5531 appendix A); nothing of it is proven.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthSys {
    pub stamp: u32,
    /// The caller's host name: at most 255 bytes, encoding unknown.
    pub machine_name: Vec<u8>,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups, at most 16.
    pub gids: Vec<u32>,
}

impl Encode for AuthSys {
    /// Cuts the name and the group list to their limits.
    fn encode(&self, out: &mut BytesMut) {
        self.stamp.encode(out);
        let name = &self.machine_name[..self.machine_name.len().min(MACHINE_NAME_MAX)];
        landfast_xdr::put_opaque(name, out);
        self.uid.encode(out);
        self.gid.encode(out);
        let gids = &self.gids[..self.gids.len().min(AUTH_SYS_GIDS_MAX)];
        (gids.len() as u32).encode(out);
        gids.iter().for_each(|g| g.encode(out));
    }
}

impl Decode for AuthSys {
    fn decode(r: &mut Reader) -> Result<Self, Error> {
        let stamp = r.u32()?;
        let machine_name = r.opaque(MACHINE_NAME_MAX)?.to_vec();
        let (uid, gid) = (r.u32()?, r.u32()?);
        let len = r.u32()? as usize;
        if len > AUTH_SYS_GIDS_MAX {
            return Err(Error::TooLong { len, max: AUTH_SYS_GIDS_MAX });
        }
        let gids = (0..len).map(|_| r.u32()).collect::<Result<_, _>>()?;
        Ok(AuthSys { stamp, machine_name, uid, gid, gids })
    }
}

/// The caller of a call. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    None,
    Sys(Arc<AuthSys>),
}

impl Credential {
    /// Reads the credential of a call. The error is the status of the reply's AUTH_ERROR: AUTH_BADCRED for a flavour
    /// that is not served or a body that does not decode.
    pub fn from_opaque(auth: &OpaqueAuth) -> Result<Self, AuthStat> {
        match auth.flavor {
            AUTH_NONE => Ok(Credential::None),
            AUTH_SYS => AuthSys::from_bytes(auth.body.clone())
                .map(|a| Credential::Sys(Arc::new(a)))
                .map_err(|_| AuthStat::BADCRED),
            _ => Err(AuthStat::BADCRED),
        }
    }

    pub fn to_opaque(&self) -> OpaqueAuth {
        match self {
            Credential::None => OpaqueAuth::NONE,
            Credential::Sys(sys) => OpaqueAuth { flavor: AUTH_SYS, body: sys.to_bytes() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfast_xdr::Bytes;
    use proptest::prelude::*;

    fn sys(name: usize, gids: u32) -> AuthSys {
        AuthSys { stamp: 7, machine_name: vec![b'm'; name], uid: 1, gid: 2, gids: (0..gids).collect() }
    }

    fn raw(name: usize, gids: u32) -> Bytes {
        let mut out = BytesMut::new();
        7u32.encode(&mut out);
        landfast_xdr::put_opaque(&vec![b'm'; name], &mut out);
        (1u32).encode(&mut out);
        (2u32).encode(&mut out);
        gids.encode(&mut out);
        (0..gids).for_each(|g| g.encode(&mut out));
        out.freeze()
    }

    #[test]
    fn limits_of_appendix_a() {
        assert_eq!(AuthSys::from_bytes(raw(255, 16)).unwrap(), sys(255, 16));
        assert!(AuthSys::from_bytes(raw(256, 0)).is_err());
        assert!(AuthSys::from_bytes(raw(0, 17)).is_err());
        // Too long on the way out is cut, never sent.
        assert_eq!(AuthSys::from_bytes(sys(300, 20).to_bytes()).unwrap(), sys(255, 16));
    }

    #[test]
    fn credentials_that_are_not_served() {
        let gss = OpaqueAuth { flavor: 6, body: Bytes::new() };
        assert_eq!(Credential::from_opaque(&gss), Err(AuthStat::BADCRED));
        let cut = OpaqueAuth { flavor: AUTH_SYS, body: raw(8, 3).slice(..20) };
        assert_eq!(Credential::from_opaque(&cut), Err(AuthStat::BADCRED));
        let left_over = [&raw(8, 3)[..], &[0; 4]].concat();
        let long = OpaqueAuth { flavor: AUTH_SYS, body: left_over.into() };
        assert_eq!(Credential::from_opaque(&long), Err(AuthStat::BADCRED));
    }

    proptest! {
        #[test]
        fn round_trip(stamp: u32, name in prop::collection::vec(any::<u8>(), 0..256), uid: u32, gid: u32,
                      gids in prop::collection::vec(any::<u32>(), 0..17)) {
            let a = Credential::Sys(Arc::new(AuthSys { stamp, machine_name: name, uid, gid, gids }));
            prop_assert_eq!(Credential::from_opaque(&a.to_opaque()), Ok(a));
        }

        #[test]
        fn any_bytes_decode_or_fail(body in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = Credential::from_opaque(&OpaqueAuth { flavor: AUTH_SYS, body: body.into() });
        }
    }
}
