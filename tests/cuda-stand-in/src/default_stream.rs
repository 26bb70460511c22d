//! The order of a device's default stream with its other streams: work on the default stream waits for the work that is
//! on all blocking streams by then, and work that comes later on these waits for it. Non-blocking streams are not
//! ordered with it.

use std::sync::mpsc::channel;

use crate::{
    state::state,
    stream::{StandInStream, StreamKind, Work},
};

impl StandInStream {
    /// Makes the next work on this stream wait for what the rules of the default stream require.
    pub(crate) fn join_default(&self) {
        match self.kind() {
            StreamKind::NonBlocking => {}
            StreamKind::Blocking => self.join(&Self::default_of(self.device())),
            StreamKind::Default => {
                for other in state().streams(self.device()) {
                    if other.kind() == StreamKind::Blocking {
                        self.join(&other);
                    }
                }
            }
        }
    }

    /// Makes the next work on this stream wait for the work that is on `other` now.
    fn join(&self, other: &Self) {
        let (notify, notified) = channel();
        other.put_alone(Work::Notify(notify));
        self.put_alone(Work::Await(notified));
    }
}
