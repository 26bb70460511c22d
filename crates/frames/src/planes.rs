use spdl_media::VideoColor;

/// A decoded frame: the numbers of its pixels in planes, as the decoder has written them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePlanes<'b> {
    /// Width and height in pixels.
    pub size: [u32; 2],
    /// How its pixels lie in the planes.
    pub format: PlaneFormat,
    /// What the numbers mean, as the packets say it. What they leave open, the track may say.
    pub color: VideoColor,
    /// The planes: luma, blue difference (Cb) and red difference (Cr); of [`PlaneKind::Rgb`], red, green and blue. Those that
    /// the format does not have are empty.
    pub planes: [Plane<'b>; 3],
}

/// How the pixels of a frame lie in its planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneFormat {
    /// What the planes are.
    pub kind: PlaneKind,
    /// Bits of a number, 8 to 16. Numbers of more than 8 bits take two bytes each, the lower one first.
    pub bits: u8,
}

/// What the planes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneKind {
    /// Luma alone.
    Grey,
    /// Luma, and colour by two differences. A number of colour is for `1 << shift` pixels: in a row, and of a column. So 4:2:0 is
    /// `[1, 1]`, 4:2:2 `[1, 0]`, and 4:4:4 `[0, 0]`. A plane of colour is rounded up to whole numbers.
    Yuv {
        /// How many bits less the width and the height of a plane of colour have.
        shift: [u8; 2],
    },
    /// Red, green and blue.
    Rgb,
}

/// The numbers of one plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plane<'b> {
    /// Its rows from above to below.
    pub bytes: &'b [u8],
    /// Bytes from the beginning of a row to that of the next one.
    pub stride: usize,
}

/// A frame whose numbers are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFrame {
    size: [u32; 2],
    format: PlaneFormat,
    color: VideoColor,
    /// The planes, one after the other.
    bytes: Box<[u8]>,
    /// The bytes of each plane, and those of its rows.
    planes: [(usize, usize); 3],
}

impl KeptFrame {
    /// Copies a frame.
    #[must_use]
    pub fn new(frame: &FramePlanes<'_>) -> Self {
        let bytes = frame.planes.map(|plane| plane.bytes).concat().into();
        let planes = frame.planes.map(|plane| (plane.bytes.len(), plane.stride));
        Self { size: frame.size, format: frame.format, color: frame.color, bytes, planes }
    }

    /// Returns how many bytes it takes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes.len() as u64 + size_of::<Self>() as u64
    }

    /// Returns the frame.
    #[must_use]
    pub fn planes(&self) -> FramePlanes<'_> {
        let mut rest = &self.bytes[..];
        let planes = self.planes.map(|(bytes, stride)| {
            let plane;
            (plane, rest) = rest.split_at(bytes);
            Plane { bytes: plane, stride }
        });
        FramePlanes { size: self.size, format: self.format, color: self.color, planes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_kept_is_the_one_that_was_copied() {
        let numbers: Vec<u8> = (0..60).collect();
        let plane = |range: std::ops::Range<usize>, stride| Plane { bytes: &numbers[range], stride };
        for (kind, planes) in [
            (PlaneKind::Yuv { shift: [1, 1] }, [plane(0..24, 8), plane(30..36, 3), plane(40..46, 3)]),
            (PlaneKind::Grey, [plane(5..25, 5), Plane::default(), Plane::default()]),
        ] {
            let (size, format) = ([6, 3], PlaneFormat { kind, bits: 8 });
            let frame = FramePlanes { size, format, color: VideoColor { matrix: 9, ..VideoColor::default() }, planes };
            let kept = KeptFrame::new(&frame);
            assert_eq!(kept.planes(), frame);
            assert!(kept.bytes() >= planes.iter().map(|plane| plane.bytes.len() as u64).sum());
        }
    }
}
