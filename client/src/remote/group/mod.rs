//! The processes of a node that share a rank: what their leader does beside its session, and the source of the other members.

mod leader;
mod member;

pub(super) use leader::{GroupInput, GroupLeader};
pub(super) use member::{MemberJoin, join};

use std::{path::PathBuf, time::Duration};

use spdl_control::client::group::TICKS_PER_TIMEOUT;
use spdl_wire::{group::GroupName, home::ChannelError};
use tokio::time::{Interval, MissedTickBehavior};

use crate::ClientError;

/// Returns the path of the socket on which the members of a rank's group meet.
pub(super) fn socket(coordinators: &str, job: &str, run: &str, rank: u32, world: u32) -> Result<PathBuf, ClientError> {
    GroupName { coordinators, job, run, rank, world }.socket().map_err(|error| socket_error(&error))
}

/// Returns the ticks of a member's timeout. A process that was suspended gets one, however long that was.
fn ticks(timeout: Duration) -> Interval {
    let mut ticks = tokio::time::interval(timeout / TICKS_PER_TIMEOUT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Returns the text of an error of a channel between members, without what only a home would be.
fn problem_of(error: ChannelError) -> String {
    match error {
        ChannelError::Refused { message, .. } => message,
        error => error.to_string(),
    }
}

/// Returns an error of the group's socket.
fn socket_error(error: &impl ToString) -> ClientError {
    ClientError::System { action: "open the socket of the group", cause: error.to_string() }
}
