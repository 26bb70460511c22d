//! The cost of the order in storage traffic: one node reads a block, and few blocks are in use at once.
#![allow(clippy::disallowed_types, reason = "a test that counts needs no order")]

use std::collections::{HashMap, HashSet};

use spdl_order::{BatchParams, EpochEnd, OrderParams, Plan};
use spdl_types::Position;

const LANES: u32 = 24;
const BLOCK: u32 = 50;
const BLOCKS: u32 = 24 * 60;

fn plan(window: u64) -> Plan {
    let order = OrderParams { version: 1, lanes: LANES, window, shuffle: true };
    Plan::new(&[BLOCK; BLOCKS as usize], 5, order).unwrap()
}

const fn batch(global_batch: u32) -> BatchParams {
    BatchParams { global_batch, epochs: 1, epoch_end: EpochEnd::Drop, end: None }
}

/// Returns the downloads per block if every rank is a node that reads each block it needs once.
fn downloads_per_block(plan: &Plan, global_batch: u32, world: u32) -> f64 {
    let mut items = Vec::new();
    let mut downloads = HashSet::new();
    for step in plan.steps(Position::START, &batch(global_batch)) {
        for rank in 0..world {
            plan.rank_items(&step, rank, world, &mut items);
            downloads.extend(items.iter().map(|item| (rank, item.located.block)));
        }
    }
    downloads.len() as f64 / f64::from(BLOCKS)
}

/// Returns the downloads per block if the batch is sorted by lane, not by lane modulo gcd(L, B).
fn downloads_per_block_by_lane(plan: &Plan, global_batch: u32, world: u32) -> f64 {
    let mut downloads = HashSet::new();
    let size = u64::from(global_batch);
    for from in (0..=plan.samples() - size).step_by(size as usize) {
        let mut offsets: Vec<u64> = (from..from + size).collect();
        offsets.sort_by_key(|g| (g % u64::from(LANES), *g));
        for rank in 0..world {
            let (start, end) = (global_batch * rank / world, global_batch * (rank + 1) / world);
            let blocks = offsets[start as usize..end as usize].iter().map(|g| plan.at(0, *g).block);
            downloads.extend(blocks.map(|block| (rank, block)));
        }
    }
    downloads.len() as f64 / f64::from(BLOCKS)
}

#[test]
fn the_gcd_rule_reads_a_block_once_where_slicing_by_lane_reads_it_twice() {
    let plan = plan(200);
    // Every block is read once, and once more for each of the 23 blocks that the lanes' borders may cut.
    let cut = 1.0 + f64::from(LANES - 1) / f64::from(BLOCKS);
    for (global_batch, world) in [(36, 12), (36, 6), (36, 4), (60, 12), (40, 8), (56, 8), (90, 6)] {
        let ruled = downloads_per_block(&plan, global_batch, world);
        assert!(ruled <= cut, "B {global_batch}, W {world}: {ruled} downloads per block");
        let by_lane = downloads_per_block_by_lane(&plan, global_batch, world);
        let doubles = if world < 8 { 1.4 } else { 1.9 };
        assert!(by_lane > doubles, "B {global_batch}, W {world}: only {by_lane} downloads per block without the rule");
    }
    let divides = downloads_per_block_by_lane(&plan, 48, 12);
    assert!(divides <= cut, "where L divides B the two are the same, {divides}");
}

#[test]
fn a_block_is_alive_for_no_longer_than_its_samples_and_three_halves_of_a_window() {
    let window = 200;
    let plan = plan(window);
    let lanes = u64::from(LANES);
    for epoch in 0..3 {
        let mut alive: HashMap<(u64, u32), (u64, u64)> = HashMap::new();
        for offset in 0..plan.samples() {
            let key = (offset % lanes, plan.at(epoch, offset).block);
            let range = alive.entry(key).or_insert((offset / lanes, 0));
            range.1 = offset / lanes;
            let until = plan.in_use_until(Position::new(epoch, offset)).offset / lanes;
            assert!(until - range.0 <= u64::from(BLOCK) + 4 * window, "{} to {until}", range.0);
        }
        let longest = alive.values().map(|(first, last)| last - first).max().unwrap();
        assert!(longest <= u64::from(BLOCK) + 3 * window, "{longest} samples");
        assert!(longest > window, "{longest} samples: windows mix blocks");
    }
}

#[test]
fn lanes_do_not_change_windows_all_at_the_same_step() {
    let window = 600;
    let plan = plan(window);
    let mut first_seen: HashMap<u32, u64> = HashMap::new();
    for offset in 0..plan.samples() {
        first_seen.entry(plan.at(0, offset).block).or_insert(offset);
    }
    // New blocks that are needed in each eighth of a window over all lanes, without the first and the last window.
    let bin = window * u64::from(LANES) / 8;
    let bins = (plan.samples() / bin) as usize;
    let mut news = vec![0_u32; bins + 1];
    for offset in first_seen.values() {
        news[(offset / bin) as usize] += 1;
    }
    let middle = &news[8..bins - 8];
    let mean = f64::from(middle.iter().sum::<u32>()) / middle.len() as f64;
    let most = f64::from(*middle.iter().max().unwrap());
    assert!(most < 2.5 * mean, "{most} new blocks in one bin of {mean} on average: {news:?}");
}
