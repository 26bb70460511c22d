//! Codes videos anew while they are packed, with a key frame in every few frames: by the program `ffmpeg`, where the user asks for it. Their
//! pixels change.

use std::{
    fs::File,
    io::{Read, Seek, Write},
    os::fd::AsRawFd,
    path::PathBuf,
    process::{Command, Stdio},
};

use spdl_store::TemporaryFolder;

use super::{
    DatasetError,
    source::{FilePlace, is_video, wrong},
};

/// The program that codes.
const PROGRAM: &str = "ffmpeg";
/// The highest distance between key frames.
const MAX_GOP: u32 = 600;
/// Bytes of a file of a store that are read at once.
const PIECE_BYTES: u64 = 8 << 20;
/// The most bytes that are kept of what the program says.
const MAX_SAID_BYTES: u64 = 4096;

/// Codes videos anew.
#[derive(Debug)]
pub(super) struct VideoCoder {
    gop: u32,
    temporary: TemporaryFolder,
}

/// A video that was coded anew, in a file without a name.
pub(super) struct CodedVideo {
    file: File,
    pub(super) bytes: u64,
}

impl CodedVideo {
    /// Returns where it can be read as long as it lives.
    pub(super) fn place(&self) -> FilePlace {
        FilePlace::Disk(PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())))
    }
}

impl VideoCoder {
    /// Checks that videos can have a key frame in every `gop` frames.
    pub(super) fn check(gop: u32) -> Result<(), DatasetError> {
        let problem = |problem: String| Err(DatasetError::Option { option: "gop", problem });
        if !(1..=MAX_GOP).contains(&gop) {
            return problem(format!("is {gop}, not in 1..={MAX_GOP}"));
        }
        let run = Command::new(PROGRAM).arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).status();
        match run {
            Ok(status) if status.success() => Ok(()),
            _ => problem(format!(
                "needs the program `{PROGRAM}`, which does not run: install it, as by `apt install ffmpeg`"
            )),
        }
    }

    pub(super) fn new(gop: u32) -> Self {
        Self { gop, temporary: TemporaryFolder::of_system() }
    }

    /// Returns whether a file is a video by its name.
    pub(super) fn takes(place: &FilePlace) -> bool {
        form_of(place).is_some()
    }

    /// Codes a video of so many bytes; or returns why the program cannot.
    pub(super) fn code(&self, place: &FilePlace, bytes: u64) -> Result<Result<CodedVideo, String>, DatasetError> {
        let Some((format, coder)) = form_of(place) else { return Ok(Err("is no video".to_owned())) };
        let source = self.source(place, bytes)?;
        let coded = self.temporary.create()?;
        let output = coded.try_clone().map_err(|error| self.temporary.error(error))?;
        let mut said = self.temporary.create()?;
        let errors = said.try_clone().map_err(|error| self.temporary.error(error))?;
        // The program opens both files anew by these names, and can read and write anywhere in them.
        let run = Command::new(PROGRAM)
            .args(["-v", "error", "-nostdin", "-threads", "1", "-i", "/dev/stdin"])
            .args(["-map", "0:v:0", "-map", "0:a?", "-c:a", "copy", "-fps_mode", "passthrough", "-threads", "1"])
            .args(["-g", &self.gop.to_string()])
            .args(coder)
            // Without this, Matroska has random numbers in its head.
            .args(["-fflags", "+bitexact", "-f", format, "-y", "/dev/stdout"])
            .stdin(source)
            .stdout(output)
            .stderr(errors)
            .status();
        let status = run.map_err(|error| wrong(PROGRAM.as_ref(), &format!("does not start: {error}")))?;
        let measured = coded.metadata().map_err(|error| self.temporary.error(error))?.len();
        if status.success() && measured > 0 {
            return Ok(Ok(CodedVideo { file: coded, bytes: measured }));
        }
        let mut text = Vec::new();
        let read = said.rewind().and_then(|()| said.take(MAX_SAID_BYTES).read_to_end(&mut text));
        read.map_err(|error| self.temporary.error(error))?;
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        Ok(Err(format!("`{PROGRAM}` fails: {}", last.trim().escape_debug())))
    }

    /// Opens a file, which is copied first if it is in a store.
    fn source(&self, place: &FilePlace, bytes: u64) -> Result<File, DatasetError> {
        if let FilePlace::Disk(path) = place {
            return File::open(path).map_err(|error| wrong(path, &format!("cannot be read: {error}")));
        }
        let mut copy = self.temporary.create()?;
        let mut at = 0;
        while at < bytes {
            let end = bytes.min(at + PIECE_BYTES);
            let path = place.to_string();
            let piece = place.read_range(at..end)?.ok_or_else(|| wrong(path.as_ref(), "is no longer there"))?;
            copy.write_all(&piece).map_err(|error| self.temporary.error(error))?;
            at = end;
        }
        copy.rewind().map_err(|error| self.temporary.error(error))?;
        Ok(copy)
    }
}

/// Returns the format that a video keeps, and how its pictures are coded: without those that refer to later ones, which a clip would take, too.
fn form_of(place: &FilePlace) -> Option<(&'static str, &'static [&'static str])> {
    const H264: &[&str] = &["-c:v", "libx264", "-preset", "medium", "-crf", "18", "-bf", "0"];
    const VP9: &[&str] = &[
        "-c:v",
        "libvpx-vp9",
        "-crf",
        "20",
        "-b:v",
        "0",
        "-deadline",
        "good",
        "-cpu-used",
        "4",
        "-lag-in-frames",
        "0",
    ];
    let path = place.to_string();
    let (_, suffix) = path.rsplit_once('.')?;
    match &suffix.to_ascii_lowercase()[..] {
        "mp4" | "m4v" => Some(("mp4", H264)),
        "mov" => Some(("mov", H264)),
        "mkv" => Some(("matroska", H264)),
        "webm" => Some(("webm", VP9)),
        other => is_video(other).then_some(("mp4", H264)),
    }
}
