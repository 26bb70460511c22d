//! Videos that `ffmpeg` makes, and the frames that it decodes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use spdl_frames::{FrameDecodeError, FrameDecoders, FramePlanes, FrameRequest, PacketBytes, PlaneKind};
use spdl_media::{OpenVideo, Video, VideoBlocks, VideoPacket, VideoTable, encode_video_table, is_reference};
use tempfile::TempDir;

use super::programs::{program, skipped};

/// A video in memory, and its frames as `ffmpeg` has them.
pub(crate) struct TestVideo {
    pub(crate) name: String,
    pub(crate) file: Vec<u8>,
    pub(crate) video: Video,
    pub(crate) blocks: VideoBlocks,
    /// The times of all frames, ascending.
    pub(crate) times: Vec<i64>,
    /// The frames, one after the other.
    pub(crate) raw: Vec<u8>,
}

/// The frames of a request, by their number among the wanted ones.
pub(crate) type Frames = Vec<Option<Vec<u8>>>;

impl TestVideo {
    /// Makes a video of arguments, and decodes it with `ffmpeg`.
    pub(crate) fn make(ffmpeg: &Path, folder: &TempDir, name: &str, arguments: &str) -> Self {
        let path = folder.path().join(name);
        let made = Command::new(ffmpeg).args(["-v", "error", "-y"]).args(arguments.split(' ')).arg(&path).status();
        assert!(made.unwrap().success(), "{name}: {arguments}");
        Self::read(ffmpeg, &path)
    }

    /// Reads a file, and decodes it with `ffmpeg`.
    pub(crate) fn read(ffmpeg: &Path, path: &Path) -> Self {
        let file = fs::read(path).unwrap();
        let mut video = OpenVideo::open(&file).unwrap().video;
        for nth in 0..video.packets.len() {
            let bytes = packet_bytes(&video, &video.packets[nth], &file);
            let is_reference = is_reference(&video.track.codec, &video.track.extra_data, &bytes);
            video.packets[nth].is_droppable |= is_reference == Some(false);
        }
        let table = encode_video_table(&video.packets).unwrap();
        let table_of = VideoTable::read(&table).unwrap();
        let place = table_of.place(0..table_of.blocks());
        let place = usize::try_from(place.start).unwrap()..usize::try_from(place.end).unwrap();
        let blocks = table_of.read_blocks(0..table_of.blocks(), &table[place]).unwrap();
        let mut times: Vec<i64> =
            video.packets.iter().filter(|packet| packet.is_shown).map(|packet| packet.pts).collect();
        times.sort_unstable();
        let decoded = Command::new(ffmpeg)
            .args(["-v", "error", "-noautorotate", "-i"])
            .arg(path)
            .args(["-map", "0:v:0", "-fps_mode", "passthrough", "-f", "rawvideo", "-"])
            .output()
            .unwrap();
        assert!(decoded.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&decoded.stderr));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        Self { name, file, video, blocks, times, raw: decoded.stdout }
    }

    /// Returns the bytes of each packet, with what comes before each.
    pub(crate) fn packet_bytes(&self) -> Vec<Vec<u8>> {
        self.video.packets.iter().map(|packet| packet_bytes(&self.video, packet, &self.file)).collect()
    }

    /// Returns the pixels of the largest frames that the video should have.
    pub(crate) fn pixels(&self) -> u64 {
        let track = &self.video.track;
        u64::from(track.width.next_multiple_of(64)) * u64::from(track.height.next_multiple_of(64))
    }

    /// Decodes some frames, by their numbers, with no more packets than they need.
    pub(crate) fn decode(&self, decoders: &FrameDecoders, frames: &[u64]) -> Result<Frames, FrameDecodeError> {
        let needed = self.blocks.needed(frames).unwrap();
        let packets = self.packet_bytes();
        let mut before = None;
        let packets: Vec<PacketBytes<'_>> = needed
            .iter()
            .map(|nth| {
                let packet = self.video.packets[*nth];
                let between = before.map_or(0, |before| before + 1)..*nth;
                before = Some(*nth);
                let begins_anew = packet.is_key && between.into_iter().any(|nth| !self.video.packets[nth].is_droppable);
                PacketBytes { pts: packet.pts, bytes: &packets[*nth], begins_anew }
            })
            .collect();
        let wanted: Vec<i64> = frames.iter().map(|nth| self.times[usize::try_from(*nth).unwrap()]).collect();
        self.request(decoders, &packets, &wanted)
    }

    /// Decodes packets.
    pub(crate) fn request(
        &self,
        decoders: &FrameDecoders,
        packets: &[PacketBytes<'_>],
        wanted: &[i64],
    ) -> Result<Frames, FrameDecodeError> {
        let mut frames: Frames = vec![None; wanted.len()];
        let request = FrameRequest {
            codec: &self.video.track.codec,
            extra_data: &self.video.track.extra_data,
            packets,
            wanted,
            max_pixels: self.pixels(),
        };
        decoders.decode(&request, &mut |nth, planes| {
            assert!(frames[nth].replace(rawvideo(&planes)).is_none(), "frame {nth} came twice");
        })?;
        Ok(frames)
    }

    /// Compares frames with those of `ffmpeg`, by their numbers.
    pub(crate) fn check(&self, numbers: &[u64], frames: &Frames) {
        for (nth, frame) in numbers.iter().zip(frames) {
            let frame = frame.as_ref().unwrap_or_else(|| panic!("{}: no frame {nth}", self.name));
            assert_eq!(self.raw.len(), frame.len() * self.times.len(), "{}: bytes of all frames", self.name);
            let expected = self.raw.chunks(frame.len()).nth(usize::try_from(*nth).unwrap()).unwrap();
            let differing = expected.iter().zip(frame).filter(|(theirs, ours)| theirs != ours).count();
            assert_eq!(differing, 0, "{}: bytes of frame {nth} of {numbers:?} differ, of {}", self.name, frame.len());
        }
    }
}

fn packet_bytes(video: &Video, packet: &VideoPacket, file: &[u8]) -> Vec<u8> {
    let start = usize::try_from(packet.offset).unwrap();
    [&video.track.packet_prefix, &file[start..start + packet.bytes as usize]].concat()
}

/// Returns the planes of a frame as `ffmpeg` writes them.
fn rawvideo(planes: &FramePlanes<'_>) -> Vec<u8> {
    let [first, second, third] = planes.planes;
    if planes.format.kind == PlaneKind::Rgb {
        return [second.bytes, third.bytes, first.bytes].concat();
    }
    [first.bytes, second.bytes, third.bytes].concat()
}

/// Returns `ffmpeg`, or `None` where there is none, which is reported.
pub(crate) fn ffmpeg(test: &str) -> Option<PathBuf> {
    let found = program("ffmpeg");
    if found.is_none() {
        skipped(test, "there is no `ffmpeg`");
    }
    found
}
