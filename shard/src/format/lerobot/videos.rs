//! The videos that have the frames of a file's episodes, and where in them each episode lies: by numbers, never by times.
//!
//! In the shard's space of bytes they follow the Parquet file, one after the other. No block has them.

use std::ops::Range;

use crate::{
    FormatError,
    envelope::{section_offsets, text, u32_at, u64_at, wrong},
    format::{ObjectRange, ObjectRole, StoredFrame, StoredObject},
    manifest::is_relative_path,
};

/// The table of spans has this where an episode has no video.
const NO_FILE: u32 = u32::MAX;
const SPAN_BYTES: usize = 12;
const NAME_BYTES: usize = 4;
const FILE_BYTES: usize = 16;

/// The videos that have the frames of the episodes of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct EpisodeVideos<'f> {
    /// Frames of a second, 1 or more if there are features.
    pub fps: u32,
    /// The features whose frames lie in videos; each becomes a field.
    pub features: &'f [&'f str],
    /// The videos.
    pub files: &'f [VideoObject],
    /// For each episode, and in it for each feature, where its frames lie; `None` if it is not known.
    pub spans: &'f [Option<FrameSpan>],
}

/// A video that has frames of episodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoObject {
    /// Path, relative to the dataset's folder.
    pub path: String,
    /// Size in bytes, 1 or more.
    pub bytes: u64,
    /// Etag, if the store gave a lasting one.
    pub etag: Option<String>,
}

/// Frames of a video, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSpan {
    /// The number of the video among those of the shard.
    pub file: u32,
    /// The first frame.
    pub first: u32,
    /// How many `meta/episodes` says there are.
    pub frames: u32,
}

impl EpisodeVideos<'_> {
    /// Returns the numbers of the header: of features, of videos, the frames of a second, and the bytes of the text.
    pub(super) fn counts(&self) -> [usize; 4] {
        let of_files = self.files.iter().map(|file| file.path.len() + file.etag.as_ref().map_or(0, String::len));
        let of_features = self.features.iter().map(|name| name.len());
        [self.features.len(), self.files.len(), self.fps as usize, of_features.chain(of_files).sum()]
    }

    /// Appends the tables and their text.
    pub(super) fn append(&self, file: &mut Vec<u8>) {
        for span in self.spans {
            let FrameSpan { file: video, first, frames } =
                span.unwrap_or(FrameSpan { file: NO_FILE, first: 0, frames: 0 });
            file.extend([video, first, frames].map(u32::to_le_bytes).as_flattened());
        }
        let mut end = 0;
        let mut next = |part: &str| {
            end += part.len() as u32;
            end.to_le_bytes()
        };
        let mut all = String::new();
        for name in self.features {
            file.extend(next(name));
            all.push_str(name);
        }
        for VideoObject { path, bytes, etag } in self.files {
            let etag = etag.as_deref().unwrap_or_default();
            file.extend(bytes.to_le_bytes());
            file.extend([next(path), next(etag)].as_flattened());
            all.extend([path.as_str(), etag]);
        }
        file.extend(all.as_bytes());
    }
}

/// The tables of videos of an index, which were checked when it was opened.
#[derive(Debug)]
pub(super) struct VideoTables {
    fps: u32,
    /// Where the table of spans begins.
    spans: usize,
    /// Where the names of the features lie in the index's bytes.
    features: Vec<Range<usize>>,
    files: Vec<PlacedVideo>,
}

/// A video, and where it lies.
#[derive(Debug)]
struct PlacedVideo {
    /// Where its path lies in the index's bytes.
    path: Range<usize>,
    etag: Range<usize>,
    /// Where its bytes lie in the shard.
    place: Range<u64>,
}

impl VideoTables {
    /// Reads the tables from byte `at` on, whose [counts](EpisodeVideos::counts) are given, of an index with so many episodes. Also
    /// returns where they end. The videos' bytes begin at 0 until they are [placed](Self::place_behind).
    pub(super) fn read(
        bytes: &[u8],
        at: usize,
        [features, files, fps, text_bytes]: [u32; 4],
        episodes: u32,
    ) -> Result<(Self, usize), FormatError> {
        let lengths = [
            u64::from(episodes) * u64::from(features) * SPAN_BYTES as u64,
            u64::from(features) * NAME_BYTES as u64,
            u64::from(files) * FILE_BYTES as u64,
            text_bytes.into(),
        ];
        let sections = section_offsets(at as u64, lengths).filter(|(_, end)| *end <= bytes.len() as u64);
        let ([spans, names, table, first], end) = sections.ok_or_else(|| wrong("its tables are longer than it is"))?;
        let end = end as usize;
        let whole = str::from_utf8(&bytes[first..end]).map_err(|_| wrong("its text is not UTF-8"))?;
        let mut start = 0;
        let mut next = |entry: usize| {
            let end = u32_at(bytes, entry) as usize;
            let part = (end >= start && whole.is_char_boundary(end)).then(|| first + start..first + end);
            start = end;
            part.ok_or_else(|| wrong("its table of text is out of order"))
        };
        let names = (0..features as usize).map(|nth| next(names + nth * NAME_BYTES));
        let features_places = names.collect::<Result<Vec<_>, _>>()?;
        let mut placed = Vec::new();
        for entry in (0..files as usize).map(|nth| table + nth * FILE_BYTES) {
            let (path, etag, size) = (next(entry + 8)?, next(entry + 12)?, u64_at(bytes, entry));
            if !is_relative_path(text(&bytes[path.clone()])) || size == 0 {
                return Err(wrong("it has a video without a path or without bytes"));
            }
            placed.push(PlacedVideo { path, etag, place: 0..size });
        }
        if start != whole.len() {
            return Err(wrong("its text has unused bytes"));
        }
        let tables = Self { fps, spans, features: features_places, files: placed };
        let is_known = |nth: usize| tables.span(bytes, nth).is_none_or(|span| span.file < files);
        if features > 0 && fps == 0 || !(0..(episodes as usize) * features as usize).all(is_known) {
            return Err(wrong("its frames of videos are out of order"));
        }
        Ok((tables, end))
    }

    /// Lays the videos behind the shard's first bytes, one after the other.
    pub(super) fn place_behind(&mut self, shard_bytes: u64) -> Result<(), FormatError> {
        let mut at = shard_bytes;
        for file in &mut self.files {
            let end = at.checked_add(file.place.end).ok_or_else(|| wrong("its videos are too long"))?;
            file.place = at..end;
            at = end;
        }
        Ok(())
    }

    /// Returns the number of features.
    pub(super) fn features(&self) -> u32 {
        self.features.len() as u32
    }

    /// Returns the name of a feature.
    pub(super) fn name<'b>(&self, bytes: &'b [u8], feature: u32) -> &'b str {
        text(&bytes[self.features[feature as usize].clone()])
    }

    /// Returns the number of the feature of this name.
    pub(super) fn feature(&self, bytes: &[u8], name: &str) -> Option<u32> {
        (0..self.features()).find(|feature| self.name(bytes, *feature) == name)
    }

    /// Returns the path of the video that has the frames of an episode; empty if there is none.
    pub(super) fn path<'b>(&self, bytes: &'b [u8], episode: u32, feature: u32) -> &'b [u8] {
        let span = self.span_of(bytes, episode, feature);
        span.map_or(&bytes[..0], |span| &bytes[self.files[span.file as usize].path.clone()])
    }

    /// Returns where frame number `frame` of an episode of so many rows lies.
    pub(super) fn frame(
        &self,
        bytes: &[u8],
        (episode, feature): (u32, u32),
        (frame, rows): (u32, u32),
    ) -> Result<StoredFrame, String> {
        let span = self.span_of(bytes, episode, feature);
        let FrameSpan { file, first, frames } = span.ok_or_else(|| {
            "is of an episode without a video: none was there when the dataset was indexed".to_owned()
        })?;
        if frames != rows {
            return Err(format!("is of an episode with {rows} rows, and {frames} frames in its video"));
        }
        let video = self.files[file as usize].place.clone();
        Ok(StoredFrame { video, number: u64::from(first) + u64::from(frame), fps: self.fps })
    }

    /// Adds the ranges of videos that have these bytes of the shard.
    pub(super) fn plan(&self, bytes: &[u8], ranges: &[Range<u64>], plan: &mut Vec<ObjectRange>) {
        for wanted in ranges {
            let first = self.files.partition_point(|file| file.place.end <= wanted.start);
            for file in self.files[first..].iter().take_while(|file| file.place.start < wanted.end) {
                let (start, end) = (wanted.start.max(file.place.start), wanted.end.min(file.place.end));
                if start >= end {
                    continue;
                }
                let [url, etag] = [&file.path, &file.etag].map(|place| text(&bytes[place.clone()]));
                let etag = (!etag.is_empty()).then(|| etag.to_owned());
                let size = file.place.end - file.place.start;
                let object = StoredObject { url: url.to_owned(), bytes: size, etag, role: ObjectRole::File };
                plan.push(ObjectRange { object, range: start - file.place.start..end - file.place.start, at: start });
            }
        }
    }

    fn span_of(&self, bytes: &[u8], episode: u32, feature: u32) -> Option<FrameSpan> {
        self.span(bytes, episode as usize * self.features.len() + feature as usize)
    }

    fn span(&self, bytes: &[u8], nth: usize) -> Option<FrameSpan> {
        let [file, first, frames] = [0, 4, 8].map(|byte| u32_at(bytes, self.spans + nth * SPAN_BYTES + byte));
        (file != NO_FILE).then_some(FrameSpan { file, first, frames })
    }
}
