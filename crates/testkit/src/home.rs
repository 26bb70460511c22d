//! Messages of a rank and of its home, for tests and benchmarks of the channels between processes.

use std::net::{Ipv4Addr, SocketAddr};

use spdl_control::{
    client::testing,
    messages::{Home, Session, WorkerHeartbeat},
};
use spdl_types::{NodeId, Position, SessionId, Stage, StageStats, WorkerId};
use spdl_wire::home::Attach;

/// Returns a session of one rank.
pub fn session() -> Box<Session> {
    let job = testing::job();
    let global_batch = job.global_batch;
    Box::new(Session { id: SessionId(5), job, world: 1, global_batch, start: Position::START })
}

/// Returns the request of a rank of the session for `slots` slots.
pub fn attach_request(slots: u32) -> Attach {
    Attach {
        session: session(),
        rank: 3,
        from: Position::new(1, 2),
        slots,
        client: "test".into(),
        is_shared: false,
        receive: Attach::counters(),
    }
}

/// Returns the heartbeat of a worker with eight stages.
pub fn worker_heartbeat() -> WorkerHeartbeat {
    let home = Home {
        worker: WorkerId(1),
        name: "worker-0".into(),
        node: NodeId("node-0".into()),
        quic: SocketAddr::from((Ipv4Addr::LOCALHOST, 7400)),
        socket: Some("/run/spdl/worker.sock".into()),
    };
    WorkerHeartbeat {
        home,
        cores: 8.0,
        draining: false,
        ranks: vec![],
        stages: vec![StageStats { items: 1 << 40, ..StageStats::new(Stage::Decode) }; 8],
        uptime_ms: 1 << 30,
        cpu_ns: 1 << 40,
        sending_thread_ns: 1 << 30,
        store: Default::default(),
        cache: Default::default(),
        slow_object: None,
        tuning: Default::default(),
        bad_samples: vec![],
        peer_map: 0,
        peers: Default::default(),
        help: Default::default(),
    }
}
