//! The stand-in's state: devices, contexts, handles, and the misuse recorded so far.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use crate::{
    capture,
    contexts::CREATED,
    gates::CopyGate,
    host_memory::StandInHostMemory,
    memory::StandInMemory,
    ptx::StandInKernel,
    settings::StandInSettings,
    stream::{StandInEvent, StandInStream},
};

/// The error code of a call.
pub(crate) type Code = u32;

pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const NOT_INITIALIZED: Code = 3;
pub(crate) const INVALID_DEVICE: Code = 101;
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const INVALID_PTX: Code = 218;
pub(crate) const INVALID_HANDLE: Code = 400;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const ALREADY_REGISTERED: Code = 712;
pub(crate) const NOT_REGISTERED: Code = 713;
pub(crate) const LAUNCH_FAILED: Code = 719;
pub(crate) const NOT_SUPPORTED: Code = 801;

/// After these errors, a device executes nothing any more.
const STICKY: [Code; 3] = [700, LAUNCH_FAILED, 214];
/// Contexts are numbers from here on, one for each device.
const CONTEXTS: usize = 0x1000;
/// All other handles are numbers from here on.
const HANDLES: usize = 0x10_0000;

/// The whole state of the stand-in.
pub(crate) struct DriverState {
    pub(crate) settings: StandInSettings,
    pub(crate) memory: StandInMemory,
    pub(crate) host: StandInHostMemory,
    pub(crate) is_initialised: AtomicU64,
    calls: Mutex<HashMap<&'static str, u64>>,
    devices: Vec<StandInDevice>,
    /// The devices of the contexts that a program created.
    pub(crate) created_contexts: Mutex<HashMap<usize, usize>>,
    handles: Mutex<HashMap<usize, Handle>>,
    next_handle: AtomicUsize,
    wrong: Mutex<Vec<String>>,
    pub(crate) copies: AtomicU64,
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) unlocked_copies: AtomicU64,
    pub(crate) launches: AtomicU64,
    /// Calls that wait for all work of the device.
    pub(crate) device_waits: AtomicU64,
    pub(crate) gate: CopyGate,
}

/// A device.
#[derive(Default)]
struct StandInDevice {
    retained: AtomicU64,
    /// If not 0, the error that every call returns.
    lost: AtomicU64,
    /// Locked for reading while an operation uses memory.
    memory_use: RwLock<()>,
}

/// An operation that uses memory.
pub(crate) struct MemoryUse<'a> {
    lost: &'a AtomicU64,
    _lock: RwLockReadGuard<'a, ()>,
}

impl MemoryUse<'_> {
    /// Returns whether the device still works.
    pub(crate) fn may_go_on(&self) -> bool {
        self.lost.load(Ordering::SeqCst) == 0
    }
}

/// The object that a handle refers to.
#[derive(Clone)]
pub(crate) enum Handle {
    Stream(Arc<StandInStream>),
    Event(Arc<StandInEvent>),
    Module(usize, Arc<Vec<StandInKernel>>),
    Function(usize, Arc<Vec<StandInKernel>>, usize),
}

thread_local! {
    /// The current contexts, the last one on top.
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns the state of this process.
pub(crate) fn state() -> &'static DriverState {
    static STATE: OnceLock<DriverState> = OnceLock::new();
    STATE.get_or_init(|| {
        let settings = StandInSettings::from_env();
        DriverState {
            memory: StandInMemory::new(settings.devices, settings.memory),
            host: StandInHostMemory::default(),
            is_initialised: AtomicU64::new(0),
            calls: Mutex::default(),
            devices: (0..settings.devices).map(|_| StandInDevice::default()).collect(),
            created_contexts: Mutex::default(),
            handles: Mutex::default(),
            next_handle: AtomicUsize::new(HANDLES),
            wrong: Mutex::default(),
            copies: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
            unlocked_copies: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            device_waits: AtomicU64::new(0),
            gate: CopyGate::default(),
            settings,
        }
    })
}

impl DriverState {
    /// Records misuse that a real driver would punish.
    pub(crate) fn wrong(&self, what: String) {
        eprintln!("stand-in: {what}");
        lock(&self.wrong).push(what);
    }

    /// Counts a call, and injects its fault if there is one.
    pub(crate) fn enter(&self, name: &'static str) -> Result<(), Code> {
        let count = {
            let mut calls = lock(&self.calls);
            let count = calls.entry(name).or_default();
            *count += 1;
            *count
        };
        let failure = self.settings.failures.iter().find(|failure| failure.name == name && failure.at.contains(&count));
        if let Some(failure) = failure {
            if STICKY.contains(&failure.code) {
                let device = self.current_device().unwrap_or(0);
                self.lose(device, failure.code);
                self.check_lost(device)?;
            }
            return Err(failure.code);
        }
        if name != "cuInit" && self.is_initialised.load(Ordering::Relaxed) == 0 {
            return Err(NOT_INITIALIZED);
        }
        capture::check_call(name, self.current_device())
    }

    /// Marks the device as lost.
    pub(crate) fn lose(&self, device: usize, code: Code) {
        self.devices[device].lost.store(code.into(), Ordering::SeqCst);
    }

    /// Returns the error of a lost device, when the device uses no memory any more: its users free theirs then.
    pub(crate) fn check_lost(&self, device: usize) -> Result<(), Code> {
        match self.devices[device].lost.load(Ordering::SeqCst) {
            0 => Ok(()),
            code => {
                drop(self.devices[device].memory_use.write());
                Err(code as Code)
            }
        }
    }

    /// Returns a guard for an operation that uses memory, or `None` if the device is lost. While a thread holds one, it
    /// must not call [`DriverState::check_lost`].
    pub(crate) fn use_memory(&self, device: usize) -> Option<MemoryUse<'_>> {
        let StandInDevice { lost, memory_use, .. } = &self.devices[device];
        let memory_use = memory_use.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let memory_use = MemoryUse { lost, _lock: memory_use };
        memory_use.may_go_on().then_some(memory_use)
    }

    pub(crate) fn retain(&self, device: i32) -> Result<usize, Code> {
        let device =
            usize::try_from(device).ok().filter(|device| *device < self.devices.len()).ok_or(INVALID_DEVICE)?;
        self.devices[device].retained.fetch_add(1, Ordering::Relaxed);
        Ok(CONTEXTS + device)
    }

    pub(crate) fn release(&self, device: usize) -> Result<(), Code> {
        let retained = &self.devices.get(device).ok_or(INVALID_DEVICE)?.retained;
        let less = |count: u64| count.checked_sub(1);
        if retained.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err() {
            self.wrong(format!("the context of device {device} is released more often than retained"));
        } else if retained.load(Ordering::Relaxed) == 0 {
            let handles = lock(&self.handles);
            let left = handles.values().filter(|handle| handle.counts() && handle.device() == device).count();
            drop(handles);
            if left > 0 {
                self.wrong(format!("the context of device {device} is released while {left} handles of it are left"));
            }
        }
        Ok(())
    }

    pub(crate) fn push(&self, context: usize) -> Result<(), Code> {
        let device = self.device_of(context).ok_or(INVALID_CONTEXT)?;
        if context < CREATED && self.devices[device].retained.load(Ordering::Relaxed) == 0 {
            self.wrong(format!("the context of device {device} is used while it is not retained"));
            return Err(INVALID_CONTEXT);
        }
        CURRENT.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    pub(crate) fn pop(&self) -> Result<usize, Code> {
        CURRENT.with_borrow_mut(Vec::pop).ok_or(INVALID_CONTEXT)
    }

    /// Pops the context if it is on top.
    pub(crate) fn pop_if(&self, context: usize) {
        CURRENT.with_borrow_mut(|stack| {
            let _ = stack.pop_if(|top| *top == context);
        });
    }

    /// Returns the device of a context.
    fn device_of(&self, context: usize) -> Option<usize> {
        if context >= CREATED {
            return lock(&self.created_contexts).get(&context).copied();
        }
        context.checked_sub(CONTEXTS).filter(|device| *device < self.devices.len())
    }

    /// Returns the context that is current on this thread.
    pub(crate) fn current_context(&self) -> Option<usize> {
        CURRENT.with_borrow(|stack| stack.last().copied())
    }

    /// Returns the device whose context is current on this thread; it must not be lost.
    pub(crate) fn current(&self) -> Result<usize, Code> {
        let device = self.current_device().ok_or(INVALID_CONTEXT)?;
        self.check_lost(device).map(|()| device)
    }

    fn current_device(&self) -> Option<usize> {
        self.device_of(self.current_context()?)
    }

    pub(crate) fn add(&self, handle: Handle) -> usize {
        let number = self.next_handle.fetch_add(16, Ordering::Relaxed);
        lock(&self.handles).insert(number, handle);
        number
    }

    pub(crate) fn remove(&self, number: usize) -> Result<Handle, Code> {
        let removed = lock(&self.handles).remove(&number);
        removed.ok_or_else(|| {
            self.wrong(format!("handle {number:#x} is destroyed, and there is none such"));
            INVALID_HANDLE
        })
    }

    /// Returns the handle, which must belong to the current device.
    fn find(&self, number: usize) -> Result<Handle, Code> {
        let device = self.current()?;
        let found = lock(&self.handles).get(&number).cloned();
        match found {
            Some(handle) if handle.device() == device => Ok(handle),
            Some(handle) => {
                let other = handle.device();
                self.wrong(format!("a handle of device {other} is used where device {device} is current"));
                Err(INVALID_HANDLE)
            }
            None => {
                self.wrong(format!("handle {number:#x} is used, and there is none such"));
                Err(INVALID_HANDLE)
            }
        }
    }

    pub(crate) fn stream(&self, number: usize) -> Result<Arc<StandInStream>, Code> {
        self.default_stream(number)?.map_or_else(|| Self::as_stream(self.find(number)?), Ok)
    }

    /// Returns the stream, whichever context it belongs to.
    pub(crate) fn any_stream(&self, number: usize) -> Result<Arc<StandInStream>, Code> {
        self.default_stream(number)?.map_or_else(|| Self::as_stream(self.find_any(number)?), Ok)
    }

    fn default_stream(&self, number: usize) -> Result<Option<Arc<StandInStream>>, Code> {
        Ok(match number {
            0 | 1 => {
                let device = self.current()?;
                capture::check_default_stream(device)?;
                Some(StandInStream::default_of(device))
            }
            2 => Some(StandInStream::of_thread(self.current()?)),
            _ => None,
        })
    }

    fn as_stream(handle: Handle) -> Result<Arc<StandInStream>, Code> {
        match handle {
            Handle::Stream(stream) => Ok(stream),
            _ => Err(INVALID_HANDLE),
        }
    }

    /// Returns the event, whichever context it belongs to.
    pub(crate) fn any_event(&self, number: usize) -> Result<Arc<StandInEvent>, Code> {
        match self.find_any(number)? {
            Handle::Event(event) => Ok(event),
            _ => Err(INVALID_HANDLE),
        }
    }

    fn find_any(&self, number: usize) -> Result<Handle, Code> {
        self.current()?;
        lock(&self.handles).get(&number).cloned().ok_or_else(|| {
            self.wrong(format!("handle {number:#x} is used, and there is none such"));
            INVALID_HANDLE
        })
    }

    pub(crate) fn event(&self, number: usize) -> Result<Arc<StandInEvent>, Code> {
        match self.find(number)? {
            Handle::Event(event) => Ok(event),
            _ => Err(INVALID_HANDLE),
        }
    }

    pub(crate) fn module(&self, number: usize) -> Result<Arc<Vec<StandInKernel>>, Code> {
        match self.find(number)? {
            Handle::Module(_, kernels) => Ok(kernels),
            _ => Err(INVALID_HANDLE),
        }
    }

    pub(crate) fn function(&self, number: usize) -> Result<(Arc<Vec<StandInKernel>>, usize), Code> {
        match self.find(number)? {
            Handle::Function(_, kernels, index) => Ok((kernels, index)),
            _ => Err(INVALID_HANDLE),
        }
    }

    /// Returns all streams of a device.
    pub(crate) fn streams(&self, device: usize) -> Vec<Arc<StandInStream>> {
        let handles = lock(&self.handles);
        let streams = handles.values().filter_map(|handle| match handle {
            Handle::Stream(stream) if stream.device() == device => Some(stream.clone()),
            _ => None,
        });
        streams.chain([StandInStream::default_of(device)]).chain(StandInStream::of_all_threads(device)).collect()
    }

    /// Waits for all work of a device, as calls do that free memory at once. With a trainer's kernel that waits for
    /// another process, such a call can wait for ever.
    pub(crate) fn wait_for_device(&self, device: usize) -> Result<(), Code> {
        self.device_waits.fetch_add(1, Ordering::SeqCst);
        // What a stream captures does not run.
        let mut streams = self.streams(device).into_iter().filter(|stream| stream.capture().is_none());
        streams.try_for_each(|stream| stream.synchronise())
    }

    /// Returns what was done and what was wrong, as JSON.
    pub(crate) fn report(&self) -> String {
        let wrong: Vec<_> = lock(&self.wrong).iter().map(|text| format!("{text:?}")).collect();
        let calls: Vec<_> = lock(&self.calls).iter().map(|(name, count)| format!("{name:?}:{count}")).collect();
        let retained: u64 = self.devices.iter().map(|device| device.retained.load(Ordering::Relaxed)).sum();
        let get = |count: &AtomicU64| count.load(Ordering::SeqCst);
        format!(
            "{{\"wrong\":[{}],\"copies\":{},\"copied_bytes\":{},\"unlocked_copies\":{},\"launches\":{},\"device_waits\":{},\"allocations\":{},\
             \"host_allocations\":{},\"registrations\":{},\"registered_bytes\":{},\"handles\":{},\"retained\":{retained},\
             \"calls\":{{{}}}}}",
            wrong.join(","),
            get(&self.copies),
            get(&self.copied_bytes),
            get(&self.unlocked_copies),
            get(&self.launches),
            get(&self.device_waits),
            self.memory.live(),
            self.host.allocations(),
            self.host.registrations(),
            self.host.registered_bytes(),
            lock(&self.handles).values().filter(|handle| handle.counts()).count(),
            calls.join(","),
        )
    }
}

impl Handle {
    /// Whether it has to be released: functions are released with their module.
    const fn counts(&self) -> bool {
        !matches!(self, Self::Function(..))
    }

    fn device(&self) -> usize {
        match self {
            Self::Stream(stream) => stream.device(),
            Self::Event(event) => event.device(),
            Self::Module(device, _) | Self::Function(device, ..) => *device,
        }
    }
}
