//! Videos of several programs, what is read of them, and their tables of packets.

mod excerpt;
mod ffprobe;
mod golden;
mod hostile;
#[path = "../programs/mod.rs"]
mod programs;
mod sound;
mod table;

use spdl_media::{MediaError, Video, VideoBlocks, VideoPacket, VideoReader, VideoTable, encode_video_table};

/// Reads a video from requests, as from a store, and returns how many there were and for how many bytes.
fn read(file: &[u8]) -> Result<(Video, usize, u64), MediaError> {
    let mut reader = VideoReader::new(file.len() as u64);
    let (mut requests, mut bytes) = (0, 0);
    loop {
        let wanted = reader.wants();
        assert!(wanted.end <= file.len() as u64, "{wanted:?} of {}", file.len());
        (requests, bytes) = (requests + 1, bytes + wanted.end - wanted.start);
        let place = |byte: u64| usize::try_from(byte).unwrap();
        if let Some(video) = reader.read(&file[place(wanted.start)..place(wanted.end)])? {
            return Ok((video, requests, bytes));
        }
        assert_ne!(reader.wants(), wanted, "the same bytes are wanted again");
    }
}

/// Checks that a table has all packets, each frame in its place, and returns its bytes.
fn check_table(video: &Video) -> usize {
    let bytes = encode_video_table(&video.packets).unwrap();
    let table = VideoTable::read(&bytes).unwrap();
    let place = |blocks: std::ops::Range<usize>| {
        let place = table.place(blocks);
        usize::try_from(place.start).unwrap()..usize::try_from(place.end).unwrap()
    };
    let all = table.read_blocks(0..table.blocks(), &bytes[place(0..table.blocks())]).unwrap();
    assert_eq!(all.packets(), video.packets);
    assert_eq!(all, VideoBlocks::of_all(video.packets.clone()));
    assert_eq!(place(0..table.blocks()).end, bytes.len());
    let mut shown: Vec<usize> = (0..video.packets.len()).filter(|nth| video.packets[*nth].is_shown).collect();
    shown.sort_by_key(|nth| video.packets[*nth].pts);
    assert_eq!((table.packets(), table.frames()), (video.packets.len() as u64, shown.len() as u64));
    assert!(all.begins().eq(shown.iter().map(|packet| video.packets[*packet].pts)));
    for (frame, packet) in shown.iter().enumerate() {
        let (frame, shown) = (frame as u64, &video.packets[*packet]);
        let blocks = table.blocks_of(frame..frame + 1).unwrap();
        let read = table.read_blocks(blocks.clone(), &bytes[place(blocks.clone())]).unwrap();
        let found = read.packet_of(frame).unwrap();
        assert_eq!((&read.packets()[found], read.first_packet() + found as u64), (shown, *packet as u64));
        // Of equal times, the last frame is found, which may be in another block.
        let at = table.blocks_at(shown.pts).unwrap();
        let at = table.read_blocks(at.clone(), &bytes[place(at)]).unwrap();
        let last = at.frame_at(shown.pts).unwrap();
        assert!(last >= frame && at.packets()[at.packet_of(last).unwrap()].pts == shown.pts, "frame {frame}");
        assert_eq!(read.needed(&[frame]).map(|needed| needed.len()), all.needed(&[frame]).map(|needed| needed.len()));
        if let Some(needed) = read.needed(&[frame]) {
            assert!(read.packets()[needed[0]].is_key && *needed.last().unwrap() == found, "frame {frame}");
        }
    }
    // Of several frames, in any order, all packets are needed that each of them needs.
    for frame in 0..table.frames() {
        for other in [frame + 1, frame + 3, frame + 10] {
            let (Some(both), Some(one)) = (all.needed(&[other, frame]), all.needed(&[frame])) else { continue };
            let other = all.needed(&[other]).unwrap();
            assert!(both.is_sorted_by(|one, next| one < next), "{both:?}");
            assert!(one.iter().chain(&other).all(|packet| both.contains(packet)), "frame {frame}");
            assert!(both.iter().all(|packet| one.contains(packet) || other.contains(packet)), "frame {frame}");
        }
    }
    assert_eq!(table.blocks_of(table.frames()..table.frames() + 1), None);
    bytes.len()
}

/// Returns the bytes of a packet, with what comes before each.
fn packet_bytes(video: &Video, packet: &VideoPacket, file: &[u8]) -> Vec<u8> {
    let start = usize::try_from(packet.offset).unwrap();
    [&video.track.packet_prefix, &file[start..start + packet.bytes as usize]].concat()
}

/// Returns the checksum that `ffprobe` shows.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}
