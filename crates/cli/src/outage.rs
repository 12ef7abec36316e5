//! Servers that do not answer: what is said of them, once for each outage, and when they are given up.

use crate::progress;
use landfast_client::SessionOptions;
use landfast_client::limits;
use landfast_client::outage::Watch;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Those that are silent, each with how many sessions say so.
static SILENT: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
/// One has become so.
static ANOTHER: Notify = Notify::const_new();

/// The exit status of a command whose server was given up.
const GIVEN_UP: i32 = 1;

/// The options of a command's session: a server that was there once is waited for for ever, or for `timeout`.
pub fn watched(options: SessionOptions, timeout: Option<Duration>) -> SessionOptions {
    SessionOptions {
        reconnect_patience: Duration::MAX,
        refused_patience: limits::REFUSED_PATIENCE,
        reply_patience: timeout,
        watch: Some(Arc::new(Teller)),
        ..options
    }
}

/// Ends when a server is silent; its name.
pub async fn silence() -> String {
    loop {
        let another = ANOTHER.notified();
        tokio::pin!(another);
        another.as_mut().enable();
        let name = silent().keys().next().cloned();
        match name {
            Some(name) => return name,
            None => another.await,
        }
    }
}

fn silent() -> MutexGuard<'static, BTreeMap<String, usize>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Teller;

/// One more session says that it is silent; the first of them `says` so.
fn begins(server: &str, says: impl FnOnce()) {
    let mut silent = silent();
    let sessions = silent.entry(server.to_owned()).or_default();
    *sessions += 1;
    if *sessions == 1 {
        says();
        ANOTHER.notify_waiters();
    }
}

/// One session fewer; the last of them `says` so.
fn ends(server: &str, says: impl FnOnce()) {
    let mut silent = silent();
    let Some(sessions) = silent.get_mut(server) else { return };
    *sessions -= 1;
    if *sessions == 0 {
        silent.remove(server);
        says();
    }
}

impl Watch for Teller {
    fn silent(&self, server: &str) {
        begins(server, || eprintln!("landfast: server {server} not responding, still trying"));
    }

    fn answers(&self, server: &str) {
        ends(server, || eprintln!("landfast: server {server} OK"));
    }

    fn refuses(&self, server: &str, patience: Duration) {
        let seconds = patience.as_secs_f64();
        begins(server, || {
            eprintln!("landfast: server {server} refuses connections, trying again for {seconds} s");
        });
    }

    fn refuses_no_more(&self, server: &str, connected: bool) {
        ends(server, || {
            if connected {
                eprintln!("landfast: server {server} OK");
            }
        });
    }

    fn given_up(&self, server: &str, after: Duration) {
        let seconds = after.as_secs_f64();
        progress::end();
        eprintln!(
            "landfast: server {server} has not replied for {seconds} s: given up; what was under way may or may not be done"
        );
        // What waits could only fail, one by one.
        std::process::exit(GIVEN_UP);
    }
}
