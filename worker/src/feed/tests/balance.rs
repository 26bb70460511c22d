//! Tests of feeds of jobs with `cost`: the sequences of a global batch are dealt to ranks by what they cost.

use std::{collections::BTreeMap, num::NonZeroU32};

use spdl_job::SampleCost;

use super::{
    sequence::{Row, packed, rows_of, run_rows},
    *,
};

const SQUARES: SampleCost = SampleCost::of_tokens(0, 1);
/// Samples of a step.
const GLOBAL_BATCH: u64 = 6;

/// Returns the session with this cost of samples.
fn costing(session: &Session, cost: SampleCost) -> Session {
    let mut session = session.clone();
    session.job.cost = Some(cost);
    session
}

/// Returns for each step what its sequences cost each rank, and how many it has.
async fn loads(resources: &Arc<Resources>, session: &Session) -> BTreeMap<(u64, u64), Vec<(u64, usize)>> {
    let mut steps = BTreeMap::<_, Vec<_>>::new();
    for rank in 0..session.world {
        for (at, row) in rows_of(resources, session, rank, Position::START).await {
            let ranks = steps.entry((at.epoch, at.offset / GLOBAL_BATCH)).or_default();
            ranks.resize(session.world as usize, (0, 0));
            let (load, count) = &mut ranks[rank as usize];
            *load += squares(&row);
            *count += 1;
        }
    }
    steps
}

fn squares(row: &Row) -> u64 {
    row.lengths.iter().map(|length| (*length as u64).pow(2)).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_have_the_same_sequences_together_and_steps_of_even_cost() {
    let (fixture, resources, _) = packed("align = 1", "epoch_end = \"partial\"").await;
    let alone = run_rows(&resources, &fixture.session(1)).await;
    let [mut plain, mut even] = [0, 0];
    for world in [1, 2, 3] {
        let (before, balanced) = (fixture.session(world), costing(&fixture.session(world), SQUARES));
        // Both are in one process, and differ in what samples cost alone.
        assert!(run_rows(&resources, &balanced).await == alone, "a world of {world}");
        let (before, balanced) = (loads(&resources, &before).await, loads(&resources, &balanced).await);
        assert_eq!(before.len(), balanced.len());
        for (step, ranks) in &before {
            let counts = |ranks: &[(u64, usize)]| ranks.iter().map(|(_, count)| *count).collect::<Vec<_>>();
            let largest = |ranks: &[(u64, usize)]| ranks.iter().map(|(load, _)| *load).max().unwrap();
            assert_eq!(counts(ranks), counts(&balanced[step]), "step {step:?} of a world of {world}");
            if world == 1 {
                assert_eq!(ranks, &balanced[step]);
            }
            plain += largest(ranks);
            even += largest(&balanced[step]);
        }
    }
    assert!(even < plain, "the slowest ranks have {even} in all, and {plain} without balance");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_begins_later_has_what_it_would_have_had() {
    let (fixture, resources, _) = packed("align = 16", "").await;
    let session = costing(&fixture.session(3), SQUARES);
    for rank in 0..3 {
        let whole = rows_of(&resources, &session, rank, Position::START).await;
        let from = Position::new(0, 2 * GLOBAL_BATCH);
        let later = rows_of(&resources, &session, rank, from).await;
        assert!(later.len() < whole.len() && later.iter().eq(whole.range(from..)), "rank {rank}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_ranks_deal_what_they_have_without_balance() {
    let (fixture, resources, _) = packed("align = 1", "").await;
    let within = SampleCost { within: NonZeroU32::new(2), ..SQUARES };
    let (before, balanced) = (fixture.session(6), costing(&fixture.session(6), within));
    for group in [[0, 1], [2, 3], [4, 5]] {
        let mut both = [BTreeMap::new(), BTreeMap::new()];
        for (rows, session) in both.iter_mut().zip([&before, &balanced]) {
            for rank in group {
                rows.extend(rows_of(&resources, session, rank, Position::START).await);
            }
        }
        assert!(both[0] == both[1], "ranks {group:?}");
    }
}
