//! The election of a leading coordinator: mirrors `coordinator/src/shell/election.rs`, with its requests to etcd and
//! its time limits.

use std::time::Duration;

use spdl_control::coordinator::usable_lease;

use crate::{
    etcd::{EtcdAnswer, Question},
    process::Target,
    world::{ProcessInput, World},
};

/// As in the shell: the number of renewals within the time of a lease, and the pause after a failed one.
const RENEWALS: u64 = 5;
const RETRY_US: u64 = 100_000;
/// Lower bound of the time limit for an answer of etcd.
const MIN_TIMEOUT_US: u64 = 500_000;

/// The side of a coordinator that takes part in the election.
#[derive(Debug, Default)]
pub(crate) struct Candidacy {
    /// The lease that it holds or may hold.
    lease: Option<u64>,
    /// The calls in progress: that of the election or renewal, and that of the reads and writes of the state.
    electing: Option<(u64, ElectionStep)>,
    storing: Option<(u64, Storing)>,
    calls: u64,
    timer: u64,
    /// When the call in progress was made, by the coordinator's own clock.
    asked_ms: u64,
    leadership: Option<ElectionState>,
    /// The leader, as far as this coordinator knows.
    behind: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct ElectionState {
    term: u64,
    lease: u64,
    /// Until when it is certain to lead, by its own clock.
    until_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElectionStep {
    Revoke,
    Look,
    Grant,
    Take,
    Renew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storing {
    Load,
    Fence,
    Commit,
}

impl Candidacy {
    /// Returns the leader that it names in refusals.
    pub(crate) const fn leader(&self) -> Option<usize> {
        self.behind
    }

    pub(crate) fn waits_for(&self, call: u64) -> bool {
        self.storing.is_some_and(|(open, _)| open == call)
    }
}

impl World {
    /// Starts taking part in the election.
    pub(crate) fn join_election(&mut self, at: usize) {
        let delay_us = self.dice.within(1, 5_000);
        self.election_after(at, delay_us);
    }

    fn candidacy(&mut self, at: usize) -> &mut Candidacy {
        &mut self.coordinators[at].candidacy
    }

    fn read_ms(&self, at: usize) -> u64 {
        self.coordinators[at].process.clock.read_ms(self.now_us)
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(self.scenario.lease_s)
    }

    fn lease_us(&self) -> u64 {
        self.scenario.lease_s * 1_000_000
    }

    pub(crate) fn lease_is_valid(&self, at: usize) -> bool {
        let leadership = &self.coordinators[at].candidacy.leadership;
        leadership.as_ref().is_some_and(|leadership| self.read_ms(at) < leadership.until_ms)
    }

    /// Returns until when to rely on the lease that was requested last, computed as in the shell.
    fn end_of_lease_ms(&self, at: usize) -> u64 {
        self.coordinators[at].candidacy.asked_ms + usable_lease(self.lease()).as_millis() as u64
    }

    fn election_after(&mut self, at: usize, delay_us: u64) {
        let candidacy = self.candidacy(at);
        candidacy.timer += 1;
        let timer = candidacy.timer;
        self.remind(delay_us, Target::Coordinator(at), ProcessInput::Election { timer });
    }

    fn call(&mut self, at: usize, question: Question) -> u64 {
        let candidacy = self.candidacy(at);
        candidacy.calls += 1;
        let call = candidacy.calls;
        let is_write = matches!(
            question,
            Question::Grant | Question::Revoke { .. } | Question::TakeKey { .. } | Question::Commit { .. }
        );
        let timeout_us = if is_write { self.lease_us() } else { (self.lease_us() / 5).max(MIN_TIMEOUT_US) };
        let is_commit = matches!(question, Question::Commit { .. });
        let delay_us = self.send_to_etcd(at, call, question);
        if is_commit {
            self.may_die_writing(at, delay_us);
        }
        self.remind(timeout_us, Target::Coordinator(at), ProcessInput::EtcdTimeout { call });
        call
    }

    fn elect(&mut self, at: usize, step: ElectionStep, question: Question) {
        let call = self.call(at, question);
        self.candidacy(at).electing = Some((call, step));
    }

    fn store(&mut self, at: usize, storing: Storing, question: Question) {
        let call = self.call(at, question);
        self.candidacy(at).storing = Some((call, storing));
    }

    /// Renews the lease, or takes part in the election again.
    pub(crate) fn on_election(&mut self, at: usize, timer: u64) {
        if timer != self.candidacy(at).timer {
            return;
        }
        let leadership = self.candidacy(at).leadership;
        match leadership {
            Some(_) if !self.lease_is_valid(at) => self.lose(at),
            Some(ElectionState { lease, .. }) => {
                self.candidacy(at).asked_ms = self.read_ms(at);
                self.elect(at, ElectionStep::Renew, Question::Renew { lease });
            }
            None => match self.candidacy(at).lease {
                Some(lease) => self.elect(at, ElectionStep::Revoke, Question::Revoke { lease }),
                None => self.elect(at, ElectionStep::Look, Question::Look),
            },
        }
    }

    /// Ends the lead.
    fn lose(&mut self, at: usize) {
        self.coverage.count("coordinator_stopped_leading");
        let candidacy = self.candidacy(at);
        candidacy.leadership = None;
        candidacy.electing = None;
        candidacy.storing = None;
        self.end_lead(at);
        self.stand_by(at, None);
    }

    fn stand_by(&mut self, at: usize, behind: Option<usize>) {
        self.candidacy(at).behind = behind;
        let pause_us = (self.lease_us() / 10).clamp(100_000, 1_000_000);
        self.election_after(at, pause_us);
    }

    /// Gives up the lease.
    pub(crate) fn resign(&mut self, at: usize) {
        if let Some(lease) = self.candidacy(at).lease {
            self.call(at, Question::Revoke { lease });
        }
    }

    pub(crate) fn on_etcd_timeout(&mut self, at: usize, call: u64) {
        self.on_etcd_answer(at, call, EtcdAnswer::Away);
    }

    pub(crate) fn on_etcd_answer(&mut self, at: usize, call: u64, answer: EtcdAnswer) {
        let candidacy = self.candidacy(at);
        if let Some((_, step)) = candidacy.electing.take_if(|(open, _)| *open == call) {
            self.elected(at, step, answer);
        } else if let Some((_, storing)) = candidacy.storing.take_if(|(open, _)| *open == call) {
            self.stored(at, storing, answer);
        }
    }

    fn elected(&mut self, at: usize, step: ElectionStep, answer: EtcdAnswer) {
        match (step, answer) {
            (ElectionStep::Revoke, EtcdAnswer::Done) => {
                self.candidacy(at).lease = None;
                self.elect(at, ElectionStep::Look, Question::Look);
            }
            (ElectionStep::Look, EtcdAnswer::Held(None)) => {
                self.coordinators[at].process.clock.is_off = false;
                self.candidacy(at).asked_ms = self.read_ms(at);
                self.elect(at, ElectionStep::Grant, Question::Grant);
            }
            (ElectionStep::Look | ElectionStep::Take, EtcdAnswer::Held(behind)) => {
                if step == ElectionStep::Take {
                    self.coverage.count("election_lost");
                }
                self.stand_by(at, behind);
            }
            (ElectionStep::Grant, EtcdAnswer::Granted { lease }) => {
                self.candidacy(at).lease = Some(lease);
                self.elect(at, ElectionStep::Take, Question::TakeKey { lease });
            }
            (ElectionStep::Take, EtcdAnswer::Won { term }) => {
                let until_ms = self.end_of_lease_ms(at);
                let candidacy = self.candidacy(at);
                let lease = candidacy.lease.expect("the key hangs on it");
                candidacy.leadership = Some(ElectionState { term, lease, until_ms });
                candidacy.behind = None;
                self.renew_after(at, self.lease_us() / RENEWALS);
                self.store(at, Storing::Load, Question::Load);
            }
            (ElectionStep::Renew, EtcdAnswer::Done) => {
                if self.lease_is_valid(at) {
                    let until_ms = self.end_of_lease_ms(at);
                    let leadership = self.candidacy(at).leadership.as_mut().expect("its lease is valid");
                    leadership.until_ms = leadership.until_ms.max(until_ms);
                }
                self.renew_after(at, self.lease_us() / RENEWALS);
            }
            (ElectionStep::Renew, EtcdAnswer::Gone) => {
                if self.lease_is_valid(at) {
                    self.coverage.count("coordinator_lost_its_lease_while_it_believed_that_it_led");
                }
                self.lose(at);
            }
            (ElectionStep::Renew, _) => self.renew_after(at, RETRY_US),
            _ => self.stand_by(at, None),
        }
    }

    /// Schedules the next renewal, at the end of the lease at the latest.
    fn renew_after(&mut self, at: usize, pause_us: u64) {
        let until_ms = self.candidacy(at).leadership.as_ref().map_or(0, |leadership| leadership.until_ms);
        let end_us = self.coordinators[at].process.clock.true_us(until_ms);
        self.election_after(at, pause_us.min(end_us.saturating_sub(self.now_us)) + 1);
    }

    /// Sends the pending changes of the writer to etcd.
    pub(crate) fn commit(&mut self, at: usize) {
        let lead = self.coordinators[at].lead.as_ref().expect("it leads");
        let (term, fence, changes) = (lead.term, lead.writer.fence, lead.writer.batch());
        if changes.is_empty() {
            return self.on_written(at);
        }
        if !self.lease_is_valid(at) {
            // A deadline of the shell that has passed stays so; its clock does not step back.
            if let Some(leadership) = &mut self.candidacy(at).leadership {
                leadership.until_ms = 0;
            }
            return self.on_old_leader_write(at);
        }
        match fence {
            Some(fence) => self.store(at, Storing::Commit, Question::Commit { term, fence, changes }),
            None => self.store(at, Storing::Fence, Question::Fence),
        }
    }

    fn stored(&mut self, at: usize, storing: Storing, answer: EtcdAnswer) {
        let Some(ElectionState { term, .. }) = self.candidacy(at).leadership else { return };
        let fence = |world: &mut Self, fence| {
            world.coordinators[at].lead.as_mut().expect("it writes").writer.fence = fence;
        };
        match (storing, answer) {
            (Storing::Load, EtcdAnswer::State { durable, fence }) => self.begin_lead(at, term, *durable, Some(fence)),
            (Storing::Load, _) => self.lose(at),
            (Storing::Fence, EtcdAnswer::Fence(found)) => {
                fence(self, Some(found));
                self.commit(at);
            }
            (Storing::Commit, EtcdAnswer::Committed { fence: made }) => {
                fence(self, Some(made));
                self.on_written(at);
            }
            (Storing::Commit, EtcdAnswer::Unmet { term: held }) if held == Some(term) => {
                // A write that was given up has been carried out after all.
                self.store(at, Storing::Fence, Question::Fence);
            }
            (Storing::Commit, EtcdAnswer::Unmet { .. }) => {
                if self.lease_is_valid(at) {
                    self.coverage.count("coordinator_lost_its_lease_while_it_believed_that_it_led");
                }
                self.candidacy(at).leadership.as_mut().expect("it was just found").until_ms = 0;
                self.on_old_leader_write(at);
            }
            _ => {
                fence(self, None);
                self.on_refused_write(at, "etcd is away");
            }
        }
    }
}
