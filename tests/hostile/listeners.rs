//! Peers that connect and do not authenticate: half-open handshakes, silent sockets, HTTP requests that never end,
//! users without permission. None of them has a certificate.

use std::{
    fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    path::Path,
    process::Command,
};

use quinn::Endpoint;
use spdl_control::Role;
use spdl_testkit::{
    http,
    processes::{LIMIT, run},
};
use tokio::{net::UdpSocket, sync::watch};

use super::attacked_cluster::AttackedCluster;

/// Number of connections of each kind: more than the servers keep.
const CONNECTIONS: usize = 300;

/// Starts a relay that forwards datagrams to `server` and drops the answers. Returns its address and the number of
/// datagrams forwarded.
async fn one_way(server: SocketAddr) -> (SocketAddr, watch::Receiver<usize>) {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).await.unwrap();
    let (address, (count, forwarded)) = (socket.local_addr().unwrap(), watch::channel(0));
    tokio::spawn(async move {
        let mut datagram = vec![0; 2048];
        loop {
            let Ok((bytes, from)) = socket.recv_from(&mut datagram).await else { continue };
            if from != server && socket.send_to(&datagram[..bytes], server).await.is_ok() {
                count.send_modify(|count| *count += 1);
            }
        }
    });
    (address, forwarded)
}

/// Begins handshakes with a server without end, none of which completes.
async fn half_open(endpoint: &Endpoint, server: SocketAddr, role: Role) {
    let (relay, mut forwarded) = one_way(server).await;
    for _ in 0..CONNECTIONS {
        let endpoint = endpoint.clone();
        tokio::spawn(async move {
            while let Ok(connecting) = endpoint.connect(relay, role.dns_name()) {
                assert!(connecting.await.is_err(), "no answer comes through");
            }
        });
    }
    let all = tokio::time::timeout(LIMIT, forwarded.wait_for(|count| *count >= CONNECTIONS)).await;
    all.expect("the handshakes begin").expect("the relay lasts");
}

/// Whether the other side has closed the connection.
fn is_closed(read: io::Result<usize>) -> bool {
    match read {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn peers_that_do_not_authenticate_keep_no_other_peer_out() {
    let attacked = AttackedCluster::start();
    let endpoint = attacked.endpoint(&attacked.identity(Role::Client));
    attacked.runtime.block_on(async {
        half_open(&endpoint, attacked.worker(), Role::Worker).await;
        half_open(&endpoint, attacked.coordinator(), Role::Coordinator).await;
    });
    let socket = &attacked.cluster.workers[0].socket;
    let mut silent: Vec<UnixStream> = (0..CONNECTIONS).map(|_| UnixStream::connect(socket).unwrap()).collect();
    let coordinator_http: SocketAddr = attacked.cluster.http.parse().unwrap();
    let mut slow: Vec<TcpStream> = Vec::new();
    for http in [attacked.worker_http(0), coordinator_http] {
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(http).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow: ").unwrap();
            slow.push(stream);
        }
    }
    attacked.ranks_finish("listeners");
    for http in [attacked.worker_http(0), coordinator_http] {
        let (code, answer) = http::get(http, "/metrics", LIMIT).unwrap();
        assert_eq!(code, 200, "{answer}");
    }
    // The oldest connections were closed to make room.
    silent[0].set_read_timeout(Some(LIMIT)).unwrap();
    slow[0].set_read_timeout(Some(LIMIT)).unwrap();
    assert!(is_closed(silent[0].read(&mut [0])), "the first silent connection is closed");
    assert!(is_closed(slow[0].read(&mut [0])), "the first slow request is closed");
}

#[test]
fn another_user_may_not_use_the_socket() {
    if !rustix::process::geteuid().is_root() {
        spdl_testkit::skipped("only root can act as other users");
        return;
    }
    let mut attacked = AttackedCluster::start();
    // A folder that all users can enter, so that only the peer's credentials decide.
    let folder = attacked.cluster.path("open");
    for folder in [attacked.cluster.folder.path(), &folder] {
        fs::create_dir_all(folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let socket = folder.join("worker.sock");
    attacked.cluster.start_worker_on("node-1", &socket, &["--allow-uid", "65533"]);
    let connect_and_read = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        while b := s.recv(4096): sys.stdout.buffer.write(b)";
    let connect = |uid: u32, socket: &Path| {
        let mut python = Command::new("python3");
        run(python.arg("-c").arg(connect_and_read).arg(socket).uid(uid).gid(uid))
    };
    let refused = connect(65534, &socket);
    assert!(refused.stdout.contains("of user 65534 may not use socket"), "{} {}", refused.stdout, refused.stderr);
    let metrics = http::get(attacked.worker_http(1), "/metrics", LIMIT).unwrap().1;
    assert!(metrics.contains("spdl_worker_peers_rejected_total{cause=\"role\"} 1"), "{metrics}");
    // If no other user is allowed, the kernel refuses the connection.
    let socket = attacked.cluster.workers[0].socket.clone();
    connect(65534, &socket).error(&["PermissionError"]);
    attacked.ranks_finish("users");
}
