//! The link between two stages: a bounded queue with numbered slots, so that a result is placed at the number that its item
//! had. Its producers reserve a slot before they work, hence a result always has room.

use std::collections::VecDeque;

use crate::{
    error::PipelineError,
    op::OutputOrder,
    state::State,
    sync::{Mutex, lock},
};

/// What a link carries. An error takes the place of its item, so that the items before it still arrive.
pub(crate) type Message<T> = Result<T, Box<PipelineError>>;

/// A link's typed half; its numbers are in the [`State`]. It is only locked while the state is, so this never waits.
pub(crate) struct Link<T> {
    pub(crate) id: usize,
    queue: Mutex<Queue<T>>,
}

struct Queue<T> {
    order: OutputOrder,
    /// Messages that can be taken.
    ready: VecDeque<Message<T>>,
    /// Reserved slots from number `first` on; used where results leave in the order of their inputs.
    slots: VecDeque<Slot<T>>,
    first: u64,
    /// Number of reserved slots where results leave in the order of completion.
    reserved: usize,
}

enum Slot<T> {
    Reserved,
    Filled(Message<T>),
    /// The item was left out.
    Hole,
}

impl<T> Link<T> {
    pub(crate) fn new(id: usize, order: OutputOrder) -> Self {
        let (ready, slots) = (VecDeque::new(), VecDeque::new());
        Self { id, queue: Mutex::new(Queue { order, ready, slots, first: 0, reserved: 0 }) }
    }

    /// Reserves the next slot and returns its number.
    pub(crate) fn reserve(&self, state: &mut State) -> u64 {
        self.change(state, |queue| match queue.order {
            OutputOrder::Completion => {
                queue.reserved += 1;
                0
            }
            OutputOrder::Input => {
                queue.slots.push_back(Slot::Reserved);
                queue.first + queue.slots.len() as u64 - 1
            }
        })
    }

    /// Places a message in its slot, or gives up the slot.
    pub(crate) fn place(&self, state: &mut State, number: u64, message: Option<Message<T>>) {
        self.change(state, |queue| queue.place(number, message));
    }

    /// Takes the next message. There must be one that is ready.
    pub(crate) fn take(&self, state: &mut State) -> Message<T> {
        self.change(state, |queue| queue.ready.pop_front().expect("the state counts the messages that are ready"))
    }

    fn change<R>(&self, state: &mut State, change: impl FnOnce(&mut Queue<T>) -> R) -> R {
        let mut queue = lock(&self.queue);
        let result = change(&mut queue);
        state.link_changed(self.id, queue.ready.len() + queue.slots.len() + queue.reserved, queue.ready.len());
        result
    }
}

impl<T> Queue<T> {
    fn place(&mut self, number: u64, message: Option<Message<T>>) {
        if self.order == OutputOrder::Completion {
            self.reserved -= 1;
            self.ready.extend(message);
            return;
        }
        let at = usize::try_from(number - self.first).expect("there are fewer slots than addresses");
        self.slots[at] = message.map_or(Slot::Hole, Slot::Filled);
        while let Some(slot) = self.slots.pop_front_if(|slot| !matches!(slot, Slot::Reserved)) {
            self.first += 1;
            if let Slot::Filled(message) = slot {
                self.ready.push_back(message);
            }
        }
    }
}
