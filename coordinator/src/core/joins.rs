//! Ranks: joining a session or starting a new one, beating, leaving.

use spdl_shard::{Position, order::BatchParams};
use spdl_wire::{
    messages::{FromCoordinator, Join, RankBeat, Refusal, Session, SessionId},
    planted::{Bug, has},
};

use super::{
    Change, Coordinator, Effect, LogLevel, MAX_WORLD, SUPERSEDED_SESSIONS, Successor, over_limit,
    session::{RankState, SessionState},
};

/// Workers that a rank can be kept from at once.
const MAX_UNREACHABLE: usize = 64;

impl Coordinator {
    pub(super) fn join(&mut self, join: &Join) -> Result<FromCoordinator, Refusal> {
        self.check_join(join)?;
        let id = match self.seat(join)? {
            Seat::Taken(id) => id,
            Seat::Free(id) => self.sit_down(id, join),
            Seat::NewSession => self.open_session(join),
        };
        let session = self.sessions.get_mut(&id).expect("it was just found or made");
        let rank = session.ranks.get_mut(&join.rank).expect("it has just joined");
        rank.heard_ms = self.now_ms;
        rank.left = false;
        rank.node = join.node.clone();
        let session = Session {
            id,
            job: self.jobs[&join.job].job.clone(),
            world: session.world,
            global_batch: session.global_batch,
            start: session.start,
        };
        let home = self.place(id, join.rank);
        Ok(FromCoordinator::Joined { session: Box::new(session), home, beat_ms: self.config.beat_ms })
    }

    /// Refuses what no session of the job could take.
    fn check_join(&self, join: &Join) -> Result<(), Refusal> {
        super::limits::check_join(join)?;
        let state = self.job(&join.job)?;
        let Join { rank, world, .. } = *join;
        if rank >= world {
            return Err(Refusal::RankOutOfRange { rank, world });
        }
        let global_batch = join.global_batch.unwrap_or(state.job.global_batch);
        if world > global_batch {
            return Err(Refusal::WorldTooLarge { world, global_batch });
        }
        if world > MAX_WORLD {
            return Err(over_limit("world", world, MAX_WORLD));
        }
        let batches = BatchParams { global_batch, ..(&state.job).into() };
        if let Err(error) = batches.check(state.job.samples) {
            return Err(Refusal::NoBatch { job: join.job.clone(), cause: error.to_string() });
        }
        if let Some(theirs) = join.fingerprint.filter(|theirs| *theirs != state.fingerprint) {
            return Err(Refusal::FingerprintDiffers { job: join.job.clone(), theirs, ours: state.fingerprint });
        }
        if let Some(start) = join.start.filter(|start| start.offset > state.job.samples) {
            return Err(over_limit("the offset of the start", start.offset, state.job.samples));
        }
        Ok(())
    }

    /// Where a join belongs.
    ///
    /// All ranks of a launch have to meet in one session, in whatever order they and the ranks of the launch before
    /// arrive. A client's nonce tells a repeated join from a new launch. A rank that is taken by another nonce, or a
    /// newcomer to a session whose ranks have all joined, belongs to a new launch; so does anyone when the session's
    /// ranks have all left or fallen silent. Whoever finds its rank free goes to the newest session.
    fn seat(&self, join: &Join) -> Result<Seat, Refusal> {
        let mut newest = None;
        for id in &self.jobs[&join.job].sessions {
            let session = &self.sessions[id];
            if session.ranks.get(&join.rank).is_some_and(|rank| rank.nonce == join.nonce) {
                session.superseded()?;
                session.agree(join)?;
                return Ok(Seat::Taken(*id));
            }
            newest = Some(session);
        }
        let Some(session) = newest else { return Ok(Seat::NewSession) };
        let is_full = session.ranks.len() == session.world as usize;
        let is_over = session.is_over(self.now_ms, self.config.liveness_ms);
        if is_full || is_over || session.ranks.contains_key(&join.rank) {
            return Ok(Seat::NewSession);
        }
        session.agree(join)?;
        Ok(Seat::Free(session.id))
    }

    /// The seat is durable before the rank hears of it: it would be free again after a crash, and a trainer that takes
    /// the place of a dead one would be handed what that one has had, in the same session.
    fn sit_down(&mut self, id: SessionId, join: &Join) -> SessionId {
        let session = self.sessions.get_mut(&id).expect("a session with a free seat is there");
        let rank = RankState::joined(join, session.start, self.now_ms);
        session.ranks.insert(join.rank, rank);
        self.persist_session(id);
        id
    }

    fn open_session(&mut self, join: &Join) -> SessionId {
        self.last_session += 1;
        let id = SessionId(self.last_session);
        let job = &self.jobs[&join.job];
        let newest = job.sessions.last().copied();
        let acknowledged = newest.map(|id| self.sessions[&id].acknowledged());
        let acknowledged =
            acknowledged.map(|at| Position { offset: at.offset + u64::from(has(Bug::ResumePlusOne)), ..at });
        let start = join.start.or(acknowledged).unwrap_or(Position::START);
        let before = newest.filter(|_| has(Bug::StaleWorld)).map(|id| self.sessions[&id].world);
        let session = SessionState {
            id,
            job: join.job.clone(),
            world: before.unwrap_or(join.world),
            global_batch: join.global_batch.unwrap_or(job.job.global_batch),
            start,
            superseded_by: None,
            ranks: [(join.rank, RankState::joined(join, start, self.now_ms))].into(),
            dirty: true,
            persisted_ms: self.now_ms,
        };
        let text = format!(
            "session {} of job `{}` started at {start} by rank {} of {} ({})",
            id.0, join.job, join.rank, join.world, join.client
        );
        self.log(LogLevel::Info, text);
        self.sessions.insert(id, session);
        if !has(Bug::ForgetPersist) {
            self.persist_session(id);
        }
        if let Some(before) = newest {
            self.supersede(before, Successor { session: id, rank: join.rank, client: join.client.clone() });
        }
        self.remember(&join.job, id);
        id
    }

    fn supersede(&mut self, id: SessionId, successor: Successor) {
        let (now_ms, liveness_ms) = (self.now_ms, self.config.liveness_ms);
        let session = self.sessions.get_mut(&id).expect("the session before is there");
        let alive = session.ranks.values().filter(|rank| rank.is_alive(now_ms, liveness_ms)).count();
        let text = format!(
            "session {} of job `{}` was superseded by session {}; {alive} of its ranks were alive",
            id.0, session.job, successor.session.0
        );
        session.superseded_by = Some(successor);
        for rank in session.ranks.values_mut() {
            rank.home = None;
        }
        let level = if alive == 0 { LogLevel::Info } else { LogLevel::Warn };
        self.log(level, text);
        self.persist_session(id);
    }

    /// Adds a session to its job's and forgets the oldest where there are too many.
    fn remember(&mut self, job: &str, id: SessionId) {
        let sessions = &mut self.jobs.get_mut(job).expect("a session's job is there").sessions;
        sessions.push(id);
        while sessions.len() > SUPERSEDED_SESSIONS + 1 {
            let oldest = sessions.remove(0);
            self.sessions.remove(&oldest);
            self.effects.push_back(Effect::Persist(Change::DeleteSession(oldest)));
        }
    }

    pub(super) fn beat_rank(&mut self, beat: &RankBeat) -> Result<FromCoordinator, Refusal> {
        let left = self.hear_rank(beat)?;
        let home = if left { None } else { self.place(beat.session, beat.rank) };
        Ok(FromCoordinator::RankHeard { home, beat_ms: self.config.beat_ms })
    }

    pub(super) fn leave_rank(&mut self, beat: &RankBeat) -> Result<FromCoordinator, Refusal> {
        self.hear_rank(beat)?;
        let session = self.sessions.get_mut(&beat.session).expect("it was just heard");
        let rank = session.ranks.get_mut(&beat.rank).expect("it was just heard");
        if !rank.left {
            rank.left = true;
            rank.home = None;
            self.persist_session(beat.session);
        }
        Ok(FromCoordinator::Done)
    }

    /// Takes note of a rank's beat; whether it had left before.
    fn hear_rank(&mut self, beat: &RankBeat) -> Result<bool, Refusal> {
        let unknown = || Refusal::UnknownSession { session: beat.session };
        let session = self.sessions.get_mut(&beat.session).filter(|session| session.job == beat.job);
        let session = session.ok_or_else(unknown)?;
        session.superseded()?;
        let rank = session.ranks.get_mut(&beat.rank).filter(|rank| rank.nonce == beat.nonce);
        let rank = rank.ok_or_else(unknown)?;
        if let Some(worker) = beat.unreachable {
            rank.is_settling = false;
            if rank.unreachable.len() < MAX_UNREACHABLE && self.workers.contains_key(&worker) {
                rank.unreachable.insert(worker, self.now_ms + self.config.unreachable_ms);
            }
        }
        rank.unreachable.retain(|_, until_ms| *until_ms > self.now_ms);
        let left = rank.left;
        let samples = self.jobs[&beat.job].job.samples;
        session.dirty |= rank.hear(beat, samples, self.now_ms);
        self.job(&beat.job)?;
        Ok(left)
    }
}

/// Where a join belongs.
enum Seat {
    /// It has joined this session already.
    Taken(SessionId),
    /// Its rank is free in this session.
    Free(SessionId),
    /// It is the first of a new launch.
    NewSession,
}
