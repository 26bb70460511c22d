//! Decoded frames that other samples of a batch will take. They may be dropped at any time: what is missing is decoded again.

use std::{collections::BTreeMap, sync::Arc};

use spdl_frames::KeptFrame;

/// Which frame it is: the number of the [run](super::memory::DecodeMemory::new_run), and when it is shown.
pub(super) type FrameKey = (u64, i64);

/// Frames, and how many samples will take each.
#[derive(Debug, Default)]
pub(super) struct KeptFrames {
    frames: BTreeMap<FrameKey, (Arc<KeptFrame>, usize)>,
    bytes: u64,
}

impl KeptFrames {
    /// Returns the bytes of all frames.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether a frame is there.
    pub(super) fn has(&self, key: FrameKey) -> bool {
        self.frames.contains_key(&key)
    }

    /// Keeps a frame that so many samples will take.
    pub(super) fn put(&mut self, key: FrameKey, frame: Arc<KeptFrame>, uses: usize) {
        self.bytes += frame.bytes();
        if let Some((before, _)) = self.frames.insert(key, (frame, uses)) {
            self.bytes -= before.bytes();
        }
    }

    /// Returns a frame for a sample, and drops it if it is for no other.
    pub(super) fn take(&mut self, key: FrameKey) -> Option<Arc<KeptFrame>> {
        let (frame, uses) = self.frames.get_mut(&key)?;
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return Some(Arc::clone(frame));
        }
        let (frame, _) = self.frames.remove(&key)?;
        self.bytes -= frame.bytes();
        Some(frame)
    }

    /// Drops all frames of a run.
    pub(super) fn forget(&mut self, run: u64) {
        let of_run = self.frames.extract_if((run, i64::MIN)..=(run, i64::MAX), |_, _| true);
        self.bytes -= of_run.map(|(_, (frame, _))| frame.bytes()).sum::<u64>();
    }

    /// Drops frames until the others take at most so many bytes, those of the newest runs first: the others will be taken sooner.
    pub(super) fn trim_to(&mut self, max_bytes: u64) {
        while self.bytes > max_bytes
            && let Some((_, (frame, _))) = self.frames.pop_last()
        {
            self.bytes -= frame.bytes();
        }
    }
}
