//! The trainer of a rank: it takes batches in order, and gives them back when it no longer needs them.

use spdl_control::client::{Progress, SessionEvent};
use spdl_job::layout::entry_flags;
use spdl_types::{Position, SampleId};

use super::{ReadyItem, SlotBatch};
use crate::{
    process::Target,
    world::{ProcessInput, World},
};

impl World {
    /// Lets the trainer take its next batch, if it may.
    pub(crate) fn train(&mut self, client: usize) {
        let state = &self.clients[client];
        let may = state.process.is_running() && !state.is_busy && !state.is_closing && !state.is_ended;
        if !may || state.ready.is_empty() || !self.may_step(client) {
            return;
        }
        match self.clients[client].ready.pop_front().expect("it is not empty") {
            ReadyItem::Batch(batch) => self.take(client, batch),
            ReadyItem::End(position) => self.take_end(client, position),
        }
        self.rank_stepped(client);
    }

    fn take(&mut self, client: usize, batch: SlotBatch) {
        if !batch.is_whole() {
            return self.fail(format!("client {client} takes a batch from slot {} that has changed", batch.slot));
        }
        if let Err(problem) = self.oracle.took(client, &batch.content, &self.scenario, &mut self.coverage) {
            return self.fail(format!("client {client}: {problem}"));
        }
        self.note(format_args!("client {client} takes {} to {}", batch.content.from, batch.content.next));
        self.check_settled(client);
        let state = &mut self.clients[client];
        for entry in &batch.content.entries {
            if entry.flags & (entry_flags::INVALID | entry_flags::PADDING) == 0 {
                state.receipt.add_sample(entry.at, SampleId(entry.id));
            }
        }
        state.position = batch.content.next;
        state.held.push_back(batch);
        state.is_busy = true;
        self.delivered(client);
        self.change_near_end(client);
        let step_us = self.dice.within(1_000, self.scenario.step_us);
        self.remind(step_us, Target::Client(client), ProcessInput::Trained);
    }

    /// Checks that, well into the calm phase, no rank continues in a superseded session or with a removed job.
    fn check_settled(&mut self, client: usize) {
        let state = &self.clients[client];
        // The session that it takes part in now: one that was lost has been replaced.
        let Some(session) = state.core.session() else { return };
        let calm_us = self.is_calm.then_some(self.calm_us);
        let run = self.scenario.runs[state.launcher].clone();
        let job = self.scenario.jobs[run.0].job.name.as_str();
        let stream = (state.era, session.id);
        if let Err(problem) = self.oracle.settled(job, &run.1, stream, self.now_us, calm_us) {
            self.fail(format!("client {client}: {problem}"));
        }
    }

    fn delivered(&mut self, client: usize) {
        let state = &self.clients[client];
        let progress =
            Progress { position: state.position, receipt: state.receipt, waited_ms: state.waited_us / 1_000 };
        self.tell_core(client, SessionEvent::Delivered(progress));
    }

    fn take_end(&mut self, client: usize, position: Position) {
        self.note(format_args!("client {client} ends at {position}"));
        let state = &mut self.clients[client];
        state.position = state.position.max(position);
        state.is_ended = true;
        if let Err(problem) = self.oracle.ended(client) {
            return self.fail(format!("client {client}: {problem}"));
        }
        self.delivered(client);
        self.change_near_end(client);
        self.rank_ended(client);
    }

    /// Ends a training step: the batches that the trainer does not keep are freed.
    pub(super) fn on_trained(&mut self, client: usize) {
        let state = &mut self.clients[client];
        state.is_busy = false;
        state.waits_since_us = Some(self.now_us).filter(|_| state.ready.is_empty());
        while self.clients[client].held.len() > self.scenario.trainer_keeps {
            let batch = self.clients[client].held.pop_front().expect("it is not empty");
            if !batch.is_whole() {
                let slot = batch.slot;
                return self.fail(format!("client {client}: slot {slot} changed while the trainer had its batch"));
            }
            self.tell_core(client, SessionEvent::Freed { link: batch.link, slot: batch.slot });
        }
        // A process that shares the rank is lost, and may still read the slots of the link.
        if self.dice.percent(1)
            && let Some(link) = self.clients[client].core.attached_link()
        {
            self.coverage.count("link_renewed_as_a_member_was_lost");
            self.tell_core(client, SessionEvent::Renew { link });
        }
    }
}
