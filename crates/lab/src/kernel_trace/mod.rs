//! What the threads of one process do, as the kernel's tracepoints tell it: system calls, wake-ups, changes of threads.
//!
//! | file | subject |
//! |---|---|
//! | `tracefs` | an instance of the kernel's tracer: starts, stops, gives its text |
//! | `event` | the text as events; pure |
//! | `calls` | events as the cost of each kind of system call; pure |
//! | `steps` | events as operations, and their steps in a table; pure |
//!
//! The traced process is not changed and pays nothing while nobody traces it. While it is traced, each event costs it a few
//! tenths of a microsecond, so times measured here are somewhat too long; counts are exact.

mod calls;
mod event;
mod steps;
mod tracefs;

pub(crate) use calls::{CallCost, call_costs};
pub(crate) use event::events;
pub(crate) use steps::{Operation, operations, typical};
pub(crate) use tracefs::Tracer;
