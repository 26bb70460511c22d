//! Tests of the stand-in itself: that it has the rules of a driver which other tests rely on.
#![allow(unsafe_code)]

use std::{
    ptr,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use spdl_gpu::{Device, StreamHandle};
use spdl_gpu_tests::{driver, raw::TrainerContext};

use crate::harness::{check_clean, digest, hold, stand_in_test, wait_for_report};

stand_in_test!(only_streams_that_wait_for_the_default_stream_see_a_copy_that_lands_late_there, "delay_us=0", {
    static IS_IDLE: AtomicU32 = AtomicU32::new(0);
    static BEFORE: AtomicU64 = AtomicU64::new(0);
    static NOT_ORDERED: AtomicU64 = AtomicU64::new(0);
    static ORDERED: AtomicU64 = AtomicU64::new(0);
    static AFTER: AtomicU64 = AtomicU64::new(0);
    let device = Device::cuda(0).unwrap();
    let trainer = TrainerContext::new(0);
    let not_ordered = trainer.stream();
    let mut ordered = ptr::null_mut();
    // SAFETY: the pointer is to a local of that type, and the trainer's context is current.
    assert_eq!(unsafe { driver::cuStreamCreate(&raw mut ordered, 0) }, 0);
    let numbers = trainer.allocate(32);
    trainer.write(numbers, &[1; 4]);
    digest(not_ordered.handle(), numbers, 32, &BEFORE);
    trainer.synchronise(not_ordered);

    hold(StreamHandle::LEGACY, &IS_IDLE);
    // SAFETY: both ranges have 32 bytes, and the call has read `from` when it returns.
    assert_eq!(unsafe { driver::cuMemcpyHtoD_v2(numbers, [2u64; 4].as_ptr().cast(), 32) }, 0);
    digest(not_ordered.handle(), numbers, 32, &NOT_ORDERED);
    trainer.synchronise(not_ordered);
    // SAFETY: the stream lives until all work on it is done.
    digest(unsafe { StreamHandle::from_raw(ordered as usize) }, numbers, 32, &ORDERED);
    IS_IDLE.store(1, Ordering::SeqCst);
    // SAFETY: the stream lives.
    assert_eq!(unsafe { driver::cuStreamSynchronize(ordered) }, 0);
    digest(StreamHandle::LEGACY, numbers, 32, &AFTER);
    // SAFETY: null names the default stream.
    assert_eq!(unsafe { driver::cuStreamSynchronize(ptr::null_mut()) }, 0);

    let [before, not_ordered_saw, ordered_saw, after] =
        [&BEFORE, &NOT_ORDERED, &ORDERED, &AFTER].map(|seen| seen.load(Ordering::SeqCst));
    assert_eq!(not_ordered_saw, before, "the copy has not landed");
    assert_eq!(ordered_saw, after, "the stream waits for the copy");
    assert_ne!(before, after);
    trainer.free(numbers);
    trainer.end(not_ordered);
    // SAFETY: created above, destroyed once.
    assert_eq!(unsafe { driver::cuStreamDestroy_v2(ordered) }, 0);
    drop((trainer, device));
    check_clean();
});

stand_in_test!(a_lost_device_reads_no_memory_after_a_call_has_reported_it, "delay_us=0,fail=cuEventCreate@1:719", {
    /// A copy of so much is still running when the call fails.
    const BYTES: usize = 256 << 20;
    let device = Device::cuda(0).unwrap();
    let trainer = TrainerContext::new(0);
    let (to, stream) = (trainer.allocate(BYTES), trainer.stream());
    let mut from = ptr::null_mut();
    // SAFETY: the pointer is to a local of that type, and the trainer's context is current.
    assert_eq!(unsafe { driver::cuMemAllocHost_v2(&raw mut from, BYTES) }, 0);
    // SAFETY: both ranges have that many bytes, and nothing frees them.
    unsafe { from.cast::<u8>().write_bytes(1, BYTES) };
    let handle = stream.handle().as_raw() as *mut _;
    // SAFETY: as above.
    assert_eq!(unsafe { driver::cuMemcpyHtoDAsync_v2(to, from, BYTES, handle) }, 0);
    wait_for_report(|report| report["copied_bytes"] != 0);
    let mut event = ptr::null_mut();
    // SAFETY: the pointer is to a local of that type.
    assert_eq!(unsafe { driver::cuEventCreate(&raw mut event, 0) }, 719);

    // SAFETY: as above.
    unsafe { from.cast::<u8>().write_bytes(2, BYTES) };
    thread::sleep(Duration::from_millis(100));
    // SAFETY: the stand-in's device memory is memory of this process, and nothing writes to it any more.
    let copied = unsafe { std::slice::from_raw_parts(to as *const u8, BYTES) };
    assert!(copied.starts_with(&[1; 4096]) && !copied.contains(&2));
    // The device is lost, so its resources cannot be released.
    std::mem::forget((trainer, device));
});
