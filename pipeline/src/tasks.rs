//! The tasks of a running pipeline: how they are started, deliver, fail and are stopped together.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, mpsc as blocking},
};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::OwnedSemaphorePermit, task::AbortHandle};

use crate::{error::PipelineError, queue::StageMessage, stats::StageCounters};

/// A message to the consumer; the permit is the item's place in the sink's buffer.
pub(crate) type DeliveredItem<T> = (StageMessage<T>, Option<OwnedSemaphorePermit>);

/// Starts the tasks of a pipeline that delivers `T`, and stops them all.
pub(crate) struct Tasks<T> {
    runtime: Handle,
    state: Arc<Mutex<TaskState<T>>>,
}

struct TaskState<T> {
    running: Vec<AbortHandle>,
    /// `None` once the last item or the error has been delivered.
    consumer: Option<blocking::Sender<DeliveredItem<T>>>,
}

impl<T> Clone for Tasks<T> {
    fn clone(&self) -> Self {
        Self { runtime: self.runtime.clone(), state: self.state.clone() }
    }
}

impl<T: Send + 'static> Tasks<T> {
    pub(crate) fn new(runtime: Handle, consumer: blocking::Sender<DeliveredItem<T>>) -> Self {
        Self { runtime, state: Arc::new(Mutex::new(TaskState { running: Vec::new(), consumer: Some(consumer) })) }
    }

    /// Runs a task of `stage`. If it panics, the pipeline stops with an error that names the stage.
    pub(crate) fn spawn(&self, stage: &Arc<StageCounters>, task: impl Future<Output = ()> + Send + 'static) {
        let (tasks, stage) = (self.clone(), stage.clone());
        let mut state = self.state.lock();
        if state.consumer.is_none() {
            return;
        }
        let handle = self.runtime.spawn(async move {
            if let Err(payload) = AssertUnwindSafe(task).catch_unwind().await {
                tasks.fail(PipelineError::panicked(stage.name(), &*payload));
            }
        });
        state.running.push(handle.abort_handle());
    }

    /// Delivers an item. Returns false if the pipeline has stopped.
    pub(crate) fn deliver(&self, item: T, place: OwnedSemaphorePermit) -> bool {
        let state = self.state.lock();
        state.consumer.as_ref().is_some_and(|consumer| consumer.send((Ok(item), Some(place))).is_ok())
    }

    /// Delivers an error and stops the pipeline.
    pub(crate) fn fail(&self, error: PipelineError) {
        let consumer = self.state.lock().consumer.take();
        if let Some(consumer) = consumer {
            let _ = consumer.send((Err(error), None));
        }
        self.stop();
    }

    /// Aborts every task where it waits. Their queues are closed with them, which ends the source's thread.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.consumer = None;
        for task in state.running.drain(..) {
            task.abort();
        }
    }
}
