//! Videos that `ffmpeg` makes, decoded by children of this program.

mod children;
mod exact;
mod hostile;
mod locked;
#[path = "../../../media/tests/programs/mod.rs"]
mod programs;
mod videos;

use std::process::ExitCode;

use spdl_frames::{FrameChildCommand, FrameDecoders, FrameSettings, frame_child_main};

/// Returns decoders whose children run a test of this program.
fn decoders_with(test: &str, change: impl FnOnce(&mut FrameSettings)) -> FrameDecoders {
    let program = std::env::current_exe().unwrap();
    let arguments = [test, "--exact", "--ignored", "--nocapture"].map(Into::into).into();
    let mut settings = FrameSettings::new(2, Vec::new());
    change(&mut settings);
    FrameDecoders::new(FrameChildCommand { program, arguments }, settings)
}

/// Returns decoders, or `None` where there is no library, which is reported.
fn decoders(test: &str) -> Option<FrameDecoders> {
    let decoders = decoders_with("child", |_| ());
    match decoders.check() {
        Ok(library) => {
            eprintln!("{library}");
            Some(decoders)
        }
        Err(error @ spdl_frames::FrameDecodeError::Library { .. }) => {
            programs::skipped(test, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn exit(code: ExitCode) {
    if code == ExitCode::SUCCESS {
        std::process::exit(0);
    }
}

/// The program of the children.
#[test]
#[ignore = "runs in children of other tests"]
fn child() {
    exit(frame_child_main());
}
