//! Counts allocations: in the steady state, a pipeline makes none per item.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    convert::Infallible,
    env,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use spdl_pipeline::{Branches, Op, OutputOrder, Pipeline, Stages};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// Is set in the process that counts its allocations.
const COUNTED: &str = "SPDL_TEST_COUNTED";

// SAFETY: each call is passed on to the system's allocator as it came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `alloc` gave the pointer.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_item_allocates_once_the_pipeline_runs() {
    if env::var_os(COUNTED).is_none() {
        // A pipeline has threads of its own, so all threads count, and the test runs again in a process without other tests.
        let name = "allocations::no_item_allocates_once_the_pipeline_runs";
        let mut alone = Command::new(env::current_exe().unwrap());
        let output = alone.args(["--exact", name, "--nocapture"]).env(COUNTED, "").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        print!("{text}");
        assert!(output.status.success() && text.contains("1 passed"), "{}", output.status);
        return;
    }
    const ITEMS: usize = 20_000;
    let nothing = || Op::cpu(Ok::<_, Infallible>);
    let branches =
        Branches::new().branch(move |stages: Stages<u64>| stages.pipe("even", nothing(), 2)).branch(|stages| stages);
    let pipeline = Pipeline::builder()
        .source(0_u64..)
        .route("parity", Op::router(|item| (item % 2) as usize), 1, branches)
        .pipe("compute", Op::cpu(Ok::<_, Infallible>), 3)
        .pipe("wait", Op::asynchronous(async |item| Ok::<_, Infallible>(item)).order(OutputOrder::Completion), 2)
        .pipe("block", Op::blocking(Ok::<_, Infallible>), 2)
        .sink(4)
        .build(2)
        .unwrap();
    let mut items = pipeline.iter(Duration::from_secs(60));
    let mut take = |count| items.by_ref().take(count).for_each(|item| assert!(item.is_ok()));
    take(ITEMS);
    let before = ALLOCATIONS.load(Relaxed);
    take(ITEMS);
    let made = ALLOCATIONS.load(Relaxed) - before;
    // What is left are queues that grow now and then.
    assert!(made < ITEMS / 100, "{made} allocations for {ITEMS} items");
    pipeline.stop();
}
