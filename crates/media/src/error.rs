//! What can be wrong with a sound or video file.

/// Why a sound or video file cannot be read. The messages have no subject: `field wav` or a path comes before them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum MediaError {
    /// The file is no sound of a format that is known.
    #[error("is no WAV, AIFF, AU, CAF, FLAC, MP3, Ogg, AAC, MP4 or Matroska file: it begins with \"{begins}\"")]
    NotSound { begins: String },
    /// The file ends before its head or its samples do.
    #[error("ends at byte {bytes}, within {what}")]
    Truncated { bytes: u64, what: &'static str },
    /// The file breaks the rules of its format.
    #[error("is damaged at byte {byte}: {problem}")]
    Malformed { byte: u64, problem: &'static str },
    /// The file is of a kind that is not decoded.
    #[error("has {what}, which is not supported; convert it to FLAC, or to WAV with PCM samples")]
    Unsupported { what: String },
    /// The file is no video of a format that is known.
    #[error("is no MP4, MOV, Matroska or WebM file: it begins with \"{begins}\"")]
    NotVideo { begins: String },
    /// The video is of a kind that is not read.
    #[error("has {what}, which is not supported; write it anew with a program such as FFmpeg")]
    UnsupportedVideo { what: String },
    /// The file of a still breaks the rules of its format.
    #[error("is a damaged AVIF or HEIC file: {problem}")]
    DamagedStill { problem: &'static str },
    /// The video has no sound.
    #[error("has no track of sound")]
    NoSound,
    /// A value that is no number, or infinite.
    #[error("has a sample that is not a finite number, in frame {frame}")]
    NotFinite { frame: u64 },
}

impl MediaError {
    /// A video that has `what`.
    pub(crate) fn unsupported_video(what: &str) -> Self {
        Self::UnsupportedVideo { what: what.to_owned() }
    }
}
