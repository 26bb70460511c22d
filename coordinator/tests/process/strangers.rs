//! Hosts that are not part of the cluster and try to connect: they are counted, and the log stays short.

use std::{fs, net::UdpSocket};

use spdl_control::Role;

use crate::cluster::CoordinatorProcess;

/// The number of datagrams of each kind.
const DATAGRAMS: usize = 3_000;

#[tokio::test(flavor = "multi_thread")]
async fn rejected_peers_are_counted_and_do_not_fill_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let coordinator = CoordinatorProcess::start_logged(&folder.path().join("state"), &[], &log);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..DATAGRAMS {
        // The head of an initial packet of QUIC version 1 with connection ids of 8 bytes, followed by garbage.
        let mut datagram = vec![0xc0, 0, 0, 0, 1, 8];
        datagram.extend(number.to_le_bytes());
        datagram.push(8);
        datagram.extend(number.to_be_bytes());
        datagram.extend([0, 0x44, 0x80]);
        datagram.resize(1_200, 0x5a);
        let _ = socket.send_to(&datagram, coordinator.quic);
        let _ = socket.send_to(&datagram[6..], coordinator.quic);
    }
    for _ in 0..20 {
        assert!(coordinator.try_connect(&folder.path().join("another cluster"), Role::Client).await.is_err());
    }
    let counted = |text: &str, cause: &str| {
        let start = format!("spdl_coordinator_peers_rejected_total{{cause=\"{cause}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok()).unwrap_or(0)
    };
    coordinator.wait_get("/metrics", |_, text| counted(text, "certificate") >= 20);
    // A member of the cluster can connect meanwhile.
    coordinator.connect(Role::Client).await;
    let text = fs::read_to_string(&log).unwrap();
    let lines = text.lines().filter(|line| line.contains("rejected a peer")).count();
    assert!((1..=3).contains(&lines), "{lines} lines:\n{text}");
}
