//! libavcodec and libavutil: checked wrappers of their calls, with owned handles. Only this folder calls them.
//!
//! They are loaded at run time, so nothing is linked. Only a child does it: a damaged stream may take over the process that decodes it.
#![allow(unsafe_code)]

mod context;
mod frame;
mod functions;
mod layout;
mod pixels;
mod search;

use std::ffi::{CStr, c_int};

pub(crate) use context::{CodecContext, H264, HEVC, Received};
pub(crate) use frame::DecodedFrame;
pub(crate) use search::LibraryFolders;

use self::functions::CodecFunctions;
use libloading::os::unix::Library;

/// libavcodec and libavutil.
pub(crate) struct CodecLibrary {
    functions: CodecFunctions,
    name: String,
    /// Keeps them loaded.
    _libraries: Vec<Library>,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CodecProblem {
    /// The library has no decoder for this codec.
    NoDecoder,
    /// Pixels of this format are not read.
    Format(String),
    /// The stream is not valid.
    Stream(String),
    /// There is not enough memory.
    Memory,
}

/// The codecs, by the number that messages have for them, and the names of their decoders: the first one that the library has is taken.
/// `av1` alone is no decoder, but a frame for those of devices.
pub(crate) const DECODERS: [&[&CStr]; 9] = [
    &[c"h264"],
    &[c"hevc"],
    &[c"libdav1d", c"libaom-av1"],
    &[c"vp8", c"libvpx"],
    &[c"vp9", c"libvpx-vp9"],
    &[c"mpeg4"],
    &[c"mpeg2video"],
    &[c"mpeg1video"],
    &[c"mjpeg"],
];

impl CodecLibrary {
    /// Finds the library and loads it.
    ///
    /// # Errors
    /// What was wrong with what was found.
    pub(crate) fn load(folders: &LibraryFolders) -> Result<Self, String> {
        const QUIET: c_int = -8;
        let loaded = search::load(folders)?;
        let file = loaded.file.display();
        // SAFETY: the first library is libavcodec, and `self` keeps all of them.
        let functions = unsafe { CodecFunctions::look_up(&loaded.libraries[0]) };
        let functions = functions.map_err(|lacks| format!("`{file}` lacks `{lacks}`"))?;
        let version = layout::check(&functions).map_err(|problem| format!("`{file}`: {problem}"))?;
        // SAFETY: may be called at any time.
        unsafe { (functions.av_log_set_level)(QUIET) };
        Ok(Self { name: format!("{version} (`{file}`)"), functions, _libraries: loaded.libraries })
    }

    /// Returns its version and where it was found.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Opens and closes each decoder once, so that it makes its tables, and asks the system what it wants to know of it.
    pub(crate) fn warm_up(&self) {
        const SOME_PIXELS: u64 = 1 << 20;
        (0..DECODERS.len()).for_each(|codec| drop(CodecContext::open(self, codec, &[], SOME_PIXELS)));
    }

    /// Returns the error of a call by its number.
    fn problem(&self, code: c_int) -> CodecProblem {
        if code == -libc::ENOMEM {
            return CodecProblem::Memory;
        }
        let mut text = [0u8; 128];
        // SAFETY: at most so many bytes are written, with a zero at the end, also for numbers that the library does not know.
        unsafe { (self.functions.av_strerror)(code, text.as_mut_ptr().cast(), text.len()) };
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        CodecProblem::Stream(text.to_string_lossy().into_owned())
    }
}
