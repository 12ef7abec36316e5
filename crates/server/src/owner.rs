//! Owners and groups as NFSv4 strings.

use landfast_nfs::v4::NfsStat;

/// RFC 8881 section 5.9: a user or group as a decimal number without leading zeros. An empty string is no name of anybody:
/// `INVAL`, as Linux' server says; whom we do not know is `BADOWNER`.
pub fn owner_number(s: &[u8]) -> Result<u32, NfsStat> {
    const BAD: NfsStat = NfsStat::NFS4ERR_BADOWNER;
    if s.is_empty() {
        return Err(NfsStat::NFS4ERR_INVAL);
    }
    if s.len() > 10 || !s.iter().all(u8::is_ascii_digit) || (s.len() > 1 && s[0] == b'0') {
        return Err(BAD);
    }
    // 2^32 - 1 means "leave alone" to the kernel: nobody's number.
    std::str::from_utf8(s).ok().and_then(|s| s.parse().ok()).filter(|id| *id != u32::MAX).ok_or(BAD)
}
