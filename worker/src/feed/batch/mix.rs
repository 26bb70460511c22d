//! Mixes the samples of a batch in pairs, in place, once all are decoded. A partner that is no sample of the batch is
//! decoded beside it.

use std::collections::BTreeMap;

use crossbeam_deque::{Stealer, Worker};
use parking_lot::Mutex;
use spdl_job::{
    ColumnKind, Job,
    layout::{Layout, entry_flags},
};
use spdl_operations::{MixShare, MixedValues, mix};
use spdl_order::{Item, ItemKind, MixMethod, MixParams, Plan, WHOLE_WEIGHT};
use spdl_types::{ImageLayout, Position};

use super::{
    buffer::{BatchBuffer, SamplePlace},
    threads::{BatchThreads, SampleSource, steal},
};
use crate::feed::stages::DecodingThread;

/// How the columns of a job are mixed.
#[derive(Debug)]
pub(in crate::feed) struct Mixer {
    params: MixParams,
    seed: u64,
    /// Height and width of all pictures that are mixed.
    size: [u32; 2],
    columns: Vec<MixedColumn>,
}

/// A column that is mixed.
#[derive(Debug)]
struct MixedColumn {
    /// Its number in the job.
    number: usize,
    values: MixedValues,
    /// Values of a pixel in a row, if it holds pictures.
    pixel_values: Option<u32>,
}

/// Two samples of a batch that are mixed with each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MixedPair {
    /// Their entries; those from the number of entries on are partners that are not in the batch.
    pub(super) entries: [u32; 2],
    methods: [Option<MixMethod>; 2],
}

/// The pairs of a batch's samples that are mixed, and the partners from outside the batch.
#[derive(Debug, Default)]
pub(super) struct PlannedMixes {
    pub(super) pairs: Vec<MixedPair>,
    /// The partners that are no samples of the batch.
    pub(super) partners: Vec<Item>,
}

impl Mixer {
    /// Returns how a job's columns are mixed; `None` if they are not.
    pub(in crate::feed) fn new(job: &Job) -> Option<Self> {
        let mix = job.mix.as_ref()?;
        let mut size = [1, 1];
        let columns = job.columns.iter().enumerate().filter(|(_, column)| mix.has(&column.name));
        let columns = columns.map(|(number, column)| {
            let ColumnKind::Image(image) = &column.kind else {
                let sides = column.sample_shape().expect("a mixed column has one shape");
                let row_values = sides.iter().map(|side| *side as usize).product();
                let values = MixedValues { dtype: column.dtype, row_values, rows: 1 };
                return MixedColumn { number, values, pixel_values: None };
            };
            size = image.size;
            let [height, width] = image.size;
            let pixel_values = if image.layout == ImageLayout::Nhwc { image.color.channels() } else { 1 };
            let row_values = (width * pixel_values) as usize;
            let values = MixedValues { dtype: column.dtype, row_values, rows: height as usize };
            MixedColumn { number, values, pixel_values: Some(pixel_values) }
        });
        let columns = columns.collect();
        Some(Self { params: mix.params, seed: job.seed, size, columns })
    }

    /// Draws how the samples of a batch are mixed.
    pub(super) fn plan(&self, plan: &Plan, items: &[Item]) -> PlannedMixes {
        let samples = plan.samples();
        let mut mixes = PlannedMixes::default();
        // Padding repeats samples of the epoch; the second copy of a sample in a batch gets a partner of its own.
        let mut in_batch = BTreeMap::new();
        let held = (0_u32..).zip(items).filter(|(_, item)| item.kind != ItemKind::Invalid);
        for (entry, item) in held.clone() {
            in_batch.entry((item.kind == ItemKind::Padding, item.at)).or_insert(entry);
        }
        for (entry, item) in held {
            let Position { epoch, offset } = item.at;
            let draw = |offset| self.params.draw(self.seed, epoch, offset, samples);
            let Some(drawn) = draw(offset) else { continue };
            let is_padding = item.kind == ItemKind::Padding;
            let is_first = in_batch[&(is_padding, item.at)] == entry;
            let at = Position::new(epoch, drawn.partner);
            match in_batch.get(&(is_padding, at)).filter(|_| is_first) {
                Some(partner) => {
                    let other = draw(drawn.partner).map(|drawn| drawn.method);
                    // If both samples of a pair take from each other, the loop finds the pair twice.
                    if other.is_none() || entry < *partner {
                        let methods = [Some(drawn.method), other];
                        mixes.pairs.push(MixedPair { entries: [entry, *partner], methods });
                    }
                }
                None => {
                    let partner = (items.len() + mixes.partners.len()) as u32;
                    mixes.partners.push(plan.sample_item(at));
                    mixes.pairs.push(MixedPair { entries: [entry, partner], methods: [Some(drawn.method), None] });
                }
            }
        }
        mixes
    }

    /// Mixes the samples of a batch.
    pub(super) fn mix(
        &self,
        threads: &BatchThreads<'_>,
        layout: &Layout,
        buffer: &mut BatchBuffer,
        pairs: &[MixedPair],
    ) {
        let mut places = buffer.places(layout);
        let mut place = |entry: u32| places[entry as usize].take().expect("an entry is in one pair");
        let queue = Worker::new_fifo();
        pairs.iter().for_each(|pair| queue.push((pair.entries.map(&mut place), &pair.methods)));
        threads.run(pairs.len(), &MixedPlaces { mixer: self, queue: queue.stealer(), buffers: Mutex::default() });
    }

    /// Mixes two samples.
    fn mix_pair(
        &self,
        [mut first, mut second]: [SamplePlace<'_>; 2],
        methods: &[Option<MixMethod>; 2],
        kept: &mut Vec<u8>,
    ) {
        let is_empty = |place: &SamplePlace<'_>| place.entry.flags & (entry_flags::MASKED | entry_flags::INVALID) != 0;
        // A masked sample stays zero, and its partner takes nothing from it.
        if is_empty(&first) || is_empty(&second) {
            return;
        }
        for column in &self.columns {
            let taken = [0, 1].map(|of| column.taken(methods[of], self.size));
            let samples = [&mut first, &mut second].map(|place| place.targets[column.number].fixed());
            mix(column.values, samples, &taken, kept);
        }
    }
}

impl MixedColumn {
    /// Returns the part of its partner that a sample takes, in pictures of this height and width.
    fn taken(&self, method: Option<MixMethod>, size: [u32; 2]) -> MixShare {
        let cut = match method {
            None => return MixShare::Nothing,
            Some(MixMethod::Mixup(own)) => return MixShare::Sum(own as f32 / WHOLE_WEIGHT as f32),
            Some(MixMethod::Cutmix(cut)) => cut.area(size),
        };
        let Some(pixel_values) = self.pixel_values else { return MixShare::Sum(cut.share_left(size)) };
        let values = cut.columns.map(|column| (column * pixel_values) as usize);
        MixShare::Part { rows: cut.rows.map(|row| row as usize), values }
    }
}

/// The places of samples that are mixed in pairs.
struct MixedPlaces<'p> {
    mixer: &'p Mixer,
    queue: Stealer<([SamplePlace<'p>; 2], &'p [Option<MixMethod>; 2])>,
    /// Memory for a sample's values, as much as threads have needed at once.
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl SampleSource for MixedPlaces<'_> {
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn write_next(&self, thread: &mut DecodingThread<'_>) {
        let Some((places, methods)) = steal(&self.queue) else { return };
        let mut kept = self.buffers.lock().pop().unwrap_or_default();
        self.mixer.mix_pair(places, methods, &mut kept);
        self.buffers.lock().push(kept);
        thread.end_item();
    }
}
