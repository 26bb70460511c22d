//! The sequences of a batch: finds the pieces of documents that they have, and writes each when its document has come.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crossbeam_deque::{Stealer, Worker};
use parking_lot::Mutex;
use spdl_job::MAX_GLOBAL_LENGTHS;
use spdl_order::{Item, ItemKind, Step};
use spdl_sequence::Piece;
use spdl_types::Position;

use super::{
    buffer::{BatchBuffer, entry},
    decode::ReadySamples,
    fields::GroupFields,
    records::{self, FetchedGroup, NeededElements},
    sample::{BatchSample, Reason, SampleGroup, Undecoded},
    threads::{SampleSource, steal},
};
use crate::{
    decode::{PieceTarget, SequenceWriter, WrittenRow},
    feed::{
        FeedError,
        dataset::{DatasetSequences, GlobalSequences, OpenPools, SequencePieces},
        open::{Feed, FeedWork},
        scheduler::DecodePermit,
        stages::DecodingThread,
    },
};

/// One decoding thread writes a batch with at most so many places, in about a millisecond: waking others takes as long as they would save.
/// Other batches of the rank are written at the same time.
const ONE_THREAD_PLACES: u64 = 1 << 20;
/// About so many pieces are found in less time than another thread takes to begin.
const FEW_PIECES: u64 = 256;

/// The sequences of a batch, with the pieces of documents that they have.
#[derive(Debug)]
pub(super) struct PackedBatch {
    rows: Vec<PackedRow>,
    /// The pieces of all rows, and behind these the tokens that follow rows and are labels of their last places.
    pieces: Vec<Piece>,
    /// Number of the pieces of all rows.
    in_rows: usize,
    /// For each piece whether it is written.
    is_good: Vec<AtomicBool>,
    /// For each piece whether it is written, and its first token is learned.
    begins_learned: Vec<AtomicBool>,
    /// The tokens that follow rows.
    beyond: Mutex<Vec<u8>>,
    /// What each rank is told of the whole global batch.
    global: Arc<GlobalSequences>,
}

/// A sequence of a batch.
#[derive(Debug)]
struct PackedRow {
    item: Item,
    pieces: Range<usize>,
    /// The number of the token that follows it, among those that do.
    next: Option<usize>,
}

/// Returns the blocks that may hold documents of these samples, each once, with the position of the first that needs it.
pub(super) fn blocks_of(feed: &Feed, sequences: &DatasetSequences, items: &[Item]) -> Vec<(u32, Position)> {
    let valid = items.iter().filter(|item| item.kind != ItemKind::Invalid);
    let mut pools: Vec<(u32, Position)> = valid.map(|item| (item.located.block, item.at)).collect();
    pools.sort_unstable();
    pools.dedup_by_key(|(pool, _)| *pool);
    pools
        .into_iter()
        .flat_map(|(pool, at)| feed.datasets.blocks_of_pool(sequences, pool).map(move |block| (block, at)))
        .collect()
}

impl NeededElements for PackedBatch {
    fn needed(&self, feed: &Feed, sample: &BatchSample, field: &str) -> Option<Range<u64>> {
        let writer = writer_of(feed);
        writer.is_of_tokens(field).then(|| writer.needed(&self.pieces[sample.entry as usize]))
    }
}

/// A batch of sequences whose pieces are found.
pub(super) struct FoundPieces {
    pub(super) packed: Arc<PackedBatch>,
    /// The documents that are in memory. The entry of each is the number of its piece.
    pub(super) in_memory: Vec<FetchedGroup>,
    /// The other documents.
    pub(super) to_fetch: Vec<SampleGroup>,
}

/// Finds the pieces of a batch's samples; `None` if these are no sequences.
pub(super) async fn find(feed: &Arc<Feed>, step: &Step, items: &[Item]) -> Result<Option<FoundPieces>, FeedError> {
    let Some(sequences) = &feed.sequences else { return Ok(None) };
    let job = &feed.session.job;
    let global = sequences.global_batch(job, &feed.plan, (step, feed.session.world)).await?;
    let pools = sequences.open(items).await?;
    let (of_batch, sequences, items) = (feed.clone(), sequences.clone(), items.to_vec());
    let pieces = (sequences.mean_documents() + 1) * items.len() as u64;
    let find = move || {
        let (packed, groups) = PackedBatch::of(&of_batch, (&sequences, &pools), items, global);
        let (mut in_memory, mut to_fetch) = (Vec::new(), Vec::new());
        for group in groups {
            match records::in_memory(&of_batch, group) {
                Ok(fetched) => in_memory.push(fetched),
                Err(group) => to_fetch.push(group),
            }
        }
        FoundPieces { packed: Arc::new(packed), in_memory, to_fetch }
    };
    // There can be thousands of documents, and the batches of a rank come from one task.
    if pieces <= FEW_PIECES { Ok(Some(find())) } else { feed.blocking(find).await.map(Some) }
}

impl PackedBatch {
    /// Returns whether one decoding thread writes the batch.
    pub(super) fn is_short(&self, feed: &Feed) -> bool {
        let seq_len = feed.session.job.sequence.as_ref().map_or(0, |sequence| sequence.seq_len);
        self.rows.len() as u64 * u64::from(seq_len) <= ONE_THREAD_PLACES
    }

    /// Finds the pieces of a batch's samples, which are sequences of these pools. Also returns their documents, by block.
    fn of(
        feed: &Feed,
        (sequences, pools): (&DatasetSequences, &OpenPools),
        items: Vec<Item>,
        global: Arc<GlobalSequences>,
    ) -> (Self, Vec<SampleGroup>) {
        let writer = writer_of(feed);
        let (mut rows, mut pieces, mut beyond, mut documents) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for item in items {
            let SequencePieces { pieces: of_row, next, pool, .. } = sequences.pieces(pools, &item);
            let first = pieces.len();
            documents.extend(of_row.iter().map(|piece| (item.at, pool, piece.document)));
            let is_needed = writer.looks_beyond() && of_row.last().is_some_and(|last| last.ends_document);
            let next = next.filter(|_| is_needed).map(|next| {
                beyond.push((next, (item.at, pool, next.document)));
                beyond.len() - 1
            });
            pieces.extend(of_row);
            rows.push(PackedRow { item, pieces: first..pieces.len(), next });
        }
        let in_rows = pieces.len();
        let (after, of_after): (Vec<_>, Vec<_>) = beyond.into_iter().unzip();
        pieces.extend(after);
        documents.extend(of_after);
        let mut samples: Vec<BatchSample> = (0..)
            .zip(documents)
            .map(|(number, (at, pool, document))| {
                let (id, block) = feed.datasets.document(sequences, pool, document);
                BatchSample::at(number, at, id, block)
            })
            .collect();
        samples.sort_unstable_by_key(|sample| (sample.id, sample.entry));
        let groups = samples.chunk_by(|a, b| a.block == b.block).map(SampleGroup::from).collect();
        let [is_good, begins_learned] = [(); 2].map(|()| pieces.iter().map(|_| AtomicBool::new(false)).collect());
        let beyond = Mutex::new(vec![0; (pieces.len() - in_rows) * writer.token_bytes()]);
        (Self { rows, pieces, in_rows, is_good, begins_learned, beyond, global }, groups)
    }
}

/// Writes the pieces of documents that have come. Returns those that were not written, by entry. Must run on a decoding thread if the batch
/// is short, and on another one if it is not, for the reason that `BatchThreads::run` gives.
pub(super) fn write(
    feed: &Feed,
    at: Position,
    buffer: &mut BatchBuffer,
    packed: &PackedBatch,
    ReadySamples { groups, .. }: &ReadySamples,
    permit: &DecodePermit,
) -> Vec<Undecoded> {
    let writer = writer_of(feed);
    if feed.work == FeedWork::Fetch {
        permit.finish(groups.iter().map(|group| group.samples().len()).sum());
        return Vec::new();
    }
    let mut columns: Vec<_> = buffer.parts(&feed.layout).columns;
    let mut rows: Vec<_> = columns
        .iter_mut()
        .map(|column| column.as_mut().map(|column| column.bytes.chunks_exact_mut(column.sample_bytes)))
        .collect();
    let mut beyond = packed.beyond.lock();
    let mut targets = Vec::with_capacity(packed.pieces.len());
    for row in &packed.rows {
        let of_row = writer
            .written_columns()
            .map(|number| rows[number].as_mut().and_then(Iterator::next).expect("a place in each fixed column"));
        let of_row: Vec<_> = of_row.collect();
        targets.extend(writer.places(of_row.into_iter(), &packed.pieces[row.pieces.clone()]).into_iter().map(Some));
    }
    targets.extend(beyond.chunks_exact_mut(writer.token_bytes()).map(|token| Some(writer.place_beyond(token))));
    let queue = Worker::new_fifo();
    for group in groups {
        let mut target = |sample: &BatchSample| targets[sample.entry as usize].take().expect("a piece is written once");
        let with_targets = group.samples().iter().map(|sample| (*sample, target(sample))).collect();
        queue.push(GroupOfPieces { group, pieces: with_targets });
    }
    let source = PieceSource { feed, packed, writer, permit, queue: queue.stealer(), left: Mutex::default() };
    match packed.is_short(feed) {
        true => feed.threads(at).work(&[&source]),
        false => feed.threads(at).run(queue.len(), &source),
    }
    let mut left = source.left.into_inner();
    left.sort_unstable_by_key(|undecoded| undecoded.sample.entry);
    left
}

/// The pieces of documents that lie in one block.
struct GroupOfPieces<'b> {
    group: &'b FetchedGroup,
    pieces: Vec<(BatchSample, PieceTarget<'b>)>,
}

/// The pieces that are to be written.
struct PieceSource<'b> {
    feed: &'b Feed,
    packed: &'b PackedBatch,
    writer: &'b SequenceWriter,
    permit: &'b DecodePermit,
    queue: Stealer<GroupOfPieces<'b>>,
    left: Mutex<Vec<Undecoded>>,
}

impl SampleSource for PieceSource<'_> {
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn write_next(&self, thread: &mut DecodingThread<'_>) {
        let Some(GroupOfPieces { group, pieces }) = steal(&self.queue) else { return };
        let (count, stage) = (pieces.len(), &self.feed.decoding.stages.decode);
        let (mut bytes, mut left) = (0, Vec::new());
        for (sample, mut target) in pieces {
            let number = sample.entry as usize;
            match self.write(group, &sample, &self.packed.pieces[number], &mut target) {
                Ok((read, begins_learned)) => {
                    bytes += read;
                    self.packed.is_good[number].store(true, Relaxed);
                    self.packed.begins_learned[number].store(begins_learned, Relaxed);
                }
                Err(undecoded) => left.push(*undecoded),
            }
        }
        let (took, written) = (thread.end_item(), (count - left.len()) as u64);
        if written > 0 {
            self.feed.has_good.store(true, Relaxed);
            stage.items(written, took / count as u32, bytes);
        }
        left.iter().for_each(|_| stage.failure());
        self.left.lock().append(&mut left);
        self.permit.finish(count);
    }
}

impl PieceSource<'_> {
    fn write(
        &self,
        group: &FetchedGroup,
        sample: &BatchSample,
        piece: &Piece,
        target: &mut PieceTarget<'_>,
    ) -> Result<(u64, bool), Box<Undecoded>> {
        let record = group.record(sample);
        let undecoded = |reason| Err(Box::new(Undecoded { sample: *sample, key: record.key.to_string(), reason }));
        let fields = GroupFields::new(group, record);
        let written = self.writer.write(piece, &fields, target);
        let read_bytes = fields.read_bytes();
        match (fields.wrong(&self.feed.decoder), written) {
            (None, Ok(begins_learned)) => Ok((read_bytes, begins_learned)),
            (None, Err(cause)) => undecoded(Reason::Bad(cause)),
            (Some(wrong), _) => undecoded(wrong),
        }
    }
}

fn writer_of(feed: &Feed) -> &SequenceWriter {
    feed.decoder.sequence().expect("a job of sequences has columns of them")
}

/// Completes the rows of a batch once all pieces are written that can be.
pub(super) fn complete(feed: &Feed, buffer: &mut BatchBuffer, packed: &PackedBatch) {
    let writer = writer_of(feed);
    buffer.loss_tokens = packed.global.learned;
    let beyond = packed.beyond.lock();
    let tokens_beyond: Vec<&[u8]> = beyond.chunks_exact(writer.token_bytes()).collect();
    let is_good = |number: usize| packed.is_good[number].load(Relaxed);
    let begins_learned = |number: usize| packed.begins_learned[number].load(Relaxed);
    let mut lengths = Vec::new();
    let parts = buffer.parts(&feed.layout);
    let mut rows: Vec<_> = parts
        .columns
        .into_iter()
        .map(|column| column.map(|column| column.bytes.chunks_exact_mut(column.sample_bytes)))
        .collect();
    for (number, (row, place)) in packed.rows.iter().zip(parts.entries).enumerate() {
        let mut columns: Vec<&mut [u8]> =
            rows.iter_mut().map(|rows| rows.as_mut().and_then(Iterator::next).unwrap_or_default()).collect();
        let PackedRow { item, pieces, next } = row;
        let next = next.filter(|next| begins_learned(packed.in_rows + next)).map(|next| tokens_beyond[next]);
        let of_row = WrittenRow {
            pieces: &packed.pieces[pieces.clone()],
            is_good: &|piece| is_good(pieces.start + piece),
            begins_learned: &|piece| begins_learned(pieces.start + piece),
            next,
        };
        lengths.extend(writer.complete(&of_row, &mut columns).into_iter().map(|(column, of)| (column, number, of)));
        let sample = BatchSample::new(0, item);
        *place = entry(&sample, sample.flags);
    }
    let (all, count) = (&packed.global.lengths, packed.rows.len());
    // The rows of a rank have the whole list together.
    if all.len() <= count * MAX_GLOBAL_LENGTHS as usize {
        let part = |row: usize| all[row * all.len() / count..(row + 1) * all.len() / count].to_vec();
        lengths.extend(writer.global_lengths().flat_map(|column| (0..count).map(move |row| (column, row, part(row)))));
    }
    for (column, row, lengths) in lengths {
        let bytes: Vec<u8> = lengths.into_iter().flat_map(i32::to_le_bytes).collect();
        buffer.put(column, row, bytes.into());
    }
}
