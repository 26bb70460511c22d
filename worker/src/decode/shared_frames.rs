//! Frames that several samples of a batch take of one video. Packets from a key frame on, as far as decoding does not begin anew, are a
//! run. The sample that comes first to a run decodes it for all samples whose decoding begins there, and keeps their frames.
//!
//! A sample has the frames that it would have alone: its runs begin at the same packets, and if decoding for several fails, each
//! decodes alone. So what is wrong with a video becomes known to the samples that need its packets, and to no others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use spdl_frames::{FrameDecodeError, FrameDecoders, FramePlanes, FrameRequest, KeptFrame, PacketBytes};
use spdl_media::VideoTrack;

use super::{
    SampleKey,
    memory::DecodeMemory,
    read_video::{FrameChoice, SeriesFrames},
    sample_clip::SampleClip,
    taken_video::{NeededPacket, TakenVideo},
};

/// Which video it is, of those of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum VideoIdentity {
    /// That whose track lies at this address.
    Track(usize),
    /// A file that was read whole: its block, and where it begins and ends in the shard.
    File(u32, u64, u64),
}

/// A sample that takes frames of a video, and the column for which it does.
#[derive(Debug)]
pub(crate) struct FrameUser<'v> {
    choice: &'v FrameChoice,
    key: SampleKey,
    frames: UserFrames<'v>,
    /// Whether the sample is being decoded, or was.
    is_claimed: AtomicBool,
}

/// Which frames a sample takes.
#[derive(Debug)]
pub(crate) enum UserFrames<'v> {
    /// Those of its clip.
    Clip(SampleClip<'v>),
    /// Those that a record of a series names.
    Series(&'v SeriesFrames),
}

/// A video of which several samples take frames.
pub(crate) struct SharedVideo<'v> {
    seed: u64,
    memory: Arc<DecodeMemory>,
    users: Vec<FrameUser<'v>>,
    /// The runs that several samples need, in their order; known once the first sample comes.
    runs: OnceLock<Vec<SharedRun>>,
}

/// A run that several samples need.
struct SharedRun {
    /// The number of its first packet.
    start: u64,
    /// Its number in the memory that keeps its frames.
    number: u64,
    users: Vec<RunUser>,
    /// Held while it is decoded.
    decoding: Mutex<()>,
    /// Whether decoding it for several samples has failed.
    has_failed: AtomicBool,
}

/// What a sample needs of a run.
struct RunUser {
    user: usize,
    packets: Vec<RunPacket>,
    times: Vec<i64>,
    /// Whether the sample needs it no longer.
    is_done: AtomicBool,
}

#[derive(Clone, Copy)]
struct RunPacket {
    number: u64,
    pts: i64,
    is_wanted: bool,
}

/// A run that a sample needs.
struct OwnRun<'d, 'b> {
    packets: &'d [NeededPacket<'b>],
    /// When the frames of the sample are shown, ascending.
    times: Vec<i64>,
    shared: Option<&'d SharedRun>,
}

/// Packets to be decoded for a sample and for others.
struct CommonPackets<'b> {
    packets: Vec<NeededPacket<'b>>,
    /// By their times, the frames for others: the number of their run, and how many samples take each.
    kept: BTreeMap<i64, (u64, usize)>,
}

/// The packets that the frames of a sample take, and what decodes them.
pub(super) struct FrameDecoding<'d, 'b> {
    pub(super) frames: &'d FrameDecoders,
    pub(super) taken: &'d TakenVideo,
    /// Returns the bytes of the packet at a place, if they are there.
    pub(super) bytes_of: &'d dyn Fn(usize) -> Option<&'b [u8]>,
    pub(super) packets: &'d [NeededPacket<'b>],
    pub(super) max_pixels: u64,
}

/// Called with each frame, and when it is shown.
type OnFrame<'f> = dyn FnMut(i64, FramePlanes<'_>) + 'f;

impl VideoIdentity {
    /// Returns the identity of a video of which parts were read.
    pub(crate) fn of_track(track: &Arc<VideoTrack>) -> Self {
        Self::Track(Arc::as_ptr(track).addr())
    }
}

impl<'v> FrameUser<'v> {
    pub(crate) const fn new(choice: &'v FrameChoice, key: SampleKey, frames: UserFrames<'v>) -> Self {
        Self { choice, key, frames, is_claimed: AtomicBool::new(false) }
    }
}

impl<'v> SharedVideo<'v> {
    pub(super) fn new(seed: u64, memory: Arc<DecodeMemory>, users: Vec<FrameUser<'v>>) -> Self {
        Self { seed, memory, users, runs: OnceLock::new() }
    }

    /// Decodes the frames of a sample, or takes those that were decoded for others.
    pub(super) fn decode(
        &self,
        (choice, key): (&FrameChoice, SampleKey),
        decoding: &FrameDecoding<'_, '_>,
        on_frame: &mut OnFrame<'_>,
    ) -> Result<(), FrameDecodeError> {
        let is_it = |user: &FrameUser<'_>| {
            std::ptr::eq(user.choice, choice) && user.key == key && !user.is_claimed.swap(true, Relaxed)
        };
        let Some(user) = self.users.iter().position(is_it) else { return decoding.decode(on_frame) };
        let runs = self.runs.get_or_init(|| self.find_runs(decoding));
        let outcome = self.decode_runs(user, runs, decoding, on_frame);
        let of_user = runs.iter().flat_map(|run| &run.users).filter(|other| other.user == user);
        of_user.for_each(|of_user| of_user.is_done.store(true, Relaxed));
        outcome
    }

    /// Finds the runs that several samples need.
    fn find_runs(&self, decoding: &FrameDecoding<'_, '_>) -> Vec<SharedRun> {
        let mut found: BTreeMap<u64, Vec<RunUser>> = BTreeMap::new();
        for (nth, user) in self.users.iter().enumerate() {
            // What cannot be chosen or was not read is reported when the sample is decoded.
            let packets = match &user.frames {
                UserFrames::Series(frames) => {
                    TakenVideo::of_frames(frames).packets(&|place| frames.video.packet(place)).ok()
                }
                UserFrames::Clip(clip) => {
                    let chosen = decoding.taken.choose_other(clip, (self.seed, user.key)).ok();
                    chosen.and_then(|chosen| chosen.packets(decoding.bytes_of).ok())
                }
            };
            for run in packets.iter().flat_map(|packets| runs_of(packets)) {
                found.entry(run[0].number).or_default().push(RunUser::new(nth, run));
            }
        }
        found.retain(|_, users| users.len() > 1);
        let run = |(start, users)| {
            let (decoding, has_failed) = Default::default();
            SharedRun { start, number: self.memory.new_run(), users, decoding, has_failed }
        };
        found.into_iter().map(run).collect()
    }

    fn decode_runs(
        &self,
        user: usize,
        shared: &[SharedRun],
        decoding: &FrameDecoding<'_, '_>,
        on_frame: &mut OnFrame<'_>,
    ) -> Result<(), FrameDecodeError> {
        let own = runs_of(decoding.packets).map(|packets| {
            let found = shared.binary_search_by_key(&packets[0].number, |run| run.start).ok();
            OwnRun { packets, times: times_of(packets), shared: found.map(|run| &shared[run]) }
        });
        let mut left: Vec<OwnRun<'_, '_>> = own.collect();
        // Of frames of one time, the first is taken: then the order of runs matters.
        let times: BTreeSet<i64> = left.iter().flat_map(|run| &run.times).copied().collect();
        let is_alone = left.iter().all(|run| run.shared.is_none());
        if is_alone || times.len() < left.iter().map(|run| run.times.len()).sum() {
            return decoding.decode(on_frame);
        }
        left.retain(|run| !self.take(run, on_frame));
        // All samples lock runs in their order.
        let locks: Vec<_> = left.iter().filter_map(|run| run.shared).map(|run| run.decoding.lock()).collect();
        left.retain(|run| !self.take(run, on_frame));
        if left.is_empty() {
            return Ok(());
        }
        let common = self.common(user, &left, decoding);
        // Without frames for others, these need not wait.
        if !common.kept.is_empty() {
            let own: BTreeSet<i64> = left.iter().flat_map(|run| &run.times).copied().collect();
            let mut on_common = |pts, planes: FramePlanes<'_>| {
                if own.contains(&pts) {
                    on_frame(pts, planes);
                }
                if let Some((run, uses)) = common.kept.get(&pts) {
                    self.memory.keep_frame((*run, pts), KeptFrame::new(&planes), *uses);
                }
            };
            if decoding.decode_packets(common.packets.iter(), &mut on_common).is_ok() {
                return Ok(());
            }
            left.iter().filter_map(|run| run.shared).for_each(|run| run.has_failed.store(true, Relaxed));
        }
        drop(locks);
        decoding.decode_packets(left.iter().flat_map(|run| run.packets), on_frame)
    }

    /// Takes the frames of a run that were decoded for others. Returns whether they were there.
    fn take(&self, run: &OwnRun<'_, '_>, on_frame: &mut OnFrame<'_>) -> bool {
        let Some(shared) = run.shared.filter(|shared| self.memory.has_frames(shared.number, &run.times)) else {
            return false;
        };
        run.times.iter().all(|pts| {
            // Another picture may have got its memory since.
            let frame = self.memory.take_frame(shared.number, *pts);
            frame.map(|frame| on_frame(*pts, frame.planes())).is_some()
        })
    }

    /// Returns the packets of runs with those that other samples need of these, as far as there is memory for their frames.
    fn common<'c, 'b: 'c>(
        &'c self,
        user: usize,
        own: &[OwnRun<'_, 'b>],
        decoding: &FrameDecoding<'_, 'b>,
    ) -> CommonPackets<'c> {
        let [width, height] = [decoding.taken.track.width, decoding.taken.track.height].map(u64::from);
        let frame_bytes = (width * height * 3 / 2).max(1);
        let mut room = self.memory.frames_room();
        // Frames are known by their times, so no two may have one.
        let of_own = own.iter().flat_map(|run| run.packets).filter(|packet| packet.is_wanted);
        let mut of_times: BTreeMap<i64, u64> = of_own.map(|packet| (packet.pts, packet.number)).collect();
        let mut common = CommonPackets { packets: Vec::new(), kept: BTreeMap::new() };
        for (nth, run) in own.iter().enumerate() {
            let mut packets: BTreeMap<u64, NeededPacket<'c>> =
                run.packets.iter().map(|packet| (packet.number, packet.clone())).collect();
            let next = own.get(nth + 1).map_or(u64::MAX, |next| next.packets[0].number);
            let Some(shared) = run.shared.filter(|shared| !shared.has_failed.load(Relaxed)) else {
                common.packets.extend(packets.into_values());
                continue;
            };
            for other in shared.others(user, next) {
                let is_known =
                    |packet: &RunPacket| of_times.get(&packet.pts).is_none_or(|known| *known == packet.number);
                if !other.wanted().all(is_known) {
                    continue;
                }
                let new = other.times.iter().filter(|pts| !common.kept.contains_key(pts)).count();
                let bytes = frame_bytes * new as u64;
                if bytes > room {
                    break;
                }
                let Some(theirs) = self.packets_of(other, decoding) else { continue };
                room -= bytes;
                of_times.extend(other.wanted().map(|packet| (packet.pts, packet.number)));
                for pts in &other.times {
                    common.kept.entry(*pts).or_insert((shared.number, 0)).1 += 1;
                }
                for packet in theirs {
                    let is_wanted = packet.is_wanted;
                    packets.entry(packet.number).or_insert(packet).is_wanted |= is_wanted;
                }
            }
            for (number, packet) in &mut packets {
                packet.begins_anew = *number == run.packets[0].number && run.packets[0].begins_anew;
            }
            common.packets.extend(packets.into_values());
        }
        common
    }

    /// Returns what another sample needs of a run; `None` if it is not there.
    fn packets_of<'c, 'b: 'c>(
        &'c self,
        other: &RunUser,
        decoding: &FrameDecoding<'_, 'b>,
    ) -> Option<Vec<NeededPacket<'c>>> {
        let frames = &self.users[other.user].frames;
        let first = match frames {
            UserFrames::Series(frames) => frames.video.blocks.first_packet(),
            UserFrames::Clip(_) => decoding.taken.first_packet(),
        };
        let packet = |RunPacket { number, pts, is_wanted }: &RunPacket| {
            let place = usize::try_from(number - first).ok()?;
            let bytes: &'c [u8] = match frames {
                UserFrames::Series(frames) => frames.video.packet(place)?,
                UserFrames::Clip(_) => (decoding.bytes_of)(place)?,
            };
            let bytes = decoding.taken.with_prefix(bytes);
            Some(NeededPacket { number: *number, pts: *pts, bytes, begins_anew: false, is_wanted: *is_wanted })
        };
        other.packets.iter().map(packet).collect()
    }
}

impl SharedRun {
    /// Returns the other samples that still need the run, and no packet from `next` on; those that need the fewest packets first.
    fn others(&self, user: usize, next: u64) -> Vec<&RunUser> {
        let is_other = |other: &&RunUser| {
            other.user != user && !other.is_done.load(Relaxed) && other.last().is_some_and(|last| last < next)
        };
        let mut others: Vec<&RunUser> = self.users.iter().filter(is_other).collect();
        others.sort_by_key(|other| other.last());
        others
    }
}

impl RunUser {
    fn new(user: usize, packets: &[NeededPacket<'_>]) -> Self {
        let packet = |packet: &NeededPacket<'_>| {
            let NeededPacket { number, pts, is_wanted, .. } = *packet;
            RunPacket { number, pts, is_wanted }
        };
        let (times, packets) = (times_of(packets), packets.iter().map(packet).collect());
        Self { user, packets, times, is_done: AtomicBool::new(false) }
    }

    /// Returns the packets whose frames the sample takes.
    fn wanted(&self) -> impl Iterator<Item = &RunPacket> {
        self.packets.iter().filter(|packet| packet.is_wanted)
    }

    /// Returns the number of its last packet.
    fn last(&self) -> Option<u64> {
        self.packets.last().map(|packet| packet.number)
    }
}

impl FrameDecoding<'_, '_> {
    /// Decodes the frames of a sample.
    pub(super) fn decode(&self, on_frame: &mut OnFrame<'_>) -> Result<(), FrameDecodeError> {
        self.decode_packets(self.packets.iter(), on_frame)
    }

    fn decode_packets<'p, 'c: 'p>(
        &self,
        packets: impl Iterator<Item = &'p NeededPacket<'c>> + Clone,
        on_frame: &mut OnFrame<'_>,
    ) -> Result<(), FrameDecodeError> {
        let wanted = times_of(packets.clone());
        let packets: Vec<PacketBytes<'_>> = packets.map(NeededPacket::as_bytes).collect();
        let VideoTrack { codec, extra_data, .. } = &*self.taken.track;
        let (packets, max_pixels) = (&packets[..], self.max_pixels);
        let request = FrameRequest { codec, extra_data, packets, wanted: &wanted, max_pixels };
        self.frames.decode(&request, &mut |nth, planes| on_frame(wanted[nth], planes))
    }
}

/// Returns the runs of packets.
fn runs_of<'d, 'b>(packets: &'d [NeededPacket<'b>]) -> impl Iterator<Item = &'d [NeededPacket<'b>]> {
    packets.chunk_by(|_, next| !next.begins_anew)
}

/// Returns when the frames of packets are shown that are taken, ascending and without doubles.
fn times_of<'p, 'b: 'p>(packets: impl IntoIterator<Item = &'p NeededPacket<'b>>) -> Vec<i64> {
    let wanted = packets.into_iter().filter(|packet| packet.is_wanted).map(|packet| packet.pts);
    wanted.collect::<BTreeSet<i64>>().into_iter().collect()
}

impl Drop for SharedVideo<'_> {
    fn drop(&mut self) {
        self.runs.get().into_iter().flatten().for_each(|run| self.memory.forget_run(run.number));
    }
}

impl fmt::Debug for SharedVideo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedVideo").field("users", &self.users).finish_non_exhaustive()
    }
}
