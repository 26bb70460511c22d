//! The planes of a frame in memory without gaps: how many bytes they take, and where each begins.

use crate::{Plane, PlaneFormat, PlaneKind};

/// The largest width and height of a frame.
const MAX_SIDE: u32 = 1 << 16;

/// The format and the size of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameShape {
    format: PlaneFormat,
    size: [u32; 2],
}

impl FrameShape {
    /// Returns the shape, if there can be such frames.
    pub(crate) fn new(format: PlaneFormat, size: [u32; 2]) -> Option<Self> {
        let is_kind = match format.kind {
            PlaneKind::Grey | PlaneKind::Rgb => true,
            PlaneKind::Yuv { shift } => shift.iter().all(|shift| *shift <= 2),
        };
        let is_size = size.iter().all(|side| (1..=MAX_SIDE).contains(side));
        (is_kind && is_size && (8..=16).contains(&format.bits)).then_some(Self { format, size })
    }

    pub(crate) const fn format(&self) -> PlaneFormat {
        self.format
    }

    pub(crate) const fn size(&self) -> [u32; 2] {
        self.size
    }

    /// Returns the number of pixels.
    pub(crate) fn pixels(&self) -> u64 {
        u64::from(self.size[0]) * u64::from(self.size[1])
    }

    /// Returns the number of planes.
    pub(crate) const fn planes(&self) -> usize {
        match self.format.kind {
            PlaneKind::Grey => 1,
            PlaneKind::Yuv { .. } | PlaneKind::Rgb => 3,
        }
    }

    /// Returns the bytes of a row of a plane, and the number of rows.
    pub(crate) fn plane(&self, plane: usize) -> (usize, usize) {
        let shift = match self.format.kind {
            PlaneKind::Yuv { shift } if plane > 0 => shift,
            _ => [0, 0],
        };
        let [width, rows] = [0, 1].map(|side| (self.size[side] as usize).div_ceil(1 << shift[side]));
        (width * usize::from(self.format.bits.div_ceil(8)), rows)
    }

    /// Returns the bytes of all planes: at most six for each pixel.
    pub(crate) fn bytes(&self) -> usize {
        (0..self.planes()).map(|plane| self.plane(plane)).map(|(row_bytes, rows)| row_bytes * rows).sum()
    }

    /// Returns the planes in [`FrameShape::bytes`] bytes.
    pub(crate) fn split<'b>(&self, mut bytes: &'b [u8]) -> [Plane<'b>; 3] {
        let mut planes = [Plane::default(); 3];
        for (nth, plane) in planes.iter_mut().enumerate().take(self.planes()) {
            let (stride, rows) = self.plane(nth);
            let (taken, rest) = bytes.split_at(stride * rows);
            (*plane, bytes) = (Plane { bytes: taken, stride }, rest);
        }
        planes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_follow_each_other_and_those_of_colour_are_rounded_up() {
        let yuv = |shift, bits| PlaneFormat { kind: PlaneKind::Yuv { shift }, bits };
        for (format, size, expected) in [
            (yuv([1, 1], 8), [5, 3], vec![(5, 15), (3, 6), (3, 6)]),
            (yuv([1, 0], 10), [5, 3], vec![(10, 30), (6, 18), (6, 18)]),
            (yuv([2, 2], 8), [1, 1], vec![(1, 1), (1, 1), (1, 1)]),
            (PlaneFormat { kind: PlaneKind::Rgb, bits: 8 }, [2, 2], vec![(2, 4), (2, 4), (2, 4)]),
            (PlaneFormat { kind: PlaneKind::Grey, bits: 16 }, [3, 2], vec![(6, 12), (0, 0), (0, 0)]),
        ] {
            let shape = FrameShape::new(format, size).unwrap();
            let bytes: Vec<u8> = (0..).take(shape.bytes()).collect();
            let planes = shape.split(&bytes);
            let found: Vec<_> = planes.iter().map(|plane| (plane.stride, plane.bytes.len())).collect();
            assert_eq!(found, expected, "{format:?}");
            assert_eq!(planes.iter().flat_map(|plane| plane.bytes).copied().collect::<Vec<u8>>(), bytes);
            assert!(shape.bytes() as u64 <= 6 * shape.pixels());
        }
    }

    #[test]
    fn frames_that_cannot_be_are_none() {
        let grey = |bits| PlaneFormat { kind: PlaneKind::Grey, bits };
        let far = PlaneFormat { kind: PlaneKind::Yuv { shift: [3, 0] }, bits: 8 };
        for (format, size) in
            [(grey(8), [0, 1]), (grey(8), [1, MAX_SIDE + 1]), (grey(7), [1, 1]), (grey(17), [1, 1]), (far, [1, 1])]
        {
            assert_eq!(FrameShape::new(format, size), None, "{format:?} {size:?}");
        }
    }
}
