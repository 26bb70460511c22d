//! Tests of correctness when nothing fails.

use std::{
    thread,
    time::{Duration, Instant},
};

use spdl_client::{Blocking, ClientError};
use spdl_gpu::{BatchPlacement, Device, DeviceBatch, DeviceError, DeviceOptions, OnDevice};
use spdl_gpu_tests::{
    checks::{self, TIMEOUT, compare},
    feed::{FeedConfig, Maker, SlotMemory, text},
    raw::TrainerContext,
    torn::{self, StreamCase},
};

use crate::harness::{WAIT, check_clean, report, stand_in_test};

fn cuda(ordinal: u32) -> Device {
    Device::cuda(ordinal).expect("the stand-in has this device")
}

fn next(loader: &mut Blocking<OnDevice<Maker>>) -> DeviceBatch {
    loader.next_batch().expect("a batch").expect("not the end")
}

stand_in_test!(copies_are_right_in_order_and_never_of_memory_that_is_not_locked, "seed=1", {
    let device = cuda(0);
    for slab in [SlotMemory::Shared, SlotMemory::Private] {
        let config = checks::of_slab(FeedConfig { size: [40, 41], ..FeedConfig::default() }, slab);
        assert_eq!(checks::copies(&device, config), Ok(30));
    }
    drop(device);
    let report = check_clean();
    assert_eq!((&report["copies"], &report["unlocked_copies"]), (&60.into(), &0.into()));
});

stand_in_test!(
    a_batch_that_is_dropped_at_once_stays_whole_for_what_the_trainer_put_on_its_stream,
    "delay_us=2000,seed=2",
    {
        let device = cuda(0);
        let trainer = TrainerContext::new(0);
        let config = FeedConfig { size: [8, 8], batches: 30, slots: 2, ..FeedConfig::default() };
        // With the same delay, a loader that reused its buffers at once would be seen.
        let burn_ms = torn::proven_burn_ms(&device, &trainer, config, StreamCase::Side).unwrap();
        assert_eq!(torn::check(&device, &trainer, config, StreamCase::Side, burn_ms), Ok(30));
        drop((device, trainer));
        check_clean();
    }
);

stand_in_test!(the_kernel_gives_what_double_precision_gives, "delay_us=0", {
    let device = cuda(0);
    let worst = checks::kernel(&device, FeedConfig { batches: 2, ..FeedConfig::default() }).unwrap();
    assert!((0.3..=1.01).contains(&worst), "{worst}");
    drop(device);
    check_clean();
});

stand_in_test!(a_device_and_the_host_normalise_to_the_same_bits, "delay_us=0", {
    let device = cuda(0);
    let config = FeedConfig { batches: 2, size: [17, 33], ..FeedConfig::default() };
    for case in checks::cases() {
        let options = DeviceOptions { normalise: vec![case], ..DeviceOptions::default() };
        let (mut on_device, _slab) = config.start(&device, options.clone(), TIMEOUT).unwrap();
        let (mut on_host, _slab) = config.start(&Device::host(), options, TIMEOUT).unwrap();
        for _ in 0..config.batches {
            let (there, here) = (next(&mut on_device), next(&mut on_host));
            for (there, here) in there.columns().iter().zip(here.columns()) {
                let (there, here) = (there.values(), here.values());
                assert_eq!((there.shape(), there.strides()), (here.shape(), here.strides()));
                assert_eq!(there.to_host().unwrap(), here.to_host().unwrap());
            }
        }
    }
    drop(device);
    check_clean();
});

stand_in_test!(the_texts_of_a_batch_are_cut_by_offsets_on_the_host_and_nothing_is_read_back, "delay_us=3000,seed=9", {
    let device = cuda(0);
    let (mut loader, _slab) = FeedConfig::default().start(&device, DeviceOptions::default(), TIMEOUT).unwrap();
    while let Some(batch) = loader.next_batch().expect("a batch") {
        let texts = batch.column("text").unwrap();
        let offsets = texts.host_offsets().expect("texts are ragged");
        assert_eq!((offsets.len(), offsets.last()), (batch.len() + 1, texts.values().shape().first()));
        for (entry, rows) in batch.entries().iter().zip(offsets.windows(2)) {
            assert_eq!(rows[1] - rows[0], text(entry.id).len() as i64);
        }
        assert_eq!(batch.column("label").unwrap().host_offsets(), None);
    }
    drop((loader, device));
    assert_eq!(check_clean()["calls"]["cuMemcpyDtoH_v2"], serde_json::Value::Null);
});

stand_in_test!(a_slot_is_free_when_its_copy_is_done_though_the_trainer_keeps_the_batch, "seed=4", {
    let device = cuda(0);
    let options = DeviceOptions { buffers: 6, ..DeviceOptions::default() };
    let config = FeedConfig { batches: 6, slots: 1, ..FeedConfig::default() };
    let (mut loader, slab) = config.start(&device, options, TIMEOUT).unwrap();
    let kept: Vec<_> = (0..6).map(|_| next(&mut loader)).collect();
    let until = Instant::now() + WAIT;
    while slab.free_slots() == 0 {
        assert!(Instant::now() < until, "the last slot is not given back");
        thread::yield_now();
    }
    for batch in &kept {
        assert_eq!(batch.placement(), BatchPlacement::Cuda { ordinal: 0 });
        compare(batch).unwrap();
    }
    drop((loader, kept, device));
    check_clean();
});

stand_in_test!(batches_that_repeat_on_a_device_are_copied_once, "delay_us=1000,seed=10", {
    let device = cuda(0);
    let options = DeviceOptions { buffers: 3, ..DeviceOptions::default() };
    let (mut loader, _slab) = FeedConfig::default().start(&device, options, TIMEOUT).unwrap();
    assert!(loader.repeat_batches(4).unwrap_err().to_string().contains("has room for 3 batches"));
    loader.repeat_batches(3).unwrap();
    let steps = loader.loader().steps_left();
    let mut addresses = Vec::new();
    while let Some(batch) = loader.next_batch().expect("a batch") {
        compare(&batch).unwrap();
        addresses.push(batch.bytes().address());
    }
    assert_eq!((addresses.len() as u64, steps), (steps, FeedConfig::default().batches));
    assert!(addresses.iter().zip(&addresses[3..]).all(|(before, again)| before == again), "{addresses:?}");
    drop((loader, device));
    assert_eq!(check_clean()["copies"], 3);
});

stand_in_test!(a_trainer_that_holds_all_device_buffers_gets_the_reason_and_goes_on_when_it_drops_one, "seed=5", {
    let device = cuda(0);
    let options = DeviceOptions { buffers: 2, ..DeviceOptions::default() };
    let (mut loader, _slab) = FeedConfig::default().start(&device, options, TIMEOUT).unwrap();
    let mut kept = vec![next(&mut loader), next(&mut loader)];
    let error = loader.next_within(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, DeviceError::Client(ClientError::Timeout { .. })), "{error}");
    let text = error.to_string();
    assert!(text.contains("the trainer holds 2 batches, and there are 2 device buffers"), "{text}");
    let tensor = kept[0].column("label").unwrap().values().clone();
    kept.remove(0);
    assert!(loader.next_within(Duration::from_millis(20)).is_err(), "a tensor keeps its batch");
    drop(tensor);
    compare(&next(&mut loader)).unwrap();
    drop((loader, kept, device));
    check_clean();
});

stand_in_test!(several_devices_serve_several_loaders_at_once_from_any_thread, "devices=3,seed=6", {
    let loaders = [0, 2, 1, 2].map(|ordinal| {
        let (loader, _) = FeedConfig::default().start(&cuda(ordinal), DeviceOptions::default(), TIMEOUT).unwrap();
        (ordinal, loader)
    });
    let threads = loaders.map(|(ordinal, mut loader)| {
        thread::spawn(move || {
            let mut batches = Vec::new();
            while let Some(batch) = loader.next_batch().unwrap() {
                assert_eq!(batch.placement(), BatchPlacement::Cuda { ordinal });
                compare(&batch).unwrap();
                batches = vec![batch];
            }
            batches
        })
    });
    // The last batch of each loader is dropped by a thread that never used its device.
    for thread in threads {
        assert_eq!(thread.join().unwrap().len(), 1);
    }
    check_clean();
});

stand_in_test!(batches_outlive_their_loader_and_their_device_handle, "seed=7", {
    let (mut loader, _slab) = FeedConfig::default().start(&cuda(0), DeviceOptions::default(), TIMEOUT).unwrap();
    let batch = next(&mut loader);
    drop(loader);
    compare(&batch).unwrap();
    assert_eq!(report()["retained"], 1);
    drop(batch);
    check_clean();
});

stand_in_test!(a_loader_that_is_dropped_with_copies_under_way_gives_everything_back, "delay_us=5000,seed=8", {
    for taken in 0..3 {
        let (mut loader, slab) = FeedConfig::default().start(&cuda(0), DeviceOptions::default(), TIMEOUT).unwrap();
        for _ in 0..taken {
            drop(next(&mut loader));
        }
        drop((loader, slab));
    }
    check_clean();
});
