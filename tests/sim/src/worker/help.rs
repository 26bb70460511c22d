//! Helpers: a home lends samples of the batches that it fills to other workers, which decode them. It decodes itself
//! those that do not come back. A model of the worker's `help` and `feed/batch/lend.rs`.
//!
//! It lends whenever it can; the shell lends only if that is likely to be faster.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use spdl_control::{
    help::{HelpReport, HelpStats, HelperList},
    peers::PeerAddress,
};
use spdl_insight::Transport;
use spdl_order::{Item, ItemKind};
use spdl_types::{
    Stage, StageStats, WorkerId,
    mutations::{Mutation, mutated},
};

use super::{SimShutdown, SimWorker, decode::item_flags};
use crate::{
    net::{ConnId, SimMessage},
    process::Target,
    scenario::JobDataset,
    slab::SlotEntry,
    world::{ProcessInput, World},
};

/// As in the shell: the most samples in a chunk, and chunks that a helper has at once.
const CHUNK_SAMPLES: usize = 16;
const IN_FLIGHT: usize = 4;
/// As in the shell: a helper that was busy, and one that was late or could not be reached, is not asked for this long.
const BUSY_US: u64 = 50_000;
const ASIDE_US: u64 = 10_000_000;
/// Limits of the time that a helper may take: the shell's, without the times that it expects of helpers.
const LIMITS_US: (u64, u64) = (500_000, 2_500_000);
/// A helper that is slow takes up to this long.
const SLOW_US: u64 = 8_000_000;

/// A worker's state as a home and as a helper.
#[derive(Default)]
pub(super) struct SimHelp {
    list: HelperList,
    links: BTreeMap<WorkerId, HelperLink>,
    /// The chunks that helpers have.
    lent: BTreeMap<u64, Chunk>,
    /// The chunks that were taken back and may still be answered.
    taken_back: BTreeMap<u64, Chunk>,
    next: u64,
    stats: HelpStats,
    threads: Threads,
}

/// What a home knows of a helper.
#[derive(Default)]
struct HelperLink {
    conn: Option<ConnId>,
    aside_until_us: u64,
}

/// Samples that a helper was asked for.
#[derive(Clone)]
struct Chunk {
    helper: WorkerId,
    /// The connection to the helper.
    link: ConnId,
    /// The batch.
    conn: ConnId,
    sequence: u64,
    slot: u32,
    /// The numbers of the samples in the batch.
    places: Vec<(usize, Item)>,
}

/// A batch whose samples are decoded one by one.
pub(super) struct OpenBatch {
    slot: u32,
    items: Vec<Item>,
    entries: Vec<Option<SlotEntry>>,
    /// Samples that this worker or a helper may decode.
    shared: VecDeque<usize>,
    /// Samples that this worker has to decode.
    own: VecDeque<usize>,
    /// The sample that is being decoded here.
    decoding: Option<usize>,
    sample_us: u64,
}

/// The time in which at least one thread decodes.
#[derive(Default)]
struct Threads {
    started_us: u64,
    running: u32,
    since_us: u64,
    busy_us: u64,
    samples: u64,
}

impl Threads {
    fn begin(&mut self, now_us: u64) {
        if self.running == 0 {
            self.since_us = now_us;
        }
        self.running += 1;
    }

    fn end(&mut self, now_us: u64, samples: u64) {
        self.running -= 1;
        self.samples += samples;
        if self.running == 0 {
            self.busy_us += now_us - self.since_us;
        }
    }
}

impl SimHelp {
    pub(super) fn new(now_us: u64) -> Self {
        Self { threads: Threads { started_us: now_us, ..Threads::default() }, ..Self::default() }
    }

    pub(super) const fn has_helpers(&self) -> bool {
        !self.list.helpers.is_empty()
    }

    pub(super) fn begin_decoding(&mut self, now_us: u64) {
        self.threads.begin(now_us);
    }

    pub(super) fn end_decoding(&mut self, now_us: u64, samples: usize) {
        self.threads.end(now_us, samples as u64);
    }

    /// Returns what was measured of decoding, and since when.
    pub(super) fn measured(&self, now_us: u64) -> (u64, StageStats) {
        let Threads { started_us, running, since_us, busy_us, samples } = self.threads;
        let uptime_us = now_us - started_us;
        let busy_us = busy_us + if running > 0 { now_us - since_us } else { 0 };
        let stats = StageStats {
            items: samples,
            busy_ns: busy_us * 1_000,
            output_wait_ns: (uptime_us - busy_us) * 1_000,
            units: 1,
            ..StageStats::new(Stage::Decode)
        };
        (uptime_us / 1_000, stats)
    }

    fn in_flight(&self, helper: WorkerId) -> usize {
        self.lent.values().filter(|chunk| chunk.helper == helper).count()
    }

    fn put_aside(&mut self, helper: WorkerId, until_us: u64) {
        if let Some(link) = self.links.get_mut(&helper) {
            link.aside_until_us = link.aside_until_us.max(until_us);
        }
    }
}

impl OpenBatch {
    pub(super) fn new(slot: u32, items: Vec<Item>, fill_us: u64) -> Self {
        let is_decoded = |item: &Item| item.kind != ItemKind::Invalid;
        let shared: VecDeque<usize> = (0..items.len()).filter(|place| is_decoded(&items[*place])).collect();
        let sample_us = (fill_us / shared.len().max(1) as u64).max(1);
        let entry = |item: &Item| (!is_decoded(item)).then(|| entry(item, None));
        let entries = items.iter().map(entry).collect();
        Self { slot, items, entries, shared, own: VecDeque::new(), decoding: None, sample_us }
    }
}

/// Returns the entry of a sample that decoded, with the digest of its columns.
fn entry(item: &Item, columns: Option<u64>) -> SlotEntry {
    SlotEntry { at: item.at, id: item.located.id.0, flags: item_flags(item), columns }
}

impl World {
    /// Returns what a worker reports about help.
    pub(super) fn help_report(&self, worker: usize) -> HelpReport {
        let Some(role) = self.scenario.help_role(worker) else { return HelpReport::default() };
        let help = &self.workers[worker].help;
        HelpReport {
            is_helper: role.is_helper,
            is_helper_only: role.is_helper_only,
            is_helped: role.is_helped,
            helpers: help.list.version,
            stats: help.stats,
        }
    }

    /// Takes over the coordinator's list of helpers.
    pub(super) fn set_helpers(&mut self, worker: usize, list: HelperList) {
        self.coverage.count(if list.helpers.is_empty() { "helpers_were_taken_away" } else { "helpers_were_lent" });
        let help = &mut self.workers[worker].help;
        let is_listed = |id: &WorkerId| list.helpers.iter().any(|helper| helper.worker == *id);
        help.links.retain(|id, _| is_listed(id));
        for helper in &list.helpers {
            help.links.entry(helper.worker).or_default();
        }
        help.list = list;
    }

    /// Goes on with a batch: decodes its next sample, lends others, or hands it over if all are there.
    pub(super) fn go_on_with_batch(&mut self, worker: usize, conn: ConnId, sequence: u64) {
        let now_us = self.now_us;
        let state = &mut self.workers[worker];
        let Some(feed) = state.feeds.get_mut(&conn) else { return };
        let Some(batch) = feed.open.get_mut(&sequence) else { return };
        if batch.decoding.is_none() {
            batch.decoding = batch.own.pop_front().or_else(|| batch.shared.pop_front());
            if batch.decoding.is_some() {
                let sample_us = batch.sample_us;
                state.help.begin_decoding(now_us);
                self.remind(sample_us, Target::Worker(worker), ProcessInput::SampleDecoded { conn, sequence });
            } else if batch.entries.iter().all(Option::is_some) {
                let batch = feed.open.remove(&sequence).expect("it was just found");
                let entries = batch.entries.into_iter().flatten().collect();
                return self.on_all_decoded(worker, conn, sequence, batch.slot, entries);
            }
        }
        self.lend_samples(worker, conn, sequence);
    }

    /// Handles the end of decoding one sample here.
    pub(super) fn on_sample_decoded(&mut self, worker: usize, conn: ConnId, sequence: u64) {
        let now_us = self.now_us;
        self.workers[worker].help.end_decoding(now_us, 1);
        let Some(feed) = self.workers[worker].feeds.get_mut(&conn) else { return };
        let Some(batch) = feed.open.get_mut(&sequence) else { return };
        let place = batch.decoding.take().expect("it was being decoded");
        let (item, slot) = (batch.items[place], batch.slot);
        let (entries, begun) = self.decode(worker, conn, &[item]);
        self.finish_samples(worker, conn, begun);
        let feed = self.workers[worker].feeds.get_mut(&conn).expect("it was just found");
        let Some(entry) = entries.map(|entries| entries[0]) else {
            feed.open.remove(&sequence);
            feed.failed.insert(sequence);
            return self.on_all_decoded(worker, conn, sequence, slot, Vec::new());
        };
        feed.open.get_mut(&sequence).expect("it was just found").entries[place] = Some(entry);
        self.count_entry(&entry);
        self.go_on_with_batch(worker, conn, sequence);
    }

    /// Asks all helpers that may be asked for chunks of a batch.
    fn lend_samples(&mut self, worker: usize, conn: ConnId, sequence: u64) {
        let helpers = self.workers[worker].help.list.helpers.clone();
        for helper in &helpers {
            loop {
                let help = &self.workers[worker].help;
                let is_aside = help.links.get(&helper.worker).is_none_or(|link| self.now_us < link.aside_until_us);
                if is_aside || help.in_flight(helper.worker) >= IN_FLIGHT {
                    break;
                }
                let Some(feed) = self.workers[worker].feeds.get_mut(&conn) else { return };
                let Some(batch) = feed.open.get_mut(&sequence).filter(|batch| !batch.shared.is_empty()) else { return };
                let most = batch.shared.len().div_ceil(2 * (1 + helpers.len())).min(CHUNK_SAMPLES);
                let places = batch.shared.drain(..most).map(|place| (place, batch.items[place])).collect();
                let slot = batch.slot;
                self.ask_helper(worker, *helper, (conn, sequence, slot), places);
            }
        }
    }

    fn ask_helper(
        &mut self,
        worker: usize,
        helper: PeerAddress,
        (conn, sequence, slot): (ConnId, u64, u32),
        places: Vec<(usize, Item)>,
    ) {
        let known = self.workers[worker].help.links[&helper.worker].conn;
        let link = match known.filter(|link| self.is_open(*link, 0)) {
            Some(link) => link,
            None => {
                let to = Target::Worker(usize::from(helper.quic.port() - 7500));
                self.connect(Target::Worker(worker), to, Transport::Quic)
            }
        };
        let SimWorker { feeds, blocks, .. } = &mut self.workers[worker];
        let dataset = self.scenario.dataset_of(&feeds[&conn].session.job);
        let stored = |(_, item): &(usize, Item)| {
            let is_good = !dataset.bad.contains(&item.located.id.0);
            is_good.then(|| (item.source_epoch, blocks.sample(dataset, &item.located)))
        };
        let (samples, seed) = (places.iter().map(stored).collect(), dataset.job.seed);
        let help = &mut self.workers[worker].help;
        help.links.entry(helper.worker).or_default().conn = Some(link);
        let id = help.next;
        help.next += 1;
        help.lent.insert(id, Chunk { helper: helper.worker, link, conn, sequence, slot, places });
        self.send(link, 0, SimMessage::HelpAsk { id, seed, samples });
        let limit_us = self.dice.within(LIMITS_US.0, LIMITS_US.1);
        self.remind(limit_us, Target::Worker(worker), ProcessInput::HelpTimeout { id });
    }

    /// Answers a home, as a helper.
    pub(super) fn on_help_ask(
        &mut self,
        worker: usize,
        conn: ConnId,
        id: u64,
        seed: u64,
        samples: &[Option<(u64, u64)>],
    ) {
        if !self.scenario.help_role(worker).is_some_and(|role| role.is_helper) {
            return self.fail(format!("worker {worker} is asked for help, and is no helper"));
        }
        if self.workers[worker].shutdown > SimShutdown::Running || self.dice.percent(3) {
            return self.send(conn, 1, SimMessage::HelpBusy { id });
        }
        let is_slow = self.dice.percent(6);
        let help_us = if is_slow { self.dice.within(LIMITS_US.0, SLOW_US) } else { self.dice.within(100, 400_000) };
        // One in fifty does not decode, whatever the reason.
        let decoded = samples.iter().map(|sample| sample.filter(|_| !self.dice.percent(2)));
        let content = |(epoch, stored): (u64, u64)| JobDataset::content(stored, seed, epoch);
        let mut columns: Vec<Option<u64>> = decoded.map(|sample| sample.map(content)).collect();
        if mutated(Mutation::BelieveWrongHelp)
            && let Some(first) = columns.iter_mut().flatten().next()
        {
            *first ^= 1;
        }
        self.remind(help_us, Target::Worker(worker), ProcessInput::Helped { conn, id, columns });
    }

    pub(super) fn on_helped(&mut self, worker: usize, conn: ConnId, id: u64, columns: Vec<Option<u64>>) {
        self.workers[worker].help.stats.made_samples += columns.iter().flatten().count() as u64;
        self.send(conn, 1, SimMessage::HelpAnswer { id, columns });
    }

    /// Uses what a helper has decoded.
    pub(super) fn on_help_answer(&mut self, worker: usize, id: u64, columns: &[Option<u64>]) {
        let help = &mut self.workers[worker].help;
        if let Some(chunk) = help.lent.remove(&id) {
            return self.settle_chunk(worker, &chunk, columns);
        }
        let Some(chunk) = help.taken_back.remove(&id) else {
            return self.fail(format!("worker {worker} gets an answer to a request that it did not send"));
        };
        self.coverage.count("late_answer_of_a_helper_ignored");
        if mutated(Mutation::UseLateHelp) {
            self.use_late(worker, &chunk, columns);
        }
    }

    pub(super) fn on_help_busy(&mut self, worker: usize, id: u64) {
        let until_us = self.now_us + BUSY_US;
        if self.workers[worker].help.lent.contains_key(&id) {
            self.coverage.count("helper_had_no_room");
            self.take_back(worker, id, until_us);
        }
        self.workers[worker].help.taken_back.remove(&id);
    }

    pub(super) fn on_help_timeout(&mut self, worker: usize, id: u64) {
        if self.workers[worker].help.lent.contains_key(&id) {
            self.coverage.count("samples_taken_back_from_a_late_helper");
            self.take_back(worker, id, self.now_us + ASIDE_US);
        }
    }

    /// Takes back the samples of a helper whose connection was lost. Returns whether the connection was one to a
    /// helper.
    pub(super) fn helper_lost(&mut self, worker: usize, link: ConnId) -> bool {
        let help = &mut self.workers[worker].help;
        let of_link = help.links.values_mut().filter(|known| known.conn == Some(link));
        let mut is_link = of_link.map(|known| known.conn = None).count() > 0;
        let lent: Vec<u64> = help.lent.iter().filter(|(_, chunk)| chunk.link == link).map(|(id, _)| *id).collect();
        is_link |= !lent.is_empty();
        for id in lent {
            self.coverage.count("samples_taken_back_from_a_lost_helper");
            self.take_back(worker, id, self.now_us + ASIDE_US);
        }
        // They cannot be answered any more.
        self.workers[worker].help.taken_back.retain(|_, chunk| chunk.link != link);
        is_link
    }

    /// Takes samples back from a helper, which is not asked again before `until_us`.
    fn take_back(&mut self, worker: usize, id: u64, until_us: u64) {
        let help = &mut self.workers[worker].help;
        let chunk = help.lent.remove(&id).expect("the helper has it");
        help.put_aside(chunk.helper, until_us);
        help.taken_back.insert(id, chunk.clone());
        self.settle_chunk(worker, &chunk, &[]);
    }

    /// Puts the columns of an answer into the batch. Samples without columns are decoded here.
    fn settle_chunk(&mut self, worker: usize, chunk: &Chunk, columns: &[Option<u64>]) {
        let state = &mut self.workers[worker];
        let Some(feed) = state.feeds.get_mut(&chunk.conn) else { return };
        let Some(batch) = feed.open.get_mut(&chunk.sequence) else { return };
        let mut columns = columns.to_vec();
        if mutated(Mutation::MisplaceHelped) {
            columns = columns.into_iter().flatten().map(Some).collect();
        }
        columns.resize(chunk.places.len(), None);
        let mut came = Vec::new();
        for ((place, item), columns) in chunk.places.iter().zip(columns) {
            if columns.is_none() {
                batch.own.push_back(*place);
                continue;
            }
            let before = batch.entries[*place].replace(entry(item, columns));
            came.extend(batch.entries[*place]);
            if before.is_some() {
                return self.fail(format!("worker {worker} puts sample {} of a batch there twice", place));
            }
        }
        if mutated(Mutation::UseHelpForAllRanks) {
            let came = came.clone();
            let others = state.feeds.iter_mut().filter(|(conn, _)| **conn != chunk.conn);
            let batches = others.filter_map(|(_, feed)| feed.open.get_mut(&chunk.sequence));
            for (entry, helped) in batches.flat_map(|batch| &mut batch.entries).flatten().zip(came) {
                entry.columns = helped.columns;
            }
        }
        if let Some(member) = state.feeds[&chunk.conn].member {
            for (place, item) in &chunk.places {
                let columns =
                    state.feeds[&chunk.conn].open[&chunk.sequence].entries[*place].and_then(|entry| entry.columns);
                if let Some(columns) = columns {
                    state.sharing.offer(member, item, columns, self.now_us / 1_000);
                }
            }
        }
        let HelpStats { received_samples, returned_samples, .. } = &mut state.help.stats;
        *received_samples += came.len() as u64;
        *returned_samples += (chunk.places.len() - came.len()) as u64;
        for entry in &came {
            self.coverage.count("sample_decoded_by_a_helper");
            self.count_entry(entry);
        }
        self.go_on_with_batch(worker, chunk.conn, chunk.sequence);
    }

    /// Writes the columns of a late answer where they would have belonged, whatever is there now.
    fn use_late(&mut self, worker: usize, chunk: &Chunk, columns: &[Option<u64>]) {
        let Some(feed) = self.workers[worker].feeds.get_mut(&chunk.conn) else { return };
        let late = chunk.places.iter().zip(columns).filter(|(_, columns)| columns.is_some());
        let late: Vec<(usize, SlotEntry)> =
            late.map(|((place, item), columns)| (*place, entry(item, *columns))).collect();
        if let Some(batch) = feed.open.values_mut().find(|batch| batch.slot == chunk.slot) {
            for (place, entry) in late {
                if let Some(written) = batch.entries.get_mut(place) {
                    *written = Some(entry);
                }
            }
            return;
        }
        let mut slots = feed.slab.borrow_mut();
        for content in feed.filling.get_mut(&chunk.slot).into_iter().chain(slots[chunk.slot as usize].as_mut()) {
            let content = std::rc::Rc::make_mut(content);
            for (place, entry) in &late {
                if let Some(written) = content.entries.get_mut(*place) {
                    *written = *entry;
                }
            }
        }
    }

    /// Forgets the chunks of a rank that is not served any more.
    pub(super) fn forget_lent(&mut self, worker: usize, conn: ConnId) {
        let help = &mut self.workers[worker].help;
        let ended: BTreeSet<u64> =
            help.lent.iter().filter(|(_, chunk)| chunk.conn == conn).map(|(id, _)| *id).collect();
        for id in ended {
            let chunk = help.lent.remove(&id).expect("it was just found");
            help.taken_back.insert(id, chunk);
        }
    }
}
