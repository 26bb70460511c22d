//! A group: the processes of one node that share a rank, such as those of a tensor-parallel group. They get one batch, in
//! one slab that all have mapped.
//!
//! Member 0 leads: it alone takes part in the session and is served by a home. [`GroupCore`] counts for it which members
//! still read a slot, which batch all have taken, and who is lost. The driver passes what happens to a `handle_*`, and after
//! each call carries out what [`GroupCore::poll_effect`] returns, in order. There is no clock: the driver calls
//! [`GroupCore::handle_tick`] a few times in each member's timeout, so that a leader that was itself suspended counts one
//! tick, and loses no member for it.

mod member;
mod readers;

use std::collections::VecDeque;

use crate::messages::{MemberAttach, Session, Start};
use spdl_types::Position;

use super::{LinkId, Progress};
pub use member::{GroupMember, GroupMemberError, MAX_MEMBERS};
use readers::SlotReaders;

/// Ticks in a member's timeout.
pub const TICKS_PER_TIMEOUT: u32 = 4;

/// Why a member no longer takes part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberLoss {
    /// Nothing was heard of it for the timeout: it is suspended, or its node is.
    #[error("it was silent for {timeout_ms} ms")]
    Silent {
        /// The timeout.
        timeout_ms: u64,
    },
    /// Its channel ended: the process has ended, or was killed.
    #[error("its process has ended")]
    Ended,
    /// It has closed its loader.
    #[error("it has closed its loader")]
    Closed,
    /// It sent what no member may send.
    #[error("it broke the protocol: {0}")]
    Violation(String),
}

/// Why a process is not accepted as a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AttachRefusal {
    /// The reason, which names the process that leads.
    pub message: String,
    /// Whether the process may be accepted later, by this leader or by the next one.
    pub is_retryable: bool,
}

/// An action that the leader's driver has to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupEffect {
    /// Hand the batch to all members that are attached, this process included.
    Share {
        /// The link that it came over.
        link: LinkId,
        /// Its slot.
        slot: u32,
    },
    /// Tell all members, this process included, that all epochs are delivered.
    End {
        /// The position after the last batch.
        position: Position,
    },
    /// Tell the other members that this one restarted the stream.
    Restarted {
        /// The position of the next batch.
        from: Position,
    },
    /// No member reads the slot any longer: report it to the session as freed.
    Freed {
        /// The link.
        link: LinkId,
        /// The slot.
        slot: u32,
    },
    /// Leave the link and attach again: a process that may still read its slots will no longer say when it has.
    Renew {
        /// The link.
        link: LinkId,
    },
    /// Report this to the session as delivered: all members have taken it.
    Delivered(Progress),
    /// Log that the member is lost, tell it why, and close its channel.
    Lost {
        /// The member.
        member: u32,
        /// Why.
        loss: MemberLoss,
    },
}

/// What is known of a member that does not lead.
#[derive(Clone, Debug)]
enum MemberState {
    /// It has not attached yet.
    Awaited,
    /// It gets every batch.
    Attached {
        client: String,
        /// Ticks since it was last heard.
        silent: u32,
        /// The restart and the position that it has taken batches up to.
        taken: (u32, Position),
        /// Whether it has closed its loader, and only gives back what it holds.
        is_closing: bool,
    },
    Lost(MemberLoss),
}

/// Something for all members that waits until all are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undelivered {
    Batch(LinkId, u32),
    End(Position),
}

/// What the leader knows of its group.
#[derive(Debug)]
pub struct GroupCore {
    rank: u32,
    launch: Option<String>,
    timeout_ms: u64,
    /// Members 1 and on.
    states: Vec<MemberState>,
    undelivered: VecDeque<Undelivered>,
    readers: SlotReaders,
    /// The number of restarts so far.
    restarts: u32,
    /// What this process has taken and another member has not.
    untaken: VecDeque<Progress>,
    effects: VecDeque<GroupEffect>,
}

impl GroupCore {
    /// Creates the core of the leader of `rank`, whose group has `members` processes. A member that is silent for `timeout_ms` is
    /// lost. `launch` is the launcher's id of this launch, if there is one.
    #[must_use]
    pub fn new(rank: u32, members: u32, launch: Option<String>, timeout_ms: u64) -> Self {
        Self {
            rank,
            launch,
            timeout_ms,
            states: vec![MemberState::Awaited; members.saturating_sub(1) as usize],
            undelivered: VecDeque::new(),
            readers: SlotReaders::default(),
            restarts: 0,
            untaken: VecDeque::new(),
            effects: VecDeque::new(),
        }
    }

    /// Accepts a process as a member of the session.
    ///
    /// # Errors
    /// [`AttachRefusal`] if it asks for something else than the leader has, or if its place is taken.
    pub fn handle_attach(&mut self, attach: &MemberAttach, session: &Session) -> Result<(), AttachRefusal> {
        self.check_attach(attach, session)?;
        let start = session.start;
        self.states[attach.member as usize - 1] =
            MemberState::Attached { client: attach.client.clone(), silent: 0, taken: (0, start), is_closing: false };
        self.deliver();
        Ok(())
    }

    fn check_attach(&self, attach: &MemberAttach, session: &Session) -> Result<(), AttachRefusal> {
        let MemberAttach { member, members, .. } = *attach;
        let refuse = |is_retryable, message: String| Err(AttachRefusal { message, is_retryable });
        if attach.launch != self.launch {
            let name = |launch: &Option<String>| launch.as_ref().map_or("none".to_owned(), |id| format!("`{id}`"));
            let (theirs, ours) = (name(&attach.launch), name(&self.launch));
            return refuse(
                true,
                format!("its launch id is {theirs}, that of member 0 of rank {} is {ours}", self.rank),
            );
        }
        let ours = self.states.len() + 1;
        if members as usize != ours || !(1..members).contains(&member) {
            return refuse(
                false,
                format!("it is {member} of {members}, and the group of rank {} has {ours}", self.rank),
            );
        }
        if let Some((field, theirs, ours)) = disagreement(attach, session) {
            return refuse(
                false,
                format!(
                    "its {field} is {theirs}, that of member 0 of rank {} is {ours}: start all members alike",
                    self.rank
                ),
            );
        }
        match &self.states[member as usize - 1] {
            MemberState::Awaited => Ok(()),
            MemberState::Attached { client, .. } => refuse(true, format!("{client} has its place")),
            MemberState::Lost(loss) => refuse(
                true,
                format!(
                    "member {member} of rank {} is lost ({loss}), and the others went on: restart all members from one checkpoint",
                    self.rank
                ),
            ),
        }
    }

    /// Reports that the session hands over a batch.
    pub fn handle_batch(&mut self, link: LinkId, slot: u32) {
        self.undelivered.push_back(Undelivered::Batch(link, slot));
        self.deliver();
    }

    /// Reports that the session has no batch left.
    pub fn handle_end(&mut self, position: Position) {
        self.undelivered.push_back(Undelivered::End(position));
        self.deliver();
    }

    /// Reports that this process restarts the stream. What was not shared yet is dropped.
    pub fn handle_restart(&mut self, from: Position) {
        self.restarts += 1;
        self.undelivered.clear();
        self.untaken.clear();
        self.effects.push_back(GroupEffect::Restarted { from });
    }

    /// Reports that `member` no longer reads a slot; 0 is this process.
    pub fn handle_released(&mut self, member: u32, link: LinkId, slot: u32) {
        self.hear(member);
        match self.readers.release(member, link, slot) {
            Some(true) => self.effects.push_back(GroupEffect::Freed { link, slot }),
            Some(false) => {}
            // A batch that was not shared, such as one that came twice.
            None if member == 0 => self.effects.push_back(GroupEffect::Freed { link, slot }),
            None => {
                let problem = format!("it released slot {slot}, which it did not hold");
                self.handle_lost(member, MemberLoss::Violation(problem));
            }
        }
    }

    /// Reports what this process has taken.
    pub fn handle_progress(&mut self, progress: Progress) {
        self.untaken.push_back(progress);
        self.report();
    }

    /// Reports that another member has taken batches up to a position, after so many restarts.
    pub fn handle_taken(&mut self, member: u32, restarts: u32, position: Position) {
        self.hear(member);
        if let Some(MemberState::Attached { taken, .. }) = self.state_mut(member) {
            *taken = (restarts, position);
            self.report();
        }
    }

    /// Reports that another member has sent a sign of life.
    pub fn hear(&mut self, member: u32) {
        if let Some(MemberState::Attached { silent, .. }) = self.state_mut(member) {
            *silent = 0;
        }
    }

    /// Reports that another member has closed its loader. It gets nothing more, and gives back what it holds.
    pub fn handle_closing(&mut self, member: u32) {
        if let Some(MemberState::Attached { is_closing, .. }) = self.state_mut(member) {
            *is_closing = true;
            self.report();
        }
    }

    /// Reports that a member's channel has ended, or that what it sent was wrong.
    pub fn handle_lost(&mut self, member: u32, loss: MemberLoss) {
        let Some(state @ MemberState::Attached { .. }) = self.state_mut(member) else { return };
        let is_closing = matches!(state, MemberState::Attached { is_closing: true, .. });
        let loss = if is_closing && loss == MemberLoss::Ended { MemberLoss::Closed } else { loss };
        *state = MemberState::Lost(loss.clone());
        self.effects.push_back(GroupEffect::Lost { member, loss });
        // Its slots may be read by a process that is only suspended, or by arrays that outlive a loader: they are not filled again.
        let (links, freed) = self.readers.lose(member);
        self.effects.extend(links.into_iter().map(|link| GroupEffect::Renew { link }));
        self.effects.extend(freed.into_iter().map(|(link, slot)| GroupEffect::Freed { link, slot }));
        self.report();
    }

    /// Counts a part of the timeout, [`TICKS_PER_TIMEOUT`] of which are one.
    pub fn handle_tick(&mut self) {
        let mut lost = Vec::new();
        for (member, state) in (1..).zip(&mut self.states) {
            if let MemberState::Attached { silent, .. } = state {
                *silent += 1;
                if *silent > TICKS_PER_TIMEOUT {
                    lost.push(member);
                }
            }
        }
        for member in lost {
            self.handle_lost(member, MemberLoss::Silent { timeout_ms: self.timeout_ms });
        }
    }

    /// Returns the newest progress of this process, if other members have not reached it: where the rank is when it leaves.
    pub fn take_progress(&mut self) -> Option<Progress> {
        let newest = self.untaken.pop_back();
        self.untaken.clear();
        newest
    }

    /// Returns the next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<GroupEffect> {
        self.effects.pop_front()
    }

    /// Returns the other members that get every batch.
    pub fn attached(&self) -> impl Iterator<Item = u32> + '_ {
        let attached = |state: &MemberState| matches!(state, MemberState::Attached { is_closing: false, .. });
        (1..).zip(&self.states).filter_map(move |(member, state)| attached(state).then_some(member))
    }

    /// Returns the members that have not attached yet.
    pub fn awaited(&self) -> impl Iterator<Item = u32> + '_ {
        (1..).zip(&self.states).filter_map(|(member, state)| matches!(state, MemberState::Awaited).then_some(member))
    }

    /// Returns the members that hold batches which this process has released.
    #[must_use]
    pub fn behind(&self) -> Vec<u32> {
        self.readers.behind()
    }

    fn state_mut(&mut self, member: u32) -> Option<&mut MemberState> {
        self.states.get_mut(member.checked_sub(1)? as usize)
    }

    /// Shares what waits for members, once none is awaited.
    fn deliver(&mut self) {
        if self.awaited().next().is_some() {
            return;
        }
        let members = self.attached().fold(1, |members, member| members | 1 << member);
        for undelivered in std::mem::take(&mut self.undelivered) {
            self.effects.push_back(match undelivered {
                Undelivered::Batch(link, slot) => {
                    self.readers.share(link, slot, members);
                    GroupEffect::Share { link, slot }
                }
                Undelivered::End(position) => GroupEffect::End { position },
            });
        }
    }

    /// Reports the newest progress of this process that all other members have reached, too.
    fn report(&mut self) {
        let taken = self.states.iter().filter_map(|state| match state {
            MemberState::Attached { taken, is_closing: false, .. } => Some(*taken),
            _ => None,
        });
        let least = taken.min().unwrap_or((u32::MAX, Position { epoch: u64::MAX, offset: u64::MAX }));
        let mut reached = None;
        while let Some(progress) = self.untaken.front()
            && (self.restarts, progress.position) <= least
        {
            reached = self.untaken.pop_front();
        }
        self.effects.extend(reached.map(GroupEffect::Delivered));
    }
}

/// Returns the first setting in which a member differs from the session that the leader joined: the field, its value and the
/// session's.
fn disagreement(attach: &MemberAttach, session: &Session) -> Option<(&'static str, String, String)> {
    let wanted = match attach.start {
        Start::Beginning => Position::START,
        Start::Resume => session.start,
        Start::At(position) => position,
    };
    if let Some(batch) = attach.global_batch.filter(|batch| *batch != session.global_batch) {
        return Some(("global_batch", batch.to_string(), session.global_batch.to_string()));
    }
    if let Some(epochs) = attach.epochs.filter(|epochs| *epochs != session.job.epochs) {
        return Some(("epochs", epochs.to_string(), session.job.epochs.to_string()));
    }
    if wanted != session.start {
        return Some(("start", wanted.to_string(), session.start.to_string()));
    }
    let fingerprint = attach.fingerprint.filter(|theirs| !session.job.continues(*theirs, session.start))?;
    Some(("fingerprint", fingerprint.to_string(), session.job.fingerprint_up_to(session.start).to_string()))
}

#[cfg(test)]
mod tests;
