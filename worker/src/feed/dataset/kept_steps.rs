//! What is known of whole steps, which the ranks of a session share.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use spdl_order::Step;

/// Number of steps that are kept: those that ranks of a worker fill at once, and some more.
const KEPT_STEPS: usize = 64;

/// A step, and the number of ranks that its batch is dealt to.
type StepKey = (Step, u32);

/// What is known of the steps that were used last, each in a cell; the latest first.
pub(super) struct KeptSteps<C>(Mutex<VecDeque<(StepKey, Arc<C>)>>);

impl<C> Default for KeptSteps<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C: Default> KeptSteps<C> {
    /// Returns the cell of a step, which is empty at first.
    pub(super) fn cell(&self, key: StepKey) -> Arc<C> {
        let mut steps = self.0.lock();
        if let Some((_, cell)) = steps.iter().find(|(other, _)| *other == key) {
            return cell.clone();
        }
        steps.truncate(KEPT_STEPS - 1);
        steps.push_front((key, Arc::default()));
        steps[0].1.clone()
    }
}
