//! Limits on what a peer may report about itself, so that what is kept of each worker and rank, and shown in the
//! status, stays small.

use crate::{
    messages::{Join, Refusal, WorkerHeartbeat},
    trace::TracePart,
};
use spdl_insight::tuning::{SHOWN_CHANGES, Tunable};

use super::over_limit;

/// The largest length of a name, a path or a reason, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 4096;
/// The largest number of ranks that one worker serves.
pub(super) const MAX_RANKS_OF_WORKER: usize = 4096;
/// The largest number of stages that a worker reports.
pub(super) const MAX_STAGES: usize = 64;

fn text(subject: &str, text: &str) -> Result<(), Refusal> {
    match text.len() {
        0..=MAX_TEXT_BYTES => Ok(()),
        bytes => Err(over_limit(&format!("the length of {subject}"), bytes, MAX_TEXT_BYTES)),
    }
}

/// Checks that a worker's heartbeat is within the limits.
pub(super) fn check_heartbeat(heartbeat: &WorkerHeartbeat) -> Result<(), Refusal> {
    text("a worker's name", &heartbeat.home.name)?;
    text("a node's name", &heartbeat.home.node.0)?;
    text("a socket's path", heartbeat.home.socket.as_deref().unwrap_or_default())?;
    if heartbeat.ranks.len() > MAX_RANKS_OF_WORKER {
        return Err(over_limit("the number of a worker's ranks", heartbeat.ranks.len(), MAX_RANKS_OF_WORKER));
    }
    if heartbeat.stages.len() > MAX_STAGES {
        return Err(over_limit("the number of a worker's stages", heartbeat.stages.len(), MAX_STAGES));
    }
    heartbeat.stages.iter().try_for_each(|stage| text("a stage's name", stage.stage.name()))?;
    text("an object's path", heartbeat.slow_object.as_ref().map_or("", |slow| &slow.object))?;
    if heartbeat.tuning.values.len() > Tunable::ALL.len() || heartbeat.tuning.changes.len() > SHOWN_CHANGES {
        let reported = heartbeat.tuning.values.len().max(heartbeat.tuning.changes.len());
        return Err(over_limit("the number of a worker's tuned values and changes", reported, SHOWN_CHANGES));
    }
    heartbeat.tuning.changes.iter().try_for_each(|change| text("the reason of a change", &change.reason))?;
    for stall in heartbeat.ranks.iter().filter_map(|rank| rank.stall.as_ref()) {
        let texts = [&stall.worker, stall.stage.name(), &stall.waiting_for];
        texts.into_iter().try_for_each(|part| text("a stall's reason", part))?;
    }
    Ok(())
}

/// Checks that a part of a trace is within the limits.
pub(super) fn check_trace_part(part: &TracePart) -> Result<(), Refusal> {
    text("a process's name", &part.name)?;
    if part.stages.len() > MAX_STAGES {
        return Err(over_limit("the number of a process's stages", part.stages.len(), MAX_STAGES));
    }
    part.stages.iter().try_for_each(|(stage, _)| text("a stage's name", stage.name()))
}

/// Checks that a rank's join is within the limits.
pub(super) fn check_join(join: &Join) -> Result<(), Refusal> {
    text("a job's name", &join.job)?;
    text("a node's name", &join.node.0)?;
    text("a launch's id", join.launch.as_deref().unwrap_or_default())?;
    text("a client's name", &join.client)
}
