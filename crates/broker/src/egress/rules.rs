//! Which hosts a box may reach; pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use address::{HostKind, Refused, Written, check_host, check_ip};

use crate::connect::Reach;

/// Where a host is reached that was listed without a port.
const PORTS: [u16; 2] = [443, 80];

/// What a session may reach beside its model and its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    /// Names and addresses, exactly these. One may carry a port; without one, 443 and 80 are meant.
    Hosts(Vec<String>),
    /// Whatever is public, on any port.
    Any,
}

/// An entry of a list that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} is no host")]
pub struct BadAllow {
    pub entry: String,
    #[source]
    pub reason: Refused,
}

#[derive(Debug)]
pub(super) struct Rules {
    any: bool,
    names: Vec<(String, Option<u16>)>,
    /// Those that are meant although they are not public.
    addresses: Vec<(IpAddr, Option<u16>)>,
}

impl Rules {
    pub(super) fn new(allow: &Allow) -> Result<Self, BadAllow> {
        let mut rules = Self { any: false, names: Vec::new(), addresses: Vec::new() };
        let hosts = match allow {
            Allow::Any => {
                rules.any = true;
                return Ok(rules);
            }
            Allow::Hosts(hosts) => hosts,
        };
        for entry in hosts {
            let (host, port) = split(entry);
            let host = normal(host);
            let kind = check_host(&host, true).map_err(|reason| BadAllow { entry: entry.clone(), reason })?;
            match kind {
                HostKind::Address(ip) => rules.addresses.push((ip, port)),
                HostKind::Name => rules.names.push((host, port)),
                HostKind::Localhost => {
                    rules.names.push((host, port));
                    rules.addresses.push((Ipv4Addr::LOCALHOST.into(), port));
                    rules.addresses.push((Ipv6Addr::LOCALHOST.into(), port));
                }
            }
        }
        Ok(rules)
    }

    /// Before a name is resolved. `Err` says why not, to whoever sits in the box.
    pub(super) fn check(&self, host: &str, port: u16) -> Result<(), String> {
        let host = normal(host);
        let kind = check_host(&host, true).map_err(|refused| match refused {
            Refused::Metadata(_) => format!("{host} is an address to which no box connects"),
            Refused::OddSpelling { .. }
            | Refused::NotAHost(_)
            | Refused::Loopback(_)
            | Refused::Private(_) => format!("{host:?} is no host as it is written"),
        })?;
        if let HostKind::Address(ip) = kind {
            let listed = lists(&self.addresses, &ip, port);
            let public = self.any && check_ip(ip, Written::Other, false).is_ok();
            return if listed || public { Ok(()) } else { Err(advice(&host, port)) };
        }
        if self.any || lists(&self.names, &host, port) {
            return Ok(());
        }
        if self.names.iter().any(|(name, _)| *name == host) {
            return Err(format!("{host} may be reached on ports 443 and 80 only, not on {port}"));
        }
        Err(advice(&host, port))
    }
}

impl Reach for Rules {
    fn permits(&self, address: SocketAddr) -> Result<(), String> {
        let (ip, port) = (address.ip(), address.port());
        match check_ip(ip, Written::Other, false) {
            Ok(()) => Ok(()),
            Err(Refused::Metadata(_)) => Err(format!("it leads to {ip}, to which no box connects")),
            Err(_) if lists(&self.addresses, &ip, port) => Ok(()),
            Err(_) => Err(format!(
                "it leads to {ip}, which is no public address; if it is meant, write {ip} itself to `egress` in [sessions]"
            )),
        }
    }
}

fn lists<T: PartialEq>(entries: &[(T, Option<u16>)], host: &T, port: u16) -> bool {
    entries
        .iter()
        .any(|(other, only)| other == host && only.map_or_else(|| PORTS.contains(&port), |only| only == port))
}

fn advice(host: &str, port: u16) -> String {
    format!(
        "{host}:{port} is not among the hosts this session may reach; to allow it, add \"{host}\" to `egress` in [sessions]"
    )
}

/// As it is compared: in lower case, without the dot of a full name and the brackets of an address.
fn normal(host: &str) -> String {
    let bare = host.strip_suffix('.').filter(|bare| !bare.is_empty()).unwrap_or(host);
    bare.to_ascii_lowercase()
}

fn split(entry: &str) -> (&str, Option<u16>) {
    match entry.rsplit_once(':') {
        // More colons without brackets are those of an address.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse() {
            Ok(port) => (host, Some(port)),
            Err(_) => (entry, None),
        },
        Some(_) | None => (entry, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(hosts: &[&str]) -> Rules {
        Rules::new(&Allow::Hosts(hosts.iter().map(ToString::to_string).collect())).unwrap()
    }

    #[track_caller]
    fn check(rules: &Rules, host: &str, port: u16, allowed: bool) {
        let verdict = rules.check(host, port);
        assert_eq!(verdict.is_ok(), allowed, "{host}:{port} {verdict:?}");
    }

    #[test]
    fn exactly_what_is_listed_may_be_reached() {
        let rules = rules(&["example.org", "git.example.org:8443", "10.0.0.3", "[::1]:9000", "203.0.113.7"]);
        for (host, port) in [
            ("example.org", 443),
            ("example.org", 80),
            ("EXAMPLE.org.", 443),
            ("git.example.org", 8443),
            ("10.0.0.3", 443),
            ("[::1]", 9000),
        ] {
            check(&rules, host, port, true);
        }
        for (host, port) in [
            ("example.org", 22),
            ("example.org", 8443),
            ("git.example.org", 443),
            ("www.example.org", 443),
            ("evilexample.org", 443),
            ("example.org.evil.example", 443),
            ("example.org..", 443),
            ("10.0.0.4", 443),
            ("0x0a000003", 443),
            ("10.3", 443),
            ("[::ffff:10.0.0.3]", 443),
            ("[::1]", 443),
            ("127.0.0.1", 443),
            ("localhost", 443),
            ("169.254.169.254", 80),
            ("", 443),
            ("*", 443),
            ("example.org\0", 443),
        ] {
            check(&rules, host, port, false);
        }
    }

    #[test]
    fn open_is_what_is_public() {
        let rules = Rules::new(&Allow::Any).unwrap();
        check(&rules, "example.org", 22, true);
        check(&rules, "8.8.8.8", 53, true);
        for host in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "0x7f000001"] {
            check(&rules, host, 443, false);
        }
    }

    #[test]
    fn a_listed_name_leads_to_public_addresses_and_listed_ones() {
        let rules = rules(&["example.org", "10.0.0.3", "localhost:9000"]);
        let may = |address: &str| rules.permits(address.parse().unwrap()).is_ok();
        assert!(may("8.8.8.8:443") && may("10.0.0.3:443") && may("127.0.0.1:9000") && may("[::1]:9000"));
        for address in [
            "127.0.0.1:443",
            "10.0.0.3:8443",
            "10.0.0.4:443",
            "169.254.169.254:80",
            "[fe80::1]:80",
            "[::ffff:127.0.0.1]:443",
            "0.0.0.0:80",
        ] {
            assert!(!may(address), "{address}");
        }
    }

    #[test]
    fn entries_that_mean_nothing() {
        for entry in
            ["", "*.example.org", "https://example.org", "a b", "0x7f000001", "169.254.169.254", "a:b"]
        {
            let allow = Allow::Hosts(vec![entry.to_owned()]);
            assert_eq!(Rules::new(&allow).unwrap_err().entry, entry);
        }
    }
}
