//! What is recorded while a rank is fed.

use std::{collections::BTreeSet, time::Duration};

use spdl_accounting::{UnitInterval, UnitState};
use spdl_types::{BatchId, Position, SessionId, Stage};
use spdl_wire::trace::Recorded;

use super::{
    PLENTY,
    fixture::{FeedFixture, SAMPLES, resources, run},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetches_decoding_and_slots_carry_the_name_of_their_batch() {
    let fixture = FeedFixture::new(&[], "epochs = 1\nglobal_batch = 12");
    let resources = resources(PLENTY, None);
    resources.record(10_000);
    let session = fixture.session(1);
    run(&resources, &session, Position::START).await.unwrap();
    let recordings = resources.take_recordings();
    let batches: BTreeSet<BatchId> =
        (0..SAMPLES / 12).map(|step| batch(session.id, Position::new(0, 12 * step))).collect();
    let of = |stage: Stage, state: UnitState| {
        let found = recordings.iter().find(|(known, _)| *known == stage).expect("the stage has units");
        let intervals: Vec<UnitInterval> = found.1.intervals.clone();
        intervals.into_iter().filter(move |interval| interval.state == state).collect::<Vec<_>>()
    };
    let decoded = of(Stage::Decode, UnitState::Busy);
    assert_eq!(decoded.iter().filter_map(|interval| interval.batch).collect::<BTreeSet<_>>(), batches);
    let handed = of(Stage::HandOver, UnitState::Output);
    assert_eq!(handed.iter().filter_map(|interval| interval.batch).collect::<BTreeSet<_>>(), batches);
    assert_eq!(handed.len(), batches.len(), "each batch was in one slot, once");
    // The manifest is read for no batch; each block is read for the first batch that needs it.
    let fetched = of(Stage::Fetch, UnitState::Busy);
    let named: BTreeSet<BatchId> = fetched.iter().filter_map(|interval| interval.batch).collect();
    assert!(!named.is_empty() && named.is_subset(&batches), "{fetched:?}");
    for batch in named {
        let first = |intervals: &[UnitInterval]| {
            intervals.iter().filter(|interval| interval.batch == Some(batch)).map(|interval| interval.start).min()
        };
        assert!(first(&fetched) < first(&handed), "{batch:?}");
    }
    let units: BTreeSet<u32> = decoded.iter().map(|interval| interval.unit).collect();
    assert!(units.len() <= resources.budget().threads().get(), "a unit for each thread: {units:?}");
    assert!(resources.take_recordings().is_empty(), "nothing is recorded any more");
    assert!(decoded.iter().all(|interval| interval.end - interval.start > Duration::ZERO));
}

fn batch(session: SessionId, from: Position) -> BatchId {
    BatchId { session, rank: 0, from }
}
