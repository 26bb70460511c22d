//! The driver's functions that the loader and its tests call, under the names that a program looks up.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
    sync::atomic::Ordering,
};

use crate::{
    capture, codes, modules,
    ptx::Grid,
    state::{Code, DriverState, Handle, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_READY, state},
    stream::{StandInEvent, StandInStream, StreamKind, Work},
    teardown::{self, InDriver},
};

/// Runs a call: counts it, injects its fault if there is one, and converts its result to C's.
pub(crate) fn call(name: &'static str, body: impl FnOnce(&'static DriverState) -> Result<(), Code>) -> Code {
    let _inside = InDriver::enter(name);
    let state = state();
    state.enter(name).and_then(|()| body(state)).err().unwrap_or(0)
}

/// Defines functions of the driver, each by what it does with the state. Their callers keep to the driver's manual.
macro_rules! driver_calls {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$state:pat_param| $body:block)*) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> $crate::state::Code {
                $crate::calls::call(stringify!($name), |$state| $body)
            }
        )*
    };
}
pub(crate) use driver_calls;

/// Writes a result to the caller's pointer.
pub(crate) fn give<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's contract makes it writable.
    unsafe { to.write(value) };
    Ok(())
}

driver_calls! {
    fn cuInit(_flags: c_uint) |state| {
        if state.settings.devices == 0 {
            return Err(100);
        }
        teardown::register();
        state.is_initialised.store(1, Ordering::Relaxed);
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Code {
    // Like a real driver, it answers before `cuInit`.
    give(version, 11_040).err().unwrap_or(0)
}

driver_calls! {
    fn cuDeviceGetCount(count: *mut c_int) |state| { give(count, state.settings.devices as c_int) }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) |state| {
        if ordinal < 0 || ordinal as usize >= state.settings.devices {
            return Err(INVALID_DEVICE);
        }
        give(device, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) |_| {
        for (at, byte) in format!("stand-in {device}\0").bytes().take(length as usize).enumerate() {
            // SAFETY: within the caller's `length` bytes.
            unsafe { name.add(at).write(byte as c_char) };
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) |state| { give(context, state.retain(device)?) }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) |state| { state.release(device as usize) }

    fn cuCtxPushCurrent_v2(context: usize) |state| { state.push(context) }

    fn cuCtxPopCurrent_v2(context: *mut usize) |state| { give(context, state.pop()?) }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |state| {
        let sizes = state.memory.sizes(state.current()?);
        give(free, sizes.0)?;
        give(total, sizes.1)
    }

    fn cuMemAlloc_v2(address: *mut usize, bytes: usize) |state| {
        give(address, state.memory.allocate(state.current()?, bytes)?)
    }

    fn cuMemFree_v2(address: usize) |state| {
        let device = state.current()?;
        state.wait_for_device(device)?;
        state.memory.free(device, address)
    }

    fn cuMemAllocHost_v2(address: *mut usize, bytes: usize) |state| {
        state.current()?;
        give(address, state.host.allocate(bytes))
    }

    fn cuMemFreeHost(address: usize) |state| {
        state.wait_for_device(state.current()?)?;
        state.host.free(address)
    }

    fn cuMemHostRegister_v2(address: usize, bytes: usize, _flags: c_uint) |state| {
        state.current()?;
        state.host.register(address, bytes)
    }

    fn cuMemHostUnregister(address: usize) |state| {
        state.wait_for_device(state.current()?)?;
        state.host.unregister(address)
    }

    fn cuMemcpyHtoD_v2(to: usize, from: *const c_void, bytes: usize) |state| {
        let device = state.current()?;
        if !state.memory.check(device, to, bytes, "copy") {
            return Err(INVALID_VALUE);
        }
        // SAFETY: as many bytes of the caller's.
        let staged = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec();
        let stream = StandInStream::default_of(device);
        stream.put(Work::StagedCopy { bytes: staged, to });
        // From pageable memory, a real driver returns when it has read the bytes: they may land later.
        if state.host.is_locked(from as usize, bytes)? { stream.synchronise() } else { Ok(()) }
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: usize, bytes: usize) |state| {
        let device = state.current()?;
        let stream = StandInStream::default_of(device);
        stream.join_default();
        stream.synchronise()?;
        if !state.memory.check(device, from, bytes, "copy") {
            return Err(INVALID_VALUE);
        }
        // SAFETY: live device memory, as checked, and as many bytes of the caller's.
        unsafe { ptr::copy_nonoverlapping(from as *const u8, to.cast::<u8>(), bytes) };
        Ok(())
    }

    fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) |state| {
        let stream = state.stream(stream)?;
        let is_locked = state.host.is_locked(from, bytes)?;
        state.host.begin_reading(from, bytes);
        stream.put(Work::Copy { from, to, bytes });
        if !is_locked {
            // A real driver stages such a copy: the call returns after the driver has read the bytes.
            state.unlocked_copies.fetch_add(1, Ordering::SeqCst);
            stream.synchronise()?;
        }
        Ok(())
    }

    fn cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) |state| {
        state.stream(stream)?.put(Work::CopyOnDevice { from, to, bytes });
        Ok(())
    }

    fn cuStreamCreate(stream: *mut usize, flags: c_uint) |state| {
        let device = state.current()?;
        let kind = if flags & 1 == 0 { StreamKind::Blocking } else { StreamKind::NonBlocking };
        give(stream, state.add(Handle::Stream(StandInStream::new(device, kind))))
    }

    fn cuStreamDestroy_v2(stream: usize) |state| { state.remove(stream).map(drop) }

    fn cuStreamSynchronize(stream: usize) |state| { state.any_stream(stream)?.synchronise() }

    fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) |state| {
        // The event may be of any context.
        state.any_stream(stream)?.wait(&state.any_event(event)?)
    }

    fn cuEventCreate(event: *mut usize, _flags: c_uint) |state| {
        let device = state.current()?;
        give(event, state.add(Handle::Event(StandInEvent::new(device))))
    }

    fn cuEventDestroy_v2(event: usize) |state| { state.remove(event).map(drop) }

    fn cuEventRecord(event: usize, stream: usize) |state| {
        let (event, stream) = (state.event(event)?, state.any_stream(stream)?);
        if stream.context() != event.context() {
            return Err(INVALID_HANDLE);
        }
        stream.record(&event);
        Ok(())
    }

    fn cuEventQuery(event: usize) |state| {
        let event = state.event(event)?;
        capture::check_event(&event)?;
        if event.is_done() { Ok(()) } else { Err(NOT_READY) }
    }

    fn cuEventSynchronize(event: usize) |state| { state.event(event)?.synchronise() }

    fn cuModuleLoadData(module: *mut usize, image: *const c_char) |state| {
        // SAFETY: PTX ends with a zero.
        give(module, unsafe { modules::load(state, image, &[]) }?)
    }

    fn cuModuleLoadDataEx(
        module: *mut usize,
        image: *const c_char,
        options: c_uint,
        names: *const c_uint,
        values: *const usize,
    ) |state| {
        // SAFETY: the caller has as many names and values, and PTX ends with a zero.
        let module_handle = unsafe {
            let of = |at| (*names.add(at), *values.add(at));
            modules::load(state, image, &(0..options as usize).map(of).collect::<Vec<_>>())
        }?;
        give(module, module_handle)
    }

    fn cuModuleUnload(module: usize) |state| { state.remove(module).map(drop) }

    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) |state| {
        let kernels = state.module(module)?;
        // SAFETY: a name ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let index = kernels.iter().position(|kernel| kernel.name == name).ok_or(NOT_FOUND)?;
        give(function, state.add(Handle::Function(state.current()?, kernels, index)))
    }

    #[allow(clippy::too_many_arguments, reason = "the driver's signature")]
    fn cuLaunchKernel(
        function: usize,
        blocks_x: c_uint,
        blocks_y: c_uint,
        _blocks_z: c_uint,
        threads_x: c_uint,
        _threads_y: c_uint,
        _threads_z: c_uint,
        _shared_bytes: c_uint,
        stream: usize,
        parameters: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) |state| {
        let (kernels, index) = state.function(function)?;
        if blocks_x == 0 || blocks_y == 0 || blocks_y > 65535 || !(1..=1024).contains(&threads_x) {
            return Err(INVALID_VALUE);
        }
        let arguments = kernels[index].parameters.iter().enumerate().map(|(at, bytes)| {
            let mut value = [0; 8];
            // SAFETY: the caller has a pointer for each parameter, to as many bytes as the kernel declares.
            unsafe { ptr::copy_nonoverlapping((*parameters.add(at)).cast::<u8>(), value.as_mut_ptr(), *bytes) };
            u64::from_le_bytes(value)
        });
        let arguments = arguments.collect();
        state.launches.fetch_add(1, Ordering::SeqCst);
        let grid = Grid { blocks: [blocks_x, blocks_y], threads: threads_x };
        state.stream(stream)?.put(Work::Launch { kernels, index, arguments, grid });
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: Code, name: *mut *const c_char) -> Code {
    let Some((found, _)) = codes::words(code) else { return give(name, ptr::null()).err().unwrap_or(INVALID_VALUE) };
    give(name, found.as_ptr()).err().unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: Code, text: *mut *const c_char) -> Code {
    let Some((_, found)) = codes::words(code) else { return give(text, ptr::null()).err().unwrap_or(INVALID_VALUE) };
    give(text, found.as_ptr()).err().unwrap_or(0)
}

/// Writes the report with a zero at its end, if it fits; returns its length.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_stand_in_report(to: *mut u8, bytes: usize) -> usize {
    let report = state().report();
    if report.len() < bytes {
        // SAFETY: it fits, with its zero, into the caller's bytes.
        unsafe {
            ptr::copy_nonoverlapping(report.as_ptr(), to, report.len());
            to.add(report.len()).write(0);
        }
    }
    report.len()
}

/// Enqueues a digest (FNV-1a, 64 bits) of device memory on a stream. The context must be current, and `to` must stay
/// valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_stand_in_digest(stream: usize, from: usize, bytes: usize, to: *mut u64) -> Code {
    call("cuda_stand_in_digest", |state| {
        state.stream(stream)?.put(Work::Digest { from, bytes, to: to as usize });
        Ok(())
    })
}
