use super::*;

#[track_caller]
fn check(host: &str, allow_private: bool, expected: &str) {
    let outcome = match check_host(host, allow_private) {
        Ok(HostKind::Address(ip)) => format!("address {ip}"),
        Ok(HostKind::Localhost) => "localhost".to_owned(),
        Ok(HostKind::Name) => "name".to_owned(),
        Err(Refused::Metadata(_)) => "metadata".to_owned(),
        Err(Refused::Loopback(_)) => "loopback".to_owned(),
        Err(Refused::Private(_)) => "private".to_owned(),
        Err(Refused::OddSpelling { canonical, .. }) => format!("write {canonical}"),
        Err(Refused::NotAHost(_)) => "not a host".to_owned(),
    };
    assert_eq!(outcome, expected, "{host} allow_private={allow_private}");
}

#[test]
fn loopback_is_allowed_where_it_is_written_plainly() {
    for allow_private in [false, true] {
        check("127.0.0.1", allow_private, "address 127.0.0.1");
        check("[::1]", allow_private, "address ::1");
        check("localhost", allow_private, "localhost");
        check("LOCALHOST", allow_private, "localhost");
    }
    check("127.0.0.2", false, "loopback");
    check("127.0.0.2", true, "address 127.0.0.2");
    check("localhost.", false, "name");
}

#[test]
fn an_odd_spelling_is_refused_even_where_private_is_allowed() {
    for allow_private in [false, true] {
        for odd in [
            "0x7f000001",
            "2130706433",
            "017700000001",
            "127.1",
            "0x7f.1",
            "127.0.1",
            "127.0.0.1.",
            "0177.0.0.1",
        ] {
            check(odd, allow_private, "write 127.0.0.1");
        }
        check("[::ffff:127.0.0.1]", allow_private, "write 127.0.0.1");
        check("[::ffff:7f00:1]", allow_private, "write 127.0.0.1");
        check("[0:0:0:0:0:0:0:1]", allow_private, "write [::1]");
        check("0x08080808", allow_private, "write 8.8.8.8");
        check("0", allow_private, "write 0.0.0.0");
        check("0x", allow_private, "write 0.0.0.0");
    }
}

#[test]
fn metadata_and_link_local_addresses_are_never_allowed() {
    let never = [
        "169.254.169.254",
        "169.254.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "[fe80::1]",
        "[febf::1]",
        "[fd00:ec2::254]",
        "[fd20:ce::254]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::1]",
        "0xa9fea9fe",
        "2852039166",
    ];
    for host in never {
        check(host, false, "metadata");
        check(host, true, "metadata");
    }
}

#[test]
fn private_addresses_need_allow_private() {
    let private = [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "fc00::1",
        "fd12:3456::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "64:ff9b::a00:1",
        "2002:c0a8:101::1",
    ];
    for host in private {
        check(host, false, "private");
        check(host, true, &format!("address {host}"));
    }
    // Its neighbours are not.
    for host in
        ["9.255.255.255", "11.0.0.1", "100.63.0.1", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.169.0.1"]
    {
        check(host, false, &format!("address {host}"));
    }
    check("[2606:4700::1111]", false, "address 2606:4700::1111");
}

#[test]
fn names_are_left_to_resolution_and_nonsense_is_refused() {
    for name in [
        "tracker.example",
        "a",
        "xn--bcher-kva.example",
        "my_host",
        "1password.com",
        "tracker.example.",
        "0xzz",
    ] {
        check(name, false, "name");
    }
    for nonsense in [
        "",
        ".",
        "a..b",
        "a b",
        "127.0.0.1%2e",
        "bücher.example",
        "[::1",
        "::g",
        "[fe80::1%25eth0]",
        "1.2.3.4.5",
        "256.1.1.1",
        "4294967296",
        "a.08",
        "a.0x7f",
    ] {
        check(nonsense, false, "not a host");
    }
}

#[test]
fn a_name_that_resolves_to_loopback_is_refused() {
    let loopback: IpAddr = "127.0.0.1".parse().unwrap();
    assert_eq!(check_ip(loopback, Written::Other, false), Err(Refused::Loopback(loopback)));
    assert_eq!(check_ip(loopback, Written::LoopbackLiteral, false), Ok(()));
    assert_eq!(check_ip(loopback, Written::Other, true), Ok(()));
    // A hosts file that sends `localhost` elsewhere gains nothing.
    let private: IpAddr = "10.0.0.1".parse().unwrap();
    assert_eq!(check_ip(private, Written::LoopbackLiteral, false), Err(Refused::Private(private)));
    // A resolver that answers with a mapped address gets the verdict of the inner one.
    let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
    assert_eq!(check_ip(mapped, Written::Other, false), Err(Refused::Private(mapped)));
}
