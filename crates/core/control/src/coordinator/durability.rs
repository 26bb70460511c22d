//! Rules for which answers wait for the durable state, and which requests are refused while nothing can be written.

use std::collections::BTreeSet;

use std::time::Duration;

use crate::messages::{FromCoordinator, Refusal, ToCoordinator};
use spdl_types::mutations::{Mutation, mutated};

use super::CoordinatorCore;

/// Decides how long each answer waits for the durable state, while a coordinator leads.
#[derive(Debug)]
pub struct Durability {
    /// Whether another coordinator can continue from the state.
    is_shared: bool,
    /// The nonces of ranks whose place in a session is not durable yet: the write is pending, or it failed and they
    /// were refused.
    unkept: BTreeSet<u64>,
}

/// The conditions under which a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whether the request is refused if its changes cannot be written.
    pub must_last: bool,
    /// Whether the answer waits until everything before it is durable, even if this request changes nothing.
    pub waits: bool,
    /// The nonce of a rank that takes a new place in a session.
    newcomer: Option<u64>,
}

impl Durability {
    /// Creates the rules for a state that other coordinators can continue from (`is_shared`) or not.
    #[must_use]
    pub const fn new(is_shared: bool) -> Self {
        Self { is_shared, unkept: BTreeSet::new() }
    }

    /// Returns how to answer a request that the core handles next, at the same `now_ms`. `problem` is why nothing can
    /// be written, while that is known.
    ///
    /// # Errors
    /// While nothing can be written, requests for something new are refused: no job is created or removed, no run is
    /// reset, and no rank takes a place in a session, because after a crash the same place, or the same session id,
    /// would be given to another rank. A rank that already has its place continues: a full disk stops no running rank.
    pub fn terms(
        &mut self,
        core: &mut CoordinatorCore,
        now_ms: u64,
        request: &ToCoordinator,
        problem: Option<String>,
    ) -> Result<Terms, Refusal> {
        let newcomer = match request {
            ToCoordinator::Join(join) => (core.adds_rank(now_ms, join) || self.unkept.contains(&join.nonce))
                .then_some(join.nonce)
                .filter(|_| !mutated(Mutation::AdmitUnwritten)),
            _ => None,
        };
        let is_order = matches!(
            request,
            ToCoordinator::SubmitJob { .. }
                | ToCoordinator::ReplaceJob { .. }
                | ToCoordinator::RemoveJob { .. }
                | ToCoordinator::SetWeights { .. }
                | ToCoordinator::Redact { .. }
                | ToCoordinator::ResetRun(_)
        );
        if (is_order || newcomer.is_some())
            && let Some(cause) = problem
        {
            return Err(Refusal::Unwritable { cause });
        }
        // If the same join is repeated before the write is done, it must not count as the join of a rank that has its
        // place.
        self.unkept.extend(newcomer);
        let must_last = newcomer.is_some() || CoordinatorCore::answer_must_last(request, self.is_shared);
        Ok(Terms { must_last, waits: must_last || CoordinatorCore::answer_waits_for_earlier(request), newcomer })
    }

    /// Returns the answer to send, once the changes of the request are durable or the write failed with the given
    /// reason.
    pub fn answer(&mut self, terms: &Terms, written: Result<(), String>, answer: FromCoordinator) -> FromCoordinator {
        match written {
            Ok(()) => {
                if let Some(nonce) = terms.newcomer {
                    self.unkept.remove(&nonce);
                }
                answer
            }
            Err(cause) if terms.must_last => FromCoordinator::Refused(Refusal::Unwritable { cause }),
            Err(_) => answer,
        }
    }
}

/// Returns for how long a coordinator relies on a lease of `ttl`, counted from its request. The last quarter is not used,
/// as a margin for clock drift and for operations in progress.
#[must_use]
pub fn usable_lease(ttl: Duration) -> Duration {
    if mutated(Mutation::IgnoreLease) { ttl * 10 } else { ttl * 3 / 4 }
}

#[cfg(test)]
mod tests {
    use crate::{
        coordinator::{
            Answer, ConnectionId, CoordinatorConfig, Durable, NearestThenLeastLoaded, RequestPeer, Role,
            testing::{self, join},
        },
        messages::Join,
    };

    use super::*;

    const LIVENESS_MS: u64 = 5_000;

    fn start() -> (CoordinatorCore, Durability) {
        let config = CoordinatorConfig { liveness_ms: LIVENESS_MS, ..CoordinatorConfig::default() };
        let mut core = CoordinatorCore::new(config, Box::new(NearestThenLeastLoaded), Durable::default(), 0);
        core.handle_job(0, Ok(testing::job("j")));
        (core, Durability::new(false))
    }

    fn ask(core: &mut CoordinatorCore, now_ms: u64, question: &ToCoordinator) -> FromCoordinator {
        let peer = RequestPeer { connection: ConnectionId(1), role: Role::Client, name: String::new() };
        match core.handle_request(now_ms, &peer, question.clone()) {
            Answer::Reply(reply) => reply,
            answer => panic!("{answer:?}"),
        }
    }

    fn full() -> Option<String> {
        Some("the disk is full".to_owned())
    }

    fn is_unwritable<T>(result: &Result<T, Refusal>) -> bool {
        matches!(result, Err(Refusal::Unwritable { .. }))
    }

    #[test]
    fn a_rank_whose_place_was_not_written_is_refused_until_it_is_and_then_goes_on_whatever_the_disk_does() {
        let (mut core, mut rules) = start();
        let question = ToCoordinator::Join(join(0, 1, 7));
        let terms = rules.terms(&mut core, 0, &question, None).unwrap();
        let reply = ask(&mut core, 0, &question);
        let refused = rules.answer(&terms, Err("full".to_owned()), reply.clone());
        assert!(matches!(refused, FromCoordinator::Refused(Refusal::Unwritable { .. })), "{refused:?}");
        assert!(
            is_unwritable(&rules.terms(&mut core, 1, &question, full())),
            "the core knows of it, the disk does not"
        );
        let terms = rules.terms(&mut core, 2, &question, None).unwrap();
        assert!(terms.must_last && terms.waits, "{terms:?}");
        assert_eq!(rules.answer(&terms, Ok(()), reply.clone()), reply);
        let terms = rules.terms(&mut core, 3, &question, full()).unwrap();
        assert!(!terms.must_last && terms.waits, "{terms:?}");
        assert_eq!(rules.answer(&terms, Err("full".to_owned()), reply.clone()), reply);
    }

    #[test]
    fn a_launch_whose_predecessor_went_silent_after_the_last_tick_begins_nothing_while_the_state_is_unwritable() {
        let (mut core, mut rules) = start();
        ask(&mut core, 0, &ToCoordinator::Join(join(0, 1, 7)));
        // The ticks show that the coordinator itself was not suspended.
        for now_ms in (0..=LIVENESS_MS).step_by(200) {
            core.handle_tick(now_ms);
        }
        let other = Join { launch: Some("other".to_owned()), ..join(0, 1, 8) };
        let terms = rules.terms(&mut core, LIVENESS_MS + 1, &ToCoordinator::Join(other), full());
        assert!(is_unwritable(&terms), "{terms:?}");
    }
}
