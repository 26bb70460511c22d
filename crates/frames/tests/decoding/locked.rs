//! What a child can do once it has given up its rights: nothing but to compute and to answer.

use std::{fs, io::Write, net::TcpStream, os::unix::net::UnixStream, process::Command};

use rustix::process::{Pid, test_kill_process};
use spdl_frames::{FrameDecodeError, frame_child_with};

use super::{decoders, decoders_with, exit};

/// Declares programs of children that try something, which ends them.
macro_rules! forbidden {
    ($($name:ident: $try:expr;)*) => {
        $(
            #[test]
            #[ignore = "runs in children of other tests"]
            fn $name() {
                exit(frame_child_with(|| {
                    let _ = $try;
                }));
            }
        )*

        #[test]
        fn a_child_can_do_nothing_else() {
            if decoders("what a child can do").is_none() {
                return;
            }
            for name in [$(stringify!($name)),*] {
                let decoders = decoders_with(&format!("locked::{name}"), |_| ());
                match decoders.check() {
                    Err(FrameDecodeError::Child { problem, .. }) if problem.contains("SIGSYS") => {}
                    result => panic!("{name}: {result:?}"),
                }
            }
        }
    };
}

forbidden! {
    opens_a_file: fs::File::open("/etc/passwd");
    writes_a_file: fs::write("/tmp/spdl-frames-child", "x");
    lists_a_folder: fs::read_dir("/");
    prints: std::io::stderr().write_all(b"x");
    makes_a_pair_of_sockets: UnixStream::pair();
    connects: TcpStream::connect("127.0.0.1:1");
    starts_a_program: Command::new("/bin/true").status();
    starts_a_thread: std::thread::Builder::new().spawn(|| ());
    signals_a_process: test_kill_process(Pid::from_raw(std::process::id().cast_signed()).unwrap());
    sets_its_limits: rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: Some(1), maximum: Some(1) }
    );
    makes_memory_to_share: rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::empty());
    leaves_its_folder: std::env::set_current_dir("/");
}

#[test]
#[ignore = "runs in children of other tests"]
fn takes_memory() {
    exit(frame_child_with(|| {
        // 2 million pixels are the least that a child is made for.
        assert!(Vec::<u8>::new().try_reserve(200 << 20).is_ok());
        assert!(Vec::<u8>::new().try_reserve(600 << 20).is_err());
    }));
}

#[test]
fn a_child_has_a_limit_of_memory() {
    if decoders("the memory of a child").is_some() {
        decoders_with("locked::takes_memory", |_| ()).check().unwrap();
    }
}
