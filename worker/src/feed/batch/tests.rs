//! Tests of planning batches and of fetching their blocks ahead.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use spdl_accounting::UnitState;
use spdl_order::Step;
use spdl_types::{BatchId, Position, SessionId};

use super::{
    ahead::{PlannedBatch, PlannedBatches, items_of},
    threads::{ParkedThread, Parking},
};
use crate::feed::{
    FeedRequest, Resources, SlabKind,
    open::{Feed, FeedWork, ReservedFeed},
    tests::fixture::{FeedFixture, resources},
};

const ONE_EPOCH: &str = "epochs = 1\nglobal_batch = 12";

async fn feed(fixture: &FeedFixture, resources: &Arc<Resources>) -> Arc<Feed> {
    let (session, from) = (fixture.session(1), Position::START);
    let request = FeedRequest { session, rank: 0, from, slots: 1, slab: SlabKind::Private };
    let (reserved, ..) = ReservedFeed::new(resources, request, FeedWork::All).unwrap();
    Arc::new(reserved.open().await.unwrap())
}

#[tokio::test]
async fn the_blocks_of_every_batch_but_the_first_are_fetched_ahead_and_kept_until_it_is_filled() {
    let fixture = FeedFixture::new(&[], ONE_EPOCH);
    let feed = feed(&fixture, &resources(64 << 20, None)).await;
    let params = fixture.job.batches(12);
    let all: Vec<Step> = feed.plan.steps(Position::START, &params).take(4).collect();
    let mut batches = PlannedBatches::new(feed.clone());
    all.iter().for_each(|step| batches.prepare(*step));
    for (number, step) in all.into_iter().enumerate() {
        let PlannedBatch { entries, groups, holds, .. } = batches.take(step, number as u64).known(&feed).await.unwrap();
        assert_eq!(groups.iter().map(|group| group.len()).sum::<usize>(), entries);
        let expected = if number == 0 { 0 } else { groups.len() };
        assert_eq!(holds.len(), expected, "batch {number} reads {} blocks", groups.len());
    }
}

#[tokio::test]
async fn the_samples_of_a_batch_are_grouped_by_block_and_invalid_entries_hold_none() {
    let fixture = FeedFixture::new(&[], "epochs = 1\nglobal_batch = 32\nepoch_end = \"exact\"");
    let feed = feed(&fixture, &resources(64 << 20, None)).await;
    let params = fixture.job.batches(32);
    let last = feed.plan.steps(Position::START, &params).last().unwrap();
    let PlannedBatch { entries, groups, invalid, .. } = PlannedBatch::new(&feed, last, items_of(&feed, &last));
    assert_eq!((entries, invalid.len()), (32, 8), "120 samples in batches of 32");
    for group in &groups {
        assert!(group.iter().all(|sample| sample.block == group[0].block));
    }
    assert!(groups.windows(2).all(|pair| pair[0][0].block < pair[1][0].block), "each block is in one group");
    let mut filled: Vec<u32> = groups.iter().flatten().chain(&invalid).map(|sample| sample.entry).collect();
    filled.sort_unstable();
    assert!(filled.into_iter().eq(0..32), "each entry is there once");
}

#[tokio::test]
#[should_panic(expected = "in the order in which they were prepared")]
async fn a_batch_is_not_filled_with_the_samples_of_another() {
    let fixture = FeedFixture::new(&[], ONE_EPOCH);
    let feed = feed(&fixture, &resources(64 << 20, None)).await;
    let [first, second] =
        [0, 12].map(|offset| feed.plan.step(Position::new(0, offset), &fixture.job.batches(12)).unwrap());
    let mut batches = PlannedBatches::new(feed);
    batches.prepare(first);
    batches.take(second, 1);
}

#[test]
fn threads_leave_a_batch_for_their_pause_while_somebody_calls_them_back() {
    let resources = resources(64 << 20, None);
    let batch = BatchId { session: SessionId(1), rank: 0, from: Position::START };
    let begin = |number| resources.decoding.threads.begin(number, batch);
    let (parking, now, pause) = (Parking::open(), Instant::now(), Duration::from_secs(1));
    parking.enter(begin(0), now + 2 * pause).unwrap();
    parking.enter(begin(1), now + pause).unwrap();
    assert_eq!(parking.next(), Some(now + pause));
    let numbers = |left: Vec<ParkedThread>| left.iter().map(|thread| thread.number).collect::<Vec<_>>();
    assert!(parking.leave(now).is_empty());
    assert_eq!(numbers(parking.leave(now + pause)), [1]);
    assert_eq!(parking.next(), Some(now + 2 * pause));
    assert_eq!(numbers(parking.close()), [0], "none is forgotten");
    assert_eq!((parking.next(), parking.close().len()), (None, 0));
    for parking in [parking, Parking::default()] {
        drop(parking.enter(begin(0), now).unwrap_err());
    }
    let throttled = |at| resources.stages.decode.units().read(at).0.of(UnitState::Throttled);
    let before = throttled(Instant::now());
    assert!(throttled(Instant::now() + pause) > before, "thread 1 has not been called back");
}
