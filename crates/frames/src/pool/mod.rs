//! The children that decode: started when they are needed, and replaced when they end.

mod child;
mod packets;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};

use self::child::FrameChild;
use crate::{FrameChildCommand, FrameDecodeError, FramePlanes, FrameRequest, FrameSettings};

/// Decodes the frames of videos, in child processes. Threads share it: each call waits for its frames, and uses a child of its own.
///
/// Dropping it ends all children.
#[derive(Debug)]
pub struct FrameDecoders {
    command: FrameChildCommand,
    settings: FrameSettings,
    idle: Mutex<IdleChildren>,
    /// Notified when a child becomes idle, or ends.
    is_free: Condvar,
    packets: AtomicU64,
    frames: AtomicU64,
}

/// What children have decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// The packets of all requests.
    pub packets: u64,
    /// The frames that were returned.
    pub frames: u64,
}

#[derive(Debug, Default)]
struct IdleChildren {
    /// The child that was used last is at the end.
    children: Vec<FrameChild>,
    /// How many there are, with those that are at work.
    count: usize,
}

/// Counts a child for as long as it exists outside the idle ones.
struct ChildPlace<'d> {
    decoders: &'d FrameDecoders,
    child: Option<FrameChild>,
}

impl FrameDecoders {
    /// Returns decoders without children.
    #[must_use]
    pub fn new(command: FrameChildCommand, settings: FrameSettings) -> Self {
        let (idle, packets, frames) = Default::default();
        Self { command, settings, idle, is_free: Condvar::new(), packets, frames }
    }

    /// Checks that videos can be decoded. Blocks until a child has started, if there is none. Returns the name of the library, such as
    /// "libavcodec 59.37.100 (`libavcodec.so.59`)".
    ///
    /// # Errors
    /// [`FrameDecodeError`], if the program cannot be started or there is no library.
    pub fn check(&self) -> Result<String, FrameDecodeError> {
        let mut place = self.take(|_| true, |_| true);
        let child = match place.child.take().filter(|child| !child.has_ended()) {
            Some(child) => child,
            None => FrameChild::start(&self.command, &self.settings, 0)?,
        };
        Ok(place.child.insert(child).library().to_owned())
    }

    /// Returns what children have decoded so far.
    #[must_use]
    pub fn counts(&self) -> FrameCounts {
        FrameCounts { packets: self.packets.load(Relaxed), frames: self.frames.load(Relaxed) }
    }

    /// Decodes frames, and calls `on_frame(nth, planes)` for each in the order in which the decoder gives them; `nth` is its number among
    /// the wanted ones. Blocks until all are there. If this fails, some frames may have been given.
    ///
    /// # Errors
    /// [`FrameDecodeError`]. Of a video that cannot be decoded, and the next request is served all the same.
    ///
    /// # Panics
    /// If the wanted times do not ascend.
    pub fn decode(
        &self,
        request: &FrameRequest<'_>,
        on_frame: &mut dyn FnMut(usize, FramePlanes<'_>),
    ) -> Result<(), FrameDecodeError> {
        assert!(request.wanted.is_sorted_by(|one, next| one < next), "wanted times ascend: {:?}", request.wanted);
        if request.wanted.is_empty() {
            return Ok(());
        }
        let mut place = self.take(|child| child.has_open(request), |child| child.may_decode(request));
        // If the idle child has ended meanwhile, such as because the system was short of memory, this video is not the cause.
        let mut child = match place.child.take().filter(|child| !child.has_ended()) {
            Some(child) => child,
            None => FrameChild::start(&self.command, &self.settings, request.max_pixels)?,
        };
        self.packets.fetch_add(request.packets.len() as u64, Relaxed);
        let mut frames = 0;
        let result = child.decode(request, &self.settings, &mut |nth, planes| {
            frames += 1;
            on_frame(nth, planes);
        });
        self.frames.fetch_add(frames, Relaxed);
        // A child that has ended, or has not finished its request, is dropped here.
        place.child = child.is_usable().then_some(child);
        result
    }

    /// Reserves a child for a request: an idle child that `may` decode it, at best one that `fits`. Without such a child, the caller
    /// starts one.
    fn take(&self, fits: impl Fn(&FrameChild) -> bool, may: impl Fn(&FrameChild) -> bool) -> ChildPlace<'_> {
        let mut idle = self.idle.lock();
        loop {
            let number = idle.children.iter().rposition(|child| fits(child) && may(child));
            if let Some(number) = number.or_else(|| idle.children.iter().rposition(&may)) {
                return ChildPlace { decoders: self, child: Some(idle.children.remove(number)) };
            }
            if idle.count < self.settings.children.max(1) {
                idle.count += 1;
                return ChildPlace { decoders: self, child: None };
            }
            if !idle.children.is_empty() {
                let ended = idle.children.remove(0);
                // The lock is released first, so that other threads need not wait until the child has ended.
                drop(idle);
                drop(ended);
                return ChildPlace { decoders: self, child: None };
            }
            self.is_free.wait(&mut idle);
        }
    }
}

impl Drop for ChildPlace<'_> {
    fn drop(&mut self) {
        let mut idle = self.decoders.idle.lock();
        match self.child.take() {
            Some(child) => idle.children.push(child),
            None => idle.count -= 1,
        }
        drop(idle);
        self.decoders.is_free.notify_one();
    }
}
