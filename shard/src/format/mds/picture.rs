//! PIL pictures as MDS stores them: sizes, mode and pixels. Grey, RGB and their forms with alpha become files of the
//! Netpbm formats, which every decoder of pictures reads; all other modes become arrays.

use bytes::Bytes;
use spdl_types::DType;

use crate::format::{Array, Content};

/// Bytes of width, height and the length of the mode's name.
const HEAD_BYTES: usize = 12;

/// Returns the picture in `value` as a file.
pub(super) fn picture(value: &Bytes) -> Result<Content, String> {
    let cut_off = || format!("is a picture that is cut off after {} bytes", value.len());
    let (head, rest) = value[..].split_at_checked(HEAD_BYTES).ok_or_else(cut_off)?;
    let [width, height, mode_bytes] =
        [0, 4, 8].map(|at| u32::from_le_bytes(*head[at..].first_chunk().expect("12 bytes")));
    let (mode, pixels) = rest.split_at_checked(mode_bytes as usize).ok_or_else(cut_off)?;
    let Some(layout) = ModeLayout::of(mode) else {
        let mode = mode[..mode.len().min(16)].escape_ascii();
        return Err(format!("is a picture of PIL's mode `{mode}`, which is not read"));
    };
    let row_bytes = match layout {
        ModeLayout::Bits => u64::from(width).div_ceil(8),
        ModeLayout::Netpbm { pixel_bytes, .. } => u64::from(width) * pixel_bytes,
        ModeLayout::Array { element, channels } => u64::from(width) * channels * element.bytes() as u64,
    };
    if row_bytes.checked_mul(height.into()) != Some(pixels.len() as u64) {
        let wanted = usize::try_from(row_bytes.saturating_mul(height.into())).unwrap_or(usize::MAX);
        return Err(other_size(pixels, wanted, &format!("a picture of {width}x{height}")));
    }
    let file: Vec<u8> = match layout {
        // In PIL a bit that is set is white, in a bitmap it is black.
        ModeLayout::Bits => {
            let bits = pixels.iter().map(|byte| !byte);
            format!("P4\n{width} {height}\n").into_bytes().into_iter().chain(bits).collect()
        }
        ModeLayout::Netpbm { magic: "P7", pixel_bytes, alpha, .. } => {
            let head = format!(
                "P7\nWIDTH {width}\nHEIGHT {height}\nDEPTH {pixel_bytes}\nMAXVAL 255\nTUPLTYPE {alpha}\nENDHDR\n"
            );
            [head.as_bytes(), pixels].concat()
        }
        ModeLayout::Netpbm { magic, max, .. } => {
            let mut file = format!("{magic}\n{width} {height}\n{max}\n").into_bytes();
            let start = file.len();
            file.extend_from_slice(pixels);
            if max > 255 {
                file[start..].chunks_exact_mut(2).for_each(<[u8]>::reverse);
            }
            file
        }
        ModeLayout::Array { element, channels } => {
            let mut shape = vec![height.into(), width.into(), channels];
            shape.truncate(if channels == 1 { 2 } else { 3 });
            return Ok(Array { dtype: element, shape, elements: value.slice_ref(pixels) }.into());
        }
    };
    Ok(Content::File(file.into()))
}

/// How a mode lays out its pixels, and the file that they become.
#[derive(Clone, Copy)]
enum ModeLayout {
    /// One bit a pixel, rows padded to whole bytes.
    Bits,
    Netpbm {
        magic: &'static str,
        pixel_bytes: u64,
        /// The value of white.
        max: u32,
        /// What a file of the kind `P7` calls its channels.
        alpha: &'static str,
    },
    Array {
        element: DType,
        channels: u64,
    },
}

impl ModeLayout {
    fn of(mode: &[u8]) -> Option<Self> {
        let netpbm = |magic, pixel_bytes, max, alpha| Self::Netpbm { magic, pixel_bytes, max, alpha };
        let array = |element, channels| Self::Array { element, channels };
        Some(match mode {
            b"1" => Self::Bits,
            b"L" => netpbm("P5", 1, 255, ""),
            b"RGB" => netpbm("P6", 3, 255, ""),
            b"I;16" => netpbm("P5", 2, 65535, ""),
            b"LA" => netpbm("P7", 2, 255, "GRAYSCALE_ALPHA"),
            b"RGBA" => netpbm("P7", 4, 255, "RGB_ALPHA"),
            b"P" => array(DType::U8, 1),
            b"YCbCr" | b"LAB" | b"HSV" => array(DType::U8, 3),
            b"CMYK" => array(DType::U8, 4),
            b"I" => array(DType::I32, 1),
            b"F" => array(DType::F32, 1),
            _ => return None,
        })
    }
}

/// Describes a value of another size than it has to have.
pub(super) fn other_size(value: &[u8], bytes: usize, what: &str) -> String {
    format!("is {} bytes, and {what} takes {bytes}", value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(width: u32, height: u32, mode: &str, pixels: &[u8]) -> Result<Content, String> {
        let head = [width, height, mode.len() as u32].map(u32::to_le_bytes);
        picture(&[head.as_flattened(), mode.as_bytes(), pixels].concat().into())
    }

    fn file(picture: &'static [u8]) -> Content {
        Content::File(Bytes::from_static(picture))
    }

    fn array(dtype: DType, shape: &[u64], elements: &'static [u8]) -> Content {
        Array { dtype, shape: shape.to_vec(), elements: Bytes::from_static(elements) }.into()
    }

    #[test]
    fn pictures_become_files_or_arrays() {
        assert_eq!(of(1, 2, "RGB", b"abcdef").unwrap(), file(b"P6\n1 2\n255\nabcdef"));
        assert_eq!(of(9, 1, "1", &[0xf0, 0x80]).unwrap(), file(b"P4\n9 1\n\x0f\x7f"));
        assert_eq!(of(2, 1, "I;16", b"abcd").unwrap(), file(b"P5\n2 1\n65535\nbadc"));
        assert!(of(1, 1, "RGBA", b"abcd").unwrap().into_file().ends_with(b"TUPLTYPE RGB_ALPHA\nENDHDR\nabcd"));
        assert_eq!(of(2, 1, "F", &[0; 8]).unwrap(), array(DType::F32, &[1, 2], &[0; 8]));
        assert_eq!(of(1, 1, "CMYK", &[0; 4]).unwrap(), array(DType::U8, &[1, 1, 4], &[0; 4]));
    }

    #[test]
    fn pictures_that_are_not_whole_are_described() {
        let problem = |made: Result<Content, String>| made.unwrap_err();
        assert_eq!(problem(picture(&Bytes::from_static(&[0; 11]))), "is a picture that is cut off after 11 bytes");
        assert_eq!(problem(of(2, 2, "L", &[0; 3])), "is 3 bytes, and a picture of 2x2 takes 4");
        assert_eq!(problem(of(2, 2, "X\n", &[])), "is a picture of PIL's mode `X\\n`, which is not read");
        assert!(problem(of(u32::MAX, u32::MAX, "RGBA", &[])).contains("is 0 bytes"));
    }
}
