//! Every frame is that of `ffmpeg`, to the bit, however few packets it is decoded of.

use tempfile::TempDir;

use super::{decoders, videos};
use videos::TestVideo;

/// Names of files, and the arguments that make them, behind those of the pictures.
const CASES: [(&str, &str); 2] = [
    ("h264.mp4", "-c:v libx264 -preset veryfast -bf 3 -g 20 -pix_fmt yuv420p"),
    (
        "h264-open.mp4",
        "-c:v libx264 -preset veryfast -x264-params open-gop=1:keyint=15:bframes=3:b-pyramid=normal:scenecut=0 -pix_fmt yuv420p",
    ),
];

#[test]
fn frames_are_those_of_ffmpeg_to_the_bit() {
    let test = "frames of ffmpeg";
    let (Some(ffmpeg), Some(decoders)) = (videos::ffmpeg(test), decoders(test)) else { return };
    let folder = TempDir::new().unwrap();
    for (name, arguments) in CASES {
        let pictures = "-f lavfi -i testsrc2=size=160x96:rate=25:duration=3";
        let video = TestVideo::make(&ffmpeg, &folder, name, &format!("{pictures} {arguments}"));
        check(&decoders, &video);
    }
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
