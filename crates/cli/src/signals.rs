//! Signals that end a command.

use crate::{outage, progress};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// How long what is under way may take to end before that is said.
const SAID_AFTER: Duration = Duration::from_secs(1);
/// The exit status of what a signal has ended.
const INTERRUPTED: i32 = 130;

/// For a command on a server: the first SIGINT or SIGTERM calls `stop`, which ends the work after what is under way; a second one ends
/// the process, and so does the silence of a server, since what is under way would never end. Must be called in a runtime.
pub fn stop_after_what_is_under_way(name: &'static str, stop: impl FnOnce() + Send + 'static) {
    // From here on, not when the task is first run.
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
                server = outage::silence() => break format!("interrupted, and server {server} does not respond"),
                () = sleep(SAID_AFTER), if !said => {
                    said = true;
                    eprintln!("{name}: interrupted: waiting for what is under way; again to end at once");
                }
            }
        };
        progress::end();
        eprintln!("{name}: {why}: what was under way may or may not be done");
        std::process::exit(INTERRUPTED);
    });
}

/// The first signal sets `stop`, which ends the work after what is under way; the second ends the process.
pub fn stop_on_signals(stop: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                if stop.swap(true, Ordering::AcqRel) {
                    std::process::exit(130);
                }
            }
        });
    })?;
    Ok(())
}
