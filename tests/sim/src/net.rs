//! A model of connections. QUIC between hosts delivers, breaks after five silent seconds and notices a dead process
//! within about one second; Unix sockets within a host notice it at once. Single messages are delayed, never lost; when
//! a connection ends, everything on its way is lost.

use std::{collections::VecDeque, rc::Rc};

use spdl_control::messages::{FromCoordinator, Session, ToCoordinator};
use spdl_feed::cache::BlockKey;
use spdl_insight::Transport;
use spdl_types::Position;

use crate::{
    process::{Running, Target},
    slab::{Content, SharedSlab},
    world::{Event, World},
};

/// A connection that has been silent for this long is dead.
const IDLE_US: u64 = 5_000_000;
const KEEP_ALIVE_US: u64 = 1_000_000;

/// The id of a connection, never reused.
pub(crate) type ConnId = u64;

/// The end of a connection: 0 is the end that opened it.
pub(crate) type Side = usize;

#[derive(Clone, Debug)]
pub(crate) enum SimMessage {
    Ask {
        id: u64,
        body: Box<ToCoordinator>,
    },
    /// `era` is the era of the coordinator's state in which the answer was given.
    Answer {
        era: u32,
        id: u64,
        body: Box<FromCoordinator>,
    },
    Attach {
        session: Box<Session>,
        rank: u32,
        from: Position,
        slots: u32,
    },
    /// On a Unix socket the slab is passed with this message.
    Attached {
        slots: u32,
        slab: Option<SharedSlab>,
    },
    /// Over QUIC the batch's bytes come with this message.
    Filled {
        sequence: u64,
        slot: u32,
        content: Option<Rc<Content>>,
    },
    Freed {
        slot: u32,
    },
    End {
        sequence: u64,
        position: Position,
    },
    Leaving,
    /// Asks a helper to decode samples of a job with this seed: for each sample the epoch and its stored bytes, or
    /// `None` for bytes that do not decode.
    HelpAsk {
        id: u64,
        seed: u64,
        samples: Vec<Option<(u64, u64)>>,
    },
    /// For each sample, the digest of its columns; `None` if it did not decode.
    HelpAnswer {
        id: u64,
        columns: Vec<Option<u64>>,
    },
    HelpBusy {
        id: u64,
    },
    /// Asks another worker for a block. A worker that is asked as the owner of the block fetches it if it does not have
    /// it.
    BlockAsk {
        key: BlockKey,
        is_for_owner: bool,
    },
    /// The bytes of a block; `None` if the worker does not have it.
    Block {
        key: BlockKey,
        bytes: Option<u64>,
    },
    Fault {
        message: String,
        is_retryable: bool,
    },
    Closed,
}

impl SimMessage {
    const fn name(&self) -> &'static str {
        match self {
            Self::Ask { .. } => "ask",
            Self::Answer { .. } => "answer",
            Self::Attach { .. } => "attach",
            Self::Attached { .. } => "attached",
            Self::Filled { .. } => "filled",
            Self::Freed { .. } => "freed",
            Self::End { .. } => "end",
            Self::Leaving => "leaving",
            Self::HelpAsk { .. } => "help-ask",
            Self::HelpAnswer { .. } => "help-answer",
            Self::HelpBusy { .. } => "help-busy",
            Self::Fault { .. } => "fault",
            Self::BlockAsk { .. } => "block-ask",
            Self::Block { .. } => "block",
            Self::Closed => "closed",
        }
    }

    /// Requests and batches have QUIC streams of their own, and can overtake each other.
    const fn has_own_stream(&self) -> bool {
        matches!(
            self,
            Self::Ask { .. }
                | Self::Answer { .. }
                | Self::Filled { .. }
                | Self::HelpAsk { .. }
                | Self::HelpAnswer { .. }
                | Self::HelpBusy { .. }
        )
    }
}

#[derive(Debug)]
pub(crate) struct ConnectionEnd {
    pub(crate) target: Target,
    life: u32,
    pub(crate) is_open: bool,
    last_received_us: u64,
    /// The messages on their way to this end, in order.
    coming: VecDeque<SimMessage>,
    last_us: u64,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) ends: [ConnectionEnd; 2],
    pub(crate) transport: Transport,
}

/// The paths between hosts: how many cuts each has, and its additional delay.
#[derive(Debug)]
pub(crate) struct Paths {
    cuts: Vec<Vec<u32>>,
    pub(crate) extra_us: Vec<Vec<u64>>,
}

impl Paths {
    pub(crate) fn new(hosts: usize) -> Self {
        Self { cuts: vec![vec![0; hosts]; hosts], extra_us: vec![vec![0; hosts]; hosts] }
    }

    pub(crate) fn hosts(&self) -> usize {
        self.cuts.len()
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.cuts[from][to] += 1;
    }

    pub(crate) fn mend(&mut self, from: usize, to: usize) {
        self.cuts[from][to] = self.cuts[from][to].saturating_sub(1);
    }

    pub(crate) fn mend_all(&mut self) {
        *self = Self::new(self.hosts());
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        from != to && self.cuts[from][to] > 0
    }
}

impl World {
    /// Opens a connection; whether the peer answers turns out later.
    pub(crate) fn connect(&mut self, from: Target, to: Target, transport: Transport) -> ConnId {
        let id = self.next_conn;
        self.next_conn += 1;
        let now_us = self.now_us;
        let ends = [from, to].map(|target| ConnectionEnd {
            target,
            life: self.process(target).life,
            is_open: true,
            last_received_us: now_us,
            coming: VecDeque::new(),
            last_us: 0,
        });
        self.conns.insert(id, Conn { ends, transport });
        if transport == Transport::Quic {
            self.schedule(KEEP_ALIVE_US, Event::KeepAlive { conn: id });
        }
        id
    }

    /// Returns whether this end of the connection is open.
    pub(crate) fn is_open(&self, conn: ConnId, side: Side) -> bool {
        self.conns.get(&conn).is_some_and(|conn| conn.ends[side].is_open)
    }

    /// Sends a message to the other end.
    pub(crate) fn send(&mut self, conn: ConnId, from: Side, message: SimMessage) {
        if !self.is_open(conn, from) {
            return;
        }
        let delay_us = self.path_delay_us(conn, from);
        self.send_after(delay_us, conn, from, message);
    }

    fn send_after(&mut self, delay_us: u64, conn: ConnId, from: Side, message: SimMessage) {
        let to = 1 - from;
        let Some(Conn { ends, transport }) = self.conns.get_mut(&conn) else { return };
        let on_its_own = *transport == Transport::Quic && message.has_own_stream();
        let event = if on_its_own {
            Event::Packet { conn, to, message: Some(message) }
        } else {
            ends[to].coming.push_back(message);
            Event::Packet { conn, to, message: None }
        };
        let mut at_us = self.now_us + delay_us;
        if !on_its_own {
            at_us = at_us.max(ends[to].last_us + 1);
            ends[to].last_us = at_us;
        }
        self.schedule_at(at_us, event);
    }

    fn path_delay_us(&mut self, conn: ConnId, from: Side) -> u64 {
        let ends = &self.conns[&conn].ends;
        let (here, there) = (self.process(ends[from].target).host, self.process(ends[1 - from].target).host);
        let extra_us = self.paths.extra_us[here][there];
        let most_us = if here == there { 100 } else { 2_000 };
        20 + self.dice.within(0, most_us) + self.dice.within(0, extra_us)
    }

    /// Closes this end and notifies the other one.
    pub(crate) fn close(&mut self, conn: ConnId, side: Side) {
        if self.is_open(conn, side) {
            self.send(conn, side, SimMessage::Closed);
            self.shut(conn, side);
        }
    }

    fn shut(&mut self, conn: ConnId, side: Side) {
        let Some(state) = self.conns.get_mut(&conn) else { return };
        state.ends[side].is_open = false;
        if !state.ends[1 - side].is_open {
            self.conns.remove(&conn);
        }
    }

    /// Closes the connections of a process that has ended: the kernel closes its sockets, and its host then refuses
    /// packets to its UDP port, which peers notice when they can reach the host.
    pub(crate) fn close_all(&mut self, target: Target) {
        let life = self.process(target).life;
        let of_it = |end: &ConnectionEnd| end.target == target && end.life == life && end.is_open;
        let open: Vec<(ConnId, Side)> = self
            .conns
            .iter()
            .flat_map(|(id, conn)| (0..2).filter(|side| of_it(&conn.ends[*side])).map(|side| (*id, side)))
            .collect();
        for (conn, side) in open {
            let delay_us = match self.conns[&conn].transport {
                Transport::Local => self.dice.within(10, 100),
                _ => self.dice.within(1_000, 1_100_000),
            };
            self.send_after(delay_us, conn, side, SimMessage::Closed);
            self.shut(conn, side);
        }
    }

    /// Breaks the connection at both ends, or at one end while the other waits for the idle timeout.
    pub(crate) fn break_connection(&mut self, conn: ConnId, sides: &[Side]) {
        for side in sides {
            let Some(end) = self.conns.get(&conn).map(|conn| &conn.ends[*side]) else { return };
            let (target, life) = (end.target, end.life);
            let process = self.process(target);
            if !end.is_open || process.life != life {
                continue;
            }
            match process.running {
                Running::Yes => {
                    self.shut(conn, *side);
                    self.lost(target, conn, "it was reset");
                }
                // A stopped process learns of it when it resumes.
                Running::Stopped => {
                    let closed = Event::Packet { conn, to: *side, message: Some(SimMessage::Closed) };
                    self.process_mut(target).held.push_back(closed);
                }
                Running::Dead => {}
            }
        }
    }

    pub(crate) fn on_packet(&mut self, conn: ConnId, to: Side, message: Option<SimMessage>) {
        let Some(state) = self.conns.get(&conn) else { return };
        let (from_end, to_end) = (&state.ends[1 - to], &state.ends[to]);
        if !to_end.is_open {
            return;
        }
        let (from_life, to_life, target) = (from_end.life, to_end.life, to_end.target);
        let sender = self.process(from_end.target);
        let receiver = self.process(target);
        let is_sender_there = from_end.is_open && sender.is_alive() && sender.life == from_life;
        if self.paths.is_cut(sender.host, receiver.host) {
            self.coverage.count("packet_held_up_by_a_cut");
            if is_sender_there {
                // Retransmitted until it arrives or the connection is given up.
                let again_us = self.dice.within(100_000, 600_000);
                self.schedule(again_us, Event::Packet { conn, to, message });
            }
            return;
        }
        if receiver.life != to_life || !receiver.is_alive() {
            let is_back_free = !self.paths.is_cut(receiver.host, sender.host);
            self.shut(conn, to);
            if is_back_free {
                self.send_after(self.now_us % 700, conn, to, SimMessage::Closed);
            }
            return;
        }
        if receiver.running == Running::Stopped {
            let packet = Event::Packet { conn, to, message };
            return self.process_mut(target).held.push_back(packet);
        }
        let message = match message {
            Some(message) => message,
            None => {
                let Some(message) = self.conns.get_mut(&conn).and_then(|conn| conn.ends[to].coming.pop_front()) else {
                    return;
                };
                message
            }
        };
        self.note(format_args!("conn {conn} brings {target:?} `{}`", message.name()));
        if matches!(message, SimMessage::Closed) {
            self.shut(conn, to);
            return self.lost(target, conn, "it was closed");
        }
        self.receive(target, conn, message);
    }

    fn receive(&mut self, target: Target, conn: ConnId, message: SimMessage) {
        match target {
            Target::Coordinator(at) => self.coordinator_receives(at, conn, message),
            Target::Worker(worker) => self.worker_receives(worker, conn, message),
            Target::Client(client) => self.client_receives(client, conn, message),
            Target::Admin => self.admin_receives(message),
        }
    }

    fn lost(&mut self, target: Target, conn: ConnId, cause: &str) {
        self.note(format_args!("conn {conn} is lost to {target:?}: {cause}"));
        match target {
            Target::Coordinator(at) => self.coordinator_lost(at, conn),
            Target::Worker(worker) => self.worker_lost(worker, conn),
            Target::Client(client) => self.client_lost(client, conn, cause),
            Target::Admin => self.asking_lost(Target::Admin, conn),
        }
    }

    pub(crate) fn on_keep_alive(&mut self, conn: ConnId) {
        for side in 0..2 {
            let Some(state) = self.conns.get(&conn) else { return };
            let (end, peer) = (&state.ends[side], &state.ends[1 - side]);
            let (process, other) = (self.process(end.target), self.process(peer.target));
            if !end.is_open || process.life != end.life || !process.is_running() {
                continue;
            }
            let is_received = peer.is_open
                && other.is_running()
                && other.life == peer.life
                && !self.paths.is_cut(other.host, process.host);
            let (target, last_received_us) = (end.target, end.last_received_us);
            if is_received {
                self.conns.get_mut(&conn).expect("it was just found").ends[side].last_received_us = self.now_us;
            } else if self.now_us - last_received_us > IDLE_US {
                self.coverage.count("connection_idled_out");
                self.shut(conn, side);
                self.lost(target, conn, "it was idle");
            }
        }
        if self.conns.contains_key(&conn) {
            self.schedule(KEEP_ALIVE_US, Event::KeepAlive { conn });
        }
    }
}
