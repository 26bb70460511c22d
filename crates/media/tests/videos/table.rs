//! Tables of packets that are made here.

use spdl_media::{
    Video, VideoCodec, VideoColor, VideoPacket, VideoRotation, VideoTable, VideoTrack, encode_video_table,
};

use super::check_table;

/// Returns packets whose pictures are shown at these times, one after the other in a file, each with its kind: `K` for a key frame,
/// `d` for one that is droppable, and `x` for one that is not shown.
fn packets(pictures: &[(i64, char)]) -> Vec<VideoPacket> {
    let mut times: Vec<i64> = pictures.iter().map(|(pts, _)| *pts).collect();
    times.sort_unstable();
    let packet = |(nth, (pts, kind)): (usize, &(i64, char))| VideoPacket {
        offset: 1000 * nth as u64,
        bytes: 100 + u32::try_from(nth % 50).unwrap(),
        pts: *pts,
        dts: times[nth] - 4,
        duration: 1,
        is_key: *kind == 'K',
        is_droppable: *kind == 'd',
        is_shown: *kind != 'x',
    };
    pictures.iter().enumerate().map(packet).collect()
}

fn video(packets: Vec<VideoPacket>) -> Video {
    let track = VideoTrack {
        id: 1,
        codec: VideoCodec::H264,
        extra_data: Vec::new(),
        packet_prefix: Vec::new(),
        width: 2,
        height: 2,
        rotation: VideoRotation::None,
        pixel_aspect: [1, 1],
        color: VideoColor::default(),
        time_base: [1, 1],
    };
    Video { track, tracks: 1, packets }
}

/// Returns the places of the packets that decoding some frames takes.
fn needed(packets: &[VideoPacket], frames: &[u64]) -> Option<Vec<usize>> {
    let bytes = encode_video_table(packets).unwrap();
    let table = VideoTable::read(&bytes).unwrap();
    let place = table.place(0..table.blocks());
    let bytes = &bytes[usize::try_from(place.start).unwrap()..usize::try_from(place.end).unwrap()];
    table.read_blocks(0..table.blocks(), bytes).unwrap().needed(frames)
}

#[test]
fn a_frame_takes_the_packets_from_its_key_frame_on_but_no_droppable_ones() {
    // Two groups in which the third and fourth picture refer to those around them.
    let closed = packets(&[(0, 'K'), (3, ' '), (1, 'd'), (2, 'd'), (4, 'K'), (7, ' '), (5, 'd'), (6, 'd')]);
    assert_eq!(needed(&closed, &[0]), Some(vec![0]));
    assert_eq!(needed(&closed, &[2]), Some(vec![0, 1, 3]));
    assert_eq!(needed(&closed, &[5]), Some(vec![4, 5, 6]));
    assert_eq!(needed(&closed, &[6, 0, 3, 6]), Some(vec![0, 1, 4, 5, 7]));
    assert_eq!(needed(&closed, &[8]), None);
    // Pictures that are shown before their key frame refer to the group before.
    let open = packets(&[(0, 'K'), (3, ' '), (1, 'd'), (2, 'd'), (6, 'K'), (4, 'd'), (5, 'd'), (7, ' ')]);
    assert_eq!(needed(&open, &[4]), Some(vec![0, 1, 4, 5]));
    assert_eq!(needed(&open, &[6]), Some(vec![4]));
    assert_eq!(needed(&open, &[7]), Some(vec![4, 7]));
    // At the beginning there is no other group.
    assert_eq!(needed(&packets(&[(2, 'K'), (0, ' '), (1, ' ')]), &[1]), Some(vec![0, 1, 2]));
    assert_eq!(needed(&packets(&[(0, ' '), (1, 'K')]), &[0]), None);
    // Frames are counted without pictures that are not shown.
    assert_eq!(needed(&packets(&[(-2, 'K'), (-1, 'x'), (0, ' '), (1, ' ')]), &[1]), Some(vec![0, 1, 2]));
}

#[test]
fn blocks_end_before_key_frames_and_where_no_picture_is_shown_across_them() {
    let group = |start: i64, count: i64| {
        let picture = move |nth: i64| {
            (start + [0, 2, 1, 3][usize::try_from(nth % 4).unwrap()] + nth / 4 * 4, if nth == 0 { 'K' } else { ' ' })
        };
        (0..count).map(picture)
    };
    for (count, of_group) in [(3000, 3000), (3000, 252), (3000, 40), (3000, 4), (5, 5)] {
        let pictures: Vec<_> =
            (0..count).step_by(of_group).flat_map(|start| group(start, (count - start).min(of_group as i64))).collect();
        let video = video(packets(&pictures));
        let bytes = check_table(&video);
        assert!(bytes < 4 * pictures.len() + 80, "{bytes} bytes for {} packets", pictures.len());
        let table = encode_video_table(&video.packets).unwrap();
        let table = VideoTable::read(&table).unwrap();
        assert!(table.blocks() <= 1 + pictures.len() / 128, "{} blocks", table.blocks());
        // Of groups that blocks have whole, a frame takes one block.
        let of_last = table.blocks_of(table.frames() - 1..table.frames()).unwrap();
        assert_eq!(of_last.len() > 1, of_group == 3000, "{of_last:?} of {}", table.blocks());
    }
}

#[test]
fn times_of_all_kinds_come_back() {
    let mut draw = 7_u64;
    let mut next = |below: u64| {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (draw >> 33) % below
    };
    for _ in 0..50 {
        let kinds = ['K', ' ', 'd', 'x'];
        let mut pts = -5;
        let mut packets = packets(
            &(0..700)
                .map(|_| {
                    pts += next(90) as i64 - 30;
                    (pts, kinds[next(4) as usize])
                })
                .collect::<Vec<_>>(),
        );
        for packet in &mut packets {
            packet.offset = next(1 << 40);
            packet.duration = next(1 << 20) as u32;
            packet.dts += next(1000) as i64 - 500;
        }
        check_table(&video(packets));
    }
    check_table(&video(Vec::new()));
    check_table(&video(packets(&[(0, 'x'), (1, 'x')])));
}

#[test]
fn times_that_no_file_has_are_refused() {
    for time in [i64::MIN, i64::MAX] {
        let mut packets = packets(&[(0, 'K'), (1, ' ')]);
        packets[1].dts = time;
        let error = encode_video_table(&packets).unwrap_err().to_string();
        assert!(error.starts_with("has times that are too large"), "{error}");
    }
}

#[test]
fn a_picture_far_from_its_place_is_refused() {
    let pictures: Vec<_> = (0..6000).map(|nth| (if nth == 5000 { 1 } else { 2 * nth }, 'K')).collect();
    let error = encode_video_table(&packets(&pictures)).unwrap_err().to_string();
    assert!(error.starts_with("has pictures that are shown more than 4,096 packets from their places"), "{error}");
    let near: Vec<_> = (0..6000).map(|nth| (if nth == 3000 { 1 } else { 2 * nth }, 'K')).collect();
    check_table(&video(packets(&near)));
}

#[test]
fn a_table_that_is_cut_off_or_damaged_is_an_error() {
    let pictures: Vec<_> = (0..600).map(|nth| (nth, if nth % 20 == 0 { 'K' } else { ' ' })).collect();
    let bytes = encode_video_table(&packets(&pictures)).unwrap();
    let blocks = VideoTable::read(&bytes).unwrap().blocks();
    assert_eq!(bytes.first_chunk().map(VideoTable::head_bytes), Some(24 + 24 * blocks as u64));
    for end in 0..24 + 24 * blocks {
        assert!(VideoTable::read(&bytes[..end]).is_err(), "{end} bytes");
    }
    for byte in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[byte] ^= 0x41;
        let Ok(table) = VideoTable::read(&damaged) else { continue };
        for block in 0..table.blocks() {
            let place = table.place(block..block + 1);
            let bytes = damaged.get(usize::try_from(place.start).unwrap()..usize::try_from(place.end).unwrap());
            if let Some(bytes) = bytes {
                assert!(table.read_blocks(block..block + 1, &bytes[..bytes.len() - 1]).is_err(), "byte {byte}");
                _ = table.read_blocks(block..block + 1, bytes);
            }
        }
    }
}
