//! Stills of boxes that are written here.

use super::*;

fn atom(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes()[..], kind, content].concat()
}

fn full(kind: &[u8; 4], version: u8, flags: u8, content: &[u8]) -> Vec<u8> {
    atom(kind, &[&[version, 0, 0, flags], content].concat())
}

fn be16(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn be32(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// An item: its kind, its bytes, and the numbers of its properties, from 1, with the mark of an essential one.
struct Item<'i>(&'i [u8; 4], &'i [u8], &'i [u8]);

/// Writes a file of these items, the first of which is shown, with properties. Bytes lie in `idat`, or behind all boxes.
fn file(items: &[Item<'_>], properties: &[Vec<u8>], tiles: &[u16], in_meta: bool) -> Vec<u8> {
    let ids = || 1..=items.len() as u16;
    let infe =
        |(id, Item(kind, ..)): (u16, &Item<'_>)| full(b"infe", 2, 0, &[&be16(&[id, 0])[..], *kind, b"\0"].concat());
    let entries: Vec<u8> = ids().zip(items).flat_map(infe).collect();
    let iinf = full(b"iinf", 0, 0, &[be16(&[items.len() as u16]), entries].concat());
    let ipma: Vec<u8> = ids()
        .zip(items)
        .flat_map(|(id, Item(.., of_item))| [&be16(&[id])[..], &[of_item.len() as u8], *of_item].concat())
        .collect();
    let ipma = full(b"ipma", 0, 0, &[be32(&[items.len() as u32]), ipma].concat());
    let iprp = atom(b"iprp", &[atom(b"ipco", &properties.concat()), ipma].concat());
    let dimg = [be16(&[1, tiles.len() as u16]), be16(tiles)].concat();
    let iref = if tiles.is_empty() { Vec::new() } else { full(b"iref", 0, 0, &atom(b"dimg", &dimg)) };
    let payload: Vec<u8> = items.iter().flat_map(|Item(_, bytes, _)| bytes.to_vec()).collect();
    let with_base = |base: u32| {
        let mut at = base;
        let place = |(id, Item(_, bytes, _)): (u16, &Item<'_>)| {
            let start = at;
            at += bytes.len() as u32;
            [be16(&[id, u16::from(in_meta), 0, 1]), be32(&[start, bytes.len() as u32])].concat()
        };
        let places: Vec<u8> = ids().zip(items).flat_map(place).collect();
        let iloc = full(b"iloc", 1, 0, &[&[0x44, 0][..], &be16(&[items.len() as u16]), &places].concat());
        let idat = if in_meta { atom(b"idat", &payload) } else { Vec::new() };
        let pitm = full(b"pitm", 0, 0, &be16(&[1]));
        let meta = full(b"meta", 0, 0, &[pitm, iloc, iinf.clone(), iref.clone(), iprp.clone(), idat].concat());
        let ftyp = atom(b"ftyp", b"mif1\0\0\0\0avifmif1");
        [ftyp, meta].concat()
    };
    if in_meta {
        return with_base(0);
    }
    let head = with_base(0).len() as u32 + 8;
    [with_base(head), atom(b"mdat", &payload)].concat()
}

fn ispe(width: u32, height: u32) -> Vec<u8> {
    full(b"ispe", 0, 0, &be32(&[width, height]))
}

fn nclx(matrix: u16, range: u8) -> Vec<u8> {
    atom(b"colr", &[&b"nclx"[..], &be16(&[9, 16, matrix]), &[range]].concat())
}

/// A picture of three columns and two rows of tiles of HEVC, which is turned.
fn grid(in_meta: bool) -> Vec<u8> {
    let tile_bytes: Vec<Vec<u8>> = (0..6).map(|nth| vec![nth; 3 + usize::from(nth)]).collect();
    let mut items = vec![Item(b"grid", &[0, 0, 1, 2, 0, 150, 0, 100], &[2, 0x84, 0x85, 6])];
    items.extend(tile_bytes.iter().map(|bytes| Item(b"hvc1", bytes, &[0x81, 3])));
    let properties = [
        atom(b"hvcC", b"config"),
        ispe(150, 100),
        ispe(64, 64),
        atom(b"irot", &[3]),
        atom(b"imir", &[1]),
        nclx(9, 0x80),
    ];
    file(&items, &properties, &[2, 3, 4, 5, 6, 7], in_meta)
}

#[test]
fn the_boxes_of_a_picture_say_how_it_is_coded_and_where() {
    let items = [Item(b"av01", b"coded", &[0x81, 2, 3]), Item(b"av01", b"opacity", &[1, 2])];
    let bytes = file(&items, &[atom(b"av1C", b"config"), ispe(30, 20), nclx(6, 0)], &[], false);
    assert!(Still::is_one(&bytes));
    let still = Still::open(&bytes).unwrap();
    let color = VideoColor { primaries: 9, transfer: 16, matrix: 6, is_full_range: Some(false) };
    let expected = Still {
        codec: VideoCodec::Av1,
        size: [30, 20],
        quarter_turns: 0,
        mirror: None,
        color: Some(color),
        tile_size: [30, 20],
        columns: 1,
        configs: vec![b"config".to_vec()],
        tiles: vec![StillTile { config: 0, bytes: b"coded".to_vec() }],
    };
    assert_eq!((still.format(), still), ("AVIF", expected));
}

#[test]
fn a_grid_has_its_tiles_in_order_wherever_their_bytes_lie() {
    for in_meta in [false, true] {
        let still = Still::open(&grid(in_meta)).unwrap();
        assert_eq!((still.format(), &still.codec), ("HEIC", &VideoCodec::Hevc));
        assert_eq!((still.size, still.tile_size, still.columns), ([150, 100], [64, 64], 3));
        assert_eq!((still.quarter_turns, still.mirror), (3, Some(StillMirror::LeftToRight)));
        assert_eq!(still.color.unwrap().matrix, 9);
        assert_eq!(still.configs, [b"config"]);
        let expected = (0..6).map(|nth| StillTile { config: 0, bytes: vec![nth; 3 + usize::from(nth)] });
        assert!(still.tiles.into_iter().eq(expected));
    }
}

#[test]
fn files_of_other_programs_are_read() {
    let still = Still::open(include_bytes!("../../tests/stills/plain.avif")).unwrap();
    assert_eq!((still.format(), still.size, still.columns, still.configs.len()), ("AVIF", [64, 48], 1, 1));
    assert_eq!((still.tiles[0].bytes.len(), still.color.unwrap().is_full_range), (0x10c, Some(false)));
    let still = Still::open(include_bytes!("../../tests/stills/grid.heic")).unwrap();
    assert_eq!((still.format(), still.size, still.tile_size, still.columns), ("HEIC", [150, 100], [64, 64], 3));
    assert_eq!((still.tiles.len(), still.configs.len(), still.configs[0].len()), (6, 1, 109));
    assert_eq!((still.quarter_turns, still.mirror), (1, Some(StillMirror::LeftToRight)));
}

#[test]
fn what_is_not_read_is_named() {
    let config = || atom(b"av1C", b"config");
    let one = |properties: &[Vec<u8>], of_item: &[u8]| {
        Still::open(&file(&[Item(b"av01", b"coded", of_item)], properties, &[], false)).unwrap_err().to_string()
    };
    for (properties, of_item, expected) in [
        (
            &[config(), ispe(3, 2), atom(b"clap", &[0; 32])][..],
            &[1, 2, 3][..],
            "has a picture that is cut to a part of it",
        ),
        (&[config(), ispe(3, 2), atom(b"new1", b"")], &[1, 2, 0x83], "must not be shown without its property `new1`"),
        (&[config(), ispe(3, 2), atom(b"a1op", &[1])], &[1, 2, 3], "a picture of several layers"),
        (&[config(), ispe(0, 2)], &[1, 2], "its tiles do not cover its size"),
        (&[config()], &[1], "its picture has no size"),
        (&[ispe(3, 2)], &[1], "lacks what its decoder has to know"),
        (&[config(), ispe(3, 2)], &[1, 2, 9], "a property of its pictures cannot be read"),
    ] {
        let error = one(properties, of_item);
        assert!(error.contains(expected), "{error}");
    }
    let jpeg = file(&[Item(b"jpeg", b"coded", &[1])], &[ispe(3, 2)], &[], false);
    assert!(Still::open(&jpeg).unwrap_err().to_string().contains("a picture of the kind `jpeg`"));
    let mut short = grid(false);
    short.truncate(short.len() - 1);
    assert!(Still::open(&short).unwrap_err().to_string().contains("is cut off within a picture"));
    let tile = Item(b"hvc1", &[1, 2], &[1, 2]);
    let of_one = [Item(b"grid", &[0, 0, 1, 2, 0, 6, 0, 4], &[2]), tile];
    let few = file(&of_one, &[atom(b"hvcC", b"c"), ispe(6, 4)], &[2], false);
    assert!(Still::open(&few).unwrap_err().to_string().contains("its grid has another number of tiles"));
    let again = file(&of_one, &[atom(b"hvcC", b"c"), ispe(6, 4)], &[2; 6], true);
    assert!(Still::open(&again).is_ok(), "a tile may be there several times, within the bytes of a file");
    for other in [&b""[..], b"\0\0\0\x18ftypisom\0\0\0\0isommp42", b"\xff\xd8\xff"] {
        assert!(!Still::is_one(other) && Still::open(other).is_err());
    }
}

#[test]
fn hostile_bytes_of_a_still_do_not_panic() {
    for whole in [grid(true), grid(false)] {
        for at in 0..whole.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                for width in [1, 2, 4] {
                    let mut bytes = whole.clone();
                    let end = (at + width).min(bytes.len());
                    bytes[at..end].fill(value);
                    if let Ok(still) = Still::open(&bytes) {
                        assert!(still.tiles.iter().map(|tile| tile.bytes.len()).sum::<usize>() <= bytes.len());
                    }
                }
            }
            let _ = Still::open(&whole[..at]);
        }
    }
}
