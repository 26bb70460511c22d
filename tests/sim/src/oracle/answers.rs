//! Checks of the coordinators' answers.

use spdl_control::messages::{FromCoordinator, Join, RankHeartbeat, Refusal, Session, Start, ToCoordinator};
use spdl_types::{Position, SessionId};

use super::{Fate, ObservedSession, Oracle, RunKey};
use crate::coverage::Coverage;

impl Oracle {
    /// Returns whether a coordinator may hear of a change of the job that it does not have: its disk was lost, or the job is made anew.
    pub(crate) fn may_lack_changes(&self, job: &str) -> bool {
        self.era > 0 || self.jobs.get(job).is_some_and(|job| job.was_removed)
    }

    pub(crate) fn is_removed(&self, job: &str) -> bool {
        matches!(self.fate(job), Fate::Removed { .. })
    }

    /// Checks an answer that a coordinator has decided on.
    pub(crate) fn answered(
        &mut self,
        at: usize,
        now_ms: u64,
        question: &ToCoordinator,
        answer: &FromCoordinator,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        match (question, answer) {
            (ToCoordinator::Join(join), FromCoordinator::Joined { session, .. }) => {
                self.on_join(at, now_ms, join, session, coverage)
            }
            (ToCoordinator::Join(_), FromCoordinator::Refused(refusal)) => {
                match refusal {
                    Refusal::RunInUse { .. } => coverage.count("join_refused_as_the_run_is_in_use"),
                    Refusal::SessionDisagrees { .. } => coverage.count("join_refused_as_it_disagrees"),
                    _ => {}
                }
                self.on_refused(at, question, refusal)
            }
            (ToCoordinator::RankHeartbeat(heartbeat), FromCoordinator::RankAcknowledged { .. })
            | (ToCoordinator::RankLeave(heartbeat), FromCoordinator::Done) => {
                if heartbeat.unreachable.is_some() {
                    coverage.count("home_out_of_reach");
                }
                self.on_heartbeat(at, now_ms, heartbeat, matches!(question, ToCoordinator::RankLeave(_)))
            }
            _ => Ok(()),
        }
    }

    fn on_refused(&self, at: usize, question: &ToCoordinator, refusal: &Refusal) -> Result<(), String> {
        let (ToCoordinator::Join(join), Refusal::SessionSuperseded { .. }) = (question, refusal) else { return Ok(()) };
        let newest = self.views.get(&at).and_then(|view| view.newest(&run_of(join)));
        let is_current =
            newest.is_some_and(|(_, known)| known.ranks.get(&join.rank).is_some_and(|(_, nonce)| *nonce == join.nonce));
        if is_current {
            Err("a rank of the newest session got the answer that there is a newer one".into())
        } else {
            Ok(())
        }
    }

    fn on_join(
        &mut self,
        at: usize,
        now_ms: u64,
        join: &Join,
        session: &Session,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let Session { id, world, start, .. } = *session;
        let wanted = match join.start {
            Start::Beginning => Some(Position::START),
            Start::Resume => None,
            Start::At(position) => Some(position),
        };
        if world != join.world || wanted.is_some_and(|wanted| wanted != start) {
            return Err(format!("rank {} wants {:?} and gets world {world}, start {start}", join.rank, join));
        }
        let run = run_of(join);
        let liveness_ms = self.liveness_ms;
        let view = self.views.entry(at).or_default();
        let newest = view.newest(&run);
        if !view.known.contains_key(&id) {
            if let Some((other, _)) = view.known.last_key_value().filter(|(other, _)| **other > id) {
                return Err(format!("session {} begins after {}", id.0, other.0));
            }
            let before = newest.map_or(Position::START, |(_, known)| known.acknowledged());
            if let Some((before, known)) =
                newest.filter(|(session, _)| self.kept.get(session).is_none_or(|kept| !kept.is_outdated))
            {
                may_supersede(liveness_ms, now_ms, join, before, known, coverage)?;
            }
            let expected = wanted.unwrap_or(before);
            if start != expected {
                return Err(format!("session {} starts at {start} and not at {expected}", id.0));
            }
            coverage.count("session_begun");
            if newest.is_some() {
                coverage.count("session_superseded");
                let is_resumed = start > Position::START;
                let kind =
                    if wanted.is_some() { "session_resumed_from_state" } else { "session_resumed_without_state" };
                if is_resumed {
                    coverage.count(kind);
                }
            }
            let ranks = [(join.rank, (start, join.nonce))].into();
            let heard_ms = [(join.rank, Some(now_ms))].into();
            view.known.insert(id, ObservedSession { run, world, start, launch: join.launch.clone(), ranks, heard_ms });
            return Ok(());
        }
        if let Some((newest, _)) = newest.filter(|(newest, _)| *newest > id) {
            return Err(format!("session {} is joined, and has a successor: {newest:?}", id.0));
        }
        let known = view.known.get_mut(&id).expect("it was just found");
        if (known.world, known.start, &known.run) != (world, start, &run) {
            return Err(format!("session {} is {known:?} and is given as {run:?}, world {world}, start {start}", id.0));
        }
        known.heard_ms.insert(join.rank, Some(now_ms));
        match known.ranks.get(&join.rank) {
            Some((_, nonce)) if *nonce == join.nonce => coverage.count("join_repeated_after_a_lost_answer"),
            Some(_) => return Err(format!("rank {} of session {} is given away twice", join.rank, id.0)),
            None => {
                known.ranks.insert(join.rank, (start, join.nonce));
            }
        }
        Ok(())
    }

    fn on_heartbeat(&mut self, at: usize, now_ms: u64, heartbeat: &RankHeartbeat, leaves: bool) -> Result<(), String> {
        let view = self.views.entry(at).or_default();
        if view.is_superseded(heartbeat.session) {
            return Err(format!(
                "session {} has a successor, and its rank {} is heard",
                heartbeat.session.0, heartbeat.rank
            ));
        }
        let Some(known) = view.known.get_mut(&heartbeat.session) else {
            return Err(format!("session {} comes out of nothing", heartbeat.session.0));
        };
        let Some((acknowledged, _)) = known.ranks.get_mut(&heartbeat.rank) else {
            return Err(format!(
                "rank {} of session {} is heard and has not joined",
                heartbeat.rank, heartbeat.session.0
            ));
        };
        let heard_ms = known.heard_ms.entry(heartbeat.rank).or_insert(Some(now_ms));
        *heard_ms = heard_ms.filter(|_| !leaves).map(|_| now_ms);
        if heartbeat.acknowledged > *acknowledged {
            *acknowledged = heartbeat.acknowledged;
            if view
                .durable
                .get(&(heartbeat.session, heartbeat.rank))
                .is_none_or(|durable| *durable < heartbeat.acknowledged)
            {
                view.lagging.push_back((now_ms, heartbeat.session, heartbeat.rank, heartbeat.acknowledged));
            }
        }
        Ok(())
    }
}

fn run_of(join: &Join) -> RunKey {
    (join.job.clone(), join.run.clone())
}

/// Checks that a join may supersede the newest session of its run, in which a change of the job lets ranks take part: none was heard within the
/// liveness timeout, or the join is a restart, or it takes over.
fn may_supersede(
    liveness_ms: u64,
    now_ms: u64,
    join: &Join,
    id: SessionId,
    known: &ObservedSession,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let alive =
        known.heard_ms.iter().find(|(_, heard_ms)| heard_ms.is_some_and(|at| now_ms.saturating_sub(at) <= liveness_ms));
    let Some((rank, _)) = alive else { return Ok(()) };
    if join.launch.is_some() && join.launch == known.launch {
        coverage.count("living_session_superseded_by_a_restart");
    } else if join.takeover {
        coverage.count("living_session_taken_over");
    } else {
        return Err(format!("{join:?} ends {id}, whose rank {rank} is alive, and does not take over"));
    }
    Ok(())
}
