//! A source of batches on a device, over any source of batches in slots.

use std::{fmt, sync::Arc};

use spdl_client::{Batch, ClientError, Loader, Progress, Serving, Session, Source, SourceEvent};
use spdl_job::layout::Layout;
use spdl_types::{Position, StageStats};

use crate::{
    Device, DeviceBatch, DeviceError, DeviceOptions, SequenceColumns, cuda::Prefetcher, device::DeviceKind,
    host::HostCopies,
};

/// Puts the batches of a [`Loader`] on a device.
pub trait LoaderExt<S: Source<Batch = Batch, Error = ClientError>> {
    /// Returns the same loader with its batches on `device`. Nothing else changes: position, state, receipt and
    /// statistics cover the batches that were delivered, not those that are only on the device.
    ///
    /// Allocates the device's buffers, which takes some milliseconds. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when an option does not fit the job, when the device fails, or when it was opened as
    /// `cuda` and other ranks have opened the same device in this way.
    fn on_device(self, device: &Device, options: DeviceOptions) -> Result<Loader<OnDevice<S>>, DeviceError>;
}

impl<S: Source<Batch = Batch, Error = ClientError>> LoaderExt<S> for Loader<S> {
    fn on_device(self, device: &Device, options: DeviceOptions) -> Result<Loader<OnDevice<S>>, DeviceError> {
        let layout = self.session().layout();
        options.check(&layout)?;
        device.check_world(self.session().world)?;
        let sequences = SequenceColumns::of(self.job());
        self.try_map_source(|source| OnDevice::new(source, device, &layout, options, sequences))
    }
}

/// The batches of another source, on a device. Created by [`LoaderExt::on_device`].
pub struct OnDevice<S: Source<Batch = Batch, Error = ClientError>> {
    kind: OnDeviceKind<S>,
}

enum OnDeviceKind<S> {
    Host { source: S, copies: HostCopies },
    Cuda(Prefetcher),
}

impl<S: Source<Batch = Batch, Error = ClientError>> OnDevice<S> {
    fn new(
        source: S,
        device: &Device,
        layout: &Layout,
        options: DeviceOptions,
        sequences: Option<SequenceColumns>,
    ) -> Result<Self, DeviceError> {
        let kind = match device.kind() {
            DeviceKind::Host => OnDeviceKind::Host { source, copies: HostCopies::new(options, sequences) },
            DeviceKind::Cuda(context) => {
                OnDeviceKind::Cuda(Prefetcher::start(source, context, layout, options, sequences)?)
            }
        };
        Ok(Self { kind })
    }
}

impl<S: Source<Batch = Batch, Error = ClientError>> Source for OnDevice<S> {
    type Batch = DeviceBatch;
    type Error = DeviceError;

    async fn next(&mut self) -> Result<SourceEvent<DeviceBatch>, DeviceError> {
        match &mut self.kind {
            OnDeviceKind::Host { source, copies } => {
                copies.outstanding().warn();
                match source.next().await? {
                    SourceEvent::Batch(batch) => Ok(SourceEvent::Batch(copies.take(batch)?)),
                    SourceEvent::End(position) => Ok(SourceEvent::End(position)),
                }
            }
            OnDeviceKind::Cuda(prefetcher) => prefetcher.next().await,
        }
    }

    async fn explain(&mut self) -> String {
        match &mut self.kind {
            OnDeviceKind::Host { source, copies } => match copies.outstanding().exhausted_reason() {
                Some(reason) => reason,
                None => source.explain().await,
            },
            OnDeviceKind::Cuda(prefetcher) => prefetcher.explain().await,
        }
    }

    async fn restart(&mut self, from: Position) -> Result<(), DeviceError> {
        match &mut self.kind {
            OnDeviceKind::Host { source, .. } => Ok(source.restart(from).await?),
            OnDeviceKind::Cuda(prefetcher) => prefetcher.restart(from),
        }
    }

    fn record_progress(&mut self, progress: Progress) {
        match &mut self.kind {
            OnDeviceKind::Host { source, .. } => source.record_progress(progress),
            OnDeviceKind::Cuda(prefetcher) => prefetcher.record_progress(progress),
        }
    }

    fn serving(&self) -> Serving {
        match &self.kind {
            OnDeviceKind::Host { source, .. } => source.serving(),
            OnDeviceKind::Cuda(prefetcher) => prefetcher.serving(),
        }
    }

    fn session(&self) -> Option<Arc<Session>> {
        match &self.kind {
            OnDeviceKind::Host { source, .. } => source.session(),
            OnDeviceKind::Cuda(prefetcher) => prefetcher.session(),
        }
    }

    fn classes(&self) -> Option<Arc<[String]>> {
        match &self.kind {
            OnDeviceKind::Host { source, .. } => source.classes(),
            OnDeviceKind::Cuda(prefetcher) => prefetcher.classes(),
        }
    }

    fn most_held(&self) -> u32 {
        match &self.kind {
            OnDeviceKind::Host { source, .. } => source.most_held(),
            OnDeviceKind::Cuda(prefetcher) => prefetcher.buffers(),
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

impl<S: Source<Batch = Batch, Error = ClientError>> fmt::Debug for OnDevice<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDevice").field("serving", &self.serving()).finish_non_exhaustive()
    }
}
