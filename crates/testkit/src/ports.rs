//! Ports of loopback for servers that a test starts again at the same address, or that cannot pick a port themselves.

use std::{
    collections::{BTreeSet, hash_map::RandomState},
    fs,
    hash::BuildHasher,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    sync::{Mutex, PoisonError},
};

/// The lowest port that is given; below it are those of known services.
const FIRST: u16 = 10_000;

/// The end of the range of ports, if the kernel reports none.
const END: u16 = 32_768;

/// The ports that this process was given.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns the address of a port that is free for TCP and for UDP. The kernel does not give it to sockets that ask for
/// any port, so it is still free when a server that had it is started again.
///
/// # Panics
/// If no port is free.
pub fn lasting() -> String {
    let end = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .filter(|first| *first > FIRST)
        .unwrap_or(END);
    let count = u64::from(end - FIRST);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // Other test processes begin elsewhere.
    let begin = RandomState::new().hash_one("port") % count;
    let port = (0..count)
        .map(|step| FIRST + ((begin + step) % count) as u16)
        .find(|port| {
            let address = (Ipv4Addr::LOCALHOST, *port);
            !given.contains(port) && TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
        })
        .expect("a free port");
    given.insert(port);
    format!("{}:{port}", Ipv4Addr::LOCALHOST)
}
