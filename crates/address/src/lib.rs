//! Which addresses a server's URL may lead to.
//!
//! Used twice: on the host as it is written, when the configuration is loaded, and on every address a name
//! resolves to, right before the connection is made to exactly that address.
//!
//! **Invariant:** pure; nothing here resolves a name or opens a socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How the host stood in the URL. Loopback is fine only where a person wrote it in plain sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// `127.0.0.1`, `[::1]` or `localhost`.
    LoopbackLiteral,
    Other,
}

/// What the host of a URL is, once it has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKind {
    /// Needs no resolution and has been checked.
    Address(IpAddr),
    /// `localhost`: to be resolved, each address then checked.
    Localhost,
    /// To be resolved, each address then checked.
    Name,
}

impl HostKind {
    /// What to hand to [`check_ip`] with the addresses this host resolves to.
    pub fn written(self) -> Written {
        match self {
            Self::Localhost => Written::LoopbackLiteral,
            Self::Address(ip) if is_plain_loopback(ip) => Written::LoopbackLiteral,
            Self::Address(_) | Self::Name => Written::Other,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// `allow_private` does not help.
    #[error("{0} is a link-local or metadata address, to which callsign never connects")]
    Metadata(IpAddr),
    #[error(
        "{0} is a loopback address; write 127.0.0.1, [::1] or localhost in the url, or set `allow_private = true`"
    )]
    Loopback(IpAddr),
    #[error("{0} is not a public address; set `allow_private = true` for this server if it is meant")]
    Private(IpAddr),
    /// `allow_private` does not help: there is always a plain way to write it.
    #[error("{written} is an odd spelling of {canonical}; write {canonical}")]
    OddSpelling { written: String, canonical: String },
    #[error("{0:?} is neither a host name nor an address")]
    NotAHost(String),
}

/// Checks an address a connection is about to go to.
pub fn check_ip(ip: IpAddr, written: Written, allow_private: bool) -> Result<(), Refused> {
    match reach(ip) {
        Reach::Metadata => Err(Refused::Metadata(ip)),
        Reach::Public => Ok(()),
        Reach::Loopback if allow_private || written == Written::LoopbackLiteral => Ok(()),
        Reach::Loopback => Err(Refused::Loopback(ip)),
        Reach::Private if allow_private => Ok(()),
        Reach::Private => Err(Refused::Private(ip)),
    }
}

/// Checks the host of a URL as it is written. `host` may carry the brackets of an IPv6 address.
pub fn check_host(host: &str, allow_private: bool) -> Result<HostKind, Refused> {
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(HostKind::Localhost);
    }
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if bare.contains(':') {
        let ip: Ipv6Addr = bare.parse().map_err(|_| Refused::NotAHost(host.to_owned()))?;
        return check_written_v6(host, bare, ip, allow_private);
    }
    if !is_host_name(host) {
        return Err(Refused::NotAHost(host.to_owned()));
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return check_literal(IpAddr::V4(ip), allow_private);
    }
    if ends_in_a_number(host) {
        return Err(refuse_odd_v4(host));
    }
    Ok(HostKind::Name)
}

fn check_literal(ip: IpAddr, allow_private: bool) -> Result<HostKind, Refused> {
    let kind = HostKind::Address(ip);
    check_ip(ip, kind.written(), allow_private)?;
    Ok(kind)
}

fn check_written_v6(host: &str, bare: &str, ip: Ipv6Addr, allow_private: bool) -> Result<HostKind, Refused> {
    // First: a message that names another spelling of a metadata address would lead nowhere.
    if reach(IpAddr::V6(ip)) == Reach::Metadata {
        return Err(Refused::Metadata(IpAddr::V6(ip)));
    }
    let canonical = ip.to_ipv4_mapped().map_or_else(|| format!("[{ip}]"), |v4| v4.to_string());
    if !canonical.eq_ignore_ascii_case(&format!("[{bare}]")) {
        return Err(Refused::OddSpelling { written: host.to_owned(), canonical });
    }
    check_literal(IpAddr::V6(ip), allow_private)
}

/// The spellings that resolvers take for IPv4 and people do not: `0x7f000001`, `2130706433`, `127.1`.
fn refuse_odd_v4(host: &str) -> Refused {
    match read_like_inet_aton(host.strip_suffix('.').unwrap_or(host)) {
        None => Refused::NotAHost(host.to_owned()),
        Some(ip) if reach(IpAddr::V4(ip)) == Reach::Metadata => Refused::Metadata(IpAddr::V4(ip)),
        Some(ip) => Refused::OddSpelling { written: host.to_owned(), canonical: ip.to_string() },
    }
}

fn is_host_name(host: &str) -> bool {
    let labels = host.strip_suffix('.').unwrap_or(host);
    let label_is_well = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    labels.len() <= 253 && labels.split('.').all(label_is_well)
}

/// The rule of the URL standard: a host whose last label is a number is an IPv4 address or nothing.
fn ends_in_a_number(host: &str) -> bool {
    let last = host.strip_suffix('.').unwrap_or(host).rsplit('.').next().unwrap_or_default();
    last.bytes().all(|byte| byte.is_ascii_digit()) || read_number(last).is_some()
}

fn read_like_inet_aton(host: &str) -> Option<Ipv4Addr> {
    let numbers: Vec<u64> = host.split('.').map(read_number).collect::<Option<_>>()?;
    let (last, leading) = numbers.split_last()?;
    if leading.len() > 3 || leading.iter().any(|number| *number > 255) {
        return None;
    }
    // The last number fills all the bytes that are left.
    let mut value = 0;
    for (index, number) in leading.iter().enumerate() {
        value |= number << (24 - 8 * index);
    }
    let room = 1_u64 << (32 - 8 * leading.len());
    (*last < room).then(|| u32::try_from(value | last).ok().map(Ipv4Addr::from))?
}

fn read_number(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return if hex.is_empty() { Some(0) } else { u64::from_str_radix(hex, 16).ok() };
    }
    if text.len() > 1 && text.starts_with('0') {
        return u64::from_str_radix(text, 8).ok();
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Public,
    Loopback,
    Private,
    /// Link-local, and what clouds hand out credentials on.
    Metadata,
}

fn is_plain_loopback(ip: IpAddr) -> bool {
    ip == IpAddr::V4(Ipv4Addr::LOCALHOST) || ip == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

fn reach(ip: IpAddr) -> Reach {
    match ip {
        IpAddr::V4(ip) => reach_v4(ip),
        IpAddr::V6(ip) => embedded_v4(ip).map_or_else(|| reach_v6(ip), reach_v4),
    }
}

fn reach_v4(ip: Ipv4Addr) -> Reach {
    // Metadata services outside 169.254.0.0/16: Alibaba, Azure's wire server, Oracle.
    const METADATA: [Ipv4Addr; 3] =
        [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
    if ip.is_link_local() || METADATA.contains(&ip) {
        return Reach::Metadata;
    }
    match ip.octets() {
        [127, ..] => Reach::Loopback,
        [0 | 10 | 224..=255, ..]
        | [100, 64..=127, ..]
        | [172, 16..=31, ..]
        | [192, 0, 0 | 2, _]
        | [192, 168, ..]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Reach::Private,
        _ => Reach::Public,
    }
}

fn reach_v6(ip: Ipv6Addr) -> Reach {
    // Metadata services outside fe80::/10: AWS, Google.
    const METADATA: [Ipv6Addr; 2] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    ];
    if ip.is_unicast_link_local() || METADATA.contains(&ip) {
        return Reach::Metadata;
    }
    if ip == Ipv6Addr::LOCALHOST {
        return Reach::Loopback;
    }
    // Only 2000::/3 is handed out to the public; in it, Teredo and documentation are not servers.
    match ip.segments() {
        [0x2001, 0 | 0xdb8, ..] => Reach::Private,
        [0x2000..=0x3fff, ..] => Reach::Public,
        _ => Reach::Private,
    }
}

/// The IPv4 address that a packet to `ip` may end up at: mapped, NAT64, 6to4.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let from = |high: u16, low: u16| Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => from(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => from(high, low),
        [0x2002, high, low, ..] => from(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
