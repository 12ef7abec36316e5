//! Files: made, opened, written, closed.

use super::*;

impl World {
    pub(super) fn bytes(&mut self, oid: Oid) -> Vec<u8> {
        let len = self.c.below(12);
        let mut data = (oid as u32).to_be_bytes().to_vec();
        data.extend((0..len).map(|_| self.c.below(256) as u8));
        data
    }

    pub(super) async fn create(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        let name = self.name();
        let Ok(seen) = self.see(who, (dir, dino), &name).await else { return };
        if let Some(seen) = seen {
            return self.overwrite(who, (dir, &name), seen).await;
        }
        let kernel = self.machines[who].kernel.clone();
        let tag = self.o.tag();
        let mode = 0o600 | u32::from(tag);
        let before = self.unknown(who);
        let unknown_files = self.machines[who].line.unknown_files();
        let Some(done) = self.run("creat", kernel.create(dino, &name, mode)).await else { return };
        let held = self.kind.hold && !kernel.is_own(dino);
        if held {
            self.o.loosen(dir);
        }
        let what = format!("creat {:?}/{name:?} (tag {tag})", self.o.path(dir));
        if !self.judge(before, &what, &[dir], (&done, Ok(()))) {
            return;
        }
        let Ok((ino, fh)) = done else { return };
        self.refs.push((who, ino));
        let oid = self.o.add(Body::File(vec![Vec::new()]), (tag, mode), who);
        self.o.name(dir, &name, oid, (who, self.net.now()));
        self.o.thing_mut(oid).opens.push(who);
        self.files.push(Opened { who, fh, oid, dir, held, unknown_files, sure: true });
        self.go_on(who, fh).await;
    }

    /// Writes to an open file, and perhaps closes it.
    pub(super) async fn go_on(&mut self, who: Who, fh: u64) {
        if self.c.percent(85) {
            self.write(who, fh).await;
        }
        if self.c.percent(15) {
            self.write(who, fh).await;
        }
        if self.c.percent(70) {
            self.close(who, fh).await;
        }
    }

    pub(super) async fn overwrite(&mut self, who: Who, (dir, name): (Oid, &Bytes), seen: Seen) {
        let Some(oid) = self.o.named(dir, name) else { return };
        let thing = self.o.thing(oid);
        // In a torn directory it may be another one.
        if seen.attrs.kind != FileType::Reg
            || !matches!(thing.body, Body::File(_))
            || tag_of(seen.attrs.mode) != thing.tag
            || thing.opens.iter().any(|w| *w != who)
        {
            return;
        }
        let kernel = self.machines[who].kernel.clone();
        let before = self.unknown(who);
        let Some(done) = self.run("open", kernel.open(seen.ino)).await else { return };
        let what = format!("open {:?}/{name:?}", self.o.path(dir));
        if !self.judge(before, &what, &[dir], (&done, Ok(()))) {
            return;
        }
        let Ok(fh) = done else { return };
        self.o.thing_mut(oid).opens.push(who);
        self.files.push(Opened { who, fh, oid, dir, held: false, unknown_files: 0, sure: true });
        let before = self.unknown(who);
        let set = Set { size: Some(0), ..Set::default() };
        let Some(done) = self.run("truncate", kernel.setattr(seen.ino, &set)).await else { return };
        if self.judge(before, "truncate", &[dir], (&done, Ok(()))) {
            self.o.has_written(who, oid, Vec::new());
            self.go_on(who, fh).await;
        } else if done.is_err() {
            self.o.thing_mut(oid).lost = true;
        }
    }

    pub(super) fn opened(&self, who: Who, fh: u64) -> Option<Opened> {
        self.files.iter().find(|f| f.who == who && f.fh == fh).cloned()
    }

    /// The directory of an open file, for what is expected of it: torn if it is not certain.
    pub(super) fn place_of(&self, file: &Opened) -> Vec<Oid> {
        vec![file.dir]
    }

    pub(super) async fn write(&mut self, who: Who, fh: u64) {
        let Some(file) = self.opened(who, fh) else { return };
        let kernel = self.machines[who].kernel.clone();
        let data = self.bytes(file.oid);
        let end = self.o.content(file.oid).len();
        let offset = if self.c.percent(50) { end } else { self.c.below(end as u64 + 4) as usize };
        let before = self.unknown(who);
        let Some(done) = self.run("write", kernel.write(fh, offset as u64, &data)).await else { return };
        if !file.sure {
            return;
        }
        let what = format!("write of {} bytes at {offset} to tag {}", data.len(), self.o.thing(file.oid).tag);
        if self.judge(before, &what, &self.place_of(&file), (&done, Ok(()))) {
            self.o.write(who, file.oid, offset, &data);
        } else if done.is_err() {
            self.o.thing_mut(file.oid).lost = true;
        }
    }

    pub(super) async fn close(&mut self, who: Who, fh: u64) {
        let Some(file) = self.opened(who, fh) else { return };
        let kernel = self.machines[who].kernel.clone();
        let before = self.unknown(who);
        let Some(done) = self.run("close", kernel.close(fh)).await else { return };
        self.files.retain(|f| !(f.who == who && f.fh == fh));
        let opens = &mut self.o.thing_mut(file.oid).opens;
        if let Some(at) = opens.iter().position(|w| *w == who) {
            opens.remove(at);
        }
        if !file.sure {
            return;
        }
        let what = format!("close of tag {}", self.o.thing(file.oid).tag);
        if self.judge(before, &what, &self.place_of(&file), (&done, Ok(()))) {
            self.closed.push((who, file.oid));
        } else if done.is_err() {
            self.o.thing_mut(file.oid).lost = true;
            self.o.tear(file.dir);
        }
    }

    /// Works on a file that is open. Returns whether there is one.
    pub(super) async fn call_open(&mut self, who: Who) -> bool {
        let own: Vec<Opened> = self.files.iter().filter(|f| f.who == who).cloned().collect();
        let Some(file) = self.c.pick(&own) else { return false };
        match self.c.below(10) {
            0..3 => self.write(who, file.fh).await,
            3..7 => self.close(who, file.fh).await,
            7 => {
                let kernel = self.machines[who].kernel.clone();
                let before = self.unknown(who);
                let Some(done) = self.run("read", kernel.read(file.fh, 0, 4096)).await else { return true };
                if file.sure
                    && self.judge(before, "read", &self.place_of(&file), (&done, Ok(())))
                    && let Ok(data) = done
                {
                    self.same(who, &file, &data);
                }
            }
            _ => {
                let kernel = self.machines[who].kernel.clone();
                let before = self.unknown(who);
                let Some(done) = self.run("fsync", kernel.fsync(file.fh)).await else { return true };
                if !file.sure {
                    return true;
                }
                let what = format!("fsync of tag {}", self.o.thing(file.oid).tag);
                let done = self.judge(before, &what, &self.place_of(&file), (&done, Ok(())));
                self.take(false);
                if !done {
                    self.o.thing_mut(file.oid).lost = true;
                }
                if done && !self.o.is_torn(file.dir) {
                    self.o.checks += 1;
                    let server = self.net.server.lock();
                    let stable = self.o.is_file_stable(file.oid, &server);
                    let above = self.above(file.oid);
                    let reachable = above.map_or(Ok(()), |dir| self.o.is_reachable(file.oid, dir, &server));
                    drop(server);
                    if let Err(why) = stable.and(reachable) {
                        self.o.fails(format!("client {who}: after {what}: {why}"));
                    }
                }
            }
        }
        true
    }

    /// The directory that has something now.
    pub(super) fn above(&self, oid: Oid) -> Option<Oid> {
        let has = |dir: &Oid| self.o.dir(*dir).is_some_and(|d| d.names.values().any(|o| *o == oid));
        self.o.dirs().into_iter().find(has)
    }
}
