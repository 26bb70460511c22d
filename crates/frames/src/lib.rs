//! Frames of videos: packets are decoded by libavcodec in child processes, and planes become RGB.
//!
//! [`FrameDecoders`] has the children: a program that calls [`frame_child_main`], and nothing else. A child loads libavcodec, of FFmpeg 5
//! to 9, where the system or PyAV has it; nothing is linked. Then it gives up all rights but to compute and to answer, because a damaged
//! video may take over what decodes it, and decodes on one thread. Packets and frames lie in memory that both processes have mapped.
//!
//! A child that ends, or takes too long, is an error of the video that it decoded, and the next one is decoded by another child.

mod child;
mod convert;
mod error;
mod library;
mod planes;
mod pool;
mod protocol;
mod request;
mod settings;
mod shape;
mod system;

pub use child::{frame_child_main, frame_child_with};
pub use convert::{ConvertProblem, RgbConversion, RgbRows};
pub use error::FrameDecodeError;
pub use planes::{FramePlanes, KeptFrame, Plane, PlaneFormat, PlaneKind};
pub use pool::{FrameCounts, FrameDecoders};
#[doc(hidden)]
pub use protocol::rewritten_reply;
pub use request::{FrameRequest, PacketBytes};
pub use settings::{FrameChildCommand, FrameSettings};
