//! Graphs captured from streams: what a capture forbids to other calls, and what draws other streams into it.
//!
//! A call that a capture forbids returns its error and makes the capture invalid, as the driver does.

use std::{
    cell::Cell,
    collections::HashMap,
    ffi::c_uint,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
};

use crate::{
    calls::{driver_calls, give},
    state::{Code, INVALID_HANDLE, INVALID_VALUE, lock},
    stream::{StandInEvent, StandInStream, StreamKind, Work},
};

const UNSUPPORTED: Code = 900;
const INVALIDATED: Code = 901;
const MERGE: Code = 902;
const UNMATCHED: Code = 903;
const UNJOINED: Code = 904;
const ISOLATION: Code = 905;
const IMPLICIT: Code = 906;
const CAPTURED_EVENT: Code = 907;
const WRONG_THREAD: Code = 908;

/// The modes of captures and of threads.
const GLOBAL: c_uint = 0;
const THREAD_LOCAL: c_uint = 1;
const RELAXED: c_uint = 2;

/// Calls that a capture forbids to threads that are not in the relaxed mode.
const UNSAFE: [&str; 14] = [
    "cuCtxSynchronize",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuMemAllocHost_v2",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuStreamSynchronize",
];

thread_local! {
    static MODE: Cell<c_uint> = const { Cell::new(GLOBAL) };
}

/// A capture: the work of its streams, in the order of the calls, which is one of the orders that the graph allows.
pub(crate) struct Capture {
    origin: usize,
    mode: c_uint,
    thread: ThreadId,
    inner: Mutex<CaptureInner>,
}

#[derive(Default)]
struct CaptureInner {
    is_invalid: bool,
    work: Vec<Work>,
    streams: Vec<Arc<StandInStream>>,
    /// Streams that were drawn in, and whose last work no other stream of the capture waits for.
    unjoined: Vec<usize>,
}

impl Capture {
    fn invalidate(&self) {
        lock(&self.inner).is_invalid = true;
    }

    fn is_invalid(&self) -> bool {
        lock(&self.inner).is_invalid
    }

    fn is_forbidding(&self, thread_mode: c_uint) -> bool {
        match thread_mode {
            RELAXED => false,
            THREAD_LOCAL => self.mode != RELAXED && self.thread == thread::current().id(),
            _ => self.mode == GLOBAL || self.mode != RELAXED && self.thread == thread::current().id(),
        }
    }

    /// Adds work of a stream that is part of the capture.
    pub(crate) fn add(&self, stream: usize, work: Work) {
        let mut inner = lock(&self.inner);
        inner.work.push(work);
        if stream != self.origin && !inner.unjoined.contains(&stream) {
            inner.unjoined.push(stream);
        }
    }
}

fn captures() -> &'static Mutex<Vec<Arc<Capture>>> {
    static CAPTURES: OnceLock<Mutex<Vec<Arc<Capture>>>> = OnceLock::new();
    CAPTURES.get_or_init(Mutex::default)
}

/// The graphs by their handles. A graph and what is made from it have the same form.
fn graphs() -> &'static Mutex<HashMap<usize, Vec<Work>>> {
    static GRAPHS: OnceLock<Mutex<HashMap<usize, Vec<Work>>>> = OnceLock::new();
    GRAPHS.get_or_init(Mutex::default)
}

fn copy_of(graph: usize) -> Result<Vec<Work>, Code> {
    lock(graphs()).get(&graph).map(|work| work.iter().filter_map(Work::again).collect()).ok_or(INVALID_HANDLE)
}

fn add_graph(work: Vec<Work>) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x900_0000);
    let handle = NEXT.fetch_add(16, Ordering::Relaxed);
    lock(graphs()).insert(handle, work);
    handle
}

/// Checks that no capture forbids this call.
pub(crate) fn check_call(name: &str, device: Option<usize>) -> Result<(), Code> {
    if UNSAFE.contains(&name) {
        let mode = MODE.get();
        let forbidding: Vec<_> = lock(captures()).iter().filter(|each| each.is_forbidding(mode)).cloned().collect();
        if !forbidding.is_empty() {
            forbidding.iter().for_each(|each| each.invalidate());
            return Err(UNSUPPORTED);
        }
    }
    match device {
        Some(device) if name.starts_with("cuMemcpy") && !name.contains("Async") => check_default_stream(device),
        _ => Ok(()),
    }
}

/// Checks that work on the default stream of a device would not wait for a stream that captures.
pub(crate) fn check_default_stream(device: usize) -> Result<(), Code> {
    match blocking_capture(device) {
        Some(capture) => {
            capture.invalidate();
            Err(IMPLICIT)
        }
        None => Ok(()),
    }
}

fn blocking_capture(device: usize) -> Option<Arc<Capture>> {
    let blocks = |each: &&Arc<Capture>| {
        let inner = lock(&each.inner);
        inner.streams.iter().any(|stream| stream.device() == device && stream.kind() == StreamKind::Blocking)
    };
    lock(captures()).iter().find(blocks).cloned()
}

/// What a capture has to do with a wait of a stream for an event.
pub(crate) enum CapturedWait {
    /// Nothing.
    No,
    /// The wait is part of the capture.
    Yes,
}

/// Puts a wait into the capture that the stream or the event is part of.
pub(crate) fn wait(stream: &Arc<StandInStream>, event: &StandInEvent) -> Result<CapturedWait, Code> {
    match (stream.capture(), event.captured()) {
        (None, None) => Ok(CapturedWait::No),
        (Some(capture), None) => {
            capture.invalidate();
            Err(ISOLATION)
        }
        (of_stream, Some((capture, recorded_by))) => {
            if !lock(captures()).iter().any(|running| Arc::ptr_eq(running, &capture)) {
                return Err(CAPTURED_EVENT);
            }
            match of_stream {
                Some(other) if !Arc::ptr_eq(&other, &capture) => {
                    other.invalidate();
                    capture.invalidate();
                    return Err(MERGE);
                }
                Some(_) => {}
                None => {
                    let mut inner = lock(&capture.inner);
                    inner.streams.push(stream.clone());
                    inner.unjoined.push(stream.id());
                    stream.set_capture(Some(capture.clone()));
                }
            }
            lock(&capture.inner).unjoined.retain(|unjoined| *unjoined != recorded_by);
            Ok(CapturedWait::Yes)
        }
    }
}

/// Checks that the host may wait for an event or look at it.
pub(crate) fn check_event(event: &StandInEvent) -> Result<(), Code> {
    match event.captured() {
        Some((capture, _)) => {
            capture.invalidate();
            Err(CAPTURED_EVENT)
        }
        None => Ok(()),
    }
}

/// Checks that the host may wait for a stream.
pub(crate) fn check_stream(stream: &StandInStream) -> Result<(), Code> {
    match stream.capture() {
        Some(capture) => {
            capture.invalidate();
            Err(UNSUPPORTED)
        }
        None => Ok(()),
    }
}

fn end(stream: &Arc<StandInStream>) -> Result<Vec<Work>, Code> {
    let capture = stream.capture().ok_or(INVALID_VALUE)?;
    if capture.origin != stream.id() {
        return Err(UNMATCHED);
    }
    if capture.mode != RELAXED && capture.thread != thread::current().id() {
        return Err(WRONG_THREAD);
    }
    lock(captures()).retain(|each| !Arc::ptr_eq(each, &capture));
    let mut inner = lock(&capture.inner);
    for stream in inner.streams.drain(..) {
        stream.set_capture(None);
    }
    if inner.is_invalid {
        Err(INVALIDATED)
    } else if inner.unjoined.is_empty() {
        Ok(std::mem::take(&mut inner.work))
    } else {
        Err(UNJOINED)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> Code {
    if mode.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: not null, and the caller's contract makes it valid.
    unsafe { mode.write(MODE.replace(mode.read())) };
    0
}

driver_calls! {
    fn cuStreamBeginCapture_v2(stream: usize, mode: c_uint) |state| {
        let stream = state.any_stream(stream)?;
        if stream.kind() == StreamKind::Default || stream.capture().is_some() {
            return Err(UNSUPPORTED);
        }
        let inner = CaptureInner { streams: vec![stream.clone()], ..CaptureInner::default() };
        let (origin, thread) = (stream.id(), thread::current().id());
        let capture = Arc::new(Capture { origin, mode, thread, inner: Mutex::new(inner) });
        stream.set_capture(Some(capture.clone()));
        lock(captures()).push(capture);
        Ok(())
    }

    fn cuStreamEndCapture(stream: usize, graph: *mut usize) |state| {
        match end(&state.any_stream(stream)?) {
            Ok(work) => give(graph, add_graph(work)),
            Err(code) => give(graph, 0).and(Err(code)),
        }
    }

    fn cuStreamIsCapturing(stream: usize, status: *mut c_uint) |state| {
        if stream <= 1 && blocking_capture(state.current()?).is_some() {
            return Err(IMPLICIT);
        }
        let capture = state.any_stream(stream)?.capture();
        give(status, capture.map_or(0, |capture| if capture.is_invalid() { 2 } else { 1 }))
    }

    fn cuGraphInstantiateWithFlags(runnable: *mut usize, graph: usize, _flags: u64) |_| {
        give(runnable, add_graph(copy_of(graph)?))
    }

    fn cuGraphLaunch(runnable: usize, stream: usize) |state| {
        let stream = state.stream(stream)?;
        copy_of(runnable)?.into_iter().for_each(|work| stream.put(work));
        Ok(())
    }

    fn cuGraphExecDestroy(runnable: usize) |_| { lock(graphs()).remove(&runnable).map(drop).ok_or(INVALID_HANDLE) }

    fn cuGraphDestroy(graph: usize) |_| { lock(graphs()).remove(&graph).map(drop).ok_or(INVALID_HANDLE) }
}
