//! Prints a report: tables and sentences.

use crate::trace::bound_words;
use crate::units::{show_bytes, show_count};
use landfast_model::Bound;
use landfast_probe::ask::Operation;
use landfast_probe::delegations::Delegation;
use landfast_probe::report::Report;
use landfast_probe::search::Operations;
use landfast_probe::times::Distribution;
use landfast_trace::analysis::words::part;
use std::io::{self, BufWriter, Write};

pub fn print(r: &Report, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    writeln!(out, "{}: NFS {} (offered: {})\n", r.url, r.version, r.versions.join(", "))?;
    writeln!(out, "milliseconds         calls       min    median  90th pct  99th pct       max      mean")?;
    for l in &r.latencies {
        line(&mut out, l.operation.name(), &l.times)?;
    }
    if let Some(connect) = &r.connect {
        line(&mut out, "(connecting)", connect)?;
    }
    rates(&mut out, r)?;
    writeln!(out)?;
    if let Some(operations) = &r.operations_per_compound {
        writeln!(out, "operations in a COMPOUND: {}", operations_taken(operations))?;
    }
    let d = &r.delegations;
    writeln!(out, "delegations: to read {}, to write {}", given(&d.read), given(&d.write))?;
    writeln!(
        out,
        "delegations: of times {}, in the place of opens {}, of directories {}",
        given(&d.times),
        given(&d.in_place_of_open),
        given(&d.directory)
    )?;
    writeln!(out, "delegations: of directories, to write in them {}", given(&d.write_directory))?;
    writeln!(out, "TLS: {}", if r.tls.offered { "offered" } else { "not offered" })?;
    match &r.bandwidth {
        Some(b) => writeln!(
            out,
            "bandwidth: {}{} a second, written unstable in {} with up to {} WRITEs under way",
            if b.at_least { "at least " } else { "" },
            show_bytes(b.upload_bytes_per_s as u64),
            show_bytes(b.bytes),
            b.in_flight
        )?,
        None => writeln!(out, "bandwidth: not measured")?,
    }
    verdict(&mut out, r)?;
    out.flush()
}

fn line(out: &mut impl Write, name: &str, d: &Distribution) -> io::Result<()> {
    let ms = |s: f64| format!("{:.3}", s * 1e3);
    writeln!(
        out,
        "{name:<18} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        show_count(d.calls),
        ms(d.min_s),
        ms(d.median_s),
        ms(d.p90_s),
        ms(d.p99_s),
        ms(d.max_s),
        ms(d.mean_s)
    )
}

fn rates(out: &mut impl Write, r: &Report) -> io::Result<()> {
    let mut levels: Vec<usize> = r.concurrency.iter().map(|c| c.in_flight).collect();
    levels.dedup();
    write!(out, "\ncalls a second with")?;
    for n in &levels {
        write!(out, " {n:>9}")?;
    }
    writeln!(out, " under way")?;
    for operation in [Operation::Getattr, Operation::Create] {
        write!(out, "{:<19}", operation.name())?;
        for rate in r.concurrency.iter().filter(|c| c.operation == operation) {
            write!(out, " {:>9}", show_count(rate.calls_per_s.round() as u64))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn operations_taken(o: &Operations) -> String {
    let taken = match (o.at_least, &o.refusal) {
        (true, _) => format!("{} taken, and more were not tried", show_count(o.taken.into())),
        (false, Some(why)) => format!("{} taken, more refused ({why})", show_count(o.taken.into())),
        (false, None) => format!("{} taken", show_count(o.taken.into())),
    };
    match o.promised {
        Some(n) if n > o.taken && !o.at_least => {
            format!("{} promised, but only {taken}", show_count(n.into()))
        }
        Some(n) => format!("{} promised, {taken}", show_count(n.into())),
        None => taken,
    }
}

fn given(d: &Delegation) -> String {
    match (&d.why, d.offered) {
        (_, true) => "offered".to_owned(),
        (Some(why), false) => format!("not offered ({why})"),
        (None, false) => "not offered".to_owned(),
    }
}

fn verdict(out: &mut impl Write, r: &Report) -> io::Result<()> {
    let (v, t) = (&r.verdict, &r.terms);
    let total = v.shares.total().max(f64::MIN_POSITIVE);
    let percent = |s: f64| format!("{:.0} %", 100.0 * s / total);
    let ms = |s: f64| format!("{:.2} ms", s * 1e3);
    let what = bound_words(v.bound, [v.first, v.runner_up]);
    writeln!(out, "\nVERDICT: small files are bound by {what}")?;
    writeln!(
        out,
        "A file of {} that tar -x makes on a mount from here takes {:.0} calls, one after another, about {}:",
        show_bytes(v.file.bytes as u64),
        v.file.calls,
        ms(total)
    )?;
    let synchronous = v.file.creates + v.file.writes + v.file.setattrs;
    for (bound, s) in v.shares.parts() {
        let of = match bound {
            Bound::Rtt => format!("{:.1} of {}", v.file.calls, ms(t.round_trip_s)),
            Bound::Persistence => {
                format!("{synchronous:.1} waits for stable storage, {} on average", ms(t.persistence_s))
            }
            Bound::Server => {
                format!("{} for a call that changes nothing", ms(t.server_s))
            }
            Bound::Bandwidth => "its bytes on their way".to_owned(),
            Bound::Client | Bound::Loss | Bound::Mixed => continue,
        };
        writeln!(out, "    {:>10}  {:>5}  {}: {of}", ms(s), percent(s), part(bound))?;
    }
    if let Some(device) = v.device {
        writeln!(out, "The wait for stable storage looks like this: {}.", device.words())?;
    }
    for remark in &v.remarks {
        writeln!(out, "Note: {}.", remark.text)?;
    }
    Ok(())
}
