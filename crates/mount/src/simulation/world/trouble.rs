//! Trouble: of power, of the network, of machines.

use super::*;

impl World {
    pub(super) fn cut(&mut self, log: bool) {
        let now = self.now();
        let up = now + Duration::from_millis(self.c.below(3000));
        self.tells(|| format!("power cut {}", if log { "with a log" } else { "without a log" }));
        self.net.server.lock().cut(up, log);
        self.trouble = self.trouble.max(up + TROUBLE_LASTS);
        self.figures.cuts += 1;
        self.net.news();
    }

    pub(super) fn partition(&mut self) {
        let who = self.c.below(CLIENTS as u64) as usize;
        let until = self.now() + Duration::from_millis(500 + self.c.below(8000));
        self.tells(|| format!("client {who} is cut off until {until:?}"));
        if let Some(client) = self.net.server.lock().clients.get_mut(who) {
            client.unreachable = client.unreachable.max(until);
        }
        self.trouble = self.trouble.max(until + TROUBLE_LASTS);
        self.figures.partitions += 1;
    }

    pub(super) fn die(&mut self) {
        let who = self.c.below(CLIENTS as u64) as usize;
        if self.machines[who].dead {
            return;
        }
        self.tells(|| format!("client {who} dies"));
        self.figures.deaths += 1;
        self.unsure = true;
        self.take(false);
        let now = self.now();
        let machine = &mut self.machines[who];
        machine.line.kill();
        machine.dead = true;
        machine.back = now + Duration::from_millis(self.c.below(9000));
        let calm = self.trouble <= now;
        let old = now.checked_sub(self.kind.flush_age + SENDS).filter(|_| calm);
        {
            let mut server = self.net.server.lock();
            if let Some(client) = server.clients.get_mut(who) {
                client.unreachable = Duration::MAX;
            }
            self.o.died(who, &mut server, (old, now));
        }
        self.files.retain(|f| f.who != who);
        self.refs.retain(|(w, _)| *w != who);
        self.closed.retain(|(w, _)| *w != who);
    }

    pub(super) async fn revive(&mut self) {
        for who in 0..CLIENTS {
            if self.machines[who].dead && self.machines[who].back <= self.now() {
                self.tells(|| format!("client {who} is back"));
                {
                    let mut server = self.net.server.lock();
                    server.expel(who);
                    if let Some(client) = server.clients.get_mut(who) {
                        client.unreachable = Duration::ZERO;
                    }
                }
                self.take(false);
                let machine = self.mount(who).await;
                self.machines[who] = machine;
            }
        }
    }
}
