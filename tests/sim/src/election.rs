//! Coordinators of which one leads: as `coordinator/src/shell/election.rs`, with what it asks etcd for and when it gives up.

use std::time::{Duration, Instant};

use spdl_coordinator::state::LeaseDeadline;

use crate::{
    etcd::{EtcdAnswer, Question},
    process::Target,
    world::{Input, World},
};

/// As the shell's: renewals of a lease in its time, and when one that failed is tried again.
const RENEWALS: u64 = 5;
const RETRY_US: u64 = 100_000;
/// What a member of etcd may take at least to answer.
const MIN_TIMEOUT_US: u64 = 500_000;

/// Where a coordinator stands with the others.
#[derive(Debug, Default)]
pub(crate) struct Candidacy {
    /// The lease that is held, or may be.
    lease: Option<u64>,
    /// The calls that are open: of the one that stands for election or renews, and of the one that reads and writes.
    electing: Option<(u64, Step)>,
    storing: Option<(u64, Storing)>,
    calls: u64,
    timer: u64,
    /// When the open call was made, by its own clock.
    asked_ms: u64,
    reign: Option<Reign>,
    /// Who leads, as far as it has heard.
    behind: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Reign {
    term: u64,
    lease: u64,
    /// Until when it leads for certain, by its own clock.
    until_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
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
    /// Whom it names to those who ask.
    pub(crate) const fn leader(&self) -> Option<usize> {
        self.behind
    }

    pub(crate) fn waits_for(&self, call: u64) -> bool {
        self.storing.is_some_and(|(open, _)| open == call)
    }
}

impl World {
    /// It is started, and leads when it can.
    pub(crate) fn stand(&mut self, at: usize) {
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

    pub(crate) fn tenure_holds(&self, at: usize) -> bool {
        let reign = &self.coordinators[at].candidacy.reign;
        reign.as_ref().is_some_and(|reign| self.read_ms(at) < reign.until_ms)
    }

    /// Until when to count on the lease that was asked for last: as the shell does.
    fn end_of_lease_ms(&self, at: usize) -> u64 {
        let asked_ms = self.coordinators[at].candidacy.asked_ms;
        let origin = Instant::now();
        let end = LeaseDeadline::end_of_lease(origin, self.lease());
        asked_ms + (end - origin).as_millis() as u64
    }

    fn election_after(&mut self, at: usize, delay_us: u64) {
        let candidacy = self.candidacy(at);
        candidacy.timer += 1;
        let timer = candidacy.timer;
        self.remind(delay_us, Target::Coordinator(at), Input::Election { timer });
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
        self.remind(timeout_us, Target::Coordinator(at), Input::EtcdTimeout { call });
        call
    }

    fn elect(&mut self, at: usize, step: Step, question: Question) {
        let call = self.call(at, question);
        self.candidacy(at).electing = Some((call, step));
    }

    fn store(&mut self, at: usize, storing: Storing, question: Question) {
        let call = self.call(at, question);
        self.candidacy(at).storing = Some((call, storing));
    }

    /// It is time to renew the lease, or to stand for election again.
    pub(crate) fn on_election(&mut self, at: usize, timer: u64) {
        if timer != self.candidacy(at).timer {
            return;
        }
        let reign = self.candidacy(at).reign;
        match reign {
            Some(_) if !self.tenure_holds(at) => self.lose(at),
            Some(Reign { lease, .. }) => {
                self.candidacy(at).asked_ms = self.read_ms(at);
                self.elect(at, Step::Renew, Question::Renew { lease });
            }
            None => match self.candidacy(at).lease {
                Some(lease) => self.elect(at, Step::Revoke, Question::Revoke { lease }),
                None => self.elect(at, Step::Look, Question::Look),
            },
        }
    }

    /// It does not lead any more.
    fn lose(&mut self, at: usize) {
        self.coverage.count("coordinator_stopped_leading");
        let candidacy = self.candidacy(at);
        candidacy.reign = None;
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

    fn elected(&mut self, at: usize, step: Step, answer: EtcdAnswer) {
        match (step, answer) {
            (Step::Revoke, EtcdAnswer::Done) => {
                self.candidacy(at).lease = None;
                self.elect(at, Step::Look, Question::Look);
            }
            (Step::Look, EtcdAnswer::Held(None)) => {
                self.coordinators[at].process.clock.is_off = false;
                self.candidacy(at).asked_ms = self.read_ms(at);
                self.elect(at, Step::Grant, Question::Grant);
            }
            (Step::Look | Step::Take, EtcdAnswer::Held(behind)) => {
                if step == Step::Take {
                    self.coverage.count("election_lost");
                }
                self.stand_by(at, behind);
            }
            (Step::Grant, EtcdAnswer::Granted { lease }) => {
                self.candidacy(at).lease = Some(lease);
                self.elect(at, Step::Take, Question::TakeKey { lease });
            }
            (Step::Take, EtcdAnswer::Won { term }) => {
                let until_ms = self.end_of_lease_ms(at);
                let candidacy = self.candidacy(at);
                let lease = candidacy.lease.expect("the key hangs on it");
                candidacy.reign = Some(Reign { term, lease, until_ms });
                candidacy.behind = None;
                self.renew_after(at, self.lease_us() / RENEWALS);
                self.store(at, Storing::Load, Question::Load);
            }
            (Step::Renew, EtcdAnswer::Done) => {
                if self.tenure_holds(at) {
                    let until_ms = self.end_of_lease_ms(at);
                    let reign = self.candidacy(at).reign.as_mut().expect("its tenure holds");
                    reign.until_ms = reign.until_ms.max(until_ms);
                }
                self.renew_after(at, self.lease_us() / RENEWALS);
            }
            (Step::Renew, EtcdAnswer::Gone) => {
                if self.tenure_holds(at) {
                    self.coverage.count("coordinator_was_deposed_while_it_believed_that_it_led");
                }
                self.lose(at);
            }
            (Step::Renew, _) => self.renew_after(at, RETRY_US),
            _ => self.stand_by(at, None),
        }
    }

    /// At the end of the tenure at the latest.
    fn renew_after(&mut self, at: usize, pause_us: u64) {
        let until_ms = self.candidacy(at).reign.as_ref().map_or(0, |reign| reign.until_ms);
        let end_us = self.coordinators[at].process.clock.true_us(until_ms);
        self.election_after(at, pause_us.min(end_us.saturating_sub(self.now_us)) + 1);
    }

    /// The writer has something to write.
    pub(crate) fn commit(&mut self, at: usize) {
        let lead = self.coordinators[at].lead.as_ref().expect("it leads");
        let (term, fence, changes) = (lead.term, lead.writer.fence, lead.writer.batch());
        if changes.is_empty() {
            return self.on_written(at);
        }
        if !self.tenure_holds(at) {
            return self.on_deposed_write(at);
        }
        match fence {
            Some(fence) => self.store(at, Storing::Commit, Question::Commit { term, fence, changes }),
            None => self.store(at, Storing::Fence, Question::Fence),
        }
    }

    fn stored(&mut self, at: usize, storing: Storing, answer: EtcdAnswer) {
        let Some(Reign { term, .. }) = self.candidacy(at).reign else { return };
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
                // One that was given up was carried out after all.
                self.store(at, Storing::Fence, Question::Fence);
            }
            (Storing::Commit, EtcdAnswer::Unmet { .. }) => {
                if self.tenure_holds(at) {
                    self.coverage.count("coordinator_was_deposed_while_it_believed_that_it_led");
                }
                self.candidacy(at).reign.as_mut().expect("it was just found").until_ms = 0;
                self.on_deposed_write(at);
            }
            _ => {
                fence(self, None);
                self.on_refused_write(at, "etcd is away");
            }
        }
    }
}
