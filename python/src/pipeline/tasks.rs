//! Tasks of a pipeline that run on the thread of a Python event loop, between the loop's own callbacks. An asynchronous
//! operation of Python's ends on that thread. So its next item can begin there, without waking another thread.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use futures::{
    future::FutureObj,
    task::{Spawn, SpawnError},
};
use parking_lot::Mutex;
use pyo3::prelude::*;

/// Tasks that `run` polls before it lets the loop do something else.
const POLLS_IN_A_ROW: usize = 256;

/// The tasks of one event loop.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct LoopTasks {
    shared: Arc<Shared>,
    /// The end of `Shared::signal` that the loop watches.
    signalled: UnixStream,
}

struct Shared {
    queue: Mutex<LoopQueue>,
    /// The socket that gets a byte to make the loop call `run`.
    signal: UnixStream,
}

#[derive(Default)]
struct LoopQueue {
    /// The tasks that were woken.
    ready: VecDeque<Arc<SpawnedTask>>,
    all: Vec<Arc<SpawnedTask>>,
    /// Whether `run` has been asked for or runs, so that it sees the tasks that are woken.
    is_awake: bool,
    is_closed: bool,
}

struct SpawnedTask {
    shared: Weak<Shared>,
    /// `None` once it has ended, and while it is polled.
    future: Mutex<Option<FutureObj<'static, ()>>>,
    /// Whether it is in `ready`.
    is_ready: AtomicBool,
}

impl LoopTasks {
    /// Returns a spawner, which adds tasks.
    pub(crate) fn spawner(&self) -> Arc<dyn Spawn + Send + Sync> {
        Arc::new(LoopSpawner(self.shared.clone()))
    }
}

#[pymethods]
impl LoopTasks {
    #[new]
    fn new() -> PyResult<Self> {
        let (signal, signalled) = UnixStream::pair()?;
        signal.set_nonblocking(true)?;
        signalled.set_nonblocking(true)?;
        Ok(Self { shared: Arc::new(Shared { queue: Mutex::default(), signal }), signalled })
    }

    /// Returns the file descriptor that is readable when `run` is to be called.
    fn fileno(&self) -> i32 {
        self.signalled.as_raw_fd()
    }

    /// Polls the tasks that were woken. Called on the loop's thread only.
    fn run(&self) {
        // At most one byte waits, because `is_awake` stays set until the tasks are polled.
        let _ = (&self.signalled).read(&mut [0; 8]);
        for _ in 0..POLLS_IN_A_ROW {
            let Some(task) = self.shared.next() else { return };
            task.poll();
        }
        self.shared.signal();
    }

    /// Drops all tasks; those that are added later are refused.
    fn close(&self) {
        let tasks = {
            let mut queue = self.shared.queue.lock();
            queue.is_closed = true;
            queue.ready.clear();
            std::mem::take(&mut queue.all)
        };
        for task in tasks {
            let future = task.future.lock().take();
            // It may wake other tasks as it is dropped, so no lock is held.
            drop(future);
        }
    }
}

impl Shared {
    /// Takes a task that was woken. If there is none, the next task that is woken signals the loop.
    fn next(&self) -> Option<Arc<SpawnedTask>> {
        let mut queue = self.queue.lock();
        let task = queue.ready.pop_front();
        queue.is_awake = task.is_some();
        task
    }

    fn signal(&self) {
        // It fails when the buffer is full, which wakes the loop as well, or when the loop is gone.
        let _ = (&self.signal).write(&[0]);
    }

    fn wake(&self, task: Arc<SpawnedTask>) {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return;
        }
        queue.ready.push_back(task);
        let was_awake = std::mem::replace(&mut queue.is_awake, true);
        drop(queue);
        if !was_awake {
            self.signal();
        }
    }
}

/// Adds tasks to a loop.
struct LoopSpawner(Arc<Shared>);

impl Spawn for LoopSpawner {
    fn spawn_obj(&self, future: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        let future = Mutex::new(Some(future));
        let task = Arc::new(SpawnedTask { shared: Arc::downgrade(&self.0), future, is_ready: AtomicBool::new(true) });
        let mut queue = self.0.queue.lock();
        if queue.is_closed {
            return Err(SpawnError::shutdown());
        }
        queue.all.push(task.clone());
        drop(queue);
        self.0.wake(task);
        Ok(())
    }
}

impl SpawnedTask {
    fn poll(self: Arc<Self>) {
        // From here on, a wake makes the task ready again.
        self.is_ready.store(false, Ordering::Release);
        let Some(mut future) = self.future.lock().take() else { return };
        let waker = Waker::from(self.clone());
        if Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending() {
            *self.future.lock() = Some(future);
        }
    }
}

impl Wake for SpawnedTask {
    fn wake(self: Arc<Self>) {
        if !self.is_ready.swap(true, Ordering::AcqRel)
            && let Some(shared) = self.shared.upgrade()
        {
            shared.wake(self);
        }
    }
}
