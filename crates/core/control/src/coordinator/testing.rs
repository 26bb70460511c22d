//! A job, and the messages of workers and ranks, for tests.

use std::sync::LazyLock;

use crate::{
    messages::{Home, Join, RankHeartbeat, Start, WorkerHeartbeat},
    trace::{SpanState, TracePart, TraceSource, UnitSpan},
};
use spdl_job::{Column, ColumnKind, IntColumn, Job, testing};
use spdl_order::{OrderParams, Receipt};
use spdl_types::{BadSample, BatchId, DType, Fingerprint, NodeId, Position, SessionId, Stage, WorkerId};

static FINGERPRINT: LazyLock<Fingerprint> = LazyLock::new(|| job("j").fingerprint());

/// Returns a job of 10,000 samples with one column.
#[must_use]
pub fn job(name: &str) -> Job {
    let columns = vec![Column::new("label", "cls", ColumnKind::Int(IntColumn), DType::I64)];
    Job {
        name: name.to_owned(),
        dataset: "/data/pictures".to_owned(),
        dataset_fingerprint: Fingerprint(0xfeed),
        seed: 17,
        epochs: 3,
        order: OrderParams { version: 1, lanes: 4, window: 100, shuffle: true },
        ..testing::job(10_000, 96, columns)
    }
}

/// Returns the join of a rank whose launch resumes the run with the job's name. All such launches have one id, so they
/// are restarts.
#[must_use]
pub fn join(rank: u32, world: u32, nonce: u64) -> Join {
    Join {
        job: "j".to_owned(),
        run: "j".to_owned(),
        rank,
        world,
        global_batch: None,
        epochs: None,
        start: Start::Resume,
        fingerprint: None,
        launch: Some("launch".to_owned()),
        takeover: false,
        session: None,
        changes: None,
        since_unix_s: 0,
        node: NodeId(format!("node-{rank}")),
        client: format!("client-{nonce}"),
        nonce,
    }
}

/// Returns the heartbeat of a rank that has acknowledged `offset` samples of the first epoch.
#[must_use]
pub fn heartbeat(session: u64, rank: u32, nonce: u64, offset: u64) -> RankHeartbeat {
    RankHeartbeat {
        session: SessionId(session),
        job: "j".to_owned(),
        rank,
        nonce,
        acknowledged: Position::new(0, offset),
        receipt: Receipt(u128::from(offset)),
        unreachable: None,
        waited_ms: 0,
        transport: None,
        received: Default::default(),
        handed: Position::new(0, offset),
        fingerprint: *FINGERPRINT,
        promise: None,
        number: 0,
    }
}

/// Returns the heartbeat of a worker without ranks.
#[must_use]
pub fn worker(id: u64, node: &str) -> WorkerHeartbeat {
    WorkerHeartbeat {
        home: Home {
            worker: WorkerId(id),
            name: format!("worker-{id}"),
            node: NodeId(node.to_owned()),
            quic: ([10, 0, (id >> 8) as u8, id as u8], 7500).into(),
            socket: None,
        },
        cores: 4.0,
        draining: false,
        ranks: Vec::new(),
        stages: Vec::new(),
        uptime_ms: 0,
        cpu_ns: 0,
        sending_thread_ns: 0,
        store: Default::default(),
        cache: Default::default(),
        slow_object: None,
        tuning: Default::default(),
        bad_samples: Vec::new(),
        peer_map: 0,
        peers: Default::default(),
        help: Default::default(),
    }
}

/// Returns a bad sample of the job `j`.
#[must_use]
pub fn bad_sample(sample: u64) -> BadSample {
    BadSample {
        job: "j".to_owned(),
        sample: spdl_types::SampleId(sample),
        shard: "train-0.tar".to_owned(),
        key: format!("n01/{sample}"),
        cause: "ends after 12 bytes".to_owned(),
    }
}

/// Returns the last part of trace 1 of a worker: two intervals of one thread.
#[must_use]
pub fn trace_part(worker: WorkerId) -> TracePart {
    let batch = BatchId { session: SessionId(1), rank: 0, from: Position::new(0, 96) };
    let span = |start_us, batch| UnitSpan { unit: 0, state: SpanState::Busy, start_us, end_us: start_us + 5, batch };
    TracePart {
        trace: 1,
        source: TraceSource::Worker(worker),
        number: 0,
        name: "worker".to_owned(),
        accuracy_us: 50,
        lost: 0,
        stages: vec![(Stage::Decode, vec![span(10, Some(batch)), span(20, None)])],
        is_last: true,
    }
}
