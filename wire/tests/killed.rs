//! Tests how a peer that was killed with -9 is noticed over a QUIC connection.

use std::{
    io::BufRead,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, Stdio},
};

use spdl_core::{Role, messages::ToCoordinator};
use spdl_testkit::LONG;
use spdl_wire::{
    certs::{ClusterCa, Identity, LEAF_VALIDITY},
    quic::{self, QuicError, QuicSettings},
};

/// The variable with the folder of the CA, for the child.
const CHILD: &str = "SPDL_TEST_CA";

fn identity(dir: &Path, role: Role) -> Identity {
    ClusterCa::open_or_create(dir).unwrap().issue(role, "test", &[], LEAF_VALIDITY).unwrap().identity().unwrap()
}

#[test]
fn child_that_accepts_and_never_answers() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let identity = identity(Path::new(&dir), Role::Coordinator);
        let endpoint = quic::server_endpoint(any, &identity, &QuicSettings::default()).unwrap();
        println!("\nlistening {}", endpoint.local_addr().unwrap());
        let mut kept = Vec::new();
        while let Some(incoming) = endpoint.accept().await {
            kept.push(quic::handshake(incoming, &[Role::Worker], LONG).await);
        }
    });
}

#[tokio::test]
async fn a_killed_peer_is_noticed_by_its_closed_port_while_waiting_and_in_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let identity = identity(dir.path(), Role::Worker);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_accepts_and_never_answers", "--nocapture"])
        .env(CHILD, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let address: SocketAddr = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening ").map(|address| address.parse().unwrap()))
        .expect("the child listens");
    let endpoint = quic::client_endpoint(&identity, &QuicSettings::default()).unwrap();
    let waiting = quic::connect(&endpoint, address, Role::Coordinator, LONG).await.unwrap();
    let asking = quic::connect(&endpoint, address, Role::Coordinator, LONG).await.unwrap();
    let asked = tokio::spawn(async move { quic::request(&asking, &ToCoordinator::Status, LONG).await });

    child.kill().unwrap();
    child.wait().unwrap();
    let gone = quic::until_closed(&waiting).await;
    assert!(matches!(gone, QuicError::PortClosed { .. }), "{gone:?}");
    assert!(waiting.close_reason().is_some(), "the connection is closed with it");
    let unanswered = asked.await.unwrap().unwrap_err();
    assert!(matches!(unanswered, QuicError::PortClosed { .. }) && unanswered.is_retryable(), "{unanswered:?}");
    let again = quic::connect(&endpoint, address, Role::Coordinator, LONG).await.unwrap_err();
    assert!(matches!(again, QuicError::PortClosed { .. }), "{again:?}");
}
