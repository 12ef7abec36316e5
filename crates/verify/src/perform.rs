//! Does an operation of the plan with a client.

use crate::blocking::nfs::{Created, Creation, Fh, Nfs, SetAttr, patiently, verifier};
use crate::error::{Error, Result};
use crate::model::{Id, Model};
use crate::op::{Op, Reply, data, hex, split, unhex};
use std::time::Duration;

/// Does an operation, with the handles that the model knows.
/// Errors: As the call's; [`Error::Nonsense`] when the model knows no handle.
pub fn perform(nfs: &mut dyn Nfs, base: &Fh, model: &Model, op: &Op) -> Result<Reply> {
    let handle = |id: Option<Id>| -> Result<Fh> {
        let id = id.ok_or_else(|| Error::Nonsense("no object at a path of the plan".into()))?;
        if id == crate::model::BASE {
            return Ok(base.clone());
        }
        let fh = model.object(id).and_then(|o| o.fh.as_deref()).and_then(unhex);
        fh.ok_or_else(|| Error::Nonsense("an object without a handle".into()))
    };
    let at = |path: &str| handle(model.find(path));
    let dir = |path: &str| at(split(path).0);
    let made = |m: Created| Reply {
        fh: Some(hex(&m.fh)),
        fileid: Some(m.fileid),
        mode_set: m.mode_set,
        ..Reply::default()
    };
    let nothing = |()| Reply::default();
    match op {
        Op::Create { path, mode, exclusive } => {
            let dir = dir(path)?;
            let how = if *exclusive { Creation::Exclusive(verifier()?) } else { Creation::Guarded };
            patiently(|| nfs.create(&dir, split(path).1, *mode, how)).map(made)
        }
        Op::Mkdir { path, mode } => {
            let dir = dir(path)?;
            patiently(|| nfs.mkdir(&dir, split(path).1, *mode)).map(made)
        }
        Op::Symlink { path, text } => {
            let dir = dir(path)?;
            patiently(|| nfs.symlink(&dir, split(path).1, text)).map(made)
        }
        Op::Write { path, offset, len, tag, stable } => {
            let (fh, data) = (at(path)?, data(*tag, *len as usize));
            let done = patiently(|| nfs.write(&fh, *offset, data.clone(), *stable))?;
            Ok(Reply {
                verf: Some(hex(&done.verf)),
                count: Some(done.count.min(*len)),
                stable: done.stable,
                ..Reply::default()
            })
        }
        Op::Commit { path, late } => {
            let fh = at(path)?;
            if let Some(millis) = late {
                nfs.close_all()?;
                std::thread::sleep(Duration::from_millis(u64::from(*millis)));
            }
            let verf = patiently(|| nfs.commit(&fh))?;
            Ok(Reply { verf: Some(hex(&verf)), ..Reply::default() })
        }
        Op::SetMode { path, mode } => {
            let fh = at(path)?;
            patiently(|| nfs.set(&fh, SetAttr::Mode(*mode))).map(nothing)
        }
        Op::SetSize { path, size } => {
            let fh = at(path)?;
            patiently(|| nfs.set(&fh, SetAttr::Size(*size))).map(nothing)
        }
        Op::SetTimes { path, mtime } => {
            let fh = at(path)?;
            patiently(|| nfs.set(&fh, SetAttr::Mtime(*mtime))).map(nothing)
        }
        Op::Rmdir { path } | Op::Remove { path } => {
            let dir = dir(path)?;
            let is_dir = matches!(op, Op::Rmdir { .. });
            patiently(|| nfs.remove(&dir, split(path).1, is_dir)).map(nothing)
        }
        Op::Link { from, to } => {
            let (fh, dir) = (at(from)?, dir(to)?);
            patiently(|| nfs.link(&fh, &dir, split(to).1)).map(nothing)
        }
        Op::Rename { from, to, .. } => {
            let (old, new) = (dir(from)?, dir(to)?);
            patiently(|| nfs.rename(&old, split(from).1, &new, split(to).1)).map(nothing)
        }
        Op::SetXattr { path, name, len, tag } => {
            let (fh, value) = (at(path)?, data(*tag, *len as usize));
            patiently(|| nfs.set_xattr(&fh, name, Some(value.clone()))).map(nothing)
        }
        Op::RemoveXattr { path, name } => {
            let fh = at(path)?;
            patiently(|| nfs.set_xattr(&fh, name, None)).map(nothing)
        }
    }
}
