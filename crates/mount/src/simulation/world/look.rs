//! What programs see.

use super::*;

impl World {
    /// Finds a directory by its path.
    pub(super) async fn walk(&mut self, who: Who, dir: Oid) -> Option<Ino> {
        let kernel = self.machines[who].kernel.clone();
        let mut at = crate::core::tree::ROOT;
        for name in self.o.path(dir) {
            let found = self.run("a lookup", kernel.lookup(at, &name)).await?;
            match found {
                Ok(Some((ino, attrs))) if attrs.is_dir() => {
                    self.refs.push((who, ino));
                    at = ino;
                }
                other => {
                    self.take_tears();
                    if !self.o.is_torn(dir) {
                        let path = self.o.path(dir);
                        let other = other.map(|found| found.map(|(_, a)| a.kind));
                        self.o.fails(format!("client {who} finds no directory {path:?}: {other:?}"));
                    }
                    return None;
                }
            }
        }
        Some(at)
    }

    /// What a client's program finds under a name.
    pub(super) async fn see(
        &mut self,
        who: Who,
        (dir, ino): (Oid, Ino),
        name: &Bytes,
    ) -> Result<Option<Seen>, ()> {
        let kernel = self.machines[who].kernel.clone();
        let Some(found) = self.run("a lookup", kernel.lookup(ino, name)).await else { return Err(()) };
        self.take_tears();
        let torn = self.o.is_torn(dir);
        if let Ok(Some((ino, _))) = &found {
            self.refs.push((who, *ino));
        }
        let found = match found {
            Ok(found) => found.map(|(ino, attrs)| Seen { ino, attrs }),
            Err(e) => {
                if !torn {
                    self.o.fails(format!(
                        "client {who} cannot look up {name:?} in {:?}: {e}",
                        self.o.path(dir)
                    ));
                }
                return Err(());
            }
        };
        if torn {
            return Ok(found);
        }
        self.o.checks += 1;
        let expected = self.o.named(dir, name);
        let wrong = match (&found, expected) {
            (None, None) => None,
            (Some(seen), Some(oid)) => self.differs(who, oid, &seen.attrs),
            (None, Some(oid)) => Some(format!("nothing instead of tag {}", self.o.thing(oid).tag)),
            (Some(seen), None) => {
                Some(format!("a {:?} of mode {:o} instead of nothing", seen.attrs.kind, seen.attrs.mode))
            }
        };
        if let Some(wrong) = wrong {
            self.o.fails(format!("client {who} finds under {name:?} in {:?}: {wrong}", self.o.path(dir)));
            return Err(());
        }
        Ok(found)
    }

    /// What is wrong about attributes.
    pub(super) fn differs(&self, who: Who, oid: Oid, attrs: &Attrs) -> Option<String> {
        let thing = self.o.thing(oid);
        let kind = match &thing.body {
            Body::Dir(_) => FileType::Dir,
            Body::File(_) => FileType::Reg,
            Body::Link(_) => FileType::Lnk,
        };
        if attrs.kind != kind {
            return Some(format!("a {:?} instead of a {kind:?}", attrs.kind));
        }
        if kind != FileType::Lnk && attrs.mode != thing.mode {
            return Some(format!("mode {:o} instead of {:o}", attrs.mode, thing.mode));
        }
        let others = thing.opens.iter().any(|w| *w != who);
        if kind == FileType::Reg && !others && attrs.size != self.o.content(oid).len() as u64 {
            return Some(format!("{} bytes instead of {}", attrs.size, self.o.content(oid).len()));
        }
        if kind == FileType::Reg && thing.opens.is_empty() && thing.mtime.is_some_and(|t| t != attrs.mtime) {
            return Some(format!("time {:?} instead of {:?}", attrs.mtime, thing.mtime));
        }
        None
    }

    pub(super) fn same(&mut self, who: Who, file: &Opened, data: &[u8]) {
        let thing = self.o.thing(file.oid);
        if self.o.is_torn(file.dir) || thing.opens.iter().any(|w| *w != who) {
            return;
        }
        let tag = thing.tag;
        self.o.checks += 1;
        if self.o.content(file.oid) != data {
            self.o.fails(format!(
                "client {who} reads {data:?} from the file with tag {tag}, which has {:?}",
                self.o.content(file.oid)
            ));
        }
    }

    pub(super) async fn read(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        let name = self.name();
        let Ok(Some(seen)) = self.see(who, (dir, dino), &name).await else { return };
        let kernel = self.machines[who].kernel.clone();
        let oid = self.o.named(dir, &name);
        match seen.attrs.kind {
            FileType::Reg => {
                let before = self.unknown(who);
                let Some(done) = self.run("open", kernel.open(seen.ino)).await else { return };
                let what = format!("open {:?}/{name:?} to read", self.o.path(dir));
                if !self.judge(before, &what, &[dir], (&done, Ok(()))) {
                    return;
                }
                let Ok(fh) = done else { return };
                let Some(data) = self.run("read", kernel.read(fh, 0, 4096)).await else { return };
                let read = self.judge(before, "read", &[dir], (&data, Ok(())));
                if let (true, Ok(data), Some(oid)) = (read, data, oid) {
                    let file = Opened { who, fh, oid, dir, held: false, unknown_files: 0, sure: true };
                    self.same(who, &file, &data);
                }
                let _ = self.run("close", kernel.close(fh)).await;
            }
            FileType::Lnk => {
                let before = self.unknown(who);
                let Some(done) = self.run("readlink", kernel.readlink(seen.ino)).await else { return };
                let read = self.judge(before, "readlink", &[dir], (&done, Ok(())));
                if let (true, Ok(text), Some(oid), false) = (read, done, oid, self.o.is_torn(dir))
                    && let Body::Link(ours) = &self.o.thing(oid).body
                    && *ours != text
                {
                    self.o.fails(format!("client {who} reads the link {text:?} instead of {ours:?}"));
                }
            }
            _ => {}
        }
    }

    pub(super) async fn list(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        let kernel = self.machines[who].kernel.clone();
        let before = self.unknown(who);
        let Some(done) = self.run("readdir", kernel.readdir(dino)).await else { return };
        let what = format!("readdir {:?}", self.o.path(dir));
        if self.judge(before, &what, &[dir], (&done, Ok(()))) && !self.o.is_torn(dir) {
            let mut found: Vec<Bytes> = done.unwrap_or_default();
            found.retain(|name| !name.starts_with(b".nfs"));
            found.sort_unstable();
            let ours: Vec<Bytes> =
                self.o.dir(dir).map(|d| d.names.keys().cloned().collect()).unwrap_or_default();
            if found != ours {
                self.o.fails(format!("client {who}: {what} gives {found:?} instead of {ours:?}"));
            }
        }
    }

    /// The tag of what a program sees.
    pub(super) async fn tag_seen(&mut self, who: Who, seen: &Seen) -> Option<Tag> {
        match seen.attrs.kind {
            FileType::Lnk => {
                let kernel = self.machines[who].kernel.clone();
                let text = self.run("readlink", kernel.readlink(seen.ino)).await?.ok()?;
                Some(crate::simulation::objects::tag_of_link(&text))
            }
            _ => Some(tag_of(seen.attrs.mode)),
        }
    }

    pub(super) async fn read_name(&mut self, who: Who, (dir, dino): (Oid, Ino), name: &Bytes) {
        let Ok(Some(seen)) = self.see(who, (dir, dino), name).await else { return };
        if seen.attrs.kind != FileType::Reg {
            return;
        }
        let kernel = self.machines[who].kernel.clone();
        let before = self.unknown(who);
        let Some(done) = self.run("open", kernel.open(seen.ino)).await else { return };
        if !self.judge(before, "open", &[dir], (&done, Ok(()))) {
            return;
        }
        let (Ok(fh), Some(oid)) = (done, self.o.named(dir, name)) else { return };
        let Some(data) = self.run("read", kernel.read(fh, 0, 4096)).await else { return };
        if let Ok(data) = data {
            let file = Opened { who, fh, oid, dir, held: false, unknown_files: 0, sure: true };
            self.same(who, &file, &data);
        }
        let _ = self.run("close", kernel.close(fh)).await;
    }
}
