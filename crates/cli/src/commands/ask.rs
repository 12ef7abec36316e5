//! Asks questions on standard error and reads the answers from standard input, as GNU's tools do; and `rm`'s options for it.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// Asks one question at a time. A thread of its own reads the answers, so that a signal can end the wait for one.
#[derive(Default)]
pub struct Answers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    reader: bool,
    /// The reader is to read a line.
    wanted: bool,
    answer: Option<bool>,
    stopped: bool,
}

impl Answers {
    /// Asks and returns the answer. Everything that is not a yes, also the end of input, is a no. Waits until there is
    /// an answer, or until [`Answers::stop`].
    pub fn ask(self: &Arc<Self>, question: &str) -> bool {
        let mut state = self.state.lock();
        if state.stopped {
            return false;
        }
        if !state.reader {
            let answers = self.clone();
            // Nobody joins this thread: a signal ends the wait for an answer, but nothing can end the read.
            let started = std::thread::Builder::new().name("answers".into()).spawn(move || answers.read());
            if started.is_err() {
                return false;
            }
            state.reader = true;
        }
        eprint!("{question}");
        (state.wanted, state.answer) = (true, None);
        self.changed.notify_all();
        loop {
            if state.stopped {
                eprintln!();
                return false;
            }
            if let Some(answer) = state.answer.take() {
                return answer;
            }
            self.changed.wait(&mut state);
        }
    }

    /// From now on the answer to every question is no.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    fn read(&self) {
        loop {
            let mut state = self.state.lock();
            while !state.wanted {
                self.changed.wait(&mut state);
            }
            state.wanted = false;
            drop(state);
            let answer = is_yes();
            self.state.lock().answer = Some(answer);
            self.changed.notify_all();
        }
    }
}

/// Whether the next line of standard input is a yes, as in the C locale.
pub fn is_yes() -> bool {
    let mut answer = Vec::new();
    let read = std::io::BufRead::read_until(&mut std::io::stdin().lock(), b'\n', &mut answer);
    read.is_ok() && matches!(answer.first(), Some(b'y' | b'Y'))
}

/// When `rm` asks, and whether a missing operand is an error. Of -f, -i, -I and --interactive the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asking {
    /// A missing operand is no error.
    pub force: bool,
    pub when: Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Ask {
    #[default]
    #[value(alias = "no", alias = "none")]
    Never,
    /// Once, before more than three operands or a whole tree are removed.
    Once,
    /// Before each object.
    #[value(alias = "yes")]
    Always,
}

impl Args for Asking {
    fn augment_args(command: Command) -> Command {
        let flag = |id: &'static str, letter, help| {
            let arg = Arg::new(id).short(letter).action(ArgAction::SetTrue).overrides_with(id);
            arg.help(help)
        };
        command
            .arg(flag("force", 'f', "Ignore nonexistent files and arguments, and do not ask").long("force"))
            .arg(flag("each", 'i', "Ask before each object"))
            .arg(flag("once", 'I', "Ask once before more than three arguments, or recursively, are removed"))
            .arg(
                Arg::new("interactive")
                    .long("interactive")
                    .value_name("WHEN")
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("always")
                    .value_parser(clap::value_parser!(Ask))
                    .action(ArgAction::Append)
                    .help("Ask: never, once (-I) or always (-i)"),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Asking::augment_args(command)
    }
}

impl FromArgMatches for Asking {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Asking, clap::Error> {
        let mut said: Vec<(usize, Said)> = Vec::new();
        let flags =
            [("force", Said::Force), ("each", Said::Ask(Ask::Always)), ("once", Said::Ask(Ask::Once))];
        for (id, what) in flags {
            if matches.get_flag(id) {
                said.extend(matches.indices_of(id).into_iter().flatten().map(|at| (at, what)));
            }
        }
        let values = matches.get_many::<Ask>("interactive").into_iter().flatten();
        let places = matches.indices_of("interactive").into_iter().flatten();
        said.extend(places.zip(values).map(|(at, when)| (at, Said::Ask(*when))));
        said.sort_by_key(|(at, _)| *at);
        Ok(said.into_iter().fold(Asking::default(), |asking, (_, said)| match said {
            Said::Force => Asking { force: true, when: Ask::Never },
            Said::Ask(Ask::Never) => Asking { when: Ask::Never, ..asking },
            Said::Ask(when) => Asking { force: false, when },
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Asking::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Said {
    Force,
    Ask(Ask),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_option_counts() {
        let of = |words: &str| {
            let words = std::iter::once("rm").chain(words.split(' ').filter(|w| !w.is_empty()));
            let matches = Asking::augment_args(Command::new("rm")).get_matches_from(words);
            let Asking { force, when } = Asking::from_arg_matches(&matches).expect("they are all there");
            (force, when)
        };
        for (words, wanted) in [
            ("", (false, Ask::Never)),
            ("-f", (true, Ask::Never)),
            ("-i", (false, Ask::Always)),
            ("-if", (true, Ask::Never)),
            ("-fi", (false, Ask::Always)),
            ("-fifi", (false, Ask::Always)),
            ("-ifif", (true, Ask::Never)),
            ("-iI", (false, Ask::Once)),
            ("-Ii", (false, Ask::Always)),
            ("--interactive", (false, Ask::Always)),
            ("-f --interactive=once", (false, Ask::Once)),
            ("-f --interactive=never", (true, Ask::Never)),
            ("-f --interactive=yes --interactive=none", (false, Ask::Never)),
            ("-i --interactive=no", (false, Ask::Never)),
            ("--interactive=always -I --force", (true, Ask::Never)),
        ] {
            assert_eq!(of(words), wanted, "{words}");
        }
    }
}
