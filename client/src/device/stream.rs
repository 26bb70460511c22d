//! A stream of the trainer's own, by its handle.
#![allow(unsafe_code)]

/// A stream on which the trainer uses batches, as the driver knows it: the number that PyTorch calls
/// `torch.cuda.current_stream().cuda_stream` and that DLPack hands to a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamHandle(usize);

impl StreamHandle {
    /// The default stream that synchronises with all others of its device.
    pub const LEGACY: Self = Self(1);
    /// The default stream of the calling thread.
    pub const PER_THREAD: Self = Self(2);

    /// A stream by its handle. 0 is [`StreamHandle::LEGACY`], as in PyTorch.
    ///
    /// # Safety
    /// The handle must be one of a live stream of the device that the batches are on, and stay so until every batch
    /// that was told to [wait on](super::DeviceBatch::wait_on) it is dropped.
    #[must_use]
    pub const unsafe fn from_raw(handle: usize) -> Self {
        if handle == 0 { Self::LEGACY } else { Self(handle) }
    }

    /// The handle.
    #[must_use]
    pub const fn as_raw(self) -> usize {
        self.0
    }
}
