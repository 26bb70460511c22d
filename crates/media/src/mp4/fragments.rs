//! Fragments of MP4 (ISO/IEC 14496-12, 8.8): boxes `moof`, each with the packets that follow it.

use super::boxes::{BoxHead, boxes, find, long_number, number};
use crate::{
    MediaError, VideoPacket,
    input::{Cursor, Input},
    video::{MAX_PACKETS, MAX_TIME},
};

/// The most bytes of a box `moof`.
pub(crate) const MAX_MOOF_BYTES: u64 = 1 << 24;
/// The most tracks that have defaults.
const MAX_TRACKS: usize = 1024;

/// What a file ends within.
pub(super) const FRAGMENT: &str = "a fragment";
const CUT_OFF: &str = "the head of a fragment is cut off";

/// What a sample has if its run does not say another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SampleDefaults {
    duration: u32,
    bytes: u32,
    flags: u32,
}

/// Reads the fragments of a file, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Fragments {
    /// The track whose packets are read.
    id: u64,
    /// Numbers of tracks, with their defaults.
    defaults: Vec<(u32, SampleDefaults)>,
    /// When the next packet is decoded.
    dts: i64,
    /// The bytes of all packets of all tracks so far.
    passed: u64,
}

/// The fields of a box, one after the other.
struct Fields<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Fields<'_> {
    fn next(&mut self) -> Result<u32, &'static str> {
        let value = number(self.bytes, self.at).ok_or(CUT_OFF)?;
        self.at += 4;
        Ok(value)
    }

    fn next_long(&mut self) -> Result<u64, &'static str> {
        let value = long_number(self.bytes, self.at).ok_or(CUT_OFF)?;
        self.at += 8;
        Ok(value)
    }

    /// Returns the next field if a flag says that it is there.
    fn next_if(&mut self, is_there: bool, otherwise: u32) -> Result<u32, &'static str> {
        if is_there { self.next() } else { Ok(otherwise) }
    }
}

impl Fragments {
    /// Reads the content of the box `mvex`.
    pub(crate) fn new(mvex: &[u8], id: u64) -> Self {
        let defaults = boxes(mvex).filter(|(kind, _)| kind == b"trex").filter_map(|(_, content)| {
            let [duration, bytes, flags] = [number(content, 12)?, number(content, 16)?, number(content, 20)?];
            Some((number(content, 4)?, SampleDefaults { duration, bytes, flags }))
        });
        Self { id, defaults: defaults.take(MAX_TRACKS).collect(), dts: 0, passed: 0 }
    }

    /// Sets when the first packet is decoded, behind others.
    pub(crate) const fn begin(&mut self, dts: i64) {
        self.dts = dts;
    }

    /// Reads the content of a box `moof`, which begins at `start` of a file of so many bytes.
    pub(crate) fn read(
        &mut self,
        moof: &[u8],
        start: u64,
        file_bytes: u64,
        packets: &mut Vec<VideoPacket>,
    ) -> Result<(), &'static str> {
        // Where the packets of a track begin if nothing else is said.
        let mut next = start;
        for (_, traf) in boxes(moof).filter(|(kind, _)| kind == b"traf") {
            let mut head =
                Fields { bytes: find(traf, &[b"tfhd"]).ok_or("a fragment has no head of its track")?, at: 0 };
            let (flags, id) = (head.next()?, head.next()?);
            let defaults = self.defaults.iter().find(|(track, _)| *track == id);
            let mut defaults = defaults.map(|(_, defaults)| *defaults).unwrap_or_default();
            let mut base = if flags & 0x02_0000 == 0 { next } else { start };
            if flags & 1 != 0 {
                base = head.next_long()?;
            }
            if head.next_if(flags & 2 != 0, 1)? != 1 && u64::from(id) == self.id {
                return Err("pictures of a fragment are of another kind than those before");
            }
            defaults.duration = head.next_if(flags & 8 != 0, defaults.duration)?;
            defaults.bytes = head.next_if(flags & 0x10 != 0, defaults.bytes)?;
            defaults.flags = head.next_if(flags & 0x20 != 0, defaults.flags)?;
            let is_chosen = u64::from(id) == self.id;
            if is_chosen && let Some(tfdt) = find(traf, &[b"tfdt"]) {
                let time = match tfdt.first() {
                    Some(1) => long_number(tfdt, 4),
                    _ => number(tfdt, 4).map(u64::from),
                };
                let time = i64::try_from(time.ok_or(CUT_OFF)?).ok().filter(|time| *time <= MAX_TIME);
                self.dts = time.ok_or("the time of a fragment is not valid")?;
            }
            next = base;
            for (_, trun) in boxes(traf).filter(|(kind, _)| kind == b"trun") {
                let run = SampleRun { base, next, defaults, file_bytes };
                next = self.read_run(trun, run, is_chosen.then_some(&mut *packets))?;
            }
        }
        Ok(())
    }

    /// Reads the content of a box `trun`, and returns where its last packet ends.
    fn read_run(
        &mut self,
        trun: &[u8],
        SampleRun { base, next, defaults, file_bytes }: SampleRun,
        mut packets: Option<&mut Vec<VideoPacket>>,
    ) -> Result<u64, &'static str> {
        let mut fields = Fields { bytes: trun, at: 0 };
        let (flags, count) = (fields.next()?, fields.next()?);
        let mut at = next;
        if flags & 1 != 0 {
            let distance = i64::from(fields.next()?.cast_signed());
            at = base.checked_add_signed(distance).ok_or("the packets of a fragment lie before the file")?;
        }
        let mut first_flags = fields.next_if(flags & 4 != 0, defaults.flags)?;
        for _ in 0..count {
            let duration = fields.next_if(flags & 0x100 != 0, defaults.duration)?;
            let bytes = fields.next_if(flags & 0x200 != 0, defaults.bytes)?;
            let sample_flags = fields.next_if(flags & 0x400 != 0, first_flags)?;
            first_flags = defaults.flags;
            let offset = fields.next_if(flags & 0x800 != 0, 0)?.cast_signed();
            let end = at.checked_add(bytes.into()).filter(|end| *end <= file_bytes);
            let end = end.ok_or("the packets of a fragment reach beyond the end of the file")?;
            self.passed += u64::from(bytes);
            if bytes == 0 && flags & 0xf00 == 0 || self.passed > file_bytes {
                return Err("packets of fragments are empty, or lie over one another");
            }
            if let Some(packets) = &mut packets {
                let duration = if duration > i32::MAX.cast_unsigned() { 1 } else { duration };
                // A packet without bytes shows the picture before for longer.
                if bytes > 0 {
                    if packets.len() == MAX_PACKETS {
                        return Err("the file has more than 16,777,216 packets");
                    }
                    packets.push(VideoPacket {
                        offset: at,
                        bytes,
                        pts: self.dts + i64::from(offset),
                        dts: self.dts,
                        duration,
                        is_key: sample_flags & 0x0101_0000 == 0,
                        is_droppable: sample_flags >> 22 & 3 == 2,
                        is_shown: true,
                    });
                }
                self.dts += i64::from(duration);
                if self.dts > MAX_TIME {
                    return Err("the time of a fragment is not valid");
                }
            }
            at = end;
        }
        Ok(at)
    }
}

/// Returns the packets of a track in the fragments of a file that is in memory; `mvex` is the content of that box.
pub(crate) fn fragment_packets(mvex: &[u8], id: u32, file: &[u8]) -> Result<Vec<VideoPacket>, MediaError> {
    let (mut fragments, mut packets) = (Fragments::new(mvex, id.into()), Vec::new());
    let mut cursor = Cursor::new(file.len() as u64, 0);
    let mut input = Input::new(&mut cursor, file);
    while input.at() < input.file_bytes() {
        let Some(head) = BoxHead::read(&mut input, FRAGMENT)? else { break };
        if &head.kind == b"moof"
            && let Some(content) = head.content(&mut input, FRAGMENT)?
        {
            let read = fragments.read(content, input.at(), input.file_bytes(), &mut packets);
            read.map_err(|problem| input.malformed(problem))?;
        }
        input.skip(head.bytes);
    }
    Ok(packets)
}

/// Where a run of packets lies, and what its packets have.
#[derive(Clone, Copy, Debug)]
struct SampleRun {
    /// What the run counts its place from.
    base: u64,
    /// Its place if it does not say one.
    next: u64,
    defaults: SampleDefaults,
    file_bytes: u64,
}
