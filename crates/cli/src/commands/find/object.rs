//! What an expression is evaluated on.

use landfast_client::fs::Meta;
use landfast_client::fs::OwnerNames;
use landfast_nfs::v4::NfsTime;

pub struct Object<'a> {
    pub path: &'a [u8],
    /// The starting point as typed.
    pub start: &'a [u8],
    pub depth: usize,
    pub meta: &'a Meta,
    /// The target, if it is a symbolic link.
    pub text: Option<&'a [u8]>,
    /// It is a directory in which nothing was found.
    pub empty_dir: bool,
}

/// What tests compare with, the same for all objects.
pub struct Context<'a> {
    pub now: NfsTime,
    /// For [`super::expression::Query::references`]; a reference that is a time has it as all of its times.
    pub references: &'a [Meta],
    /// The numbers of [`super::expression::Query::owners`].
    pub owners: &'a [u32],
    pub who: &'a dyn OwnerNames,
}
