//! The session's relation to its home: attaches, receives batches, and moves to another home when the link is lost.

use crate::messages::Home;
use spdl_insight::Transport;
use spdl_types::{
    WorkerId,
    mutations::{Mutation, mutated},
};

use super::{
    AllowedTransports, HomeTransport, LinkFailure, LinkId, RankError, SessionCore, SessionEffect, SessionEvent,
    SessionNote, SessionPhase,
    receive_window::{Arrival, Disposition, ReceiveWindow},
};

/// The state of the rank's link to its home.
#[derive(Debug)]
pub(super) struct HomeLink {
    state: HomeLinkState,
    next_id: u64,
    /// The home that the coordinator named last.
    pub(super) home: Option<Home>,
    /// The coordinator's last answer named no home.
    pub(super) no_worker: bool,
    /// The worker that could not be reached or is shutting down; reported to the coordinator.
    unreachable: Option<WorkerId>,
    /// The home's socket could not be reached: the next attempt uses QUIC.
    avoid_local: bool,
    /// Consecutive failures without a batch between them.
    pub(super) failures: u32,
    /// Why the last link was lost.
    pub(super) cause: Option<String>,
}

#[derive(Debug)]
enum HomeLinkState {
    Idle { retry_at_ms: u64 },
    Attaching { id: LinkId, home: Home, way: HomeTransport, give_up_ms: u64 },
    Attached { id: LinkId, home: Home, way: HomeTransport, receive_window: ReceiveWindow },
}

impl HomeLink {
    pub(super) const fn new(now_ms: u64) -> Self {
        Self {
            state: HomeLinkState::Idle { retry_at_ms: now_ms },
            next_id: 0,
            home: None,
            no_worker: false,
            unreachable: None,
            avoid_local: false,
            failures: 0,
            cause: None,
        }
    }

    pub(super) const fn unreachable(&self) -> Option<WorkerId> {
        self.unreachable
    }

    pub(super) const fn attached(&self) -> Option<(&Home, Transport)> {
        match &self.state {
            HomeLinkState::Attached { home, way, .. } => Some((home, way.transport())),
            _ => None,
        }
    }

    pub(super) const fn attached_id(&self) -> Option<LinkId> {
        match &self.state {
            HomeLinkState::Attached { id, .. } => Some(*id),
            _ => None,
        }
    }

    pub(super) fn held(&self) -> usize {
        match &self.state {
            HomeLinkState::Attached { receive_window, .. } => receive_window.held(),
            _ => 0,
        }
    }

    pub(super) fn free(&mut self, link: LinkId, slot: u32) -> bool {
        match &mut self.state {
            HomeLinkState::Attached { id, receive_window, .. } if *id == link => receive_window.free(slot),
            _ => false,
        }
    }

    fn current(&self) -> Option<(LinkId, &Home, &HomeTransport)> {
        match &self.state {
            HomeLinkState::Idle { .. } => None,
            HomeLinkState::Attaching { id, home, way, .. } | HomeLinkState::Attached { id, home, way, .. } => {
                Some((*id, home, way))
            }
        }
    }
}

impl SessionCore {
    pub(super) fn link_wake_ms(&self) -> Option<u64> {
        match &self.link.state {
            HomeLinkState::Idle { retry_at_ms } if self.may_attach() => Some(*retry_at_ms),
            HomeLinkState::Attaching { give_up_ms, .. } => Some(*give_up_ms),
            _ => None,
        }
    }

    /// Returns whether a link may be opened. Slots of earlier links count until they are freed, so that memory stays
    /// bounded however often links break.
    fn may_attach(&self) -> bool {
        let held = self.slots_held() as u64;
        self.phase == SessionPhase::Running && self.link.home.is_some() && held < u64::from(self.join_request.slots)
    }

    /// Returns whether no batch can arrive until the trainer drops one.
    pub(super) fn is_out_of_slots(&self) -> bool {
        match &self.link.state {
            HomeLinkState::Attached { receive_window, .. } => receive_window.is_full(),
            _ => self.slots_held() as u64 >= u64::from(self.join_request.slots),
        }
    }

    pub(super) fn try_attach(&mut self, now_ms: u64) {
        let HomeLinkState::Idle { retry_at_ms } = self.link.state else { return };
        let (Some(home), Some(stream)) = (&self.link.home, &self.stream) else { return };
        if now_ms < retry_at_ms || !self.may_attach() {
            return;
        }
        let is_too_far = mutated(Mutation::ResumeTooFar) && self.link.next_id > 0;
        let from = if is_too_far { stream.after_next() } else { stream.expected };
        let (home, slots) = (home.clone(), self.join_request.slots);
        let way = match self.way_to(&home) {
            Ok(way) => way,
            Err(cause) => return self.lost(now_ms, &home, LinkFailure::NoTransport(cause)),
        };
        let id = LinkId(self.link.next_id);
        self.link.next_id += 1;
        let give_up_ms = now_ms.saturating_add(self.timing.attach_timeout_ms);
        self.link.state = HomeLinkState::Attaching { id, home: home.clone(), way: way.clone(), give_up_ms };
        self.effects.push_back(SessionEffect::Attach { link: id, home, way, from, slots });
    }

    fn way_to(&self, home: &Home) -> Result<HomeTransport, String> {
        let path =
            self.join_request.socket.as_ref().or(home.socket.as_ref()).filter(|_| home.node == self.join_request.node);
        match (self.join_request.transports, path) {
            (AllowedTransports::Quic, _) | (AllowedTransports::Auto, None) => Ok(HomeTransport::Quic),
            (AllowedTransports::Auto, Some(_)) if self.link.avoid_local => Ok(HomeTransport::Quic),
            (AllowedTransports::Auto | AllowedTransports::Local, Some(path)) => {
                Ok(HomeTransport::Local { path: path.clone() })
            }
            (AllowedTransports::Local, None) => Err(format!(
                "it is on node `{}` with {}, this rank is on node `{}`, and only the local queue is allowed",
                home.node.0,
                home.socket.as_ref().map_or("no socket".to_owned(), |path| format!("socket `{path}`")),
                self.join_request.node.0,
            )),
        }
    }

    /// Leaves the current link. Remembers its slots until the trainer frees them.
    pub(super) fn detach(&mut self) {
        let Some((id, ..)) = self.link.current() else { return };
        self.effects.push_back(SessionEffect::Detach { link: id });
        let idle = HomeLinkState::Idle { retry_at_ms: 0 };
        if let HomeLinkState::Attached { receive_window, .. } = std::mem::replace(&mut self.link.state, idle)
            && receive_window.held() > 0
            && !mutated(Mutation::ForgetLeftSlots)
        {
            self.left_behind.insert(id, receive_window);
        }
    }

    /// Processes the home that the coordinator names. When it names none, the last home is kept, since it may still
    /// serve the rank.
    pub(super) fn on_home(&mut self, now_ms: u64, home: Option<Home>) {
        self.link.no_worker = home.is_none();
        let Some(home) = home else { return };
        let moved = self.link.home.as_ref().is_none_or(|old| old.worker != home.worker);
        self.link.home = Some(home.clone());
        if !moved || self.phase != SessionPhase::Running {
            return;
        }
        self.link.avoid_local = false;
        if self.link.current().is_some_and(|(_, current, _)| current.worker != home.worker) {
            self.effects.push_back(SessionEffect::Log(SessionNote::HomeChanged { home: home.name }));
            self.detach();
        }
        // Try a new home at once, unless several homes have failed in a row.
        if let HomeLinkState::Idle { retry_at_ms } = &mut self.link.state
            && self.link.failures <= 1
        {
            *retry_at_ms = now_ms;
        }
    }

    pub(super) fn link_timeout(&mut self, now_ms: u64) {
        let HomeLinkState::Attaching { home, give_up_ms, .. } = &self.link.state else { return };
        if now_ms >= *give_up_ms {
            let home = home.clone();
            self.on_lost(now_ms, &home, LinkFailure::Silent { waited_ms: self.timing.attach_timeout_ms });
        }
    }

    pub(super) fn on_link_event(&mut self, now_ms: u64, event: SessionEvent) {
        let Some((id, home, _)) = self.link.current() else { return self.discard_late(event) };
        let home = home.clone();
        match event {
            SessionEvent::Attached { link, slots } if link == id => self.on_attached(now_ms, slots),
            SessionEvent::LinkLost { link, cause } if link == id || mutated(Mutation::BelieveLeftLink) => {
                self.on_lost(now_ms, &home, LinkFailure::Broken(cause))
            }
            SessionEvent::Filled { link, sequence, slot, from, next } if link == id => {
                self.on_arrival(now_ms, &home, sequence, Arrival::Batch { slot, from, next });
            }
            SessionEvent::End { link, sequence, position } if link == id => {
                self.on_arrival(now_ms, &home, sequence, Arrival::End { position });
            }
            SessionEvent::Renew { link } if link == id => self.detach(),
            SessionEvent::Leaving { link } if link == id => {
                self.effects.push_back(SessionEffect::Log(SessionNote::HomeLeaving { home: home.name }));
                self.link.unreachable = Some(home.worker);
                self.ask();
            }
            SessionEvent::Fault { link, message, is_retryable } if link == id => {
                if is_retryable {
                    self.lost(now_ms, &home, LinkFailure::Fault(message));
                } else {
                    self.fail(RankError::Fault { home: home.name, message });
                }
            }
            late => self.discard_late(late),
        }
    }

    /// Drops a batch of a link that was left; the next link sends it again.
    fn discard_late(&mut self, event: SessionEvent) {
        if let SessionEvent::Filled { link, slot, .. } = event {
            if mutated(Mutation::TrustLeftLink) {
                return self.effects.push_back(SessionEffect::HandOver { link, slot });
            }
            self.effects.push_back(SessionEffect::Discard { link, slot });
        }
    }

    fn on_attached(&mut self, now_ms: u64, slots: u32) {
        let idle = HomeLinkState::Idle { retry_at_ms: now_ms };
        match std::mem::replace(&mut self.link.state, idle) {
            HomeLinkState::Attaching { id, home, way, .. } => {
                self.link.unreachable = None;
                self.link.state = HomeLinkState::Attached { id, home, way, receive_window: ReceiveWindow::new(slots) };
            }
            HomeLinkState::Attached { id, home, way, receive_window } => {
                self.link.state = HomeLinkState::Attached { id, home: home.clone(), way, receive_window };
                self.lost(now_ms, &home, LinkFailure::Violation("it attached the rank twice".to_owned()));
            }
            HomeLinkState::Idle { .. } => {}
        }
    }

    fn on_arrival(&mut self, now_ms: u64, home: &Home, sequence: u64, arrival: Arrival) {
        let HomeLinkState::Attached { id, receive_window, .. } = &mut self.link.state else {
            let cause = "it sent a batch before it attached the rank".to_owned();
            return self.lost(now_ms, home, LinkFailure::Violation(cause));
        };
        let link = *id;
        let stream = self.stream.as_mut().expect("a rank attaches after it joined");
        let mut dispositions = Vec::new();
        let arrived = receive_window.arrive(stream, sequence, arrival, &mut dispositions);
        self.carry_out_all(now_ms, home, link, (dispositions, arrived));
    }

    /// Processes the batches that have arrived while the rank had to wait.
    pub(super) fn go_on_receiving(&mut self, now_ms: u64) {
        let (HomeLinkState::Attached { id, home, receive_window, .. }, Some(stream)) =
            (&mut self.link.state, &mut self.stream)
        else {
            return;
        };
        let (link, home) = (*id, home.clone());
        let mut dispositions = Vec::new();
        let accepted = receive_window.accept(stream, &mut dispositions);
        self.carry_out_all(now_ms, &home, link, (dispositions, accepted));
    }

    fn carry_out_all(
        &mut self,
        now_ms: u64,
        home: &Home,
        link: LinkId,
        (dispositions, result): (Vec<Disposition>, Result<(), String>),
    ) {
        for disposition in dispositions {
            self.carry_out(link, disposition);
        }
        if let Err(cause) = result {
            self.lost(now_ms, home, LinkFailure::Violation(cause));
        }
    }

    fn carry_out(&mut self, link: LinkId, disposition: Disposition) {
        match disposition {
            Disposition::HandOver { slot } => {
                self.link.failures = 0;
                self.link.cause = None;
                self.effects.push_back(SessionEffect::HandOver { link, slot });
                if mutated(Mutation::FreeEarly) {
                    self.on_freed(link, slot);
                }
            }
            Disposition::Stale { slot } => self.effects.push_back(SessionEffect::Discard { link, slot }),
            Disposition::End { position } => {
                self.phase = SessionPhase::Ended;
                self.detach();
                self.effects.push_back(SessionEffect::End { position });
            }
        }
    }

    fn on_lost(&mut self, now_ms: u64, home: &Home, cause: LinkFailure) {
        let tried_local = matches!(&self.link.state, HomeLinkState::Attaching { way: HomeTransport::Local { .. }, .. })
            && self.join_request.transports == AllowedTransports::Auto;
        if !tried_local {
            return self.lost(now_ms, home, cause);
        }
        let note = SessionNote::SocketUnusable { home: home.name.clone(), cause: cause.to_string() };
        self.effects.push_back(SessionEffect::Log(note));
        self.detach();
        self.link.avoid_local = true;
        self.link.state = HomeLinkState::Idle { retry_at_ms: now_ms };
    }

    /// Handles a home that does not serve the rank: reports it to the coordinator at once, and retries after a pause.
    fn lost(&mut self, now_ms: u64, home: &Home, cause: LinkFailure) {
        self.detach();
        self.link.avoid_local = false;
        self.link.unreachable = Some(home.worker);
        self.link.failures = self.link.failures.saturating_add(1);
        self.link.cause = Some(format!("home `{}`: {cause}", home.name));
        if self.link.failures == 1 {
            let home = home.name.clone();
            self.effects.push_back(SessionEffect::Log(SessionNote::HomeLost { home, cause }));
        }
        let retry_at_ms = now_ms.saturating_add(self.backoff_ms(self.link.failures));
        self.link.state = HomeLinkState::Idle { retry_at_ms };
        self.ask();
    }
}
