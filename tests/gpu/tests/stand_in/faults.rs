//! Tests of faults while batches flow, and proof that the checks detect them.

use std::{fs::File, os::unix::fs::FileExt, time::Instant};

use spdl_client::ClientError;
use spdl_gpu::{Device, DeviceError, DeviceOptions};
use spdl_gpu_tests::{
    checks::{self, TIMEOUT, cases, compare},
    feed::FeedConfig,
};

use crate::harness::{WAIT, check_clean, log, report, stand_in_test, wait_for_report};

/// Takes batches until an error comes, and returns how many came before it.
fn until_error(options: DeviceOptions) -> (u64, DeviceError) {
    let device = Device::cuda(0).expect("the stand-in has this device");
    let (mut loader, slab) = FeedConfig::default().start(&device, options, TIMEOUT).unwrap();
    let mut count = 0;
    let error = loop {
        match loader.next_batch() {
            Ok(batch) => {
                drop(batch.expect("the fault comes before the end"));
                count += 1;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(loader.next_batch().unwrap_err(), ClientError::Closed.into());
    drop(loader);
    wait_for_slots(&slab);
    (count, error)
}

/// Waits until all slots are freed.
fn wait_for_slots(slab: &spdl_wire::slab::Slab) {
    let until = Instant::now() + WAIT;
    while slab.free_slots() < slab.slots() {
        assert!(Instant::now() < until, "a slot is not given back");
        std::thread::yield_now();
    }
}

stand_in_test!(a_device_that_is_lost_ends_the_loader_with_its_reason, "lose_at_copy=5,seed=3", {
    let (count, error) = until_error(DeviceOptions::default());
    let DeviceError::Lost { device, name, .. } = &error else { panic!("{error}") };
    assert_eq!((device.as_str(), name.as_str()), ("cuda:0", "CUDA_ERROR_LAUNCH_FAILED"));
    assert!(error.to_string().contains("unspecified launch failure") && !error.is_retryable());
    assert!(error.hint().is_some_and(|hint| hint.contains("start the process again")));
    assert!(count >= 3, "{count} batches came before the fifth copy");
    assert_eq!(report()["wrong"], serde_json::json!([]));
});

stand_in_test!(a_kernel_that_cannot_be_started_ends_the_loader, "fail=cuLaunchKernel@3:719", {
    let options = DeviceOptions { normalise: cases().take(1).collect(), ..DeviceOptions::default() };
    let (count, error) = until_error(options);
    assert_eq!(count, 2);
    assert!(error.to_string().contains("`cuLaunchKernel` returned CUDA_ERROR_LAUNCH_FAILED"), "{error}");
});

stand_in_test!(a_copy_that_cannot_be_started_ends_the_loader_and_gives_all_back, "fail=cuMemcpyHtoDAsync_v2@4:1", {
    let (count, error) = until_error(DeviceOptions::default());
    assert_eq!(count, 3);
    assert!(matches!(error, DeviceError::Call { call: "cuMemcpyHtoDAsync", .. }), "{error}");
    check_clean();
});

stand_in_test!(a_record_that_fails_after_its_copy_began_waits_for_the_copy, "delay_us=3000,fail=cuEventRecord@3:1", {
    let (_, error) = until_error(DeviceOptions::default());
    assert!(matches!(error, DeviceError::Call { call: "cuEventRecord", .. }), "{error}");
    check_clean();
});

stand_in_test!(pages_that_cannot_be_locked_are_copied_all_the_same, "fail=cuMemHostRegister_v2@1+:2", {
    log();
    let device = Device::cuda(0).unwrap();
    assert_eq!(checks::copies(&device, FeedConfig::default()), Ok(30));
    drop(device);
    let report = check_clean();
    assert_eq!(report["unlocked_copies"], 30);
    assert_eq!(log().matches("is not page-locked").count(), 1, "one warning for the three slots of a slab: {}", log());
});

stand_in_test!(no_more_of_a_slab_is_locked_than_the_limit, "seed=1", {
    let device = Device::cuda(0).unwrap();
    for (page_lock_max_bytes, registrations) in [(4095, 0), (2 * 4096, 2)] {
        let options = DeviceOptions { page_lock_max_bytes, ..DeviceOptions::default() };
        let config = FeedConfig { batches: 12, ..FeedConfig::default() };
        let (mut loader, slab) = config.start(&device, options, TIMEOUT).unwrap();
        assert_eq!((slab.slots(), slab.slot_stride()), (3, 4096));
        while let Some(batch) = loader.next_batch().unwrap() {
            compare(&batch).unwrap();
        }
        assert_eq!(report()["registrations"], registrations);
        drop(loader);
        wait_for_report(|report| report["registrations"] == 0);
    }
    drop(device);
    check_clean();
});

stand_in_test!(a_slot_that_is_overwritten_too_early_is_seen_by_these_checks, "delay_us=3000", {
    let device = Device::cuda(0).unwrap();
    let config = FeedConfig { size: [64, 64], slots: 1, batches: 40, ..FeedConfig::default() };
    let (mut loader, slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).unwrap();
    let file = File::from(slab.fd().unwrap().try_clone_to_owned().unwrap());
    let mut torn = 0;
    while let Some(batch) = loader.next_batch().unwrap() {
        // Overwrite the slot as a worker would that does not wait until it is freed: the batch was delivered, but its
        // copy may still be running.
        file.write_at(&[0xee; 64], (config.size[0] * config.size[1] * 3) as u64).unwrap();
        torn += u32::from(compare(&batch).is_err());
    }
    assert!(torn > 0, "no batch was torn");
});

stand_in_test!(memory_that_is_used_after_it_was_given_back_is_seen_by_the_stand_in, "delay_us=3000", {
    let device = Device::cuda(0).unwrap();
    let trainer = spdl_gpu_tests::raw::TrainerContext::new(0);
    let (mut loader, _slab) = FeedConfig::default().start(&device, DeviceOptions::default(), TIMEOUT).unwrap();
    let batch = loader.next_batch().unwrap().unwrap();
    let address = batch.column("image").unwrap().values().address() as u64;
    drop((batch, loader));
    wait_for_report(|report| report["host_allocations"] == 0 && report["registrations"] == 0);
    wait_for_report(|report| report["allocations"] == 0);
    let (stream, sum) = (trainer.stream(), trainer.allocate(8));
    trainer.sum(stream, address, 64, sum);
    let report = wait_for_report(|report| !report["wrong"].as_array().unwrap().is_empty());
    assert!(report["wrong"][0].as_str().unwrap().contains("freed memory"), "{report}");
    // The device is lost by now, so its resources cannot be released.
    std::mem::forget(trainer);
});
