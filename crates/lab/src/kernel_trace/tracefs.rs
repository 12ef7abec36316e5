//! An instance of the kernel's tracer (Documentation/trace/ftrace.rst), which other users of the tracer do not see.

use crate::error::{Context, Error, Result};
use rustix::mount::MountFlags;
use std::path::{Path, PathBuf};

/// Where tracefs is mounted.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Kibibytes of the buffer for each processor. An event takes about 50 bytes.
const BUFFER_KIB: u32 = 16 << 10;

/// The events that are traced, as directories below `events`.
const EVENTS: [&str; 3] = ["syscalls", "sched/sched_switch", "sched/sched_waking"];

/// Traces the threads of one process. Dropping it takes the instance away.
#[derive(Debug)]
pub(crate) struct Tracer {
    instance: PathBuf,
}

impl Tracer {
    /// Prepares to trace all threads of process `pid`, and those that it starts later. Call it on a thread of
    /// [`crate::namespace::run_private`]: it mounts tracefs if nobody has.
    pub(crate) fn new(pid: u32) -> Result<Tracer> {
        crate::machine::needs_root()?;
        if !Path::new(TRACEFS).join("instances").exists() {
            rustix::mount::mount("tracefs", TRACEFS, "tracefs", MountFlags::empty(), None).map_err(|e| {
                Error::Unable(format!("needs the kernel's tracepoints, but tracefs cannot be mounted: {e}"))
            })?;
        }
        let instance = Path::new(TRACEFS).join(format!("instances/landfast-{}", std::process::id()));
        std::fs::create_dir(&instance).context(|| format!("create {}", instance.display()))?;
        let tracer = Tracer { instance };
        for event in EVENTS {
            if !tracer.instance.join("events").join(event).exists() {
                return Err(Error::Unable(format!("needs the kernel's tracepoints `{event}`")));
            }
        }
        tracer.set("tracing_on", "0")?;
        tracer.set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        tracer.set("trace_clock", "mono")?;
        tracer.set("options/event-fork", "1")?;
        let tids = crate::machine::threads(pid)?;
        tracer.set("set_event_pid", &tids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))?;
        // Threads that these start.
        tracer.set("options/event-fork", "1")?;
        for event in EVENTS {
            tracer.set(&format!("events/{event}/enable"), "1")?;
        }
        Ok(tracer)
    }

    /// Runs `work` and returns what the kernel wrote down meanwhile.
    /// Errors: Those of `work`; when the buffer was too small for all events.
    pub(crate) fn during(&self, work: impl FnOnce() -> Result<()>) -> Result<String> {
        self.set("trace", "")?;
        self.set("tracing_on", "1")?;
        let done = work();
        self.set("tracing_on", "0")?;
        done?;
        let path = self.instance.join("trace");
        let text = std::fs::read(&path).context(|| format!("read {}", path.display()))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        if text.contains("LOST") || overwritten(&text) {
            return Err(Error::Unable(
                "more events than the kernel's buffer takes: trace fewer operations".into(),
            ));
        }
        Ok(text)
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.instance.join(file);
        std::fs::write(&path, value).context(|| format!("write `{value}` to {}", path.display()))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // An instance can be removed only while its events are off.
        let _ = self.set("events/enable", "0");
        let _ = std::fs::remove_dir(&self.instance);
    }
}

/// Whether the heading says that fewer entries are in the buffer than were written.
fn overwritten(text: &str) -> bool {
    let heading = text.lines().find_map(|line| line.strip_prefix("# entries-in-buffer/entries-written: "));
    let counts =
        heading.and_then(|counts| counts.split_whitespace().next()).and_then(|both| both.split_once('/'));
    counts.is_some_and(|(there, written)| there != written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_was_too_small_is_seen() {
        assert!(!overwritten("# tracer: nop\n#\n# entries-in-buffer/entries-written: 42/42   #P:2\n"));
        assert!(overwritten("# tracer: nop\n#\n# entries-in-buffer/entries-written: 42/57   #P:2\n"));
    }
}
