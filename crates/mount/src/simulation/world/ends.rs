//! What must be on the server after a while, after a synchronization, and in the end.

use super::*;

impl World {
    pub(super) async fn fsync_dir(&mut self, who: Who, (dir, dino): (Oid, Ino)) {
        let kernel = self.machines[who].kernel.clone();
        let before = self.unknown(who);
        let Some(done) = self.run("fsync of a directory", kernel.fsync_dir(dino)).await else { return };
        let what = format!("fsync {:?}", self.o.path(dir));
        // It tells of what has failed below it, too.
        let mut dirs = self.o.torn_below(dir);
        dirs.push(dir);
        let done = self.judge(before, &what, &dirs, (&done, Ok(())));
        self.take(false);
        if done {
            self.o.checks += 1;
            let stable = self.o.is_stable(dir, &self.net.server.lock(), (Some(who), true));
            if let Err(why) = stable {
                self.o.fails(format!("client {who}: after {what}: {why}"));
            }
        }
    }

    pub(super) async fn sync(&mut self, who: Who) {
        let kernel = self.machines[who].kernel.clone();
        let Some(failed) = self.run("sync", kernel.sync()).await else { return };
        self.tells(|| format!("client {who}: sync: {failed:?}"));
        self.take(false);
        self.heard(who, &failed);
        self.o.checks += 1;
        let wrong = {
            let server = self.net.server.lock();
            let reaches = |dir: &Oid| {
                let thing = self.o.thing(*dir);
                match thing.id {
                    Some(id) => server.delegations.get(&id).is_none_or(|d| d.who == who),
                    None => thing.maker == who,
                }
            };
            let dirs = self.o.dirs().into_iter().filter(reaches);
            dirs.filter_map(|dir| self.o.is_stable(dir, &server, (Some(who), false)).err()).next()
        };
        if let Some(why) = wrong {
            self.o.fails(format!("client {who}: after sync: {why}"));
        }
    }

    /// What `sync` tells. Where nothing was lost it tells nothing.
    pub(super) fn heard(&mut self, who: Who, failed: &[String]) {
        self.machines[who].told += failed.len() as u64;
        if !failed.is_empty() && self.o.tears == 0 && !self.machines[who].excused {
            self.o.fails(format!("client {who} has lost something though there was no reason: {failed:?}"));
        }
    }

    /// Changes that are older than they may become are on the server.
    pub(super) fn check_age(&mut self) {
        let now = self.now();
        if self.trouble > now || self.net.lost > 0 || self.net.server.lock().trouble.busy > 0 {
            return;
        }
        let Some(old) = now.checked_sub(self.kind.flush_age + SENDS) else { return };
        let server = self.net.server.lock();
        let late = self.o.late(&server, old);
        drop(server);
        if let Some(late) = late {
            self.o.fails(late);
        }
    }

    /// All come to an end, and look at everything.
    pub(super) async fn quiesce(&mut self) {
        self.tells(|| "all come to an end".to_owned());
        for machine in &mut self.machines {
            machine.back = Duration::ZERO;
        }
        self.revive().await;
        let until = {
            let server = self.net.server.lock();
            server.clients.iter().map(|c| c.unreachable).max().unwrap_or_default().max(server.up)
        };
        sleep(until.saturating_sub(self.now()) + Duration::from_millis(1)).await;
        for file in self.files.clone() {
            self.close(file.who, file.fh).await;
        }
        for _ in 0..2 {
            for who in 0..CLIENTS {
                self.sync(who).await;
                if self.o.fault.is_some() {
                    return;
                }
            }
            // All hear of what they have lost.
            sleep(Duration::from_secs(3)).await;
            self.take(false);
        }
        self.check_lost();
        let nobody = self.machines.iter().all(|m| m.told == 0 && !m.excused);
        if !std::mem::take(&mut self.unsure) && nobody {
            let differs = self.o.differs(&self.net.server.lock());
            differs.into_iter().for_each(|differs| self.o.fails(format!("{differs}, and nobody was told")));
        }
        if self.o.fault.is_some() {
            return;
        }
        // fsync of a directory tells of what has failed in it, too; once.
        for who in 0..CLIENTS {
            let kernel = self.machines[who].kernel.clone();
            let top = crate::core::tree::ROOT;
            let Some(first) = self.run("fsync of the top", kernel.fsync_dir(top)).await else { return };
            let Some(again) = self.run("fsync of the top", kernel.fsync_dir(top)).await else { return };
            if first.is_err() && self.o.tears == 0 && !self.machines[who].excused || again.is_err() {
                self.o
                    .fails(format!("client {who} is told without a reason, or twice: {first:?}, {again:?}"));
            }
        }
        let wrong = self.o.is_stable(TOP, &self.net.server.lock(), (None, true));
        if let Err(wrong) = wrong {
            return self.o.fails(format!("in the end: {wrong}"));
        }
        for (who, machine) in self.machines.iter().enumerate() {
            if let Some(left) = machine.kernel.left_over() {
                self.o.fails(format!("client {who} has left over: {left}"));
            }
            let revoked = self.net.server.lock().clients.get(who).map_or(0, |c| c.revoked.len());
            if revoked > 0 {
                self.o.fails(format!("client {who} has not freed {revoked} delegations that were revoked"));
            }
        }
        {
            let mut server = self.net.server.lock();
            server.writes_back(|_| true);
            self.o.adopt_all(&server, self.net.now());
        }
        self.closed.clear();
        self.machines.iter_mut().for_each(|m| (m.told, m.excused) = (0, false));
        for who in 0..CLIENTS {
            for dir in self.o.dirs() {
                let Some(ino) = self.walk(who, dir).await else { return };
                self.list(who, (dir, ino)).await;
                for name in NAMES {
                    let name = name_of(name);
                    if let Ok(Some(_)) = self.see(who, (dir, ino), &name).await
                        && self.c.percent(30)
                    {
                        self.read_name(who, (dir, ino), &name).await;
                    }
                    if self.o.fault.is_some() {
                        return;
                    }
                }
            }
        }
        self.take(false);
    }

    /// What a program has closed without an error is there, or somebody has removed it, or its client was told.
    pub(super) fn check_lost(&mut self) {
        let server = self.net.server.lock();
        let mut lost = None;
        for (who, oid) in &self.closed {
            let thing = self.o.thing(*oid);
            let there = server.objects.values().any(|o| o.tag == thing.tag && !o.is_dir());
            // Of what another one has written since, that one was told.
            let writer = self.machines.get(thing.writer).map_or(0, |m| m.told);
            let changed =
                !thing.lost && self.o.is_changed(*oid, &server) && writer + self.machines[*who].told == 0;
            if changed {
                lost = Some(format!(
                    "the file with tag {} of client {who} has other data than {:?}, and nobody was told: {:?}",
                    thing.tag,
                    self.o.content(*oid),
                    thing.id.and_then(|id| server.objects.get(&id)).map(|object| &object.kind),
                ));
            }
            if !there && !self.o.is_granted(thing.tag) && self.machines[*who].told == 0 {
                lost = Some(format!(
                    "the file with tag {} of client {who} is lost, and nobody was told",
                    thing.tag
                ));
            }
        }
        drop(server);
        if let Some(lost) = lost {
            self.o.fails(lost);
        }
    }
}
