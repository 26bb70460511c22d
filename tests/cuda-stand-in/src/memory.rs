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
    is_freed: bool,
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
        lock(&self.all).insert(address, Allocation { memory, bytes, device, is_freed: false });
        Ok(address)
    }

    pub(crate) fn free(&self, device: usize, address: usize) -> Result<(), Code> {
        let mut all = lock(&self.all);
        match all.get_mut(&address) {
            Some(allocation) if !allocation.is_freed && allocation.device == device => {
                allocation.is_freed = true;
                allocation.memory.fill(0xdead_dead_dead_dead);
                lock(&self.used)[device] -= allocation.bytes;
                Ok(())
            }
            Some(allocation) => {
                let (what, other) = (if allocation.is_freed { "twice" } else { "wrongly" }, allocation.device);
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
                if found.is_freed {
                    "freed"
                } else if found.device != device {
                    "another device's"
                } else {
                    return true;
                }
            }
            _ => "nobody's",
        };
        state().wrong(format!("{what} of {bytes} bytes at {address:#x}, which is {problem} memory"));
        false
    }

    pub(crate) fn live(&self) -> usize {
        lock(&self.all).values().filter(|allocation| !allocation.is_freed).count()
    }
}
