//! The names of the numbers that say how a call or an operation ended.

/// Gives a status type a constant for each number that its RFC defines, named as there, and their names back.
macro_rules! statuses {
    ($status:ident: $($name:ident = $value:literal;)*) => {
        impl $status {
            $(pub const $name: $status = $status($value);)*

            /// The RFC's name, or `None` for a number that it does not define.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use statuses;

/// The names of the errors that each operation may have, by the operation's name.
pub(crate) type ErrorTable = &'static [(&'static str, &'static [&'static str])];

/// Makes an [`ErrorTable`] of rows `OPERATION: ERROR ERROR ...;`.
macro_rules! errors {
    ($($op:ident: $($error:ident)*;)*) => {
        &[$((stringify!($op), &[$(stringify!($error)),*])),*]
    };
}
pub(crate) use errors;
