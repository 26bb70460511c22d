use spdl_types::Draw;

use super::*;

/// Formats of all kinds.
fn formats() -> Vec<PlaneFormat> {
    let yuv = |x, y| PlaneKind::Yuv { shift: [x, y] };
    let kinds = [PlaneKind::Grey, PlaneKind::Rgb, yuv(0, 0), yuv(1, 0), yuv(0, 1), yuv(1, 1)];
    let of_bits = |bits| kinds.map(|kind| PlaneFormat { kind, bits });
    [8, 9, 10, 12, 16].into_iter().flat_map(of_bits).collect()
}

fn color(matrix: u16, is_full_range: Option<bool>) -> VideoColor {
    VideoColor { matrix, is_full_range, ..VideoColor::default() }
}

/// A frame of its own planes, whose rows have gaps.
struct OwnFrame {
    size: [u32; 2],
    format: PlaneFormat,
    planes: [Vec<u8>; 3],
    strides: [usize; 3],
}

impl OwnFrame {
    /// Makes a frame of any numbers that its bits can have. Black, white and grey are more frequent than chance has them.
    fn drawn(format: PlaneFormat, size: [u32; 2], draw: &mut Draw) -> Self {
        let mut frame = Self { size, format, planes: Default::default(), strides: [0; 3] };
        let full = u16::MAX >> (16 - format.bits);
        for (plane, gap) in [0, 5, 3].into_iter().enumerate() {
            let [width, height] = frame.plane_size(plane);
            for row in 0..height {
                let bytes = &mut frame.planes[plane];
                bytes.resize(row * frame.strides[plane], 9);
                for _ in 0..width {
                    let drawn = [0, full, full / 2 + 1, draw.bits() as u16 & full][draw.below(8).min(3) as usize];
                    bytes.extend_from_slice(&drawn.to_le_bytes()[..if format.bits == 8 { 1 } else { 2 }]);
                }
                if row == 0 {
                    frame.strides[plane] = bytes.len() + gap;
                }
            }
        }
        frame
    }

    fn plane_size(&self, plane: usize) -> [usize; 2] {
        let shift = self.shift(plane);
        [0, 1].map(|axis| (self.size[axis] as usize).div_ceil(1 << shift[axis]))
    }

    fn shift(&self, plane: usize) -> [u8; 2] {
        match self.format.kind {
            PlaneKind::Yuv { shift } if plane > 0 => shift,
            _ => [0, 0],
        }
    }

    fn planes(&self) -> FramePlanes<'_> {
        let plane = |plane: usize| Plane { bytes: &self.planes[plane], stride: self.strides[plane] };
        let planes = [0, 1, 2].map(plane);
        FramePlanes { size: self.size, format: self.format, color: VideoColor::default(), planes }
    }

    /// Returns the number of a plane for a pixel, as a share of 256 levels.
    fn number(&self, plane: usize, [x, y]: [usize; 2]) -> f64 {
        let [x_shift, y_shift] = self.shift(plane);
        let row = &self.planes[plane][(y >> y_shift) * self.strides[plane]..];
        if self.format.bits == 8 {
            return row[x >> x_shift].into();
        }
        let at = (x >> x_shift) * 2;
        f64::from(u16::from_le_bytes([row[at], row[at + 1]])) / f64::from(1_u32 << (self.format.bits - 8))
    }

    /// Returns a pixel by the definition of its matrix, with fractions of a level.
    fn pixel(&self, matrix: u16, range: Option<bool>, at: [usize; 2]) -> [f64; 3] {
        let is_grey = self.format.kind == PlaneKind::Grey;
        let is_full_range = range.unwrap_or(is_grey) || is_grey && self.format.bits == 8;
        let full = |plane: usize| self.number(plane, at).min(255.0);
        let [red, blue] = match matrix {
            _ if is_grey && is_full_range => return [full(0); 3],
            _ if is_grey => return [((self.number(0, at) - 16.0) / 219.0 * 255.0).clamp(0.0, 255.0); 3],
            _ if self.format.kind == PlaneKind::Rgb => return [full(0), full(1), full(2)],
            0 => return [full(2), full(0), full(1)],
            1 => [0.2126, 0.0722],
            4 => [0.30, 0.11],
            5 | 6 => [0.299, 0.114],
            7 => [0.212, 0.087],
            9 => [0.2627, 0.0593],
            _ => panic!("{matrix}"),
        };
        let [low, luma_range, difference_range] =
            if is_full_range { [0.0, 255.0, 255.0] } else { [16.0, 219.0, 224.0] };
        let luma = (self.number(0, at) - low) / luma_range;
        let [cb, cr] = [1, 2].map(|plane| (self.number(plane, at) - 128.0) / difference_range);
        let [r, b] = [luma + 2.0 * (1.0 - red) * cr, luma + 2.0 * (1.0 - blue) * cb];
        let g = (luma - red * r - blue * b) / (1.0 - red - blue);
        [r, g, b].map(|channel| (channel * 255.0).clamp(0.0, 255.0))
    }
}

fn converted(conversion: &RgbConversion, frame: &OwnFrame, region: [u32; 4]) -> Vec<u8> {
    let mut out = vec![7; region[2] as usize * region[3] as usize * 3];
    conversion.convert(&frame.planes(), region, &mut out).unwrap();
    out
}

#[test]
fn pixels_are_those_of_the_definition() {
    let mut draw = Draw::new(5, 0, 0);
    for format in formats() {
        for matrix in [0, 1, 4, 5, 6, 7, 9] {
            for range in [None, Some(false), Some(true)] {
                let is_rgb_as_yuv = matrix == 0 && matches!(format.kind, PlaneKind::Yuv { shift } if shift != [0, 0]);
                if is_rgb_as_yuv {
                    continue;
                }
                let size = [201, 3];
                let frame = OwnFrame::drawn(format, size, &mut draw);
                let conversion = RgbConversion::new(format, size, &color(matrix, range)).unwrap();
                let rgb = converted(&conversion, &frame, [0, 0, 201, 3]);
                for (at, pixel) in rgb.as_chunks::<3>().0.iter().enumerate() {
                    let expected = frame.pixel(matrix, range, [at % 201, at / 201]);
                    let distance = |channel: usize| (f64::from(pixel[channel]) - expected[channel]).abs();
                    let far = (0..3).map(distance).fold(0.0, f64::max);
                    assert!(far < 0.6, "{format:?} {matrix} {range:?} {at}: {pixel:?} {expected:?}");
                }
            }
        }
    }
}

#[test]
fn a_region_is_a_part_of_the_whole() {
    let mut draw = Draw::new(6, 0, 0);
    for format in formats() {
        for _ in 0..40 {
            let size = [1 + draw.below(300), 1 + draw.below(7)];
            let frame = OwnFrame::drawn(format, size, &mut draw);
            let conversion = RgbConversion::new(format, size, &color(1, None)).unwrap();
            let whole = converted(&conversion, &frame, [0, 0, size[0], size[1]]);
            let [x, y] = size.map(|side| draw.below(side));
            let [width, height] = [draw.below(size[0] - x + 1), draw.below(size[1] - y + 1)];
            let part = converted(&conversion, &frame, [x, y, width, height]);
            let row = |at: u32| ((y + at) as usize * size[0] as usize + x as usize) * 3;
            let expected: Vec<u8> =
                (0..height).flat_map(|at| &whole[row(at)..][..width as usize * 3]).copied().collect();
            assert!(part == expected, "{format:?} {size:?} {x} {y} {width} {height}");
        }
    }
}

#[test]
fn all_kinds_of_vectors_give_the_same_bits() {
    let mut draw = Draw::new(7, 0, 0);
    for format in formats() {
        let size = [333, 1];
        let frame = OwnFrame::drawn(format, size, &mut draw);
        let conversion = RgbConversion::new(format, size, &color(9, None)).unwrap();
        let planes = frame.planes();
        let rows = conversion.rows(&planes).unwrap();
        for x in [0, 1, 2] {
            let (mut best, mut baseline) = (vec![0; (333 - x) * 3], vec![1; (333 - x) * 3]);
            dispatch!(Level::new(), simd => rows.write_with(simd, [x, 0], &mut best));
            dispatch!(Level::baseline(), simd => rows.write_with(simd, [x, 0], &mut baseline));
            assert!(best == baseline, "{format:?} from {x}");
        }
    }
}

#[test]
fn grey_stays_grey_and_full_bytes_stay_as_they_are() {
    for bits in [8, 10, 16] {
        for matrix in [1, 4, 5, 6, 7, 9] {
            for range in [false, true] {
                let format = PlaneFormat { kind: PlaneKind::Yuv { shift: [0, 0] }, bits };
                let numbers = 0..=u16::MAX >> (16 - bits);
                let size = [1 << bits, 1];
                let encode = |number: u16| if bits == 8 { vec![number as u8] } else { number.to_le_bytes().to_vec() };
                let grey = encode(1 << (bits - 1)).repeat(size[0] as usize);
                let planes = [numbers.flat_map(encode).collect(), grey.clone(), grey];
                let frame = OwnFrame { size, format, strides: [planes[0].len(); 3], planes };
                let conversion = RgbConversion::new(format, size, &color(matrix, Some(range))).unwrap();
                let rgb = converted(&conversion, &frame, [0, 0, size[0], 1]);
                let pixels = rgb.as_chunks::<3>().0;
                assert!(pixels.iter().all(|[r, g, b]| r == g && g == b), "{bits} {matrix} {range}");
                if range && bits == 8 {
                    assert!(pixels.iter().enumerate().all(|(at, [r, ..])| usize::from(*r) == at), "{matrix}");
                }
                if !range {
                    let [black, white] = [16, 235].map(|level| pixels[level << (bits - 8)][0]);
                    assert_eq!([black, white], [0, 255], "{bits} {matrix}");
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_converted_is_named() {
    let yuv = |x, y, bits| PlaneFormat { kind: PlaneKind::Yuv { shift: [x, y] }, bits };
    let problem = |format, matrix| RgbConversion::new(format, [8, 8], &color(matrix, None)).unwrap_err();
    for matrix in [2, 3] {
        assert_eq!(problem(yuv(1, 1, 8), matrix), ConvertProblem::OpenMatrix);
    }
    for matrix in [0, 8, 11, 14, 999] {
        assert_eq!(problem(yuv(1, 1, 8), matrix), ConvertProblem::UnknownMatrix { matrix });
    }
    for format in [yuv(2, 0, 8), yuv(1, 2, 8), yuv(255, 255, 8), yuv(1, 1, 7), yuv(1, 1, 17), yuv(1, 1, 0)] {
        assert_eq!(problem(format, 1), ConvertProblem::Format { format });
    }
}

#[test]
fn frames_that_are_too_short_or_of_another_kind_are_refused() {
    let format = PlaneFormat { kind: PlaneKind::Yuv { shift: [1, 1] }, bits: 10 };
    let size = [7, 5];
    let frame = OwnFrame::drawn(format, size, &mut Draw::new(8, 0, 0));
    let conversion = RgbConversion::new(format, size, &color(1, None)).unwrap();
    let check = |change: &dyn Fn(&mut FramePlanes<'_>)| {
        let mut planes = frame.planes();
        change(&mut planes);
        conversion.convert(&planes, [0, 0, 1, 1], &mut [0; 3])
    };
    assert_eq!(check(&|_| ()), Ok(()));
    for plane in 0..3 {
        let shorter = check(&|planes| planes.planes[plane].bytes = planes.planes[plane].bytes.split_last().unwrap().1);
        assert!(matches!(shorter, Err(ConvertProblem::Plane { number, .. }) if number == plane), "{shorter:?}");
        for stride in [0, 1, usize::MAX] {
            let other = check(&|planes| planes.planes[plane].stride = stride);
            assert!(matches!(other, Err(ConvertProblem::Plane { number, .. }) if number == plane), "{other:?}");
        }
    }
    for other in [check(&|planes| planes.size = [5, 7]), check(&|planes| planes.format.bits = 12)] {
        assert!(matches!(other, Err(ConvertProblem::Frame { .. })), "{other:?}");
    }
}

#[test]
fn any_planes_are_converted_or_refused() {
    let mut draw = Draw::new(10, 0, 0);
    let bytes: Vec<u8> = (0..4000).map(|at| (at * 37) as u8).collect();
    let mut refused = 0;
    for format in formats().into_iter().cycle().take(20_000) {
        let mut side = || if draw.below(20) == 0 { u32::MAX } else { draw.below(40) };
        let size = [side(), side()];
        let conversion = RgbConversion::new(format, size, &color(1, None)).unwrap();
        let planes = [0; 3].map(|_: u32| {
            let stride = match draw.below(12) {
                0 => 0,
                1 => usize::MAX,
                2 | 3 => draw.below(100) as usize,
                _ => 2 * size[0] as usize,
            };
            Plane { bytes: &bytes[..draw.below(4000) as usize], stride }
        });
        let frame = FramePlanes { size, format, color: VideoColor::default(), planes };
        match conversion.rows(&frame) {
            Ok(rows) => {
                let mut row = vec![0; size[0] as usize * 3];
                (0..size[1].min(100)).for_each(|y| rows.write(y, 0, &mut row));
            }
            Err(ConvertProblem::Plane { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!((1000..19_000).contains(&refused), "{refused}");
}

#[test]
#[should_panic(expected = "columns 3..8 of row 0 of 7x5")]
fn a_region_beyond_the_frame_is_refused() {
    let format = PlaneFormat { kind: PlaneKind::Grey, bits: 8 };
    let frame = OwnFrame::drawn(format, [7, 5], &mut Draw::new(9, 0, 0));
    let conversion = RgbConversion::new(format, [7, 5], &color(1, None)).unwrap();
    converted(&conversion, &frame, [3, 0, 5, 1]);
}
