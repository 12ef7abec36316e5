#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No work.
    #[error("there is nothing to do: neither files nor calls")]
    Nothing,
    /// An impossible value; which one.
    #[error("{0}")]
    Nonsense(&'static str),
}
