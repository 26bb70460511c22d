//! Certificates are renewed, and the CA is replaced, under endpoints that stay open.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use quinn::{Connection, Endpoint};
use spdl_control::{Role, messages::*};
use spdl_testkit::{LONG, certs::server_address};
use spdl_wire::{
    certs::{ClusterCa, Identity, LEAF_VALIDITY},
    quic::{self, Peer, QuicError, QuicSettings},
};

/// Writes a certificate of this name into `dir`, and `trusted` as the CAs. Files are replaced one after the other, as by most
/// tools, so for a moment they do not belong together.
fn write(ca: &ClusterCa, role: Role, name: &str, trusted: &[&ClusterCa], dir: &Path) {
    let issued = ca.issue(role, name, &[], LEAF_VALIDITY).unwrap();
    fs::create_dir_all(dir).unwrap();
    let trusted: String = trusted.iter().map(|ca| ca.ca_pem()).collect();
    for (file, text) in [("ca.pem", &trusted), ("cert.pem", &issued.certificate_pem), ("key.pem", &issued.key_pem)] {
        fs::write(dir.join(file), text).unwrap();
    }
}

/// Accepts connections of clients, and answers their requests with their names.
async fn serve(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let Ok((connection, peer)) = quic::handshake(incoming, &[Role::Client], LONG).await else { return };
            quic::serve_requests(connection, move |_| {
                let name = peer.name.clone();
                async move { FromCoordinator::Status(name) }
            })
            .await;
        });
    }
}

/// Returns the names of the server and of the client in a new connection.
async fn names(client: &Endpoint, address: SocketAddr) -> Result<(String, String), QuicError> {
    let connection = quic::connect(client, address, Role::Coordinator, LONG).await?;
    let Peer { name, .. } = quic::peer(&connection)?;
    let own = ask(&connection).await;
    connection.close(0_u32.into(), b"");
    Ok((name, own))
}

async fn ask(connection: &Connection) -> String {
    match quic::request(connection, &ToCoordinator::Status, LONG).await.unwrap() {
        FromCoordinator::Status(name) => name,
        other => panic!("{other:?}"),
    }
}

/// Connects until both sides have these names. Each attempt until then must succeed: no renewal interrupts anything.
async fn until(client: &Endpoint, address: SocketAddr, expected: [&str; 2]) {
    let attempts = async {
        loop {
            let (server, own) = names(client, address).await.expect("a connection, before and after");
            if [server.as_str(), own.as_str()] == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, attempts).await.unwrap_or_else(|_| panic!("never {expected:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ca_is_replaced_in_steps_while_connections_are_made_and_an_old_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| ClusterCa::open_or_create(&folder.path().join(name)).unwrap());
    let [server_dir, client_dir, left_dir] = ["server", "client", "left"].map(|name| folder.path().join(name));
    write(&old, Role::Coordinator, "server-1", &[&old], &server_dir);
    write(&old, Role::Client, "client-1", &[&old], &client_dir);
    write(&old, Role::Client, "left-behind", &[&old, &new], &left_dir);

    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let settings = QuicSettings::default();
    let server = quic::server_endpoint(any, &Identity::load(&server_dir).unwrap(), &settings).unwrap();
    let client = quic::client_endpoint(&Identity::load(&client_dir).unwrap(), &settings).unwrap();
    let left_behind = quic::client_endpoint(&Identity::load(&left_dir).unwrap(), &settings).unwrap();
    let address = server_address(&server);
    tokio::spawn(serve(server.clone()));
    let oldest = quic::connect(&client, address, Role::Coordinator, LONG).await.unwrap();
    assert_eq!(names(&client, address).await.unwrap(), ("server-1".into(), "client-1".into()));

    // Both CAs are trusted everywhere, then the new one issues all certificates, then it alone is trusted.
    write(&old, Role::Coordinator, "server-2", &[&old, &new], &server_dir);
    write(&old, Role::Client, "client-2", &[&old, &new], &client_dir);
    until(&client, address, ["server-2", "client-2"]).await;
    write(&new, Role::Coordinator, "server-3", &[&new, &old], &server_dir);
    until(&client, address, ["server-3", "client-2"]).await;
    write(&new, Role::Client, "client-3", &[&new, &old], &client_dir);
    until(&client, address, ["server-3", "client-3"]).await;
    assert_eq!(names(&left_behind, address).await.unwrap(), ("server-3".into(), "left-behind".into()));
    write(&new, Role::Coordinator, "server-4", &[&new], &server_dir);
    write(&new, Role::Client, "client-4", &[&new], &client_dir);
    until(&client, address, ["server-4", "client-4"]).await;

    let refused = names(&left_behind, address).await.unwrap_err();
    assert!(matches!(refused, QuicError::OurCluster { .. }), "{refused:?}");
    assert_eq!(ask(&oldest).await, "client-1", "the connection that is there stays");
}

#[tokio::test]
async fn what_cannot_be_used_is_not_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let ca = ClusterCa::open_or_create(&folder.path().join("ca")).unwrap();
    let dir = folder.path().join("worker");
    write(&ca, Role::Worker, "worker-0", &[&ca], &dir);
    let identity = Identity::load(&dir).unwrap();
    assert!(identity.renewed().unwrap().is_none());

    fs::write(dir.join("cert.pem"), "half a f").unwrap();
    identity.renewed().unwrap_err();
    write(&ca, Role::Client, "client-0", &[&ca], &dir);
    let error = identity.renewed().unwrap_err().to_string();
    assert!(error.contains("is now for a client, and this process is a worker"), "{error}");
    let other = ClusterCa::open_or_create(&folder.path().join("other")).unwrap();
    write(&other, Role::Worker, "worker-0", &[&ca], &dir);
    let error = identity.renewed().unwrap_err().to_string();
    assert!(error.contains("which is not the CA beside it"), "{error}");
    write(&ca, Role::Worker, "worker-1", &[&ca], &dir);
    assert_eq!(identity.renewed().unwrap().expect("it is new").name(), "worker-1");
}
