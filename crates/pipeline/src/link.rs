//! The link between two stages: a bounded queue with numbered slots, so that a result is placed at the number that its item
//! had. Its producers reserve a slot before they work, hence a result always has room.

use std::{collections::VecDeque, time::Duration};

use crate::{
    error::PipelineError,
    pipeline_state::{Count, PipelineState},
    sync::{Mutex, lock},
};

/// The order in which results leave a pipe whose concurrency is above 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputOrder {
    /// The order of the inputs: one slow item holds up the items behind it.
    #[default]
    Input,
    /// The order of completion. The results of one item keep their order.
    Completion,
}

/// A message of a link: an item, or what has taken its place.
pub(crate) type LinkMessage<T> = Result<T, NoItem>;

/// What takes the place of an item.
#[derive(Debug)]
pub(crate) enum NoItem {
    /// A failure. The items before it still arrive.
    Failed(Box<PipelineError>),
    /// The item was left out. It travels on only to the end of its branch, which waits for it.
    LeftOut,
}

impl From<PipelineError> for NoItem {
    fn from(error: PipelineError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// A message as it is taken from a link.
pub(crate) struct TakenMessage<T> {
    pub(crate) message: LinkMessage<T>,
    /// Whether it is the last one that an item of the branch gives. Only branches whose results are put back in order mark it.
    pub(crate) is_last: bool,
}

/// A reserved place in a link.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    number: u64,
    /// Whether the message will be the last of an item of the branch.
    pub(crate) is_last: bool,
}

/// A link's typed half; its numbers are in the [`PipelineState`]. It is only locked while the state is, so this
/// never waits.
pub(crate) struct Link<T> {
    pub(crate) id: usize,
    queue: Mutex<LinkQueue<T>>,
}

struct LinkQueue<T> {
    order: OutputOrder,
    /// Messages that can be taken.
    ready: VecDeque<TakenMessage<T>>,
    /// Reserved slots from number `first` on; used where results leave in the order of their inputs.
    slots: VecDeque<Reserved<T>>,
    first: u64,
    /// Number of reserved slots where results leave in the order of completion.
    reserved: usize,
}

enum Reserved<T> {
    Empty,
    Filled(TakenMessage<T>),
    /// The item was left out.
    Hole,
}

impl<T> Link<T> {
    pub(crate) fn new(id: usize, order: OutputOrder) -> Self {
        let (ready, slots) = (VecDeque::new(), VecDeque::new());
        Self { id, queue: Mutex::new(LinkQueue { order, ready, slots, first: 0, reserved: 0 }) }
    }

    /// Reserves the next slot, for a message that is or is not the last of an item of the branch.
    pub(crate) fn reserve(&self, state: &mut PipelineState, is_last: bool) -> Slot {
        let number = self.change(state, |queue| match queue.order {
            OutputOrder::Completion => {
                queue.reserved += 1;
                0
            }
            OutputOrder::Input => {
                queue.slots.push_back(Reserved::Empty);
                queue.first + queue.slots.len() as u64 - 1
            }
        });
        Slot { number, is_last }
    }

    /// Places a message in its slot, or gives up the slot.
    pub(crate) fn place(&self, state: &mut PipelineState, slot: Slot, message: Option<LinkMessage<T>>) {
        let message = message.or_else(|| slot.is_last.then_some(Err(NoItem::LeftOut)));
        let taken = message.map(|message| TakenMessage { message, is_last: slot.is_last });
        self.change(state, |queue| queue.place(slot.number, taken));
    }

    /// Takes the next message. There must be one that is ready.
    pub(crate) fn take(&self, state: &mut PipelineState) -> TakenMessage<T> {
        self.change(state, |queue| queue.ready.pop_front().expect("the state counts the messages that are ready"))
    }

    fn change<R>(&self, state: &mut PipelineState, change: impl FnOnce(&mut LinkQueue<T>) -> R) -> R {
        let mut queue = lock(&self.queue);
        let result = change(&mut queue);
        state.link_changed(self.id, queue.ready.len() + queue.slots.len() + queue.reserved, queue.ready.len());
        result
    }
}

impl<T> LinkQueue<T> {
    fn place(&mut self, number: u64, message: Option<TakenMessage<T>>) {
        if self.order == OutputOrder::Completion {
            self.reserved -= 1;
            self.ready.extend(message);
            return;
        }
        let at = usize::try_from(number - self.first).expect("there are fewer slots than addresses");
        self.slots[at] = message.map_or(Reserved::Hole, Reserved::Filled);
        while let Some(slot) = self.slots.pop_front_if(|slot| !matches!(slot, Reserved::Empty)) {
            self.first += 1;
            if let Reserved::Filled(message) = slot {
                self.ready.push_back(message);
            }
        }
    }
}

/// Passes a message on unchanged.
pub(crate) fn pass_on<T>(
    stage: usize,
    state: &mut PipelineState,
    output: &Link<T>,
    is_last: bool,
    message: LinkMessage<T>,
) {
    match &message {
        Ok(_) => state.count(stage, Count::Item(0), Duration::ZERO),
        Err(NoItem::Failed(_)) => state.halt(stage),
        Err(NoItem::LeftOut) => {}
    }
    let slot = output.reserve(state, is_last);
    let is_left_out = matches!(message, Err(NoItem::LeftOut));
    output.place(state, slot, (!is_left_out).then_some(message));
}
