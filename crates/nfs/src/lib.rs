//! The NFS protocols as types: numbers, names and limits from the RFCs; no behaviour.
