use thiserror::Error;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Error {
    /// The stream ended before the value was complete.
    #[error("the data ends {0} bytes too soon")]
    Short(usize),
    /// A boolean or a discriminant with a value that its type does not have (RFC 4506 sections 4.3, 4.4, 4.15).
    #[error("{value} is not a value of {name}")]
    BadTag { name: &'static str, value: u32 },
    /// Padding that is not zero (RFC 4506 section 3 asks for zeroes).
    #[error("padding is not zero")]
    Padding,
    /// A length above the limit of its type.
    #[error("length {len} is above the limit of {max}")]
    TooLong { len: usize, max: usize },
    /// A value that its type excludes, such as an integer too large for a field.
    #[error("{0} is out of range")]
    Range(&'static str),
    /// Bytes left over after a complete value.
    #[error("{0} bytes are left over")]
    Trailing(usize),
}
