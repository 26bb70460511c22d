//! Stills in files of boxes: AVIF and HEIC (ISO/IEC 23008-12). Says how the picture is coded, where its tiles lie, and how it is turned
//! to be shown. Opacity, thumbnails and depth maps, which are pictures of their own in the file, are not looked at.

mod items;
mod properties;

use std::ops::Range;

use self::{
    items::{Payload, StillItems},
    properties::Properties,
};
use crate::{
    MediaError, VideoCodec, VideoColor,
    mp4::boxes::{boxes, long_number, number},
};

/// Brands of files that may have a still.
const BRANDS: [&[u8; 4]; 11] =
    [b"avif", b"avis", b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"mif2", b"msf1"];
/// Maximum number of tiles of a picture: enough for a gigapixel of tiles of 512 pixels.
const MAX_TILES: u32 = 4096;

/// A still in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Still {
    /// How the tiles are coded.
    pub codec: VideoCodec,
    /// Width and height before the picture is turned, in pixels, both at least 1.
    pub size: [u32; 2],
    /// By how many quarters it is turned against the clock to be shown.
    pub quarter_turns: u8,
    /// How it is mirrored after that.
    pub mirror: Option<StillMirror>,
    /// What the numbers of pixels mean, if the file says it.
    pub color: Option<VideoColor>,
    /// Width and height of a tile, in pixels: those of the picture, if it is not divided.
    pub tile_size: [u32; 2],
    /// The number of tiles side by side.
    pub columns: u32,
    /// What a decoder has to know before tiles, as libavcodec takes it: the content of `av1C` or `hvcC`, each once.
    pub configs: Vec<Vec<u8>>,
    /// The tiles, row by row. The picture may end within the last ones of a row and a column.
    pub tiles: Vec<StillTile>,
}

/// A coded part of a still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StillTile {
    /// Number of its configuration.
    pub config: usize,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// How a picture is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StillMirror {
    /// Its top becomes its bottom.
    TopToBottom,
    /// Its left side becomes its right one.
    LeftToRight,
}

impl Still {
    /// Returns whether a file is one of boxes that may have a still, by its first box.
    #[must_use]
    pub fn is_one(file: &[u8]) -> bool {
        let first = boxes(file).next().filter(|(kind, _)| kind == b"ftyp");
        let Some((_, content)) = first else { return false };
        // Behind the first brand is its version.
        let brands = content.as_chunks::<4>().0;
        brands.iter().enumerate().any(|(nth, brand)| nth != 1 && BRANDS.contains(&brand))
    }

    /// Reads what a file says of its still.
    ///
    /// # Errors
    /// [`MediaError`], if the file is damaged or of a kind that is not read.
    pub fn open(file: &[u8]) -> Result<Self, MediaError> {
        if !Self::is_one(file) {
            return Err(MediaError::unsupported_video("no still in a file of AVIF or HEIC"));
        }
        let damaged = |problem: &'static str| MediaError::DamagedStill { problem };
        let meta = top(file).find(|(kind, _)| kind == b"meta").map(|(_, range)| &file[range]);
        let meta = meta.and_then(|meta| meta.get(4..)).ok_or(damaged("it has no table of pictures"))?;
        let items = StillItems::read(meta).ok_or(damaged("its table of pictures cannot be read"))?;
        let properties = Properties::read(meta).ok_or(damaged("the properties of its pictures cannot be read"))?;
        let payload = Payload { file, meta, items: &items };
        let primary = items.primary;
        let kind = items.kind(primary).ok_or(damaged("its first picture is missing"))?;
        let shown = properties.of(primary)?;
        let (tile_ids, size, columns) = match &kind {
            b"grid" => {
                let grid = payload.bytes(primary)?;
                let grid = Grid::read(&grid).ok_or(damaged("its grid of tiles cannot be read"))?;
                let tiles = items.tiles(primary);
                if tiles.len() as u32 != grid.rows * grid.columns || tiles.len() as u32 > MAX_TILES {
                    return Err(damaged("its grid has another number of tiles"));
                }
                (tiles, grid.size, grid.columns)
            }
            b"av01" | b"hvc1" => {
                let size = shown.size.ok_or(damaged("its picture has no size"))?;
                (vec![primary], size, 1)
            }
            kind => {
                return Err(MediaError::unsupported_video(&format!("a picture of the kind `{}`", kind.escape_ascii())));
            }
        };
        let (mut tiles, mut left_bytes) = (Vec::with_capacity(tile_ids.len()), file.len());
        let (mut codec, mut tile_size, mut color) = (None, None, shown.color);
        let mut configs: Vec<&[u8]> = Vec::new();
        for id in tile_ids {
            let (of_tile, name) = match items.kind(id) {
                Some(kind) if &kind == b"av01" => (VideoCodec::Av1, b"av1C"),
                Some(kind) if &kind == b"hvc1" => (VideoCodec::Hevc, b"hvcC"),
                _ => return Err(MediaError::unsupported_video("tiles that are no pictures of AV1 or HEVC")),
            };
            let of_id = properties.of(id)?;
            let config = of_id.config.filter(|(kind, _)| *kind == name).map(|(_, content)| content);
            let config = config.ok_or(damaged("a picture lacks what its decoder has to know"))?;
            // Tiles mostly share one, which a hostile file could make long.
            let known = configs.iter().position(|known| std::ptr::eq(*known, config));
            let config = known.unwrap_or_else(|| {
                configs.push(config);
                configs.len() - 1
            });
            let bytes = payload.bytes(id)?;
            // Pictures have bytes of their own; those of a hostile file could be many times its length.
            left_bytes = left_bytes.checked_sub(bytes.len()).ok_or(damaged("its tiles overlap"))?;
            let size = of_id.size.ok_or(damaged("a tile has no size"))?;
            if codec.get_or_insert_with(|| of_tile.clone()) != &of_tile || *tile_size.get_or_insert(size) != size {
                return Err(MediaError::unsupported_video("tiles of different kinds"));
            }
            color = color.or(of_id.color);
            tiles.push(StillTile { config, bytes });
        }
        let (Some(codec), Some(tile_size)) = (codec, tile_size) else { return Err(damaged("it has no tiles")) };
        let rows = tiles.len() as u32 / columns;
        let covers = |side: usize, count: u32| u64::from(tile_size[side]) * u64::from(count) >= u64::from(size[side]);
        if size.contains(&0) || tile_size.contains(&0) || !covers(0, columns) || !covers(1, rows) {
            return Err(damaged("its tiles do not cover its size"));
        }
        let (quarter_turns, mirror) = (shown.quarter_turns, shown.mirror);
        let configs = configs.into_iter().map(<[u8]>::to_vec).collect();
        Ok(Self { codec, size, quarter_turns, mirror, color, tile_size, columns, configs, tiles })
    }

    /// Returns the name of the format.
    #[must_use]
    pub fn format(&self) -> &'static str {
        if self.codec == VideoCodec::Av1 { "AVIF" } else { "HEIC" }
    }
}

/// A picture that is made of tiles.
struct Grid {
    rows: u32,
    columns: u32,
    size: [u32; 2],
}

impl Grid {
    fn read(bytes: &[u8]) -> Option<Self> {
        let [0, flags, rows, columns] = *bytes.first_chunk()? else { return None };
        let size = if flags & 1 == 1 {
            [number(bytes, 4)?, number(bytes, 8)?]
        } else {
            let side = |at: usize| bytes.get(at..)?.first_chunk().map(|side| u32::from(u16::from_be_bytes(*side)));
            [side(4)?, side(6)?]
        };
        Some(Self { rows: u32::from(rows) + 1, columns: u32::from(columns) + 1, size })
    }
}

/// Returns the boxes at the top of a file, each by its name and the place of its content; those that are whole.
fn top(file: &[u8]) -> impl Iterator<Item = ([u8; 4], Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = file.get(at..)?;
        let kind = *rest.get(4..)?.first_chunk()?;
        let (head, bytes) = match number(rest, 0)? {
            0 => (8, rest.len()),
            1 => (16, usize::try_from(long_number(rest, 8)?).ok()?),
            bytes => (8, bytes as usize),
        };
        let content = at.checked_add(head)?..at.checked_add(bytes)?;
        file.get(content.clone())?;
        at = content.end;
        Some((kind, content))
    })
}

#[cfg(test)]
mod tests;
