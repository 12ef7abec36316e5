//! The arguments of version 4's OPEN and CREATE, as far as their names.

use super::cursor::Cursor;

pub(super) struct Opened<'a> {
    /// The name, if one is opened.
    pub name: Option<&'a [u8]>,
    /// Whether it creates a missing file.
    pub creates: bool,
}

pub(super) fn open<'a>(c: &mut Cursor<'a>) -> Option<Opened<'a>> {
    c.skip(12)?;
    c.owner()?;
    let creates = c.u32()? != 0;
    if creates {
        match c.u32()? {
            2 => c.skip(8)?,
            3 => {
                c.skip(8)?;
                c.fattr()?;
            }
            _ => c.fattr()?,
        }
    }
    let name = match c.u32()? {
        0 | 3 => Some(c.opaque()?),
        1 => {
            c.skip(4)?;
            None
        }
        2 => {
            c.skip(16)?;
            Some(c.opaque()?)
        }
        5 => {
            c.skip(16)?;
            None
        }
        _ => None,
    };
    Some(Opened { name, creates })
}

/// The name that a CREATE makes.
pub(super) fn created<'a>(c: &mut Cursor<'a>) -> Option<&'a [u8]> {
    match c.u32()? {
        3 | 4 => c.skip(8)?,
        5 => drop(c.opaque()?),
        _ => {}
    }
    c.opaque()
}
