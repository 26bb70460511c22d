//! Every frame is that of `ffmpeg`, to the bit, however few packets it is decoded of.

use std::panic::AssertUnwindSafe;

use tempfile::TempDir;

use super::{decoders, videos};
use videos::TestVideo;

/// Names of files, the size of the pictures, and the arguments that encode them.
const CASES: [(&str, &str, &str); 28] = [
    ("h264.mp4", "160x96", "-c:v libx264 -preset veryfast -bf 3 -g 20 -pix_fmt yuv420p"),
    (
        "h264-open.mp4",
        "160x96",
        "-c:v libx264 -preset veryfast -x264-params open-gop=1:keyint=15:bframes=3:b-pyramid=normal:scenecut=0 -pix_fmt yuv420p",
    ),
    ("h264-fields.mp4", "160x96", "-c:v libx264 -preset veryfast -g 20 -flags +ilme+ildct -pix_fmt yuv420p"),
    ("h264-odd.mkv", "149x73", "-c:v libx264 -preset veryfast -bf 2 -g 20 -pix_fmt yuv444p"),
    ("h264-10.mp4", "160x96", "-c:v libx264 -preset veryfast -g 20 -pix_fmt yuv420p10le"),
    ("h264-422.mp4", "160x96", "-c:v libx264 -preset veryfast -g 20 -pix_fmt yuv422p"),
    ("h264-444.mp4", "160x96", "-c:v libx264 -preset veryfast -g 20 -pix_fmt yuv444p"),
    ("h264-rgb.mp4", "160x96", "-c:v libx264rgb -preset veryfast -g 20 -pix_fmt bgr24"),
    ("h264-grey.mkv", "160x96", "-c:v libx264 -preset veryfast -g 20 -pix_fmt gray"),
    ("h264-full.mp4", "160x96", "-c:v libx264 -preset veryfast -g 20 -pix_fmt yuvj420p"),
    (
        "hevc.mp4",
        "160x96",
        "-c:v libx265 -preset ultrafast -x265-params log-level=none:bframes=4:keyint=20 -tag:v hvc1",
    ),
    (
        "hevc-open.mkv",
        "160x96",
        "-c:v libx265 -preset ultrafast -x265-params log-level=none:bframes=4:keyint=15:open-gop=1:scenecut=0",
    ),
    (
        "hevc-10.mp4",
        "162x98",
        "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=20 -pix_fmt yuv422p10le",
    ),
    (
        "hevc-12.mkv",
        "160x96",
        "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=20 -pix_fmt yuv444p12le",
    ),
    (
        "hevc-grey.mkv",
        "160x96",
        "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=20 -pix_fmt gray12le",
    ),
    ("hevc-rgb.mkv", "160x96", "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=20 -pix_fmt gbrp"),
    (
        "vp8.webm",
        "175x97",
        "-c:v libvpx -deadline realtime -cpu-used 8 -g 20 -auto-alt-ref 1 -lag-in-frames 16 -b:v 200k",
    ),
    (
        "vp9.webm",
        "175x97",
        "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 20 -auto-alt-ref 1 -lag-in-frames 16 -b:v 200k",
    ),
    ("vp9-10.webm", "160x96", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 20 -pix_fmt yuv420p10le"),
    ("vp9-440.webm", "160x96", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 20 -pix_fmt yuv440p"),
    ("av1.mp4", "175x97", "-c:v libaom-av1 -cpu-used 8 -usage realtime -g 20 -b:v 200k"),
    ("av1-svt.mp4", "176x96", "-c:v libsvtav1 -preset 12 -g 20"),
    ("av1-10.mkv", "176x96", "-c:v libsvtav1 -preset 12 -g 2 -pix_fmt yuv420p10le"),
    ("mpeg4.mp4", "175x97", "-c:v mpeg4 -bf 2 -g 20 -q:v 6"),
    ("mpeg2.mkv", "176x96", "-c:v mpeg2video -bf 2 -g 12 -q:v 6"),
    ("mpeg2-422.mkv", "176x96", "-c:v mpeg2video -bf 2 -g 12 -q:v 6 -pix_fmt yuv422p"),
    ("mpeg1.mkv", "176x96", "-c:v mpeg1video -bf 2 -g 12 -q:v 6"),
    ("mjpeg.mov", "175x97", "-c:v mjpeg -q:v 6 -pix_fmt yuvj422p"),
];

#[test]
fn frames_are_those_of_ffmpeg_to_the_bit() {
    let test = "frames of ffmpeg";
    let (Some(ffmpeg), Some(decoders)) = (videos::ffmpeg(test), decoders(test)) else { return };
    let folder = TempDir::new().unwrap();
    let mut differing = Vec::new();
    for (name, size, arguments) in CASES {
        let pictures = format!("-f lavfi -i testsrc2=size={size}:rate=25:duration=2");
        let video = TestVideo::make(&ffmpeg, &folder, name, &format!("{pictures} {arguments}"));
        if std::panic::catch_unwind(AssertUnwindSafe(|| check(&decoders, &video))).is_err() {
            differing.push(name);
        }
    }
    assert!(differing.is_empty(), "{differing:?} differ");
}

/// Decodes a video as a whole, each frame alone, and some frames in one request.
fn check(decoders: &spdl_frames::FrameDecoders, video: &TestVideo) {
    let decode = |frames: &[u64]| {
        let found = video.decode(decoders, frames).unwrap_or_else(|error| panic!("{} {frames:?}: {error}", video.name));
        video.check(frames, &found);
    };
    let all = video.times.len() as u64;
    eprintln!("{}: {all} frames", video.name);
    decode(&(0..all).collect::<Vec<_>>());
    (0..all).for_each(|nth| decode(&[nth]));
    decode(&(0..all).step_by(7).collect::<Vec<_>>());
    decode(&[all / 3, all - 1]);
    decode(&[0, 1, all - 2]);
}
