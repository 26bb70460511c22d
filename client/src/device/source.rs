//! A source of batches on a device, over any source of batches in slots.

use std::fmt;

use spdl_shard::Position;
use spdl_wire::{layout::Layout, messages::StageFigures};

use super::{Device, DeviceBatch, DeviceOptions, cuda::Pump, host::HostLane};
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
    kind: Kind<S>,
}

enum Kind<S> {
    Host { source: S, lane: HostLane },
    Cuda(Pump),
}

impl<S: Source<Batch = Batch>> OnDevice<S> {
    fn new(source: S, device: &Device, layout: &Layout, options: DeviceOptions) -> Result<Self, ClientError> {
        let kind = match device.kind() {
            super::Kind::Host => Kind::Host { source, lane: HostLane::new(options) },
            super::Kind::Cuda(context) => Kind::Cuda(Pump::start(source, context, layout, options)?),
        };
        Ok(Self { kind })
    }
}

impl<S: Source<Batch = Batch>> Source for OnDevice<S> {
    type Batch = DeviceBatch;

    async fn next(&mut self) -> Result<SourceEvent<DeviceBatch>, ClientError> {
        match &mut self.kind {
            Kind::Host { source, lane } => {
                lane.hands().warn();
                match source.next().await? {
                    SourceEvent::Batch(batch) => Ok(SourceEvent::Batch(lane.take(batch)?)),
                    SourceEvent::End(position) => Ok(SourceEvent::End(position)),
                }
            }
            Kind::Cuda(pump) => pump.next().await,
        }
    }

    async fn explain(&mut self) -> String {
        match &mut self.kind {
            Kind::Host { source, lane } => match lane.hands().hoarding() {
                Some(reason) => reason,
                None => source.explain().await,
            },
            Kind::Cuda(pump) => pump.explain().await,
        }
    }

    async fn restart(&mut self, from: Position) -> Result<(), ClientError> {
        match &mut self.kind {
            Kind::Host { source, .. } => source.restart(from).await,
            Kind::Cuda(pump) => pump.restart(from),
        }
    }

    fn handed(&mut self, progress: Progress) {
        match &mut self.kind {
            Kind::Host { source, .. } => source.handed(progress),
            Kind::Cuda(pump) => pump.handed(progress),
        }
    }

    fn serving(&self) -> Serving {
        match &self.kind {
            Kind::Host { source, .. } => source.serving(),
            Kind::Cuda(pump) => pump.serving(),
        }
    }

    fn stages(&self) -> Vec<StageFigures> {
        match &self.kind {
            Kind::Host { source, .. } => source.stages(),
            Kind::Cuda(pump) => pump.stages(),
        }
    }

    async fn close(&mut self) {
        match &mut self.kind {
            Kind::Host { source, .. } => source.close().await,
            Kind::Cuda(pump) => pump.close().await,
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
