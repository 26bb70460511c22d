//! `pack --force` that does not complete, because the disk is full or the process is killed.

use std::{fs, os::unix::process::ExitStatusExt, process::Command};

use spdl_testkit::{
    processes::{ctl, run},
    root,
    stored::contents,
};

use super::loose_files::write;

/// The largest file that a command may write, in units of 512 bytes.
const LIMIT: u64 = 2048;

/// Runs `command` under a shell that limits the size of files and runs `before` first.
fn limited(before: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{before} ulimit -f {LIMIT}; exec \"$@\"")).arg("sh");
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

#[test]
fn pack_with_force_that_is_killed_or_finds_the_disk_full_leaves_the_old_dataset_and_the_next_one_cleans_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let photograph = fs::read(root().join("assets/photos/rocket.jpg")).expect("a file");
    for number in 0..3 {
        write(path(&format!("old/a/{number}.jpg")), &photograph);
        write(path(&format!("new/a/{number}.jpg")), &photograph[..1000 + number]);
    }
    write(path("new/z/large.bmp"), vec![7; 512 * LIMIT as usize + 1]);
    let pack = |from: &str, to: &str, force: &[&str]| {
        let mut command = ctl();
        command.arg("pack").args([path(from), path(to)]).args(["--no-shuffle", "--records-per-shard", "1", "--json"]);
        command.args(["--name", "set"]).args(force);
        command
    };
    run(&mut pack("old", "set", &[])).json();
    let expected = run(&mut pack("new", "expected", &[])).json();
    let before = contents(&path("set"));

    // With SIGXFSZ ignored, a write fails with EFBIG, as on a full disk.
    let failed = run(&mut limited("trap '' XFSZ;", &pack("new", "set", &["--force"])));
    failed.error(&["shard-000003.tar", "File too large"]);
    assert_eq!(contents(&path("set")), before, "nothing of it is left");

    // Without that, the kernel kills the process, which then cannot clean up.
    let killed = run(&mut limited("", &pack("new", "set", &["--force"])));
    assert_eq!(killed.status.signal(), Some(rustix::process::Signal::XFSZ.as_raw()), "{}", killed.stderr);
    assert!(contents(&path("set")).len() > before.len(), "it wrote nothing");
    assert_eq!(contents(&path("set"))[".spdl/manifest.spdl"], before[".spdl/manifest.spdl"]);
    run(ctl().arg("verify").arg(path("set")).arg("--json")).json();
    let again = run(&mut pack("new", "set", &["--force"])).json();
    assert_eq!(again["fingerprint"], expected["fingerprint"]);
    assert_eq!(contents(&path("set")), contents(&path("expected")));

    // A folder with the rest of an incomplete first `pack` is not a dataset; the error explains it.
    run(&mut limited("", &pack("new", "first", &[])));
    run(&mut pack("old", "first", &[])).error(&["first` was begun and is not finished", "--force"]);
    run(&mut pack("old", "first", &["--force"])).json();
    assert_eq!(contents(&path("first")), before);
}
