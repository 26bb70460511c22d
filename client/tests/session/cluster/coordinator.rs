//! A coordinator whose answers the test sets.

use std::net::SocketAddr;

use spdl_control::{
    Role,
    messages::{FromCoordinator, Home, JobNotice, Join, RankHeartbeat, Refusal, Session, StartReason, ToCoordinator},
};
use spdl_wire::quic::{HANDSHAKE_TIMEOUT, handshake, serve_requests};
use tokio::task::JoinHandle;

use super::{TestCluster, Watched, session};

/// The answers that the coordinator gives, and the requests that it received.
pub(crate) struct CoordinatorRecord {
    pub(crate) session: Session,
    /// The homes. The coordinator names the first that the client has not reported unreachable.
    pub(crate) homes: Vec<Home>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) joins: Vec<Join>,
    pub(crate) heartbeats: Vec<RankHeartbeat>,
    pub(crate) leaves: Vec<RankHeartbeat>,
}

pub(crate) struct TestCoordinator {
    pub(crate) address: SocketAddr,
    pub(crate) record: Watched<CoordinatorRecord>,
    endpoint: quinn::Endpoint,
    task: JoinHandle<()>,
}

impl TestCoordinator {
    pub(crate) fn start(cluster: &TestCluster, world: u32, homes: Vec<Home>) -> Self {
        let (endpoint, address) = cluster.server(Role::Coordinator);
        let record = Watched::new(CoordinatorRecord {
            session: session(world),
            homes,
            refusal: None,
            joins: vec![],
            heartbeats: vec![],
            leaves: vec![],
        });
        let task = tokio::spawn(serve(endpoint.clone(), record.clone()));
        Self { address, record, endpoint, task }
    }

    /// Stops at once, as after a kill: no request is answered any more.
    pub(crate) fn die(&self) {
        self.task.abort();
        self.endpoint.close(9u32.into(), b"killed");
    }
}

async fn serve(endpoint: quinn::Endpoint, record: Watched<CoordinatorRecord>) {
    while let Some(incoming) = endpoint.accept().await {
        let record = record.clone();
        tokio::spawn(async move {
            let (connection, _) = handshake(incoming, &[Role::Client], HANDSHAKE_TIMEOUT).await?;
            let handler = move |request| {
                let answer = record.change(|record| record.answer(request));
                std::future::ready(answer)
            };
            Err::<(), _>(serve_requests(connection, handler).await)
        });
    }
}

impl CoordinatorRecord {
    fn answer(&mut self, request: ToCoordinator) -> FromCoordinator {
        let home = |unreachable| self.homes.iter().find(|home| Some(home.worker) != unreachable).cloned();
        let answer = match &request {
            ToCoordinator::Join(_) => {
                let session = Box::new(self.session.clone());
                FromCoordinator::Joined { session, reason: StartReason::Given, home: home(None), heartbeat_ms: 20 }
            }
            ToCoordinator::RankHeartbeat(heartbeat) => {
                let notice = JobNotice { fingerprint: self.session.job.fingerprint(), hold: None };
                let home = home(heartbeat.unreachable);
                FromCoordinator::RankAcknowledged { home, heartbeat_ms: 20, trace: None, notice }
            }
            ToCoordinator::RankLeave(_) => FromCoordinator::Done,
            other => panic!("a client asks for {other:?}"),
        };
        match request {
            ToCoordinator::Join(join) => self.joins.push(join),
            ToCoordinator::RankHeartbeat(heartbeat) => self.heartbeats.push(heartbeat),
            ToCoordinator::RankLeave(heartbeat) => self.leaves.push(heartbeat),
            _ => {}
        }
        self.refusal.clone().map_or(answer, FromCoordinator::Refused)
    }
}
