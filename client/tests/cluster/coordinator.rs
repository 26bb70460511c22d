//! A coordinator that says what the test tells it to.

use std::net::SocketAddr;

use spdl_wire::{
    certs::Role,
    messages::{FromCoordinator, Home, Join, RankBeat, Refusal, Session, StartReason, ToCoordinator},
    quic::{HANDSHAKE_TIMEOUT, handshake, serve_requests},
};
use tokio::task::JoinHandle;

use super::{Cluster, Watched, session};

/// What it says and what it heard.
pub(crate) struct Told {
    pub(crate) session: Session,
    /// The homes there are; the first that is not reported unreachable is given.
    pub(crate) homes: Vec<Home>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) joins: Vec<Join>,
    pub(crate) beats: Vec<RankBeat>,
    pub(crate) leaves: Vec<RankBeat>,
}

pub(crate) struct Coordinator {
    pub(crate) address: SocketAddr,
    pub(crate) told: Watched<Told>,
    endpoint: quinn::Endpoint,
    task: JoinHandle<()>,
}

impl Coordinator {
    pub(crate) fn start(cluster: &Cluster, world: u32, homes: Vec<Home>) -> Self {
        let (endpoint, address) = cluster.server(Role::Coordinator);
        let told = Watched::new(Told {
            session: session(world),
            homes,
            refusal: None,
            joins: vec![],
            beats: vec![],
            leaves: vec![],
        });
        let task = tokio::spawn(serve(endpoint.clone(), told.clone()));
        Self { address, told, endpoint, task }
    }

    /// Gone, as after a kill: nobody answers any more.
    pub(crate) fn die(&self) {
        self.task.abort();
        self.endpoint.close(9u32.into(), b"killed");
    }
}

async fn serve(endpoint: quinn::Endpoint, told: Watched<Told>) {
    while let Some(incoming) = endpoint.accept().await {
        let told = told.clone();
        tokio::spawn(async move {
            let (connection, _) = handshake(incoming, &[Role::Client], HANDSHAKE_TIMEOUT).await?;
            let handler = move |request| {
                let answer = told.change(|told| told.answer(request));
                std::future::ready(answer)
            };
            Err::<(), _>(serve_requests(connection, handler).await)
        });
    }
}

impl Told {
    fn answer(&mut self, request: ToCoordinator) -> FromCoordinator {
        let home = |unreachable| self.homes.iter().find(|home| Some(home.worker) != unreachable).cloned();
        let answer = match &request {
            ToCoordinator::Join(_) => {
                let session = Box::new(self.session.clone());
                FromCoordinator::Joined { session, reason: StartReason::Given, home: home(None), beat_ms: 20 }
            }
            ToCoordinator::RankBeat(beat) => FromCoordinator::RankHeard { home: home(beat.unreachable), beat_ms: 20 },
            ToCoordinator::RankLeave(_) => FromCoordinator::Done,
            other => panic!("a client asks for {other:?}"),
        };
        match request {
            ToCoordinator::Join(join) => self.joins.push(join),
            ToCoordinator::RankBeat(beat) => self.beats.push(beat),
            ToCoordinator::RankLeave(beat) => self.leaves.push(beat),
            _ => {}
        }
        self.refusal.clone().map_or(answer, FromCoordinator::Refused)
    }
}
