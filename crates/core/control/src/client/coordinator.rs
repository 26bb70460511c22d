//! The session's relation to the coordinator: joins, sends heartbeats, and processes the answers.

use crate::messages::{
    FromCoordinator, JobHold, JobNotice, Join, KnownChanges, RankHeartbeat, Refusal, RunName, Session, Start,
    StartReason, Started, ToCoordinator,
};
use spdl_insight::ReceiveStats;
use spdl_job::Job;
use spdl_types::{
    Fingerprint, Position,
    mutations::{Mutation, mutated},
};

use super::{JoinRequest, RankError, SessionCore, SessionEffect, SessionNote, receive_window::ExpectedStream};

/// The state of the rank's membership in its session.
#[derive(Debug)]
pub(super) struct Membership {
    since_ms: u64,
    session: Option<Box<Session>>,
    /// The fingerprint of the session's job.
    fingerprint: Fingerprint,
    /// The job has changed: request it.
    is_job_old: bool,
    /// The number of the next heartbeat.
    heartbeats: u64,
    /// The coordinator does not know the session (any more): join it again.
    rejoin: bool,
    /// A request is open.
    asking: bool,
    /// The rank has news to report since the open request was sent: send another one after the answer.
    again: bool,
    next_ask_ms: u64,
    heartbeat_ms: u64,
    failures: u32,
    /// When the coordinator began to refuse the join for a temporary reason.
    refused_since_ms: Option<u64>,
    /// When the coordinator stopped answering, and why.
    pub(super) away: Option<(u64, String)>,
}

impl Membership {
    pub(super) const fn new(now_ms: u64) -> Self {
        Self {
            since_ms: now_ms,
            session: None,
            fingerprint: Fingerprint(0),
            is_job_old: false,
            heartbeats: 0,
            rejoin: false,
            asking: false,
            again: false,
            next_ask_ms: now_ms,
            heartbeat_ms: 1000,
            failures: 0,
            refused_since_ms: None,
            away: None,
        }
    }

    pub(super) fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    pub(super) fn wake_ms(&self) -> Option<u64> {
        (!self.asking).then_some(self.next_ask_ms)
    }

    fn answered(&mut self, now_ms: u64, heartbeat_ms: u64) {
        self.heartbeat_ms = heartbeat_ms.clamp(10, 60_000);
        self.next_ask_ms =
            if std::mem::take(&mut self.again) { now_ms } else { now_ms.saturating_add(self.heartbeat_ms) };
        self.failures = 0;
        self.refused_since_ms = None;
        self.away = None;
    }
}

impl SessionCore {
    /// Sends the request that is due: a join while there is no session, a heartbeat afterwards. While another request
    /// is open, it is sent after the answer.
    pub(super) fn ask(&mut self) {
        if self.membership.asking {
            self.membership.again = true;
            return;
        }
        self.membership.heartbeats += 1;
        let question = match self.membership.session() {
            Some(session) if self.membership.is_job_old && !self.membership.rejoin => {
                let JoinRequest { job, rank, nonce, .. } = &self.join_request;
                ToCoordinator::SessionJob { session: session.id, job: job.clone(), rank: *rank, nonce: *nonce }
            }
            Some(session) if !self.membership.rejoin => ToCoordinator::RankHeartbeat(self.rank_heartbeat(session)),
            session => ToCoordinator::Join(self.join(session.filter(|_| !mutated(Mutation::RejoinAsNew)))),
        };
        self.membership.asking = true;
        self.membership.again = false;
        self.effects.push_back(SessionEffect::Ask(question));
    }

    pub(super) fn ask_when_due(&mut self, now_ms: u64) {
        if !self.membership.asking && now_ms >= self.membership.next_ask_ms {
            self.ask();
        }
    }

    /// Creates a join. A session that the coordinator has forgotten is joined with its original start position, so that
    /// all its ranks agree; the rank itself continues at its own position.
    fn join(&self, session: Option<&Session>) -> Join {
        let join_request = &self.join_request;
        Join {
            job: join_request.job.clone(),
            run: join_request.run.clone(),
            rank: join_request.rank,
            world: join_request.world,
            global_batch: session.map_or(join_request.global_batch, |session| Some(session.global_batch)),
            epochs: session.map_or(join_request.epochs, |session| Some(session.job.epochs)),
            start: session.map_or(join_request.start, |session| Start::At(session.start)),
            fingerprint: session.map_or(join_request.fingerprint, |_| Some(self.membership.fingerprint)),
            launch: join_request.launch.clone(),
            takeover: join_request.takeover,
            session: session.map(|session| session.id),
            changes: session.map(|session| Box::new(self.known_changes(session))),
            node: join_request.node.clone(),
            client: join_request.client.clone(),
            since_unix_s: join_request.since_unix_s,
            nonce: join_request.nonce,
        }
    }

    fn known_changes(&self, Session { job, .. }: &Session) -> KnownChanges {
        KnownChanges {
            stages: job.stages.clone(),
            redactions: job.redactions.clone(),
            earlier: job.earlier.clone(),
            handed: self.handed(),
            hold: self.hold,
        }
    }

    /// Sets what the rank has received over QUIC so far, which the following heartbeats report.
    pub const fn note_received(&mut self, received: ReceiveStats) {
        self.received = received;
    }

    pub(super) fn rank_heartbeat(&self, session: &Session) -> RankHeartbeat {
        RankHeartbeat {
            session: session.id,
            job: self.join_request.job.clone(),
            rank: self.join_request.rank,
            nonce: self.join_request.nonce,
            acknowledged: self.progress.position,
            receipt: self.progress.receipt,
            unreachable: self.link.unreachable(),
            waited_ms: self.progress.waited_ms,
            transport: self.link.attached().map(|(_, transport)| transport),
            received: self.received,
            handed: self.handed(),
            fingerprint: self.membership.fingerprint,
            promise: self.hold,
            number: self.membership.heartbeats,
        }
    }

    pub(super) fn on_answer(&mut self, now_ms: u64, answer: FromCoordinator) {
        self.membership.asking = false;
        match answer {
            FromCoordinator::Joined { session, reason, home, heartbeat_ms } => {
                self.membership.answered(now_ms, heartbeat_ms);
                match self.adopt(session, reason) {
                    Ok(()) => self.on_home(now_ms, home),
                    Err(error) => self.fail(error),
                }
            }
            FromCoordinator::RankAcknowledged { home, heartbeat_ms, notice, .. } => {
                self.membership.answered(now_ms, heartbeat_ms);
                self.on_home(now_ms, home);
                self.on_notice(now_ms, notice);
            }
            FromCoordinator::Job(job) => {
                self.membership.is_job_old = false;
                self.membership.answered(now_ms, self.membership.heartbeat_ms);
                if let Err(error) = self.adopt_job(now_ms, *job) {
                    self.fail(error);
                }
            }
            FromCoordinator::Refused(Refusal::UnknownSession { session }) => {
                self.membership.rejoin = true;
                self.effects.push_back(SessionEffect::Log(SessionNote::SessionForgotten { session }));
                self.pause(now_ms);
            }
            FromCoordinator::Refused(Refusal::Internal { cause } | Refusal::NotLeader { cause, .. }) => {
                self.on_unanswered(now_ms, cause);
            }
            FromCoordinator::Refused(refusal @ Refusal::Unwritable { .. }) => {
                self.on_unanswered(now_ms, refusal.to_string());
            }
            FromCoordinator::Refused(refusal) => self.on_refused(now_ms, refusal),
            other => self.on_unanswered(now_ms, format!("it gave an answer to another question: {other:?}")),
        }
    }

    /// Handles a refused join. Ranks that were just killed look alive for the liveness timeout and block the run. So
    /// the join is repeated for twice that time, but not longer than the join timeout: a coordinator that restarts
    /// meanwhile counts the liveness timeout from the beginning. Only then is the refusal final.
    fn on_refused(&mut self, now_ms: u64, refusal: Refusal) {
        let (Refusal::RunInUse { liveness_ms, .. } | Refusal::SessionDisagrees { liveness_ms, .. }) = refusal else {
            return self.fail(refusal.into());
        };
        let membership = &mut self.membership;
        let retry_for_ms = liveness_ms.saturating_mul(2).min(self.timing.join_timeout_ms);
        let since_ms = *membership.refused_since_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since_ms) >= retry_for_ms {
            return self.fail(refusal.into());
        }
        if since_ms == now_ms {
            self.effects.push_back(SessionEffect::Log(SessionNote::RefusedForNow { refusal, retry_for_ms }));
        }
        self.membership.away = None;
        self.membership.next_ask_ms = now_ms.saturating_add((liveness_ms / 10).clamp(10, 1_000));
    }

    pub(super) fn on_unanswered(&mut self, now_ms: u64, cause: String) {
        self.membership.asking = false;
        // The coordinator that answers next may have restarted, and then measures the silence of the other ranks from
        // its own start.
        self.membership.refused_since_ms = None;
        let since_ms = match self.membership.away.take() {
            Some((since_ms, _)) => since_ms,
            None => now_ms,
        };
        let waited_ms = now_ms.saturating_sub(self.membership.since_ms);
        if self.membership.session.is_none() && waited_ms >= self.timing.join_timeout_ms {
            let coordinators = self.join_request.coordinators.clone();
            return self.fail(RankError::Unreachable { coordinators, rank: self.join_request.rank, waited_ms, cause });
        }
        if self.membership.failures == 0 {
            let note = SessionNote::CoordinatorAway { cause: cause.clone() };
            self.effects.push_back(SessionEffect::Log(note));
        }
        self.membership.away = Some((since_ms, cause));
        self.pause(now_ms);
    }

    fn pause(&mut self, now_ms: u64) {
        self.membership.failures += 1;
        let mut until_ms = now_ms.saturating_add(self.backoff_ms(self.membership.failures));
        if self.membership.session.is_none() {
            // Make the last attempt when the time is up, even if the pause would end later.
            let limit_ms = self.membership.since_ms.saturating_add(self.timing.join_timeout_ms);
            until_ms = until_ms.min(limit_ms.max(now_ms));
        }
        self.membership.next_ask_ms = until_ms;
    }

    /// Processes what the coordinator says about changes of the job. A rank promises to wait for a change that is proposed, unless its
    /// trainer has already got a batch past it, and says so at once.
    fn on_notice(&mut self, now_ms: u64, JobNotice { fingerprint, hold }: JobNotice) {
        let Some(stream) = &mut self.stream else { return };
        if fingerprint != self.membership.fingerprint {
            // It stays on hold until it has the job.
            self.membership.is_job_old = true;
            self.membership.next_ask_ms = now_ms;
            return;
        }
        let promised: Option<JobHold> = match hold {
            // A trainer that has gone to a position past the change it waits for goes on waiting there.
            Some(hold) if !stream.is_before(hold.from) => self.hold,
            hold => hold,
        };
        if promised != self.hold {
            self.hold = promised;
            stream.hold = promised.map(|hold| hold.from);
            self.membership.next_ask_ms = now_ms;
            self.go_on_receiving(now_ms);
        }
    }

    /// Takes over a job that has changed from a position on which the rank has not reached. Its home makes all again from the rank's
    /// position on.
    fn adopt_job(&mut self, now_ms: u64, job: Job) -> Result<(), RankError> {
        let (Some(session), Some(stream)) = (&mut self.membership.session, &mut self.stream) else { return Ok(()) };
        let (ours, theirs) = (self.membership.fingerprint, job.fingerprint());
        if ours == theirs {
            return Ok(());
        }
        let (name, rank) = (job.name.clone(), self.join_request.rank);
        let is_same_up_to_here = job.samples == session.job.samples
            && session.job.continues(job.fingerprint_up_to(stream.expected), stream.expected);
        if !is_same_up_to_here {
            let (theirs, ours) = (theirs.to_string(), ours.to_string());
            return Err(RankError::SessionDiffers { job: name, rank, field: "fingerprint", theirs, ours });
        }
        let changed = Session { job: Job { epochs: session.job.epochs, ..job }, ..(**session).clone() };
        if let Err(error) = changed.check(rank) {
            return Err(RankError::Refused(Refusal::JobInvalid { job: name, cause: error.to_string() }));
        }
        stream.go_on_by(changed.steps_of(rank));
        **session = changed;
        self.membership.fingerprint = theirs;
        self.effects.push_back(SessionEffect::JobChanged(session.clone()));
        (self.hold, stream.hold) = (None, None);
        if mutated(Mutation::KeepReadAhead) {
            self.go_on_receiving(now_ms);
        } else {
            self.detach();
        }
        Ok(())
    }

    /// Takes part in `session`, or in the session that replaces a forgotten one.
    fn adopt(&mut self, session: Box<Session>, reason: StartReason) -> Result<(), RankError> {
        self.membership.rejoin = false;
        let join_request = &self.join_request;
        let known = self.membership.session();
        let ours = |session: &Session| (session.world, session.global_batch, session.start, session.job.fingerprint());
        let (world, global_batch, start, fingerprint) = ours(&session);
        let wanted = known.map(ours);
        let batch = wanted.map(|(_, batch, ..)| batch).or(join_request.global_batch).unwrap_or(global_batch);
        let asked = match join_request.start {
            Start::Beginning => Some(Position::START),
            Start::Resume => None,
            Start::At(position) => Some(position),
        };
        let from = wanted.map(|(_, _, start, _)| start).or(asked).unwrap_or(start);
        let asked = join_request.fingerprint.filter(|asked| !session.job.continues(*asked, session.start));
        let job = wanted.map(|(.., job)| job).or(asked).unwrap_or(fingerprint);
        for (field, theirs, ours) in [
            ("world", world.to_string(), join_request.world.to_string()),
            ("global batch", global_batch.to_string(), batch.to_string()),
            ("start", start.to_string(), from.to_string()),
            ("fingerprint", fingerprint.to_string(), job.to_string()),
        ] {
            if theirs != ours {
                let (job, rank) = (session.job.name, join_request.rank);
                return Err(RankError::SessionDiffers { job, rank, field, theirs, ours });
            }
        }
        if let Err(error) = session.check(join_request.rank) {
            let job = session.job.name.clone();
            return Err(RankError::Refused(Refusal::JobInvalid { job, cause: error.to_string() }));
        }
        if self.stream.is_none() {
            self.stream = Some(ExpectedStream::new(session.steps_of(join_request.rank), session.job.samples, start));
            self.progress.position = start;
            self.effects.push_back(SessionEffect::Joined(session.clone(), reason));
            if join_request.rank == 0 {
                let run = RunName { job: join_request.job.clone(), run: join_request.run.clone() };
                let started = Started { position: session.start, reason };
                self.effects.push_back(SessionEffect::Log(SessionNote::Started { session: session.id, run, started }));
            }
        }
        self.membership.fingerprint = session.job.fingerprint();
        self.membership.is_job_old = false;
        self.membership.session = Some(session);
        Ok(())
    }
}
