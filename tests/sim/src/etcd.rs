//! A model of etcd as coordinators see it: leases, the leader's key, and conditional writes. Requests and answers may
//! be late or lost, and a request that its sender gave up on may still be carried out.

use std::collections::BTreeMap;

use spdl_control::coordinator::{Change, Durable};
use spdl_types::mutations::{Mutation, mutated};

use crate::{
    dice::Dice,
    process::Target,
    world::{Event, ProcessInput, World},
};

/// The longest delay before an expired lease is noticed, and the longest delay of a request or an answer on a normal
/// path.
const LATE_US: u64 = 1_000_000;
const CALL_US: u64 = 4_000;
/// The longest delay of a request or an answer on a slow path.
const SLOW_US: u64 = 9_000_000;

#[derive(Debug, Default)]
pub(crate) struct SimEtcd {
    /// The number of writes.
    revision: u64,
    leader: Option<LeaderKey>,
    /// The expiry time of each lease.
    leases: BTreeMap<u64, u64>,
    granted: u64,
    /// The revision in which the state was last written.
    pub(crate) fence: u64,
    pub(crate) paths: Vec<Path>,
    pub(crate) away_until_us: u64,
}

/// The key of the leading coordinator.
#[derive(Clone, Copy, Debug)]
struct LeaderKey {
    holder: usize,
    lease: u64,
    /// The revision in which the key was created.
    term: u64,
}

/// The path between a coordinator and etcd.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    pub(crate) loses_questions_until_us: u64,
    pub(crate) loses_answers_until_us: u64,
    pub(crate) slow_until_us: u64,
}

#[derive(Debug)]
pub(crate) enum Question {
    Revoke {
        lease: u64,
    },
    Look,
    Grant,
    TakeKey {
        lease: u64,
    },
    Renew {
        lease: u64,
    },
    /// Reads the whole state.
    Load,
    /// Reads the revision in which the state was last written.
    Fence,
    /// Writes changes if the leader's key is of this term and the state was last written in the revision `fence`.
    Commit {
        term: u64,
        fence: u64,
        changes: Vec<Change>,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum EtcdAnswer {
    Done,
    Held(Option<usize>),
    Granted {
        lease: u64,
    },
    Won {
        term: u64,
    },
    Gone,
    State {
        durable: Box<Durable>,
        fence: u64,
    },
    Fence(u64),
    Committed {
        fence: u64,
    },
    /// A condition does not hold; `term` is that of the current leader.
    Unmet {
        term: Option<u64>,
    },
    /// etcd accepts no writes, or cannot be reached.
    Away,
}

impl SimEtcd {
    pub(crate) fn new(coordinators: usize) -> Self {
        Self { paths: vec![Path::default(); coordinators], ..Self::default() }
    }

    /// Ends all faults.
    pub(crate) fn mend(&mut self) {
        self.away_until_us = 0;
        self.paths.fill(Path::default());
    }

    fn expire(&mut self, now_us: u64) {
        self.leases.retain(|_, expires_us| *expires_us > now_us);
        if self.leader.is_some_and(|leader| !self.leases.contains_key(&leader.lease)) {
            self.leader = None;
        }
    }

    /// Returns when a lease expires. Never early: the time counts from when the request arrives.
    fn expiry(now_us: u64, ttl_us: u64, dice: &mut Dice) -> u64 {
        now_us + ttl_us + dice.within(0, LATE_US)
    }
}

impl World {
    fn etcd_path(&self, at: usize) -> &Path {
        &self.etcd.as_ref().expect("coordinators share it").paths[at]
    }

    fn etcd_delay_us(&mut self, at: usize) -> u64 {
        let now_us = self.now_us;
        let is_slow = now_us < self.etcd_path(at).slow_until_us || now_us < self.state.disk.slow_until_us;
        self.dice.within(100, if is_slow { SLOW_US } else { CALL_US })
    }

    /// Sends a request to etcd, or loses it; returns its delay.
    pub(crate) fn send_to_etcd(&mut self, at: usize, call: u64, question: Question) -> u64 {
        let mut delay_us = self.etcd_delay_us(at);
        if matches!(question, Question::Commit { .. }) {
            delay_us += self.dice.within(0, self.scenario.disk_us);
            if self.now_us < self.state.disk.stuck_until_us {
                self.coverage.count("write_took_tens_of_seconds");
                delay_us += self.dice.within(10_000_000, 60_000_000);
            }
        }
        if self.now_us < self.etcd_path(at).loses_questions_until_us {
            self.coverage.count("question_to_etcd_lost");
            return delay_us;
        }
        let life = self.coordinators[at].process.life;
        self.schedule(delay_us, Event::Etcd { from: at, life, call, question: Box::new(question) });
        delay_us
    }

    /// Handles a request that arrives at etcd, even if its sender has ended meanwhile.
    pub(crate) fn etcd_receives(&mut self, from: usize, life: u32, call: u64, question: Question) {
        let answer = self.etcd_answer(from, life, call, question);
        let delay_us = self.etcd_delay_us(from);
        if self.now_us < self.etcd_path(from).loses_answers_until_us {
            self.coverage.count("answer_of_etcd_lost");
            return;
        }
        let input = ProcessInput::EtcdAnswer { call, answer: Box::new(answer) };
        self.schedule(delay_us, Event::Input { target: Target::Coordinator(from), life, input });
    }

    fn etcd_answer(&mut self, from: usize, life: u32, call: u64, question: Question) -> EtcdAnswer {
        let (now_us, ttl_us) = (self.now_us, self.scenario.lease_s * 1_000_000);
        let etcd = self.etcd.as_mut().expect("coordinators share it");
        if now_us < etcd.away_until_us {
            return EtcdAnswer::Away;
        }
        etcd.expire(now_us);
        match question {
            Question::Revoke { lease } => {
                etcd.leases.remove(&lease);
                etcd.expire(now_us);
                EtcdAnswer::Done
            }
            Question::Look => {
                EtcdAnswer::Held(etcd.leader.map(|leader| leader.holder).filter(|_| !mutated(Mutation::TakeHeldKey)))
            }
            Question::Grant => {
                etcd.granted += 1;
                let lease = etcd.granted;
                etcd.leases.insert(lease, SimEtcd::expiry(now_us, ttl_us, &mut self.dice));
                EtcdAnswer::Granted { lease }
            }
            Question::TakeKey { lease } => match etcd.leader.filter(|_| !mutated(Mutation::TakeHeldKey)) {
                Some(leader) => EtcdAnswer::Held(Some(leader.holder)),
                None if !etcd.leases.contains_key(&lease) => EtcdAnswer::Away,
                None => {
                    etcd.revision += 1;
                    etcd.leader = Some(LeaderKey { holder: from, lease, term: etcd.revision });
                    let term = etcd.revision;
                    self.note(format_args!("coordinator {from} is elected in term {term}"));
                    EtcdAnswer::Won { term }
                }
            },
            Question::Renew { lease } => match etcd.leases.get_mut(&lease) {
                Some(expires_us) => {
                    *expires_us = (*expires_us).max(SimEtcd::expiry(now_us, ttl_us, &mut self.dice));
                    EtcdAnswer::Done
                }
                None => EtcdAnswer::Gone,
            },
            Question::Load => {
                let fence = etcd.fence;
                EtcdAnswer::State { durable: Box::new(self.state.durable()), fence }
            }
            Question::Fence => EtcdAnswer::Fence(etcd.fence),
            Question::Commit { term, fence, changes } => self.etcd_commit((from, life, call), term, fence, changes),
        }
    }

    fn etcd_commit(
        &mut self,
        (from, life, call): (usize, u32, u64),
        term: u64,
        fence: u64,
        mut changes: Vec<Change>,
    ) -> EtcdAnswer {
        if self.now_us < self.state.disk.refuses_until_us {
            return EtcdAnswer::Away;
        }
        let etcd = self.etcd.as_mut().expect("coordinators share it");
        let held = etcd.leader.map(|leader| leader.term);
        if held != Some(term) && !mutated(Mutation::WriteDeposed) {
            self.coverage.count("write_of_an_old_leader_refused");
            return EtcdAnswer::Unmet { term: held };
        }
        if etcd.fence != fence && !mutated(Mutation::WriteLate) {
            self.coverage.count("write_that_came_after_later_ones_refused");
            return EtcdAnswer::Unmet { term: held };
        }
        etcd.revision += 1;
        etcd.fence = etcd.revision;
        let fence = etcd.fence;
        let process = &self.coordinators[from].process;
        let is_waited_for = process.life == life && self.coordinators[from].candidacy.waits_for(call);
        if !is_waited_for {
            self.coverage.count("write_that_nobody_waits_for_was_carried_out");
            if mutated(Mutation::CutWrites) {
                changes.truncate(self.dice.index(changes.len() + 1));
            }
        }
        self.apply(&changes);
        EtcdAnswer::Committed { fence }
    }
}
