//! Tests of batches that stay on the host, through the same interface as those on a device.

use std::time::Duration;

use spdl_client::{Batch, ClientError, Loader, Progress, Serving, Source, SourceEvent};
use spdl_gpu::{BatchPlacement, Device, DeviceError, DeviceOptions, Flip, LoaderExt, NormaliseColumn, StreamHandle};
use spdl_gpu_tests::feed::{FeedConfig, Maker, SlotMemory, label, text, write_pixels};
use spdl_types::{DType, ImageLayout, Normalise, Position};
use spdl_wire::slab::Slab;

/// Returns a loader of `batches` batches of 24 pictures of 2 x 3 pixels, and the slab of `slots` slots that holds them.
fn loader(batches: u64, slots: u32) -> (Loader<Maker>, Slab) {
    let config =
        FeedConfig { size: [2, 3], samples: 24, batches, slots, slab: SlotMemory::Private, ..Default::default() };
    config.loader(Duration::from_secs(60))
}

#[tokio::test]
async fn on_the_host_a_tensor_lies_in_its_slot_and_keeps_it() {
    let (loader, slab) = loader(1, 2);
    let mut loader = loader.on_device(&Device::host(), DeviceOptions::default()).unwrap();
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
    let labels = batch.column("label").unwrap().values();
    let expected: Vec<u8> = (0..24).flat_map(|id| label(id).to_le_bytes()).collect();
    assert_eq!(labels.to_host().unwrap(), expected);
    let texts = batch.column("text").unwrap();
    let offsets = texts.offsets().unwrap();
    assert_eq!((offsets.shape(), offsets.dtype()), ([25].as_slice(), DType::I64));
    assert_eq!(texts.values().shape(), [(0..24).map(|id| text(id).len() as i64).sum::<i64>()]);
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
        let column = NormaliseColumn { column: "image".into(), by, dtype: DType::F32, layout, flip };
        let options = DeviceOptions { normalise: vec![column], ..DeviceOptions::default() };
        let mut loader = loader(1, 1).0.on_device(&Device::host(), options).unwrap();
        let batch = loader.next().await.unwrap().unwrap();
        let image = batch.column("image").unwrap().values();
        assert_eq!(image.shape(), [24, 3, 2, 3]);
        let made = image.to_host().unwrap();
        let values: &[f32] = bytemuck::cast_slice(&made);
        for (sample, entry) in batch.entries().iter().enumerate() {
            let mut pixels = [0; 18];
            write_pixels(entry.id, &mut pixels);
            for (row, column, channel) in (0..18).map(|at| (at / 9, at / 3 % 3, at % 3)) {
                let seen = if flip == Flip::Always { 2 - column } else { column };
                let byte = pixels[row * 9 + seen * 3 + channel];
                let expected = (f32::from(byte) / 255.0 - by.mean[channel]) / by.std[channel];
                let index = [sample, channel, row, column].map(|index| index as i64);
                let at: i64 = index.iter().zip(image.strides()).map(|(index, stride)| index * stride).sum();
                assert_eq!(values[at as usize], expected, "{sample} {row} {column} {channel}");
            }
        }
    }
}

/// A source whose batches never end: after the last one it waits.
struct Stalling(Maker);

impl Source for Stalling {
    type Batch = Batch;
    type Error = ClientError;

    async fn next(&mut self) -> Result<SourceEvent, ClientError> {
        match self.0.next().await? {
            SourceEvent::End(_) => std::future::pending().await,
            batch => Ok(batch),
        }
    }

    async fn explain(&mut self) -> String {
        "no worker fills a slot".into()
    }

    async fn restart(&mut self, from: Position) -> Result<(), ClientError> {
        self.0.restart(from).await
    }

    fn record_progress(&mut self, progress: Progress) {
        self.0.record_progress(progress);
    }

    fn serving(&self) -> Serving {
        self.0.serving()
    }

    async fn close(&mut self) {
        self.0.close().await;
    }
}

#[tokio::test]
async fn a_trainer_that_holds_all_slots_gets_the_reason() {
    let (loader, _slab) = loader(2, 2);
    let loader = loader.try_map_source(|maker| Ok::<_, ClientError>(Stalling(maker))).unwrap();
    let mut loader = loader.on_device(&Device::host(), DeviceOptions::default()).unwrap();
    let first = loader.next().await.unwrap().unwrap();
    let error = {
        let _second = loader.next().await.unwrap().unwrap();
        loader.next_within(Duration::from_millis(1)).await.unwrap_err()
    };
    assert!(error.is_retryable() && error.hint().is_some());
    let error = error.to_string();
    assert!(error.contains("the trainer holds 2 batches, and there are 2 slots"), "{error}");
    let error = loader.next_within(Duration::from_millis(1)).await.unwrap_err().to_string();
    assert!(error.contains("no worker fills a slot"), "{error}");
    drop(first);
}

#[tokio::test]
async fn an_error_of_the_loader_keeps_its_kind_on_a_device() {
    let mut loader = loader(1, 1).0.on_device(&Device::host(), DeviceOptions::default()).unwrap();
    assert_eq!(loader.go_to(Position::START).await.unwrap_err(), DeviceError::Client(ClientError::Closed));
    assert_eq!(loader.next().await.unwrap_err(), ClientError::Closed.into());
}

#[tokio::test]
async fn a_device_that_is_none_and_options_that_do_not_fit_are_errors() {
    assert_eq!(Device::open("gpu").unwrap_err(), DeviceError::Name { name: "gpu".into() });
    assert_eq!("cpu".parse::<Device>().unwrap().placement(), BatchPlacement::Host);
    let options = DeviceOptions { buffers: 0, ..DeviceOptions::default() };
    let error = loader(1, 1).0.on_device(&Device::host(), options).unwrap_err();
    assert!(matches!(error, DeviceError::Option { option: "buffers", .. }), "{error}");
}
