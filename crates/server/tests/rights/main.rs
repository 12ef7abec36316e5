//! Rule C6 of the contract: rights are checked for the caller of each operation, whatever stateid, session or handle is
//! presented. An attacker of his own ([`wire`]) knows all that an honest client knows, and calls in its name.

#[path = "../common/mod.rs"]
mod common;
mod exclusive;
mod honest;
mod matrix;
mod numbers;
mod ops;
mod others;
#[path = "../v40/mod.rs"]
mod v40;
mod victim;
mod wire;
