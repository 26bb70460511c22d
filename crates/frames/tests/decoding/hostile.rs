//! Packets that are damaged: each is an error of its video, or other pixels, and the next video is decoded all the same.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use spdl_frames::{FrameDecodeError, FrameDecoders, FrameRequest, PacketBytes};
use tempfile::TempDir;

use super::{decoders, videos};
use videos::TestVideo;

/// Damaged requests of each video, and the most time that they take of a test.
const REQUESTS: u64 = 60;
const MOST_TIME: Duration = Duration::from_secs(4);

const CASES: [(&str, &str); 8] = [
    ("h264.mp4", "-c:v libx264 -preset veryfast -bf 3 -g 20 -pix_fmt yuv420p"),
    ("hevc.mp4", "-c:v libx265 -preset ultrafast -x265-params log-level=none:bframes=4:keyint=20 -tag:v hvc1"),
    ("vp8.webm", "-c:v libvpx -deadline realtime -cpu-used 8 -g 20 -b:v 200k"),
    ("vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 20 -b:v 200k"),
    ("av1.mp4", "-c:v libaom-av1 -cpu-used 8 -usage realtime -g 20 -b:v 200k"),
    ("mpeg4.mp4", "-c:v mpeg4 -bf 2 -g 20 -q:v 6"),
    ("mpeg2.mkv", "-c:v mpeg2video -bf 2 -g 12 -q:v 6"),
    ("mjpeg.mov", "-c:v mjpeg -q:v 6 -pix_fmt yuvj420p"),
];

/// Numbers that follow from a seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, count: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % count.max(1) as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    /// Damages bytes in one of several ways.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        match self.below(5) {
            0 => bytes.truncate(self.below(bytes.len())),
            1 => bytes.iter_mut().for_each(|byte| *byte = self.byte()),
            2 => {
                let (start, count) = (self.below(bytes.len()), self.below(16));
                let end = (start + count).min(bytes.len());
                bytes[start..end].fill(self.byte());
            }
            // Mostly near the beginning, where the heads are.
            kind => {
                let near = if kind == 3 { bytes.len().min(24) } else { bytes.len() };
                for _ in 0..=self.below(4) {
                    let at = self.below(near);
                    let flip = 1 << self.below(8);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= flip;
                    }
                }
            }
        }
    }
}

#[test]
fn damaged_packets_are_errors_of_their_video_alone() {
    let test = "damaged packets";
    let (Some(ffmpeg), Some(decoders)) = (videos::ffmpeg(test), decoders(test)) else { return };
    let folder = TempDir::new().unwrap();
    let seed = std::env::var("SPDL_SEED").map_or(1, |seed| seed.parse().unwrap());
    eprintln!("SPDL_SEED={seed}");
    for (name, arguments) in CASES {
        let pictures = "-f lavfi -i testsrc2=size=176x96:rate=25:duration=1";
        let video = TestVideo::make(&ffmpeg, &folder, name, &format!("{pictures} {arguments}"));
        let (started, mut draws) = (Instant::now(), Draws(seed));
        let (mut decoded, mut refused, mut ended) = (0, 0, 0);
        for nth in 0..REQUESTS {
            match request(&decoders, &video, &mut draws) {
                Ok(()) => decoded += 1,
                Err(FrameDecodeError::Died { how }) => {
                    eprintln!("{name}, request {nth}: {how}");
                    ended += 1;
                }
                Err(error) => {
                    assert!(error.is_of_video(), "{name}, request {nth}: {error}");
                    refused += 1;
                }
            }
            if nth % 20 == 0 {
                let frames = [3, 20];
                video.check(&frames, &video.decode(&decoders, &frames).unwrap());
            }
            if started.elapsed() > MOST_TIME {
                break;
            }
        }
        eprintln!("{name}: {decoded} decoded, {refused} refused, {ended} children ended");
    }
}

/// Decodes a video with some damaged packets.
fn request(decoders: &FrameDecoders, video: &TestVideo, draws: &mut Draws) -> Result<(), FrameDecodeError> {
    let mut packets = video.packet_bytes();
    for _ in 0..=draws.below(3) {
        let nth = draws.below(packets.len());
        match draws.below(4) {
            0 => drop(packets.remove(nth)),
            1 => {
                let other = draws.below(packets.len());
                packets.swap(nth, other);
            }
            _ => draws.damage(&mut packets[nth]),
        }
    }
    let mut extra_data = video.video.track.extra_data.clone();
    if draws.below(6) == 0 && !extra_data.is_empty() {
        draws.damage(&mut extra_data);
    }
    let times = video.video.packets.iter().map(|packet| packet.pts);
    let packets: Vec<PacketBytes<'_>> =
        times.zip(&packets).map(|(pts, bytes)| PacketBytes { pts, bytes, begins_anew: draws.below(20) == 0 }).collect();
    let from = draws.below(video.times.len());
    let wanted: Range<usize> = from..video.times.len().min(from + 1 + draws.below(20));
    let request = FrameRequest {
        codec: &video.video.track.codec,
        extra_data: &extra_data,
        packets: &packets,
        wanted: &video.times[wanted],
        max_pixels: video.pixels(),
    };
    decoders.decode(&request, &mut |_, planes| {
        let [width, height] = planes.size.map(u64::from);
        assert!(width * height <= video.pixels(), "{width}x{height}");
        assert!(planes.planes[0].bytes.len() as u64 >= width * height, "{width}x{height}");
    })
}
