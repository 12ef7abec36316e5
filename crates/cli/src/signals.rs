//! Signals that end a command.

use crate::{outage, progress};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// How long requests in flight may take until there is a message.
const MESSAGE_AFTER: Duration = Duration::from_secs(1);
pub const INTERRUPTED: i32 = 130;

/// For a command on a server: the first SIGINT or SIGTERM calls `stop`, which lets requests in flight finish. A second
/// signal ends the process, and so does a server that does not respond, since its requests would never finish. Must be
/// called in a runtime.
pub fn stop_gracefully(name: &'static str, stop: impl FnOnce() + Send + 'static) {
    // The signals are caught from here on, not from the task's first run on.
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop();
        let mut said = false;
        let why = loop {
            tokio::select! {
                _ = interrupt.recv() => break "interrupted again".to_owned(),
                _ = terminate.recv() => break "interrupted again".to_owned(),
                server = outage::silent_server() => break format!("interrupted, and server {server} does not respond"),
                () = sleep(MESSAGE_AFTER), if !said => {
                    said = true;
                    eprintln!("{name}: interrupted: waiting for requests in flight; interrupt again to exit at once");
                }
            }
        };
        progress::end();
        eprintln!("{name}: {why}: requests in flight may or may not have been executed");
        std::process::exit(INTERRUPTED);
    });
}

/// The first signal sets `stop`, which lets the work in progress finish; the second one ends the process.
pub fn stop_on_signals(stop: Arc<AtomicBool>) -> Result<(), String> {
    on_signals(move || {
        if stop.swap(true, Ordering::AcqRel) {
            std::process::exit(INTERRUPTED);
        }
    })
}

/// Calls `act` in a thread of its own at each SIGINT, SIGTERM and SIGHUP from here on.
pub fn on_signals(mut act: impl FnMut() + Send + 'static) -> Result<(), String> {
    let failed = |e: io::Error| format!("cannot wait for signals: {e}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let caught = {
        let _inside = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
    };
    let [interrupt, terminate, hangup] = caught;
    let (mut interrupt, mut terminate, mut hangup) =
        (interrupt.map_err(failed)?, terminate.map_err(failed)?, hangup.map_err(failed)?);
    let wait = move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                act();
            }
        });
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop).map_err(failed)
}
