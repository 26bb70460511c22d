//! Host memory that a device may read directly, and the copies that read it now.

use std::{collections::BTreeMap, sync::Mutex};

use crate::state::{ALREADY_REGISTERED, Code, INVALID_VALUE, NOT_REGISTERED, lock, state};

#[derive(Default)]
pub(crate) struct StandInHostMemory {
    registered: Mutex<BTreeMap<usize, usize>>,
    allocated: Mutex<BTreeMap<usize, Vec<u64>>>,
    /// Copies in progress: the address and the bytes that they read.
    reading: Mutex<Vec<(usize, usize)>>,
}

fn overlap(one: (usize, usize), other: (usize, usize)) -> bool {
    one.0 < other.0 + other.1 && other.0 < one.0 + one.1
}

/// Returns whether the memory at `address` is a private mapping of this process.
fn is_private(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| {
        let mut fields = line.split_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let number = |hex| usize::from_str_radix(hex, 16).unwrap_or(0);
        let is_inside = range.is_some_and(|(from, to)| (number(from)..number(to)).contains(&address));
        is_inside && fields.next().is_some_and(|access| access.ends_with('p'))
    })
}

impl StandInHostMemory {
    pub(crate) fn register(&self, start: usize, bytes: usize) -> Result<(), Code> {
        let mut registered = lock(&self.registered);
        if registered.iter().any(|(other, length)| overlap((start, bytes), (*other, *length))) {
            return Err(ALREADY_REGISTERED);
        }
        registered.insert(start, bytes);
        drop(registered);
        if is_private(start) {
            // The device reads the pages that were locked. After a fork, a write goes to a new page of such a mapping.
            state().wrong("memory is page-locked that a fork separates from its pages".to_owned());
        }
        Ok(())
    }

    pub(crate) fn unregister(&self, start: usize) -> Result<(), Code> {
        let Some(bytes) = lock(&self.registered).remove(&start) else { return Err(NOT_REGISTERED) };
        self.check_unread(start, bytes, "unlocked");
        Ok(())
    }

    pub(crate) fn allocate(&self, bytes: usize) -> usize {
        let mut memory = vec![0xdddd_dddd_dddd_dddd_u64; bytes.div_ceil(8).max(1)];
        let start = memory.as_mut_ptr() as usize;
        lock(&self.allocated).insert(start, memory);
        start
    }

    pub(crate) fn free(&self, start: usize) -> Result<(), Code> {
        let Some(memory) = lock(&self.allocated).remove(&start) else { return Err(NOT_REGISTERED) };
        self.check_unread(start, memory.len() * 8, "freed");
        Ok(())
    }

    fn check_unread(&self, start: usize, bytes: usize, what: &str) {
        if lock(&self.reading).iter().any(|read| overlap(*read, (start, bytes))) {
            state().wrong(format!("memory of the host is {what} while a copy reads it"));
        }
    }

    /// Whether the device can read these bytes directly. As a real driver, this refuses bytes that are locked in part,
    /// or in several pieces.
    pub(crate) fn is_locked(&self, start: usize, bytes: usize) -> Result<bool, Code> {
        let inside = |from: usize, length: usize| from <= start && start + bytes <= from + length;
        let registered = lock(&self.registered);
        if registered.iter().any(|(from, length)| inside(*from, *length))
            || lock(&self.allocated).iter().any(|(from, memory)| inside(*from, memory.len() * 8))
        {
            return Ok(true);
        }
        let is_mixed = registered.iter().any(|(from, length)| overlap((start, bytes), (*from, *length)));
        if is_mixed { Err(INVALID_VALUE) } else { Ok(false) }
    }

    pub(crate) fn begin_reading(&self, start: usize, bytes: usize) {
        lock(&self.reading).push((start, bytes));
    }

    pub(crate) fn end_reading(&self, start: usize, bytes: usize) {
        let mut reading = lock(&self.reading);
        if let Some(at) = reading.iter().position(|read| *read == (start, bytes)) {
            reading.swap_remove(at);
        }
    }

    pub(crate) fn registrations(&self) -> usize {
        lock(&self.registered).len()
    }

    pub(crate) fn registered_bytes(&self) -> usize {
        lock(&self.registered).values().sum()
    }

    pub(crate) fn allocations(&self) -> usize {
        lock(&self.allocated).len()
    }
}
