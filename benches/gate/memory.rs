//! Paths without files or messages: the order's look-up, and an item through the pipeline.

use std::{convert::Infallible, hint::black_box, path::Path, sync::mpsc, time::Duration};

use spdl_order::{BatchParams, DatasetFacts, EpochEnd, OrderParams, Plan};
use spdl_pipeline::{Op, Pipeline};
use spdl_types::{Fingerprint, Position};

const BLOCKS: u32 = 10_000;
const SAMPLES_PER_BLOCK: u32 = 100;
const GLOBAL_BATCH: u32 = 256;
const WORLD: u32 = 8;

/// Looks up a rank's samples of consecutive batches.
pub(crate) fn order(_: &Path, batches: u64) {
    let facts = DatasetFacts::new(Fingerprint(0), u64::from(BLOCKS * SAMPLES_PER_BLOCK), BLOCKS.into());
    let order = OrderParams::default_for(&facts, GLOBAL_BATCH, true);
    let plan = Plan::new(&vec![SAMPLES_PER_BLOCK; BLOCKS as usize], 17, order).expect("a valid plan");
    let batch =
        BatchParams { global_batch: GLOBAL_BATCH, epochs: u64::MAX, epoch_end: EpochEnd::Continuous, end: None };
    let (mut from, mut items) = (Position::new(1, plan.samples() / 2), Vec::new());
    for _ in 0..batches {
        let step = plan.step(from, &batch).expect("epochs without end");
        plan.rank_items(&step, 3, WORLD, &mut items);
        from = step.next;
        black_box(&items);
    }
}

/// Takes items from a source through an operation that does nothing, and then from the sink, which has room for all of
/// them. So no thread waits for the consumer, and the number of waits depends on the queues alone.
pub(crate) fn engine(_: &Path, items: u64) {
    let (done, all_done) = mpsc::channel();
    let operation = Op::cpu(move |item| {
        if item + 1 == items {
            done.send(()).expect("the consumer waits");
        }
        Ok::<u64, Infallible>(item)
    });
    let stages = Pipeline::builder().source(0..items).pipe("nothing", operation, 1);
    let pipeline = stages.sink(items as usize).build(1).expect("the pipeline starts");
    all_done.recv().expect("the last item comes");
    for item in pipeline.iter(Duration::from_secs(60)) {
        black_box(item.expect("nothing fails"));
    }
    pipeline.stop();
}
