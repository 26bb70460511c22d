//! Tests of samples that take long: they are decoded before their batch has a slot, batches stay what they are, and a rank that waits for
//! one is told which.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use spdl_functions::{Draw, FunctionProblem, FunctionRegistry, FunctionSetup, Returned, SampleFunction, Taken};

use super::{
    fixture::{read_batch, resources_with},
    *,
};

const BATCH: usize = 12;
const LIMIT: Duration = Duration::from_secs(60);

/// A column of one shape, and a ragged column.
const COLUMNS: [&str; 2] = [
    "name = \"same\"\nfrom = \"cls\"\ndecode = \"int\"",
    "name = \"text\"\nfrom = \"txt\"\ndecode = \"bytes\"\nmax_bytes = 4096",
];

/// A job of labels, of another column, and of what `function` returns for the labels.
fn fixture(column: &str, function: &str) -> FeedFixture {
    let column = format!(
        "{column}\n[[function]]\ncall = \"{function}@1\"\ncolumns = [\"label\"]\n\
         returns = [{{ name = \"twice\", dtype = \"i64\", shape = [] }}]"
    );
    FeedFixture::of_values(text, &format!("epochs = 3\nglobal_batch = {BATCH}"), &column)
}

fn with_function<F: SampleFunction>() -> Arc<Resources> {
    let functions = FunctionRegistry::new().with::<F>();
    resources_with(PLENTY, Access { functions, ..Access::default() })
}

/// Waits for what another thread does.
async fn becomes_true(what: &str, is_true: impl Fn() -> bool) {
    let becomes = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LIMIT, becomes).await.unwrap_or_else(|_| panic!("{what}"));
}

/// How often each label was taken by [`Slow`].
static CALLS: Mutex<BTreeMap<i64, u64>> = Mutex::new(BTreeMap::new());

/// Takes its time for three samples.
struct Slow;

const fn is_slow(id: u64) -> bool {
    id % 40 == 7
}

impl SampleFunction for Slow {
    const NAME: &'static str = "tests::slow";
    const VERSION: u32 = 1;

    fn prepare(_: &FunctionSetup) -> Result<Self, FunctionProblem> {
        Ok(Self)
    }

    fn call(&self, taken: &Taken<'_>, returned: &mut Returned<'_>, _: &mut Draw) -> Result<(), FunctionProblem> {
        let label = taken.value("label")?.number::<i64>()?;
        if is_slow(label as u64 / 3) {
            thread::sleep(Duration::from_millis(30));
        }
        *CALLS.lock().entry(label).or_default() += 1;
        returned.put("twice", &[2 * label])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_that_took_long_are_decoded_before_their_batch_has_a_slot() {
    for column in COLUMNS {
        decodes_early(&fixture(column, "tests::slow")).await;
    }
}

async fn decodes_early(fixture: &FeedFixture) {
    let resources = with_function::<Slow>();
    let (expected, steps) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    let before = CALLS.lock().clone();
    let batches: Vec<Vec<(u64, u64)>> = {
        let samples: Vec<_> = expected.iter().map(|((at, _), seen)| (at.epoch, seen.id)).collect();
        samples.chunks(BATCH).map(<[_]>::to_vec).collect()
    };
    assert_eq!(batches.len() as u64, steps);

    let mut feed = start(&resources, &fixture.session(1), 0, Position::START);
    let (mut seen, mut held, mut early) = (BTreeMap::new(), VecDeque::new(), 0);
    for (number, batch) in batches.iter().enumerate() {
        if number >= DEFAULT_SLOTS as usize {
            // All slots are held here, so this batch has none. Of the last epoch, what takes long is known, and all is in memory.
            for (epoch, id) in batch.iter().filter(|(epoch, id)| *epoch == 2 && is_slow(*id)) {
                let (label, calls) = (*id as i64 * 3, epoch + 1);
                let is_called = || CALLS.lock()[&label] >= before[&label] + calls;
                becomes_true(&format!("sample {id} is begun before batch {number} has a slot"), is_called).await;
                early += 1;
            }
            feed.free(held.pop_front().unwrap()).unwrap();
        }
        let FeedEvent::Filled { slot, used_bytes, .. } = feed.next().await.unwrap() else { panic!("too early an end") };
        read_batch(feed.slab(), feed.layout(), slot, used_bytes, &mut seen);
        held.push_back(slot);
    }
    assert!(seen == expected, "the batches are the same");
    assert_eq!(early, 3);
    let calls = CALLS.lock();
    assert!(calls.iter().all(|(label, calls)| *calls == before[label] + 3), "none was decoded twice");
}

/// Whether [`Held`] may return.
static IS_RELEASED: AtomicBool = AtomicBool::new(false);

/// Does not return for one sample until it is released.
struct Held;

impl SampleFunction for Held {
    const NAME: &'static str = "tests::held";
    const VERSION: u32 = 1;

    fn prepare(_: &FunctionSetup) -> Result<Self, FunctionProblem> {
        Ok(Self)
    }

    fn call(&self, taken: &Taken<'_>, returned: &mut Returned<'_>, _: &mut Draw) -> Result<(), FunctionProblem> {
        let label = taken.value("label")?.number::<i64>()?;
        while label == 3 * 47 && !IS_RELEASED.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        returned.put("twice", &[2 * label])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_waits_for_a_slow_sample_is_told_which_and_what_it_is_in() {
    let (fixture, resources) = (fixture(COLUMNS[0], "tests::held"), with_function::<Held>());
    let mut feed = start(&resources, &fixture.session(1), 0, Position::START);
    let view = feed.view().clone();
    let drained = tokio::spawn(async move { drain(&mut feed).await });
    let stall = || view.stall().filter(|stall| stall.stage == Stage::Transform);
    becomes_true("the stall names the function", || stall().is_some()).await;
    let text = stall().unwrap().to_string();
    for part in ["function `tests::held", "sample `000047` of shard `1.tar` for rank 0 of job `train`", " ms"] {
        assert!(text.contains(part), "{text}");
    }
    IS_RELEASED.store(true, Ordering::Relaxed);
    let (seen, _) = drained.await.unwrap().unwrap();
    assert_eq!(seen.len() as u64, 3 * SAMPLES);
}
