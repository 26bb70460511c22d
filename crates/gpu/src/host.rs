//! Batches on the host: used in their slots, with columns of normalised pictures computed beside them.

use std::sync::Arc;

use spdl_client::Batch;
use spdl_job::layout::ColumnLayout;
use spdl_types::{DType, ImageLayout};
use spdl_wire::slab::Slab;

use crate::{
    BatchPlacement, DeviceBatch, DeviceColumn, DeviceError, DeviceOptions, SequenceColumns, StreamHandle, Tensor,
    batch::RaggedOffsets,
    options::{CHANNELS, NormaliseColumn, PictureColumn, picture, table},
    outstanding::{BatchHold, OutstandingBatches},
    storage::{BatchStorage, Storage},
};

/// A batch in its slot, with the columns computed from it. It is complete as soon as it is delivered.
struct HostBatch {
    batch: Batch,
    made: Vec<Made>,
    _hold: BatchHold,
}

/// A computed column. `u64` gives it the alignment of its largest element type, 8 bytes.
struct Made(Vec<u64>);

impl Made {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl BatchStorage for HostBatch {
    fn placement(&self) -> BatchPlacement {
        BatchPlacement::Host
    }

    fn slot(&self) -> Option<(&Slab, u32)> {
        Some((self.batch.slab(), self.batch.slot()))
    }

    fn wait_on(&self, _: StreamHandle) -> Result<(), DeviceError> {
        Ok(())
    }

    fn synchronise(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&self, address: usize, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        let regions = std::iter::once(self.batch.bytes()).chain(self.made.iter().map(Made::bytes));
        let found = regions.into_iter().find_map(|region| {
            let from = address.checked_sub(region.as_ptr() as usize)?;
            region.get(from..from.checked_add(bytes)?)
        });
        Ok(found.expect("a tensor lies in its batch").to_vec())
    }
}

/// Passes batches on in place, and computes the columns that are normalised.
pub(crate) struct HostCopies {
    outstanding: Arc<OutstandingBatches>,
    normalise: Vec<(NormaliseColumn, Vec<u8>)>,
    sequences: Option<SequenceColumns>,
}

impl HostCopies {
    pub(crate) fn new(options: DeviceOptions, sequences: Option<SequenceColumns>) -> Self {
        let normalise = options.normalise.into_iter().map(|column| {
            let table = table(&column);
            (column, table)
        });
        let outstanding = OutstandingBatches::new(u32::MAX, "slots (`SPDL_SLOTS`)");
        Self { outstanding, normalise: normalise.collect(), sequences }
    }

    pub(crate) const fn outstanding(&self) -> &Arc<OutstandingBatches> {
        &self.outstanding
    }

    /// Wraps the batch, in place.
    pub(crate) fn take(&self, batch: Batch) -> Result<DeviceBatch, DeviceError> {
        self.outstanding.set_limit(batch.slab().slots());
        let layout = batch.layout().clone();
        let mut made = Vec::with_capacity(self.normalise.len());
        let mut made_of = Vec::with_capacity(self.normalise.len());
        for (column, table) in &self.normalise {
            let from = picture(&layout, &column.column)?;
            made.push(normalise(&batch, from, column, table));
            made_of.push((from, column));
        }
        let host = Arc::new(HostBatch { batch, made, _hold: self.outstanding.take() });
        let batch = &host.batch;
        let storage: Storage = host.clone();
        let columns = layout.columns().iter().enumerate().map(|(index, column)| {
            let at = made_of.iter().position(|(from, _)| from.index == index);
            match at {
                Some(at) => {
                    let (from, by) = made_of[at];
                    normalised(host.made[at].bytes().as_ptr() as usize, batch.len(), from, by, &storage)
                }
                None => in_place(batch, index, column, batch.bytes().as_ptr() as usize, &storage),
            }
        });
        let start = batch.bytes().as_ptr() as usize;
        Ok(DeviceBatch::new(batch, start, columns.collect(), self.sequences, storage.clone()))
    }
}

/// Describes a column as it lies in a batch whose first byte is at `start`, in its slot or in a copy.
pub(crate) fn in_place(
    batch: &Batch,
    index: usize,
    column: &ColumnLayout,
    start: usize,
    storage: &Storage,
) -> DeviceColumn {
    let view = batch.view();
    let inside = |bytes: &[u8]| bytes.as_ptr() as usize - batch.bytes().as_ptr() as usize;
    let values = view.column_bytes(index);
    // The address of an empty slice is arbitrary.
    let address = if values.is_empty() { start } else { start + inside(values) };
    let shape = view.values_shape(index).into_iter().map(|side| side as i64).collect();
    let offsets = view.ragged_offset_bytes(index).map(|offsets| RaggedOffsets {
        tensor: Tensor::dense(start + inside(offsets), DType::I64, vec![batch.len() as i64 + 1], storage.clone()),
        on_host: bytemuck::cast_slice(offsets).into(),
    });
    let values = Tensor::dense(address, column.dtype, shape, storage.clone());
    DeviceColumn { name: column.name.clone(), values, offsets }
}

/// Describes a column whose normalised values are at `address`.
pub(crate) fn normalised(
    address: usize,
    entries: usize,
    from: PictureColumn,
    by: &NormaliseColumn,
    storage: &Storage,
) -> DeviceColumn {
    let shape = [entries as i64, CHANNELS as i64, i64::from(from.height), i64::from(from.width)];
    let values = match by.layout {
        ImageLayout::Nchw => Tensor::dense(address, by.dtype, shape.into(), storage.clone()),
        ImageLayout::Nhwc => Tensor::channels_last(address, by.dtype, shape, storage.clone()),
    };
    DeviceColumn { name: by.column.clone(), values, offsets: None }
}

/// Normalises a column of pictures on the host, with the same result as the device's kernel.
fn normalise(batch: &Batch, from: PictureColumn, by: &NormaliseColumn, table: &[u8]) -> Made {
    let mut made = Made(vec![0; (batch.len() * from.elements() * by.dtype.bytes()).div_ceil(8)]);
    let pixels = batch.view().column_bytes(from.index);
    let out: &mut [u8] = bytemuck::cast_slice_mut(&mut made.0);
    match by.dtype.bytes() {
        2 => turn::<2>(batch, pixels, from, by, table, out),
        _ => turn::<4>(batch, pixels, from, by, table, out),
    }
    made
}

fn turn<const BYTES: usize>(
    batch: &Batch,
    pixels: &[u8],
    from: PictureColumn,
    by: &NormaliseColumn,
    table: &[u8],
    out: &mut [u8],
) {
    let (table, _) = table.as_chunks::<BYTES>();
    let (out, _) = out.as_chunks_mut::<BYTES>();
    let width = from.width as usize;
    let (pixel_step, channel_step) = steps(by.layout, from);
    let samples = pixels.chunks_exact(from.elements()).zip(out.chunks_exact_mut(from.elements()));
    for (entry, (sample, out)) in batch.entries().zip(samples) {
        let is_mirrored = by.flip.is_mirrored(entry.epoch, entry.id);
        let (sources, _) = sample.as_chunks::<CHANNELS>();
        for pixel in 0..from.pixels() {
            let source = if is_mirrored { pixel + width - 1 - 2 * (pixel % width) } else { pixel };
            for (channel, byte) in sources[source].iter().enumerate() {
                out[pixel * pixel_step + channel * channel_step] = table[channel * 256 + *byte as usize];
            }
        }
    }
}

/// Returns the distance, in elements, from one pixel to the next, and from one channel to the next.
pub(crate) const fn steps(layout: ImageLayout, from: PictureColumn) -> (usize, usize) {
    match layout {
        ImageLayout::Nhwc => (CHANNELS, 1),
        ImageLayout::Nchw => (1, from.pixels()),
    }
}
