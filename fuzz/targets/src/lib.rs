//! The fuzz targets: one for each reader of untrusted bytes. The fuzzer and the replay test in `tests/hostile` run the
//! same functions.
//!
//! A target panics when a property does not hold. Beyond "no panic" the properties are: a value that was read can be
//! written, and reads back equal; the result does not depend on how the bytes are split; accepted input can be read
//! from end to end; and at most a small multiple of the input plus a stated limit is allocated.

mod array_record;
mod chats;
mod coordinator;
mod decode;
mod files;
mod formats;
mod frames;
pub mod heap;
mod indexes;
mod input;
mod layout;
mod messages;
mod operations;
mod parquet;
mod pem;
mod scalable;
mod sequences;
mod session;
mod sizes;
mod sound;
mod still;
mod tar;
mod texts;
mod tokens;
mod video;

use messages::{encoded, message};
use spdl_control::{help::HelpReply, messages::*, peers::BlockReply};

/// A reader of untrusted bytes.
pub struct FuzzTarget {
    /// The name of the target and of its folder of inputs.
    pub name: &'static str,
    read: fn(&[u8]),
    /// Makes valid inputs, from which the fuzzer starts. They are made again each time, so that they follow the formats.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The most bytes that it may have in use at once for an empty input.
    max_bytes: u64,
    /// The most further bytes for each byte of the input.
    max_bytes_per_byte: u64,
}

impl FuzzTarget {
    /// Reads `data`. [`heap::CountingAllocator`] has to be the global allocator.
    ///
    /// # Panics
    /// If a property does not hold.
    pub fn run(&self, data: &[u8]) {
        let used = heap::max_bytes(|| (self.read)(data));
        let most = self.max_bytes + self.max_bytes_per_byte * data.len() as u64;
        assert!(used <= most, "`{}` had {used} bytes in use, {most} are allowed for {} bytes", self.name, data.len());
    }
}

const fn target(name: &'static str, read: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> FuzzTarget {
    FuzzTarget { name, read, seeds, max_bytes: 4 << 20, max_bytes_per_byte: 128 }
}

const fn sound_target(name: &'static str, seeds: fn() -> Vec<Vec<u8>>) -> FuzzTarget {
    FuzzTarget { max_bytes: 16 << 20, ..target(name, sound::read, seeds) }
}

/// Makes seeds of files that earlier versions wrote.
macro_rules! golden {
    ($($file:literal),+) => {
        || vec![$(include_bytes!(concat!("../../../crates/dataset/tests/golden/", $file)).to_vec()),+]
    };
}

/// All targets.
pub const ALL: &[FuzzTarget] = &[
    target("to_coordinator", message::<ToCoordinator>, || encoded(&messages::requests())),
    target("from_coordinator", message::<FromCoordinator>, || encoded(&messages::replies())),
    target("to_home", message::<ToHome>, || encoded(&messages::to_home())),
    target("from_home", message::<FromHome>, || encoded(&messages::replies_of_home())),
    target("peer_request", message::<PeerRequest>, messages::peer_request_seeds),
    target("help_reply", message::<HelpReply>, messages::help_reply_seeds),
    target("block_reply", message::<BlockReply>, || {
        encoded(&[BlockReply::Fetching, BlockReply::Block, BlockReply::Missing])
    }),
    target("frames", messages::frames, messages::frames_seeds),
    target("session", session::read, session::seeds),
    target("coordinator", coordinator::read, coordinator::seeds),
    target("layout", layout::read, layout::seeds),
    target("manifest", files::manifest, files::manifest_seeds),
    target("index", files::index, files::index_seeds),
    target(
        "file_index",
        files::file_index,
        golden!("files-v1.idx", "files-v2.idx", "files-v3.idx", "files-v3-tables.idx"),
    ),
    target("mds", formats::mds, golden!("mds-v1.idx", "mds-compressed-v1.idx")),
    // The decompressors have tables and windows of their own, of up to 16 MiB and more.
    FuzzTarget { max_bytes: 160 << 20, ..target("decompress", formats::decompress, formats::decompress_seeds) },
    target("tfrecord", formats::tfrecord, formats::tfrecord_seeds),
    // brotli and zstd have tables and windows of their own, as above; what a chunk becomes is limited by its index.
    FuzzTarget {
        max_bytes: 160 << 20,
        max_bytes_per_byte: 1 << 17,
        ..target("array_record", array_record::file, array_record::seeds)
    },
    target("array_record_index", array_record::index, golden!("array_record-v1.idx", "array_record-examples-v1.idx")),
    // A page may decompress to 64 MiB more than its file states, and the library that reads footers has structs for bytes.
    FuzzTarget { max_bytes: 320 << 20, max_bytes_per_byte: 4096, ..target("parquet", parquet::file, parquet::seeds) },
    target("parquet_index", parquet::index, parquet::index_seeds),
    target("megatron", tokens::megatron, tokens::megatron_seeds),
    target("token_files", tokens::token_files, tokens::token_files_seeds),
    target("token_index", tokens::index, golden!("tokens-v1.idx", "tokens-loss-v1.idx")),
    target("sequences", sequences::read, sequences::seeds),
    target("sizes", sizes::read, sizes::seeds),
    target("tar", tar::read, tar::seeds),
    target("job", texts::job, texts::job_seeds),
    target("voc", texts::voc, texts::voc_seeds),
    target("texts", texts::texts, texts::texts_seeds),
    target("pem", pem::read, pem::seeds),
    // A template may make texts of 1 MiB, of which some are in use at once.
    FuzzTarget { max_bytes: 32 << 20, max_bytes_per_byte: 1024, ..target("chats", chats::read, chats::seeds) },
    // Limited to 32,768 pixels between operations, of which a few copies are in use at once.
    target("operations", operations::read, operations::seeds),
    // A resampler between odd rates has weights of up to 16 MiB, and a packet of FLAC up to 2 MiB of samples.
    FuzzTarget { max_bytes: 64 << 20, ..target("decode", decode::read, decode::seeds) },
    sound_target("sound", sound::seeds),
    // The same for each format, from its files alone.
    sound_target("sound_wav", sound::wav),
    sound_target("sound_aiff", sound::aiff),
    sound_target("sound_au", sound::au),
    sound_target("sound_caf", sound::caf),
    sound_target("sound_flac", sound::flac),
    sound_target("sound_mp3", sound::mp3),
    sound_target("sound_vorbis", sound::vorbis),
    sound_target("sound_opus", sound::opus),
    sound_target("sound_adts", sound::adts),
    sound_target("sound_m4a", sound::m4a),
    sound_target("sound_matroska", sound::matroska),
    // A packet may have one byte, and 40 bytes tell of it; the target has them several times.
    FuzzTarget { max_bytes_per_byte: 512, ..target("video", video::read, video::seeds) },
    target("still", still::read, still::seeds),
    target("frame_reply", frames::reply, frames::reply_seeds),
    // In columns, many packets that are alike take next to no bytes: a block has at most 4,096, and some are read at once.
    target("video_table", video::table, video::table_seeds),
    FuzzTarget { max_bytes: 32 << 20, ..target("scalable", scalable::read, scalable::seeds) },
    // The TIFF reader applies our limits only after it has read its directories, for which it takes up to 256 MiB.
    FuzzTarget { max_bytes: 272 << 20, ..target("tiff", decode::tiff, decode::tiff_seeds) },
];
