//! How many children there are, how they are started, and what they may take.

use std::{ffi::OsString, path::PathBuf, time::Duration};

/// The variable of the environment that names the folder with libavcodec.
pub(crate) const LIBRARY_VARIABLE: &str = "SPDL_LIBAV";

/// How a child is started: a program with arguments, which then calls [`frame_child_main`](crate::frame_child_main).
#[derive(Clone, Debug)]
pub struct FrameChildCommand {
    /// The program's file, or its name to be found in `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// The limits of decoding, and where its library is.
#[derive(Clone, Debug)]
pub struct FrameSettings {
    /// The most children: as many as there are threads that decode. With fewer, threads wait for each other.
    pub children: usize,
    /// The folder with libavcodec and libavutil, in which alone they are looked for. `None` looks for those of the system, then in
    /// [`FrameSettings::package_folders`].
    pub library_folder: Option<PathBuf>,
    /// Folders of Python packages (`site-packages`), in one of which PyAV may be installed; it has the libraries in `av.libs`.
    pub package_folders: Vec<PathBuf>,
    /// How long a request may take in any case, in wall-clock time. When raised, a damaged file holds up its thread for longer; when
    /// lowered, a machine with more work than cores loses samples that are valid.
    pub base_timeout: Duration,
    /// How much longer it may take for each packet and million pixels of [`FrameRequest::max_pixels`](crate::FrameRequest::max_pixels).
    pub packet_timeout: Duration,
}

impl FrameSettings {
    /// Returns the defaults for so many children: 20 seconds, and 100 ms for each packet and million pixels, some fifty times of what
    /// decoding takes. The folder of the library is what `SPDL_LIBAV` says in the environment.
    #[must_use]
    pub fn new(children: usize, package_folders: Vec<PathBuf>) -> Self {
        let library_folder = std::env::var_os(LIBRARY_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let (base_timeout, packet_timeout) = (Duration::from_secs(20), Duration::from_millis(100));
        Self { children, library_folder, package_folders, base_timeout, packet_timeout }
    }
}
