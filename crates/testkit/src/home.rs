//! The session and the request with which a rank attaches to a home, for tests and benchmarks of the channel between
//! them.

use spdl_control::{client::testing, messages::Session};
use spdl_types::{Position, SessionId};
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
        receive: Attach::counters(),
    }
}
