//! Video files: tables that come in parts, and tables of packets.

use spdl_media::{
    ChannelMix, MediaError, Sound, SoundScratch, StoredVideo, Video, VideoReader, VideoTable, encode_stored_video,
    encode_video_table, sound_begin_nanos,
};

use crate::input::FuzzInput;

/// More frames of sound than the packets that fit into an input need.
const MAX_SOUND_FRAMES: u64 = 1 << 16;

/// Checks that a video is the same whether it is in memory or comes in parts, that its packets lie in the file, and that their table has
/// them all.
pub(crate) fn read(data: &[u8]) {
    let mut input = FuzzInput(data);
    let nth = usize::from(input.byte() & 1);
    let file = input.0;
    read_sound(file);
    let in_parts = read_in_parts(file, nth);
    let mut reader = VideoReader::with_track(file.len() as u64, nth);
    let in_memory = loop {
        match reader.read(&file[place(reader.wants().start)..]) {
            Ok(None) => {}
            Ok(Some(video)) => break Ok(video),
            Err(error) => break Err(error),
        }
    };
    assert_eq!(in_memory, in_parts);
    let Ok(video) = in_memory else { return };
    for packet in &video.packets {
        let end = packet.offset.checked_add(packet.bytes.into());
        assert!(packet.bytes > 0 && end.is_some_and(|end| end <= file.len() as u64), "{packet:?}");
    }
    check_table(&video);
}

/// Reads the sound of a video, of which a copy is not larger than the heads of its packets allow, and decodes its beginning.
fn read_sound(file: &[u8]) {
    if sound_begin_nanos(file).is_err() {
        return;
    }
    let mut scratch = SoundScratch::default();
    let Ok(sound) = Sound::open(file, &mut scratch) else { return };
    // At most 64 bytes were left out of each packet, which may have one.
    let most = 65 * file.len() as u64;
    assert!(sound.copy_bytes() <= most, "{} of {} bytes", sound.copy_bytes(), file.len());
    _ = sound.decode(0..sound.frames().min(MAX_SOUND_FRAMES), ChannelMix::Mean, &mut scratch, |_| ());
}

/// Reads a video from the parts that it asks for.
fn read_in_parts(file: &[u8], nth: usize) -> Result<Video, MediaError> {
    let mut reader = VideoReader::with_track(file.len() as u64, nth);
    loop {
        let wanted = reader.wants();
        if let Some(video) = reader.read(&file[place(wanted.start)..place(wanted.end)])? {
            return Ok(video);
        }
        assert_ne!(reader.wants(), wanted, "the same bytes are wanted again");
    }
}

/// Checks that the table of packets has them all, and that decoding a frame ends with it.
fn check_table(video: &Video) {
    let Ok(bytes) = encode_video_table(&video.packets) else { return };
    let stored = encode_stored_video(video).expect("it has a table");
    let read = StoredVideo::read(&stored).expect("what was stored");
    assert_eq!((&read.track, read.table), (&video.track, &bytes[..]));
    let table = VideoTable::read(&bytes).expect("a table that was written");
    let blocks = 0..table.blocks();
    let all = table.place(blocks.clone());
    let blocks = table.read_blocks(blocks, &bytes[place(all.start)..place(all.end)]).expect("its blocks");
    assert_eq!(blocks.packets(), video.packets);
    let frames = table.frames();
    for frame in [0, frames / 3, frames / 2, frames.saturating_sub(1)] {
        let Some(part) = table.blocks_of(frame..frame + 1) else {
            assert_eq!(frames, 0, "frame {frame} has no block");
            continue;
        };
        let at = table.place(part.clone());
        let part = table.read_blocks(part, &bytes[place(at.start)..place(at.end)]).expect("blocks");
        let packet = part.packet_of(frame).expect("the packet of a frame");
        let numbers =
            |first: u64, needed: Vec<usize>| needed.into_iter().map(|nth| first + nth as u64).collect::<Vec<_>>();
        let needed = part.needed(&[frame]).map(|needed| numbers(part.first_packet(), needed));
        assert_eq!(needed, blocks.needed(&[frame]).map(|needed| numbers(0, needed)), "frame {frame}");
        if let Some(needed) = needed {
            assert_eq!(needed.last(), Some(&(part.first_packet() + packet as u64)));
        }
    }
}

/// Reads a table of packets that nobody wrote, and what was stored of a video.
pub(crate) fn table(data: &[u8]) {
    let stored = StoredVideo::read(data).ok();
    let data = stored.as_ref().map_or(data, |stored| stored.table);
    let Ok(table) = VideoTable::read(data) else { return };
    let mut packets = 0;
    for block in 0..table.blocks() {
        let at = table.place(block..block + 1);
        let Some(bytes) = data.get(place(at.start)..place(at.end)) else { continue };
        if let Ok(block) = table.read_blocks(block..block + 1, bytes) {
            packets += block.packets().len() as u64;
            let first = block.packets().first().map_or(0, |packet| packet.pts);
            if let Some(frame) = block.frame_at(first) {
                assert!(block.packet_of(frame).is_some(), "frame {frame}");
                _ = block.needed(&[frame]);
            }
        }
    }
    assert!(packets <= table.packets());
    assert!(stored.is_none() || packets == table.packets(), "each block was checked");
    for frame in [0, table.frames() / 2, table.frames().saturating_sub(1)] {
        _ = table.blocks_of(frame..frame + 1);
        _ = table.blocks_at(frame.cast_signed());
    }
}

fn place(byte: u64) -> usize {
    usize::try_from(byte).expect("in memory")
}

/// Returns small files of several programs.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    FILES.into_iter().map(|file| [&[0], file].concat()).collect()
}

/// Returns tables of the packets of such files, and what is stored of these.
pub(crate) fn table_seeds() -> Vec<Vec<u8>> {
    let videos = || FILES.into_iter().filter_map(|file| read_in_parts(file, 0).ok());
    let tables = videos().filter_map(|video| encode_video_table(&video.packets).ok());
    tables.chain(videos().filter_map(|video| encode_stored_video(&video).ok())).collect()
}

const FILES: [&[u8]; 8] = [
    include_bytes!("../../../crates/media/tests/videos/tables.mp4"),
    include_bytes!("../../../crates/media/tests/videos/open-gop.mp4"),
    include_bytes!("../../../crates/media/tests/videos/fragments.mp4"),
    include_bytes!("../../../crates/media/tests/videos/hevc.mov"),
    include_bytes!("../../../crates/media/tests/videos/groups.mkv"),
    include_bytes!("../../../crates/media/tests/videos/live.mkv"),
    include_bytes!("../../../crates/media/tests/videos/stripped.mkv"),
    include_bytes!("../../../crates/media/tests/videos/vp9.webm"),
];
