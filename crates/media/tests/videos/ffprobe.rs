//! Videos that `ffmpeg` makes: every packet is where `ffprobe` reads it, and has its times and flags.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use spdl_media::{Video, VideoPacket, is_reference};

use super::{
    check_table, checksum, packet_bytes,
    programs::{program, skipped},
    read,
};

/// Pictures that move, and a tone.
const PICTURES: &str = "-f lavfi -i testsrc2=size=160x96:rate=25:duration=6";
const TONE: &str = "-f lavfi -i sine=frequency=440:duration=6";
const H264: &str = "-c:v libx264 -preset veryfast -bf 3 -g 50 -pix_fmt yuv420p";

/// Names of files, and the arguments that make them.
fn cases() -> Vec<(&'static str, String)> {
    let with = |rest: &str| format!("{PICTURES} {H264} {rest}");
    let both = |rest: &str| format!("{PICTURES} {TONE} {H264} -c:a aac -b:a 32k -shortest {rest}");
    vec![
        ("plain.mp4", with("")),
        ("front.mp4", both("-movflags +faststart")),
        ("plain.mov", both("-timecode 01:00:00:00")),
        ("open-gop.mp4", with("-x264-params open-gop=1:keyint=30:bframes=3:b-pyramid=normal")),
        ("no-b.mp4", with("-bf 0 -tune fastdecode")),
        ("fragments.mp4", both("-movflags frag_keyframe+empty_moov+default_base_moof")),
        ("base-offsets.mp4", both("-movflags frag_keyframe")),
        ("negative.mp4", both("-movflags frag_keyframe+empty_moov+negative_cts_offsets+default_base_moof")),
        ("negative-tables.mp4", both("-movflags negative_cts_offsets")),
        ("delayed.mp4", both("-movflags frag_keyframe+delay_moov+default_base_moof")),
        ("each-frame.mp4", both("-movflags frag_every_frame+empty_moov")),
        ("dash.mp4", with("-movflags dash+frag_keyframe+global_sidx")),
        ("hybrid.mp4", with("-movflags frag_keyframe -frag_duration 1500000")),
        ("late.mp4", format!("{TONE} -itsoffset 1.3 {PICTURES} {H264} -c:a aac -shortest")),
        ("variable.mp4", with("-vf setpts=PTS+floor(random(0)*200)*N/N -fps_mode vfr -enc_time_base 1/90000")),
        (
            "hevc.mp4",
            format!(
                "{PICTURES} -c:v libx265 -preset ultrafast -tag:v hvc1 -x265-params log-level=none:bframes=4:keyint=40"
            ),
        ),
        (
            "hevc-no-shortcut.mkv",
            format!("{PICTURES} -c:v libx265 -preset ultrafast -x265-params log-level=none:bframes=4"),
        ),
        (
            "vp9.webm",
            format!(
                "{PICTURES} -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -auto-alt-ref 1 -lag-in-frames 16 -b:v 100k"
            ),
        ),
        (
            "vp9.mp4",
            format!(
                "{PICTURES} -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -b:v 100k -color_range tv -colorspace bt709"
            ),
        ),
        (
            "vp8.webm",
            format!("{PICTURES} {TONE} -c:v libvpx -deadline realtime -cpu-used 8 -b:v 100k -c:a libvorbis -shortest"),
        ),
        ("av1.mp4", format!("{PICTURES} -t 3 -c:v libaom-av1 -cpu-used 8 -usage realtime -g 20 -b:v 100k")),
        ("mpeg4.mp4", format!("{PICTURES} -c:v mpeg4 -bf 2 -q:v 9")),
        ("mpeg4.mkv", format!("{PICTURES} -c:v mpeg4 -bf 2 -q:v 9")),
        ("mjpeg.mov", format!("{PICTURES} -c:v mjpeg -q:v 9 -pix_fmt yuvj420p")),
        ("plain.mkv", both("")),
        ("short-clusters.mkv", both("-cluster_time_limit 200")),
        ("live.mkv", both("-live 1 -f matroska")),
        (
            "live.webm",
            format!(
                "{PICTURES} -c:v libvpx -deadline realtime -cpu-used 8 -b:v 100k -live 1 -dash 1 -cluster_time_limit 500"
            ),
        ),
        (
            "colors.mp4",
            with(
                "-color_primaries bt709 -color_trc bt709 -colorspace bt709 -color_range pc -movflags write_colr -aspect 4:3",
            ),
        ),
        (
            "colors.mkv",
            with("-color_primaries bt2020 -color_trc smpte2084 -colorspace bt2020nc -color_range tv -aspect 2:1"),
        ),
    ]
}

/// What is made of a file that is there, by its parts.
const COPIES: [(&str, &str, &str); 6] = [
    ("trimmed.mp4", "plain.mp4", "-ss 1.5 -i IN -c copy"),
    ("trimmed.mkv", "plain.mkv", "-ss 2.5 -i IN -c copy"),
    ("both-ends.mp4", "front.mp4", "-ss 3.2 -i IN -t 4 -c copy"),
    ("trimmed-fragments.mp4", "plain.mp4", "-ss 1.5 -i IN -c copy -movflags frag_keyframe+delay_moov"),
    ("turned.mp4", "plain.mp4", "-i IN -c copy -metadata:s:v rotate=90"),
    ("turned.mov", "plain.mp4", "-i IN -c copy -metadata:s:v rotate=180"),
];

#[test]
fn packets_are_those_that_ffprobe_reads() {
    let (Some(ffmpeg), Some(ffprobe)) = (program("ffmpeg"), program("ffprobe")) else {
        return skipped("videos of ffmpeg", "there are no `ffmpeg` and `ffprobe`: install the package `ffmpeg`");
    };
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, arguments: &mut dyn Iterator<Item = &OsStr>| {
        let command = &mut Command::new(&ffmpeg);
        command.args(["-nostdin", "-v", "error"]).args(arguments).arg(folder.path().join(name));
        assert!(command.status().unwrap().success(), "{command:?}");
    };
    let mut paths = Vec::new();
    for (name, arguments) in cases() {
        run(name, &mut arguments.split_whitespace().map(OsStr::new));
        paths.push(folder.path().join(name));
    }
    for (name, source, arguments) in COPIES {
        let source = folder.path().join(source);
        let part = |part| if part == "IN" { source.as_os_str() } else { OsStr::new(part) };
        run(name, &mut arguments.split_whitespace().map(part));
        paths.push(folder.path().join(name));
    }
    // More of them can be given as a folder.
    if let Some(more) = std::env::var_os("SPDL_VIDEOS") {
        paths.extend(fs::read_dir(more).unwrap().map(|file| file.unwrap().path()));
    }
    let differ = |path: &&PathBuf| std::panic::catch_unwind(|| check(&ffprobe, path)).is_err();
    let differing: Vec<_> = paths.iter().filter(differ).collect();
    assert!(differing.is_empty(), "{differing:?} differ");
}

/// Compares a file with what `ffprobe` says of it.
fn check(ffprobe: &Path, path: &Path) {
    let file = fs::read(path).unwrap();
    let (mut video, requests, bytes) = read(&file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let name = path.file_name().unwrap().to_string_lossy();
    let table = check_table(&video);
    if name == "negative.mp4" {
        // Where fragments have pictures that are shown before they are decoded, `ffprobe` shows all of them later.
        video.packets.iter_mut().for_each(|packet| (packet.pts, packet.dts) = (packet.pts + 1024, packet.dts + 1024));
    }
    check_references(ffprobe, path, (&video, &file));
    check_track(&name, &video, &lines(ffprobe, path, "-show_streams")[0]);
    let is_mp4 = file[4..8] != [0xdf, 0xa3, 0, 0] && !file.starts_with(b"\x1a\x45\xdf\xa3");
    let theirs = lines(ffprobe, path, "-show_packets");
    // `ffprobe` does not apply edit lists to fragments, but for their times.
    let is_cut = is_mp4 && file.windows(4).any(|name| name == b"moof");
    let mut ours = video.packets.iter();
    let is_in_order = video.packets.is_sorted_by_key(|packet| packet.pts);
    for (nth, theirs) in theirs.iter().enumerate() {
        let packet = ours.by_ref().find(|packet| {
            let is_same = if is_mp4 {
                theirs["pos"] == packet.offset.to_string()
            } else {
                packet.pts.to_string() == theirs["pts"]
            };
            // What `ffprobe` leaves out is before the first key frame of a part, or behind its end.
            assert!(is_same || !packet.is_shown, "{name}, packet {nth}: {packet:?} is not in {theirs:?}");
            is_same
        });
        let packet = packet.unwrap_or_else(|| panic!("{name}, packet {nth}: {theirs:?} is not there"));
        let expected = (
            &*theirs["size"],
            &*theirs["pts"],
            theirs["flags"].starts_with('K'),
            !theirs["flags"].contains('D') && (!is_cut || packet.pts >= 0),
        );
        let found = (
            &*(packet.bytes as usize + video.track.packet_prefix.len()).to_string(),
            &*packet.pts.to_string(),
            packet.is_key,
            packet.is_shown,
        );
        assert_eq!(found, expected, "{name}, packet {nth}: {packet:?} {theirs:?}");
        assert_eq!(
            theirs["data_hash"],
            format!("CRC32:{:08x}", checksum(&packet_bytes(&video, packet, &file))),
            "{name}, packet {nth}"
        );
        if is_mp4 || is_in_order && theirs["dts"] != "N/A" {
            assert_eq!(packet.dts.to_string(), theirs["dts"], "{name}, packet {nth}: {packet:?} {theirs:?}");
        }
        if is_mp4 {
            // Where the tables have no duration, or round it, `ffprobe` shows that of most pictures.
            let is_near = theirs["duration"].parse().map_or(true, |theirs: u32| packet.duration.abs_diff(theirs) <= 1);
            assert!(is_near || packet.duration == 0, "{name}, packet {nth}: {packet:?} {theirs:?}");
        }
    }
    assert!(ours.all(|packet| !packet.is_shown), "{name} has more packets than {}", theirs.len());
    eprintln!(
        "{name}: {} packets, {:.2} bytes each; {requests} requests of {bytes} of {} bytes",
        video.packets.len(),
        table as f64 / video.packets.len() as f64,
        file.len()
    );
}

/// Compares the pictures that others refer to with those that FFmpeg decodes if it is to leave out the others.
fn check_references(ffprobe: &Path, path: &Path, (video, file): (&Video, &[u8])) {
    let is_reference = |packet: &VideoPacket| {
        is_reference(&video.track.codec, &video.track.extra_data, &packet_bytes(video, packet, file))
    };
    if video.packets.first().and_then(is_reference).is_none() || path.extension().is_none_or(|end| end != "mp4") {
        return;
    }
    for packet in video.packets.iter().filter(|packet| packet.is_droppable) {
        assert_eq!(is_reference(packet), Some(false), "{}: {packet:?}", path.display());
    }
    let command = &mut Command::new(ffprobe);
    command.args(["-v", "error", "-skip_frame", "noref", "-select_streams", "V:0", "-show_frames"]).arg(path);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut theirs: Vec<i64> = text.lines().filter_map(|line| line.strip_prefix("pts=")?.parse().ok()).collect();
    let ours = video.packets.iter().filter(|packet| packet.is_shown && is_reference(packet) == Some(true));
    let mut ours: Vec<i64> = ours.map(|packet| packet.pts).collect();
    ours.sort_unstable();
    theirs.retain(|pts| *pts >= 0);
    assert_eq!(ours, theirs, "{}", path.display());
}

fn check_track(name: &str, video: &Video, theirs: &HashMap<String, String>) {
    let track = &video.track;
    let ours = track.codec.to_string();
    let codec = match &*theirs["codec_name"] {
        "h264" => "H.264",
        "hevc" => "HEVC",
        "av1" => "AV1",
        "vp8" => "VP8",
        "vp9" => "VP9",
        "mpeg4" => "MPEG-4",
        "mjpeg" => "MJPEG",
        "mpeg2video" => "MPEG-2",
        _ => &ours,
    };
    assert_eq!(ours, codec, "{name}");
    let [numerator, denominator] = track.time_base;
    let [width, height] = track.pixel_aspect;
    let color = |code: u16, names: &[(u16, &str)]| {
        names.iter().find(|(known, _)| *known == code).map_or("unknown", |(_, name)| name).to_owned()
    };
    let range = match track.color.is_full_range {
        None => "unknown",
        Some(false) => "tv",
        Some(true) => "pc",
    };
    for (key, ours) in [
        ("width", track.width.to_string()),
        ("height", track.height.to_string()),
        ("time_base", format!("{numerator}/{denominator}")),
        ("sample_aspect_ratio", format!("{width}:{height}")),
        ("extradata_size", track.extra_data.len().to_string()),
        ("rotation", [0, -90, -180, 90][track.rotation.degrees() as usize / 90].to_string()),
        ("color_primaries", color(track.color.primaries, &[(1, "bt709"), (9, "bt2020")])),
        ("color_transfer", color(track.color.transfer, &[(1, "bt709"), (16, "smpte2084")])),
        ("color_space", color(track.color.matrix, &[(1, "bt709"), (9, "bt2020nc")])),
        ("color_range", range.to_owned()),
    ] {
        let Some(theirs) = theirs.get(key) else { continue };
        // What is said in packets alone is of the decoder.
        let is_open = matches!(&*ours, "unknown" | "0" | "1:1");
        assert!(ours == *theirs || is_open || theirs == "N/A", "{name}: {key} is {ours}, and {theirs} for ffprobe");
    }
}

/// Returns what `ffprobe` shows of the pictures, by names.
fn lines(ffprobe: &Path, path: &Path, what: &str) -> Vec<HashMap<String, String>> {
    let command = &mut Command::new(ffprobe);
    command
        .args(["-v", "error", "-select_streams", "V:0", "-show_data_hash", "crc32", "-of", "compact=p=0", what])
        .arg(path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}");
    let pairs = |line: &str| {
        line.split('|')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.rsplit(':').next().unwrap_or(key).to_owned(), value.to_owned()))
            .collect()
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter(|line| line.contains('=')).map(pairs).collect()
}
