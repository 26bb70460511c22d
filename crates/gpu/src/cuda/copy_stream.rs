//! The streams, buffers and kernels with which a loader puts batches on one device.

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use spdl_client::Batch;
use spdl_job::layout::Layout;

use super::{
    batch_storage::{BufferReturn, CopiedBatch, DeviceBatchStorage},
    buffer::Buffer,
    completion::CompletionRequest,
    driver::{Argument, Context, CudaEvent, DeviceMemory, HostMemory, Kernel, LockedMemory, Stream},
    kernel,
    page_locks::LockedPages,
    pending_copy::PendingCopy,
};
use crate::{
    DeviceBatch, DeviceError, DeviceOptions, SequenceColumns,
    host::{in_place, normalised, steps},
    options::{Flip, NormaliseColumn, PictureColumn, picture, table},
    storage::Storage,
};

/// Alignment of the parts of a buffer, in bytes: that of the device's own allocations.
const ALIGN: usize = 256;

/// The part of the free memory that a loader takes beyond what the smallest batches need: a sixteenth.
const FREE_SHARE: u64 = 16;

const fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// The streams and kernels of a loader on a device.
pub(crate) struct CopyStream {
    context: Arc<Context>,
    copies: Arc<Stream>,
    /// A separate stream for kernels, so that the next copy does not wait for a kernel.
    kernels: Option<Arc<Stream>>,
    normalise: Vec<Normaliser>,
    sequences: Option<SequenceColumns>,
    capacity: usize,
    /// The least and the most bytes that a batch of the job takes.
    rooms: RangeInclusive<usize>,
    /// The flips of buffers that are gone. Freeing page-locked memory waits for the whole device, so they stay until
    /// the loader is closed.
    spare_flips: Mutex<Vec<HostMemory>>,
    /// Whether the log has a warning that memory for the flips could not be page-locked.
    has_warned: AtomicBool,
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

impl CopyStream {
    pub(crate) fn new(
        context: &Arc<Context>,
        layout: &Layout,
        options: DeviceOptions,
        sequences: Option<SequenceColumns>,
    ) -> Result<Self, DeviceError> {
        let kernels = if options.normalise.is_empty() { None } else { Some(Arc::new(Stream::new(context)?)) };
        let mut normalise = Vec::with_capacity(options.normalise.len());
        for (by, kernels) in options.normalise.into_iter().zip(kernels.iter().cycle()) {
            let table = table(&by);
            let on_device = DeviceMemory::new(kernels, table.len(), "a table")?;
            on_device.fill(&table, kernels)?;
            let bytes = by.dtype.bytes();
            let kernel = Kernel::new(context, &kernel::ptx(bytes), kernel::name(bytes))?;
            normalise.push(Normaliser { from: picture(layout, &by.column)?, by, table: on_device, kernel });
        }
        Ok(Self {
            context: context.clone(),
            copies: Arc::new(Stream::new(context)?),
            kernels,
            normalise,
            sequences,
            capacity: layout.capacity() as usize,
            rooms: layout.fixed_bytes()..=layout.slot_bytes(),
            spare_flips: Mutex::default(),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Allocates the buffers of a loader. They have room for the largest batch of the job if that takes little more
    /// memory than room for the smallest, so that no buffer has to be replaced in the middle of a training.
    pub(crate) fn buffers(&self, count: u32) -> Result<VecDeque<Buffer>, DeviceError> {
        let (least, most) = (*self.rooms.start(), *self.rooms.end());
        let (free_bytes, _) = self.context.memory()?;
        let is_affordable = u64::from(count) * (most - least) as u64 <= free_bytes / FREE_SHARE;
        let room = if is_affordable { most } else { least };
        (0..count).map(|_| self.buffer(self.memory(room)?, room, None)).collect()
    }

    /// Replaces a settled buffer that has too little room by a larger one, with a quarter more room than needed, so
    /// that few replacements happen. The old buffer is freed first only if there is no memory for both.
    pub(crate) fn enlarge(&self, mut buffer: Buffer, bytes: usize) -> Result<Buffer, DeviceError> {
        let ample = (bytes + bytes / 4).clamp(bytes, bytes.max(*self.rooms.end()));
        let flips = buffer.flips.take();
        for room in [ample, bytes] {
            match self.memory(room) {
                Err(error) if error.is_out_of_memory() => {}
                memory => return self.buffer(memory?, room, flips),
            }
        }
        drop(buffer);
        // A pool can reuse the old memory only after the stream has passed its release.
        self.copies.synchronise()?;
        match self.memory(bytes) {
            Ok(memory) => self.buffer(memory, bytes, flips),
            Err(error) => {
                self.spare_flips.lock().extend(flips);
                Err(error)
            }
        }
    }

    /// Allocates the device's memory of a buffer.
    fn memory(&self, room: usize) -> Result<DeviceMemory, DeviceError> {
        let made: usize = self.normalise.iter().map(|each| align(each.made_bytes(self.capacity))).sum();
        DeviceMemory::new(&self.copies, align(room) + align(self.flip_bytes()) + made, "a batch")
    }

    fn flip_bytes(&self) -> usize {
        self.flipping().count() * self.capacity
    }

    /// Creates a buffer in memory of [`CopyStream::memory`] for the same `room`.
    fn buffer(&self, memory: DeviceMemory, room: usize, flips: Option<HostMemory>) -> Result<Buffer, DeviceError> {
        let flip_bytes = self.flip_bytes();
        Ok(Buffer {
            memory,
            flips_at: align(room),
            flips: flips.or_else(|| (flip_bytes > 0).then(|| self.flips(flip_bytes))),
            ready: Arc::new(CudaEvent::new(&self.context)?),
            released: Vec::new(),
            copy: 0,
        })
    }

    /// Allocates memory for the flips of a batch. A system may refuse page-locked memory: with confidential computing,
    /// or when memory is short. If the device itself has failed, the next call reports that.
    fn flips(&self, bytes: usize) -> HostMemory {
        LockedMemory::new(&self.context, bytes).map_or_else(
            |error| {
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!("memory for flips is not page-locked, so copies are slower: {error}");
                }
                HostMemory::pageable(bytes)
            },
            HostMemory::Locked,
        )
    }

    /// Returns the columns that can be mirrored.
    fn flipping(&self) -> impl Iterator<Item = &Normaliser> {
        self.normalise.iter().filter(|each| each.by.flip != Flip::Never)
    }

    /// Queues the copy of a batch, with this number, into a buffer that is settled and large enough, and the kernels
    /// that read it. `pages` are those of the batch's slot. The thread for completions frees the slot when the copy is
    /// done. Blocks this thread until the bytes are read if the slot or the buffer's flips are not page-locked.
    pub(crate) fn put(
        &self,
        batch: Batch,
        pages: LockedPages,
        number: u64,
        mut buffer: Buffer,
        back: &BufferReturn,
    ) -> Result<CopiedBatch, DeviceError> {
        buffer.copy = number;
        let mut pending = PendingCopy::new(batch, pages, self.copies.clone());
        let queued = self.queue(&mut pending, &mut buffer);
        let made = match queued {
            Ok(made) => made,
            Err(error) => {
                // The copies queued before the error still read the slot and write to the buffer.
                back.completions.send(CompletionRequest::Copy(number, pending));
                back.completions.send(CompletionRequest::Free(buffer));
                return Err(error);
            }
        };
        let copied = self.batch(pending.batch(), &made, buffer, back);
        back.completions.send(CompletionRequest::Copy(number, pending));
        Ok(copied)
    }

    /// Queues the copy and the kernels. Returns the address of each computed column.
    fn queue(&self, pending: &mut PendingCopy, buffer: &mut Buffer) -> Result<Vec<usize>, DeviceError> {
        if let Some(flips) = &mut buffer.flips {
            let rows = flips.bytes_mut().chunks_exact_mut(self.capacity);
            for (each, row) in self.flipping().zip(rows) {
                for (flag, entry) in row.iter_mut().zip(pending.batch().entries()) {
                    *flag = u8::from(each.by.flip.is_mirrored(entry.epoch, entry.id));
                }
            }
        }
        for event in buffer.released.drain(..) {
            self.copies.wait(&event)?;
        }
        if self.kernels.is_some() {
            // The kernels of the previous batch may still read this buffer, if the trainer never waited for that batch.
            self.copies.wait(&buffer.ready)?;
        }
        let flips = buffer.flips.as_ref().map(|flips| (flips, buffer.flips_at));
        let copied = pending.start(flips, &buffer.memory)?;
        let Some(kernels) = &self.kernels else {
            buffer.ready = copied.clone();
            return Ok(Vec::new());
        };
        kernels.wait(copied)?;
        let made = self.launch(kernels, pending.batch(), buffer);
        if made.is_err() {
            // No event is recorded after the kernels that have begun, and the buffer is about to be freed.
            let _ = kernels.synchronise();
        }
        made
    }

    /// Describes the batch whose copy into `buffer` is queued.
    fn batch(&self, batch: &Batch, made: &[usize], buffer: Buffer, back: &BufferReturn) -> CopiedBatch {
        let start = buffer.memory.address();
        let held = DeviceBatchStorage::new(self.context.clone(), buffer, back.clone());
        let storage: Storage = held.clone();
        let columns = batch.layout().columns().iter().enumerate().map(|(index, column)| {
            let made_of = self.normalise.iter().zip(made).find(|(each, _)| each.from.index == index);
            match made_of {
                Some((each, address)) => normalised(*address, batch.len(), each.from, &each.by, &storage),
                None => in_place(batch, index, column, start, &storage),
            }
        });
        let batch = DeviceBatch::new(batch, start, columns.collect(), self.sequences, storage);
        CopiedBatch { batch, held }
    }

    /// Queues the kernels, and records that the batch is ready. Returns the address of each computed column.
    fn launch(&self, kernels: &Stream, batch: &Batch, buffer: &Buffer) -> Result<Vec<usize>, DeviceError> {
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
        spdl_job::layout::Place::Fixed { offset, .. } => offset,
        spdl_job::layout::Place::Ragged { .. } => unreachable!("pictures have one size"),
    }
}
