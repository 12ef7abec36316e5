//! Messages about servers that do not answer, once for each outage; ends the command when one is given up.

use crate::progress;
use landfast_client::SessionOptions;
use landfast_client::limits;
use landfast_client::outage::Watch;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Servers that are silent, each with the number of sessions that say so.
static SILENT: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
/// Notified when a server becomes silent.
static ANOTHER: Notify = Notify::const_new();

const GIVEN_UP: i32 = 1;

/// The options of a command's session: it waits for a server for ever, or for `timeout`, once it was connected.
pub fn with_messages(options: SessionOptions, timeout: Option<Duration>) -> SessionOptions {
    SessionOptions {
        reconnect_patience: Duration::MAX,
        refused_patience: limits::REFUSED_PATIENCE,
        reply_patience: timeout,
        watch: Some(messages()),
        ..options
    }
}

/// Prints when a server is silent and when it answers again.
pub fn messages() -> Arc<dyn Watch> {
    Arc::new(Messages)
}

/// Waits until a server is silent, and returns its name.
pub async fn silent_server() -> String {
    loop {
        let another = ANOTHER.notified();
        tokio::pin!(another);
        another.as_mut().enable();
        let name = SILENT.lock().keys().next().cloned();
        match name {
            Some(name) => return name,
            None => another.await,
        }
    }
}

#[derive(Debug)]
struct Messages;

/// Counts one more session that is silent; for the first one of a server calls `print`.
fn becomes_silent(server: &str, print: impl FnOnce()) {
    let mut silent = SILENT.lock();
    let sessions = silent.entry(server.to_owned()).or_default();
    *sessions += 1;
    if *sessions == 1 {
        print();
        ANOTHER.notify_waiters();
    }
}

/// Counts one session fewer; for the last one of a server calls `print`.
fn answers_again(server: &str, print: impl FnOnce()) {
    let mut silent = SILENT.lock();
    let Some(sessions) = silent.get_mut(server) else { return };
    *sessions -= 1;
    if *sessions == 0 {
        silent.remove(server);
        print();
    }
}

impl Watch for Messages {
    fn silent(&self, server: &str) {
        becomes_silent(server, || eprintln!("landfast: server {server} not responding, still trying"));
    }

    fn answers(&self, server: &str) {
        answers_again(server, || eprintln!("landfast: server {server} OK"));
    }

    fn refuses(&self, server: &str, patience: Duration) {
        let seconds = patience.as_secs_f64();
        becomes_silent(server, || {
            eprintln!("landfast: server {server} refuses connections, trying again for {seconds} s");
        });
    }

    fn refuses_no_more(&self, server: &str, connected: bool) {
        answers_again(server, || {
            if connected {
                eprintln!("landfast: server {server} OK");
            }
        });
    }

    fn given_up(&self, server: &str, after: Duration) {
        let seconds = after.as_secs_f64();
        progress::end();
        eprintln!(
            "landfast: server {server} has not replied for {seconds} s: giving up; requests in flight may or may not have been executed"
        );
        // Requests that wait could only fail, one by one.
        std::process::exit(GIVEN_UP);
    }
}
