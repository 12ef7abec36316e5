//! Futures whose code is compiled in this crate.
//!
//! The compiler makes the code of an `async fn` where its future is polled, so in each crate that awaits it, and in the last one that is
//! built everything comes together. What is behind a pointer is made where the pointer is.

use std::pin::Pin;

/// What a function returns that is no `async fn` itself, but boxes the future of one.
pub(crate) type Here<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
