//! Asking the coordinator, one question after the other, as the shells of workers and clients do.

use std::collections::VecDeque;

use spdl_wire::messages::{FromCoordinator, ToCoordinator, Transport};

use crate::{
    net::{ConnId, Message},
    process::Target,
    world::{Input, World},
};

/// How long an answer to a client and one to a worker may take, and how long longer over a new connection.
const CLIENT_US: u64 = 5_000_000;
const WORKER_US: u64 = 3_000_000;
const CONNECT_US: u64 = 3_000_000;

/// Questions of one process.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    conn: Option<ConnId>,
    open: Option<u64>,
    next: u64,
    queue: VecDeque<ToCoordinator>,
}

impl Asking {
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_none()
    }
}

impl World {
    fn asking(&mut self, target: Target) -> &mut Asking {
        match target {
            Target::Worker(worker) => &mut self.workers[worker].asking,
            Target::Client(client) => &mut self.clients[client].asking,
            Target::Coordinator => unreachable!("the coordinator asks nobody"),
        }
    }

    pub(crate) fn ask(&mut self, target: Target, question: ToCoordinator) {
        self.asking(target).queue.push_back(question);
        self.ask_next(target);
    }

    /// Gives up what is open, and with it the connection that it went over.
    pub(crate) fn ask_nothing_more(&mut self, target: Target) {
        let asking = self.asking(target);
        asking.queue.clear();
        if asking.open.take().is_some()
            && let Some(conn) = asking.conn.take()
        {
            self.close(conn, 0);
        }
    }

    fn ask_next(&mut self, target: Target) {
        let asking = self.asking(target);
        if asking.open.is_some() {
            return;
        }
        let Some(body) = asking.queue.pop_front() else { return };
        let id = asking.next;
        asking.next += 1;
        asking.open = Some(id);
        let conn = asking.conn;
        let answer_us = if matches!(target, Target::Worker(_)) { WORKER_US } else { CLIENT_US };
        let (conn, timeout_us) = match conn.filter(|conn| self.is_open(*conn, 0)) {
            Some(conn) => (conn, answer_us),
            None => (self.connect(target, Target::Coordinator, Transport::Quic), answer_us + CONNECT_US),
        };
        self.asking(target).conn = Some(conn);
        self.send(conn, 0, Message::Ask { id, body: Box::new(body) });
        self.remind(timeout_us, target, Input::AnswerTimeout { id });
    }

    pub(crate) fn answered(&mut self, target: Target, id: u64, answer: FromCoordinator) {
        if self.asking(target).open != Some(id) {
            return;
        }
        self.asking(target).open = None;
        match target {
            Target::Worker(worker) => self.worker_answered(worker, &answer),
            Target::Client(client) => self.client_answered(client, answer),
            Target::Coordinator => unreachable!("the coordinator asks nobody"),
        }
        self.ask_next(target);
    }

    pub(crate) fn answer_timed_out(&mut self, target: Target, id: u64) {
        if self.asking(target).open == Some(id) {
            let conn = self.asking(target).conn.take().expect("a question goes over a connection");
            self.close(conn, 0);
            self.unanswered(target);
        }
    }

    pub(crate) fn asking_lost(&mut self, target: Target, conn: ConnId) {
        if self.asking(target).conn == Some(conn) {
            self.asking(target).conn = None;
            if self.asking(target).open.is_some() {
                self.unanswered(target);
            } else if let Target::Worker(worker) = target {
                self.worker_alone(worker);
            }
        }
    }

    fn unanswered(&mut self, target: Target) {
        self.coverage.count("question_unanswered");
        self.asking(target).open = None;
        match target {
            Target::Worker(worker) => self.worker_unanswered(worker),
            Target::Client(client) => self.client_unanswered(client),
            Target::Coordinator => unreachable!("the coordinator asks nobody"),
        }
        self.ask_next(target);
    }
}
