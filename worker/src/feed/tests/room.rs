//! Tests of the memory that batches with ragged values take: it grows and shrinks with them, and ranks share it.

use rustix::fs::fstat;
use spdl_types::Position;

use super::{
    super::{FeedError, FeedEvent, FeedRequest, RankFeed, SlabKind},
    fixture::{FeedFixture, SAMPLES, drain, resources, run},
};
use crate::budget::MIN_MEMORY_BYTES;

/// Bytes for slots in the least memory that a worker takes.
const SLAB_BYTES: u64 = 8 << 20;
const IN_ORDER: &str = "epochs = 2\nglobal_batch = 60\nshuffle = false";

fn start(
    resources: &std::sync::Arc<super::super::Resources>,
    fixture: &FeedFixture,
    rank: u32,
    world: u32,
) -> RankFeed {
    let (session, from) = (fixture.session(world), Position::START);
    RankFeed::start(resources, FeedRequest { session, rank, from, slots: 0, slab: SlabKind::Shared }).unwrap()
}

/// Returns the bytes that the kernel holds for the slab of a feed.
fn kernel_bytes(feed: &RankFeed) -> u64 {
    fstat(feed.slab().fd().expect("a shared slab")).unwrap().st_blocks as u64 * 512
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_far_below_their_bound_take_the_memory_that_they_need() {
    let fixture = FeedFixture::of_lengths(|id| id as usize + 1, 1 << 20, IN_ORDER);
    assert!(fixture.session(1).layout().slot_bytes() as u64 > 7 * SLAB_BYTES);
    let resources = resources(MIN_MEMORY_BYTES, None);
    let mut feed = start(&resources, &fixture, 0, 1);
    let (seen, steps) = drain(&mut feed).await.unwrap();
    assert_eq!((seen.len() as u64, steps), (2 * SAMPLES, 4));
    for sample in seen.values() {
        assert_eq!(sample.text, vec![sample.id as u8; sample.id as usize + 1]);
    }
    assert!(kernel_bytes(&feed) <= 4 * (16 << 10), "{} bytes", kernel_bytes(&feed));
    assert!(resources.memory_bytes().0 <= 4 * (16 << 10), "{} bytes", resources.memory_bytes().0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_grow_to_large_values_and_give_their_memory_back() {
    // Of eight steps of an epoch the third has a megabyte and a half, and all others 15 kB.
    let length = |id| if (30..45).contains(&id) { 100_000 } else { 1000 };
    let more = "epochs = 3\nglobal_batch = 15\nshuffle = false";
    let fixture = FeedFixture::of_lengths(length, 1 << 20, more);
    let resources = resources(MIN_MEMORY_BYTES, None);
    let mut feed = start(&resources, &fixture, 0, 1);
    let mut most_bytes = 0;
    while let FeedEvent::Filled { slot, used_bytes, .. } = feed.next().await.unwrap() {
        most_bytes = most_bytes.max(used_bytes);
        assert!(resources.memory_bytes().0 <= SLAB_BYTES);
        feed.free(slot).unwrap();
    }
    assert!(most_bytes > 1_500_000);
    // The slot keeps few bytes for a larger batch.
    assert!(kernel_bytes(&feed) < 500_000, "{} bytes", kernel_bytes(&feed));
    assert!(resources.memory_bytes().0 < 500_000, "{} bytes", resources.memory_bytes().0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trainers_in_lockstep_get_the_same_batches_with_little_memory_as_with_much() {
    // A rank's batches have 0.9 to 1.8 MB; four for each of two ranks do not fit.
    let length = |id: u64| 30_000 + (id as usize * 7919) % 30_000;
    let fixture = FeedFixture::of_lengths(length, 1 << 20, "epochs = 8\nglobal_batch = 60");
    let (expected, _) = run(&resources(512 << 20, None), &fixture.session(2), Position::START).await.unwrap();
    let resources = resources(MIN_MEMORY_BYTES, None);
    let mut feeds = [0, 1].map(|rank| start(&resources, &fixture, rank, 2));
    let mut seen = std::collections::BTreeMap::new();
    let mut held: [Option<u32>; 2] = [None; 2];
    'steps: loop {
        let mut next = [0; 2];
        for (feed, next) in feeds.iter_mut().zip(&mut next) {
            let event = tokio::time::timeout(std::time::Duration::from_secs(120), feed.next()).await;
            match event.expect("a batch within two minutes").unwrap() {
                FeedEvent::Filled { slot, used_bytes, .. } => {
                    super::fixture::read_batch(feed.slab(), feed.layout(), slot, used_bytes, &mut seen);
                    *next = slot;
                }
                FeedEvent::End { .. } => break 'steps,
            }
        }
        // A trainer has its next batch before it drops the last one, and all go to the next step together.
        for ((feed, held), next) in feeds.iter().zip(&mut held).zip(next) {
            if let Some(slot) = held.replace(next) {
                feed.free(slot).unwrap();
            }
        }
        let slabs = feeds.iter().map(kernel_bytes).sum::<u64>();
        assert!(slabs <= SLAB_BYTES, "{slabs} bytes");
    }
    assert!(seen == expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_can_never_fit_ends_with_the_memory_that_would_be_enough() {
    let length = |id| if id == 70 { 100 } else { 200_000 };
    let fixture = FeedFixture::of_lengths(length, 1 << 20, IN_ORDER);
    let resources = resources(MIN_MEMORY_BYTES, None);
    let error = drain(&mut start(&resources, &fixture, 0, 1)).await.unwrap_err();
    let FeedError::Memory { slot_bytes, least: 2, budget_bytes: MIN_MEMORY_BYTES, enough_bytes, .. } = error else {
        panic!("{error}")
    };
    assert!(slot_bytes >= 60 * 200_000 && enough_bytes > slot_bytes, "{error}");
    assert!(!error.is_retryable() && error.to_string().contains("raise its memory budget to"), "{error}");
    let enough = super::fixture::resources(enough_bytes, None);
    let (seen, _) = drain(&mut start(&enough, &fixture, 0, 1)).await.unwrap();
    assert_eq!(seen.len() as u64, 2 * SAMPLES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_trainers_leave_no_room_for_ends_its_rank_at_once() {
    // Batches of 2.7 MB, two of which a trainer holds, and of 4 MB.
    let [small, large] = [45_000, 66_000].map(|length| FeedFixture::of_lengths(|_| length, 1 << 20, IN_ORDER));
    let resources = resources(MIN_MEMORY_BYTES, None);
    let mut holder = start(&resources, &small, 0, 1);
    for _ in 0..2 {
        assert!(matches!(holder.next().await.unwrap(), FeedEvent::Filled { .. }));
    }
    let error = start(&resources, &large, 0, 1).next().await.unwrap_err();
    let FeedError::NoRoom { needed_bytes, left_bytes, enough_bytes, .. } = error else { panic!("{error}") };
    assert!(needed_bytes >= 60 * 66_000 && left_bytes < SLAB_BYTES - 2 * 60 * 45_000, "{error}");
    assert!(error.to_string().contains(" bytes for the batches that its trainer has and the next one"), "{error}");
    assert!(error.is_retryable() && enough_bytes > MIN_MEMORY_BYTES, "{error}");
    drop(holder);
    assert!(matches!(start(&resources, &large, 0, 1).next().await.unwrap(), FeedEvent::Filled { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_memory_is_short_a_trainer_gets_a_third_batch_when_it_gives_one_back() {
    let fixture = FeedFixture::of_lengths(|_| 1000, 1 << 20, IN_ORDER);
    let resources = resources(MIN_MEMORY_BYTES, None);
    let mut feed = start(&resources, &fixture, 0, 1);
    let mut slots = Vec::new();
    for _ in 0..2 {
        let FeedEvent::Filled { slot, .. } = feed.next().await.unwrap() else { panic!("it has four batches") };
        slots.push(slot);
    }
    let stall = loop {
        match feed.view().stall() {
            Some(stall) if stall.waiting_for.contains("the trainer") => break stall,
            _ => tokio::task::yield_now().await,
        }
    };
    assert!(stall.waiting_for.contains("one of the 2 batches that it has of rank 0"), "{}", stall.waiting_for);
    feed.free(slots[0]).unwrap();
    assert!(matches!(feed.next().await.unwrap(), FeedEvent::Filled { sequence: 2, .. }));
}
