//! What a file says of each of its pictures: size, colours, how it is turned, and what its decoder has to know.

use super::{StillMirror, items::flags};
use crate::{
    MediaError, VideoColor,
    mp4::{
        boxes::{boxes, find, number},
        coded_color,
    },
};

/// The properties of a file's pictures.
pub(super) struct Properties<'m> {
    /// All of them, each by its name and content.
    all: Vec<([u8; 4], &'m [u8])>,
    /// For each picture the number of each of its properties, from 1, and whether it must be known.
    of_items: Vec<(u32, Vec<(usize, bool)>)>,
}

/// The properties of a picture.
#[derive(Default)]
pub(super) struct ItemProperties<'m> {
    pub(super) size: Option<[u32; 2]>,
    pub(super) quarter_turns: u8,
    pub(super) mirror: Option<StillMirror>,
    pub(super) color: Option<VideoColor>,
    /// What its decoder has to know: the name of the box, and its content.
    pub(super) config: Option<(&'m [u8; 4], &'m [u8])>,
}

impl<'m> Properties<'m> {
    /// Reads the boxes in the content of `meta`.
    pub(super) fn read(meta: &'m [u8]) -> Option<Self> {
        let all = boxes(find(meta, &[b"iprp", b"ipco"])?).collect();
        let mut of_items = Vec::new();
        for (_, content) in boxes(find(meta, &[b"iprp"])?).filter(|(kind, _)| kind == b"ipma") {
            let is_long = flags(content)? & 1 == 1;
            let id_bytes = if *content.first()? == 0 { 2 } else { 4 };
            let count = number(content, 4)?;
            let mut rest = content.get(8..)?;
            for _ in 0..count {
                let (id, behind) = rest.split_at_checked(id_bytes)?;
                let id = id.iter().fold(0, |id, byte| id << 8 | u32::from(*byte));
                let (associations, behind) = behind.split_first()?;
                let bytes = usize::from(*associations) * if is_long { 2 } else { 1 };
                let (associations, behind) = behind.split_at_checked(bytes)?;
                rest = behind;
                let long = |pair: &[u8]| (usize::from(pair[0] & 0x7f) << 8 | usize::from(pair[1]), pair[0] & 0x80 != 0);
                let short = |one: &u8| (usize::from(one & 0x7f), one & 0x80 != 0);
                let numbers = match is_long {
                    true => associations.chunks_exact(2).map(long).collect(),
                    false => associations.iter().map(short).collect(),
                };
                of_items.push((id, numbers));
            }
        }
        of_items.sort_by_key(|(id, _)| *id);
        Some(Self { all, of_items })
    }

    /// Returns the properties of a picture.
    pub(super) fn of(&self, id: u32) -> Result<ItemProperties<'m>, MediaError> {
        let damaged = || MediaError::DamagedStill { problem: "a property of its pictures cannot be read" };
        let mut found = ItemProperties::default();
        let first = self.of_items.partition_point(|(other, _)| *other < id);
        let of_item = self.of_items[first..].iter().take_while(|(other, _)| *other == id);
        for (number, is_essential) in of_item.flat_map(|(_, numbers)| numbers) {
            // Nothing is 0.
            let Some(at) = number.checked_sub(1) else { continue };
            let (kind, content) = self.all.get(at).ok_or_else(damaged)?;
            found.add((kind, *content), *is_essential).ok_or_else(damaged)??;
        }
        Ok(found)
    }
}

impl<'m> ItemProperties<'m> {
    /// Adds a property; `None` if it is cut off.
    fn add(&mut self, (kind, content): (&[u8; 4], &'m [u8]), is_essential: bool) -> Option<Result<(), MediaError>> {
        let unsupported = |what: &str| Some(Err(MediaError::unsupported_video(what)));
        match kind {
            b"ispe" => self.size = Some([number(content, 4)?, number(content, 8)?]),
            b"irot" => self.quarter_turns = content.first()? & 3,
            b"imir" => {
                let is_horizontal = content.first()? & 1 == 1;
                self.mirror = Some(if is_horizontal { StillMirror::LeftToRight } else { StillMirror::TopToBottom });
            }
            b"colr" => self.color = coded_color(content).or(self.color),
            b"av1C" => self.config = Some((b"av1C", content)),
            b"hvcC" => self.config = Some((b"hvcC", content)),
            b"clap" => return unsupported("a picture that is cut to a part of it (`clap`)"),
            b"a1op" if content.first()? & 31 != 0 => return unsupported("a picture of several layers"),
            b"lsel" if content.get(..2)? != [0xff, 0xff] => return unsupported("a picture of several layers"),
            b"a1op" | b"lsel" | b"pixi" | b"pasp" | b"auxC" | b"a1lx" | b"clli" | b"mdcv" | b"rloc" | b"udes" => {}
            kind if is_essential => {
                return unsupported(&format!(
                    "a picture that must not be shown without its property `{}`",
                    kind.escape_ascii()
                ));
            }
            _ => {}
        }
        Some(Ok(()))
    }
}
