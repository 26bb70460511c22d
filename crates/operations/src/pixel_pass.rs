//! A pass over values that changes them in place, or writes the results to uninitialised memory.
#![allow(unsafe_code)]

use std::{marker::PhantomData, mem::MaybeUninit, slice};

/// Bytes of a line of the caches. Vectors are written fastest where a line begins.
const LINE_BYTES: usize = 64;

/// The values that are not yet read, and the place of their results.
#[derive(Debug)]
pub(super) struct PixelPass<'v> {
    from: *const u8,
    to: *mut u8,
    count: usize,
    place: PhantomData<&'v mut [u8]>,
}

impl<'v> PixelPass<'v> {
    /// Creates a pass that changes values in place.
    pub(super) const fn in_place(values: &'v mut [u8]) -> Self {
        let place = values.as_mut_ptr();
        Self { from: place.cast_const(), to: place, count: values.len(), place: PhantomData }
    }

    /// Creates a pass that writes the results of `from` to `to`, which has the same length.
    fn across(from: &'v [u8], to: &'v mut [MaybeUninit<u8>]) -> Self {
        debug_assert_eq!(from.len(), to.len(), "values and places for their results");
        Self { from: from.as_ptr(), to: to.as_mut_ptr().cast(), count: from.len(), place: PhantomData }
    }

    /// Returns how many values are left.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Takes the next `N` values; `None` if fewer are left.
    #[inline(always)]
    pub(super) fn block<const N: usize>(&mut self) -> Option<PassChunk<'v, N>> {
        (self.count >= N).then(|| {
            let head = self.take(N);
            PassChunk { from: head.from.cast(), to: head.to.cast(), place: PhantomData }
        })
    }

    /// Returns the values that are left.
    pub(super) const fn values(&self) -> &[u8] {
        // SAFETY: so many values are left here, which nobody else changes while the pass is borrowed.
        unsafe { slice::from_raw_parts(self.from, self.count) }
    }

    /// Writes the results of all values that are left.
    pub(super) fn finish(&mut self, results: &[u8]) {
        assert_eq!(results.len(), self.count, "values that are left");
        // SAFETY: so many places are left here, which nobody else uses.
        unsafe { slice::from_raw_parts_mut(self.to.cast(), self.count) }.write_copy_of_slice(results);
        self.count = 0;
    }

    /// Takes the values up to the first one whose result lies at the beginning of a cache line.
    pub(super) fn take_to_line(&mut self) -> Self {
        self.take(self.to.align_offset(LINE_BYTES).min(self.count))
    }

    /// Takes the next `count` values, of which there must be enough.
    #[inline(always)]
    fn take(&mut self, count: usize) -> Self {
        let head = Self { count, ..*self };
        self.count -= count;
        // SAFETY: `count` of the values and of the places were left, so both ends are inside of them or just behind.
        (self.from, self.to) = unsafe { (self.from.add(count), self.to.add(count)) };
        head
    }
}

/// `N` values and the place of their results.
pub(super) struct PassChunk<'v, const N: usize> {
    from: *const [u8; N],
    to: *mut [MaybeUninit<u8>; N],
    place: PhantomData<&'v mut [u8]>,
}

impl<const N: usize> PassChunk<'_, N> {
    /// Returns the values, or in a pass in place the results that were already written.
    #[inline(always)]
    pub(super) const fn values(&self) -> &[u8; N] {
        // SAFETY: the pass has so many values here, which nobody else changes; a result that was written in their place is a
        // value too, and none is written while the block is borrowed.
        unsafe { &*self.from }
    }

    /// Returns the place of the results, all of which the caller must write.
    #[inline(always)]
    pub(super) const fn results(&mut self) -> &mut [MaybeUninit<u8>; N] {
        // SAFETY: the pass has so many places here, which nobody else uses, and the values are not borrowed.
        unsafe { &mut *self.to }
    }

    /// Writes the results.
    #[inline(always)]
    pub(super) const fn write(&mut self, results: [u8; N]) {
        // SAFETY: as above.
        unsafe { self.to.cast::<[u8; N]>().write(results) };
    }
}

/// Replaces the content of `out` by `bytes` bytes, all of which `write` must write.
pub(super) fn write_all(out: &mut Vec<u8>, bytes: usize, write: impl FnOnce(&mut [MaybeUninit<u8>])) {
    out.clear();
    out.reserve(bytes);
    write(&mut out.spare_capacity_mut()[..bytes]);
    // SAFETY: there is room for so many, and all are written.
    unsafe { out.set_len(bytes) };
}

/// Replaces the content of `out` by the results of `from`. `change` must take and write all values of the pass.
pub(super) fn write_across(from: &[u8], out: &mut Vec<u8>, change: impl FnOnce(&mut PixelPass<'_>)) {
    write_all(out, from.len(), |to| {
        let mut pass = PixelPass::across(from, to);
        change(&mut pass);
        assert_eq!(pass.count, 0, "values that are left");
    });
}
