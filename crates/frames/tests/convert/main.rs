//! Planes of all formats become the pixels that `ffmpeg` makes of them, within one level.

#[path = "../../../media/tests/programs/mod.rs"]
mod programs;

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use programs::{program, skipped};
use spdl_frames::{FramePlanes, Plane, PlaneFormat, PlaneKind, RgbConversion};
use spdl_media::VideoColor;
use spdl_types::Draw;

/// Numbers of colour are repeated, and sums are exact.
const FLAGS: &str = "neighbor+accurate_rnd+full_chroma_int+bitexact";
/// Of the frame that `ffmpeg` converts. Both sides are even, because it stretches the planes of colour of others.
const SIZE: [u32; 2] = [182, 34];
/// Of the frames that are converted here, whose planes are parts of its planes.
const SIZES: [[u32; 2]; 3] = [SIZE, [181, 33], [1, 1]];
/// The names of matrices, and their numbers.
const MATRICES: [(&str, u16); 5] = [("bt709", 1), ("fcc", 4), ("bt601", 6), ("smpte240m", 7), ("bt2020", 9)];

/// The names of formats, and what they are.
fn formats() -> Vec<(String, PlaneFormat)> {
    let yuv = |x, y| PlaneKind::Yuv { shift: [x, y] };
    let mut formats = Vec::new();
    for bits in [8, 9, 10, 12, 14, 16] {
        for (name, kind) in [
            ("gray", PlaneKind::Grey),
            ("gbrp", PlaneKind::Rgb),
            ("yuv420p", yuv(1, 1)),
            ("yuv422p", yuv(1, 0)),
            ("yuv440p", yuv(0, 1)),
            ("yuv444p", yuv(0, 0)),
        ] {
            let name = if bits == 8 { name.to_owned() } else { format!("{name}{bits}le") };
            // `ffmpeg` has no such formats.
            if name != "yuv440p9le" && name != "yuv440p14le" && name != "yuv440p16le" {
                formats.push((name, PlaneFormat { kind, bits }));
            }
        }
    }
    formats
}

#[test]
fn pixels_are_those_of_ffmpeg() {
    let Some(ffmpeg) = program("ffmpeg") else {
        return skipped("planes of ffmpeg", "there is no `ffmpeg`: install the package `ffmpeg`");
    };
    let mut draw = Draw::new(3, 0, 0);
    for (name, format) in formats() {
        check(&ffmpeg, &name, format, &drawn_planes(format, &mut draw));
    }
}

/// Compares the pixels of all matrices and ranges.
fn check(ffmpeg: &Path, name: &str, format: PlaneFormat, planes: &[Vec<u8>; 3]) {
    let of_range = |(range, is_full_range)| MATRICES.map(|matrix| (matrix, range, is_full_range));
    let cases = [("tv", false), ("pc", true)].map(of_range).concat();
    // One run of `ffmpeg` makes all of them, one below the other.
    let named = |what: &str| -> String { (0..cases.len()).map(|nth| format!("[{what}{nth}]")).collect() };
    let mut filter = format!("split={}{}", cases.len(), named("in"));
    for (nth, ((matrix, _), range, _)) in cases.iter().enumerate() {
        let scale = format!("scale=in_color_matrix={matrix}:in_range={range}:flags={FLAGS}");
        filter += &format!(";[in{nth}]{scale},format=rgb24[out{nth}]");
    }
    filter += &format!(";{}vstack=inputs={}", named("out"), cases.len());
    // Green is the first plane there.
    let order = if format.kind == PlaneKind::Rgb { [1, 2, 0] } else { [0, 1, 2] };
    let input = order.map(|plane| planes[plane].as_slice()).concat();
    let theirs = rgb_of_ffmpeg(ffmpeg, name, &filter, input);
    let frame_bytes = SIZE[0] as usize * SIZE[1] as usize * 3;
    assert_eq!(theirs.len(), frame_bytes * cases.len(), "{name}");
    for (((matrix_name, matrix), range, is_full_range), theirs) in cases.into_iter().zip(theirs.chunks(frame_bytes)) {
        let color = VideoColor { matrix, is_full_range: Some(is_full_range), ..VideoColor::default() };
        for size in SIZES {
            let plane = |plane: usize| Plane { bytes: &planes[plane], stride: row_bytes(format, plane) };
            let frame = FramePlanes { size, format, color, planes: [0, 1, 2].map(plane) };
            let mut ours = vec![0; size[0] as usize * size[1] as usize * 3];
            let conversion = RgbConversion::new(format, size, &color).unwrap();
            conversion.convert(&frame, [0, 0, size[0], size[1]], &mut ours).unwrap();
            let rows = theirs.chunks(SIZE[0] as usize * 3).flat_map(|row| &row[..size[0] as usize * 3]);
            let far = ours.iter().zip(rows).map(|(ours, theirs)| ours.abs_diff(*theirs)).max();
            assert!(far <= Some(1), "{name} {matrix_name} {range} {size:?}: levels are {far:?} apart");
        }
    }
}

/// Returns planes of numbers, in the order of this crate. They keep a distance of a sixteenth from the ends of their range: where a sum is
/// twice white, swscale makes black of it.
fn drawn_planes(format: PlaneFormat, draw: &mut Draw) -> [Vec<u8>; 3] {
    let full = u16::MAX >> (16 - format.bits);
    [0, 1, 2].map(|plane| {
        let rows = match format.kind {
            PlaneKind::Grey if plane > 0 => 0,
            PlaneKind::Yuv { shift: [_, y] } if plane > 0 => SIZE[1] >> y,
            _ => SIZE[1],
        };
        let bytes = row_bytes(format, plane) * rows as usize;
        let (low, high) = (u32::from(full / 16), u32::from(full / 16 * 15));
        let number = |draw: &mut Draw| (low + draw.below(high - low + 1)).to_le_bytes();
        if format.bits == 8 {
            (0..bytes).map(|_| number(draw)[0]).collect()
        } else {
            (0..bytes / 2).flat_map(|_| number(draw)[..2].to_vec()).collect()
        }
    })
}

fn row_bytes(format: PlaneFormat, plane: usize) -> usize {
    let width = match format.kind {
        PlaneKind::Yuv { shift: [x, _] } if plane > 0 => SIZE[0] >> x,
        _ => SIZE[0],
    };
    width as usize * if format.bits == 8 { 1 } else { 2 }
}

fn rgb_of_ffmpeg(ffmpeg: &Path, format: &str, filter: &str, planes: Vec<u8>) -> Vec<u8> {
    let size = format!("{}x{}", SIZE[0], SIZE[1]);
    let command = &mut Command::new(ffmpeg);
    command.args(["-nostdin", "-v", "error", "-f", "rawvideo", "-pix_fmt", format, "-s", &size, "-i", "-"]);
    command.args(["-filter_complex", filter, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = thread::spawn(move || stdin.write_all(&planes));
    let output = child.wait_with_output().unwrap();
    assert!(writer.join().unwrap().is_ok() && output.status.success(), "{command:?}");
    output.stdout
}
