//! What `landfast trace --list` says of one file, read back.

/// A call as its line has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    frame: u64,
    /// Of the procedure, or of the operation that a COMPOUND was sent for.
    pub name: String,
    /// What stands behind the name.
    pub about: String,
    /// What the reply says instead of a result.
    pub error: Option<String>,
}

impl Call {
    /// Of a WRITE: where, how much, and how stable.
    pub fn write(&self) -> Option<(u64, u64, &str)> {
        let behind = |key: &str| self.about.split_once(key).map(|(_, rest)| rest.split(' '));
        let offset = behind("Offset: ")?.next()?.parse().ok()?;
        let mut rest = behind("Len: ")?;
        Some((offset, rest.next()?.parse().ok()?, rest.next()?))
    }
}

/// The calls to NFS in a listing, each with its reply: `FRAME SECONDS SECONDS FROM -> TO NFS LENGTH V3 NAME Call, ...` or `V4 Call NAME ...`,
/// and `V3 NAME Reply (Call In FRAME)...` or `V4 Reply (Call In FRAME) NAME ...`. An error is a line of another form, or a call without
/// its reply.
pub fn calls(listing: &str) -> Result<Vec<Call>, String> {
    let mut calls: Vec<Call> = Vec::new();
    let mut open: Vec<u64> = Vec::new();
    for line in listing.lines() {
        let of_nfs = add(line, &mut calls, &mut open).ok_or(format!("not the form of a listing: {line}"))?;
        if !of_nfs
            && !["MOUNT", "NFSACL", "NLM", "RPC"].iter().any(|other| line.contains(&format!(" {other} ")))
        {
            return Err(format!("neither NFS nor beside it: {line}"));
        }
    }
    match open.first() {
        Some(frame) => Err(format!("the call in frame {frame} has no reply")),
        None => Ok(calls),
    }
}

/// Takes one line; whether it is of NFS.
fn add(line: &str, calls: &mut Vec<Call>, open: &mut Vec<u64>) -> Option<bool> {
    let mut words = line.splitn(9, ' ');
    let mut next = || words.next();
    let frame: u64 = next()?.parse().ok()?;
    for seconds in [next()?, next()?] {
        // A frame may have been seen before the one that was written before it.
        let (whole, part) = seconds.trim_start_matches('-').split_once('.')?;
        let _: (u64, u64) = (whole.parse().ok()?, part.parse().ok().filter(|_| part.len() == 6)?);
    }
    let (_, arrow, _) = (next()?, next()?, next()?);
    let of_nfs = next()? == "NFS";
    let _: u64 = next()?.parse().ok().filter(|_| arrow == "->")?;
    let (version, rest) = next()?.split_once(' ')?;
    if !of_nfs {
        return Some(false);
    }
    let (first, behind) = rest.split_once(' ').unwrap_or((rest, ""));
    // A COMPOUND's line has its name behind, as the operation that it was sent for; NULL's has it in front in each version.
    let compound = version == "V4" && first != "NULL";
    let said = if compound { rest } else { behind };
    if !["V3", "V4"].contains(&version) {
        return None;
    }
    if let Some(answer) = said.strip_prefix("Reply (Call In ") {
        let (number, error) = answer.split_once(')')?;
        let number: u64 = number.parse().ok()?;
        open.remove(open.iter().position(|frame| *frame == number)?);
        let call = calls.iter_mut().rev().find(|call| call.frame == number)?;
        let error = error.split_once("Error: ").or_else(|| error.split_once("Status: "));
        call.error = error.map(|(_, status)| status.to_owned());
    } else {
        let about = said.strip_prefix("Call")?.trim_start_matches(',').trim_start();
        let (name, about) =
            if compound { about.split_once(' ').unwrap_or((about, "")) } else { (first, about) };
        open.push(frame);
        calls.push(Call { frame, name: name.to_owned(), about: about.to_owned(), error: None });
    }
    Some(true)
}

/// What was called for a file, as a shape names it: `LOOKUP(NFS3ERR_NOENT)`, `CREATE`, ...
pub fn sequence(calls: &[Call]) -> Vec<String> {
    let step = |call: &Call| match &call.error {
        Some(status) => format!("{}({status})", call.name),
        None => call.name.clone(),
    };
    calls.iter().map(step).collect()
}

/// A shape's sequence, call by call: `SETATTR* x3` are three.
pub fn expanded(shape: &str) -> Vec<String> {
    let mut all = Vec::new();
    for part in shape.split(", ") {
        let (step, times) = match part.rsplit_once(" x").map(|(step, times)| (step, times.parse())) {
            Some((step, Ok(times))) => (step, times),
            _ => (part, 1),
        };
        all.extend(std::iter::repeat_n(step.replace('*', ""), times));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const V3: &str = "\
70 0.000100 0.490000 10.0.2.15 -> 10.0.2.2 NFS 186 V3 LOOKUP Call, DH: 0x7c14a4fd/33k
72 0.000214 0.490780 10.0.2.2 -> 10.0.2.15 NFS 186 V3 LOOKUP Reply (Call In 70) Error: NFS3ERR_NOENT
73 0.000214 0.490880 10.0.2.15 -> 10.0.2.2 NFSACL 186 V3 GETACL Call
104 0.000005 0.514172 10.0.2.15 -> 10.0.2.2 NFS 682 V3 WRITE Call, FH: 0xa1b3d772 Offset: 0 Len: 33792 FILE_SYNC
107 0.001854 0.516669 10.0.2.2 -> 10.0.2.15 NFS 206 V3 WRITE Reply (Call In 104) Len: 33792 FILE_SYNC
";
    const V4: &str = "\
8 0.000254 0.597205 10.0.2.15 -> 10.0.2.2 NFS 110 V4 NULL Call
9 0.000254 0.597459 10.0.2.2 -> 10.0.2.15 NFS 94 V4 NULL Reply (Call In 8)
73 0.000814 0.418621 10.0.2.15 -> 10.0.2.2 NFS 258 V4 Call LOOKUP DH: 0xc7e373cb/a
74 0.000663 0.419284 10.0.2.2 -> 10.0.2.15 NFS 166 V4 Reply (Call In 73) LOOKUP Status: NFS4ERR_NOENT
82 0.001110 0.466208 10.0.2.15 -> 10.0.2.2 NFS 266 V4 Call CLOSE StateID: 0x9b64
83 0.000244 0.466453 10.0.2.2 -> 10.0.2.15 NFS 246 V4 Reply (Call In 82) CLOSE
";

    #[test]
    fn both_versions_are_read_back() {
        let of_3 = calls(V3).expect("a listing");
        assert_eq!(sequence(&of_3), ["LOOKUP(NFS3ERR_NOENT)", "WRITE"]);
        assert_eq!(of_3[1].write(), Some((0, 33792, "FILE_SYNC")));
        assert_eq!(of_3[0].write(), None);
        let of_4 = calls(V4).expect("a listing");
        assert_eq!(sequence(&of_4), ["NULL", "LOOKUP(NFS4ERR_NOENT)", "CLOSE"]);
        assert_eq!(of_4[2].about, "StateID: 0x9b64");
    }

    #[test]
    fn other_forms_are_errors() {
        for (from, to) in [
            ("0.000100", "0.0001"),
            ("->", "to"),
            ("Call In 70", "Call In 71"),
            ("V3 WRITE Call", "V3 WRITE"),
        ] {
            assert!(calls(&V3.replacen(from, to, 1)).is_err(), "{to}");
        }
        assert!(calls(V3.rsplit_once("107").expect("a reply").0).is_err());
    }

    #[test]
    fn a_shape_is_a_sequence() {
        let wanted = ["LOOKUP(NFS3ERR_NOENT)", "CREATE", "SETATTR", "SETATTR"];
        assert_eq!(expanded("LOOKUP(NFS3ERR_NOENT), CREATE*, SETATTR* x2"), wanted);
    }
}
