//! Which remote servers `wrap` can stand in for, as far as the configuration shows.

use std::net::IpAddr;

use super::{Headers, NO_OAUTH};

/// A remote server without any header of its own either is open to all or has the host log in. The host
/// finds out by asking the server; we do not ask anybody, so we leave it alone.
pub(super) fn check(address: &str, headers: &Headers) -> Result<(), String> {
    let host = host(address);
    match host {
        // Filled in by the host when it starts the server.
        Some(host) if host.contains('$') => {}
        Some(host) if is_local(host) => return Ok(()),
        Some(_) => {}
        None if address.starts_with('$') => {}
        None => return Err("its address is not one of HTTP".to_owned()),
    }
    if headers.values.is_empty() { Err(NO_OAUTH.to_owned()) } else { Ok(()) }
}

fn host(address: &str) -> Option<&str> {
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    if let Some(bracketed) = host.strip_prefix('[') {
        return bracketed.split(']').next();
    }
    host.split(':').next().filter(|host| !host.is_empty())
}

/// This machine, and the local network: addresses, and names that nobody else knows. Nobody there offers a login.
fn is_local(host: &str) -> bool {
    if let Ok(address) = host.parse::<IpAddr>() {
        return match address {
            IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
            IpAddr::V6(address) => {
                address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
            }
        };
    }
    let host = host.to_ascii_lowercase();
    let local = [".local", ".lan", ".internal", ".home.arpa", ".localhost"];
    !host.contains('.') || local.iter().any(|ending| host.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_work_is_wrapped() {
        let none = Headers::default();
        let some = Headers { values: vec![("A".into(), "b".into())], ..Headers::default() };
        let check = |address: &str, plain: bool, with_header: bool| {
            assert_eq!(check(address, &none).is_ok(), plain, "{address}");
            assert_eq!(super::check(address, &some).is_ok(), with_header, "{address} with a header");
        };
        check("http://127.0.0.1:80/mcp", true, true);
        check("http://localhost/mcp", true, true);
        check("http://user@[::1]:8/mcp", true, true);
        check("https://tracker.example/mcp", false, true);
        check("${BASE}/mcp", false, true);
        check("https://${HOST}/mcp", false, true);
        check("http://192.168.1.4/mcp", true, true);
        check("http://[fd00::1]/mcp", true, true);
        check("http://nas:8080/mcp", true, true);
        check("http://box.local", true, true);
        check("https://8.8.8.8/mcp", false, true);
        check("unix:///run/x.sock", false, false);
    }
}
