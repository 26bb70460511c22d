//! The rules of the coordinator, one test each, in virtual time.

mod bad_samples;
mod changes;
mod diagnosis;
mod heartbeats;
mod history;
mod jobs;
mod later_jobs;
mod launches;
mod limits;
mod membership;
mod peers;
mod progress;
mod random;
mod restart;
mod roles;
mod runs;
mod scale;
mod sessions;
mod trace;
mod world;

use crate::messages::RankStats;
use spdl_insight::Transport;
use spdl_types::SessionId;

/// Returns the statistics of a rank on the node of its home.
fn rank_stats(session: u64, rank: u32) -> RankStats {
    RankStats {
        session: SessionId(session),
        rank,
        transport: Transport::Local,
        batches: 0,
        ready: 0,
        slots: 4,
        stall: None,
    }
}
