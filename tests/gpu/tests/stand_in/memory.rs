//! Tests of memory: what is page-locked and when, what is copied where it cannot be, and how buffers grow.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rustix::{
    mount::{MountPropagationFlags, mount_bind, mount_change},
    thread::{UnshareFlags, unshare_unsafe},
};
use spdl_client::ClientError;
use spdl_gpu::{Device, DeviceBatch, DeviceError, DeviceOptions, LoaderExt};
use spdl_gpu_tests::{
    checks::{self, TIMEOUT, cases, compare, compare_with},
    feed::{FeedConfig, SlotMemory, TextLengths},
    raw::TrainerContext,
};

use crate::harness::{check_clean, hold, log, pause_copies, report, stand_in_test};

/// Batches with 35 kB of fixed columns and texts of 5 kB, for which the layout has room for 10 kB.
fn ragged() -> FeedConfig {
    FeedConfig { samples: 256, ..FeedConfig::default() }
}

stand_in_test!(slots_are_locked_one_by_one_each_when_its_first_batch_comes, "seed=1", {
    let device = Device::cuda(0).unwrap();
    let config = FeedConfig { slots: 6, batches: 2, ..FeedConfig::default() };
    let (mut loader, slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).unwrap();
    while let Some(batch) = loader.next_batch().unwrap() {
        compare(&batch).unwrap();
    }
    let report = report();
    let registered = (&report["registrations"], &report["registered_bytes"]);
    assert_eq!(registered, (&2.into(), &(2 * slab.slot_stride()).into()), "two of six slots");
    drop((loader, device));
    assert_eq!(check_clean()["unlocked_copies"], 0);
});

stand_in_test!(as_much_of_a_slot_is_locked_as_its_largest_batch_takes, "seed=1", {
    let device = Device::cuda(0).unwrap();
    let config = FeedConfig { slots: 2, texts: TextLengths::Growing(40_000), ..FeedConfig::default() };
    let compare = |batch: &DeviceBatch| compare_with(batch, |id| config.text(id));
    let (mut loader, slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).unwrap();
    let registered_bytes = || report()["registered_bytes"].as_u64().unwrap() as usize;
    compare(&loader.next_batch().unwrap().unwrap()).unwrap();
    assert!(registered_bytes() < slab.slot_stride() / 2, "{} bytes", registered_bytes());
    while let Some(batch) = loader.next_batch().unwrap() {
        compare(&batch).unwrap();
    }
    assert!(registered_bytes() > slab.slot_stride(), "{} bytes", registered_bytes());
    assert_eq!(report()["device_waits"], 0, "to unlock pages waits for the trainer's work");
    assert!((0..2).all(|slot| slab.is_locked(slot)), "whoever fills the slab leaves the pages where they are");
    drop((loader, device));
    let clean = check_clean();
    assert_eq!((&clean["unlocked_copies"], &clean["registrations"]), (&0.into(), &0.into()));
});

/// Shows this thread a machine with two NUMA nodes whose first GPU is next to node 0. Returns false where that is not
/// allowed, or the system knows no nodes.
#[allow(unsafe_code)]
fn show_two_nodes(folder: &Path) -> bool {
    for (file, text) in [("devices/system/node/online", "0-1"), ("bus/pci/devices/0000:3b:00.0/numa_node", "0")] {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    // SAFETY: only the mounts become this thread's own, and no descriptors.
    let is_alone = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    let is_shown = is_alone.and_then(|()| mount_change("/", private)).and_then(|()| mount_bind(folder, "/sys")).is_ok();
    is_shown && Path::new("/proc/self/numa_maps").exists()
}

/// Returns the policy of the mapping that begins at an address.
fn policy(start: *const u8) -> String {
    let maps = fs::read_to_string("/proc/self/numa_maps").unwrap();
    let start = format!("{:x} ", start.addr());
    let of_mapping = maps.lines().find_map(|line| line.strip_prefix(&start));
    of_mapping.unwrap().split(' ').next().unwrap().to_owned()
}

stand_in_test!(slots_are_placed_on_the_numa_node_of_the_device, "seed=1", {
    let folder = tempfile::tempdir().unwrap();
    if !show_two_nodes(folder.path()) {
        spdl_testkit::skipped("only root can change what `/sys` shows, and only a system with NUMA places memory");
        return;
    }
    let device = Device::cuda(0).unwrap();
    for slab in [SlotMemory::Shared, SlotMemory::Private] {
        let config = FeedConfig { slab, ..FeedConfig::default() };
        let (mut loader, slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).unwrap();
        compare(&loader.next_batch().unwrap().unwrap()).unwrap();
        assert_eq!(policy(slab.as_ptr()), "prefer:0");
        assert_eq!(report()["unlocked_copies"], 0);
    }
    drop(device);
});

stand_in_test!(a_slot_that_cannot_be_locked_leaves_the_others_locked, "fail=cuMemHostRegister_v2@2:2", {
    let device = Device::cuda(0).unwrap();
    let config = FeedConfig { slots: 3, batches: 30, ..FeedConfig::default() };
    assert_eq!(checks::copies(&device, config), Ok(30));
    drop(device);
    let unlocked = check_clean()["unlocked_copies"].as_u64().unwrap();
    assert!((1..30).contains(&unlocked), "{unlocked} of 30 copies are of the slot that is not locked");
});

stand_in_test!(
    pictures_are_mirrored_where_the_system_refuses_page_locked_memory,
    "delay_us=0,fail=cuMemAllocHost_v2@1+:801,fail=cuMemHostRegister_v2@1+:801",
    {
        let device = Device::cuda(0).unwrap();
        checks::kernel(&device, FeedConfig { batches: 2, ..FeedConfig::default() }).unwrap();
        drop(device);
        check_clean();
    }
);

stand_in_test!(
    a_copy_of_memory_that_is_not_locked_leaves_the_runtimes_only_thread_free,
    "fail=cuMemHostRegister_v2@1+:1",
    {
        let device = Device::cuda(0).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (loader, _slab) = FeedConfig::default().loader(TIMEOUT);
            let mut loader = loader.on_device(&device, DeviceOptions::default()).unwrap();
            pause_copies(true);
            // The copy ends only if this other task goes on after the copy has begun.
            let other = async {
                while report()["unlocked_copies"] == 0 {
                    tokio::task::yield_now().await;
                }
                pause_copies(false);
            };
            let (batch, ()) = tokio::join!(loader.next(), other);
            compare(&batch.unwrap().expect("a batch")).unwrap();
        });
        drop((runtime, device));
        check_clean();
    }
);

stand_in_test!(tables_are_on_the_device_before_a_kernel_reads_them, "delay_us=0,staging_us=300000", {
    let device = Device::cuda(0).unwrap();
    let options = DeviceOptions { normalise: cases().take(1).collect(), ..DeviceOptions::default() };
    let config = FeedConfig { batches: 1, ..FeedConfig::default() };
    let normalised = |device: &Device| {
        let (mut loader, _slab) = config.start(device, options.clone(), TIMEOUT).unwrap();
        let batch = loader.next_batch().unwrap().expect("a batch");
        batch.column("image").unwrap().values().to_host().unwrap()
    };
    assert_eq!(normalised(&device), normalised(&Device::host()));
    drop(device);
    check_clean();
});

/// Returns the bytes of all columns.
fn columns(batch: &DeviceBatch) -> Vec<Vec<u8>> {
    batch.columns().iter().map(|column| column.values().to_host().unwrap()).collect()
}

/// Checks that batches with mirrored pictures come while a kernel of the trainer waits for another process, although
/// buffers have to grow, and that no call waits for the whole device.
fn grow_while_the_device_is_busy() {
    static OTHER_PROCESS: AtomicU32 = AtomicU32::new(0);
    let device = Device::cuda(0).unwrap();
    let trainer = TrainerContext::new(0);
    let stream = trainer.stream();
    hold(stream.handle(), &OTHER_PROCESS);
    let mirrored = cases().nth(1).expect("the second case mirrors");
    let options = DeviceOptions { normalise: vec![mirrored], ..DeviceOptions::default() };
    let config = FeedConfig { batches: 6, ..ragged() };
    let (mut loader, _slab) = config.start(&device, options.clone(), TIMEOUT).unwrap();
    let (mut on_host, _slab) = config.start(&Device::host(), options, TIMEOUT).unwrap();
    while let Some(batch) = loader.next_batch().unwrap() {
        assert_eq!(columns(&batch), columns(&on_host.next_batch().unwrap().unwrap()));
    }
    assert_eq!(report()["device_waits"], 0);
    OTHER_PROCESS.store(1, Ordering::SeqCst);
    drop(loader);
    trainer.end(stream);
    drop((trainer, device));
    check_clean();
}

stand_in_test!(buffers_grow_while_a_kernel_of_the_trainer_waits_for_another_process, "delay_us=20,memory=600000", {
    grow_while_the_device_is_busy();
});

// The four first buffers and the table take 329,216 bytes, and each larger buffer takes 5,000 more.
stand_in_test!(
    buffers_are_given_up_while_a_kernel_of_the_trainer_waits_for_another_process,
    "delay_us=20,memory=335000",
    {
        grow_while_the_device_is_busy();
    }
);

stand_in_test!(buffers_grow_on_a_device_without_memory_pools, "pools=0,memory=600000", {
    let device = Device::cuda(0).unwrap();
    assert_eq!(checks::copies(&device, ragged()), Ok(30));
    drop(device);
    check_clean();
});

stand_in_test!(
    buffers_have_room_for_the_largest_batch_where_the_device_has_memory,
    "fail=cuMemAllocAsync@5+:2,fail=cuMemAlloc_v2@5+:2",
    {
        let device = Device::cuda(0).unwrap();
        assert_eq!(checks::copies(&device, ragged()), Ok(30));
        drop(device);
        check_clean();
    }
);

stand_in_test!(a_loader_goes_on_with_fewer_buffers_where_the_devices_memory_is_short, "memory=150000", {
    log();
    let device = Device::cuda(0).unwrap();
    let (mut loader, _slab) = ragged().start(&device, DeviceOptions::default(), TIMEOUT).unwrap();
    let mut kept = Vec::new();
    let reason = loop {
        match loader.next_within(Duration::from_millis(50)) {
            Ok(batch) => kept.push(batch.expect("not the end")),
            Err(DeviceError::Client(ClientError::Timeout { explanation, .. })) => {
                if explanation.contains("the trainer holds") {
                    break explanation;
                }
            }
            Err(error) => panic!("{error}"),
        }
    };
    let few = format!("the device's memory is too short for more than {} device buffers", kept.len());
    assert!((1..4).contains(&kept.len()) && reason.contains(&few), "{} batches: {reason}", kept.len());
    let mut count = kept.len();
    kept.drain(..).for_each(|batch| compare(&batch).unwrap());
    while let Some(batch) = loader.next_batch().unwrap() {
        compare(&batch).unwrap();
        count += 1;
    }
    assert_eq!(count, 30);
    assert_eq!(log().matches("goes on with fewer device buffers").count(), 1, "{}", log());
    drop((loader, device));
    check_clean();
});

stand_in_test!(
    a_loader_ends_with_the_bytes_where_the_device_has_no_memory_for_one_batch,
    "memory=600000,fail=cuMemAllocAsync@5+:2",
    {
        let device = Device::cuda(0).unwrap();
        let (mut loader, _slab) = ragged().start(&device, DeviceOptions::default(), TIMEOUT).unwrap();
        let error = loader.next_batch().unwrap_err();
        assert!(matches!(error, DeviceError::OutOfMemory { purpose: "a batch", .. }), "{error}");
        drop((loader, device));
        check_clean();
    }
);
