//! Measures decoding clips of video files in a child: the CPU time of the child, that of this process, which hands packets over and copies
//! the planes of each frame once, and that of `ffmpeg`, which is started for each clip. Clips begin at frames that are spread over the file.
//!
//! Run `cargo bench -p spdl-frames --bench decode -- FILE...`.

use std::{error::Error, fs, path::Path, process::Command, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use spdl_frames::{FrameChildCommand, FrameDecoders, FrameRequest, FrameSettings, PacketBytes, frame_child_main};
use spdl_media::{Video, VideoBlocks, VideoReader, VideoTable, encode_video_table, is_reference};

/// Clips of each file and length, and the numbers of their frames.
const CLIPS: u64 = 40;
const LENGTHS: [u64; 2] = [1, 16];

fn main() -> Result<std::process::ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if arguments == ["child"] {
        return Ok(frame_child_main());
    }
    if arguments.is_empty() {
        eprintln!("which video files? `cargo bench -p spdl-frames --bench decode -- FILE...`");
    }
    let command = FrameChildCommand { program: std::env::current_exe()?, arguments: vec!["child".into()] };
    let decoders = FrameDecoders::new(command, FrameSettings::new(1, Vec::new()));
    println!("{}; milliseconds of CPU time for a clip", decoders.check()?);
    for path in arguments {
        measure(&decoders, Path::new(&path))?;
    }
    Ok(std::process::ExitCode::SUCCESS)
}

fn measure(decoders: &FrameDecoders, path: &Path) -> Result<(), Box<dyn Error>> {
    let file = fs::read(path)?;
    let (video, blocks) = read(&file)?;
    let track = &video.track;
    let mut times: Vec<i64> = video.packets.iter().filter(|packet| packet.is_shown).map(|packet| packet.pts).collect();
    times.sort_unstable();
    for length in LENGTHS.into_iter().filter(|length| *length <= times.len() as u64) {
        let starts = (0..CLIPS).map(|clip| clip * 7919 % (times.len() as u64 - length + 1));
        let (mut child, mut own, mut theirs) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let mut packets = 0;
        let mut pixels = Vec::new();
        for start in starts {
            let frames: Vec<u64> = (start..start + length).collect();
            let needed = blocks.needed(&frames).ok_or("no key frame")?;
            let packet = |nth: &usize| {
                let packet = &video.packets[*nth];
                let start = usize::try_from(packet.offset).expect("a file in memory");
                PacketBytes { pts: packet.pts, bytes: &file[start..start + packet.bytes as usize], begins_anew: false }
            };
            let taken: Vec<PacketBytes<'_>> = needed.iter().map(packet).collect();
            packets += taken.len();
            let from = usize::try_from(start)?;
            let request = FrameRequest {
                codec: &track.codec,
                extra_data: &track.extra_data,
                packets: &taken,
                wanted: &times[from..from + frames.len()],
                max_pixels: u64::from(track.width) * u64::from(track.height),
            };
            let before = (children_time()?, cpu_time());
            decoders.decode(&request, &mut |_, planes| {
                pixels.clear();
                planes.planes.iter().for_each(|plane| pixels.extend_from_slice(plane.bytes));
            })?;
            child += children_time()? - before.0;
            own += cpu_time() - before.1;
            theirs += ffmpeg(path, times[from], track.time_base, length)?;
        }
        println!(
            "{}: {} frames of {:.1} packets: child {:.3}, here {:.3}, ffmpeg {:.1}",
            path.display(),
            length,
            ratio(packets),
            millis(child),
            millis(own),
            millis(theirs),
        );
    }
    Ok(())
}

/// Reads a video, and a table of its packets.
fn read(file: &[u8]) -> Result<(Video, VideoBlocks), Box<dyn Error>> {
    let place = |byte: u64| usize::try_from(byte).expect("a file in memory");
    let mut reader = VideoReader::new(file.len() as u64);
    let mut video = loop {
        let wanted = reader.wants();
        if let Some(video) = reader.read(&file[place(wanted.start)..place(wanted.end)])? {
            break video;
        }
    };
    for packet in &mut video.packets {
        let bytes = &file[place(packet.offset)..][..packet.bytes as usize];
        packet.is_droppable |= is_reference(&video.track.codec, &video.track.extra_data, bytes) == Some(false);
    }
    let bytes = encode_video_table(&video.packets)?;
    let table = VideoTable::read(&bytes)?;
    let at = table.place(0..table.blocks());
    let blocks = table.read_blocks(0..table.blocks(), &bytes[place(at.start)..place(at.end)])?;
    Ok((video, blocks))
}

/// Decodes a clip with `ffmpeg`, and returns its CPU time; none where there is no such program.
fn ffmpeg(path: &Path, pts: i64, [numerator, denominator]: [u32; 2], frames: u64) -> Result<Duration, Box<dyn Error>> {
    let seconds = i32::try_from(pts).map(f64::from)? * f64::from(numerator) / f64::from(denominator);
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-threads", "1", "-ss", &seconds.to_string(), "-i"]).arg(path);
    command.args(["-map", "0:v:0", "-frames:v", &frames.to_string(), "-f", "null", "-"]);
    let before = ended_time()?;
    let Ok(mut child) = command.spawn() else { return Ok(Duration::ZERO) };
    child.wait()?;
    Ok(ended_time()? - before)
}

/// Returns the CPU time of this thread so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Returns the CPU time of the children that run.
fn children_time() -> Result<Duration, Box<dyn Error>> {
    let pids = fs::read_to_string("/proc/thread-self/children")?;
    let mut time = Duration::ZERO;
    for pid in pids.split_whitespace() {
        let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
        time += Duration::from_nanos(text.split(' ').next().unwrap_or_default().parse()?);
    }
    Ok(time)
}

/// Returns the CPU time of the children that have ended, in steps of 10 ms.
fn ended_time() -> Result<Duration, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let behind = text.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = behind.split_whitespace().skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(10 * ticks))
}

/// Returns a time for one clip, in milliseconds.
fn millis(time: Duration) -> f64 {
    1000.0 * time.as_secs_f64() / CLIPS as f64
}

fn ratio(count: usize) -> f64 {
    count as f64 / CLIPS as f64
}
