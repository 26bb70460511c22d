//! The fuzz targets: one for each thing that reads bytes it did not write. The fuzzer and the replay test in
//! `tests/hostile` run the same functions.
//!
//! A target panics where a promise is broken. Beyond "no panic" these are: what was read can be written and reads back
//! as the same; it does not matter in which pieces bytes arrive; what was accepted can be walked from end to end; and
//! no more is allocated than a small multiple of the input and a stated limit.

mod coordinator;
mod decode;
mod files;
mod input;
mod layout;
mod messages;
mod pem;
mod session;
mod tar;
mod texts;

use crate::heap;

/// Something that reads hostile bytes.
pub(crate) struct Target {
    /// Its name, and that of its folder of inputs.
    pub(crate) name: &'static str,
    read: fn(&[u8]),
    /// Valid inputs, from which the fuzzer starts. Made anew each time, so that they follow the formats.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
    /// The most bytes that it may have in use at once for an empty input.
    most_bytes: u64,
    /// And for each byte of the input.
    most_bytes_per_byte: u64,
}

impl Target {
    /// Reads `data`.
    ///
    /// # Panics
    /// When a promise is broken.
    pub(crate) fn run(&self, data: &[u8]) {
        let used = heap::most_bytes(|| (self.read)(data));
        let most = self.most_bytes + self.most_bytes_per_byte * data.len() as u64;
        assert!(used <= most, "`{}` had {used} bytes in use, {most} are allowed for {} bytes", self.name, data.len());
    }
}

const fn target(name: &'static str, read: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, read, seeds, most_bytes: 4 << 20, most_bytes_per_byte: 128 }
}

/// All of them.
pub(crate) const ALL: &[Target] = &[
    target("to_coordinator", messages::to_coordinator, messages::to_coordinator_seeds),
    target("from_coordinator", messages::from_coordinator, messages::from_coordinator_seeds),
    target("to_home", messages::to_home, messages::to_home_seeds),
    target("from_home", messages::from_home, messages::from_home_seeds),
    target("frames", messages::frames, messages::frames_seeds),
    target("session", session::read, session::seeds),
    target("coordinator", coordinator::read, coordinator::seeds),
    target("layout", layout::read, layout::seeds),
    target("manifest", files::manifest, files::manifest_seeds),
    target("index", files::index, files::index_seeds),
    target("tar", tar::read, tar::seeds),
    target("job", texts::job, texts::job_seeds),
    target("voc", texts::voc, texts::voc_seeds),
    target("texts", texts::texts, texts::texts_seeds),
    target("pem", pem::read, pem::seeds),
    Target { most_bytes: 16 << 20, ..target("decode", decode::read, decode::seeds) },
    // The TIFF reader learns of our limits only when it has read its directories, for which it takes up to 256 MiB.
    Target { most_bytes: 272 << 20, ..target("tiff", decode::tiff, decode::tiff_seeds) },
];
