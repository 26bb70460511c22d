//! Excerpts of videos: what they say of the video, and the packets that they have.

use spdl_media::{OpenVideo, StoredVideo, VideoTable, encode_stored_video, encode_video_excerpt, encode_video_table};

const FILES: [&[u8]; 4] = [
    include_bytes!("open-gop.mp4"),
    include_bytes!("fragments.mp4"),
    include_bytes!("stripped.mkv"),
    include_bytes!("vp9.webm"),
];

/// Returns the bytes of a packet.
fn packet<'b>(open: &OpenVideo<'b>, nth: usize) -> Option<&'b [u8]> {
    open.bytes.packet(nth, open.video.packets.get(nth)?)
}

/// Returns the packets that the frame in the middle of a video needs.
fn needed(open: &OpenVideo<'_>) -> Vec<usize> {
    let bytes = encode_video_table(&open.video.packets).unwrap();
    let table = VideoTable::read(&bytes).unwrap();
    let place = usize::try_from(table.place(0..table.blocks()).start).unwrap();
    let blocks = table.read_blocks(0..table.blocks(), &bytes[place..]).unwrap();
    blocks.needed(&[table.frames() / 2]).unwrap()
}

#[test]
fn an_excerpt_says_what_the_file_says_and_has_its_packets_alone() {
    for file in FILES {
        let open = OpenVideo::open(file).unwrap();
        let needed = needed(&open);
        let all = open.video.packets.len();
        assert!(needed.len() < all);
        let excerpt = encode_video_excerpt(&open.video, &needed, |nth| packet(&open, nth)).unwrap().unwrap();
        assert!(excerpt.len() < file.len(), "{} of {} bytes", excerpt.len(), file.len());
        let part = OpenVideo::open(&excerpt).unwrap();
        assert_eq!(&part.video, &open.video);
        for nth in 0..all {
            let expected = needed.contains(&nth).then(|| packet(&open, nth).unwrap());
            assert_eq!(packet(&part, nth), expected, "packet {nth}");
        }
        assert_eq!(packet(&open, all).or(packet(&part, all)), None);
        for bytes in 0..excerpt.len() {
            assert!(OpenVideo::open(&excerpt[..bytes]).is_err(), "{bytes} bytes");
        }
        // What comes before the bytes of packets: whatever it says, nothing is read outside.
        let mut damaged = excerpt.clone();
        for byte in 8..excerpt.len().min(1000) {
            for value in [0, 0x7f, 0xff] {
                damaged[byte] = value;
                if let Ok(part) = OpenVideo::open(&damaged) {
                    assert!(
                        needed.iter().filter_map(|nth| packet(&part, *nth)).all(|packet| packet.len() <= file.len())
                    );
                }
            }
            damaged[byte] = excerpt[byte];
        }
    }
}

#[test]
fn packets_that_are_not_there_make_no_excerpt() {
    let open = OpenVideo::open(FILES[0]).unwrap();
    let excerpt = |packets: &[usize]| encode_video_excerpt(&open.video, packets, |nth| packet(&open, nth)).unwrap();
    assert!(excerpt(&[0, 3, 4]).is_some());
    for packets in [&[3, 0][..], &[3, 3], &[40], &[0, 4000]] {
        assert_eq!(excerpt(packets), None, "{packets:?}");
    }
    assert_eq!(encode_video_excerpt(&open.video, &[1], |_| Some([0])), Ok(None), "of another length");
    assert_eq!(encode_video_excerpt(&open.video, &[1], |_| None::<&[u8]>), Ok(None));
}

#[test]
fn what_is_stored_of_a_video_is_what_the_file_says_and_takes_few_bytes() {
    for file in FILES {
        let OpenVideo { video, .. } = OpenVideo::open(file).unwrap();
        let mut stored = encode_stored_video(&video).unwrap();
        let read = StoredVideo::read(&stored).unwrap();
        assert_eq!((&read.track, read.table), (&video.track, &encode_video_table(&video.packets).unwrap()[..]));
        let head_bytes = stored.len() - read.table.len();
        assert!(read.table.len() - 48 <= 6 * video.packets.len() && head_bytes < 90 + video.track.extra_data.len());
        for bytes in 0..stored.len() {
            assert!(StoredVideo::read(&stored[..bytes]).is_err(), "{bytes} bytes");
        }
        // Whatever it says, blocks can be read.
        for byte in 0..stored.len() {
            let before = stored[byte];
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                stored[byte] = value;
                if let Ok(read) = StoredVideo::read(&stored) {
                    let table = VideoTable::read(read.table).unwrap();
                    let place = table.place(0..table.blocks());
                    let blocks = &read.table[place.start as usize..place.end as usize];
                    table.read_blocks(0..table.blocks(), blocks).unwrap();
                }
            }
            stored[byte] = before;
        }
        stored.push(0);
        assert!(StoredVideo::read(&stored).is_err());
    }
}
