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
    videos::{GROUPS, decoding},
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
    fixture_of(text, column, function)
}

/// Does the same with these bytes in the field `txt` of each sample.
fn fixture_of(value: impl Fn(u64) -> Vec<u8>, column: &str, function: &str) -> FeedFixture {
    let column = format!(
        "{column}\n[[function]]\ncall = \"{function}@1\"\ncolumns = [\"label\"]\n\
         returns = [{{ name = \"twice\", dtype = \"i64\", shape = [] }}]"
    );
    FeedFixture::of_values(value, &format!("epochs = 3\nglobal_batch = {BATCH}"), &column)
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

/// How often each label was taken with each draw, by [`Slow`] with each number.
static CALLS: [Mutex<BTreeMap<i64, BTreeMap<u64, u64>>>; 3] = [const { Mutex::new(BTreeMap::new()) }; 3];

/// Takes its time for three samples. Each test has one with a number of its own.
struct Slow<const TEST: usize>;

const fn is_slow(id: u64) -> bool {
    id % 40 == 7
}

impl<const TEST: usize> SampleFunction for Slow<TEST> {
    const NAME: &'static str = ["tests::slow", "tests::slow_shared", "tests::slow_clips"][TEST];
    const VERSION: u32 = 1;

    fn prepare(_: &FunctionSetup) -> Result<Self, FunctionProblem> {
        Ok(Self)
    }

    fn call(&self, taken: &Taken<'_>, returned: &mut Returned<'_>, draw: &mut Draw) -> Result<(), FunctionProblem> {
        let label = taken.value("label")?.number::<i64>()?;
        if is_slow(label as u64 / 3) {
            // Decoding a clip takes some milliseconds itself.
            thread::sleep(Duration::from_millis(if TEST == 2 { 300 } else { 30 }));
        }
        *CALLS[TEST].lock().entry(label).or_default().entry(draw.bits()).or_default() += 1;
        returned.put("twice", &[2 * label])
    }
}

/// Returns in how many epochs a sample was taken.
fn epochs_of<const TEST: usize>(id: u64) -> u64 {
    CALLS[TEST].lock().get(&(id as i64 * 3)).map_or(0, |draws| draws.len() as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_that_took_long_are_decoded_before_their_batch_has_a_slot() {
    for column in COLUMNS {
        let (fixture, resources) = (fixture(column, "tests::slow"), with_function::<Slow<0>>());
        let (expected, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
        CALLS[0].lock().clear();
        decodes_early::<0>(&resources, &fixture.session(1), &expected).await;
        assert_all_were_taken_once::<0>();
    }
}

/// Asserts that a rank has the slow samples of the last epoch decoded before their batch has a slot, and the same batches.
async fn decodes_early<const TEST: usize>(
    resources: &Arc<Resources>,
    session: &Session,
    expected: &BTreeMap<(Position, u32), Seen>,
) {
    let samples: Vec<_> = expected.iter().map(|((at, _), seen)| (at.epoch, seen.id)).collect();
    let mut feed = start(resources, session, 0, Position::START);
    let (mut seen, mut held, mut early) = (BTreeMap::new(), VecDeque::new(), 0);
    for (number, batch) in samples.chunks(BATCH).enumerate() {
        if number >= DEFAULT_SLOTS as usize {
            // All slots are held here, so this batch has none. Of the last epoch, what takes long is known, and all is in memory.
            for (epoch, id) in batch.iter().filter(|(epoch, id)| *epoch == 2 && is_slow(*id)) {
                let is_called = || epochs_of::<TEST>(*id) > *epoch;
                becomes_true(&format!("sample {id} is begun before batch {number} has a slot"), is_called).await;
                early += 1;
            }
            feed.free(held.pop_front().unwrap()).unwrap();
        }
        let FeedEvent::Filled { slot, used_bytes, .. } = feed.next().await.unwrap() else { panic!("too early an end") };
        read_batch(feed.slab(), feed.layout(), slot, used_bytes, &mut seen);
        held.push_back(slot);
    }
    assert!(seen == *expected, "the batches are the same");
    assert_eq!(early, 3);
}

fn assert_all_were_taken_once<const TEST: usize>() {
    let calls = CALLS[TEST].lock();
    assert_eq!(calls.len() as u64, SAMPLES);
    assert!(calls.values().all(|draws| draws.len() == 3 && draws.values().all(|calls| *calls == 1)), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clips_are_decoded_before_their_batch_has_a_slot() {
    let access = || Access { functions: FunctionRegistry::new().with::<Slow<2>>(), ..Access::default() };
    let Some(resources) = decoding(PLENTY, access()) else { return };
    let clip =
        "name = \"video\"\nfrom = \"txt\"\ndecode = \"video\"\nclip = { frames = 2 }\nops = [{ center_crop = 48 }]";
    let fixture = fixture_of(|_| GROUPS.to_vec(), clip, "tests::slow_clips");
    let (expected, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert!(expected.values().all(|seen| seen.flags == 0 && seen.text.iter().any(|byte| *byte != 0)));
    CALLS[2].lock().clear();
    decodes_early::<2>(&resources, &fixture.session(1), &expected).await;
    assert_all_were_taken_once::<2>();
    let little = decoding(MIN_MEMORY_BYTES, access()).unwrap();
    let (seen, _) = run(&little, &fixture.session(1), Position::START).await.unwrap();
    assert!(seen == expected, "the batches are the same with little memory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_samples_that_sessions_share_are_decoded_before_their_batch_has_a_slot() {
    let (fixture, resources) = (fixture(COLUMNS[1], "tests::slow_shared"), with_function::<Slow<1>>());
    let sessions = [sharing::session(&fixture, 1, "first"), sharing::session(&fixture, 2, "second")];
    let (expected, _) = run(&resources, &sessions[0], Position::START).await.unwrap();
    CALLS[1].lock().clear();
    // The other rank is behind from its first batch on.
    let mut behind = start(&resources, &sessions[1], 0, Position::START);
    let FeedEvent::Filled { slot, used_bytes, .. } = behind.next().await.unwrap() else { panic!("too early an end") };
    decodes_early::<1>(&resources, &sessions[0], &expected).await;
    let mut seen = BTreeMap::new();
    read_batch(behind.slab(), behind.layout(), slot, used_bytes, &mut seen);
    behind.free(slot).unwrap();
    seen.append(&mut drain(&mut behind).await.unwrap().0);
    assert!(seen == expected, "the batches of the other are the same");
    let stats = resources.sharing.stats();
    assert!(stats.samples.kept > 0 && stats.samples.taken > 0, "{stats:?}");
    assert!(stats.bytes <= resources.budget().shares().pool_bytes / 8, "{stats:?}");
}

#[tokio::test]
async fn what_is_decoded_early_takes_an_eighth_of_the_memory_at_most() {
    let resources = resources(MIN_MEMORY_BYTES, None);
    let (slots, most) = (&resources.memory.slots, resources.budget().shares().pool_bytes / 8);
    let more_than_half = slots.reserve_early(most / 2 + 1).unwrap();
    assert!(slots.reserve_early(most / 2 + 1).is_none());
    drop(more_than_half);
    assert!(slots.reserve_early(most).is_some());
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
