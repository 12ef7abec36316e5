//! What an expression is asked about.

use landfast_client::fs::Meta;
use landfast_client::fs::Who;
use landfast_nfs::v4::NfsTime;

/// An object as tests see it.
pub struct Object<'a> {
    /// Its whole path.
    pub path: &'a [u8],
    /// The starting point that it is below, as it was typed.
    pub start: &'a [u8],
    /// Levels below it.
    pub depth: usize,
    /// Its attributes.
    pub meta: &'a Meta,
    /// What it leads to, if it is a symbolic link.
    pub text: Option<&'a [u8]>,
    /// It is a directory in which nothing was found.
    pub empty_dir: bool,
}

/// What there is to compare with.
pub struct Known<'a> {
    /// When `find` began.
    pub now: NfsTime,
    /// [`super::expression::Query::references`]; of a time all times are this one.
    pub references: &'a [Meta],
    /// [`super::expression::Query::owners`] by their numbers.
    pub owners: &'a [u32],
    /// Numbers and names of owners.
    pub who: &'a dyn Who,
}
