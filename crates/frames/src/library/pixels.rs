//! The formats of pixels, by the names that libavutil has for them.

use crate::{PlaneFormat, PlaneKind};

/// How pixels lie in a frame of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PixelLayout {
    pub(super) format: PlaneFormat,
    /// Which plane of the library is which of ours.
    pub(super) planes: [usize; 3],
    /// Whether both differences of colour lie in one plane, by turns.
    pub(super) is_interleaved: bool,
    /// Whether the format itself says that numbers take their full range.
    pub(super) is_full_range: bool,
}

/// Returns the layout of a format; `None` if it is not supported.
pub(super) fn named(name: &str) -> Option<PixelLayout> {
    let (name, bits) = match name.strip_suffix("le") {
        Some(name) => {
            let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
            // `yuv420p10`, `gbrp12` and `gray10`.
            (&name[..digits], name[digits..].parse().ok().filter(|bits| (9..=16).contains(bits))?)
        }
        None => (name, 8),
    };
    let (is_full_range, name) = match name.strip_prefix("yuvj") {
        Some(rest) if bits == 8 => (true, rest),
        _ => (false, name.strip_prefix("yuv").unwrap_or(name)),
    };
    let (kind, planes) = match name {
        "gray" => (PlaneKind::Grey, [0, 1, 2]),
        "gbrp" => (PlaneKind::Rgb, [2, 0, 1]),
        "nv12" if bits == 8 => (PlaneKind::Yuv { shift: [1, 1] }, [0, 1, 1]),
        "420p" => (PlaneKind::Yuv { shift: [1, 1] }, [0, 1, 2]),
        "422p" => (PlaneKind::Yuv { shift: [1, 0] }, [0, 1, 2]),
        "444p" => (PlaneKind::Yuv { shift: [0, 0] }, [0, 1, 2]),
        "440p" => (PlaneKind::Yuv { shift: [0, 1] }, [0, 1, 2]),
        "411p" => (PlaneKind::Yuv { shift: [2, 0] }, [0, 1, 2]),
        "410p" => (PlaneKind::Yuv { shift: [2, 2] }, [0, 1, 2]),
        _ => return None,
    };
    let format = PlaneFormat { kind, bits };
    Some(PixelLayout { format, planes, is_interleaved: name == "nv12", is_full_range })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_planes_and_bits() {
        let yuv = |shift, bits| Some(PlaneFormat { kind: PlaneKind::Yuv { shift }, bits });
        for (name, expected) in [
            ("yuv420p", yuv([1, 1], 8)),
            ("yuvj420p", yuv([1, 1], 8)),
            ("yuv420p10le", yuv([1, 1], 10)),
            ("yuv422p12le", yuv([1, 0], 12)),
            ("yuv444p", yuv([0, 0], 8)),
            ("yuv440p", yuv([0, 1], 8)),
            ("nv12", yuv([1, 1], 8)),
            ("gray", Some(PlaneFormat { kind: PlaneKind::Grey, bits: 8 })),
            ("gray12le", Some(PlaneFormat { kind: PlaneKind::Grey, bits: 12 })),
            ("gbrp10le", Some(PlaneFormat { kind: PlaneKind::Rgb, bits: 10 })),
            ("yuv420p10be", None),
            ("yuv420ple", None),
            ("yuv420p17le", None),
            ("yuva420p", None),
            ("pal8", None),
            ("rgb24", None),
            ("none", None),
            ("", None),
        ] {
            assert_eq!(named(name).map(|layout| layout.format), expected, "{name}");
        }
        assert!(named("yuvj422p").unwrap().is_full_range && !named("yuv422p").unwrap().is_full_range);
    }
}
