//! The admin, who submits and removes jobs: asks the coordinators until one has answered.

use spdl_control::messages::{FromCoordinator, Refusal, ToCoordinator};
use spdl_order::RedactedSamples;

use crate::{
    asking::Asking,
    client::SimClient,
    faults::Fault,
    net::SimMessage,
    process::{Running, SimProcess, Target},
    world::{ProcessInput, World},
};

const AGAIN_US: u64 = 500_000;
const CHANGING_US: u64 = 200_000;

pub(crate) struct Admin {
    pub(crate) process: SimProcess,
    pub(crate) asking: Asking,
    /// The orders to carry out; the first is in progress.
    todo: Vec<AdminRequest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AdminRequest {
    Submit {
        job: usize,
    },
    Remove {
        job: usize,
    },
    /// Replaces a job by a version with other stages.
    Replace {
        job: usize,
        version: usize,
    },
    /// Gives the sources of a job other weights, from a sample on or from where its ranks are.
    Weights {
        job: usize,
        from: Option<u64>,
        weights: Vec<u32>,
    },
    /// Redacts samples of a job.
    Redact {
        job: usize,
        from: Option<u64>,
        samples: RedactedSamples,
    },
}

impl Admin {
    pub(crate) fn new() -> Self {
        Self { process: SimProcess::new(0), asking: Asking::default(), todo: Vec::new() }
    }
}

impl World {
    pub(crate) fn start_admin(&mut self) {
        self.admin.process.running = Running::Yes;
        self.admin.process.life = 1;
        for job in 1..self.scenario.jobs.len() {
            self.order(AdminRequest::Submit { job });
        }
    }

    pub(crate) fn submit(&mut self, job: usize) {
        if job > 0 {
            self.order(AdminRequest::Submit { job });
        }
    }

    /// Removes a submitted job, even if runs train with it.
    pub(crate) fn remove_job(&mut self) {
        let job = 1 + self.dice.index(self.scenario.jobs.len() - 1);
        self.order(AdminRequest::Remove { job });
    }

    /// Changes the stages of a run's job, near the position of its trainers. Usually these are ended, or all stand still for so long that
    /// they are taken for dead.
    pub(crate) fn change_stages(&mut self, launcher: usize) {
        let job = self.scenario.runs[launcher].0;
        let at = self.furthest(launcher);
        let reached = at.epoch * self.scenario.jobs[job].job.samples + at.offset;
        let from = (reached + self.dice.within(0, 60)).saturating_sub(self.dice.pick(&[0, 0, 10])).max(1);
        if let Some(version) = self.scenario.change_stages(job, from, &mut self.dice) {
            self.order(AdminRequest::Replace { job, version });
            match self.dice.index(10) {
                0..5 => self.relaunch(launcher),
                5..9 => {
                    let liveness_us = self.scenario.config.liveness_ms * 1_000;
                    let for_us = liveness_us + self.dice.within(500_000, 8_000_000);
                    for client in self.ranks_of(launcher) {
                        self.pause(Target::Client(client), for_us);
                    }
                }
                _ => {}
            }
        }
    }

    /// Gives the sources of a run's job other weights while its ranks train.
    pub(crate) fn change_weights(&mut self, launcher: usize) {
        let job = self.scenario.runs[launcher].0;
        if let Some(weights) = self.scenario.some_weights(job, &mut self.dice) {
            let from = self.some_place(launcher);
            self.order(AdminRequest::Weights { job, from, weights });
        }
    }

    /// Sometimes gives the sources of a job other weights just before its end, which they may move, when a rank is about to end or has ended.
    pub(crate) fn change_near_end(&mut self, client: usize) {
        let SimClient { launcher, rank, position, session: Some(session), .. } = &self.clients[client] else { return };
        let is_near = session.steps_of(*rank).left(*position) <= 4;
        let (launcher, end) =
            (*launcher, session.job.samples_before(session.batches().end_position(session.job.samples)));
        let changes = self.scenario.faults.contains(&Fault::ChangeWeights) && !self.is_calm;
        if !is_near || !changes || !self.dice.percent(30) {
            return;
        }
        let job = self.scenario.runs[launcher].0;
        if let Some(weights) = self.scenario.some_weights(job, &mut self.dice) {
            let before_end = if self.dice.percent(50) { 0 } else { self.dice.within(1, 16) };
            let from = Some(end.saturating_sub(before_end).max(1));
            self.order(AdminRequest::Weights { job, from, weights });
        }
    }

    /// Redacts samples of a run's job while its ranks train.
    pub(crate) fn redact(&mut self, launcher: usize) {
        let job = self.scenario.runs[launcher].0;
        if self.scenario.jobs[job].is_balanced() {
            return;
        }
        let samples = self.scenario.some_samples(job, &mut self.dice);
        let from = self.some_place(launcher);
        self.order(AdminRequest::Redact { job, from, samples });
    }

    /// Returns where a change begins: mostly at whatever position is the next.
    fn some_place(&mut self, launcher: usize) -> Option<u64> {
        let job = &self.scenario.jobs[self.scenario.runs[launcher].0].job;
        let reached = job.samples_before(self.furthest(launcher));
        self.dice.percent(25).then(|| (reached + self.dice.within(0, 60)).max(1))
    }

    fn order(&mut self, order: AdminRequest) {
        if self.admin.todo.contains(&order) {
            return;
        }
        let is_change = !matches!(order, AdminRequest::Submit { .. } | AdminRequest::Remove { .. });
        self.scenario.asks_for_changes |= is_change;
        self.admin.todo.push(order);
        if self.admin.todo.len() == 1 {
            self.ask_for_order();
        }
    }

    fn ask_for_order(&mut self) {
        let Some(order) = self.admin.todo.first().cloned() else { return };
        let name = |job: usize| self.scenario.jobs[job].job.name.clone();
        let question = match order {
            AdminRequest::Submit { job } => ToCoordinator::SubmitJob { toml: name(job), origin: "admin".to_owned() },
            AdminRequest::Remove { job } => ToCoordinator::RemoveJob { name: name(job) },
            AdminRequest::Replace { job, version } => {
                ToCoordinator::ReplaceJob { toml: name(job), origin: version.to_string() }
            }
            AdminRequest::Weights { job, from, weights } => ToCoordinator::SetWeights { job: name(job), from, weights },
            AdminRequest::Redact { job, from, samples } => ToCoordinator::Redact { job: name(job), from, samples },
        };
        self.ask(Target::Admin, question);
    }

    pub(crate) fn admin_input(&mut self, input: ProcessInput) {
        match input {
            ProcessInput::AskAgain => self.ask_for_order(),
            ProcessInput::AnswerTimeout { id } => self.answer_timed_out(Target::Admin, id),
            other => unreachable!("{other:?} is not for the admin"),
        }
    }

    pub(crate) fn admin_receives(&mut self, message: SimMessage) {
        if let SimMessage::Answer { id, body, .. } = message {
            self.answered(Target::Admin, id, *body);
        }
    }

    pub(crate) fn admin_answered(&mut self, answer: FromCoordinator) {
        let order = self.admin.todo[0].clone();
        match (order, answer) {
            (AdminRequest::Submit { job }, FromCoordinator::Done) => self.job_is_there(job),
            (AdminRequest::Remove { .. }, FromCoordinator::Done) => self.coverage.count("job_removed"),
            // The coordinator has gone back to an earlier state, or an earlier request was late.
            (AdminRequest::Submit { job }, FromCoordinator::Refused(Refusal::JobInvalid { .. }))
                if self.scenario.asks_for_changes =>
            {
                self.job_is_there(job);
            }
            (AdminRequest::Replace { job, version }, FromCoordinator::Replaced(_)) => {
                self.coverage.count("stages_changed");
                self.scenario.take_version(job, version);
            }
            (AdminRequest::Replace { .. }, FromCoordinator::Refused(Refusal::RunInUse { .. })) => {
                self.coverage.count("stages_not_changed_while_ranks_are_alive");
                if !self.is_calm && self.dice.percent(80) {
                    return self.admin_unanswered();
                }
            }
            (AdminRequest::Replace { .. }, FromCoordinator::Refused(Refusal::JobInvalid { .. })) => {
                self.coverage.count("stages_not_changed_before_a_position_that_is_reached");
            }
            (AdminRequest::Weights { .. } | AdminRequest::Redact { .. }, FromCoordinator::Changing { .. }) => {
                self.coverage.count("change_waited_for_ranks");
                // It may wait for long, and others have something else to ask for.
                self.admin.todo.rotate_left(1);
                return self.remind(CHANGING_US, Target::Admin, ProcessInput::AskAgain);
            }
            (AdminRequest::Weights { job, .. } | AdminRequest::Redact { job, .. }, FromCoordinator::Replaced(_)) => {
                self.coverage.count("change_made");
                let name = self.scenario.jobs[job].job.name.clone();
                if let Some(job) = self.oracle.stored_job(&name).cloned() {
                    self.scenario.take(&job);
                }
            }
            (
                AdminRequest::Weights { .. } | AdminRequest::Redact { .. },
                FromCoordinator::Refused(
                    Refusal::JobInvalid { .. } | Refusal::UnknownJob { .. } | Refusal::JobFailed { .. },
                ),
            ) => self.coverage.count("change_refused"),
            // The answer to an earlier attempt was lost.
            (
                AdminRequest::Remove { .. },
                FromCoordinator::Refused(Refusal::UnknownJob { .. } | Refusal::JobFailed { .. }),
            ) => {}
            (_, FromCoordinator::Refused(Refusal::Unwritable { .. })) => {
                self.coverage.count("job_refused_while_nothing_can_be_written");
                return self.admin_unanswered();
            }
            (order, answer) => return self.fail(format!("the admin asked for {order:?} and got {answer:?}")),
        }
        self.admin.todo.remove(0);
        self.ask_for_order();
    }

    pub(crate) fn admin_unanswered(&mut self) {
        self.remind(AGAIN_US, Target::Admin, ProcessInput::AskAgain);
    }
}
