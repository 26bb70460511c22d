//! The two ends of a transfer, each a process of its own: the sender has a batch in as many buffers as a slab has slots, and sends
//! them until it is killed; the receiver reads into as many.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use spdl_control::{
    Role,
    messages::{FromHome, ToHome},
};
use spdl_testkit::home::attach_request;
use spdl_wire::{
    certs::Identity,
    home::{self, HomeListener, HomeReceiver, HomeSender},
    quic::{self, QuicSettings},
    slab::Slab,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::{
    BATCH_BYTES,
    meter::{Meter, print},
    udp,
};

/// The file of the batch, in the folder of both ends.
pub(crate) const BATCH: &str = "replayed/step-00000/image.npy";
/// Slots of a rank with one connection or two.
const SLOTS: u32 = 4;
const TIMEOUT: Duration = Duration::from_secs(30);

/// A way to transfer batches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// As a worker does.
    Batches,
    /// One endless stream over a connection of our endpoints.
    Stream,
    Tls,
    Tcp,
    Udp,
}

impl Way {
    const ALL: [Self; 5] = [Self::Batches, Self::Stream, Self::Tls, Self::Tcp, Self::Udp];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Batches => "batches",
            Self::Stream => "stream",
            Self::Tls => "tls",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// One end of a transfer, as the command line describes it.
pub(crate) struct End {
    way: Way,
    /// The folder with the batch and the certificates.
    folder: PathBuf,
    settings: QuicSettings,
    seconds: f64,
    /// The sender's, for the receiver.
    address: Option<SocketAddr>,
}

impl End {
    /// Reads `end send|receive WAY FOLDER SETTINGS SECONDS [ADDRESS]`.
    pub(crate) fn parse(arguments: &[String]) -> Option<Self> {
        let [_, end, _, way, folder, settings, seconds, address @ ..] = arguments else { return None };
        (end == "end").then(|| Self {
            way: Way::ALL.into_iter().find(|known| known.name() == way).expect("a way"),
            folder: folder.into(),
            settings: settings.parse().expect("settings"),
            seconds: seconds.parse().expect("seconds"),
            address: address.first().map(|address| address.parse().expect("an address")),
        })
    }

    /// Sends or receives until the process is killed. A worker has at least two threads for its connections, and a client one.
    pub(crate) fn run(&self) {
        let least = if self.address.is_some() { 1 } else { 2 };
        let threads = self.settings.connections_of_rank().max(least);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
        runtime.expect("a runtime starts").block_on(async {
            match self.address {
                Some(address) => self.receive(address).await,
                None => self.send().await,
            }
        });
    }

    /// Returns the number of slots, so that each connection carries a batch while another one waits for a slot.
    fn slots(&self) -> u32 {
        SLOTS.max(2 * self.settings.connections_of_rank() as u32)
    }

    fn identity(&self, role: Role) -> Identity {
        Identity::load(&self.folder.join("certs").join(role.name())).expect("certificates")
    }

    async fn send(&self) {
        let batch = batch(&self.folder);
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        match self.way {
            Way::Batches => {
                let endpoint = quic::server_endpoint(any, &self.identity(Role::Worker), &self.settings).expect("bound");
                print(&endpoint.local_addr().expect("bound"));
                let mut listener = HomeListener::start(None, Some(endpoint));
                let request = listener.accept().await.expect("a client");
                let slab = request.new_slab(self.slots(), BATCH_BYTES).expect("memory");
                let (sender, receiver) = request.attached(&slab).await.expect("attached");
                tokio::spawn(deliver(slab, sender, receiver, batch)).await.expect("it ends in order");
            }
            Way::Stream => {
                let endpoint = quic::server_endpoint(any, &self.identity(Role::Worker), &self.settings).expect("bound");
                print(&endpoint.local_addr().expect("bound"));
                let incoming = endpoint.accept().await.expect("a client");
                let (connection, _) = quic::handshake(incoming, &[Role::Client], TIMEOUT).await.expect("a client");
                let mut stream = connection.open_uni().await.expect("a stream");
                let buffers: Vec<Bytes> = (0..SLOTS).map(|_| batch.clone().into()).collect();
                let sending = async move {
                    for buffer in buffers.iter().cycle() {
                        if stream.write_chunk(buffer.clone()).await.is_err() {
                            return;
                        }
                    }
                };
                tokio::spawn(sending).await.expect("it ends in order");
            }
            Way::Tls | Way::Tcp => {
                let listener = TcpListener::bind(any).await.expect("bound");
                print(&listener.local_addr().expect("bound"));
                let (stream, _) = listener.accept().await.expect("a client");
                let sending = if self.way == Way::Tcp {
                    tokio::spawn(write(stream, batch))
                } else {
                    let stream = TlsAcceptor::from(Arc::new(self.tls_server())).accept(stream).await;
                    tokio::spawn(write(stream.expect("a client"), batch))
                };
                sending.await.expect("it ends in order");
            }
            Way::Udp => udp::send(&batch, &self.settings, |address| print(&address)).await,
        }
    }

    async fn receive(&self, address: SocketAddr) {
        let mut meter = Meter::new(self.seconds);
        match self.way {
            Way::Batches => {
                let mut connections = Vec::new();
                for _ in 0..self.settings.connections_of_rank() {
                    connections.push(self.connect(address).await);
                }
                let attach = home::attach_quic(connections, attach_request(self.slots()), BATCH_BYTES, TIMEOUT).await;
                let (mut sender, mut receiver) = attach.expect("attached");
                while let FromHome::Filled { slot, used_bytes, .. } = receiver.recv().await.expect("the home is there")
                {
                    meter.add(used_bytes as usize);
                    sender.free(slot).await.expect("the home is there");
                }
            }
            Way::Stream => {
                let connection = self.connect(address).await;
                let mut stream = connection.accept_uni().await.expect("a stream");
                let mut buffers = buffers();
                for turn in 0.. {
                    stream.read_exact(&mut buffers[turn % SLOTS as usize]).await.expect("the sender is there");
                    meter.add(BATCH_BYTES);
                }
            }
            Way::Tls | Way::Tcp => {
                let stream = TcpStream::connect(address).await.expect("connected");
                if self.way == Way::Tcp {
                    return read(stream, meter).await;
                }
                let name = ServerName::try_from(Role::Worker.dns_name()).expect("a name");
                let connected = TlsConnector::from(Arc::new(self.tls_client())).connect(name, stream).await;
                read(connected.expect("connected"), meter).await;
            }
            Way::Udp => udp::receive(address, &self.settings, meter).await,
        }
    }

    async fn connect(&self, address: SocketAddr) -> quinn::Connection {
        let endpoint = quic::client_endpoint(&self.identity(Role::Client), &self.settings).expect("bound");
        quic::connect(&endpoint, address, Role::Worker, TIMEOUT).await.expect("connected")
    }

    fn pem(&self, file: &str) -> Vec<u8> {
        fs::read(self.folder.join("certs").join(Role::Worker.name()).join(file)).expect("a certificate")
    }

    fn tls_server(&self) -> ServerConfig {
        let certificates = CertificateDer::pem_slice_iter(&self.pem("cert.pem")).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(&self.pem("key.pem")).expect("a key");
        let builder =
            ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13]);
        let builder = builder.expect("TLS 1.3").with_no_client_auth();
        builder.with_single_cert(certificates.expect("certificates"), key).expect("a certificate and its key")
    }

    fn tls_client(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&self.pem("ca.pem")).expect("a CA")).expect("a CA");
        let builder =
            ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13]);
        builder.expect("TLS 1.3").with_root_certificates(roots).with_no_client_auth()
    }
}

/// Reads the batch.
pub(crate) fn batch(folder: &Path) -> Vec<u8> {
    let mut file = File::open(folder.join(BATCH)).expect("a batch");
    // The header of the array's file comes first.
    file.seek(SeekFrom::End(-(BATCH_BYTES as i64))).expect("a batch is that long");
    let mut batch = vec![0; BATCH_BYTES];
    file.read_exact(&mut batch).expect("a batch is that long");
    batch
}

/// Returns the cipher that QUIC uses between our processes.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() })
}

/// Delivers the batch through all slots until the client is gone.
async fn deliver(slab: Slab, mut sender: HomeSender, mut receiver: HomeReceiver, batch: Vec<u8>) {
    for sequence in 0.. {
        while slab.free_slots() == 0 {
            let Ok(Some(ToHome::Freed { .. })) = receiver.recv().await else { return };
        }
        let mut slot = slab.take_any().expect("a slot is free");
        if sequence < u64::from(slab.slots()) {
            slot[..batch.len()].copy_from_slice(&batch);
        }
        if sender.deliver(sequence, slot.publish(), BATCH_BYTES as u64).await.is_err() {
            return;
        }
    }
}

fn buffers() -> Vec<Vec<u8>> {
    vec![vec![0; BATCH_BYTES]; SLOTS as usize]
}

async fn write(mut stream: impl AsyncWrite + Unpin, batch: Vec<u8>) {
    let buffers = vec![batch; SLOTS as usize];
    for buffer in buffers.iter().cycle() {
        if stream.write_all(buffer).await.is_err() {
            return;
        }
    }
}

async fn read(mut stream: impl AsyncRead + Unpin, mut meter: Meter) {
    let mut buffers = buffers();
    for turn in 0.. {
        stream.read_exact(&mut buffers[turn % SLOTS as usize]).await.expect("the sender is there");
        meter.add(BATCH_BYTES);
    }
}
