//! Which addresses may be dialled: `egress.allow` and `egress.deny`. Pure.
//!
//! The rule, in this order: what `deny` names is refused. A public address is good. Any other is good if `allow` names it, its
//! network or the host; one of cloud metadata only if `allow` names exactly it. An operator who writes an address into an
//! agent's own URL means it (`meant`), unless nobody can mean such an address. Everything else is refused.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::address::{Kind, forms, kind};

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    /// `10.0.0.0/8`, or one address.
    Net(IpNet),
    /// `agents.internal`
    Host(String),
    /// `*.internal`: every name below.
    Below(String),
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        if let Some(net) = text
            .parse()
            .ok()
            .or_else(|| text.parse::<IpAddr>().map(IpNet::from).ok())
        {
            return Some(Self::Net(net));
        }
        let name = text.trim_end_matches('.').to_ascii_lowercase();
        let (below, name) = match name.strip_prefix("*.") {
            Some(name) => (true, name.to_owned()),
            None => (false, name),
        };
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && label
                    .bytes()
                    .all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
        };
        // A name whose last part is a number would be read as an address.
        let ends_in_number = |name: &str| {
            name.rsplit('.')
                .next()
                .is_some_and(|last| last.bytes().all(|c| c.is_ascii_digit()))
        };
        if name.len() > 253 || !name.split('.').all(label) || ends_in_number(&name) {
            return None;
        }
        Some(if below { Self::Below(name) } else { Self::Host(name) })
    }

    fn names(&self, host: Option<&str>, address: IpAddr) -> bool {
        match self {
            Self::Net(net) => forms(address).any(|form| net.contains(&form)),
            Self::Host(_) | Self::Below(_) => host.is_some_and(|host| self.names_host(host)),
        }
    }

    fn names_host(&self, host: &str) -> bool {
        match self {
            Self::Net(_) => false,
            Self::Host(name) => name == host,
            Self::Below(name) => host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.')),
        }
    }

    /// Whether it is one address, and this one.
    fn is_exactly(&self, address: IpAddr) -> bool {
        let Self::Net(net) = self else { return false };
        net.prefix_len() == net.max_prefix_len() && forms(address).any(|form| form == net.addr())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) => net.fmt(f),
            Self::Host(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

/// What an entry of a list must be: completes "must be …".
pub(crate) const FORM: &str = "addresses, networks (10.0.0.0/8) or host names (agents.internal, *.internal)";

/// Why an address is refused, with the setting that says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// An entry of `egress.deny`.
    #[error("egress.deny has {0}")]
    Denied(String),
    /// The kind of the address.
    #[error("it is {0}; list it, its network or the host in egress.allow if that is meant")]
    Kind(Kind),
    /// Metadata.
    #[error("it is {}; only this very address in egress.allow opens it", Kind::Metadata)]
    Metadata,
}

/// The two lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    allow: Vec<Entry>,
    deny: Vec<Entry>,
}

impl Rules {
    /// Reads the lists.
    ///
    /// # Errors
    /// The first entry that is none.
    pub fn parse(allow: &[String], deny: &[String]) -> Result<Self, String> {
        Ok(Self {
            allow: entries(allow)?,
            deny: entries(deny)?,
        })
    }

    /// The entry of `deny` that refuses a host whatever its address is.
    pub(super) fn denied_host(&self, host: &str) -> Option<Reason> {
        let entry = self.deny.iter().find(|entry| entry.names_host(host))?;
        Some(Reason::Denied(entry.to_string()))
    }

    /// Judges an address: that of `host`, or one that stands in the URL itself.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, host: Option<&str>, address: IpAddr, meant: bool) -> Result<(), Reason> {
        if let Some(entry) = self.deny.iter().find(|entry| entry.names(host, address)) {
            return Err(Reason::Denied(entry.to_string()));
        }
        match kind(address) {
            Kind::Public => Ok(()),
            Kind::Metadata if self.allow.iter().any(|entry| entry.is_exactly(address)) => Ok(()),
            Kind::Metadata => Err(Reason::Metadata),
            kind if meant && kind.is_a_place() => Ok(()),
            _ if self.allow.iter().any(|entry| entry.names(host, address)) => Ok(()),
            kind => Err(Reason::Kind(kind)),
        }
    }
}

fn entries(texts: &[String]) -> Result<Vec<Entry>, String> {
    let entry = |text: &String| Entry::parse(text.trim()).ok_or_else(|| text.clone());
    texts.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Rules {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Rules::parse(&owned(allow), &owned(deny)).unwrap()
    }

    fn good(rules: &Rules, host: &str, address: &str) -> bool {
        rules.judge(Some(host), address.parse().unwrap(), false).is_ok()
    }

    #[test]
    fn an_entry_is_an_address_a_network_or_a_name() {
        for text in [
            "10.0.0.1",
            "10.0.0.0/8",
            "fd00::/8",
            "::1",
            "localhost",
            "a.b-c.example",
            "*.internal",
            "A.Example.",
        ] {
            assert!(Entry::parse(text).is_some(), "{text}");
        }
        for text in [
            "",
            "*",
            "*.",
            "a..b",
            "10.0.0.0/33",
            "10.0.0",
            "0x7f.1",
            "http://h",
            "h:80",
            "-a",
            "a b",
            "*.*.a",
            "256.1.1.1",
        ] {
            assert!(Entry::parse(text).is_none(), "{text}");
        }
        assert_eq!(Rules::parse(&["x y".to_owned()], &[]), Err("x y".to_owned()));
    }

    #[test]
    fn what_is_not_public_needs_an_entry() {
        let none = Rules::default();
        assert!(good(&none, "h", "1.1.1.1"));
        assert!(!good(&none, "h", "10.1.2.3"));
        for entry in ["10.1.2.3", "10.0.0.0/8", "h", "*.internal"] {
            let rules = rules(&[entry], &[]);
            let host = if entry == "*.internal" { "a.internal" } else { "h" };
            assert!(good(&rules, host, "10.1.2.3"), "{entry}");
            assert!(good(&rules, host, "::ffff:10.1.2.3"), "{entry}");
            assert!(!good(&rules, "other", "192.168.0.1"), "{entry}");
        }
        assert!(!good(&rules(&["*.internal"], &[]), "internal", "10.0.0.1"));
        assert!(!good(&rules(&["*.internal"], &[]), "eviliinternal", "10.0.0.1"));
    }

    #[test]
    fn deny_wins_over_everything() {
        let by_net = rules(&["10.0.0.0/8", "h"], &["10.9.0.0/16"]);
        assert!(good(&by_net, "h", "10.8.0.1") && !good(&by_net, "h", "10.9.0.1"));
        assert!(!good(&by_net, "h", "64:ff9b::a09:1"));
        let by_name = rules(&["10.0.0.0/8"], &["*.evil.example"]);
        assert!(!good(&by_name, "a.evil.example", "1.1.1.1"));
        assert!(by_name.denied_host("a.evil.example").is_some() && by_name.denied_host("evil.example").is_none());
        let own = rules(&[], &["127.0.0.0/8"]);
        assert!(own.judge(None, "127.0.0.1".parse().unwrap(), true).is_err());
    }

    #[test]
    fn metadata_is_opened_by_its_very_address_only() {
        let address = "169.254.169.254";
        for entry in [
            "169.254.0.0/16",
            "0.0.0.0/0",
            "h",
            "169.254.169.253",
            "169.254.169.254/31",
        ] {
            assert!(!good(&rules(&[entry], &[]), "h", address), "{entry}");
        }
        for entry in ["169.254.169.254", "169.254.169.254/32"] {
            assert!(good(&rules(&[entry], &[]), "h", address), "{entry}");
            assert!(good(&rules(&[entry], &[]), "h", "::ffff:169.254.169.254"), "{entry}");
        }
        assert!(Rules::default().judge(None, address.parse().unwrap(), true).is_err());
    }

    #[test]
    fn an_operator_means_the_address_in_an_agents_url() {
        let judge = |address: &str| Rules::default().judge(None, address.parse().unwrap(), true).is_ok();
        for address in ["127.0.0.1", "10.0.0.1", "192.168.1.1", "::1", "fd12::1", "100.64.0.1"] {
            assert!(judge(address), "{address}");
        }
        for address in [
            "169.254.1.1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "fd00:ec2::254",
        ] {
            assert!(!judge(address), "{address}");
        }
    }

    #[test]
    fn a_refusal_names_the_rule_and_the_setting() {
        let say = |rules: &Rules, address: &str| {
            rules
                .judge(Some("h"), address.parse().unwrap(), false)
                .unwrap_err()
                .to_string()
        };
        assert!(
            say(&Rules::default(), "10.0.0.1")
                .contains("private network; list it, its network or the host in egress.allow")
        );
        assert!(say(&rules(&[], &["1.0.0.0/8"]), "1.1.1.1").contains("egress.deny has 1.0.0.0/8"));
        assert!(say(&Rules::default(), "169.254.169.254").contains("only this very address in egress.allow"));
    }
}
