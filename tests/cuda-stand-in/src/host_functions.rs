//! Functions of the host's that a stream calls in its order.

use crate::{calls::call, state::Code, stream::Work};

/// A function of the host's, and what it gets.
pub(crate) type HostFunction = extern "C" fn(usize);

/// Queues a call of a function of the host's. Later work on the stream waits until it returns.
#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(stream: usize, function: HostFunction, data: usize) -> Code {
    call("cuLaunchHostFunc", |state| {
        state.stream(stream)?.put(Work::Call { function, data });
        Ok(())
    })
}
