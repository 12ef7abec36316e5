//! Names: made, moved, removed; attributes.

use super::*;

impl World {
    pub(super) async fn mkdir(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        if self.o.dirs().len() >= self.kind.dirs {
            return;
        }
        let name = self.name();
        let Ok(None) = self.see(who, (dir, dino), &name).await else { return };
        let kernel = self.machines[who].kernel.clone();
        let tag = self.o.tag();
        let mode = 0o700 | u32::from(tag);
        let before = self.unknown(who);
        let Some(done) = self.run("mkdir", kernel.mkdir(dino, &name, mode)).await else { return };
        self.refs.extend(done.as_ref().ok().map(|(ino, _)| (who, *ino)));
        let what = format!("mkdir {:?}/{name:?} (tag {tag})", self.o.path(dir));
        if self.judge(before, &what, &[dir], (&done, Ok(()))) {
            let oid = self.o.add(Body::Dir(Dir::default()), (tag, mode), who);
            self.o.name(dir, &name, oid, (who, self.net.now()));
        }
    }

    pub(super) async fn symlink(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        let name = self.name();
        let Ok(None) = self.see(who, (dir, dino), &name).await else { return };
        let kernel = self.machines[who].kernel.clone();
        let tag = self.o.tag();
        let text = Bytes::from(vec![tag + 64, b'/', b't']);
        let before = self.unknown(who);
        let Some(done) = self.run("symlink", kernel.symlink(dino, &name, &text)).await else { return };
        self.refs.extend(done.as_ref().ok().map(|(ino, _)| (who, *ino)));
        let what = format!("symlink {:?}/{name:?} (tag {tag})", self.o.path(dir));
        if self.judge(before, &what, &[dir], (&done, Ok(()))) {
            let oid = self.o.add(Body::Link(text), (tag, 0o777), who);
            self.o.name(dir, &name, oid, (who, self.net.now()));
        }
    }

    /// A file has lost its name: what becomes of it is its holders' affair.
    pub(super) fn lost_name(&mut self, who: Who, oid: Option<Oid>) {
        for file in self.files.iter_mut().filter(|f| Some(f.oid) == oid) {
            file.sure = false;
            if file.who != who {
                self.machines[file.who].excused = true;
            }
        }
        self.closed.retain(|(_, o)| Some(*o) != oid);
    }

    pub(super) async fn unlink(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        let name = self.name();
        let Ok(Some(seen)) = self.see(who, (dir, dino), &name).await else { return };
        if seen.attrs.is_dir() {
            return;
        }
        let Some(tag) = self.tag_seen(who, &seen).await else { return };
        self.o.grant(who, tag);
        let kernel = self.machines[who].kernel.clone();
        let before = self.unknown(who);
        let Some(done) = self.run("unlink", kernel.unlink(dino, &name)).await else { return };
        let what = format!("unlink {:?}/{name:?} (tag {tag})", self.o.path(dir));
        if self.judge(before, &what, &[dir], (&done, Ok(()))) {
            self.lost_name(who, self.o.named(dir, &name));
            self.o.unname(dir, &name, (who, self.net.now()));
        }
    }

    /// Whether a directory has no names, not even one that keeps a file which a client had open when it died.
    pub(super) fn is_empty(&self, dir: Oid) -> bool {
        let server = self.net.server.lock();
        let names = self.o.thing(dir).id.and_then(|id| server.objects.get(&id)?.names());
        let hides = names.is_some_and(|names| names.keys().any(|name| name.starts_with(b".nfs")));
        !hides && self.o.dir(dir).is_some_and(|d| d.names.is_empty())
    }

    pub(super) async fn rmdir(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        let name = self.name();
        let Ok(Some(seen)) = self.see(who, (dir, dino), &name).await else { return };
        if !seen.attrs.is_dir() {
            return;
        }
        let oid = self.o.named(dir, &name);
        let busy = oid.is_some_and(|oid| self.files.iter().any(|f| f.dir == oid));
        if busy {
            // What is open there may have a hidden name.
            return;
        }
        let empty = oid.is_some_and(|oid| self.is_empty(oid));
        self.o.grant(who, tag_of(seen.attrs.mode));
        let kernel = self.machines[who].kernel.clone();
        let before = self.unknown(who);
        let Some(done) = self.run("rmdir", kernel.rmdir(dino, &name)).await else { return };
        let what = format!("rmdir {:?}/{name:?}", self.o.path(dir));
        let expected = if empty { Ok(()) } else { Err(libc::ENOTEMPTY) };
        let dirs: Vec<Oid> = [Some(dir), oid].into_iter().flatten().collect();
        if self.judge(before, &what, &dirs, (&done, expected)) {
            self.o.unname(dir, &name, (who, self.net.now()));
        }
    }

    pub(super) async fn rename(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        let (old, new) = (self.name(), self.name());
        self.move_name(who, (dir, dino, &old), (dir, dino, &new)).await;
    }

    pub(super) async fn rename_across(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        let dirs = self.o.dirs();
        let Some(to) = self.c.pick(&dirs).filter(|to| *to != dir) else { return };
        if self.o.is_torn(dir) != self.o.is_torn(to) || self.files.iter().any(|f| f.held && f.dir == to) {
            return;
        }
        let Some(tino) = self.walk(who, to).await else { return };
        let (old, new) = (self.name(), self.name());
        self.move_name(who, (dir, dino, &old), (to, tino, &new)).await;
    }

    pub(super) async fn move_name(&mut self, who: Who, from: (Oid, Ino, &Bytes), to: (Oid, Ino, &Bytes)) {
        let Ok(Some(source)) = self.see(who, (from.0, from.1), from.2).await else { return };
        let Ok(target) = self.see(who, (to.0, to.1), to.2).await else { return };
        let (source_oid, target_oid) = (self.o.named(from.0, from.2), self.o.named(to.0, to.2));
        // The kernel itself refuses these.
        let is_dir = source.attrs.is_dir();
        let kinds = target.as_ref().is_some_and(|t| t.attrs.is_dir() != is_dir);
        let loops = source_oid.is_some_and(|oid| is_dir && self.o.is_below(to.0, oid))
            || target_oid.is_some_and(|oid| self.o.is_dir(oid) && self.o.is_below(from.0, oid));
        let same = source_oid.is_some() && source_oid == target_oid;
        let top = from.0 == TOP || to.0 == TOP;
        if kinds || loops || same || top && is_dir {
            return;
        }
        let busy = target_oid.is_some_and(|oid| self.files.iter().any(|f| f.dir == oid));
        if busy {
            return;
        }
        let full = target_oid.is_some_and(|oid| self.o.is_dir(oid) && !self.is_empty(oid));
        if let Some(target) = &target
            && let Some(tag) = self.tag_seen(who, target).await
        {
            self.o.grant(who, tag);
        }
        let kernel = self.machines[who].kernel.clone();
        let before = self.unknown(who);
        let work = kernel.rename((from.1, from.2), (to.1, to.2));
        let Some(done) = self.run("rename", work).await else { return };
        let what =
            format!("rename {:?}/{:?} to {:?}/{:?}", self.o.path(from.0), from.2, self.o.path(to.0), to.2);
        let expected = match (full, &done) {
            // Both are what servers say.
            (true, Err(e)) if e.0 == libc::EEXIST => Err(libc::EEXIST),
            (true, _) => Err(libc::ENOTEMPTY),
            (false, _) => Ok(()),
        };
        let mut dirs = vec![from.0, to.0];
        dirs.extend(target_oid.filter(|oid| self.o.is_dir(*oid)));
        if self.judge(before, &what, &dirs, (&done, expected)) {
            let open = target_oid.is_some_and(|oid| !self.o.thing(oid).opens.is_empty());
            self.lost_name(who, target_oid);
            self.o.rename((from.0, from.2), (to.0, to.2), (who, self.net.now()));
            self.files.iter_mut().filter(|f| Some(f.oid) == source_oid).for_each(|f| f.dir = to.0);
            // An open file gets another name first.
            self.take(open);
        }
    }

    /// chmod(2), utimensat(2), truncate(2)
    pub(super) async fn set(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        let name = self.name();
        let Ok(Some(seen)) = self.see(who, (dir, dino), &name).await else { return };
        // In a torn directory it may be another one.
        let oid = self.o.named(dir, &name).filter(|oid| self.o.thing(*oid).tag == tag_of(seen.attrs.mode));
        if seen.attrs.kind == FileType::Lnk || oid.is_some_and(|oid| !self.o.thing(oid).opens.is_empty()) {
            return;
        }
        let is_dir = seen.attrs.is_dir();
        let (what, set) = match self.c.below(if is_dir { 1 } else { 3 }) {
            0 => ("chmod", Set { mode: Some(seen.attrs.mode ^ 0o1000), ..Set::default() }),
            1 => {
                let seconds = 1000 + self.c.below(1000) as i64;
                let mtime = Some(SetTime::ClientTime(NfsTime { seconds, nseconds: 0 }));
                ("utimes", Set { mtime, ..Set::default() })
            }
            _ => ("truncate", Set { size: Some(self.c.below(20)), ..Set::default() }),
        };
        let kernel = self.machines[who].kernel.clone();
        let before = self.unknown(who);
        let Some(done) = self.run(what, kernel.setattr(seen.ino, &set)).await else { return };
        let what = format!("{what} {:?}/{name:?}", self.o.path(dir));
        let mut dirs = vec![dir];
        dirs.extend(oid.filter(|_| is_dir));
        let judged = self.judge(before, &what, &dirs, (&done, Ok(())));
        if let (true, Some(oid)) = (done.is_err() && set.size.is_some(), oid) {
            self.o.thing_mut(oid).lost = true;
        }
        if let (true, Some(oid)) = (judged, oid) {
            if let Some(size) = set.size {
                let mut content = self.o.content(oid).to_vec();
                content.resize(size as usize, 0);
                self.o.has_written(who, oid, content);
            }
            let thing = self.o.thing_mut(oid);
            thing.mode = set.mode.unwrap_or(thing.mode);
            if let Some(SetTime::ClientTime(t)) = set.mtime {
                thing.mtime = Some(t);
            }
        }
    }
}
