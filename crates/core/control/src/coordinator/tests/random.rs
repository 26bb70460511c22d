//! Random sequences of events, and the invariants that must hold after each event.

use std::collections::BTreeMap;

use crate::{
    coordinator::{
        testing::{heartbeat, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{Join, RankHeartbeat, Start, WorkerHeartbeat},
};
use proptest::prelude::*;
use spdl_types::{Position, WorkerId};

/// A random event. The session of a heartbeat or a leave counts back from the newest.
#[derive(Clone, Debug)]
enum RandomEvent {
    Worker { id: u64, draining: bool },
    Close { id: u64 },
    Join { rank: u32, world: u32, nonce: u64, start: Option<u64> },
    Heartbeat { session: u64, rank: u32, nonce: u64, offset: u64, unreachable: Option<u64> },
    Leave { session: u64, rank: u32, nonce: u64 },
    Pass { ms: u64 },
    Restart,
}

fn event() -> impl Strategy<Value = RandomEvent> {
    // Few enough ids that joins and heartbeats often meet: two launches of up to three ranks.
    let ranks = || (0..3u32, 0..2u64);
    prop_oneof![
        4 => (0..4u64, any::<bool>()).prop_map(|(id, draining)| RandomEvent::Worker { id, draining }),
        1 => (0..4u64).prop_map(|id| RandomEvent::Close { id }),
        4 => (ranks(), 1..4u32, proptest::option::weighted(0.1, 0..5u64))
            .prop_map(|((rank, nonce), world, start)| RandomEvent::Join { rank, world, nonce, start }),
        8 => (0..2u64, ranks(), 0..100u64, proptest::option::of(0..4u64)).prop_map(
            |(session, (rank, nonce), offset, unreachable)| RandomEvent::Heartbeat { session, rank, nonce, offset, unreachable }
        ),
        1 => (0..2u64, ranks()).prop_map(|(session, (rank, nonce))| RandomEvent::Leave { session, rank, nonce }),
        2 => (0..7_000u64).prop_map(|ms| RandomEvent::Pass { ms }),
        1 => Just(RandomEvent::Restart),
    ]
}

/// The facts that an outside observer can know: the world and start of each session, and what was acknowledged in it.
#[derive(Default)]
struct Observer {
    sessions: BTreeMap<u64, (u32, Position)>,
    acknowledged: BTreeMap<u64, BTreeMap<u32, Position>>,
    newest: u64,
}

impl Observer {
    /// Returns the furthest position at which a session without a given start may begin.
    fn last_acknowledged(&self) -> Position {
        let Some((world, start)) = self.sessions.get(&self.newest) else { return Position::START };
        let ranks = &self.acknowledged[&self.newest];
        (0..*world).map(|rank| ranks.get(&rank).copied().unwrap_or(*start).max(*start)).min().unwrap_or(*start)
    }
}

fn apply(world: &mut CoordinatorWorld, oracle: &mut Observer, event: RandomEvent) -> Result<(), TestCaseError> {
    match event {
        RandomEvent::Worker { id, draining } => {
            world.worker(WorkerHeartbeat { draining, ..worker(id, &format!("node-{id}")) });
        }
        RandomEvent::Close { id } => world.close(id),
        RandomEvent::Pass { ms } => world.pass_ms(ms),
        RandomEvent::Restart => world.restart(),
        RandomEvent::Leave { session, rank, nonce } => {
            let session = oracle.newest.saturating_sub(session);
            let request = crate::messages::ToCoordinator::RankLeave(heartbeat(session, rank, nonce, 0));
            world.send_as(crate::coordinator::Role::Client, 99, request);
        }
        RandomEvent::Join { rank, world: size, nonce, start } => {
            let start = start.map(|offset| Position::new(0, offset));
            let asked = start.map_or(Start::Resume, Start::At);
            if let Ok((session, home)) = world.try_join(Join { start: asked, ..join(rank, size, nonce) }) {
                prop_assert_eq!(session.world, size);
                if session.id.0 > oracle.newest {
                    let furthest = start.unwrap_or_else(|| oracle.last_acknowledged());
                    prop_assert!(session.start <= furthest, "{} is past {furthest}", session.start);
                    oracle.sessions.insert(session.id.0, (size, session.start));
                    oracle.acknowledged.insert(session.id.0, BTreeMap::new());
                    oracle.newest = session.id.0;
                }
                let given = oracle.sessions[&session.id.0];
                prop_assert_eq!(given, (session.world, session.start), "the first join fixes world and start");
                prop_assert_eq!(session.id.0, oracle.newest, "no rank joins a session that has a successor");
                prop_assert!(start.is_none_or(|start| start == session.start));
                check_home(world, home)?;
            }
        }
        RandomEvent::Heartbeat { session, rank, nonce, offset, unreachable } => {
            let session = oracle.newest.saturating_sub(session);
            let sent =
                RankHeartbeat { unreachable: unreachable.map(WorkerId), ..heartbeat(session, rank, nonce, offset) };
            if let Ok(home) = world.heartbeat(sent) {
                prop_assert_eq!(session, oracle.newest);
                let ranks = oracle.acknowledged.get_mut(&session).unwrap();
                let furthest = ranks.entry(rank).or_default();
                *furthest = (*furthest).max(Position::new(0, offset));
                check_home(world, home)?;
            }
        }
    }
    Ok(())
}

fn check_home(world: &CoordinatorWorld, home: Option<u64>) -> Result<(), TestCaseError> {
    let status = world.core.status();
    let living: Vec<&str> = status.workers.iter().map(|worker| worker.worker.as_str()).collect();
    if let Some(home) = home {
        prop_assert!(living.contains(&format!("{home:016x}").as_str()), "home {home} is not among {living:?}");
    }
    Ok(())
}

/// Checks that the status is consistent with itself.
fn check_status(world: &CoordinatorWorld) -> Result<(), TestCaseError> {
    let status = world.core.status();
    let living: Vec<&String> = status.workers.iter().map(|worker| &worker.worker).collect();
    for session in &status.sessions {
        prop_assert!(session.ranks.len() <= session.world as usize);
        prop_assert!(session.acknowledged >= session.start);
        for rank in &session.ranks {
            prop_assert!(rank.rank < session.world);
            prop_assert!(rank.home_worker.as_ref().is_none_or(|home| living.contains(&home)));
            prop_assert!(session.superseded_by.is_none() || rank.home_worker.is_none());
        }
    }
    prop_assert!(world.core.records_all(), "a change of a rank was not noted for its record");
    for (worker, counted, alive) in world.core.recount() {
        prop_assert_eq!(counted, alive, "ranks of {:?}", worker);
    }
    let current = status.sessions.iter().filter(|session| session.superseded_by.is_none()).count();
    prop_assert!(current <= 1, "one job has one session");
    Ok(())
}

proptest! {
    #[test]
    fn whatever_happens_homes_are_alive_sessions_are_fixed_and_no_start_is_unacknowledged(
        events in proptest::collection::vec(event(), 1..120),
    ) {
        let mut world = CoordinatorWorld::new();
        let mut oracle = Observer::default();
        for event in events {
            apply(&mut world, &mut oracle, event)?;
            check_status(&world)?;
        }
    }
}
