//! Tests of QUIC over loopback with real sockets: roles, clusters, ports, requests, batches.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use quinn::{Connection, Endpoint};
use spdl_control::{Role, messages::*};
use spdl_testkit::{
    LONG,
    certs::{ClusterCerts, server_address},
};
use spdl_wire::{
    frame::{self, FrameError},
    quic::{self, Peer, QuicError, QuicSettings},
    slab::{PAGE_BYTES, Slab},
};

/// Accepts one connection and answers its requests with `Status(name)`.
fn coordinate(endpoint: &Endpoint) -> tokio::task::JoinHandle<Result<Peer, QuicError>> {
    let endpoint = endpoint.clone();
    tokio::spawn(async move {
        let incoming = endpoint.accept().await.expect("endpoint is open");
        let (connection, peer) = quic::handshake(incoming, &[Role::Worker, Role::Client], LONG).await?;
        let name = peer.name.clone();
        quic::serve_requests(connection, move |request| {
            let text = format!("{name}: {request:?}");
            async move { FromCoordinator::Status(text) }
        })
        .await;
        Ok(peer)
    })
}

async fn pair(cluster: &ClusterCerts) -> (Connection, Connection, [Endpoint; 2]) {
    let worker = cluster.server(Role::Worker);
    let client = cluster.client(Role::Client);
    let address = server_address(&worker);
    let (near, far) = tokio::join!(quic::connect(&client, address, Role::Worker, LONG), async {
        quic::handshake(worker.accept().await.unwrap(), &[Role::Client], LONG).await
    });
    (near.unwrap(), far.unwrap().0, [worker, client])
}

#[tokio::test]
async fn requests_are_answered_and_each_side_knows_the_other() {
    let cluster = ClusterCerts::default();
    let coordinator = cluster.server(Role::Coordinator);
    let served = coordinate(&coordinator);
    let worker = cluster.client(Role::Worker);
    let host = format!("localhost:{}", server_address(&coordinator).port());
    let connection = quic::connect_host(&worker, &host, Role::Coordinator, LONG).await.unwrap();
    assert_eq!(quic::peer(&connection).unwrap(), Peer { role: Role::Coordinator, name: "coordinator-0".into() });
    let replies = futures_join(&connection).await;
    for reply in replies {
        assert_eq!(reply, FromCoordinator::Status("worker-0: Status".into()));
    }
    connection.close(0_u32.into(), b"");
    assert_eq!(served.await.unwrap().unwrap(), Peer { role: Role::Worker, name: "worker-0".into() });
}

/// Sends twenty requests at once.
async fn futures_join(connection: &Connection) -> Vec<FromCoordinator> {
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let connection = connection.clone();
        running.spawn(async move { quic::request(&connection, &ToCoordinator::Status, LONG).await.unwrap() });
    }
    running.join_all().await
}

#[tokio::test]
async fn a_certificate_of_another_cluster_is_refused_with_advice() {
    let (ours, theirs) = (ClusterCerts::default(), ClusterCerts::default());
    let coordinator = theirs.server(Role::Coordinator);
    let served = coordinate(&coordinator);
    let error = quic::connect(&ours.client(Role::Worker), server_address(&coordinator), Role::Coordinator, LONG).await;
    let error = error.unwrap_err();
    assert!(matches!(error, QuicError::TheirCluster { .. }), "{error:?}");
    assert!(error.to_string().contains("use a certificate issued by its cluster") && !error.is_retryable());
    assert!(served.await.unwrap().is_err());
}

#[tokio::test]
async fn a_client_whose_ca_the_server_does_not_know_gets_an_error() {
    // The client trusts the server's cluster, and presents a certificate of its own cluster.
    let (ours, theirs) = (ClusterCerts::default(), ClusterCerts::default());
    let coordinator = theirs.server(Role::Coordinator);
    let served = coordinate(&coordinator);
    let mixed = ours.identity_trusting(&theirs, Role::Worker);
    let client = quic::client_endpoint(&mixed, &QuicSettings::default()).unwrap();
    let error = quic::connect(&client, server_address(&coordinator), Role::Coordinator, LONG).await.unwrap_err();
    assert!(matches!(error, QuicError::OurCluster { .. }), "{error:?}");
    assert!(served.await.unwrap().is_err());
}

#[tokio::test]
async fn a_server_of_the_wrong_role_is_refused() {
    let cluster = ClusterCerts::default();
    let worker = cluster.server(Role::Worker);
    let served = coordinate(&worker);
    let error = quic::connect(&cluster.client(Role::Client), server_address(&worker), Role::Coordinator, LONG).await;
    let error = error.unwrap_err();
    assert!(matches!(error, QuicError::WrongRole { expected: Role::Coordinator, .. }), "{error:?}");
    assert!(error.to_string().contains("worker.role.spdl.internal"), "{error}");
    assert!(served.await.unwrap().is_err());
}

#[tokio::test]
async fn a_client_certificate_cannot_stand_for_a_server() {
    let cluster = ClusterCerts::default();
    let posing = cluster.server(Role::Client);
    let served = coordinate(&posing);
    let error = quic::connect(&cluster.client(Role::Client), server_address(&posing), Role::Worker, LONG).await;
    assert!(matches!(error, Err(QuicError::WrongRole { .. })), "{error:?}");
    assert!(served.await.unwrap().is_err());
}

#[tokio::test]
async fn a_client_of_a_role_that_is_not_allowed_gets_the_allowed_roles() {
    let cluster = ClusterCerts::default();
    let coordinator = cluster.server(Role::Coordinator);
    let served = coordinate(&coordinator);
    let admin = cluster.client(Role::Admin);
    let error = quic::connect(&admin, server_address(&coordinator), Role::Coordinator, LONG).await.unwrap_err();
    assert!(error.to_string().contains("a admin may not connect here, only: worker, client"), "{error}");
    let refused = served.await.unwrap().unwrap_err();
    assert!(matches!(refused, QuicError::RoleNotAllowed { role: Role::Admin, .. }), "{refused:?}");
    let expected = "is the admin `admin-0`, which may not connect here, only: worker, client";
    assert!(refused.to_string().contains(expected), "{refused}");
}

#[tokio::test]
async fn a_closed_port_is_noticed_without_waiting() {
    let cluster = ClusterCerts::default();
    let free = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let error = quic::connect(&cluster.client(Role::Client), free, Role::Worker, LONG).await.unwrap_err();
    assert!(matches!(error, QuicError::PortClosed { .. }) && error.is_retryable(), "{error:?}");
}

#[tokio::test]
async fn a_silent_port_times_out_with_advice() {
    let cluster = ClusterCerts::default();
    let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = silent.local_addr().unwrap();
    let error = quic::connect(&cluster.client(Role::Client), address, Role::Worker, Duration::from_millis(200)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, QuicError::Timeout { .. }) && error.to_string().contains("firewall"), "{error:?}");
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let cluster = ClusterCerts::default();
    let worker = cluster.server(Role::Worker);
    let address = server_address(&worker);
    let identity = cluster.identity(Role::Worker);
    let error = quic::server_endpoint(address, &identity, &QuicSettings::default()).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn a_host_that_does_not_resolve_is_named() {
    let cluster = ClusterCerts::default();
    let client = cluster.client(Role::Client);
    let error = quic::connect_host(&client, "no-such-host.invalid:1", Role::Coordinator, LONG).await.unwrap_err();
    assert!(matches!(error, QuicError::Resolve { .. }), "{error:?}");
}

#[tokio::test]
async fn a_request_of_another_version_closes_the_connection_with_both_versions() {
    let cluster = ClusterCerts::default();
    let coordinator = cluster.server(Role::Coordinator);
    let served = coordinate(&coordinator);
    let worker = cluster.client(Role::Worker);
    let connection = quic::connect(&worker, server_address(&coordinator), Role::Coordinator, LONG).await.unwrap();
    let mut bytes = Vec::new();
    frame::append_frame(&ToCoordinator::Status, &mut bytes).unwrap();
    bytes[2..4].copy_from_slice(&77_u16.to_le_bytes());
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    send.write_all(&bytes).await.unwrap();
    let error = QuicError::of(connection.closed().await, connection.remote_address()).to_string();
    assert!(error.contains("version 77") && error.contains("install the same release"), "{error}");
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_longer_than_allowed_is_not_read() {
    let cluster = ClusterCerts::default();
    let coordinator = cluster.server(Role::Coordinator);
    let served = coordinate(&coordinator);
    let worker = cluster.client(Role::Worker);
    let connection = quic::connect(&worker, server_address(&coordinator), Role::Coordinator, LONG).await.unwrap();
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    let mut head = [b'S', b'P', 0, 0, 0xff, 0xff, 0xff, 0xff];
    head[2..4].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    send.write_all(&head).await.unwrap();
    let error = QuicError::of(connection.closed().await, connection.remote_address()).to_string();
    assert!(error.contains("4294967295 bytes"), "{error}");
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_cut_connection_ends_a_waiting_request() {
    let cluster = ClusterCerts::default();
    let coordinator = cluster.server(Role::Coordinator);
    let accepting = tokio::spawn({
        let coordinator = coordinator.clone();
        async move {
            let (connection, _) =
                quic::handshake(coordinator.accept().await.unwrap(), &[Role::Worker], LONG).await.unwrap();
            connection.accept_bi().await.unwrap();
            connection.close(0_u32.into(), b"");
        }
    });
    let worker = cluster.client(Role::Worker);
    let connection = quic::connect(&worker, server_address(&coordinator), Role::Coordinator, LONG).await.unwrap();
    let error = quic::request(&connection, &ToCoordinator::Status, LONG).await.unwrap_err();
    assert!(matches!(error, QuicError::Closed { .. }) && error.is_retryable(), "{error:?}");
    accepting.await.unwrap();
}

#[tokio::test]
async fn batches_arrive_in_the_slots_they_name() {
    let (home, far, _endpoints) = {
        let cluster = ClusterCerts::default();
        let (near, far, endpoints) = pair(&cluster).await;
        (far, near, endpoints)
    };
    let slab = Slab::private(2, 3 << 20).unwrap();
    let mine = Slab::private(2, 3 << 20).unwrap();
    let mut slot = slab.try_take(1).unwrap();
    for (index, byte) in slot.iter_mut().enumerate() {
        *byte = (index % 251) as u8;
    }
    slot.publish();
    let (sent, received) = tokio::join!(
        async {
            let slot = slab.read(1).unwrap();
            let (returned, is_returned) = tokio::sync::oneshot::channel();
            quic::send_batch(&home, 7, slot, 3_000_001, returned).await.unwrap();
            is_returned.await.unwrap_err();
        },
        async {
            let mut stream = far.accept_uni().await.unwrap();
            quic::receive_batch(&mut stream, &mine, &far).await.unwrap()
        }
    );
    let () = sent;
    assert_eq!(received, (7, 1, 3_000_001));
    assert_eq!(mine.read(1).unwrap()[..3_000_001], slab.read(1).unwrap()[..3_000_001]);
    assert!(slab.release(1), "the connection has let go of the slot");
}

#[tokio::test]
async fn a_batch_for_a_slot_that_is_not_free_or_too_small_is_refused() {
    let cluster = ClusterCerts::default();
    let (far, home, _endpoints) = pair(&cluster).await;
    let mine = Slab::private(1, PAGE_BYTES).unwrap();
    let too_small = format!("the slot has {PAGE_BYTES}");
    let filled = |slot, used_bytes| FromHome::Filled { sequence: 0, slot, used_bytes };
    for (message, expected) in [
        (filled(1, 1), "not free"),
        (filled(0, PAGE_BYTES as u64 + 1), too_small.as_str()),
        (filled(0, u64::MAX), too_small.as_str()),
        (FromHome::Leaving, "started with"),
    ] {
        let mut stream = home.open_uni().await.unwrap();
        frame::write_frame(&mut stream, &message).await.unwrap();
        let mut stream = far.accept_uni().await.unwrap();
        let error = quic::receive_batch(&mut stream, &mine, &far).await.unwrap_err();
        assert!(matches!(error, QuicError::Protocol { .. }) && error.to_string().contains(expected), "{error}");
    }
    let mut stream = home.open_uni().await.unwrap();
    frame::write_frame(&mut stream, &filled(0, 100)).await.unwrap();
    stream.write_all(&[1; 50]).await.unwrap();
    stream.finish().unwrap();
    let mut stream = far.accept_uni().await.unwrap();
    let error = quic::receive_batch(&mut stream, &mine, &far).await.unwrap_err();
    assert!(matches!(error, QuicError::Frame(FrameError::Cut { .. })), "{error:?}");
    assert_eq!(mine.free_slots(), 1, "a batch that was cut leaves its slot free");
}

#[tokio::test]
async fn a_peer_that_never_finishes_its_handshake_is_dropped() {
    let cluster = ClusterCerts::default();
    let coordinator = cluster.server(Role::Coordinator);
    let address: SocketAddr = server_address(&coordinator);
    let client = cluster.client(Role::Client);
    // The client starts and then stalls: nothing polls its side of the handshake.
    let connecting = client.connect(address, Role::Coordinator.dns_name()).unwrap();
    let incoming = coordinator.accept().await.unwrap();
    client.close(0_u32.into(), b"");
    drop(connecting);
    assert!(quic::handshake(incoming, &[Role::Client], LONG).await.is_err());
}
