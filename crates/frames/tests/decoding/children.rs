//! How children are started, shared, replaced and ended.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{Barrier, Mutex},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use spdl_frames::{
    FrameChildCommand, FrameDecodeError, FrameDecoders, FrameRequest, FrameSettings, PacketBytes, frame_child_with,
};
use spdl_media::VideoCodec;
use tempfile::TempDir;

use super::{decoders, decoders_with, exit, videos};
use videos::TestVideo;

const H264: &str = "-c:v libx264 -preset veryfast -bf 3 -g 20 -pix_fmt yuv420p";

/// Returns the processes that this thread has started.
fn children() -> BTreeSet<u32> {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Waits until something has happened.
fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether a process has ended, whether it was waited for or not.
fn has_ended(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    // Its threads end one by one.
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    let is_zombie = || status.lines().any(|line| line.starts_with("State:") && line.contains('Z'));
    status.is_empty() || threads <= 1 && is_zombie()
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    wait_until("a killed process lives", || has_ended(pid));
}

/// Makes a video of H.264 pictures.
fn video(test: &str, folder: &TempDir, pictures: &str, encoded: &str) -> Option<(TestVideo, FrameDecoders)> {
    let (ffmpeg, decoders) = (videos::ffmpeg(test)?, decoders(test)?);
    Some((TestVideo::make(&ffmpeg, folder, "video.mkv", &format!("-f lavfi -i {pictures} {encoded}")), decoders))
}

#[test]
fn children_are_started_when_they_are_needed_and_end_with_their_pool() {
    let folder = TempDir::new().unwrap();
    let made = video("children end", &folder, "testsrc2=size=64x48:duration=1", H264);
    let Some((video, _)) = made else { return };
    let before = children();
    let decoders = decoders_with("child", |_| ());
    assert_eq!(children(), before);
    for _ in 0..3 {
        video.check(&[4], &video.decode(&decoders, &[4]).unwrap());
    }
    let child: Vec<u32> = children().difference(&before).copied().collect();
    assert_eq!(child.len(), 1, "{child:?}");
    // One that was killed while it was idle is replaced, and no video suffers.
    kill(child[0]);
    video.check(&[5], &video.decode(&decoders, &[5]).unwrap());
    let next: Vec<u32> = children().difference(&before).copied().collect();
    assert!(next.len() == 1 && next != child, "{next:?} after {child:?}");
    drop(decoders);
    assert_eq!(children(), before);
}

#[test]
fn threads_share_children_and_get_their_own_frames() {
    let folder = TempDir::new().unwrap();
    let made = video("threads share children", &folder, "testsrc2=size=64x48:duration=1", H264);
    let Some((video, decoders)) = made else { return };
    let (started, most) = (Barrier::new(5), Mutex::new(0));
    std::thread::scope(|scope| {
        for thread in 0..5 {
            let (video, decoders, started, most) = (&video, &decoders, &started, &most);
            scope.spawn(move || {
                started.wait();
                for nth in 0..10 {
                    let frames = [thread, thread + nth + 1];
                    video.check(&frames, &video.decode(decoders, &frames).unwrap());
                    let mut most = most.lock().unwrap();
                    *most = usize::max(*most, children().len());
                }
            });
        }
    });
    assert!(*most.lock().unwrap() <= 2, "{most:?} children of a thread");
}

#[test]
fn requests_that_do_not_fit_into_memory_at_once_go_in_parts() {
    let folder = TempDir::new().unwrap();
    let test = "large requests";
    // Packets of 5 MB, and frames of 14 MB.
    let noise = "nullsrc=size=640x480:duration=2,geq=random(1)*255:128:128";
    let Some((video, decoders)) = video(test, &folder, noise, "-c:v mjpeg -q:v 3 -pix_fmt yuvj420p") else { return };
    let packets: usize = video.packet_bytes().iter().map(Vec::len).sum();
    assert!(packets > 3 << 20 && video.raw.len() > 12 << 20, "{packets} bytes of {}", video.raw.len());
    let all: Vec<u64> = (0..video.times.len() as u64).collect();
    video.check(&all, &video.decode(&decoders, &all).unwrap());
    // More frames than a message has.
    let ffmpeg = videos::ffmpeg(test).unwrap();
    let small =
        TestVideo::make(&ffmpeg, &folder, "small.mkv", &format!("-f lavfi -i testsrc2=size=32x32:duration=24 {H264}"));
    let all: Vec<u64> = (0..small.times.len() as u64).collect();
    assert!(all.len() > 512);
    small.check(&all, &small.decode(&decoders, &all).unwrap());
}

#[test]
fn an_idle_child_keeps_little_memory() {
    let folder = TempDir::new().unwrap();
    let encoded = "-c:v mjpeg -q:v 9 -pix_fmt yuvj420p";
    let made = video("large frames", &folder, "testsrc2=size=4096x2304:rate=2:duration=1", encoded);
    let Some((video, decoders)) = made else { return };
    // Other tests have at most 8 MiB mapped at a time.
    let largest = || {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let shared = maps.lines().filter(|line| line.contains("memfd:spdl-frames"));
        let bytes = shared.filter_map(|line| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
        });
        bytes.max().unwrap()
    };
    for _ in 0..2 {
        video.check(&[0, 1], &video.decode(&decoders, &[0, 1]).unwrap());
        assert!(largest() <= 8 << 20, "{} bytes", largest());
    }
}

#[test]
fn one_that_takes_too_long_or_too_much_is_ended() {
    let folder = TempDir::new().unwrap();
    let made = video("limits", &folder, "testsrc2=size=64x48:duration=1", H264);
    let Some((video, decoders)) = made else { return };
    let before = children();
    let slow = decoders_with("child", |settings| {
        (settings.base_timeout, settings.packet_timeout) = (Duration::from_nanos(1), Duration::ZERO);
    });
    let error = video.decode(&slow, &[20]).unwrap_err();
    assert!(matches!(error, FrameDecodeError::Slow { .. }), "{error:?}");
    assert!(error.is_of_video() && children() == before, "{error}");
    // Frames that are larger than allowed.
    let packets = video.packet_bytes();
    let packets = [PacketBytes { pts: video.times[0], bytes: &packets[0], begins_anew: true }];
    let (codec, extra_data) = (&video.video.track.codec, &*video.video.track.extra_data);
    let request = FrameRequest { codec, extra_data, packets: &packets, wanted: &video.times[..1], max_pixels: 3071 };
    let error = decoders.decode(&request, &mut |_, _| panic!("a frame")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot be decoded: a frame of 64x48 pixels is larger than the 3071 that are allowed"
    );
    let request = FrameRequest { max_pixels: 3072, ..request };
    decoders.decode(&request, &mut |_, _| ()).unwrap();
    // A frame whose packet is not there.
    let request = FrameRequest { wanted: &video.times[..2], ..request };
    let error = decoders.decode(&request, &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, FrameDecodeError::Missing { pts } if pts == video.times[1]), "{error:?}");
    let request = FrameRequest { codec: &VideoCodec::Other("cvid".to_owned()), ..request };
    let error = decoders.decode(&request, &mut |_, _| ()).unwrap_err().to_string();
    assert!(error.starts_with("libavcodec") && error.ends_with("has no decoder for cvid"), "{error}");
}

#[test]
fn without_a_library_one_line_says_how_to_get_it() {
    let folder = TempDir::new().unwrap();
    let missing = decoders_with("child", |settings| settings.library_folder = Some(folder.path().to_owned()));
    let error = missing.check().unwrap_err();
    assert!(matches!(error, FrameDecodeError::Library { .. }) && !error.is_of_video(), "{error:?}");
    let error = error.to_string();
    let named = format!("`{}` has no file libavcodec.so.59 to .63; set SPDL_LIBAV=", folder.path().display());
    for what in [&*named, "apt install", "pip install av"] {
        assert!(error.contains(what) && !error.contains('\n'), "{error}");
    }
    // One that is not what its name says.
    fs::write(folder.path().join("libavcodec.so.61"), "no library").unwrap();
    let error = missing.check().unwrap_err().to_string();
    assert!(error.contains("libavcodec.so.61` cannot be loaded"), "{error}");
}

#[test]
fn a_program_that_is_no_child_is_named() {
    let decoders = |program: &str| {
        let command = FrameChildCommand { program: program.into(), arguments: Vec::new() };
        FrameDecoders::new(command, FrameSettings::new(1, Vec::new()))
    };
    let error = decoders("/nonexistent/program").check().unwrap_err().to_string();
    assert!(error.starts_with("cannot start `/nonexistent/program`"), "{error}");
    let error = decoders("/bin/true").check().unwrap_err().to_string();
    assert!(error.starts_with("`/bin/true` cannot decode videos: it ended with exit status: 0"), "{error}");
}

#[test]
#[ignore = "runs in a process of its own"]
fn decodes_and_counts_descriptors() {
    let folder = TempDir::new().unwrap();
    let Some((video, _)) = video("descriptors", &folder, "testsrc2=size=64x48:duration=1", H264) else { return };
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for _ in 0..5 {
        let decoders = decoders_with("child", |_| ());
        video.decode(&decoders, &[7]).unwrap();
        children().into_iter().for_each(kill);
        video.decode(&decoders, &[7, 9]).unwrap();
    }
    assert_eq!(descriptors(), before);
}

#[test]
fn no_descriptors_are_left() {
    let arguments = ["children::decodes_and_counts_descriptors", "--exact", "--ignored", "--nocapture"];
    let output = Command::new(std::env::current_exe().unwrap()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "runs in children of other tests"]
fn child_that_never_answers() {
    exit(frame_child_with(|| {
        loop {
            std::hint::spin_loop();
        }
    }));
}

#[test]
#[ignore = "runs in a process of its own"]
fn waits_for_a_child() {
    let decoders = decoders_with("children::child_that_never_answers", |_| ());
    std::thread::scope(|scope| {
        scope.spawn(|| decoders.check());
        let mut found = String::new();
        let own = std::process::id();
        wait_until("no child", || {
            let tasks = fs::read_dir(format!("/proc/{own}/task")).unwrap().flatten();
            found = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok()).collect();
            !found.is_empty()
        });
        println!("\nchild {found}");
    });
}

#[test]
fn a_child_that_works_ends_with_its_parent() {
    if decoders("a child ends with its parent").is_none() {
        return;
    }
    let arguments = ["children::waits_for_a_child", "--exact", "--ignored", "--nocapture"];
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut parent = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let pid =
        lines.map_while(Result::ok).find_map(|line| line.strip_prefix("child ")?.trim().parse::<u32>().ok()).unwrap();
    let state = || {
        let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Seccomp:").map(|mode| mode.trim().to_owned()))
    };
    // It has given up its rights, and computes.
    wait_until("no filter", || state().is_none_or(|mode| mode == "2"));
    assert_eq!(state().as_deref(), Some("2"));
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_until("the child lives", || has_ended(pid));
}
