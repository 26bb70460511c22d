//! Why frames are not decoded.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

/// Frames could not be decoded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum FrameDecodeError {
    /// There is no library, or none that is known.
    #[error(
        "no library to decode videos with: {problem}; set SPDL_LIBAV=FOLDER to a folder with libavcodec of FFmpeg 5 to 9, \
         install the system's package of it (`apt install libavcodec-extra`, `dnf install libavcodec-free`), or PyAV (`pip install av`)"
    )]
    Library { problem: String },
    /// The library has no decoder for a codec.
    #[error("{library} has no decoder for {codec}")]
    Codec { codec: String, library: String },
    /// The program of a child cannot be started.
    #[error("cannot start `{}`, which decodes videos: {source}", program.display())]
    Start { program: PathBuf, source: Arc<io::Error> },
    /// The program of a child was started, and is none that decodes or cannot do it on this system.
    #[error("`{}` cannot decode videos: {problem}", program.display())]
    Child { program: PathBuf, problem: String },
    /// Memory to share with a child cannot be made.
    #[error("cannot share {bytes} bytes with the process that decodes videos: {source}")]
    Shared { bytes: usize, source: Arc<io::Error> },
    /// The frames have pixels of a kind that is not read.
    #[error("has pixels of the format `{name}`, which is not supported")]
    Format { name: String },
    /// A packet cannot be decoded.
    #[error("cannot be decoded: {problem}")]
    Stream { problem: String },
    /// The decoder gave no frame for a packet.
    #[error("the decoder gave no frame for the packet at {pts}, so a packet is damaged or not what the file says")]
    Missing { pts: i64 },
    /// The process that decoded has ended.
    #[error("the process that decoded it has ended: {how}")]
    Died { how: String },
    /// Decoding took too long.
    #[error("decoding it took longer than {} s", limit.as_secs_f64())]
    Slow { limit: Duration },
    /// Decoding takes more memory than frames of the allowed size should.
    #[error("decoding it takes more memory than is allowed for frames of {max_pixels} pixels")]
    Memory { max_pixels: u64 },
}

impl FrameDecodeError {
    /// Returns whether the video is to blame, and not what decodes it: another video may be decoded.
    #[must_use]
    pub const fn is_of_video(&self) -> bool {
        match self {
            Self::Format { .. } | Self::Stream { .. } | Self::Missing { .. } => true,
            Self::Died { .. } | Self::Slow { .. } | Self::Memory { .. } => true,
            Self::Library { .. }
            | Self::Codec { .. }
            | Self::Start { .. }
            | Self::Child { .. }
            | Self::Shared { .. } => false,
        }
    }
}
