//! The links of a rank to its homes: it attaches, gets batches and gives slots back.

use std::{collections::BTreeMap, rc::Rc};

use spdl_control::{
    client::{HomeTransport, LinkId, SessionEvent},
    messages::{FromCoordinator, Home},
};
use spdl_insight::Transport;
use spdl_types::Position;

use super::{LinkEnd, ReadyItem, SlotBatch, TASK_ENDED};
use crate::{
    net::{ConnId, SimMessage},
    process::Target,
    slab::{Content, SharedSlab, slab},
    worker::worker_at,
    world::{ProcessInput, World},
};

impl World {
    pub(super) fn attach(
        &mut self,
        client: usize,
        link: LinkId,
        home: &Home,
        way: &HomeTransport,
        from: Position,
        slots: u32,
    ) {
        let worker = worker_at(home);
        let transport = if *way == HomeTransport::Quic { Transport::Quic } else { Transport::Local };
        let is_refused = !self.workers[worker].process.is_alive() || self.dice.percent(3);
        if transport == Transport::Local && is_refused {
            return self.tell_core(client, SessionEvent::LinkLost { link, cause: "its socket is refused".into() });
        }
        let conn = self.connect(Target::Client(client), Target::Worker(worker), transport);
        let end = LinkEnd { conn, transport, slab: None, next: 0, early: BTreeMap::new() };
        let state = &mut self.clients[client];
        state.links.insert(link, end);
        let session = Box::new(state.core.session().expect("a rank attaches after it joined").clone());
        let rank = state.rank;
        self.send(conn, 0, SimMessage::Attach { session, rank, from, slots });
    }

    pub(super) fn detach(&mut self, client: usize, link: LinkId) {
        let state = &mut self.clients[client];
        let Some(end) = state.links.remove(&link) else { return };
        let dropped: Vec<u32> = state.pending.keys().filter(|(of, _)| *of == link).map(|(_, slot)| *slot).collect();
        state.pending.retain(|(of, _), _| *of != link);
        if state.batches() > 0 {
            self.coverage.count("slots_left_behind");
        }
        for slot in dropped {
            self.tell_core(client, SessionEvent::Freed { link, slot });
        }
        // The core is informed of the end of a link's task in every case.
        self.tell_core(client, SessionEvent::LinkLost { link, cause: TASK_ENDED.into() });
        self.close(end.conn, 0);
    }

    pub(super) fn free(&mut self, client: usize, link: LinkId, slot: u32) {
        let state = &self.clients[client];
        let of_it = |batch: &SlotBatch| batch.link == link && batch.slot == slot;
        let mut ready = state.ready.iter().filter_map(|ready| match ready {
            ReadyItem::Batch(batch) => Some(batch),
            ReadyItem::End(_) => None,
        });
        if ready.any(of_it) || state.held.iter().any(of_it) {
            return self.fail(format!("client {client} gives slot {slot} back while its batch is in use"));
        }
        let Some(end) = self.clients[client].links.get(&link) else { return };
        if end.transport == Transport::Quic {
            let slab = end.slab.as_ref().expect("a slot that is freed came in");
            slab.borrow_mut()[slot as usize] = None;
        }
        let conn = end.conn;
        self.send(conn, 0, SimMessage::Freed { slot });
    }

    pub(crate) fn client_lost(&mut self, client: usize, conn: ConnId, cause: &str) {
        let mut links = self.clients[client].links.iter();
        match links.find(|(_, end)| end.conn == conn).map(|(link, _)| *link) {
            Some(link) => self.tell_core(client, SessionEvent::LinkLost { link, cause: cause.into() }),
            None => self.asking_lost(Target::Client(client), conn),
        }
        self.after_client(client);
    }

    pub(crate) fn client_receives(&mut self, client: usize, conn: ConnId, message: SimMessage) {
        if let SimMessage::Answer { era, id, body } = message {
            let state = &mut self.clients[client];
            if state.asking.awaits(id) && matches!(*body, FromCoordinator::Joined { .. }) {
                state.answered_era = era;
            }
            self.answered(Target::Client(client), id, *body);
            return self.after_client(client);
        }
        let mut links = self.clients[client].links.iter();
        let Some(link) = links.find(|(_, end)| end.conn == conn).map(|(link, _)| *link) else { return };
        match message {
            SimMessage::Attached { slots, slab: shared } => {
                let end = self.clients[client].links.get_mut(&link).expect("it was just found");
                end.slab = Some(shared.unwrap_or_else(|| slab(slots)));
                self.tell_core(client, SessionEvent::Attached { link, slots });
                self.hear_early(client, link);
            }
            SimMessage::Leaving => self.tell_core(client, SessionEvent::Leaving { link }),
            SimMessage::Fault { message, is_retryable } => {
                self.tell_core(client, SessionEvent::Fault { link, message, is_retryable });
            }
            SimMessage::Filled { sequence, .. } | SimMessage::End { sequence, .. } => {
                let end = self.clients[client].links.get_mut(&link).expect("it was just found");
                if sequence > end.next {
                    self.coverage.count("batches_overtook_each_other");
                }
                end.early.insert(sequence, message);
                self.hear_early(client, link);
            }
            other => unreachable!("{other:?} is not for a client"),
        }
    }

    /// Passes on the messages that arrived, in order if this client sorts them.
    fn hear_early(&mut self, client: usize, link: LinkId) {
        let is_unordered = self.scenario.is_unordered;
        loop {
            let end = self.clients[client].links.get_mut(&link).expect("it was found");
            let Some(slab) = end.slab.clone() else { return };
            let message = match end.early.first_entry() {
                Some(first) if is_unordered || *first.key() == end.next => first.remove(),
                _ => return,
            };
            match message {
                SimMessage::Filled { sequence, slot, content } => {
                    end.next += 1;
                    self.hear_filled(client, link, &slab, sequence, slot, content);
                }
                SimMessage::End { sequence, position } => {
                    self.tell_core(client, SessionEvent::End { link, sequence, position });
                }
                _ => unreachable!("only batches and the end are in order"),
            }
        }
    }

    fn hear_filled(
        &mut self,
        client: usize,
        link: LinkId,
        slab: &SharedSlab,
        sequence: u64,
        slot: u32,
        content: Option<Rc<Content>>,
    ) {
        if let Some(content) = content {
            let before = slab.borrow_mut()[slot as usize].replace(content);
            if before.is_some() {
                return self.fail(format!("client {client} is sent a batch into slot {slot}, which it has not freed"));
            }
        }
        let Some(content) = slab.borrow()[slot as usize].clone() else {
            return self.fail(format!("client {client} was sent slot {slot}, which holds no batch"));
        };
        let batch = SlotBatch { link, slot, slab: slab.clone(), content };
        self.tell(client, ProcessInput::Filled { link, sequence, batch });
    }
}
