//! The log in steps, without threads and without a clock, for simulations.
//!
//! [`Log::start_stepped`](crate::Log::start_stepped) returns a [`Stepper`] instead of starting threads. [`Stepper::write`] and
//! [`Stepper::checkpoint`] run the code of the writer and of the checkpoint thread up to the next point at which these might
//! wait, and return what they would wait for. The caller chooses which step is next. The same choices with the same device
//! and the same [`Config::seed`](crate::Config::seed) write the same bytes.
//!
//! What differs from the threads, and why:
//! - a gate that waits for open transactions opens again at once, because the caller of the steps has them open; the next
//!   step closes it again (the writer does that after [`GATE_WAIT_MAX`](crate::limits::GATE_WAIT_MAX));
//! - company and announced requests are waited for during one step, not for a time;
//! - a checkpoint is due when the ring is half full or when it is asked for, never by time;
//! - a transaction joins a full batch at once if another one is open in it.
//!
//! These wait for threads and must not be called on such a log: [`Log::checkpoint_now`](crate::Log::checkpoint_now),
//! [`Log::shutdown`](crate::Log::shutdown), [`Log::admit`](crate::Log::admit) and its blocking form, a ticket's waits. Use
//! instead: [`Stepper::ask_checkpoint`], [`Stepper::stop`], [`Stepper::admit`], and [`Ticket::request`] with
//! [`Ticket::poll_now`].

use std::sync::Arc;

use crate::admit::{Pressure, pressure};
use crate::checkpoint::Checkpointer;
use crate::core::Core;
use crate::error::LogError;
use crate::lead;
use crate::step::{Did, Step, Wait};
use crate::ticket::Ticket;
use crate::watch::Watch;
use crate::writer::Writer;

pub struct Stepper {
    core: Arc<Core>,
    writer: Writer,
    checkpointer: Checkpointer,
    watch: Watch,
}

impl Stepper {
    pub(crate) fn new(core: Arc<Core>, writer: Writer, checkpointer: Checkpointer, watch: Watch) -> Stepper {
        Stepper { core, writer, checkpointer, watch }
    }

    pub fn write(&mut self) -> Step {
        let step = self.writer.step();
        match step {
            Step::Blocked(Wait::Gate) => self.core.open_gate(),
            Step::Blocked(Wait::Requests) => self.writer.stop_waiting_for_requests(),
            _ => {}
        }
        step
    }

    /// One step of the checkpoint thread.
    pub fn checkpoint(&mut self) -> Step {
        self.checkpointer.step(None)
    }

    /// Writes the batch of `ticket` as a leader, if nothing else is at work, as [`Ticket::wait`] does on fast devices.
    pub fn lead(&mut self, ticket: &Ticket) -> Step {
        if lead::lead(&self.core, ticket.outcome()) { Step::Did(Did::Led) } else { Step::Idle }
    }

    /// Asks for a checkpoint that covers everything committed before. It is complete when [`Stepper::covered`] is true.
    pub fn ask_checkpoint(&self) {
        self.core.state.lock().ask_checkpoint();
    }

    /// One look of the watch thread: why the log is lost, if it is. The writer makes a new one in its next steps.
    pub fn look(&self, contents: bool) -> Option<String> {
        self.watch.look_once(contents)
    }

    /// Whether no transaction may begin, because a lost log is being replaced.
    pub fn gate_closed(&self) -> bool {
        self.core.state.lock().sealing
    }

    pub fn covered(&self) -> bool {
        self.core.state.lock().checkpoint_target().is_none()
    }

    /// One step of [`Log::shutdown`](crate::Log::shutdown).
    pub fn stop(&mut self) -> Step {
        self.core.stop()
    }

    /// What [`Log::admit`](crate::Log::admit) would do now.
    pub fn admit(&self) -> Result<Pressure, LogError> {
        let state = self.core.state.lock();
        state.check_open()?;
        Ok(pressure(&state.fill(&self.core)))
    }
}

impl std::fmt::Debug for Stepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stepper")
    }
}
