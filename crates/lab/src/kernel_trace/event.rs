//! The tracer's text as events.
//!
//! A line is `COMM-TID [CPU] FLAGS SECONDS: EVENT`. The name of a thread may have blanks, hyphens and brackets in it, so a line is read from
//! its time: the first word that is a number with six decimals and a colon.

/// One event of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at_us: u64,
    /// The thread that did it. Of [`What::Woken`]: the one that woke it, which may be any of the machine.
    pub(crate) tid: u32,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Enter {
        call: String,
    },
    Exit {
        call: String,
        result: i64,
    },
    /// The processor goes from one thread to another. `waits`: the first one sleeps; otherwise it would go on.
    Switch {
        from: u32,
        to: u32,
        waits: bool,
    },
    Woken {
        tid: u32,
    },
}

pub(crate) fn events(text: &str) -> Vec<Event> {
    text.lines().filter_map(event).collect()
}

fn event(line: &str) -> Option<Event> {
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let time = words.find(|word| is_time(word))?;
    let at = line.find(&format!(" {time} "))?;
    let (head, rest) = (&line[..at], line[at + time.len() + 1..].trim_start());
    let at_us = time.trim_end_matches(':').replace('.', "").parse().ok()?;
    // `COMM-TID [CPU] FLAGS`: from the end.
    let before_cpu = &head[..head.rfind(" [")?];
    let tid = before_cpu.trim_end().rsplit('-').next()?.parse().ok()?;
    Some(Event { at_us, tid, what: what(rest)? })
}

fn is_time(word: &str) -> bool {
    let Some((seconds, micros)) = word.strip_suffix(':').and_then(|word| word.split_once('.')) else {
        return false;
    };
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    digits(seconds) && digits(micros) && micros.len() == 6
}

fn what(text: &str) -> Option<What> {
    if let Some(call) = text.strip_prefix("sys_") {
        if let Some((call, result)) = call.split_once(" -> ") {
            return Some(What::Exit { call: call.into(), result: number(result)? });
        }
        return Some(What::Enter { call: call.split('(').next()?.into() });
    }
    let field = |name: &str| {
        let value = text.split(&format!("{name}=")).nth(1)?;
        value.split_whitespace().next()
    };
    if text.starts_with("sched_switch:") {
        let (from, to) = (field(" prev_pid")?.parse().ok()?, field(" next_pid")?.parse().ok()?);
        return Some(What::Switch { from, to, waits: !field(" prev_state")?.starts_with('R') });
    }
    text.starts_with("sched_waking:").then(|| Some(What::Woken { tid: field(" pid")?.parse().ok()? }))?
}

/// A result as the tracer prints it: hexadecimal, of 64 bits.
fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(u64::cast_signed),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_trace_are_events() {
        let text = "\
# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
      landfast-1234    [001] .....  5012.000123: sys_pwrite64(fd: 5, buf: 7f00, count: 1000, pos: 4000)
      landfast-1234    [001] .....  5012.000323: sys_pwrite64 -> 0x1000
 my-odd [1] co-1235    [000] d..2.  5012.000400: sched_switch: prev_comm=my-odd [1] co prev_pid=1235 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
          <idle>-0       [000] d.h1.  5012.000410: sched_waking: comm=my-odd [1] co pid=1235 prio=120 target_cpu=000
      landfast-1234    [001] .....  5012.000500: sys_recvfrom -> 0xfffffffffffffff5
";
        let call = |name: &str| name.to_owned();
        let expected = [
            (5_012_000_123, 1234, What::Enter { call: call("pwrite64") }),
            (5_012_000_323, 1234, What::Exit { call: call("pwrite64"), result: 4096 }),
            (5_012_000_400, 1235, What::Switch { from: 1235, to: 0, waits: true }),
            (5_012_000_410, 0, What::Woken { tid: 1235 }),
            (5_012_000_500, 1234, What::Exit { call: call("recvfrom"), result: -11 }),
        ];
        assert_eq!(events(text), expected.map(|(at_us, tid, what)| Event { at_us, tid, what }));
    }

    #[test]
    fn a_thread_that_would_go_on_does_not_wait() {
        let line = "a-7 [000] d..2. 1.000000: sched_switch: prev_comm=a prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=8 next_prio=120";
        assert_eq!(events(line)[0].what, What::Switch { from: 7, to: 8, waits: false });
    }
}
