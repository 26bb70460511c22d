//! A source that is as fast as memory, and whose bytes all follow from the sample's id.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use spdl_client::{Batch, Blocking, ClientError, FreeSlot, Loader, Progress, Serving, Source, SourceEvent};
use spdl_control::messages::Session;
use spdl_gpu::{Device, DeviceError, DeviceOptions, LoaderExt, OnDevice};
use spdl_job::{
    BytesColumn, Column, ColumnKind, ImageColumn, IntColumn,
    layout::{Entry, Header, Layout},
    testing,
};
use spdl_types::{
    DType, Position, SessionId,
    mix::{GAMMA, splitmix64},
};
use spdl_wire::slab::Slab;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The parameters of the batches.
#[derive(Clone, Copy, Debug)]
pub struct FeedConfig {
    /// Height and width of the pictures.
    pub size: [u32; 2],
    /// Samples of a batch.
    pub samples: u32,
    /// The number of batches.
    pub batches: u64,
    /// The number of slots of the slab.
    pub slots: u32,
    /// The memory that the slots are in.
    pub slab: SlotMemory,
    /// When a slot's samples are written.
    pub refill: Refill,
    /// The lengths of the texts.
    pub texts: TextLengths,
}

/// The lengths of the texts, which are the ragged column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextLengths {
    /// At most 40 bytes.
    Short,
    /// Longer from sample to sample, up to this many bytes for the last one.
    Growing(u32),
}

/// The memory that the slots are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotMemory {
    /// Shared memory, as on the local queue.
    Shared,
    /// The process's own memory, as with QUIC.
    Private,
}

/// When a slot's samples are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// As soon as the slot is free: first garbage, then other samples.
    Always,
    /// Once, so that filling costs nothing; the same samples repeat.
    Once,
}

impl Default for FeedConfig {
    fn default() -> Self {
        Self {
            size: [6, 5],
            samples: 8,
            batches: 30,
            slots: 3,
            slab: SlotMemory::Shared,
            refill: Refill::Always,
            texts: TextLengths::Short,
        }
    }
}

/// The most bytes of a short text.
const MAX_TEXT_BYTES: usize = 40;

/// Writes the pixels of sample `id`.
pub fn write_pixels(id: u64, pixels: &mut [u8]) {
    let start = splitmix64(id);
    for (at, word) in pixels.chunks_mut(8).enumerate() {
        let value = (start ^ at as u64).wrapping_mul(GAMMA).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

/// Returns the label of sample `id`.
#[must_use]
pub const fn label(id: u64) -> i64 {
    (splitmix64(!id) >> 40) as i64 - (1 << 20)
}

/// Returns the short text of sample `id`.
#[must_use]
pub fn text(id: u64) -> Vec<u8> {
    text_of(id, splitmix64(id ^ 0x7465) as usize % (MAX_TEXT_BYTES + 1))
}

fn text_of(id: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + (splitmix64(id ^ at as u64) % 26) as u8).collect()
}

/// Returns the columns: `image`, u8 `[height, width, 3]`; `label`, i64; `text`, ragged, of at most `max_text_bytes`.
#[must_use]
pub fn columns(size: [u32; 2], max_text_bytes: u32) -> Vec<Column> {
    let image = ImageColumn { size, ..ImageColumn::default() };
    [
        ("image", ColumnKind::Image(image), DType::U8),
        ("label", ColumnKind::Int(IntColumn), DType::I64),
        ("text", ColumnKind::Bytes(BytesColumn { max_bytes: max_text_bytes }), DType::U8),
    ]
    .map(|(name, kind, dtype)| Column::new(name, name, kind, dtype))
    .into()
}

impl FeedConfig {
    /// Returns the most bytes of a text.
    #[must_use]
    pub const fn max_text_bytes(&self) -> u32 {
        match self.texts {
            TextLengths::Short => MAX_TEXT_BYTES as u32,
            TextLengths::Growing(most) => most,
        }
    }

    /// Returns the text of sample `id`.
    #[must_use]
    pub fn text(&self, id: u64) -> Vec<u8> {
        match self.texts {
            TextLengths::Short => text(id),
            TextLengths::Growing(most) => {
                let samples = u64::from(self.samples) * self.batches;
                text_of(id, (u64::from(most) * (id + 1) / samples) as usize)
            }
        }
    }

    fn session(&self) -> Session {
        let samples = u64::from(self.samples) * self.batches;
        let job = testing::job(samples, self.samples, columns(self.size, self.max_text_bytes()));
        Session { id: SessionId(1), job, world: 1, global_batch: self.samples, start: Position::START }
    }

    /// Starts a loader of these batches; returns it and the slab that they come from. `timeout` limits the wait of one
    /// call.
    ///
    /// # Panics
    /// Panics when there is no memory for the slab.
    #[must_use]
    pub fn loader(&self, timeout: Duration) -> (Loader<Maker>, Slab) {
        let session = self.session();
        let layout = Arc::new(session.layout());
        let make = match self.slab {
            SlotMemory::Shared => Slab::shared,
            SlotMemory::Private => Slab::private,
        };
        let slab = make(self.slots, layout.slot_bytes()).expect("memory for a slab");
        let maker = Maker::start(*self, slab.clone(), layout);
        (Loader::new(maker, Arc::new(session), 0, timeout, Instant::now()), slab)
    }

    /// Starts a loader of these batches on `device`; returns it and the slab that they come from. `timeout` limits the
    /// wait of one call.
    ///
    /// # Errors
    /// Returns the device's error.
    ///
    /// # Panics
    /// Panics when there is no memory for the slab.
    pub fn start(
        &self,
        device: &Device,
        options: DeviceOptions,
        timeout: Duration,
    ) -> Result<(Blocking<OnDevice<Maker>>, Slab), DeviceError> {
        let (loader, slab) = self.loader(timeout);
        Ok((Blocking::start(1, async { loader.on_device(device, options) })?, slab))
    }
}

/// A source whose thread fills slots, and which returns them as batches.
#[derive(Debug)]
pub struct Maker {
    ready: UnboundedReceiver<Batch>,
    end: Position,
}

/// Frees a slot and queues it for filling at once.
struct FreedSlot {
    slab: Slab,
    slots: Mutex<Sender<u32>>,
}

impl FreeSlot for FreedSlot {
    fn free(&self, slot: u32) {
        assert!(self.slab.release(slot), "slot {slot} was published");
        let _ = self.slots.lock().expect("no thread panics while it holds the lock").send(slot);
    }
}

impl Maker {
    fn start(config: FeedConfig, slab: Slab, layout: Arc<Layout>) -> Self {
        let (free, slots) = channel();
        for slot in 0..config.slots {
            let _ = free.send(slot);
        }
        let (to_ready, ready) = unbounded_channel();
        let freed = Arc::new(FreedSlot { slab: slab.clone(), slots: Mutex::new(free) });
        thread::spawn(move || fill_all(config, &slab, &layout, &slots, &freed, &to_ready));
        Self { ready, end: Position::new(1, 0) }
    }
}

fn fill_all(
    config: FeedConfig,
    slab: &Slab,
    layout: &Arc<Layout>,
    slots: &Receiver<u32>,
    freed: &Arc<FreedSlot>,
    ready: &UnboundedSender<Batch>,
) {
    let mut filled = vec![false; config.slots as usize];
    for number in 0..config.batches {
        // When the loader is gone, no slot is freed and no batch is taken: end too.
        let slot = loop {
            match slots.recv_timeout(Duration::from_millis(50)) {
                Ok(slot) => break slot,
                Err(_) if ready.is_closed() => return,
                Err(_) => {}
            }
        };
        let mut bytes = slab.try_take(slot).expect("a slot that came back is free");
        let first = match config.refill {
            Refill::Always => {
                bytes.fill(0xee);
                number * u64::from(config.samples)
            }
            Refill::Once => u64::from(slot * config.samples),
        };
        let is_new = !std::mem::replace(&mut filled[slot as usize], true) || config.refill == Refill::Always;
        let used_bytes = fill(config, layout, &mut bytes, number, first, is_new);
        let published = slab.read(bytes.publish()).expect("just published");
        let batch = Batch::new(published, used_bytes as u64, layout.clone(), freed.clone()).expect("a batch");
        if ready.send(batch).is_err() {
            return;
        }
    }
}

/// Fills a slot with the samples from `first` on, as the batch of that number. Returns the bytes that it takes.
fn fill(config: FeedConfig, layout: &Layout, slot: &mut [u8], number: u64, first: u64, with_pixels: bool) -> usize {
    let samples = config.samples;
    let offset = number * u64::from(samples);
    let parts = layout.split(slot, samples as usize);
    for (at, entry) in (0..).zip(parts.entries.iter_mut()) {
        *entry = Entry { id: first + at, offset: offset + at, epoch: 0, flags: 0, reserved: 0 };
    }
    for column in parts.columns.into_iter().flatten() {
        for (id, sample) in (first..).zip(column.bytes.chunks_exact_mut(column.sample_bytes)) {
            if sample.len() == size_of::<i64>() {
                sample.copy_from_slice(&label(id).to_le_bytes());
            } else if with_pixels {
                write_pixels(id, sample);
            }
        }
    }
    let texts = (first..first + u64::from(samples)).map(|id| config.text(id)).collect();
    let header = Header {
        entries: samples,
        offset,
        next_offset: offset + u64::from(samples),
        world: 1,
        ..bytemuck::Zeroable::zeroed()
    };
    layout.finish(slot, header, &[vec![], vec![], texts])
}

impl Source for Maker {
    type Batch = Batch;
    type Error = ClientError;

    async fn next(&mut self) -> Result<SourceEvent, ClientError> {
        Ok(self.ready.recv().await.map_or(SourceEvent::End(self.end), SourceEvent::Batch))
    }

    async fn explain(&mut self) -> String {
        "the maker waits for a slot".to_owned()
    }

    async fn restart(&mut self, _: Position) -> Result<(), ClientError> {
        Err(ClientError::Closed)
    }

    fn record_progress(&mut self, _: Progress) {}

    fn serving(&self) -> Serving {
        Serving::default()
    }

    async fn close(&mut self) {
        self.ready.close();
    }
}
