//! A source of batches on a device, over any source of batches in slots.

use std::fmt;

use spdl_shard::Position;
use spdl_wire::{layout::Layout, messages::StageStats};

use super::{Device, DeviceBatch, DeviceOptions, cuda::Prefetcher, host::HostCopies};
use crate::{Batch, ClientError, Loader, Serving, Source, SourceEvent, core::Progress};

impl<S: Source<Batch = Batch>> Loader<S> {
    /// Returns the same loader with its batches on `device`. Nothing else changes: position, state, receipt and
    /// statistics cover the batches that were handed over, not those that are only on the device.
    ///
    /// Allocates the device's buffers, which takes some milliseconds. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// Returns [`ClientError::Device`] when an option does not fit the job or the device fails.
    pub fn on_device(self, device: &Device, options: DeviceOptions) -> Result<Loader<OnDevice<S>>, ClientError> {
        let layout = self.session().layout();
        options.check(&layout)?;
        self.try_map_source(|source| OnDevice::new(source, device, &layout, options))
    }
}

/// The batches of another source, on a device. Created by [`Loader::on_device`].
pub struct OnDevice<S: Source<Batch = Batch>> {
    kind: OnDeviceKind<S>,
}

enum OnDeviceKind<S> {
    Host { source: S, copy_stream: HostCopies },
    Cuda(Prefetcher),
}

impl<S: Source<Batch = Batch>> OnDevice<S> {
    fn new(source: S, device: &Device, layout: &Layout, options: DeviceOptions) -> Result<Self, ClientError> {
        let kind = match device.kind() {
            super::DeviceKind::Host => OnDeviceKind::Host { source, copy_stream: HostCopies::new(options) },
            super::DeviceKind::Cuda(context) => {
                OnDeviceKind::Cuda(Prefetcher::start(source, context, layout, options)?)
            }
        };
        Ok(Self { kind })
    }
}

impl<S: Source<Batch = Batch>> Source for OnDevice<S> {
    type Batch = DeviceBatch;

    async fn next(&mut self) -> Result<SourceEvent<DeviceBatch>, ClientError> {
        match &mut self.kind {
            OnDeviceKind::Host { source, copy_stream } => {
                copy_stream.outstanding().warn();
                match source.next().await? {
                    SourceEvent::Batch(batch) => Ok(SourceEvent::Batch(copy_stream.take(batch)?)),
                    SourceEvent::End(position) => Ok(SourceEvent::End(position)),
                }
            }
            OnDeviceKind::Cuda(prefetcher) => prefetcher.next().await,
        }
    }

    async fn explain(&mut self) -> String {
        match &mut self.kind {
            OnDeviceKind::Host { source, copy_stream } => match copy_stream.outstanding().exhausted_reason() {
                Some(reason) => reason,
                None => source.explain().await,
            },
            OnDeviceKind::Cuda(prefetcher) => prefetcher.explain().await,
        }
    }

    async fn restart(&mut self, from: Position) -> Result<(), ClientError> {
        match &mut self.kind {
            OnDeviceKind::Host { source, .. } => source.restart(from).await,
            OnDeviceKind::Cuda(prefetcher) => prefetcher.restart(from),
        }
    }

    fn delivered(&mut self, progress: Progress) {
        match &mut self.kind {
            OnDeviceKind::Host { source, .. } => source.delivered(progress),
            OnDeviceKind::Cuda(prefetcher) => prefetcher.delivered(progress),
        }
    }

    fn serving(&self) -> Serving {
        match &self.kind {
            OnDeviceKind::Host { source, .. } => source.serving(),
            OnDeviceKind::Cuda(prefetcher) => prefetcher.serving(),
        }
    }

    fn stages(&self) -> Vec<StageStats> {
        match &self.kind {
            OnDeviceKind::Host { source, .. } => source.stages(),
            OnDeviceKind::Cuda(prefetcher) => prefetcher.stages(),
        }
    }

    async fn close(&mut self) {
        match &mut self.kind {
            OnDeviceKind::Host { source, .. } => source.close().await,
            OnDeviceKind::Cuda(prefetcher) => prefetcher.close().await,
        }
    }
}

impl<S: Source<Batch = Batch>> fmt::Debug for OnDevice<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDevice").field("serving", &self.serving()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
