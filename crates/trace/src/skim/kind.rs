//! What must be known of a call to read its reply.

use super::program::Program;

/// How RPCSEC_GSS protects the arguments of a call (RFC 2203 section 5.3.1), or that the call asks for TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protection {
    #[default]
    None,
    /// Signed, but readable.
    Integrity,
    Privacy,
    /// Probe before RPC over TLS (RFC 9289 section 4.1).
    TlsProbe,
}

/// What must be known of a call to read its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kind {
    pub program: Program,
    pub version: u32,
    pub procedure: u32,
    /// Whether arguments and results are readable.
    pub protection: Protection,
    /// Whether the results contain the handle of the object that was found or created.
    pub gives_handle: bool,
    /// For a listing: the bits that ACCESS asks about. 0: no ACCESS, or several with different bits.
    pub checks: u16,
}

impl Kind {
    pub fn is_compound(&self) -> bool {
        self.program == Program::Nfs && self.version == 4 && self.procedure == 1
    }

    /// Drops what only a listing needs, so that retransmissions compare equal with and without a listing.
    pub(crate) fn unlisted(self) -> Kind {
        Kind { checks: 0, ..self }
    }

    pub(crate) fn is_callbacks(&self) -> bool {
        self.program == Program::Callback && self.procedure == landfast_nfs::v4::callback::CB_PROC_COMPOUND
    }
}
