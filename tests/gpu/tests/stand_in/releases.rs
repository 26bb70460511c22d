//! Tests of how a batch's buffer comes back: when it may be filled again, and what waits for that and what does not.

use std::{process, sync::mpsc::channel, thread, time::Duration};

use spdl_client::Blocking;
use spdl_gpu::{Device, DeviceBatch, DeviceError, DeviceOptions, OnDevice, StreamHandle};
use spdl_gpu_tests::{
    checks::{TIMEOUT, compare, pixels},
    feed::{FeedConfig, Maker},
    raw::{CaptureMode, TrainerContext, TrainerStream},
};

use crate::harness::{check_clean, library, pause_copies, report, run_in_process, stand_in_test, wait_for_report};

const TWO_BUFFERS: DeviceOptions = DeviceOptions { buffers: 2, normalise: Vec::new(), page_lock_max_bytes: 16 << 30 };

fn start(options: DeviceOptions) -> (Blocking<OnDevice<Maker>>, TrainerContext) {
    let config = FeedConfig { batches: 12, slots: 2, ..FeedConfig::default() };
    let device = Device::cuda(0).expect("the stand-in has this device");
    let (loader, _slab) = config.start(&device, options, TIMEOUT).expect("a loader");
    (loader, TrainerContext::new(0))
}

fn next(loader: &mut Blocking<OnDevice<Maker>>) -> DeviceBatch {
    loader.next_batch().expect("a batch").expect("not the end")
}

/// Returns memory for a sum.
fn new_cell(trainer: &TrainerContext) -> u64 {
    let cell = trainer.allocate(8);
    trainer.write(cell, &[0]);
    cell
}

/// Queues the sum of a batch's pixels on a stream; returns where the sum will be, and what it must be.
fn put_sum(trainer: &TrainerContext, stream: TrainerStream, batch: &DeviceBatch, sum: u64) -> (u64, u64) {
    let image = batch.column("image").unwrap().values();
    let (address, bytes) = (image.address() as u64, image.bytes() / 4 * 4);
    trainer.sum(stream, address, bytes, sum);
    let pixels = pixels(batch, image.bytes() / batch.len());
    let words = pixels.as_chunks::<4>().0.iter();
    (sum, words.map(|word| u64::from(u32::from_le_bytes(*word))).sum())
}

#[track_caller]
fn check_sum(trainer: &TrainerContext, (sum, expected): (u64, u64)) {
    assert_eq!(trainer.read(sum, 1)[0], expected);
    trainer.free(sum);
}

stand_in_test!(
    a_buffer_whose_release_cannot_be_recorded_is_filled_when_its_stream_is_done,
    "fail=cuEventRecord@3:1",
    {
        let (mut loader, trainer) = start(TWO_BUFFERS);
        let stream = trainer.stream();
        let batch = next(&mut loader);
        // Both buffers are filled, with a record each: the release of the first batch is the third.
        let second = next(&mut loader);
        batch.wait_on(stream.handle()).unwrap();
        let cell = new_cell(&trainer);
        let blocked = trainer.block(stream);
        let sum = put_sum(&trainer, stream, &batch, cell);
        drop((batch, second));
        for _ in 0..4 {
            compare(&next(&mut loader)).unwrap();
        }
        drop(blocked);
        trainer.synchronise(stream);
        check_sum(&trainer, sum);
        while loader.next_batch().unwrap().is_some() {}
        trainer.end(stream);
        drop((loader, trainer));
        check_clean();
    }
);

stand_in_test!(
    a_buffer_that_may_be_in_use_for_ever_is_not_filled_again_and_the_loader_goes_on,
    "fail=cuEventRecord@3:1,fail=cuStreamSynchronize@1:1,fail=cuCtxSynchronize@1:1",
    {
        let (mut loader, trainer) = start(TWO_BUFFERS);
        let stream = trainer.stream();
        let batch = next(&mut loader);
        let kept = next(&mut loader);
        batch.wait_on(stream.handle()).unwrap();
        let address = batch.bytes().address();
        drop(batch);
        let error = loader.next_within(Duration::from_millis(50)).unwrap_err().to_string();
        assert!(error.contains("the trainer holds 1 batches, and there are 1 device buffers"), "{error}");
        drop(kept);
        let mut count = 2;
        while let Some(batch) = loader.next_batch().unwrap() {
            compare(&batch).unwrap();
            assert_ne!(batch.bytes().address(), address);
            count += 1;
        }
        assert_eq!(count, 12);
        assert_eq!(report()["wrong"], serde_json::json!([]));
    }
);

stand_in_test!(the_default_streams_of_two_threads_wait_for_a_batch_each_and_its_buffer_for_both, "delay_us=2000", {
    let (mut loader, trainer) = start(TWO_BUFFERS);
    // Before any copy waits: this is work on the device's default stream, which would order the threads' streams.
    let cells: Vec<_> = (0..12).map(|_| new_cell(&trainer)).collect();
    let mut sums = Vec::new();
    for pair in cells.chunks_exact(2) {
        let (mine, theirs) = (pair[0], pair[1]);
        pause_copies(true);
        let batch = next(&mut loader);
        batch.wait_on(StreamHandle::PER_THREAD).unwrap();
        sums.push(put_sum(&trainer, TrainerStream::PER_THREAD, &batch, mine));
        let other = thread::spawn(move || {
            let trainer = TrainerContext::new(0);
            batch.wait_on(StreamHandle::PER_THREAD).unwrap();
            let sum = put_sum(&trainer, TrainerStream::PER_THREAD, &batch, theirs);
            pause_copies(false);
            drop(batch);
            trainer.synchronise(TrainerStream::PER_THREAD);
            sum
        });
        sums.push(other.join().unwrap());
    }
    trainer.synchronise(TrainerStream::PER_THREAD);
    for sum in sums {
        check_sum(&trainer, sum);
    }
    drop((loader, trainer));
    check_clean();
});

stand_in_test!(neither_close_nor_the_drop_of_a_late_batch_waits_for_the_trainers_stream, "delay_us=0", {
    let (mut loader, trainer) = start(TWO_BUFFERS);
    let stream = trainer.stream();
    let (batch, late) = (next(&mut loader), next(&mut loader));
    batch.wait_on(stream.handle()).unwrap();
    late.wait_on(stream.handle()).unwrap();
    let blocked = trainer.block(stream);
    // Its buffer is filled again at once, by a copy that waits for the blocked stream.
    drop(batch);
    wait_for_report(|report| report["calls"]["cuMemcpyHtoDAsync_v2"] == 3);
    drop(loader);
    drop(late);
    drop(blocked);
    trainer.end(stream);
    drop(trainer);
    check_clean();
});

stand_in_test!(a_slot_is_free_although_the_next_copy_into_its_buffer_waits_for_the_trainer, "delay_us=0", {
    let device = Device::cuda(0).unwrap();
    let trainer = TrainerContext::new(0);
    let config = FeedConfig { batches: 4, slots: 4, ..FeedConfig::default() };
    pause_copies(true);
    let (mut loader, slab) = config.start(&device, TWO_BUFFERS, TIMEOUT).unwrap();
    let stream = trainer.stream();
    let batches = [next(&mut loader), next(&mut loader)];
    for batch in &batches {
        batch.wait_on(stream.handle()).unwrap();
    }
    let blocked = trainer.block(stream);
    drop(batches);
    wait_for_report(|report| report["calls"]["cuMemcpyHtoDAsync_v2"] == 4);
    pause_copies(false);
    wait_for_report(|report| {
        assert!(slab.free_slots() <= 2, "a copy ended before the trainer's work");
        report["copies"] == 2 && slab.free_slots() == 2
    });
    drop(blocked);
    while loader.next_batch().unwrap().is_some() {}
    trainer.end(stream);
    drop((loader, trainer, device));
    check_clean();
});

stand_in_test!(a_slot_is_freed_without_asking_the_device_again_and_again, "delay_us=20000,seed=3", {
    let (mut loader, trainer) = start(DeviceOptions::default());
    while let Some(batch) = loader.next_batch().unwrap() {
        compare(&batch).unwrap();
    }
    let calls = report()["calls"].clone();
    assert_eq!(calls["cuEventQuery"], serde_json::Value::Null, "{calls}");
    drop((loader, trainer));
    check_clean();
});

stand_in_test!(a_stream_of_another_context_is_refused_with_what_to_do, "devices=2", {
    let (mut loader, trainer) = start(TWO_BUFFERS);
    let _other_device = Device::cuda(1).unwrap();
    let batch = next(&mut loader);
    let second = trainer.second_context();
    let others = TrainerContext::new(1);
    let others_stream = others.stream();
    for stream in [second.stream, others_stream] {
        let error = batch.wait_on(stream.handle()).unwrap_err();
        assert_eq!(error, DeviceError::ForeignStream { device: "cuda:0".into() });
        assert!(error.hint().is_some_and(|hint| hint.contains("torch.cuda.Stream(device)")));
    }
    others.end(others_stream);
    drop((others, second));
    drop(batch);
    while loader.next_batch().unwrap().is_some() {}
    assert_eq!(report()["wrong"], serde_json::json!([]));
});

stand_in_test!(a_trainer_whose_capture_holds_all_buffers_back_gets_the_reason_and_goes_on_after_it, "seed=2", {
    let (mut loader, trainer) = start(TWO_BUFFERS);
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        let stream = trainer.stream();
        let batches = [next(&mut loader), next(&mut loader)];
        for batch in &batches {
            batch.wait_on(stream.handle()).unwrap();
        }
        trainer.begin_capture(stream, mode);
        let error = batches[0].wait_on(stream.handle()).unwrap_err();
        assert_eq!(error, DeviceError::Capturing { device: "cuda:0".into() });
        assert!(error.hint().is_some_and(|hint| hint.contains("before the capture")));
        drop(batches);
        let error = loader.next_within(Duration::from_millis(50)).unwrap_err().to_string();
        assert!(error.contains("dropped 2 batches while it captured a CUDA graph"), "{error}");
        drop(trainer.end_capture(stream).expect("a whole graph"));
        for _ in 0..4 {
            compare(&next(&mut loader)).unwrap();
        }
        trainer.end(stream);
    }
    drop((loader, trainer));
    check_clean();
});

stand_in_test!(a_batch_of_the_default_stream_that_is_dropped_in_a_capture_of_a_blocking_stream_comes_back, "seed=3", {
    let (mut loader, trainer) = start(TWO_BUFFERS);
    let batch = next(&mut loader);
    batch.wait_on(StreamHandle::LEGACY).unwrap();
    let stream = TrainerStream::PER_THREAD;
    trainer.begin_capture(stream, CaptureMode::ThreadLocal);
    drop(batch);
    for _ in 0..3 {
        // To read it would be work on the default stream, which the capture forbids.
        next(&mut loader).synchronise().unwrap();
    }
    drop(trainer.end_capture(stream).expect("a whole graph"));
    for _ in 0..3 {
        let (one, other) = (next(&mut loader), next(&mut loader));
        compare(&one).unwrap();
        compare(&other).unwrap();
    }
    drop((loader, trainer));
    check_clean();
});

#[test]
fn a_process_that_exits_lets_calls_of_the_driver_end_and_none_begin() {
    let test = "releases::a_process_that_exits_lets_calls_of_the_driver_end_and_none_begin";
    let library = library();
    let files = [("libcuda.so", &*library), ("libcuda.so.1", &*library)];
    let output = run_in_process(test, &files, "delay_us=300000,seed=5", || {
        let (mut loader, trainer) = start(TWO_BUFFERS);
        let (batch, kept) = (next(&mut loader), next(&mut loader));
        let (dropped, is_dropped) = channel();
        // Batches are dropped while the process exits, too.
        thread::spawn(move || {
            drop(batch);
            let _ = dropped.send(());
        });
        is_dropped.recv().unwrap();
        std::mem::forget((loader, trainer, kept));
        process::exit(7);
    });
    let Some(output) = output else { return };
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
}
