//! A second context of the same device, as an older library may create it.

use std::ptr;

use cudarc::driver::sys::CUcontext;

use super::{TrainerContext, TrainerStream, call};

/// A context that is not the device's primary one, and a stream in it.
#[derive(Debug)]
pub struct SecondContext {
    context: CUcontext,
    /// A stream in this context.
    pub stream: TrainerStream,
}

impl TrainerContext {
    /// Creates a second context. It is current on no thread.
    #[must_use]
    pub fn second_context(&self) -> SecondContext {
        let (mut context, mut popped) = (ptr::null_mut(), ptr::null_mut());
        call!(cuCtxCreate_v2(&raw mut context, 0, self.device));
        // The new context is current until here, so the stream belongs to it.
        let stream = self.stream();
        call!(cuCtxPopCurrent_v2(&raw mut popped));
        SecondContext { context, stream }
    }
}

impl Drop for SecondContext {
    fn drop(&mut self) {
        // Destroys the stream, too.
        call!(cuCtxDestroy_v2(self.context));
    }
}
