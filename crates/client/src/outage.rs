//! Whether a server answers, and who is to know.
//!
//! | shared state | changed by | read by |
//! |---|---|---|
//! | when the server was last heard of, or somebody began to wait for it | each reply; the first that waits | those that wait |
//! | how many wait | each of them, as it begins and ends | the next |
//! | that it was said to be silent | the first that has waited [`limits::SILENT_AFTER`]; the next reply | those that wait |
//! | that it was given up | the first that has waited long enough; never again | everybody |

use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::error::SessionError;
use crate::limits;

/// Hears when a server does not answer: once for each outage.
pub trait Watch: Debug + Send + Sync {
    /// Something is waited for, and no reply has come for [`limits::SILENT_AFTER`].
    fn silent(&self, server: &str);

    /// The server answers again.
    fn answers(&self, server: &str);

    /// The server refuses the first connection. It is tried for `patience`.
    fn refuses(&self, server: &str, patience: Duration);

    /// After [`Watch::refuses`]: the connection was made (`connected`), or the refusal is now an error.
    fn refuses_no_more(&self, server: &str, connected: bool);

    /// No reply came for so long that the server is given up ([`crate::SessionOptions::reply_patience`]): all calls
    /// fail.
    fn given_up(&self, server: &str, after: Duration);
}

/// What is known of a server's replies.
#[derive(Debug)]
pub(crate) struct Health {
    server: String,
    watch: Option<Arc<dyn Watch>>,
    patience: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    since: Instant,
    waiting: usize,
    silent: bool,
    given_up: bool,
}

/// What a waiter does next.
#[derive(Debug, PartialEq, Eq)]
enum WaitStep {
    LookAt(Instant),
    Wait,
    GiveUp,
}

struct Waiting<'a>(&'a Health);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Health {
    pub(crate) fn new(server: String, watch: Option<Arc<dyn Watch>>, patience: Option<Duration>) -> Health {
        let state = State { since: Instant::now(), waiting: 0, silent: false, given_up: false };
        Health { server, watch, patience, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a reply.
    pub(crate) fn heard(&self) {
        let mut state = self.state();
        state.since = Instant::now();
        let was_silent = std::mem::replace(&mut state.silent, false);
        // Under the lock, so that the end of an outage is reported after its beginning.
        if let Some(watch) = self.watch.as_ref().filter(|_| was_silent) {
            watch.answers(&self.server);
        }
    }

    /// Waits for work that needs replies of the server. [`SessionError::GivenUp`] if none comes for too long.
    pub(crate) async fn waited<T>(
        &self,
        work: impl Future<Output = Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        let _waiting = self.begin();
        let mut work = pin!(work);
        loop {
            let until = match self.look(Instant::now()) {
                WaitStep::LookAt(until) => until,
                WaitStep::Wait => return work.await,
                WaitStep::GiveUp => return Err(self.gave_up()),
            };
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = sleep_until(until) => {}
            }
        }
    }

    fn begin(&self) -> Waiting<'_> {
        let mut state = self.state();
        if state.waiting == 0 && !state.silent {
            state.since = Instant::now();
        }
        state.waiting += 1;
        Waiting(self)
    }

    fn gave_up(&self) -> SessionError {
        SessionError::GivenUp { server: self.server.clone(), after: self.patience.unwrap_or_default() }
    }

    fn look(&self, now: Instant) -> WaitStep {
        let mut state = self.state();
        if state.given_up {
            return WaitStep::GiveUp;
        }
        let silent_at = state.since + limits::SILENT_AFTER;
        let given_up_at = self.patience.and_then(|patience| state.since.checked_add(patience));
        if given_up_at.is_some_and(|at| at <= now) {
            state.given_up = true;
            drop(state);
            if let Some(watch) = &self.watch {
                watch.given_up(&self.server, self.patience.unwrap_or_default());
            }
            return WaitStep::GiveUp;
        }
        let mut next = given_up_at;
        let says = !state.silent && silent_at <= now;
        if self.watch.is_some() && !state.silent && !says {
            next = Some(next.map_or(silent_at, |at| at.min(silent_at)));
        }
        state.silent |= says;
        if let Some(watch) = self.watch.as_ref().filter(|_| says) {
            watch.silent(&self.server);
        }
        // The work may last longer than one outage.
        let later = self.watch.is_some().then(|| now + limits::SILENT_AFTER);
        next.into_iter().chain(later).min().map_or(WaitStep::Wait, WaitStep::LookAt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<String>>);

    impl Told {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Watch for Told {
        fn silent(&self, server: &str) {
            self.0.lock().unwrap().push(format!("{server} silent"));
        }

        fn answers(&self, server: &str) {
            self.0.lock().unwrap().push(format!("{server} answers"));
        }

        fn refuses(&self, server: &str, patience: Duration) {
            self.0.lock().unwrap().push(format!("{server} refuses, tried for {patience:?}"));
        }

        fn refuses_no_more(&self, server: &str, connected: bool) {
            self.0.lock().unwrap().push(format!("{server} connected: {connected}"));
        }

        fn given_up(&self, server: &str, after: Duration) {
            self.0.lock().unwrap().push(format!("{server} given up after {after:?}"));
        }
    }

    fn health(patience: Option<Duration>) -> (Arc<Told>, Health) {
        let told = Arc::new(Told::default());
        (told.clone(), Health::new("s".into(), Some(told), patience))
    }

    #[test]
    fn an_outage_is_told_once_and_its_end_once() {
        let (told, health) = health(None);
        let (_one, _another) = (health.begin(), health.begin());
        let since = health.state().since;
        let silent = since + limits::SILENT_AFTER;
        assert_eq!(health.look(since), WaitStep::LookAt(silent));
        assert!(told.take().is_empty());
        assert!(matches!(health.look(silent), WaitStep::LookAt(at) if at > silent));
        assert!(matches!(health.look(silent + limits::SILENT_AFTER), WaitStep::LookAt(_)));
        assert_eq!(told.take(), ["s silent"]);
        health.heard();
        health.heard();
        assert_eq!(told.take(), ["s answers"]);
        let since = health.state().since;
        assert!(matches!(health.look(since + limits::SILENT_AFTER), WaitStep::LookAt(_)));
        assert_eq!(told.take(), ["s silent"]);
    }

    #[test]
    fn time_in_which_nobody_waits_is_no_silence() {
        let (told, health) = health(Some(Duration::from_secs(1)));
        let before = health.state().since;
        drop(health.begin());
        let _waiting = health.begin();
        let since = health.state().since;
        assert!(since >= before);
        assert_eq!(health.look(since), WaitStep::LookAt(since + Duration::from_secs(1)));
        assert!(told.take().is_empty());
    }

    #[tokio::test]
    async fn what_is_given_up_stays_given_up() {
        let (told, health) = health(Some(Duration::from_millis(20)));
        for _ in 0..2 {
            let waited = health.waited(std::future::pending::<Result<(), SessionError>>()).await;
            assert!(matches!(waited, Err(SessionError::GivenUp { .. })), "{waited:?}");
        }
        assert_eq!(told.take(), ["s given up after 20ms"]);
        assert!(health.waited(async { Ok(()) }).await.is_err());
    }

    #[tokio::test]
    async fn who_is_not_asked_to_tell_waits_without_a_clock() {
        let health = Health::new("s".into(), None, None);
        assert_eq!(health.look(Instant::now() + limits::DELAY_PATIENCE), WaitStep::Wait);
        assert!(health.waited(async { Ok(()) }).await.is_ok());
    }
}
