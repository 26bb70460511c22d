//! Functions of the host's that a stream calls in its order.

use crate::{calls::driver_calls, stream::Work};

/// A function of the host's, and what it gets.
pub(crate) type HostFunction = extern "C" fn(usize);

driver_calls! {
    /// Queues a call of a function of the host's. Later work on the stream waits until it returns.
    fn cuLaunchHostFunc(stream: usize, function: HostFunction, data: usize) |state| {
        state.stream(stream)?.put(Work::Call { function, data });
        Ok(())
    }
}
