//! What kind of address an address is. Pure.
//!
//! Owns the table of ranges that no public server has, and the forms in which an IPv6 address carries an IPv4 one: an address
//! is judged by what it leads to, however it is written. The ranges are those of the IANA special-purpose registries.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A server on the Internet.
    Public,
    /// This machine.
    Loopback,
    /// A private network.
    Private,
    /// What providers share among their customers.
    Shared,
    /// This network segment.
    LinkLocal,
    /// Where clouds give credentials to whoever asks from the machine.
    Metadata,
    /// A group of machines.
    Multicast,
    /// Every machine of a network.
    Broadcast,
    /// No address: the system takes it for this machine.
    Unspecified,
    /// For examples in documents.
    Documentation,
    /// For measuring networks.
    Benchmark,
    /// Private networks of IPv6.
    UniqueLocal,
    /// What private networks of IPv6 once were.
    SiteLocal,
    /// Set aside.
    Reserved,
}

impl Kind {
    /// The word in errors: "is …".
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Loopback => "a loopback address",
            Self::Private => "an address of a private network",
            Self::Shared => "an address shared by a provider's customers (100.64.0.0/10)",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "an address of cloud metadata",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "a broadcast address",
            Self::Unspecified => "the unspecified address",
            Self::Documentation => "an address for documentation",
            Self::Benchmark => "an address for benchmarks",
            Self::UniqueLocal => "a unique local address",
            Self::SiteLocal => "a site-local address",
            Self::Reserved => "a reserved address",
        }
    }

    /// Whether an operator may mean it by writing it into an agent's own URL.
    pub(super) const fn is_a_place(self) -> bool {
        !matches!(
            self,
            Self::LinkLocal | Self::Metadata | Self::Multicast | Self::Broadcast | Self::Unspecified
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Metadata services: most clouds, ECS tasks, EKS pods, Alibaba, Oracle, Azure's wire server, which is the only public one.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// Metadata services: EC2, EKS pods, Google, OpenStack.
const METADATA_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

/// What `address` is.
pub fn kind(address: IpAddr) -> Kind {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

/// The address itself and the IPv4 address inside it, if there is one: a rule about either is about both.
pub(super) fn forms(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let inside = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => inside(address).map(|(inside, _)| IpAddr::V4(inside)),
    };
    std::iter::once(address).chain(inside)
}

fn kind_v4(address: Ipv4Addr) -> Kind {
    if METADATA_V4.contains(&address) {
        return Kind::Metadata;
    }
    match address.octets() {
        [0, ..] => Kind::Unspecified,
        [127, ..] => Kind::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Kind::Private,
        [100, 64..=127, ..] => Kind::Shared,
        [169, 254, ..] => Kind::LinkLocal,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Kind::Documentation,
        [198, 18 | 19, ..] => Kind::Benchmark,
        [224..=239, ..] => Kind::Multicast,
        [255, 255, 255, 255] => Kind::Broadcast,
        [192, 0, 0, _] | [192, 88, 99, _] | [240..=255, ..] => Kind::Reserved,
        _ => Kind::Public,
    }
}

fn kind_v6(address: Ipv6Addr) -> Kind {
    if address.is_unspecified() {
        return Kind::Unspecified;
    }
    if address.is_loopback() {
        return Kind::Loopback;
    }
    if METADATA_V6.contains(&address) {
        return Kind::Metadata;
    }
    if let Some((inside, in_use)) = inside(address) {
        let kind = kind_v4(inside);
        return if kind == Kind::Public && !in_use {
            Kind::Reserved
        } else {
            kind
        };
    }
    match address.segments() {
        [0xfe80..=0xfebf, ..] => Kind::LinkLocal,
        [0xfec0..=0xfeff, ..] => Kind::SiteLocal,
        [0xfc00..=0xfdff, ..] => Kind::UniqueLocal,
        [0xff00..=0xffff, ..] => Kind::Multicast,
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Kind::Documentation,
        [0x2001, 2, 0, ..] => Kind::Benchmark,
        // Protocol assignments, Teredo and ORCHID among them.
        [0x2001, 0..=0x1ff, ..] => Kind::Reserved,
        [0x2000..=0x3fff, ..] => Kind::Public,
        // Of the rest nothing was ever given out: discard only, segment routing, local NAT64.
        _ => Kind::Reserved,
    }
}

/// The IPv4 address inside an IPv6 one, and whether the form is still in use for public servers.
fn inside(address: Ipv6Addr) -> Option<(Ipv4Addr, bool)> {
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        // Mapped, and what NAT64 translates.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some((v4(high, low), true)),
        // Compatible, translated, 6to4.
        [0, 0, 0, 0, 0 | 0xffff, 0, high, low] | [0x2002, high, low, ..] => Some((v4(high, low), false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_has_its_kind_up_to_its_edges() {
        for (kinds, addresses) in [
            (
                Kind::Public,
                "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255",
            ),
            (
                Kind::Public,
                "169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255",
            ),
            (
                Kind::Public,
                "198.20.0.0 223.255.255.255 2000:: 2001:200:: 2606:4700::1111 3ffe:: 3fff:1000:: 64:ff9b::1.1.1.1 ::ffff:1.1.1.1",
            ),
            (
                Kind::Loopback,
                "127.0.0.0 127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::127.0.0.1 2002:7f00:1::",
            ),
            (
                Kind::Private,
                "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 ::ffff:10.0.0.1",
            ),
            (
                Kind::Private,
                "::10.0.0.1 ::ffff:0:10.0.0.1 64:ff9b::a00:1 2002:c0a8:1::1",
            ),
            (Kind::Shared, "100.64.0.0 100.127.255.255 ::ffff:100.64.0.1"),
            (
                Kind::LinkLocal,
                "169.254.0.0 169.254.255.255 fe80:: febf:ffff:: ::ffff:169.254.1.1",
            ),
            (
                Kind::Metadata,
                "169.254.169.254 169.254.170.2 100.100.100.200 192.0.0.192 168.63.129.16 fd00:ec2::254 fd20:ce::254",
            ),
            (
                Kind::Metadata,
                "::ffff:169.254.169.254 ::169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe:: fe80::a9fe:a9fe",
            ),
            (Kind::Multicast, "224.0.0.0 239.255.255.255 ff00:: ff02::1 ffff::"),
            (Kind::Broadcast, "255.255.255.255 ::ffff:255.255.255.255"),
            (Kind::Unspecified, "0.0.0.0 0.255.255.255 :: ::ffff:0.0.0.0"),
            (
                Kind::Documentation,
                "192.0.2.1 198.51.100.255 203.0.113.0 2001:db8:: 3fff:: 3fff:fff::1",
            ),
            (Kind::Benchmark, "198.18.0.0 198.19.255.255 2001:2::1"),
            (Kind::UniqueLocal, "fc00:: fdff:ffff::"),
            (Kind::SiteLocal, "fec0:: feff:ffff::"),
            (
                Kind::Reserved,
                "192.0.0.0 192.88.99.1 240.0.0.0 255.255.255.254 100:: 64:ff9b:1::1 2001::1 2001:1ff:: 5f00:: 4000::",
            ),
            (Kind::Reserved, "::1.1.1.1 ::ffff:0:1.1.1.1 2002:101:101:: 1::"),
        ] {
            for text in addresses.split_whitespace() {
                let address: IpAddr = text.parse().unwrap();
                assert_eq!(kind(address), kinds, "{text}");
            }
        }
    }

    #[test]
    fn an_address_is_also_the_one_inside_it() {
        let forms = |text: &str| {
            forms(text.parse().unwrap())
                .map(|ip| ip.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(forms("10.0.0.1"), ["10.0.0.1"]);
        assert_eq!(forms("::ffff:10.0.0.1"), ["::ffff:10.0.0.1", "10.0.0.1"]);
        assert_eq!(forms("64:ff9b::a00:1"), ["64:ff9b::a00:1", "10.0.0.1"]);
        assert_eq!(forms("2606::1"), ["2606::1"]);
    }
}
