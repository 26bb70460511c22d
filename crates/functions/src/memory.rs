//! The memory of values, which is aligned for elements of any type and kept between calls.

use bytemuck::Zeroable;

/// Memory for the values of one call at a time; a thread keeps it between calls.
#[derive(Debug, Default)]
pub struct CallMemory {
    pub(crate) taken: Vec<ValueMemory>,
    pub(crate) returned: Vec<ValueMemory>,
}

/// The most bytes that a value keeps between calls.
const KEPT_BYTES: usize = 4 << 20;

impl CallMemory {
    /// Makes room for these numbers of values, none of which is set.
    pub(crate) fn reset(&mut self, taken: usize, returned: usize) {
        for (values, count) in [(&mut self.taken, taken), (&mut self.returned, returned)] {
            values.resize_with(count.max(values.len()), ValueMemory::default);
            values.iter_mut().for_each(ValueMemory::clear);
        }
    }
}

/// The memory of one value, which begins at a multiple of 64.
#[derive(Debug, Default)]
pub struct ValueMemory {
    blocks: Vec<CacheLine>,
    /// Number of bytes of the value; `None` if it is not set.
    used: Option<usize>,
}

#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

impl ValueMemory {
    /// Forgets the value, and the memory of a large one.
    fn clear(&mut self) {
        self.used = None;
        if self.blocks.len() * size_of::<CacheLine>() > KEPT_BYTES {
            self.blocks = Vec::new();
        }
    }

    /// Sets the value to `bytes` bytes with arbitrary content, and returns them.
    pub fn use_bytes(&mut self, bytes: usize) -> &mut [u8] {
        let blocks = bytes.div_ceil(size_of::<CacheLine>());
        if self.blocks.len() < blocks {
            self.blocks = vec![CacheLine::zeroed(); blocks];
        }
        self.used = Some(bytes);
        &mut bytemuck::cast_slice_mut(&mut self.blocks)[..bytes]
    }

    /// Returns the value's bytes; none if it is not set.
    pub(crate) fn used(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.blocks)[..self.used.unwrap_or(0)]
    }

    pub(crate) const fn is_set(&self) -> bool {
        self.used.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_and_large_ones_are_not_kept() {
        let mut memory = CallMemory::default();
        for bytes in [0, 1, 100, KEPT_BYTES + 1, 64] {
            memory.reset(1, 1);
            assert!(!memory.taken[0].is_set() && memory.taken[0].blocks.len() * 64 <= KEPT_BYTES);
            let place = memory.taken[0].use_bytes(bytes);
            assert!(place.len() == bytes && place.as_ptr().addr().is_multiple_of(64));
            place.fill(7);
            assert_eq!(memory.taken[0].used(), vec![7; bytes]);
        }
    }
}
