//! Requests to the coordinators, one at a time, as the shells of workers and clients send them.

use std::collections::VecDeque;

use spdl_control::{
    coordinators::LeaderDiscovery,
    messages::{FromCoordinator, Refusal, ToCoordinator},
};
use spdl_insight::Transport;

use crate::{
    coordinator::{address_of, coordinator_at},
    net::{ConnId, SimMessage},
    process::Target,
    world::{ProcessInput, World},
};

/// The time limits for an answer to a client and to a worker, and the extra time over a new connection.
const CLIENT_US: u64 = 5_000_000;
const WORKER_US: u64 = 3_000_000;
const CONNECT_US: u64 = 3_000_000;

/// The requests of one process.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    search: Option<LeaderDiscovery>,
    /// The connection, and the coordinator that it goes to.
    conn: Option<(usize, ConnId)>,
    open: Option<Open>,
    next: u64,
    queue: VecDeque<ToCoordinator>,
}

/// The request in progress.
#[derive(Debug)]
struct Open {
    id: u64,
    body: ToCoordinator,
}

impl Asking {
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_none()
    }

    /// Returns whether the request in progress is request `id`.
    pub(crate) fn awaits(&self, id: u64) -> bool {
        self.open.as_ref().is_some_and(|open| open.id == id)
    }
}

impl World {
    fn asking(&mut self, target: Target) -> &mut Asking {
        match target {
            Target::Worker(worker) => &mut self.workers[worker].asking,
            Target::Client(client) => &mut self.clients[client].asking,
            Target::Admin => &mut self.admin.asking,
            Target::Coordinator(_) => unreachable!("a coordinator sends no requests"),
        }
    }

    fn search(&mut self, target: Target) -> &mut LeaderDiscovery {
        if self.asking(target).search.is_none() {
            // Each process has the coordinators in an order of its own.
            let all = self.coordinators.len();
            let first = if all > 1 { self.dice.index(all) } else { 0 };
            let addresses: Vec<String> = (0..all).map(|at| address_of((first + at) % all)).collect();
            let addresses = addresses.join(",").parse().expect("these are addresses");
            self.asking(target).search = Some(LeaderDiscovery::new(addresses));
        }
        self.asking(target).search.as_mut().expect("it was just made")
    }

    pub(crate) fn ask(&mut self, target: Target, question: ToCoordinator) {
        self.asking(target).queue.push_back(question);
        self.ask_next(target);
    }

    /// Drops all requests, and closes the connection of the one in progress.
    pub(crate) fn ask_nothing_more(&mut self, target: Target) {
        let asking = self.asking(target);
        asking.queue.clear();
        if asking.open.take().is_some()
            && let Some((_, conn)) = asking.conn.take()
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
        let first = self.search(target).begin();
        self.ask_one(target, coordinator_at(&first), body);
    }

    fn ask_one(&mut self, target: Target, at: usize, body: ToCoordinator) {
        let answer_us = if matches!(target, Target::Worker(_)) { WORKER_US } else { CLIENT_US };
        let before = self.asking(target).conn.take().filter(|(_, conn)| self.is_open(*conn, 0));
        let (conn, timeout_us) = match before {
            Some((of, conn)) if of == at => (conn, answer_us),
            before => {
                if let Some((_, conn)) = before {
                    self.close(conn, 0);
                }
                (self.connect(target, Target::Coordinator(at), Transport::Quic), answer_us + CONNECT_US)
            }
        };
        let asking = self.asking(target);
        let id = asking.next;
        asking.next += 1;
        asking.conn = Some((at, conn));
        asking.open = Some(Open { id, body: body.clone() });
        self.send(conn, 0, SimMessage::Ask { id, body: Box::new(body) });
        self.remind(timeout_us, target, ProcessInput::AnswerTimeout { id });
    }

    pub(crate) fn answered(&mut self, target: Target, id: u64, answer: FromCoordinator) {
        let Some(open) = self.asking(target).open.take_if(|open| open.id == id) else { return };
        if let FromCoordinator::Refused(Refusal::NotLeader { leader, .. }) = &answer {
            let next = self.search(target).refused(leader.as_deref());
            return self.ask_another(target, next, open.body);
        }
        self.search(target).answered();
        match target {
            Target::Worker(worker) => self.worker_answered(worker, &answer),
            Target::Client(client) => self.client_answered(client, answer),
            Target::Admin => self.admin_answered(answer),
            Target::Coordinator(_) => unreachable!("a coordinator sends no requests"),
        }
        self.ask_next(target);
    }

    pub(crate) fn answer_timed_out(&mut self, target: Target, id: u64) {
        if let Some(open) = self.asking(target).open.take_if(|open| open.id == id) {
            let (_, conn) = self.asking(target).conn.take().expect("a question goes over a connection");
            self.close(conn, 0);
            let next = self.search(target).failed();
            self.ask_another(target, next, open.body);
        }
    }

    pub(crate) fn asking_lost(&mut self, target: Target, conn: ConnId) {
        if self.asking(target).conn.is_none_or(|(_, own)| own != conn) {
            return;
        }
        self.asking(target).conn = None;
        if let Some(open) = self.asking(target).open.take() {
            let next = self.search(target).failed();
            self.ask_another(target, next, open.body);
        } else if let Target::Worker(worker) = target {
            self.worker_alone(worker);
        }
    }

    /// Sends the request to another coordinator, or reports that no leader was found.
    fn ask_another(&mut self, target: Target, next: Option<String>, body: ToCoordinator) {
        if let Some(next) = next {
            self.coverage.count("question_went_to_another_coordinator");
            return self.ask_one(target, coordinator_at(&next), body);
        }
        self.coverage.count("question_unanswered");
        match target {
            Target::Worker(worker) => self.worker_unanswered(worker),
            Target::Client(client) => self.client_unanswered(client),
            Target::Admin => self.admin_unanswered(),
            Target::Coordinator(_) => unreachable!("a coordinator sends no requests"),
        }
        self.ask_next(target);
    }
}
