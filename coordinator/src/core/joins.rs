//! Ranks: joining a session or starting a new one, beating, leaving.

use spdl_shard::{
    Position,
    job::{Job, is_name},
    order::BatchParams,
};
use spdl_wire::{
    messages::{FromCoordinator, Join, RankHeartbeat, Refusal, RunName, Session, SessionId, Start, StartReason},
    mutations::{Mutation, mutated},
};

use super::{
    Change, Coordinator, Effect, LogLevel, MAX_RUNS, MAX_WORLD, SUPERSEDED_SESSIONS, Successor,
    jobs::RunState,
    over_limit,
    session::{RankState, SessionState},
};

/// Workers that a rank can be kept from at once.
const MAX_UNREACHABLE: usize = 64;

impl Coordinator {
    pub(super) fn join(&mut self, join: &Join) -> Result<FromCoordinator, Refusal> {
        self.check_join(join)?;
        let id = match self.join_target(join)? {
            JoinTarget::Member(id) => id,
            JoinTarget::Open(id) => self.add_rank(id, join),
            JoinTarget::NewSession => self.open_session(join)?,
        };
        let session = self.sessions.get_mut(&id).expect("it was just found or made");
        let rank = session.ranks.get_mut(&join.rank).expect("it has just joined");
        rank.heard_ms = self.now_ms;
        rank.left = false;
        rank.node = join.node.clone();
        let reason = session.reason;
        let session = Session {
            id,
            job: Job { epochs: session.epochs, ..self.jobs[&join.job].job.clone() },
            world: session.world,
            global_batch: session.global_batch,
            start: session.start,
        };
        let home = self.place(id, join.rank);
        Ok(FromCoordinator::Joined { session: Box::new(session), reason, home, beat_ms: self.config.beat_ms })
    }

    /// Whether a join would begin a session or take a seat in one: what has to be durable before anybody hears of it.
    pub fn adds_rank(&mut self, now_ms: u64, join: &Join) -> bool {
        // As for the join itself: a session can have ended since the last tick.
        self.advance(now_ms);
        self.check_join(join).is_ok()
            && matches!(self.join_target(join), Ok(JoinTarget::Open(_) | JoinTarget::NewSession))
    }

    /// Refuses what no session of the job could take.
    fn check_join(&self, join: &Join) -> Result<(), Refusal> {
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
        if let Some(theirs) = join.fingerprint.filter(|theirs| *theirs != state.fingerprint) {
            return Err(Refusal::FingerprintDiffers { job: join.job.clone(), theirs, ours: state.fingerprint });
        }
        let job = self.job_of_launch(join)?;
        let batches = BatchParams { global_batch, ..(&job).into() };
        if let Err(error) = batches.check(job.samples) {
            return Err(Refusal::NoBatch { job: join.job.clone(), cause: error.to_string() });
        }
        let Start::At(start) = join.start else { return Ok(()) };
        // A state is where a trainer was, and so may be the end; a position that somebody wrote down has to make sense.
        let problem = match join.fingerprint.is_some() || join.session.is_some() {
            true if start.offset <= job.samples => None,
            true => {
                Some(format!("offset {} is past the end of an epoch: it has {} samples", start.offset, job.samples))
            }
            false => job.start_problem(global_batch, start),
        };
        problem.map_or(Ok(()), |cause| Err(Refusal::StartOutOfRange { job: join.job.clone(), start, cause }))
    }

    /// The job, with the epochs that this launch of a run is to have.
    fn job_of_launch(&self, join: &Join) -> Result<Job, Refusal> {
        let job = &self.jobs[&join.job].job;
        let of_run = self.newest(join).filter(|session| !session.is_reset).map(|session| session.epochs);
        let epochs = join.epochs.or(of_run).unwrap_or(job.epochs);
        let job = Job { epochs, ..job.clone() };
        if epochs != self.jobs[&join.job].job.epochs {
            let invalid = |cause: String| Refusal::JobInvalid { job: join.job.clone(), cause };
            job.check().map_err(|error| invalid(error.to_string()))?;
        }
        Ok(job)
    }

    fn run(&self, join: &Join) -> Option<&RunState> {
        let runs = &self.jobs[&join.job].runs;
        if mutated(Mutation::MixRuns) { runs.values().next() } else { runs.get(&join.run) }
    }

    /// The newest session of the run; the ones before are superseded.
    fn newest(&self, join: &Join) -> Option<&SessionState> {
        let run = self.run(join)?;
        run.sessions.last().map(|id| &self.sessions[id])
    }

    /// Where a join belongs.
    ///
    /// All ranks of a launch have to meet in one session, in whatever order they and the ranks of the launch before
    /// arrive, and no launch may end another that is alive unless it says so. What tells them apart:
    ///
    /// - The client's nonce: a repeated join is no new launch.
    /// - The launch id, where the launcher gives one. Another id (or one where the session has none) is another launch;
    ///   the same id is the same launch or a restart of it. Without ids the launch is not known.
    /// - World, and whether the rank is free: a session that is full, or of another world, or whose rank another client
    ///   has, is not the one that this launch is about to fill. Whoever finds its rank free in a session of its launch
    ///   and world goes there, and is refused if it says something else about batch, epochs or start.
    ///
    /// A join that belongs to no session there is begins a new one, and supersedes the newest, if
    ///
    /// 1. no rank of that one is alive: all have left, or were silent for the liveness timeout; or
    /// 2. it is a restart: both have the same launch id; or
    /// 3. it takes over.
    ///
    /// Else it is refused, with who holds the run. A client asks again for longer than ranks that were just killed look
    /// alive, so a restart by hand after a crash only waits for that long.
    ///
    /// What can go wrong between launches, and what comes of it:
    ///
    /// - A launch was killed when only some of its ranks had joined, and is started again at once. Ranks that find their
    ///   seat free must not sit down among dead ones, who will never make way: so they wait as long as any rank there is
    ///   late (silent for half the liveness timeout). Then it is heard again, or the session is over.
    /// - A straggler of an old launch stays alive in a session that is not full. With launch ids a restart supersedes it:
    ///   by the rank that finds its seat taken, or as its world is another one. Without, the refusal names it, and
    ///   `takeover` ends it.
    /// - Every rank of a launch takes over: the first opens a session that is marked as taken over, and the others, who
    ///   find their seats in it free, sit down. They do so in no session that is not marked: it is the one to supersede.
    /// - Ranks of two launches without ids, of one world, at the same time: they cannot be told apart. One finds its seat
    ///   taken, and is refused, or where it takes over the session has a successor: an error for one launch or for both, and
    ///   never two trainers with one rank of one session.
    /// - The coordinator was restarted: nobody is late or dead before it has been silent towards this one for so long.
    /// - The coordinator lost its state, or the end of it: ranks that go on say which session they had, and begin it anew
    ///   where it began. They never supersede a living one, however their launch was started; and who had a session that
    ///   is older than the run's newest, and is not what that one replaces, was superseded long ago.
    fn join_target(&self, join: &Join) -> Result<JoinTarget, Refusal> {
        let run = self.run(join);
        for id in run.into_iter().flat_map(|run| &run.sessions) {
            let session = &self.sessions[id];
            if session.ranks.get(&join.rank).is_some_and(|rank| rank.nonce == join.nonce) {
                session.superseded()?;
                self.agree(session, join)?;
                return Ok(JoinTarget::Member(*id));
            }
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
            return match goes_on || session.is_punctual(now_ms, liveness_ms) {
                true => Ok(JoinTarget::Open(session.id)),
                false => Err(self.in_use(session)),
            };
        }
        let is_restart = join.launch.is_some() && join.launch == session.launch;
        if (is_restart || join.takeover) && !goes_on {
            return Ok(JoinTarget::NewSession);
        }
        if is_free && session.launch == join.launch {
            // Of another world. It may be one launch whose ranks were started with different settings.
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

    /// Refuses a join that says something else than the session's first one did. A rank that leaves batch or epochs open
    /// takes the session's.
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

    /// The seat is durable before the rank hears of it: it would be free again after a crash, and a trainer that takes
    /// the place of a dead one would be handed what that one has had, in the same session.
    fn add_rank(&mut self, id: SessionId, join: &Join) -> SessionId {
        let session = self.sessions.get_mut(&id).expect("a session with a free seat is there");
        let rank = RankState::joined(join, session.start, self.now_ms);
        session.ranks.insert(join.rank, rank);
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
                if job.steps_left(global_batch, position) == 0 {
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
            ranks: [(join.rank, RankState::joined(join, start, self.now_ms))].into(),
            dirty: true,
            persisted_ms: self.now_ms,
        };
        let why = match reason {
            StartReason::Beginning => ", the beginning,".to_owned(),
            StartReason::Resumed { session } => format!(", where all ranks of {session} had got to,"),
            StartReason::Given => String::new(),
        };
        let text = format!(
            "{id} of {} started at {start}{why} by rank {} of {} ({})",
            session.run_name(),
            join.rank,
            join.world,
            join.client
        );
        self.log(LogLevel::Info, text);
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
        let text = format!(
            "{id} of {} was superseded by {}; {alive} of its ranks were alive",
            session.run_name(),
            successor.session
        );
        session.superseded_by = Some(successor);
        for rank in session.ranks.values_mut() {
            rank.home = None;
        }
        let level = if alive == 0 { LogLevel::Info } else { LogLevel::Warn };
        self.log(level, text);
        self.persist_session(id);
    }

    /// Adds a session to its run's and forgets the oldest where there are too many.
    fn remember(&mut self, job: &str, run: &str, id: SessionId) {
        let runs = &mut self.jobs.get_mut(job).expect("a session's job is there").runs;
        let sessions = &mut runs.entry(run.to_owned()).or_default().sessions;
        sessions.push(id);
        while sessions.len() > SUPERSEDED_SESSIONS + 1 {
            let oldest = sessions.remove(0);
            self.sessions.remove(&oldest);
            self.effects.push_back(Effect::Persist(Change::DeleteSession(oldest)));
        }
    }

    pub(super) fn beat_rank(&mut self, beat: &RankHeartbeat) -> Result<FromCoordinator, Refusal> {
        let left = self.hear_rank(beat)?;
        let home = if left { None } else { self.place(beat.session, beat.rank) };
        Ok(FromCoordinator::RankHeard { home, beat_ms: self.config.beat_ms })
    }

    pub(super) fn leave_rank(&mut self, beat: &RankHeartbeat) -> Result<FromCoordinator, Refusal> {
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
    fn hear_rank(&mut self, beat: &RankHeartbeat) -> Result<bool, Refusal> {
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
enum JoinTarget {
    /// It has joined this session already.
    Member(SessionId),
    /// Its rank is free in this session.
    Open(SessionId),
    /// It is the first of a new launch.
    NewSession,
}
