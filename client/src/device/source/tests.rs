//! Tests of batches on the host, over a source that the test fills.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use spdl_shard::{
    Position,
    job::{DType, ImageLayout, Job, Normalise},
};
use spdl_wire::{
    messages::{Session, SessionId},
    slab::Slab,
};

use super::*;
use crate::{
    batch::tests::{Filler, columns},
    core::tests::job,
    device::{BatchPlacement, DeviceError, Flip, NormaliseColumn, StreamHandle},
};

/// A source that yields the batches it was created with, then waits for ever.
#[derive(Debug)]
struct Fed(VecDeque<Batch>);

impl Source for Fed {
    type Batch = Batch;

    async fn next(&mut self) -> Result<SourceEvent, ClientError> {
        match self.0.pop_front() {
            Some(batch) => Ok(SourceEvent::Batch(batch)),
            None => std::future::pending().await,
        }
    }

    async fn explain(&mut self) -> String {
        "nobody fills a slot".into()
    }

    async fn restart(&mut self, _: Position) -> Result<(), ClientError> {
        Ok(())
    }

    fn delivered(&mut self, _: Progress) {}

    fn serving(&self) -> Serving {
        Serving::default()
    }

    async fn close(&mut self) {}
}

/// Returns a loader of `batches` batches of 24 samples, and the slab that holds them.
fn loader(batches: u64, slots: u32) -> (Loader<Fed>, Slab) {
    let mut columns = columns();
    columns[0].dtype = DType::U8;
    let slab = Slab::private(slots, 1 << 14).unwrap();
    let filler = Filler::of(slab.clone(), &columns, 24);
    let fed = (0..batches).map(|at| filler.batch(Position::new(0, at * 24), 24)).collect();
    let session =
        Session { id: SessionId(1), job: Job { columns, ..job() }, world: 1, global_batch: 24, start: Position::START };
    let loader = Loader::new(Fed(fed), Arc::new(session), 0, Duration::from_secs(60), Instant::now());
    (loader, slab)
}

fn on_host(loader: Loader<Fed>, options: DeviceOptions) -> Loader<OnDevice<Fed>> {
    loader.on_device(&Device::host(), options).unwrap()
}

#[tokio::test]
async fn on_the_host_a_tensor_lies_in_its_slot_and_keeps_it() {
    let (loader, slab) = loader(1, 2);
    let mut loader = on_host(loader, DeviceOptions::default());
    let batch = loader.next().await.unwrap().unwrap();
    assert_eq!((loader.position(), loader.receipt()), (Position::new(0, 24), batch.receipt()));
    assert_eq!(batch.placement(), BatchPlacement::Host);
    batch.wait_on(StreamHandle::LEGACY).unwrap();
    batch.synchronise().unwrap();
    let inside = slab.as_ptr() as usize..slab.as_ptr() as usize + slab.bytes();
    for column in batch.columns() {
        assert!(inside.contains(&column.values().address()), "column `{}`", column.name());
    }
    let image = batch.column("image").unwrap().values().clone();
    assert_eq!((image.shape(), image.strides()), ([24, 2, 3, 3].as_slice(), [18, 9, 3, 1].as_slice()));
    assert_eq!((image.dlpack_type(), image.bytes()), ((1, 8), 24 * 18));
    let label = batch.column("label").unwrap().values();
    let expected: Vec<u8> = (0..24i64).flat_map(|at| (at - 1).to_le_bytes()).collect();
    assert_eq!(label.to_host().unwrap(), expected);
    let text = batch.column("text").unwrap();
    let offsets = text.offsets().unwrap();
    assert_eq!((offsets.shape(), offsets.dtype()), ([25].as_slice(), DType::I64));
    assert_eq!(text.values().shape(), [(0..24).sum::<i64>()]);
    assert!(batch.column("imago").unwrap_err().to_string().contains("`text`"));
    drop(batch);
    assert_eq!(slab.free_slots(), 1, "a tensor of the batch lives");
    drop(image);
    assert_eq!(slab.free_slots(), 2);
}

#[tokio::test]
async fn on_the_host_pictures_are_normalised_mirrored_and_laid_out_as_asked() {
    let by = Normalise { mean: [0.5, 0.25, 0.0], std: [0.5, 0.25, 1.0] };
    for (layout, flip) in [(ImageLayout::Nchw, Flip::Never), (ImageLayout::Nhwc, Flip::Always)] {
        let (loader, slab) = loader(1, 1);
        let column = NormaliseColumn { column: "image".into(), by, dtype: DType::F32, layout, flip };
        let options = DeviceOptions { normalise: vec![column], ..DeviceOptions::default() };
        let mut loader = on_host(loader, options);
        let batch = loader.next().await.unwrap().unwrap();
        let slot = slab.read(0).expect("a batch is in the only slot");
        let image = batch.column("image").unwrap().values();
        assert_eq!(image.shape(), [24, 3, 2, 3]);
        let start = first_column_offset();
        let made = image.to_host().unwrap();
        let values: &[f32] = bytemuck::cast_slice(&made);
        for sample in 0..24 {
            for (row, column, channel) in (0..18).map(|at| (at / 9, at / 3 % 3, at % 3)) {
                let seen = if flip == Flip::Always { 2 - column } else { column };
                let byte = slot[start + sample * 18 + row * 9 + seen * 3 + channel];
                let expected = (f32::from(byte) / 255.0 - by.mean[channel]) / by.std[channel];
                let index = [sample, channel, row, column].map(|index| index as i64);
                let at: i64 = index.iter().zip(image.strides()).map(|(index, stride)| index * stride).sum();
                assert_eq!(values[at as usize], expected, "{sample} {row} {column} {channel}");
            }
        }
    }
}

/// Returns the offset of the first column in a slot.
fn first_column_offset() -> usize {
    let mut columns = columns();
    columns[0].dtype = DType::U8;
    match spdl_wire::layout::Layout::new(&columns, 24).columns()[0].place {
        spdl_wire::layout::Place::Fixed { offset, .. } => offset,
        spdl_wire::layout::Place::Ragged { .. } => unreachable!("pictures have one size"),
    }
}

#[tokio::test]
async fn a_trainer_that_holds_all_slots_is_told_so() {
    let (loader, _slab) = loader(2, 2);
    let mut loader = on_host(loader, DeviceOptions::default());
    let first = loader.next().await.unwrap().unwrap();
    let error = {
        let _second = loader.next().await.unwrap().unwrap();
        loader.next_within(Duration::from_millis(1)).await.unwrap_err().to_string()
    };
    assert!(error.contains("the trainer holds 2 batches, and there are 2 slots"), "{error}");
    let error = loader.next_within(Duration::from_millis(1)).await.unwrap_err().to_string();
    assert!(error.contains("nobody fills a slot"), "{error}");
    drop(first);
}

#[tokio::test]
async fn a_device_that_is_none_and_options_that_do_not_fit_are_errors() {
    assert_eq!(Device::open("gpu").unwrap_err(), DeviceError::Name { name: "gpu".into() });
    assert_eq!("cpu".parse::<Device>().unwrap().placement(), BatchPlacement::Host);
    let (loader, _slab) = loader(0, 1);
    let options = DeviceOptions { buffers: 0, ..DeviceOptions::default() };
    let error = loader.on_device(&Device::host(), options).unwrap_err();
    assert!(matches!(error, ClientError::Device(DeviceError::Option { option: "buffers", .. })), "{error}");
}
