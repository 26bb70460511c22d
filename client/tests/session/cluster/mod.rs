//! A small cluster in the test's process that uses the real protocol: certificates, a coordinator, homes.

pub(crate) mod coordinator;
pub(crate) mod home;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use spdl_client::{Batch, Builder, Client};
use spdl_control::{Role, messages::Session};
use spdl_job::{BytesColumn, Column, ColumnKind, ImageColumn, ImageOp, IntColumn, Job, Resize, Size, testing};
use spdl_order::OrderParams;
pub(crate) use spdl_testkit::LONG;
use spdl_testkit::certs::{ClusterCerts, server_address};
use spdl_types::{DType, Position, SessionId};
use tokio::sync::watch;

/// A job of 50 samples per epoch, two epochs, batches of 8: 6 steps per epoch, 12 in total.
pub(crate) fn job() -> Job {
    let size = [2, 3];
    let ops = vec![ImageOp::Resize(Resize::to(Size::HeightWidth(size)))];
    let image = ImageColumn { ops, size, ..ImageColumn::default() };
    let columns = [
        ("image", ColumnKind::Image(image), DType::F32),
        ("text", ColumnKind::Bytes(BytesColumn { max_bytes: 64 }), DType::U8),
        ("label", ColumnKind::Int(IntColumn), DType::I64),
    ];
    let columns = columns.map(|(name, kind, dtype)| Column::new(name, name, kind, dtype)).into();
    let order = OrderParams { version: 1, lanes: 1, window: 10, shuffle: false };
    Job { epochs: 2, order, ..testing::job(50, 8, columns) }
}

pub(crate) fn session(world: u32) -> Session {
    Session { id: SessionId(7), job: job(), world, global_batch: 8, start: Position::START }
}

/// A value that a test can read, change, and wait for.
pub(crate) struct Watched<T> {
    value: Arc<Mutex<T>>,
    changed: watch::Sender<()>,
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), changed: self.changed.clone() }
    }
}

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Arc::new(Mutex::new(value)), changed: watch::Sender::new(()) }
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.value.lock());
        self.changed.send_replace(());
        result
    }

    /// Waits until `find` returns something.
    pub(crate) async fn wait<R>(&self, what: &str, mut find: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut changes = self.changed.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = find(&mut self.value.lock()) {
                    return found;
                }
                changes.changed().await.expect("the sender is here");
            }
        };
        tokio::time::timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("waited too long for {what}"))
    }
}

/// The certificates and sockets of a cluster.
#[derive(Default)]
pub(crate) struct TestCluster {
    certs: ClusterCerts,
}

impl TestCluster {
    pub(crate) fn new() -> Self {
        let cluster = Self::default();
        cluster.certs.write(Role::Client, "client");
        cluster
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.certs.path(name)
    }

    pub(crate) fn server(&self, role: Role) -> (quinn::Endpoint, SocketAddr) {
        let endpoint = self.certs.server(role);
        let address = server_address(&endpoint);
        (endpoint, address)
    }

    pub(crate) fn client(&self, coordinator: SocketAddr) -> Builder {
        Client::builder()
            .coordinator(&coordinator.to_string())
            .job("train")
            .certs(self.path("client"))
            .node("here")
            .slots(3)
            .timeout(LONG)
    }
}

/// Takes the next `count` batches. Looks at each, then drops it.
pub(crate) async fn take<R>(client: &mut Client, count: usize, mut look: impl FnMut(&Batch) -> R) -> Vec<R> {
    let mut seen = Vec::new();
    for _ in 0..count {
        let batch = client.next().await.unwrap().expect("not at the end");
        seen.push(look(&batch));
    }
    seen
}
