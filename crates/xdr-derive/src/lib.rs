//! Derive macros for the XDR traits.
