//! The messages of a worker to the coordinator.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use spdl_insight::{CacheStats, SlowObject, Stall, StoreStats, Transport, tuning::TuningStatus};
use spdl_types::{BadSample, NodeId, SessionId, StageStats, WorkerId};

use crate::{help::HelpReport, peers::PeerStats};

/// The addresses of a home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The worker process.
    pub worker: WorkerId,
    /// The worker's name, for logs and the status.
    pub name: String,
    /// The node it runs on.
    pub node: NodeId,
    /// The QUIC address.
    pub quic: SocketAddr,
    /// The path of its Unix socket, if it has one.
    pub socket: Option<String>,
}

/// A worker's heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerHeartbeat {
    /// How to reach the worker.
    pub home: Home,
    /// The number of processor cores that it may use.
    pub cores: f64,
    /// Whether it drains: it accepts no new ranks, and its ranks are to move to other workers.
    pub draining: bool,
    /// The ranks that it serves.
    pub ranks: Vec<RankStats>,
    /// The statistics of its stages.
    pub stages: Vec<StageStats>,
    /// The time since the worker's start at which the statistics were read, in milliseconds.
    pub uptime_ms: u64,
    /// CPU time of the worker's process, in nanoseconds.
    pub cpu_ns: u64,
    /// CPU time of the thread that sends most batches over QUIC, as [`ReceiveStats::thread_ns`](spdl_insight::ReceiveStats), in nanoseconds.
    pub sending_thread_ns: u64,
    /// The faults of its stores.
    pub store: Box<StoreStats>,
    /// What its caches hold.
    pub cache: CacheStats,
    /// The object of a store whose requests take much longer than all others, if there is one.
    pub slow_object: Option<Box<SlowObject>>,
    /// The values that it tunes, and their latest changes.
    pub tuning: Box<TuningStatus>,
    /// Samples found bad since the last heartbeat that was answered.
    pub bad_samples: Vec<BadSample>,
    /// The version of the map of workers that it has; 0 for none.
    pub peer_map: u64,
    /// What it exchanged with other workers.
    pub peers: Box<PeerStats>,
    /// What it reports about helpers.
    pub help: Box<HelpReport>,
}

/// A worker's statistics of one of its ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RankStats {
    pub session: SessionId,
    pub rank: u32,
    pub transport: Transport,
    /// Batches delivered.
    pub batches: u64,
    /// Batches that are filled and that the trainer has not taken yet.
    pub ready: u32,
    /// The number of slots.
    pub slots: u32,
    /// What the next batch waits for, if it waits.
    pub stall: Option<Stall>,
}
