//! What a server says of itself in its metrics, read while it works.

use crate::error::{Context, Error, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

pub(crate) fn page(addr: SocketAddr) -> Result<String> {
    let what = || format!("metrics at {addr}");
    let mut connection = TcpStream::connect(addr).context(what)?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).context(what)?;
    let mut text = String::new();
    connection.read_to_string(&mut text).context(what)?;
    Ok(text)
}

/// The values of a metric, one for each of its labels.
fn values<'a>(page: &'a str, name: &'a str) -> impl Iterator<Item = f64> + 'a {
    page.lines().filter_map(move |line| {
        let rest = line.strip_prefix("landfast_")?.strip_prefix(name)?;
        let value = if rest.starts_with('{') { rest.split_once("} ")?.1 } else { rest.strip_prefix(' ')? };
        value.trim().parse().ok()
    })
}

/// The first value of a metric, whatever its labels.
pub(crate) fn value(page: &str, name: &str) -> Result<f64> {
    let none = || Error::Protocol(format!("no figure landfast_{name} in the metrics"));
    values(page, name).next().ok_or_else(none)
}

/// Calls that the server has answered, of all programs.
pub(crate) fn calls(page: &str) -> f64 {
    values(page, "request_seconds_count").sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_with_and_without_labels() {
        let page = "# TYPE landfast_a counter\nlandfast_a_total 3\nlandfast_ab{x=\"} \"} 5\nlandfast_b{e=\"/x\"} 7.5\n";
        assert_eq!(value(page, "a_total").unwrap(), 3.0);
        assert_eq!(value(page, "b").unwrap(), 7.5);
        assert!(value(page, "c").is_err());
    }

    #[test]
    fn calls_are_those_of_all_programs() {
        let count = |program, n| format!("landfast_request_seconds_count{{program=\"{program}\"}} {n}\n");
        let page = format!("landfast_request_seconds_sum 7\n{}{}", count("nfs3", 4), count("nfs4", 5));
        assert_eq!(calls(&page), 9.0);
        assert_eq!(calls(""), 0.0);
    }
}
