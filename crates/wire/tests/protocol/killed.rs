//! Tests how a peer that was killed with -9 is noticed over a QUIC connection.

use std::{
    io::BufRead,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use quinn::ConnectionError;
use spdl_control::{Role, messages::ToCoordinator};
use spdl_testkit::LONG;
use spdl_wire::{
    certs::{ClusterCa, Identity, LEAF_VALIDITY},
    quic::{self, QuicError, QuicSettings},
};

/// The variable with the folder of the certificate, for the child.
const CHILD: &str = "SPDL_TEST_CERTIFICATE";
/// The variable with the port to listen on, for the child.
const PORT: &str = "SPDL_TEST_PORT";

/// Makes an identity in a folder of `dir`, in which the CA lies.
fn identity(dir: &Path, role: Role, name: &str) -> Identity {
    let issued = ClusterCa::open_or_create(dir).unwrap().issue(role, name, &[], LEAF_VALIDITY).unwrap();
    issued.write(&dir.join(name)).unwrap();
    issued.identity().unwrap()
}

/// Starts a process with this certificate that accepts connections and never answers; 0 is any port.
fn start(certificate: &Path, port: u16) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child_that_accepts_and_never_answers", "--nocapture"])
        .env(CHILD, certificate)
        .env(PORT, port.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening ").map(|address| address.parse().unwrap()))
        .expect("the child listens");
    (child, address)
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn child_that_accepts_and_never_answers() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let port = std::env::var(PORT).unwrap().parse().unwrap();
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let identity = Identity::load(Path::new(&dir)).unwrap();
        let endpoint = quic::server_endpoint(listen, &identity, &QuicSettings::default()).unwrap();
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
    identity(dir.path(), Role::Coordinator, "coordinator");
    let identity = identity(dir.path(), Role::Worker, "worker");
    let (child, address) = start(&dir.path().join("coordinator"), 0);
    let endpoint = quic::client_endpoint(&identity, &QuicSettings::default()).unwrap();
    let waiting = quic::connect(&endpoint, address, Role::Coordinator, LONG).await.unwrap();
    let asking = quic::connect(&endpoint, address, Role::Coordinator, LONG).await.unwrap();
    let asked = tokio::spawn(async move { quic::request(&asking, &ToCoordinator::Status, LONG).await });

    kill(child);
    let gone = quic::until_closed(&waiting).await;
    assert!(matches!(gone, QuicError::PortClosed { .. }), "{gone:?}");
    assert!(waiting.close_reason().is_some(), "the connection is closed with it");
    let unanswered = asked.await.unwrap().unwrap_err();
    assert!(matches!(unanswered, QuicError::PortClosed { .. }) && unanswered.is_retryable(), "{unanswered:?}");
    let again = quic::connect(&endpoint, address, Role::Coordinator, LONG).await.unwrap_err();
    assert!(matches!(again, QuicError::PortClosed { .. }), "{again:?}");
}

#[tokio::test]
async fn a_killed_peer_that_is_back_at_once_ends_the_connections_of_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = ["first", "second"].map(|name| {
        identity(dir.path(), Role::Coordinator, name);
        dir.path().join(name)
    });
    let settings = QuicSettings { keep_alive: Duration::from_millis(50), ..QuicSettings::default() };
    let endpoint = quic::client_endpoint(&identity(dir.path(), Role::Worker, "worker"), &settings).unwrap();
    // A server with another key on that port cannot end them: they are silent until the idle timeout.
    let expected: [fn(&ConnectionError) -> bool; 2] =
        [|end| matches!(end, ConnectionError::Reset), |end| matches!(end, ConnectionError::TimedOut)];
    for (next, is_expected) in certificates.iter().zip(expected) {
        let (child, address) = start(&certificates[0], 0);
        let connection = quic::connect(&endpoint, address, Role::Coordinator, LONG).await.unwrap();
        kill(child);
        let (child, _) = start(next, address.port());
        let end = connection.closed().await;
        assert!(is_expected(&end), "{end:?}");
        let error = QuicError::of(end, address);
        assert!(error.is_retryable(), "{error:?}");
        kill(child);
    }
}
