//! The streams, buffers and kernels with which a loader puts batches on one device.

use std::sync::Arc;

use parking_lot::Mutex;
use spdl_client::Batch;
use spdl_core::layout::Layout;
use spdl_wire::slab::Slab;
use tokio::sync::mpsc::UnboundedSender;

use super::{
    driver::{Argument, Context, CudaEvent, DeviceMemory, HostMemory, Kernel, PageLock, Stream},
    kernel,
    pending_copy::PendingCopy,
};
use crate::{
    BatchPlacement, DeviceBatch, DeviceError, DeviceOptions, StreamHandle,
    host::{in_place, normalised, steps},
    options::{Flip, NormaliseColumn, PictureColumn, picture, table},
    outstanding::BatchHold,
    storage::{BatchStorage, Storage},
};

/// Alignment of the parts of a buffer, in bytes: that of the device's own allocations.
const ALIGN: usize = 256;

const fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// The streams and kernels of a loader on a device.
pub(crate) struct CopyStream {
    context: Arc<Context>,
    copies: Arc<Stream>,
    /// A separate stream for kernels, so that the next copy does not wait for a kernel.
    kernels: Option<Stream>,
    normalise: Vec<Normaliser>,
    capacity: usize,
    page_lock_max_bytes: u64,
}

/// Normalises one column.
struct Normaliser {
    by: NormaliseColumn,
    from: PictureColumn,
    table: DeviceMemory,
    kernel: Kernel,
}

impl Normaliser {
    /// Returns the bytes of the result for this many samples.
    const fn made_bytes(&self, entries: usize) -> usize {
        entries * self.from.elements() * self.by.dtype.bytes()
    }
}

/// The memory for one batch on the device, with the events of its users.
///
/// ```text
/// the batch as it is in its slot | flips of all columns | computed columns, one after the other
/// ```
pub(crate) struct Buffer {
    memory: DeviceMemory,
    /// Offset of the flips. The room for the batch lies before it.
    flips_at: usize,
    flips: Option<HostMemory>,
    /// Recorded after the copy.
    copied: Arc<CudaEvent>,
    /// Recorded after the copy and the kernels: the batch is complete.
    ready: Arc<CudaEvent>,
    /// Recorded on the trainer's streams when it dropped the batch.
    released: Vec<CudaEvent>,
}

impl Buffer {
    /// Returns the number of bytes that a batch in it may have.
    pub(crate) const fn room(&self) -> usize {
        self.flips_at
    }

    /// Returns whether the host may write its part of the buffer again.
    pub(crate) fn is_settled(&self) -> Result<bool, DeviceError> {
        self.copied.is_done()
    }
}

/// Waits for the work that the trainer queued on its streams, which still uses the memory. A buffer is dropped when its
/// loader is gone.
impl Drop for Buffer {
    fn drop(&mut self) {
        for event in std::iter::once(&*self.ready).chain(&self.released) {
            let _ = event.synchronise();
        }
    }
}

impl CopyStream {
    pub(crate) fn new(context: &Arc<Context>, layout: &Layout, options: DeviceOptions) -> Result<Self, DeviceError> {
        let mut normalise = Vec::with_capacity(options.normalise.len());
        for by in options.normalise {
            let table = table(&by);
            let on_device = DeviceMemory::new(context, table.len(), "a table")?;
            on_device.fill(&table)?;
            let bytes = by.dtype.bytes();
            let kernel = Kernel::new(context, &kernel::ptx(bytes), kernel::name(bytes))?;
            normalise.push(Normaliser { from: picture(layout, &by.column)?, by, table: on_device, kernel });
        }
        let kernels = if normalise.is_empty() { None } else { Some(Stream::new(context)?) };
        Ok(Self {
            context: context.clone(),
            copies: Arc::new(Stream::new(context)?),
            kernels,
            normalise,
            capacity: layout.capacity() as usize,
            page_lock_max_bytes: options.page_lock_max_bytes,
        })
    }

    /// Allocates a buffer with room for a batch of `room` bytes.
    pub(crate) fn buffer(&self, room: usize) -> Result<Buffer, DeviceError> {
        let flips_at = align(room);
        let flip_bytes = self.flipping().count() * self.capacity;
        let made: usize = self.normalise.iter().map(|each| align(each.made_bytes(self.capacity))).sum();
        let memory = DeviceMemory::new(&self.context, flips_at + align(flip_bytes) + made, "a batch")?;
        let flips = if flip_bytes > 0 { Some(HostMemory::new(&self.context, flip_bytes)?) } else { None };
        Ok(Buffer {
            memory,
            flips_at,
            flips,
            copied: Arc::new(CudaEvent::new(&self.context)?),
            ready: Arc::new(CudaEvent::new(&self.context)?),
            released: Vec::new(),
        })
    }

    /// Page-locks a slab. Returns `None` and logs a warning when that is impossible; copies from the slab are then
    /// slower.
    pub(crate) fn page_lock(&self, slab: &Slab) -> Option<PageLock> {
        let (bytes, most) = (slab.bytes() as u64, self.page_lock_max_bytes);
        if bytes > most {
            tracing::warn!("slab of {bytes} bytes is not page-locked: at most {most} bytes are; copies are slower");
            return None;
        }
        match PageLock::new(&self.context, slab.clone()) {
            Ok(lock) => Some(lock),
            Err(error) => {
                tracing::warn!("slab of {bytes} bytes is not page-locked, so copies are slower: {error}");
                None
            }
        }
    }

    /// Returns the columns that can be mirrored.
    fn flipping(&self) -> impl Iterator<Item = &Normaliser> {
        self.normalise.iter().filter(|each| each.by.flip != Flip::Never)
    }

    /// Queues the copy of a batch into a buffer that is settled and large enough, and the kernels that read it. Blocks
    /// no thread.
    pub(crate) fn put(
        &self,
        batch: Batch,
        mut buffer: Buffer,
        back: &UnboundedSender<Buffer>,
    ) -> Result<(PendingCopy, CopiedBatch), DeviceError> {
        if let Some(flips) = &mut buffer.flips {
            let rows = flips.bytes_mut().chunks_exact_mut(self.capacity);
            for (each, row) in self.flipping().zip(rows) {
                for (flag, entry) in row.iter_mut().zip(batch.entries()) {
                    *flag = u8::from(each.by.flip.is_mirrored(entry.epoch, entry.id));
                }
            }
        }
        for event in buffer.released.drain(..) {
            self.copies.wait(&event)?;
        }
        // The kernels of the previous batch may still read this buffer, if the trainer never waited for that batch.
        self.copies.wait(&buffer.ready)?;
        let flips = buffer.flips.as_ref().map(|flips| (flips, buffer.flips_at));
        let pending = PendingCopy::start(batch, flips, &self.copies, &buffer.memory, &buffer.copied)?;
        let made = self.make(pending.batch(), &buffer)?;
        let context = self.context.clone();
        let start = buffer.memory.address();
        let held = Arc::new(Held {
            context,
            buffer: Some(buffer),
            uses: Mutex::new(Vec::new()),
            back: back.clone(),
            hold: Mutex::new(None),
        });
        let storage: Storage = held.clone();
        let batch = pending.batch();
        let columns = batch.layout().columns().iter().enumerate().map(|(index, column)| {
            let made_of = self.normalise.iter().zip(&made).find(|(each, _)| each.from.index == index);
            match made_of {
                Some((each, address)) => normalised(*address, batch.len(), each.from, &each.by, &storage),
                None => in_place(batch, index, column, start, &storage),
            }
        });
        let batch = DeviceBatch::new(batch, start, columns.collect(), storage);
        Ok((pending, CopiedBatch { batch, held }))
    }

    /// Queues the kernels, and records that the batch is ready. Returns the address of each computed column.
    fn make(&self, batch: &Batch, buffer: &Buffer) -> Result<Vec<usize>, DeviceError> {
        let Some(kernels) = &self.kernels else {
            self.copies.record(&buffer.ready)?;
            return Ok(Vec::new());
        };
        kernels.wait(&buffer.copied)?;
        let start = buffer.memory.address();
        let mut flips = start + buffer.flips_at;
        let mut to = flips + align(self.flipping().count() * self.capacity);
        let mut made = Vec::with_capacity(self.normalise.len());
        for each in &self.normalise {
            let from = start + offset(batch, each.from.index);
            let row = (each.by.flip != Flip::Never).then_some(flips);
            flips += row.map_or(0, |_| self.capacity);
            super::launch::normalise(
                kernels,
                &each.kernel,
                batch.len(),
                grid_rows(each.from),
                self.arguments(each, from, to, row),
            )?;
            made.push(to);
            to += align(each.made_bytes(self.capacity));
        }
        kernels.record(&buffer.ready)?;
        Ok(made)
    }

    /// Returns the kernel's arguments, in the order of `normalise.ptx`.
    fn arguments(&self, each: &Normaliser, from: usize, to: usize, flips: Option<usize>) -> [Argument; 8] {
        let bytes = each.by.dtype.bytes();
        let (pixel_step, channel_step) = steps(each.by.layout, each.from);
        let short = |number: usize| Argument::Short(u32::try_from(number).expect("a picture has less than 2^32 bytes"));
        [
            Argument::Long(from as u64),
            Argument::Long(to as u64),
            Argument::Long(each.table.address() as u64),
            Argument::Long(flips.unwrap_or(0) as u64),
            Argument::Long((channel_step * bytes) as u64),
            short(pixel_step * bytes),
            short(each.from.pixels()),
            Argument::Short(each.from.width),
        ]
    }
}

impl CopyStream {
    /// Returns an event recorded after all work queued so far.
    pub(crate) fn mark(&self) -> Result<CudaEvent, DeviceError> {
        let mark = CudaEvent::new(&self.context)?;
        self.kernels.as_ref().unwrap_or(&self.copies).record(&mark)?;
        Ok(mark)
    }
}

/// Waits for the kernels, which still use their tables and code.
impl Drop for CopyStream {
    fn drop(&mut self) {
        if let Some(kernels) = &self.kernels {
            let _ = kernels.synchronise();
        }
    }
}

/// Returns the number of blocks for the pixels of a sample.
fn grid_rows(from: PictureColumn) -> u32 {
    u32::try_from(from.pixels())
        .map_or(kernel::MAX_BLOCKS_Y, |pixels| pixels.div_ceil(kernel::BLOCK).clamp(1, kernel::MAX_BLOCKS_Y))
}

/// Returns the offset of a column of pictures in its batch.
fn offset(batch: &Batch, index: usize) -> usize {
    match batch.layout().columns()[index].place {
        spdl_core::layout::Place::Fixed { offset, .. } => offset,
        spdl_core::layout::Place::Ragged { .. } => unreachable!("pictures have one size"),
    }
}

/// A batch on the device that the trainer does not have yet.
pub(crate) struct CopiedBatch {
    batch: DeviceBatch,
    held: Arc<Held>,
}

impl CopiedBatch {
    /// Passes the batch on to the trainer, who holds it until the last of its tensors is dropped.
    pub(crate) fn hand(self, hold: BatchHold) -> DeviceBatch {
        *self.held.hold.lock() = Some(hold);
        self.batch
    }
}

/// A batch on the device. It keeps its buffer until the last of its tensors is dropped.
struct Held {
    context: Arc<Context>,
    /// `None` only while this is being dropped.
    buffer: Option<Buffer>,
    uses: Mutex<Vec<Use>>,
    back: UnboundedSender<Buffer>,
    hold: Mutex<Option<BatchHold>>,
}

/// A stream of the trainer that waits for the batch, and the event to record on it when the batch is dropped.
struct Use {
    stream: StreamHandle,
    released: CudaEvent,
}

impl Held {
    fn buffer(&self) -> &Buffer {
        self.buffer.as_ref().expect("a batch has its buffer until it is dropped")
    }
}

impl BatchStorage for Held {
    fn placement(&self) -> BatchPlacement {
        self.context.placement()
    }

    fn slot(&self) -> Option<(&Slab, u32)> {
        None
    }

    fn wait_on(&self, stream: StreamHandle) -> Result<(), DeviceError> {
        let mut uses = self.uses.lock();
        if uses.iter().any(|each| each.stream == stream) {
            return Ok(());
        }
        let released = CudaEvent::new(&self.context)?;
        self.context.make_wait(stream, &self.buffer().ready)?;
        uses.push(Use { stream, released });
        Ok(())
    }

    fn synchronise(&self) -> Result<(), DeviceError> {
        self.buffer().ready.synchronise()
    }

    fn read(&self, address: usize, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        self.synchronise()?;
        self.buffer().memory.read(address, bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(mut buffer) = self.buffer.take() else { return };
        for Use { stream, released } in self.uses.get_mut().drain(..) {
            // The thread that drops the batch may not be the one whose default stream is meant. The device's default
            // stream waits for those of all threads.
            let stream = if stream == StreamHandle::PER_THREAD { StreamHandle::LEGACY } else { stream };
            // Recording fails only when the device is lost, and then nothing uses the buffer.
            if self.context.record(stream, &released).is_ok() {
                buffer.released.push(released);
            }
        }
        // If the loader is gone, this drops the buffer, which frees its memory.
        let _ = self.back.send(buffer);
    }
}
