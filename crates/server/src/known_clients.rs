//! Whether any export names an address, before anything of it is read. This is cheap: it starts no look-up. Where host
//! names decide, the answer is "unknown" until a look-up that some call has started is done.

use crate::exports::Exports;
use crate::exports::rules::{Found, Names, Rules};
use crate::shared::Shared;
use landfast_rpc::Standing;
use std::net::IpAddr;

impl Shared {
    pub(crate) fn standing(&self, addr: IpAddr) -> Standing {
        let exports = self.exports();
        match of(&exports, addr, None) {
            Standing::Unknown => of(&exports, addr, self.names_now(addr).as_deref()),
            known => known,
        }
    }
}

fn of(exports: &Exports, addr: IpAddr, names: Option<&Names>) -> Standing {
    let of = |rules: &Rules| match rules.find(addr, names) {
        Found::Rule(_) => Standing::Named,
        Found::NeedsNames => Standing::Unknown,
        Found::None => Standing::Outsider,
    };
    exports.rules().map(of).max().unwrap_or(Standing::Outsider)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::admit;
    use crate::exports::caller::Admission;
    use crate::exports::rules::{ClientSpec, Rule};
    use crate::exports::unavailable::Unavailable;

    /// It waits until its export is there again; an outsider would be told no.
    #[test]
    fn a_client_of_an_export_that_cannot_be_served_now_is_no_outsider() {
        let of = Unavailable {
            path: "/srv/b".into(),
            name: "/b".into(),
            rules: Rules(vec![Rule::new(vec![ClientSpec::parse("192.0.2.7").expect("an address")])]),
            manage_gids: false,
            log_bytes: None,
            why: "damaged".into(),
        };
        let exports = Exports::new(Vec::new(), vec![of], [0; 16], Vec::new()).expect("a table");
        let (named, other) = (IpAddr::from([192, 0, 2, 7]), IpAddr::from([192, 0, 2, 8]));
        assert_eq!(super::of(&exports, named, None), Standing::Named);
        assert_eq!(super::of(&exports, other, None), Standing::Outsider);
        assert_eq!(admit(&exports, named, 700, None), Admission::Taken);
        assert!(matches!(admit(&exports, other, 700, None), Admission::Refused(_)));
    }
}
