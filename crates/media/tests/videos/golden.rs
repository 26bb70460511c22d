//! Small files of several programs beside what `ffprobe` says of them, in `packets.txt`.

use spdl_media::{Video, VideoCodec, VideoColor, VideoRotation, VideoTrack, is_reference};

use super::{check_table, checksum, packet_bytes, read};

/// Each file with its description, without what its decoder has to know, of which there is only the length.
fn files() -> Vec<(&'static str, &'static [u8], VideoTrack, usize)> {
    let h264 = VideoTrack {
        id: 1,
        codec: VideoCodec::H264,
        extra_data: Vec::new(),
        packet_prefix: Vec::new(),
        width: 64,
        height: 48,
        rotation: VideoRotation::None,
        pixel_aspect: [1, 1],
        color: VideoColor::default(),
        time_base: [1, 10_240],
    };
    let matroska = VideoTrack { time_base: [1, 1000], ..h264.clone() };
    let hd = VideoColor { primaries: 1, transfer: 1, matrix: 1, is_full_range: None };
    vec![
        ("tables.mp4", include_bytes!("tables.mp4"), h264.clone(), 46),
        (
            "open-gop.mp4",
            include_bytes!("open-gop.mp4"),
            VideoTrack { rotation: VideoRotation::ThreeQuarters, ..h264.clone() },
            46,
        ),
        ("fragments.mp4", include_bytes!("fragments.mp4"), h264.clone(), 46),
        (
            "hevc.mov",
            include_bytes!("hevc.mov"),
            VideoTrack { codec: VideoCodec::Hevc, pixel_aspect: [3, 2], color: hd, ..h264 },
            112,
        ),
        ("groups.mkv", include_bytes!("groups.mkv"), matroska.clone(), 46),
        ("live.mkv", include_bytes!("live.mkv"), matroska.clone(), 46),
        (
            "stripped.mkv",
            include_bytes!("stripped.mkv"),
            VideoTrack { codec: VideoCodec::Mpeg4, packet_prefix: vec![0, 0, 1], ..matroska.clone() },
            31,
        ),
        ("vp9.webm", include_bytes!("vp9.webm"), VideoTrack { codec: VideoCodec::Vp9, ..matroska }, 0),
    ]
}

/// Returns the lines about a file in what `ffprobe` says: times, length, flags and checksum of each packet.
fn packets(name: &str) -> impl Iterator<Item = [&'static str; 5]> {
    let lines = include_str!("packets.txt").lines().skip_while(move |line| *line != name).skip(1);
    let fields = |line: &'static str| Vec::from_iter(line.split('|')).try_into().ok();
    lines.map_while(fields)
}

#[test]
fn packets_are_where_they_are_and_have_their_times_and_flags() {
    for (name, file, _, _) in files() {
        let (video, _, _) = read(file).unwrap();
        check_table(&video);
        let mut theirs = packets(name);
        for (nth, packet) in video.packets.iter().enumerate() {
            let Some([pts, dts, bytes, flags, hash]) = theirs.next() else {
                assert!(!packet.is_shown, "{name}: {packet:?} is behind the end");
                continue;
            };
            let packet_bytes = packet_bytes(&video, packet, file);
            assert_eq!(packet.pts.to_string(), pts, "{name}, packet {nth}");
            assert_eq!(packet_bytes.len().to_string(), bytes, "{name}, packet {nth}");
            assert_eq!(format!("CRC32:{:08x}", checksum(&packet_bytes)), hash, "{name}, packet {nth}");
            assert_eq!(
                (packet.is_key, !packet.is_shown),
                (flags.contains('K'), flags.contains('D')),
                "{name}, packet {nth}"
            );
            // Matroska has no times of decoding, and `ffprobe` guesses them.
            let is_guessed = name.ends_with(".mkv");
            assert!(is_guessed || packet.dts.to_string() == dts, "{name}, packet {nth}: {packet:?}, not {dts}");
            assert!(packet.dts <= packet.pts, "{name}, packet {nth}: {packet:?}");
        }
        assert_eq!(theirs.count(), 0, "{name}");
    }
}

#[test]
fn tracks_are_described() {
    for (name, file, expected, extra_bytes) in files() {
        let (Video { mut track, tracks, .. }, _, _) = read(file).unwrap();
        assert_eq!((tracks, track.extra_data.len()), (1, extra_bytes), "{name}");
        track.extra_data.clear();
        assert_eq!(track, expected, "{name}");
    }
}

#[test]
fn pictures_that_no_other_one_refers_to_are_known_by_their_heads() {
    for (name, expected) in [
        // As FFmpeg decodes them if it is to leave out the others.
        ("tables.mp4", "###..##..##.#.##.##.###..##..##.#.##.##."),
        ("hevc.mov", "###..##..##..##.##..##..##..##.##..##..#"),
    ] {
        let file = file(name);
        let (video, _, _) = read(file).unwrap();
        let heads = video.packets.iter().map(|packet| {
            let bytes = packet_bytes(&video, packet, file);
            is_reference(&video.track.codec, &video.track.extra_data, &bytes)
        });
        let seen: String = heads.map(|head| ["?", ".", "#"][head.map_or(0, |head| 1 + usize::from(head))]).collect();
        assert_eq!(seen, expected, "{name}");
    }
    assert_eq!(is_reference(&VideoCodec::Vp9, &[], &[0x82]), None);
    assert_eq!(is_reference(&VideoCodec::H264, &[], &[0, 0, 0, 1, 0x65]), None);
    assert_eq!(is_reference(&VideoCodec::H264, &[1, 0, 0, 0, 3], &[0, 0, 0, 9, 0x65]), None);
}

/// Returns a file by its name.
fn file(name: &str) -> &'static [u8] {
    files().into_iter().find_map(|(found, file, ..)| (found == name).then_some(file)).unwrap()
}

#[test]
fn what_a_file_says_about_droppable_pictures_is_read() {
    // A table of QuickTime, which has what the packets say.
    let quicktime = file("hevc.mov");
    let (video, _, _) = read(quicktime).unwrap();
    for packet in &video.packets {
        let bytes = packet_bytes(&video, packet, quicktime);
        let is_reference = is_reference(&video.track.codec, &video.track.extra_data, &bytes);
        assert_eq!(Some(!packet.is_droppable), is_reference, "{packet:?}");
    }
    // The flags of all but the first picture of the first fragment.
    let mut fragments = file("fragments.mp4").to_vec();
    let head = fragments.windows(4).position(|name| name == b"tfhd").unwrap();
    let flags = head + fragments[head..].windows(4).position(|flags| flags == [1, 1, 0, 0]).unwrap();
    fragments[flags + 1] |= 0x80;
    let droppable = |file: &[u8]| {
        let (video, _, _) = read(file).unwrap();
        (0..video.packets.len()).filter(|nth| video.packets[*nth].is_droppable).collect::<Vec<_>>()
    };
    assert_eq!(droppable(&fragments), (1..10).collect::<Vec<_>>());
    // The last bit before the packet in a simple block of Matroska.
    let mut live = file("live.mkv").to_vec();
    let (video, _, _) = read(&live).unwrap();
    live[usize::try_from(video.packets[3].offset).unwrap() - 1] |= 1;
    assert_eq!(droppable(&live), [3]);
}
