//! Ranks: joining a session or opening a new one, heartbeats, leaving.

use std::cell::Cell;

use crate::messages::{FromCoordinator, Join, RankHeartbeat, Refusal, RunName, Session, Start, StartReason};
use spdl_job::{Job, is_name};
use spdl_types::{
    Position, SessionId,
    mutations::{Mutation, mutated},
};

use super::{
    Change, ClusterNote, CoordinatorCore, Effect, MAX_RUNS, MAX_WORLD, SUPERSEDED_SESSIONS, Successor, jobs::RunState,
    later_jobs::JobOfRank, over_limit, rank_state::RankState, session::SessionState,
};

/// The largest number of workers that one rank can report as unreachable at one time.
const MAX_UNREACHABLE: usize = 64;

impl CoordinatorCore {
    pub(super) fn join(&mut self, join: &Join) -> Result<FromCoordinator, Refusal> {
        let of_rank = self.check_join(join)?;
        let id = match self.join_target(join)? {
            JoinTarget::Member(id) => id,
            JoinTarget::Open(id) => self.add_rank(id, join),
            JoinTarget::NewSession => self.open_session(join)?,
        };
        let (job, fingerprint) = self.jobs[&join.job].version(&of_rank);
        let session = self.sessions.get_mut(&id).expect("it was just found or made");
        let rank = session.ranks.get_mut(&join.rank).expect("it has just joined");
        rank.heard_ms = self.now_ms;
        rank.promise = None;
        // A first join that is repeated may be an old one, and the rank may have heard of changes since.
        if join.session.is_some() || rank.job.is_none() {
            rank.job = Some(fingerprint);
        }
        if let Some(changes) = &join.changes {
            rank.handed = rank.handed.max(changes.handed);
            rank.brought = changes.hold.map(|hold| hold.change);
        }
        if rank.left || rank.node != join.node {
            rank.left = false;
            rank.node = join.node.clone();
            session.changed.insert(join.rank);
        }
        if let JobOfRank::Brought(job) = of_rank {
            self.learn(join, *job);
        }
        let session = &self.sessions[&id];
        if session.is_outdated {
            return Err(self.outdated(join, id));
        }
        let reason = session.reason;
        let session = Session {
            id,
            job: Job { epochs: session.epochs, ..job },
            world: session.world,
            global_batch: session.global_batch,
            start: session.start,
        };
        self.count_rank(id, join.rank);
        let home = self.place(id, join.rank);
        Ok(FromCoordinator::Joined { session: Box::new(session), reason, home, heartbeat_ms: self.config.heartbeat_ms })
    }

    /// Returns whether a join would open a session or add a rank to one. Such a change must be durable before it is
    /// visible to any peer.
    pub fn adds_rank(&mut self, now_ms: u64, join: &Join) -> bool {
        // Advance the time as the join itself does: a session can have ended since the last tick.
        self.advance(now_ms);
        self.check_join(join).is_ok()
            && matches!(self.join_target(join), Ok(JoinTarget::Open(_) | JoinTarget::NewSession))
    }

    /// Refuses a join that no session of the job could accept, and returns the job that the rank goes by.
    fn check_join(&self, join: &Join) -> Result<JobOfRank, Refusal> {
        super::limits::check_join(join)?;
        let state = self.job(&join.job)?;
        let Join { rank, world, .. } = *join;
        if !is_name(&join.run) {
            return Err(Refusal::RunName { job: join.job.clone(), run: join.run.clone() });
        }
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
        let of_rank = self.job_of_rank(join)?;
        let job = self.job_of_launch(join)?;
        if let Err(error) = job.batches(global_batch).check(job.samples) {
            return Err(Refusal::NoBatch { job: join.job.clone(), cause: error.to_string() });
        }
        let Start::At(start) = join.start else { return Ok(of_rank) };
        // A position from a saved state is where a trainer stopped, so it may be the end of the epoch. A position that
        // a user typed must be one where a session can start.
        let problem = match join.fingerprint.is_some() || join.session.is_some() {
            true => job.offset_problem(start),
            false => job.start_problem(global_batch, start),
        };
        problem.map_or(Ok(of_rank), |cause| Err(Refusal::StartOutOfRange { job: join.job.clone(), start, cause }))
    }

    /// Returns the job with the number of epochs that this launch of the run asks for.
    fn job_of_launch(&self, join: &Join) -> Result<Job, Refusal> {
        let job = &self.jobs[&join.job].job;
        let of_run = self.newest(join).filter(|session| !session.is_reset).map(|session| session.epochs);
        let epochs = join.epochs.or(of_run).unwrap_or(job.epochs);
        let job = Job { epochs, ..job.clone() };
        if epochs != self.jobs[&join.job].job.epochs {
            let invalid = |cause: String| Refusal::JobInvalid { job: join.job.clone(), cause };
            job.check().and_then(|()| job.check_max_epochs()).map_err(|error| invalid(error.to_string()))?;
        }
        Ok(job)
    }

    fn run(&self, join: &Join) -> Option<&RunState> {
        let runs = &self.jobs[&join.job].runs;
        if mutated(Mutation::MixRuns) { runs.values().next() } else { runs.get(&join.run) }
    }

    /// Returns the newest session of the run; all earlier ones are superseded.
    fn newest(&self, join: &Join) -> Option<&SessionState> {
        let run = self.run(join)?;
        run.sessions.last().map(|id| &self.sessions[id])
    }

    /// Finds the session that a join belongs to.
    ///
    /// All ranks of a launch must meet in one session, in whatever order they and the ranks of the previous launch
    /// arrive, and no launch may end another launch that is alive unless it asks for that. Three things identify a
    /// launch:
    ///
    /// - The client's nonce: a repeated join is not a new launch.
    /// - The launch id, if the launcher provides one. A different id (or an id where the session has none) is a
    ///   different launch; the same id is the same launch or a restart of it. Without ids the launch is unknown.
    /// - The world, and whether the rank is free: if the session is full, has another world, or another client holds
    ///   the rank, another launch fills the session. A join that finds its rank free in a session of
    ///   its launch and world joins it, and is refused if its batch, epochs or start differ.
    ///
    /// A join that belongs to no existing session opens a new one and supersedes the newest, if
    ///
    /// 1. no rank of the newest session is alive: all have left, or were silent for the liveness timeout; or
    /// 2. the join is a restart: both have the same launch id; or
    /// 3. the join asks to take over.
    ///
    /// Otherwise it is refused, and the refusal names the holder of the run. A client retries for longer than ranks
    /// that were just killed still look alive, so a manual restart after a crash only waits that long.
    ///
    /// What can go wrong between launches, and how it ends:
    ///
    /// - A launch was killed after only some of its ranks had joined, and is restarted at once. A rank that finds its
    ///   place free must not join a session of dead ranks, because they will never make progress. So joins are refused
    ///   while any rank of the session is late (silent for half the liveness timeout); in the end that rank is heard
    ///   again, or the session is over.
    /// - A straggler of an old launch stays alive in a session that is not full. With launch ids, a restart supersedes
    ///   that session, either because one of its ranks finds its place taken or because its world differs. Without ids,
    ///   the refusal names the straggler, and `takeover` ends it.
    /// - Every rank of a launch takes over: the first opens a session that is marked as a takeover, and the others,
    ///   whose places in it are free, join it. They never join an unmarked session, because that is the session to
    ///   supersede.
    /// - Ranks of two launches without ids and with the same world join at the same time and cannot be distinguished. One
    ///   of them finds its place taken and is refused or, if it takes over, supersedes the session. That is an error
    ///   for one launch or for both, but never two trainers with the same rank of one session.
    /// - The coordinator was restarted: a rank counts as late or dead only once it has been silent for that long since
    ///   the new process started. A rank that is new takes a place only after the others were heard, of whom one may go
    ///   by a later version of the job.
    /// - The coordinator lost its state, or the end of it: ranks that continue send the id of their session, and the
    ///   session is opened again where it began. Such ranks never supersede a living session, however their launch was
    ///   started. If their session is older than the run's newest, and is not the session that the newest replaces, it was
    ///   superseded long ago.
    fn join_target(&self, join: &Join) -> Result<JoinTarget, Refusal> {
        let run = self.run(join);
        // The newest of those that it has joined: a rank whose session is outdated joins again with its nonce.
        let has_joined =
            |session: &&SessionState| session.ranks.get(&join.rank).is_some_and(|rank| rank.nonce == join.nonce);
        let mut sessions = run.into_iter().flat_map(|run| run.sessions.iter().rev()).map(|id| &self.sessions[id]);
        if let Some(session) = sessions.find(has_joined)
            && (!session.is_outdated || session.superseded_by.is_some())
        {
            session.superseded()?;
            self.agree(session, join)?;
            return Ok(JoinTarget::Member(session.id));
        }
        let Some(session) = self.newest(join) else { return Ok(JoinTarget::NewSession) };
        session.check_rejoin(join)?;
        let (now_ms, liveness_ms) = (self.now_ms, self.config.liveness_ms);
        if session.is_over(now_ms, liveness_ms) || mutated(Mutation::SupersedeLiving) {
            return Ok(JoinTarget::NewSession);
        }
        let is_free = session.ranks.len() < session.world as usize && !session.ranks.contains_key(&join.rank);
        let is_same = session.launch == join.launch && session.world == join.world;
        let goes_on = join.session.is_some();
        if is_free && is_same && (session.is_takeover || !join.takeover) {
            self.agree(session, join)?;
            return match goes_on || (session.is_punctual(now_ms, liveness_ms) && session.is_heard()) {
                true => Ok(JoinTarget::Open(session.id)),
                false => Err(self.in_use(session)),
            };
        }
        let is_restart = join.launch.is_some() && join.launch == session.launch;
        if (is_restart || join.takeover) && !goes_on {
            return Ok(JoinTarget::NewSession);
        }
        if is_free && session.launch == join.launch {
            // The world differs. It may still be one launch whose ranks were started with different settings.
            self.agree(session, join)?;
        }
        Err(self.in_use(session))
    }

    pub(super) fn in_use(&self, session: &SessionState) -> Refusal {
        Refusal::RunInUse {
            run: Box::new(session.run_name()),
            session: session.id,
            holder: Box::new(session.holder(self.now_ms, self.config.liveness_ms)),
            liveness_ms: self.config.liveness_ms,
        }
    }

    /// Refuses a join whose settings differ from those of the session's first join. A rank that leaves batch or epochs
    /// open accepts the session's.
    fn agree(&self, session: &SessionState, join: &Join) -> Result<(), Refusal> {
        let Some((field, theirs, ours)) = session.disagreement(join) else { return Ok(()) };
        Err(Refusal::SessionDisagrees {
            run: Box::new(session.run_name()),
            session: session.id,
            rank: join.rank,
            field: field.to_owned(),
            theirs,
            ours,
            holder: Box::new(session.holder(self.now_ms, self.config.liveness_ms)),
            liveness_ms: self.config.liveness_ms,
        })
    }

    /// Adds the rank to the session. This is durable before the rank gets its answer: otherwise its place would be free
    /// again after a crash, and a trainer that replaces a dead one would receive the same batches again in the same
    /// session.
    fn add_rank(&mut self, id: SessionId, join: &Join) -> SessionId {
        let session = self.sessions.get_mut(&id).expect("a session with a free rank is there");
        let rank = RankState::joined(join, session.start, self.now_ms);
        session.ranks.insert(join.rank, rank);
        session.may_lack_ranks |= join.session.is_some();
        session.changed.insert(join.rank);
        self.persist_session(id);
        id
    }

    fn open_session(&mut self, join: &Join) -> Result<SessionId, Refusal> {
        let job = self.job_of_launch(join)?;
        let runs = &self.jobs[&join.job].runs;
        if !runs.contains_key(&join.run) && runs.len() >= MAX_RUNS {
            return Err(over_limit(&format!("the number of runs of job `{}`", join.job), runs.len() + 1, MAX_RUNS));
        }
        let global_batch = join.global_batch.unwrap_or(job.global_batch);
        let newest = self.newest(join);
        let resumable = newest.and_then(|session| Some((session.id, session.resumes_at()?)));
        let (start, reason) = match (join.start, resumable) {
            (Start::At(at), _) => (at, StartReason::Given),
            (Start::Resume, Some((session, position))) => {
                if job.batches(global_batch).steps_left(job.samples, position) == 0 {
                    let run = Box::new(RunName { job: join.job.clone(), run: join.run.clone() });
                    return Err(Refusal::RunFinished { run, session, position, epochs: job.epochs });
                }
                let offset = position.offset + u64::from(mutated(Mutation::ResumePlusOne));
                (Position { offset, ..position }, StartReason::Resumed { session })
            }
            (Start::Beginning, _) | (Start::Resume, None) => (Position::START, StartReason::Beginning),
        };
        let before = newest.filter(|_| mutated(Mutation::StaleWorld)).map(|session| session.world);
        let newest = newest.map(|session| session.id);
        self.last_session += 1;
        let id = SessionId(self.last_session);
        let session = SessionState {
            id,
            job: join.job.clone(),
            run: join.run.clone(),
            world: before.unwrap_or(join.world),
            global_batch,
            epochs: job.epochs,
            start,
            reason,
            launch: join.launch.clone(),
            is_takeover: join.takeover,
            replaces: join.session,
            superseded_by: None,
            is_reset: false,
            is_outdated: false,
            ranks: [(join.rank, RankState::joined(join, start, self.now_ms))].into(),
            opened_ms: self.now_ms,
            is_restored: false,
            may_lack_ranks: join.session.is_some(),
            listed_homes: None,
            punctual_until_ms: Cell::new(0),
            recorded: Vec::new(),
            changed: [join.rank].into(),
            dirty: true,
            persisted_ms: self.now_ms,
        };
        self.log(ClusterNote::SessionStarted {
            session: id,
            run: session.run_name(),
            start,
            reason,
            rank: join.rank,
            world: join.world,
            client: join.client.clone(),
        });
        self.sessions.insert(id, session);
        if !mutated(Mutation::ForgetPersist) {
            self.persist_session(id);
        }
        if let Some(before) = newest {
            self.supersede(before, Successor { session: id, rank: join.rank, client: join.client.clone() });
        }
        self.remember(&join.job, &join.run, id);
        Ok(id)
    }

    fn supersede(&mut self, id: SessionId, successor: Successor) {
        let (now_ms, liveness_ms) = (self.now_ms, self.config.liveness_ms);
        let session = self.sessions.get_mut(&id).expect("the session before is there");
        let alive = session.ranks.values().filter(|rank| rank.is_alive(now_ms, liveness_ms)).count();
        let (run, by) = (session.run_name(), successor.session);
        session.superseded_by = Some(successor);
        session.ranks.values_mut().for_each(RankState::leave_home);
        self.uncount_session(id);
        self.home_changes += 1;
        self.log(ClusterNote::SessionSuperseded { session: id, run, successor: by, alive });
        self.persist_session(id);
    }

    /// Adds a session to its run and deletes the oldest if there are too many.
    fn remember(&mut self, job: &str, run: &str, id: SessionId) {
        let runs = &mut self.jobs.get_mut(job).expect("a session's job is there").runs;
        let sessions = &mut runs.entry(run.to_owned()).or_default().sessions;
        sessions.push(id);
        while sessions.len() > SUPERSEDED_SESSIONS + 1 {
            let oldest = sessions.remove(0);
            self.sessions.remove(&oldest);
            self.history.forget(oldest);
            self.effects.push_back(Effect::Persist(Change::DeleteSession(oldest)));
        }
    }

    pub(super) fn on_rank_heartbeat(&mut self, heartbeat: &RankHeartbeat) -> Result<FromCoordinator, Refusal> {
        // A rank that knows of another change joins again, and brings it along.
        if self.jobs.get(&heartbeat.job).is_some_and(|state| !state.knows(heartbeat.fingerprint)) {
            return Err(Refusal::UnknownSession { session: heartbeat.session });
        }
        let left = self.hear_rank(heartbeat)?;
        let home = if left { None } else { self.place(heartbeat.session, heartbeat.rank) };
        let trace = self.trace_order_of_rank(heartbeat.session, heartbeat.rank);
        let notice = self.notice(heartbeat);
        let heartbeat_ms = self.rank_heartbeat_ms(heartbeat.session, &notice);
        Ok(FromCoordinator::RankAcknowledged { home, heartbeat_ms, trace, notice })
    }

    pub(super) fn leave_rank(&mut self, heartbeat: &RankHeartbeat) -> Result<FromCoordinator, Refusal> {
        self.hear_rank(heartbeat)?;
        if !self.jobs[&heartbeat.job].knows(heartbeat.fingerprint) {
            // What it knows of the job is lost with it, and the others cannot do the same.
            self.outdate(heartbeat.session);
        }
        let session = self.sessions.get_mut(&heartbeat.session).expect("it has just been looked up");
        let rank = session.ranks.get_mut(&heartbeat.rank).expect("it has just been looked up");
        if !rank.left {
            rank.left = true;
            session.changed.insert(heartbeat.rank);
            rank.leave_home();
            self.home_changes += 1;
            let is_last = session.ranks.values().all(|rank| rank.left);
            let ended = is_last.then(|| (session.run_name(), session.acknowledged()));
            self.count_rank(heartbeat.session, heartbeat.rank);
            self.persist_session(heartbeat.session);
            if let Some((run, acknowledged)) = ended {
                self.log(ClusterNote::SessionEnded { session: heartbeat.session, run, acknowledged });
            }
            self.advance_change(&heartbeat.job);
        }
        Ok(FromCoordinator::Done)
    }

    /// Records a rank's heartbeat and returns whether the rank had left before.
    fn hear_rank(&mut self, heartbeat: &RankHeartbeat) -> Result<bool, Refusal> {
        let unknown = || Refusal::UnknownSession { session: heartbeat.session };
        let session = self.sessions.get_mut(&heartbeat.session).filter(|session| session.job == heartbeat.job);
        let session = session.ok_or_else(unknown)?;
        session.superseded()?;
        let rank = session.ranks.get_mut(&heartbeat.rank).filter(|rank| rank.nonce == heartbeat.nonce);
        let rank = rank.ok_or_else(unknown)?;
        if let Some(worker) = heartbeat.unreachable {
            rank.is_settling = false;
            if rank.unreachable.len() < MAX_UNREACHABLE && self.workers.contains_key(&worker) {
                rank.unreachable.insert(worker, self.now_ms + self.config.unreachable_ms);
            }
        }
        rank.unreachable.retain(|_, until_ms| *until_ms > self.now_ms);
        let left = rank.left;
        let samples = self.jobs[&heartbeat.job].job.samples;
        let before = (rank.acknowledged, rank.receipt);
        session.dirty |= rank.hear(heartbeat, samples, self.now_ms);
        if before != (rank.acknowledged, rank.receipt) {
            session.changed.insert(heartbeat.rank);
            if mutated(Mutation::CountForTwoRanks)
                && let Some((_, other)) = session.ranks.iter_mut().find(|(rank, _)| **rank != heartbeat.rank)
                && let Some(receipt) = &mut other.receipt
            {
                *receipt += heartbeat.receipt;
            }
        }
        self.history.note_rank(self.now_ms, session, heartbeat.rank, samples);
        self.count_rank(heartbeat.session, heartbeat.rank);
        self.job(&heartbeat.job)?;
        Ok(left)
    }
}

/// The session that a join belongs to.
enum JoinTarget {
    /// The rank has already joined this session.
    Member(SessionId),
    /// The rank is free in this session.
    Open(SessionId),
    /// The join is the first of a new launch.
    NewSession,
}
