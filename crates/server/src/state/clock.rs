//! Time as the state sees it. There is no clock in here: each function that needs the time gets it.

/// Milliseconds on a clock that never goes backwards.
pub type Millis = u64;
