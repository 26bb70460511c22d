//! The pictures of a file and the parts that they consist of, its items: their kinds, where their bytes lie, and which of them a grid
//! is made of.

use std::collections::BTreeMap;

use crate::{
    MediaError,
    mp4::boxes::{boxes, find, number},
};

/// The items of a file.
pub(super) struct StillItems {
    /// The one that is shown.
    pub(super) primary: u32,
    kinds: BTreeMap<u32, [u8; 4]>,
    places: BTreeMap<u32, ItemPlace>,
    /// The tiles of grids, by the grid.
    tiles: BTreeMap<u32, Vec<u32>>,
}

/// Where the bytes of an item lie.
struct ItemPlace {
    is_in_meta: bool,
    /// Where its parts begin, and their lengths; 0 is up to the end.
    parts: Vec<(u64, u64)>,
}

/// The bytes of items.
pub(super) struct Payload<'f> {
    pub(super) file: &'f [u8],
    /// The boxes of the table of pictures.
    pub(super) meta: &'f [u8],
    pub(super) items: &'f StillItems,
}

/// Numbers that follow each other in a box.
struct BoxNumbers<'b>(&'b [u8]);

impl BoxNumbers<'_> {
    /// Takes a number of 0 to 8 bytes.
    fn next(&mut self, bytes: usize) -> Option<u64> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        taken.iter().try_fold(0_u64, |number, byte| Some(number.checked_mul(256)? | u64::from(*byte)))
    }

    /// Takes the number of an item, of 2 or 4 bytes.
    fn id(&mut self, is_long: bool) -> Option<u32> {
        u32::try_from(self.next(if is_long { 4 } else { 2 })?).ok()
    }
}

impl StillItems {
    /// Reads the boxes in the content of `meta`.
    pub(super) fn read(meta: &[u8]) -> Option<Self> {
        let primary = find(meta, &[b"pitm"])?;
        let primary = BoxNumbers(primary.get(4..)?).id(*primary.first()? > 0)?;
        let places = places(find(meta, &[b"iloc"])?)?;
        let tiles = find(meta, &[b"iref"]).map_or_else(|| Some(BTreeMap::new()), tiles)?;
        Some(Self { primary, kinds: kinds(find(meta, &[b"iinf"])?)?, places, tiles })
    }

    /// Returns what an item is.
    pub(super) fn kind(&self, id: u32) -> Option<[u8; 4]> {
        self.kinds.get(&id).copied()
    }

    /// Returns the tiles of a grid, in order.
    pub(super) fn tiles(&self, grid: u32) -> Vec<u32> {
        self.tiles.get(&grid).cloned().unwrap_or_default()
    }
}

impl Payload<'_> {
    /// Returns the bytes of an item.
    pub(super) fn bytes(&self, id: u32) -> Result<Vec<u8>, MediaError> {
        let damaged = |problem: &'static str| MediaError::DamagedStill { problem };
        let place = self.items.places.get(&id).ok_or(damaged("a picture has no place"))?;
        let all = if place.is_in_meta { find(self.meta, &[b"idat"]).unwrap_or_default() } else { self.file };
        let mut bytes = Vec::new();
        for (start, length) in &place.parts {
            let part = usize::try_from(*start).ok().and_then(|start| all.get(start..));
            let part = part.and_then(|rest| match *length {
                0 => Some(rest),
                length => rest.get(..usize::try_from(length).ok()?),
            });
            let part = part.ok_or(damaged("it is cut off within a picture"))?;
            if bytes.len() + part.len() > all.len() {
                return Err(damaged("the parts of a picture overlap"));
            }
            bytes.extend_from_slice(part);
        }
        Ok(bytes)
    }
}

/// Reads the content of `iinf`.
fn kinds(content: &[u8]) -> Option<BTreeMap<u32, [u8; 4]>> {
    let entries = content.get(if *content.first()? == 0 { 6 } else { 8 }..)?;
    let mut kinds = BTreeMap::new();
    for (_, entry) in boxes(entries).filter(|(kind, _)| kind == b"infe") {
        let version = *entry.first()?;
        if version < 2 {
            continue;
        }
        let mut numbers = BoxNumbers(entry.get(4..)?);
        let id = numbers.id(version > 2)?;
        let protection = numbers.next(2)?;
        let kind = *numbers.0.first_chunk()?;
        // An encrypted item is of no kind that is read.
        kinds.insert(id, if protection == 0 { kind } else { *b"encv" });
    }
    Some(kinds)
}

/// Reads the content of `iloc`.
fn places(content: &[u8]) -> Option<BTreeMap<u32, ItemPlace>> {
    let version = *content.first()?;
    let mut numbers = BoxNumbers(content.get(4..)?);
    let sizes = numbers.next(2)?;
    let [offset_bytes, length_bytes, base_bytes, index_bytes] =
        [12, 8, 4, 0].map(|shift| (sizes >> shift & 15) as usize);
    let index_bytes = if version == 0 { 0 } else { index_bytes };
    if version > 2
        || [offset_bytes, length_bytes, base_bytes, index_bytes].iter().any(|bytes| ![0, 4, 8].contains(bytes))
    {
        return None;
    }
    let count = numbers.next(if version < 2 { 2 } else { 4 })?;
    let mut places = BTreeMap::new();
    for _ in 0..count {
        let id = numbers.id(version == 2)?;
        let method = if version == 0 { 0 } else { numbers.next(2)? & 15 };
        let reference = numbers.next(2)?;
        let base = numbers.next(base_bytes)?;
        let parts = numbers.next(2)?;
        if parts > 1 && offset_bytes + length_bytes == 0 {
            return None;
        }
        let mut place = ItemPlace { is_in_meta: method == 1, parts: Vec::new() };
        for _ in 0..parts {
            numbers.next(index_bytes)?;
            let offset = base.checked_add(numbers.next(offset_bytes)?)?;
            place.parts.push((offset, numbers.next(length_bytes)?));
        }
        // Others lie in another file, or in an item.
        if reference == 0 && method < 2 {
            places.insert(id, place);
        }
    }
    Some(places)
}

/// Reads the tiles of grids in the content of `iref`.
fn tiles(content: &[u8]) -> Option<BTreeMap<u32, Vec<u32>>> {
    let is_long = *content.first()? > 0;
    let mut tiles = BTreeMap::new();
    for (_, entry) in boxes(content.get(4..)?).filter(|(kind, _)| kind == b"dimg") {
        let mut numbers = BoxNumbers(entry);
        let grid = numbers.id(is_long)?;
        let count = numbers.next(2)?;
        tiles.insert(grid, (0..count).map(|_| numbers.id(is_long)).collect::<Option<_>>()?);
    }
    Some(tiles)
}

/// Returns the flags of a box with a version.
pub(super) fn flags(content: &[u8]) -> Option<u32> {
    Some(number(content, 0)? & 0xff_ffff)
}
