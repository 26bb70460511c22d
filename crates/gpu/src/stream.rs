//! The handle of a CUDA stream of the trainer.
#![allow(unsafe_code)]

/// A stream on which the trainer uses batches, by the driver's handle: PyTorch's
/// `torch.cuda.current_stream().cuda_stream`, and the number that DLPack passes to a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamHandle(usize);

impl StreamHandle {
    /// The default stream that synchronises with all others of its device.
    pub const LEGACY: Self = Self(1);
    /// The default stream of the calling thread.
    pub const PER_THREAD: Self = Self(2);

    /// Creates a stream from its handle. 0 is [`StreamHandle::LEGACY`], as in PyTorch.
    ///
    /// # Safety
    /// The handle must belong to a live stream. The stream must live until every batch that
    /// [waits on](crate::DeviceBatch::wait_on) it is dropped, and if that happens during the capture of a graph, until
    /// the capture has ended.
    #[must_use]
    pub const unsafe fn from_raw(handle: usize) -> Self {
        if handle == 0 { Self::LEGACY } else { Self(handle) }
    }

    /// Returns the driver's handle.
    #[must_use]
    pub const fn as_raw(self) -> usize {
        self.0
    }
}
