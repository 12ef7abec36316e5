//! Scenes in which something happens while a reply is on its way.

use tokio::time::sleep;

use super::*;

/// How late a reply comes: the mount has returned all delegations before that are not known to it, also if they were recalled twice.
const LATE: Duration = Duration::from_secs(5);

impl Scene {
    /// The reply to the next request of just these operations comes late.
    fn delay_reply(&self, ops: &[OpNum], late: Duration) {
        *self.net.late_reply.lock() = Some((ops.to_vec(), late));
    }

    /// Waits until the server has executed that request.
    async fn is_executed(&self) {
        while self.net.late_reply.lock().is_some() {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Another machine finds a directory, and makes a file in it before the late reply comes.
    async fn other_makes(&self, path: &str, text: &str) {
        let (begun, other) = (self.net.now(), &self.others[0]);
        let mut dir = TOP;
        for part in path.split('/') {
            (dir, _) = other.lookup(dir, &name(part)).await.unwrap().unwrap();
        }
        assert!(other.lookup(dir, &name(text)).await.unwrap().is_none());
        let (_, fh) = other.create(dir, &name(text), 0o600).await.unwrap();
        other.close(fh).await.unwrap();
        assert!(self.id(&format!("{path}/{text}")).is_some());
        assert!(self.net.now() - begun < LATE);
    }
}

#[test]
fn a_directory_that_is_recalled_while_it_is_listed_is_not_this_mounts_own() {
    scene_of(2, true, 0, async |s| {
        s.net.server.lock().old_dir(&name("d"), 0o755);
        let (d, _) = s.kernel.lookup(TOP, &name("d")).await.unwrap().unwrap();
        // For a single change the directory is not asked for.
        s.kernel.mkdir(d, &name("one"), 0o755).await.unwrap();
        s.delay_reply(&[OpNum::PUTFH, OpNum::GETATTR, OpNum::READDIR], LATE);
        let two = name("two");
        let others = async {
            s.is_executed().await;
            assert_eq!(s.net.server.lock().delegations.len(), 2, "of this directory, and of that in it");
            s.other_makes("d", "new").await;
        };
        let (made, ()) = tokio::join!(s.kernel.mkdir(d, &two, 0o755), others);
        made.unwrap();
        assert!(!s.kernel.is_own(d));
        assert!(s.kernel.lookup(d, &name("new")).await.unwrap().is_some());
        assert!(s.id("d/two").is_some());
    });
}

#[test]
fn a_new_directory_that_is_recalled_while_later_changes_are_sent_is_not_this_mounts_own() {
    scene_of(2, true, 0, async |s| {
        let d = s.own_dir("d").await;
        let (sub, _) = s.kernel.mkdir(d, &name("sub"), 0o755).await.unwrap();
        s.kernel.symlink(d, &name("link"), &name("text")).await.unwrap();
        // The delegation of `d` is lost, so each change is sent alone.
        let now = s.net.now();
        s.net.server.lock().cut(now, false);
        let makes =
            [OpNum::PUTFH, OpNum::SAVEFH, OpNum::CREATE, OpNum::GETFH, OpNum::GETATTR, OpNum::RESTOREFH];
        s.delay_reply(&[&makes[..], &[OpNum::GETATTR]].concat(), LATE);
        let others = async {
            s.is_executed().await;
            assert_eq!(s.net.server.lock().delegations.len(), 1, "of the new directory");
            s.other_makes("d/sub", "new").await;
        };
        let (done, ()) = tokio::join!(s.kernel.fsync_dir(d), others);
        done.unwrap();
        assert!(!s.kernel.is_own(sub));
        assert!(s.kernel.lookup(sub, &name("new")).await.unwrap().is_some());
    });
}

#[test]
fn a_lock_does_not_bring_back_the_size_before_an_append() {
    scene(false, 0, async |s| {
        s.theirs("", "f");
        let (ino, _) = s.kernel.lookup(TOP, &name("f")).await.unwrap().unwrap();
        let fh = s.kernel.open(ino).await.unwrap();
        s.delay_reply(&[OpNum::PUTFH, OpNum::GETATTR], LATE);
        let appends = async {
            s.is_executed().await;
            s.kernel.append(fh, b", first").await.unwrap();
            s.kernel.fsync(fh).await
        };
        let (locked, synced) = tokio::join!(s.kernel.lock(fh), appends);
        assert_eq!((locked, synced), (Ok(()), Ok(())));
        s.kernel.append(fh, b", second").await.unwrap();
        s.kernel.fsync(fh).await.unwrap();
        assert_eq!(s.data("f").unwrap(), b"theirs, first, second");
    });
}

#[test]
fn the_last_of_two_closes_that_end_together_closes_the_file_on_the_server() {
    scene(false, 60, async |s| {
        s.theirs("", "f");
        let (ino, _) = s.kernel.lookup(TOP, &name("f")).await.unwrap().unwrap();
        let (one, two) = (s.kernel.open(ino).await.unwrap(), s.kernel.open(ino).await.unwrap());
        s.kernel.lock(one).await.unwrap();
        assert_eq!(s.net.server.lock().opens, 1);
        // A mapping may write after the file was closed: both wait for that.
        s.kernel.write(one, 0, b"mapped").await.unwrap();
        s.kernel.release(one);
        s.kernel.release(two);
        sleep(LATE).await;
        assert_eq!((s.data("f").unwrap(), s.net.server.lock().opens), (b"mapped".to_vec(), 0));
    });
}
