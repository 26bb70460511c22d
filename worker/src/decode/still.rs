//! Stills of AVIF and HEIC: the processes that decode frames of videos decode their tiles, which become one picture of RGB.

use std::sync::Arc;

use spdl_frames::{FrameDecoders, FramePlanes, FrameRequest, PacketBytes, RgbConversion};
use spdl_media::{Still, StillMirror, VideoColor};
use spdl_pixels::{OpenPicture, Orientation, PictureError, PictureLimits, WholeDecoder};

use crate::frames::NO_PROCESSES;

/// The bytes that the planes of a tile take for each pixel at most: three of them with numbers of 16 bits.
const PLANE_BYTES: u64 = 6;
/// A decoder may have tiles larger than the file says by less than so many pixels a side, those of a unit of coding.
const UNIT_PIXELS: u32 = 64;
/// The matrix of BT.601, as ITU-T H.273 counts it: that of stills where nothing says another one.
const BT_601: u16 = 6;
/// What leaves a matrix, primaries or a transfer open.
const UNSPECIFIED: u16 = 2;

/// A still, and what decodes its tiles.
struct StillDecoder {
    still: Still,
    frames: Option<Arc<FrameDecoders>>,
}

/// Reads the header of a picture of any format. `frames` decodes stills.
pub(super) fn open_picture<'b>(
    bytes: &'b [u8],
    limits: PictureLimits,
    frames: Option<&Arc<FrameDecoders>>,
) -> Result<OpenPicture<'b>, PictureError> {
    if !Still::is_one(bytes) {
        return spdl_pixels::open(bytes, limits);
    }
    let still = Still::open(bytes).map_err(|error| PictureError::Other(format!("it {error}")))?;
    let (size, orientation) = (still.size, orientation(&still));
    spdl_pixels::of_decoder(Box::new(StillDecoder { still, frames: frames.cloned() }), size, orientation, limits)
}

/// Returns the pixels of a picture whose file begins with these bytes.
///
/// # Errors
/// What is wrong with it, to follow the name of its field, or that its head does not end with them.
pub fn count_pixels(bytes: &[u8]) -> Result<u64, String> {
    let picture = open_picture(bytes, PictureLimits::default(), None).map_err(|error| error.to_string())?;
    let [width, height] = picture.seen().map(u64::from);
    Ok(width * height)
}

/// Returns how a still becomes upright.
fn orientation(still: &Still) -> Orientation {
    let (transposed, columns_reversed, rows_reversed) = match still.quarter_turns {
        1 => (true, true, false),
        2 => (false, true, true),
        3 => (true, false, true),
        _ => (false, false, false),
    };
    let turned = Orientation { transposed, columns_reversed, rows_reversed };
    match still.mirror {
        None => turned,
        Some(StillMirror::LeftToRight) => turned.mirrored(),
        Some(StillMirror::TopToBottom) => turned.flipped(),
    }
}

impl StillDecoder {
    /// Returns the pixels of a tile at most.
    fn tile_pixels(&self) -> u64 {
        let [width, height] = self.still.tile_size.map(|side| u64::from(side).next_multiple_of(UNIT_PIXELS.into()));
        width.saturating_mul(height)
    }

    /// Writes the visible part of tile number `number` to its place.
    fn place(&self, number: usize, planes: &FramePlanes<'_>, rgb: &mut [u8]) -> Result<(), String> {
        let Still { size: [width, height], tile_size: [tile_width, tile_height], columns, .. } = self.still;
        let [found_width, found_height] = planes.size;
        if planes.size != self.still.tile_size {
            return Err(format!(
                "has a tile of {found_width}x{found_height}, and says that it is of {tile_width}x{tile_height}"
            ));
        }
        let converted = RgbConversion::new(planes.format, planes.size, &self.color(planes));
        let conversion = converted.map_err(|error| error.to_string())?;
        let rows = conversion.rows(planes).map_err(|error| error.to_string())?;
        let (column, row) = (number as u32 % columns, number as u32 / columns);
        let (left, top) = (u64::from(column) * u64::from(tile_width), u64::from(row) * u64::from(tile_height));
        // Tiles at the ends may be cut, and those behind them are not seen.
        let seen = |side: u32, start: u64, tile: u32| u64::from(side).saturating_sub(start).min(tile.into());
        let (seen_width, seen_height) = (seen(width, left, tile_width), seen(height, top, tile_height));
        for y in 0..seen_height {
            let start = ((top + y) * u64::from(width) + left) as usize * 3;
            rows.write(y as u32, 0, &mut rgb[start..start + seen_width as usize * 3]);
        }
        Ok(())
    }

    /// Returns the colour of a tile: what the file says, and for what that leaves open what its decoder says, and else what is usual.
    fn color(&self, planes: &FramePlanes<'_>) -> VideoColor {
        let (of_file, of_frame) = (self.still.color.unwrap_or_default(), &planes.color);
        let said = |of_file: u16, of_frame: u16| if of_file == UNSPECIFIED { of_frame } else { of_file };
        let matrix = said(of_file.matrix, of_frame.matrix);
        VideoColor {
            primaries: said(of_file.primaries, of_frame.primaries),
            transfer: said(of_file.transfer, of_frame.transfer),
            matrix: if matrix == UNSPECIFIED { BT_601 } else { matrix },
            is_full_range: of_file.is_full_range.or(of_frame.is_full_range).or(Some(true)),
        }
    }
}

impl WholeDecoder for StillDecoder {
    fn scratch_bytes(&self) -> u64 {
        self.tile_pixels() * PLANE_BYTES + self.still.tiles.iter().map(|tile| tile.bytes.len() as u64).sum::<u64>()
    }

    fn decode(&self, rgb: &mut [u8]) -> Result<(), PictureError> {
        let frames = self.frames.as_deref().ok_or_else(|| PictureError::Other(NO_PROCESSES.to_owned()))?;
        let numbered: Vec<_> = self.still.tiles.iter().enumerate().collect();
        let max_pixels = self.tile_pixels();
        // Tiles mostly have the same settings, and are decoded one after the other then.
        for tiles in numbered.chunk_by(|(_, one), (_, next)| one.config == next.config) {
            let wanted: Vec<i64> = (0..).take(tiles.len()).collect();
            let packets: Vec<PacketBytes<'_>> = (wanted.iter().zip(tiles))
                .map(|(pts, (_, tile))| PacketBytes { pts: *pts, bytes: &tile.bytes, begins_anew: true })
                .collect();
            let (first, Still { codec, .. }) = (tiles[0].0, &self.still);
            let extra_data = &self.still.configs[tiles[0].1.config];
            let request = FrameRequest { codec, extra_data, packets: &packets, wanted: &wanted, max_pixels };
            let mut failed = None;
            let outcome = frames.decode(&request, &mut |nth, planes| {
                if failed.is_none() {
                    failed = self.place(first + nth, &planes, rgb).err();
                }
            });
            match (failed, outcome) {
                (Some(problem), _) => return Err(PictureError::Other(format!("it {problem}"))),
                (None, Err(error)) if error.is_of_video() => return Err(PictureError::Other(format!("it {error}"))),
                (None, Err(error)) => return Err(PictureError::Other(error.to_string())),
                (None, Ok(())) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_still_is_turned_against_the_clock_and_then_mirrored() {
        let upright = |quarter_turns, mirror| {
            let still = Still {
                codec: spdl_media::VideoCodec::Av1,
                size: [3, 2],
                quarter_turns,
                mirror,
                color: None,
                tile_size: [3, 2],
                columns: 1,
                configs: Vec::new(),
                tiles: Vec::new(),
            };
            let Orientation { transposed, columns_reversed, rows_reversed } = orientation(&still);
            // The pixels of two rows: 0 1 2 and 3 4 5.
            let pixel = |x: usize, y: usize| {
                let [x, y] = if transposed { [y, x] } else { [x, y] };
                let x = if columns_reversed { 2 - x } else { x };
                let y = if rows_reversed { 1 - y } else { y };
                3 * y + x
            };
            let [width, height] = if transposed { [2, 3] } else { [3, 2] };
            (0..height).flat_map(|y| (0..width).map(move |x| pixel(x, y)).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        assert_eq!(upright(0, None), [0, 1, 2, 3, 4, 5]);
        assert_eq!(upright(1, None), [2, 5, 1, 4, 0, 3]);
        assert_eq!(upright(2, None), [5, 4, 3, 2, 1, 0]);
        assert_eq!(upright(3, None), [3, 0, 4, 1, 5, 2]);
        assert_eq!(upright(0, Some(StillMirror::LeftToRight)), [2, 1, 0, 5, 4, 3]);
        assert_eq!(upright(0, Some(StillMirror::TopToBottom)), [3, 4, 5, 0, 1, 2]);
        assert_eq!(upright(1, Some(StillMirror::LeftToRight)), [5, 2, 4, 1, 3, 0]);
        assert_eq!(upright(1, Some(StillMirror::TopToBottom)), [0, 3, 1, 4, 2, 5]);
    }
}
