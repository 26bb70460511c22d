//! Checks of the batches that trainers take.

use std::collections::BTreeMap;

use spdl_control::messages::Session;
use spdl_job::{BadSamples, Job, layout::entry_flags};
use spdl_order::{EpochEnd, Item, ItemKind, Receipt};
use spdl_types::{Position, SampleId};

use super::{Cursor, Oracle, limits};
use crate::{
    coverage::Coverage,
    scenario::{JobDataset, Scenario},
    slab::{Content, SlotEntry},
};

impl Oracle {
    /// Records that a client joined a session for the first time.
    pub(crate) fn joined(&mut self, client: usize, (era, rank): (u32, u32), session: &Session) {
        let cursor = Cursor {
            stream: (era, session.id),
            rank,
            world: session.world,
            job: session.job.clone(),
            steps: session.steps_of(rank),
            next: session.start,
            receipt: Receipt::default(),
        };
        // A rank without a share of the session's first step is at once behind it.
        self.receipts.insert((rank, cursor.steps.pass(session.start), cursor.receipt.0));
        self.cursors.insert(client, cursor);
    }

    /// Checks that a run without faults delivers the batch that a trainer took at this position.
    pub(crate) fn took(
        &mut self,
        client: usize,
        content: &Content,
        scenario: &Scenario,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let cursor = self.cursors.get_mut(&client).ok_or("a batch came before the rank joined")?;
        let dataset = scenario.dataset_of(&cursor.job);
        let step = cursor.steps.step(cursor.next).ok_or("a batch came after the last one")?;
        let Content { rank, world, from, next, ref entries } = *content;
        if (rank, world, from, next) != (cursor.rank, cursor.world, step.from, step.next) {
            return Err(format!("rank {rank} of {world} got {from} to {next}, where {step:?} is next for {cursor:?}"));
        }
        if step.from.epoch > cursor.next.epoch || step.next.epoch > step.from.epoch {
            coverage.count("epoch_crossed");
        }
        let items = dataset.rank_items(&step, rank, world);
        let mut slice = Vec::new();
        dataset.plan.rank_items(&step, rank, world, &mut slice);
        if items != slice {
            coverage.count("samples_dealt_by_cost");
        }
        if dataset.plan.at(from.epoch, from.offset) != dataset.plan.unbucketed().at(from.epoch, from.offset) {
            coverage.count("samples_sorted_by_size");
        }
        let expected = items.iter().map(|item| expected_entry(item, dataset));
        if !expected.clone().eq(entries.iter().copied()) {
            return Err(format!("at {from} it got {entries:?}, and not {:?}", expected.collect::<Vec<_>>()));
        }
        let has_columns = entries.iter().filter(|entry| entry.columns.is_some());
        if let Some(entry) = has_columns.clone().find(|entry| is_redacted(&cursor.job, entry)) {
            return Err(format!("at {} it got sample {}, which is redacted", entry.at, entry.id));
        }
        coverage.count_redacted(items.iter().filter(|item| item.redacted.is_some()).count());
        // A rank that takes part in a session must not get past a change by the job as it was before.
        let reached = cursor.job.samples_before(next);
        let is_counted =
            cursor.stream.0 == self.era && self.kept.get(&cursor.stream.1).is_some_and(|kept| kept.goes_on());
        if let Some(stored) = self.stored.get(&cursor.job.name).filter(|_| is_counted)
            && let Some(from) = stored.samples_in_common(&cursor.job)
            && from < reached
        {
            return Err(format!("it got to {next}, and its job is another one from sample {from} on"));
        }
        cursor.next = next;
        for entry in entries.iter().filter(|entry| entry.flags & (entry_flags::INVALID | entry_flags::PADDING) == 0) {
            cursor.receipt.add_sample(entry.at, SampleId(entry.id));
        }
        self.receipts.insert((rank, next, cursor.receipt.0));
        let version = WentBy { client, job: cursor.job.clone(), reached };
        // How far a rank was that has ended, nobody tells a coordinator whose disk was lost.
        let is_forgotten = |client| self.era > 0 && self.ended.contains(&client);
        version.add_to(self.versions.entry(cursor.stream).or_default(), is_forgotten)?;
        let delivered = self.delivered.entry(cursor.stream).or_default();
        for entry in entries.iter().filter(|entry| entry.flags & (entry_flags::INVALID | entry_flags::PADDING) == 0) {
            if delivered.insert(entry.at, entry.id).is_some() {
                return Err(format!("{} is delivered twice", entry.at));
            }
        }
        Ok(())
    }

    /// Records that a client has ended.
    pub(crate) fn client_ended(&mut self, client: usize) {
        self.ended.insert(client);
    }

    /// Records that a client has taken over a job that has changed.
    pub(crate) fn changed(&mut self, client: usize, session: &Session) {
        if let Some(cursor) = self.cursors.get_mut(&client) {
            cursor.job = session.job.clone();
            cursor.steps = session.steps_of(cursor.rank);
        }
    }

    /// Checks that the stream has ended at the position that a trainer got as its end.
    pub(crate) fn ended(&self, client: usize) -> Result<(), String> {
        let cursor = self.cursors.get(&client).ok_or("the end came before the rank joined")?;
        match cursor.steps.step(cursor.next) {
            Some(step) => Err(format!("the end came where {step:?} is next")),
            None => Ok(()),
        }
    }

    /// Checks a session all of whose ranks have ended: together they received every sample from its start on exactly
    /// once, and their receipts add up to that.
    pub(crate) fn finished(
        &self,
        clients: &[usize],
        session: &Session,
        receipts: Receipt,
        (dataset, coverage): (&JobDataset, &mut Coverage),
    ) -> Result<(), String> {
        let cursors: Vec<&Cursor> = clients.iter().filter_map(|client| self.cursors.get(client)).collect();
        let Some(stream) = cursors.first().map(|cursor| cursor.stream) else { return Ok(()) };
        if cursors.iter().any(|cursor| cursor.stream != stream) {
            return Ok(());
        }
        let nothing = BTreeMap::new();
        let delivered = self.delivered.get(&stream).unwrap_or(&nothing);
        let mut expected = all_positions(session);
        if !delivered.keys().copied().eq(expected.by_ref()) {
            let missing = all_positions(session).find(|at| !delivered.contains_key(at));
            return Err(format!("session {} is over; not delivered: {missing:?}", session.id.0));
        }
        let mut receipt = Receipt::default();
        for (at, id) in delivered {
            receipt.add_sample(*at, SampleId(*id));
        }
        if receipt != receipts {
            return Err(format!("receipts of session {} add up to {receipts}, not to {receipt}", session.id.0));
        }
        limits::check(dataset, coverage)
    }
}

/// A rank has got to a sample by a version of its job.
#[derive(Debug)]
pub(super) struct WentBy {
    client: usize,
    job: Job,
    reached: u64,
}

impl WentBy {
    /// Records it, and checks that no rank has got past a change by another version.
    fn add_to(self, versions: &mut Vec<Self>, is_forgotten: impl Fn(usize) -> bool) -> Result<(), String> {
        let Self { client, job, reached } = &self;
        for other in versions.iter().filter(|other| !is_forgotten(other.client)) {
            let parted = other.job.samples_in_common(job);
            if let Some(from) = parted.filter(|from| reached > from && other.reached > *from) {
                let furthest = other.reached;
                return Err(format!(
                    "ranks got to samples {reached} and {furthest} by jobs that differ from {from} on"
                ));
            }
        }
        let is_same = |other: &&mut Self| other.client == *client && other.job.samples_in_common(job).is_none();
        match versions.iter_mut().find(is_same) {
            Some(version) => version.reached = version.reached.max(*reached),
            None => versions.push(self),
        }
        Ok(())
    }
}

/// Returns whether an entry has a sample that is redacted at its position.
fn is_redacted(job: &Job, entry: &SlotEntry) -> bool {
    let number = job.samples_before(entry.at);
    let id = SampleId(entry.id);
    job.redactions.iter().any(|redaction| redaction.from <= number && redaction.samples.contains(id))
}

/// Returns what an entry must be, by the plan and the list of bad samples.
fn expected_entry(item: &Item, dataset: &JobDataset) -> SlotEntry {
    let (at, mut located) = (item.at, item.located);
    let id = located.id.0;
    let mut flags = match item.kind {
        ItemKind::Sample => 0,
        ItemKind::Padding => entry_flags::PADDING,
        ItemKind::Invalid => return SlotEntry { at, id, flags: entry_flags::INVALID, columns: None },
    };
    if item.redacted.is_some() {
        flags |= entry_flags::REDACTED;
    }
    if dataset.bad.contains(&id) {
        if dataset.job.bad_samples == BadSamples::Mask {
            return SlotEntry { at, id, flags: flags | entry_flags::MASKED, columns: None };
        }
        flags |= entry_flags::SUBSTITUTED;
        let substitutes = (0..).map_while(|attempt| dataset.plan.substitute(at.epoch, at.offset, attempt));
        let mut good = substitutes.filter(|located| !dataset.bad.contains(&located.id.0));
        located = good.next().expect("few samples are bad");
    }
    SlotEntry { at, id: located.id.0, flags, columns: Some(dataset.content_of(item.source_epoch, &located)) }
}

/// Returns every position that a session delivers, computed independently of the plan.
fn all_positions(session: &Session) -> impl Iterator<Item = Position> + use<> {
    let (samples, batch) = (session.job.samples, u64::from(session.global_batch));
    let (start, policy, end) = (session.start, session.job.epoch_end, limits::end_of(&session.job));
    let whole = end.saturating_sub(start.epoch * samples + start.offset) / batch * batch;
    let of_epoch = move |epoch: u64| {
        let from = if epoch == start.epoch { start.offset.min(samples) } else { 0 };
        let until = samples.min(end - epoch * samples).max(from);
        // An end within the epoch cuts off what fills no batch, as well.
        let is_whole = policy == EpochEnd::Drop || (until < samples && policy != EpochEnd::Continuous);
        let count = if is_whole { (until - from) / batch * batch } else { until - from };
        (from..from + count).map(move |offset| Position::new(epoch, offset))
    };
    let all = (start.epoch..end.div_ceil(samples)).flat_map(of_epoch);
    all.take(if policy == EpochEnd::Continuous { whole as usize } else { usize::MAX })
}
