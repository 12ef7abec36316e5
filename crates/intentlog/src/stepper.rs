//! The log in steps, without threads and without a clock, for simulations.
//!
//! [`Log::start_stepped`](crate::Log::start_stepped) gives a [`Stepper`] in place of the two threads. Each call of
//! [`Stepper::write`] and [`Stepper::checkpoint`] does what the writer and the checkpoint thread do between two moments at which
//! they might wait, by the same code; where a thread would wait it returns and says for what. Which step comes next is the
//! caller's choice, and with the same choices, the same device and the same [`Config::seed`](crate::Config::seed) the same bytes
//! are written.
//!
//! What differs from the threads, and why:
//! - a gate that open transactions keep from being sealed is opened again at once, since whoever has them open is the one
//!   who takes the steps; the next step closes it anew (the writer does that after
//!   [`GATE_WAIT_MAX`](crate::limits::GATE_WAIT_MAX));
//! - company and requests in hand are waited for during one step, not for a time;
//! - a checkpoint is due when the ring is half full or when it is asked for, never by time;
//! - a transaction that begins in a full batch beside another joins it at once.
//!
//! Not to be called on such a log, as they wait for threads: [`Log::checkpoint_now`](crate::Log::checkpoint_now),
//! [`Log::shutdown`](crate::Log::shutdown), [`Log::admit`](crate::Log::admit) and its blocking form, a ticket's waits. In their
//! place: [`Stepper::ask_checkpoint`], [`Stepper::stop`], [`Stepper::admit`], and [`Ticket::request`] with
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

/// The two threads of a log, to be run by hand.
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

    /// One step of the writer.
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

    /// A waiter writes the batch of `ticket` itself, if nobody else is at work, as [`Ticket::wait`] does on fast devices.
    pub fn lead(&mut self, ticket: &Ticket) -> Step {
        if lead::lead(&self.core, ticket.outcome()) { Step::Did(Did::Led) } else { Step::Idle }
    }

    /// Asks for a checkpoint that covers everything committed before: complete when [`Stepper::covered`] says so.
    pub fn ask_checkpoint(&self) {
        self.core.state.lock().ask_checkpoint();
    }

    /// What the thread that looks for the log does, but for waiting for the writer, which makes a new one in its next steps: `Some` if
    /// it is lost, and why.
    pub fn look(&self, contents: bool) -> Option<String> {
        self.watch.look_once(contents)
    }

    /// Whether nobody may begin a transaction: a lost log is being replaced, step by step.
    pub fn gate_closed(&self) -> bool {
        self.core.state.lock().sealing
    }

    /// Nothing is logged that no checkpoint covers.
    pub fn covered(&self) -> bool {
        self.core.state.lock().checkpoint_target().is_none()
    }

    /// One step of [`Log::shutdown`](crate::Log::shutdown): no new transactions, those open finish, a checkpoint, the mark.
    pub fn stop(&mut self) -> Step {
        self.core.stop()
    }

    /// What [`Log::admit`](crate::Log::admit) would do now.
    ///
    /// # Errors
    /// As that.
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
