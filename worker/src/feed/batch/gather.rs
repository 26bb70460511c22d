//! Fills the entries of samples whose columns are all numbers that formats have at hand, column by column: the decoded values
//! of a block and the places of a batch are arrays, so that a column is one gather.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crossbeam_deque::{Stealer, Worker};
use spdl_job::layout::FixedColumn;
use spdl_shard::format::NumberRun;

use super::{
    buffer::{BatchBuffer, entry},
    records::FetchedGroup,
    sample::BatchSample,
    threads::{BatchThreads, SampleSource, steal},
};
use crate::feed::{
    open::{Feed, FeedWork},
    scheduler::DecodePermit,
    stages::DecodingThread,
};

/// A sample to fill: its entry in the batch, and its record.
#[derive(Clone, Copy)]
struct Pick {
    entry: u32,
    record: u32,
}

/// Samples to fill, and those that are to be decoded one by one.
struct Picks<'g> {
    /// The picks of each group.
    groups: Vec<(&'g FetchedGroup, Range<usize>)>,
    picks: Vec<Pick>,
    /// For each pick whether it has to be decoded on its own, as a value is not at hand or does not fit.
    is_left: Vec<AtomicBool>,
}

/// Fills the entries of samples whose values are all at hand and fit. Returns the other samples, which have to be decoded
/// one by one.
pub(super) fn gather<'g>(
    feed: &Feed,
    threads: &BatchThreads<'_>,
    buffer: &mut BatchBuffer,
    groups: &'g [FetchedGroup],
    permit: &DecodePermit,
) -> Vec<(&'g FetchedGroup, &'g BatchSample)> {
    let all = || groups.iter().flat_map(|group| group.samples().iter().map(move |sample| (group, sample)));
    let decoding = &feed.decoding;
    // A sample that may end the worker has to be marked in the journal, which only decoding one by one does.
    if feed.work == FeedWork::Fetch || !feed.decoder.takes_only_numbers() || decoding.journal.has_suspects() {
        return all().collect();
    }
    if !groups.iter().any(FetchedGroup::has_only_numbers) {
        return all().collect();
    }
    let (picks, parts, queue) = (Picks::of(groups), buffer.parts(&feed.layout), Worker::new_fifo());
    parts.columns.into_iter().enumerate().for_each(|column| queue.push(column));
    let (busy_ns, sample_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let columns = GatheredColumns { feed, picks, queue: queue.stealer(), busy_ns, sample_bytes };
    threads.run(queue.len(), &columns);
    if feed.progress.is_cancelled() {
        return Vec::new();
    }
    let GatheredColumns { picks, busy_ns, sample_bytes, .. } = columns;
    let (mut left, mut filled) = (Vec::new(), 0);
    for ((group, sample), is_left) in all().zip(picks.is_left) {
        if is_left.into_inner() {
            left.push((group, sample));
        } else {
            parts.entries[sample.entry as usize] = entry(sample, sample.flags);
            filled += 1;
        }
    }
    if let Some(took_ns) = busy_ns.into_inner().checked_div(filled) {
        feed.has_good.store(true, Relaxed);
        let bytes = filled * sample_bytes.into_inner();
        decoding.stages.decode.items(filled, Duration::from_nanos(took_ns), bytes);
        permit.finish(filled as usize);
    }
    left
}

/// The columns of a batch, all of numbers.
struct GatheredColumns<'g> {
    feed: &'g Feed,
    picks: Picks<'g>,
    queue: Stealer<(usize, Option<FixedColumn<'g>>)>,
    busy_ns: AtomicU64,
    /// Bytes of a sample in the columns that were filled.
    sample_bytes: AtomicU64,
}

impl SampleSource for GatheredColumns<'_> {
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn write_next(&self, thread: &mut DecodingThread<'_>) {
        let Some((number, column)) = steal(&self.queue) else { return };
        let column = column.expect("a column of numbers has a fixed shape");
        self.sample_bytes.fetch_add(column.sample_bytes as u64, Relaxed);
        self.picks.fill(self.feed, number, column);
        let took = thread.end_item();
        self.busy_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

impl<'g> Picks<'g> {
    fn of(groups: &'g [FetchedGroup]) -> Self {
        let mut picks = Vec::with_capacity(groups.iter().map(|group| group.samples().len()).sum());
        let of_group = |group: &'g FetchedGroup| {
            let start = picks.len();
            picks.extend(group.samples().iter().map(|sample| Pick { entry: sample.entry, record: sample.record }));
            (group, start..picks.len())
        };
        let groups = groups.iter().map(of_group).collect();
        let is_left = picks.iter().map(|_| AtomicBool::new(false)).collect();
        Self { groups, picks, is_left }
    }

    /// Fills the places of column number `number` of the job.
    fn fill(&self, feed: &Feed, number: usize, FixedColumn { sample_bytes, bytes }: FixedColumn<'_>) {
        for (group, range) in &self.groups {
            let mut at = range.start;
            while at < range.end {
                // Samples are sorted, so that those whose records lie in one run follow each other.
                let run = group.numbers(self.picks[at].record, number);
                let records = run.as_ref().map_or(0..0, |run| run.records.clone());
                let picks = &self.picks[at..range.end];
                let count = picks.iter().take_while(|pick| records.contains(&pick.record)).count();
                let Some(run) = run.filter(|_| count > 0) else {
                    self.is_left[at].store(true, Relaxed);
                    at += 1;
                    continue;
                };
                let picks = &picks[..count];
                match sample_bytes {
                    _ if !feed.decoder.copies_numbers(number, run.dtype) => {
                        for (pick, is_left) in picks.iter().zip(&self.is_left[at..]) {
                            let (element, place) = (run.element(pick.record), pick.entry as usize * sample_bytes);
                            let place = &mut bytes[place..place + sample_bytes];
                            if !feed.decoder.write_number(number, run.dtype, element, place) {
                                is_left.store(true, Relaxed);
                            }
                        }
                    }
                    1 => copy::<1>(picks, &run, bytes),
                    2 => copy::<2>(picks, &run, bytes),
                    4 => copy::<4>(picks, &run, bytes),
                    8 => copy::<8>(picks, &run, bytes),
                    _ => unreachable!("a number of {sample_bytes} bytes"),
                }
                at += count;
            }
        }
    }
}

/// Copies numbers of `WIDTH` bytes to their places.
fn copy<const WIDTH: usize>(picks: &[Pick], run: &NumberRun<'_>, bytes: &mut [u8]) {
    let (elements, places) = (run.elements.as_chunks::<WIDTH>().0, bytes.as_chunks_mut::<WIDTH>().0);
    for pick in picks {
        places[pick.entry as usize] = elements[(pick.record - run.records.start) as usize];
    }
}
