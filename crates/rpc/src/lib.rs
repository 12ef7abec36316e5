//! RFC 5531 messages, record marking, AUTH_SYS, connections on both ends.
