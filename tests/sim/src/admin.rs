//! The admin, who submits and removes jobs: asks the coordinators until one has answered.

use spdl_core::messages::{FromCoordinator, Refusal, ToCoordinator};

use crate::{
    asking::Asking,
    net::Message,
    process::{Process, Running, Target},
    world::{Input, World},
};

const AGAIN_US: u64 = 500_000;

pub(crate) struct Admin {
    pub(crate) process: Process,
    pub(crate) asking: Asking,
    /// The orders to carry out; the first is in progress.
    todo: Vec<Order>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Submit { job: usize },
    Remove { job: usize },
}

impl Admin {
    pub(crate) fn new() -> Self {
        Self { process: Process::new(0), asking: Asking::default(), todo: Vec::new() }
    }
}

impl World {
    pub(crate) fn start_admin(&mut self) {
        self.admin.process.running = Running::Yes;
        self.admin.process.life = 1;
        for job in 1..self.scenario.jobs.len() {
            self.order(Order::Submit { job });
        }
    }

    pub(crate) fn submit(&mut self, job: usize) {
        if job > 0 {
            self.order(Order::Submit { job });
        }
    }

    /// Removes a submitted job, even if runs train with it.
    pub(crate) fn remove_job(&mut self) {
        let job = 1 + self.dice.index(self.scenario.jobs.len() - 1);
        self.order(Order::Remove { job });
    }

    fn order(&mut self, order: Order) {
        if self.admin.todo.contains(&order) {
            return;
        }
        self.admin.todo.push(order);
        if self.admin.todo.len() == 1 {
            self.ask_for_order();
        }
    }

    fn ask_for_order(&mut self) {
        let Some(order) = self.admin.todo.first() else { return };
        let name = |job: usize| self.scenario.jobs[job].job.name.clone();
        let question = match *order {
            Order::Submit { job } => ToCoordinator::SubmitJob { toml: name(job), origin: "admin".to_owned() },
            Order::Remove { job } => ToCoordinator::RemoveJob { name: name(job) },
        };
        self.ask(Target::Admin, question);
    }

    pub(crate) fn admin_input(&mut self, input: Input) {
        match input {
            Input::AskAgain => self.ask_for_order(),
            Input::AnswerTimeout { id } => self.answer_timed_out(Target::Admin, id),
            other => unreachable!("{other:?} is not for the admin"),
        }
    }

    pub(crate) fn admin_receives(&mut self, message: Message) {
        if let Message::Answer { id, body, .. } = message {
            self.answered(Target::Admin, id, *body);
        }
    }

    pub(crate) fn admin_answered(&mut self, answer: FromCoordinator) {
        let order = self.admin.todo[0];
        match (order, answer) {
            (Order::Submit { job }, FromCoordinator::Done) => self.job_is_there(job),
            (Order::Remove { .. }, FromCoordinator::Done) => self.coverage.count("job_removed"),
            // The answer to an earlier attempt was lost.
            (
                Order::Remove { .. },
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
        self.remind(AGAIN_US, Target::Admin, Input::AskAgain);
    }
}
