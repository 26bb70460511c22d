//! Reads the pictures of MP4: the box `moov`, and fragments if it has some.

use super::{
    boxes::{BoxHead, MAX_MOOV_BYTES, boxes, find, handler, time_scale},
    edits,
    fragments::{FRAGMENT, Fragments, MAX_MOOF_BYTES},
    samples::{SamplePlaces, SampleTimes},
    track::{TrackProblem, read_track},
};
use crate::{
    MediaError, VideoPacket, VideoTrack,
    input::{Cursor, Input},
    video::{MAX_PACKETS, MAX_TIME, Video},
};

/// More boxes before the box `moov` than files have.
const MAX_BOXES: u32 = 1 << 16;
/// What the file ends within.
const MOOV: &str = "its boxes: none is `moov`";

/// Reads the pictures of a file.
#[derive(Clone, Debug)]
pub(crate) struct MovieReader {
    /// Which of the tracks of pictures is read.
    nth: usize,
    boxes: u32,
    /// Of a file in fragments, what was read before the next one.
    fragmented: Option<Movie>,
}

/// What the box `moov` says.
#[derive(Clone, Debug)]
struct Movie {
    video: Video,
    span: ShownSpan,
    fragments: Option<Fragments>,
}

/// The part of a track that is shown, in units of the track.
#[derive(Clone, Copy, Debug)]
struct ShownSpan {
    start: i64,
    end: i64,
    /// When it begins to be shown.
    shown_at: i64,
    /// Whether the file says which part it is.
    is_part: bool,
}

impl MovieReader {
    pub(crate) const fn new(nth: usize) -> Self {
        Self { nth, boxes: 0, fragmented: None }
    }

    /// Returns whether a file with these first bytes is one of MP4 or MOV.
    pub(crate) fn recognise(begins: &[u8]) -> bool {
        matches!(begins.get(4..8), Some(b"ftyp" | b"moov" | b"wide" | b"free" | b"skip" | b"mdat"))
    }

    /// Returns whether the file is one in fragments, which are read one after the other.
    pub(crate) const fn is_in_fragments(&self) -> bool {
        self.fragmented.is_some()
    }

    /// Reads what is there; returns the video when all of its tables have been found.
    pub(crate) fn read(&mut self, input: &mut Input<'_, '_>) -> Result<Option<Video>, MediaError> {
        loop {
            if input.at() >= input.file_bytes()
                && let Some(movie) = self.fragmented.take()
            {
                return Ok(Some(movie.finish()));
            }
            let what = if self.fragmented.is_some() { FRAGMENT } else { MOOV };
            let Some(head) = BoxHead::read(input, what)? else { return Ok(None) };
            match (&head.kind, &mut self.fragmented) {
                (b"moov", None) => {
                    if head.bytes > MAX_MOOV_BYTES {
                        return Err(input.malformed("the box `moov` has more than 64 MiB"));
                    }
                    let Some(content) = head.content(input, what)? else { return Ok(None) };
                    let movie =
                        Movie::read(content, self.nth, input.file_bytes()).map_err(|problem| match problem {
                            MovieProblem::Track(TrackProblem::Damaged(problem)) => input.malformed(problem),
                            MovieProblem::Track(TrackProblem::Unsupported(what)) => MediaError::unsupported_video(what),
                            MovieProblem::Media(error) => error,
                        })?;
                    if movie.fragments.is_none() {
                        return Ok(Some(movie.finish()));
                    }
                    self.fragmented = Some(movie);
                }
                (b"moof", Some(movie)) => {
                    if head.bytes > MAX_MOOF_BYTES {
                        return Err(input.malformed("the head of a fragment has more than 16 MiB"));
                    }
                    let Some(content) = head.content(input, what)? else { return Ok(None) };
                    let Movie { video, fragments: Some(fragments), .. } = movie else { continue };
                    let packets = &mut video.packets;
                    let read = fragments.read(content, input.at(), input.file_bytes(), packets);
                    read.map_err(|problem| input.malformed(problem))?;
                }
                (_, None) => {
                    self.boxes += 1;
                    if self.boxes > MAX_BOXES {
                        return Err(input.malformed("more than 65,536 boxes come before the box `moov`"));
                    }
                }
                _ => {}
            }
            input.skip(head.bytes);
        }
    }
}

/// Returns the content of the box `moov` of a file that is in memory, and the byte where it begins.
pub(crate) fn movie(file: &[u8]) -> Result<(&[u8], u64), MediaError> {
    let mut cursor = Cursor::new(file.len() as u64, 0);
    let mut input = Input::new(&mut cursor, file);
    for _ in 0..MAX_BOXES {
        // All bytes are there.
        let Some(head) = BoxHead::read(&mut input, MOOV)? else { break };
        if &head.kind == b"moov"
            && let Some(content) = head.content(&mut input, MOOV)?
        {
            return Ok((content, input.at() + head.head_bytes));
        }
        input.skip(head.bytes);
    }
    Err(input.malformed("more than 65,536 boxes come before the box `moov`"))
}

/// Why a movie cannot be read.
enum MovieProblem {
    Track(TrackProblem),
    Media(MediaError),
}

impl From<TrackProblem> for MovieProblem {
    fn from(problem: TrackProblem) -> Self {
        Self::Track(problem)
    }
}

impl Movie {
    /// Reads the content of the box `moov`.
    fn read(moov: &[u8], nth: usize, file_bytes: u64) -> Result<Self, MovieProblem> {
        use TrackProblem::{Damaged, Unsupported};

        if find(moov, &[b"cmov"]).is_some() {
            return Err(Unsupported("compressed tables").into());
        }
        let of_pictures =
            |(kind, track): ([u8; 4], _)| (&kind == b"trak" && handler(track) == Some(*b"vide")).then_some(track);
        let tracks: Vec<&[u8]> = boxes(moov).filter_map(of_pictures).collect();
        let track = *tracks.get(nth).ok_or(Unsupported(if nth == 0 {
            "no track of pictures"
        } else {
            "fewer tracks of pictures"
        }))?;
        let described = read_track(track)?;
        let stbl = find(track, &[b"mdia", b"minf", b"stbl"]).ok_or(Damaged("a track has no tables"))?;
        let fragments = find(moov, &[b"mvex"]).map(|mvex| Fragments::new(mvex, described.id));
        let scale = find(moov, &[b"mvhd"]).and_then(time_scale).ok_or(Damaged("the movie has no unit of time"))?;
        let span = ShownSpan::read(track, scale, &described)?;
        let packets = packets(stbl, file_bytes)?;
        let mut movie = Self { video: Video { track: described, tracks: tracks.len(), packets }, span, fragments };
        if let (Some(fragments), Some(last)) = (&mut movie.fragments, movie.video.packets.last()) {
            fragments.begin(last.dts + i64::from(last.duration));
        }
        Ok(movie)
    }

    /// Returns the video, with times from its beginning.
    fn finish(self) -> Video {
        let Self { mut video, span, fragments } = self;
        // Where pictures are shown before they are decoded, all are decoded that much earlier.
        let early = video.packets.iter().map(|packet| packet.dts - packet.pts).max().unwrap_or_default().max(0);
        let is_shown = |packet: &VideoPacket| (span.start..span.end).contains(&packet.pts);
        // A part that begins within a picture begins with the next one, but in fragments, as FFmpeg has it.
        let first = match span.is_part && fragments.is_none() {
            true => video.packets.iter().filter(|packet| is_shown(packet)).map(|packet| packet.pts).min(),
            false => None,
        };
        let shift = span.shown_at - first.unwrap_or(span.start);
        for packet in &mut video.packets {
            packet.is_shown = is_shown(packet);
            packet.pts += shift;
            packet.dts += shift - early;
        }
        video
    }
}

impl ShownSpan {
    /// Reads the edit list of a track.
    fn read(track: &[u8], movie_scale: u32, described: &VideoTrack) -> Result<Self, TrackProblem> {
        let [_, track_scale] = described.time_base;
        let units = |duration: u64| {
            let half = u128::from(movie_scale / 2);
            let units = (u128::from(duration) * u128::from(track_scale) + half) / u128::from(movie_scale);
            i64::try_from(units).unwrap_or(MAX_TIME).min(MAX_TIME)
        };
        let mut span = Self { start: 0, end: MAX_TIME, shown_at: 0, is_part: false };
        for edit in edits(track).unwrap_or_default() {
            if edit.start < 0 && !span.is_part {
                span.shown_at = span.shown_at.saturating_add(units(edit.duration)).min(MAX_TIME);
            } else if edit.rate != 1 << 16 || edit.start < 0 || edit.start > MAX_TIME {
                return Err(TrackProblem::Unsupported("pauses or another speed in its edit list"));
            } else if !span.is_part {
                span.is_part = true;
                span.start = edit.start;
                span.end = if edit.duration == 0 { MAX_TIME } else { edit.start.saturating_add(units(edit.duration)) };
            } else if edit.start == span.end {
                // The next part follows the one before.
                span.end = if edit.duration == 0 { MAX_TIME } else { edit.start.saturating_add(units(edit.duration)) };
            } else {
                return Err(TrackProblem::Unsupported("several parts in its edit list, which are not in a row"));
            }
        }
        Ok(span)
    }
}

/// Reads the packets of a track, with the times of the track.
fn packets(stbl: &[u8], file_bytes: u64) -> Result<Vec<VideoPacket>, MovieProblem> {
    let damaged = TrackProblem::Damaged("the tables of the pictures are not valid");
    let mut places = SamplePlaces::read(stbl, file_bytes).ok_or(damaged)?;
    if places.count() as usize > MAX_PACKETS {
        return Err(TrackProblem::Unsupported("more than 16,777,216 packets").into());
    }
    if !places.have_one_description() {
        return Err(TrackProblem::Unsupported("pictures of several kinds in a track").into());
    }
    if places.count() == 0 {
        return Ok(Vec::new());
    }
    // Each packet has a byte of the file at least.
    let most = usize::try_from(file_bytes).unwrap_or(usize::MAX);
    let mut packets = Vec::with_capacity(most.min(places.count() as usize));
    let mut times = SampleTimes::read(stbl).ok_or(damaged)?;
    while let Some(place) = places.next().map_err(MovieProblem::Media)? {
        let time = times.next();
        packets.push(VideoPacket {
            offset: place.offset,
            bytes: place.bytes,
            pts: time.pts,
            dts: time.dts,
            duration: time.duration,
            is_key: time.is_key,
            is_droppable: time.is_droppable,
            is_shown: true,
        });
    }
    Ok(packets)
}
