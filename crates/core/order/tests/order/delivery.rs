//! What a plan delivers, as the golden vectors have it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use spdl_order::{BatchParams, EpochEnd, Item, ItemKind, Plan};
use spdl_types::Position;

/// What a case takes of its plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TakenSteps {
    pub(crate) global_batch: u32,
    pub(crate) epochs: u64,
    pub(crate) epoch_end: EpochEnd,
    pub(crate) world: u32,
    pub(crate) from: (u64, u64),
    /// Upper limit of the steps to take.
    pub(crate) steps: usize,
    /// Positions to look up individually.
    pub(crate) at: Vec<(u64, u64)>,
}

/// Returns what a plan delivers in these steps, and at these positions.
pub(crate) fn delivered(plan: &Plan, taken: &TakenSteps) -> Value {
    delivered_up_to(plan, taken, None)
}

/// Returns what a plan delivers in these steps of a stream that may end within an epoch, and at these positions.
pub(crate) fn delivered_up_to(plan: &Plan, taken: &TakenSteps, end: Option<u64>) -> Value {
    let TakenSteps { global_batch, epochs, epoch_end, .. } = *taken;
    let batch = BatchParams { global_batch, epochs, epoch_end, end };
    let from = Position::new(taken.from.0, taken.from.1);
    let mut items = Vec::new();
    let steps: Vec<Value> = plan
        .steps(from, &batch)
        .take(taken.steps)
        .map(|step| {
            let ranks: Vec<Vec<Value>> = (0..taken.world)
                .map(|rank| {
                    plan.rank_items(&step, rank, taken.world, &mut items);
                    items.iter().map(entry).collect()
                })
                .collect();
            let position = |position: Position| (position.epoch, position.offset);
            json!({"from": position(step.from), "next": position(step.next), "ranks": ranks})
        })
        .collect();
    let substitutes = |&(epoch, offset): &(u64, u64)| [0, 7, 8].map(|i| plan.substitute(epoch, offset, i).unwrap().id);
    json!({
        "at": taken.at.iter().map(|&(epoch, offset)| plan.at(epoch, offset).id).collect::<Vec<_>>(),
        "substitutes": taken.at.iter().flat_map(substitutes).collect::<Vec<_>>(),
        "steps": steps,
        "receipt": plan.receipt(from, Some(taken.steps as u64), &batch).to_string(),
    })
}

fn entry(item: &Item) -> Value {
    let (kind, id) = match item.kind {
        ItemKind::Sample => ("sample", Some(item.located.id)),
        ItemKind::Padding => ("padding", Some(item.located.id)),
        ItemKind::Invalid => ("invalid", None),
    };
    json!([item.at.epoch, item.at.offset, id, kind])
}

/// Returns how many steps these deliveries have together.
pub(crate) fn steps(deliveries: &[Value]) -> usize {
    deliveries.iter().map(|delivered| delivered["steps"].as_array().unwrap().len()).sum()
}

/// Returns numbers below a limit from a fixed sequence (a linear congruential generator, Knuth's MMIX constants).
pub(crate) fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    }
}
