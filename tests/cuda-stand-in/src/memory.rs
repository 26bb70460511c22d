//! Device memory: memory of the process whose every use is checked. Freed memory is kept, so that a use after free is
//! detected.

use std::{collections::BTreeMap, sync::Mutex};

use crate::state::{Code, INVALID_VALUE, OUT_OF_MEMORY, lock, state};

pub(crate) struct StandInMemory {
    bytes: usize,
    used: Mutex<Vec<usize>>,
    /// The allocations, by first address.
    all: Mutex<BTreeMap<usize, Allocation>>,
}

struct Allocation {
    memory: Vec<u64>,
    bytes: usize,
    device: usize,
    state: AllocationState,
}

/// The states of an allocation, in their order. Memory that is not of a pool is usable, then freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllocationState {
    /// From a pool, and its stream has not reached the allocation yet.
    Pending,
    Usable,
    /// Freed on a stream that has not reached this yet. Until then its bytes are in use: a real pool can give them to a
    /// larger allocation only when they can be mapped elsewhere.
    Freeing,
    Freed,
}

impl StandInMemory {
    pub(crate) fn new(devices: usize, bytes: usize) -> Self {
        Self { bytes, used: Mutex::new(vec![0; devices]), all: Mutex::default() }
    }

    /// Returns the free bytes and the total bytes.
    pub(crate) fn sizes(&self, device: usize) -> (usize, usize) {
        (self.bytes - lock(&self.used)[device], self.bytes)
    }

    pub(crate) fn allocate(&self, device: usize, bytes: usize) -> Result<usize, Code> {
        self.take(device, bytes, AllocationState::Usable)
    }

    /// Allocates memory that may be used after [`StandInMemory::make_usable`].
    pub(crate) fn allocate_from_pool(&self, device: usize, bytes: usize) -> Result<usize, Code> {
        self.take(device, bytes, AllocationState::Pending)
    }

    pub(crate) fn make_usable(&self, address: usize) {
        if let Some(allocation) = lock(&self.all).get_mut(&address)
            && allocation.state == AllocationState::Pending
        {
            allocation.state = AllocationState::Usable;
        }
    }

    fn take(&self, device: usize, bytes: usize, state: AllocationState) -> Result<usize, Code> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        {
            let used = &mut lock(&self.used)[device];
            if *used + bytes > self.bytes {
                return Err(OUT_OF_MEMORY);
            }
            *used += bytes;
        }
        // Not zeros, because a real device does not clear its memory either.
        let mut memory = vec![0xdddd_dddd_dddd_dddd_u64; bytes.div_ceil(8)];
        let address = memory.as_mut_ptr() as usize;
        lock(&self.all).insert(address, Allocation { memory, bytes, device, state });
        Ok(address)
    }

    /// Frees memory at once.
    pub(crate) fn free(&self, device: usize, address: usize) -> Result<(), Code> {
        self.begin_free(device, address)?;
        self.end_free(address);
        Ok(())
    }

    /// Ends a free that was begun: nothing may use the memory any more.
    pub(crate) fn end_free(&self, address: usize) {
        if let Some(allocation) = lock(&self.all).get_mut(&address) {
            allocation.state = AllocationState::Freed;
            lock(&self.used)[allocation.device] -= allocation.bytes;
            allocation.memory.fill(0xdead_dead_dead_dead);
        }
    }

    /// Begins to free memory, which may be used until [`StandInMemory::end_free`].
    pub(crate) fn begin_free(&self, device: usize, address: usize) -> Result<(), Code> {
        let mut all = lock(&self.all);
        let is_live = |state| matches!(state, AllocationState::Pending | AllocationState::Usable);
        match all.get_mut(&address) {
            Some(allocation) if is_live(allocation.state) && allocation.device == device => {
                allocation.state = AllocationState::Freeing;
                Ok(())
            }
            Some(allocation) => {
                let (what, other) = (if is_live(allocation.state) { "wrongly" } else { "twice" }, allocation.device);
                state().wrong(format!("memory of device {other} is freed {what}, with device {device} current"));
                Err(INVALID_VALUE)
            }
            None => {
                state().wrong(format!("memory at {address:#x} is freed, and was never given"));
                Err(INVALID_VALUE)
            }
        }
    }

    /// Whether `bytes` bytes at `address` are live memory of the device. Records an error if they are not.
    pub(crate) fn check(&self, device: usize, address: usize, bytes: usize, what: &str) -> bool {
        let all = lock(&self.all);
        let found = all.range(..=address).next_back();
        let problem = match found {
            Some((start, found)) if address + bytes <= start + found.bytes => {
                if found.state == AllocationState::Freed {
                    "freed"
                } else if found.state == AllocationState::Pending {
                    "not yet allocated"
                } else if found.device != device {
                    "another device's"
                } else {
                    return true;
                }
            }
            _ => "unallocated",
        };
        state().wrong(format!("{what} of {bytes} bytes at {address:#x}, which is {problem} memory"));
        false
    }

    pub(crate) fn live(&self) -> usize {
        lock(&self.all).values().filter(|allocation| allocation.state != AllocationState::Freed).count()
    }
}
