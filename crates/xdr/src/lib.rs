//! RFC 4506 (XDR) encoding and decoding, zero-copy for opaque data.
