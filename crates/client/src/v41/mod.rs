//! Sessions of NFSv4.1 and 4.2: many compounds in flight on several connections, each exactly once as far as the
//! server's reply cache allows.
//!
//! A compound takes a slot. It is sent with the same slot and sequence number until a reply comes: the server executes it
//! once and answers a retry from its reply cache (RFC 8881 section 2.10.6.1). If the server cannot (nothing is cached, or the
//! session was lost with the server), the outcome is [`crate::SessionError::Unknown`], unless the compound was never sent before.
//!
//! A persistent session survives a restart with the replies that the server had made durable. A request that was under way
//! when the server died may have taken effect without a durable reply. Its retry is then executed a second time, and not every
//! server tells that it restarted. So the failure of a retried compound says nothing about the first execution (EXIST and NOENT
//! may come from the second one; GRACE means that there was no second one yet), and its outcome is unknown, too.
//!
//! | shared state | changed by | read by |
//! |---|---|---|
//! | `epoch`: the session in force | `renew`, one at a time | every compound when it starts |
//! | an epoch's slot table | the compound that holds the slot | the same, and those that wait for one |
//! | an epoch's opening: operations that its first request must carry | the first compound, which carries them | those that wait until this is done |
//! | `back`: the connection for callbacks, bound to an epoch, or that there is none | whoever waits for a callback | the same |
//! | a line: one TCP connection, bound to an epoch | whoever finds it closed or bound to an older session | compounds on its slots |
//!
//! Lock order: `setup`, then a line or `back`; slot tables last and never over an await.
//!
//! | module | what it is |
//! |---|---|
//! | `client` | the loop: connect, send, retry, renew the session |
//! | `epoch` | the session in force, shared by its requests |
//! | `slots` | its slots, as a value |
//! | `sequence` | what the result of a SEQUENCE means |
//! | `setup` | making the client ID and the session |
//! | `first_request` | what callers add to the first request of a session |
//! | `callback` | the back channel |

mod callback;
mod client;
mod epoch;
mod first_request;
mod sequence;
mod setup;
mod slots;

pub(crate) use callback::CopyEnd;
pub use callback::{Asked, Recall};
pub(crate) use client::Client;
pub(crate) use first_request::FirstReply;
pub use first_request::{FirstRequest, Trailing};
