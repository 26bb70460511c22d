//! `pack --part` and `merge` in real processes, of which some are killed.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;
use spdl_testkit::{
    processes::{ctl, run, signal, write_pictures},
    s3::S3Server,
    stored::contents,
};

const PARTS: u32 = 8;

fn part(pack: &Command, number: u32) -> Command {
    let mut command = ctl();
    command.args(pack.get_args().skip(1)).args(["--part", &format!("{number}/{PARTS}")]);
    command
}

/// Returns the names of temporary files of shards, of which each is being written.
fn half_written(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.contains(".tar#")).collect()
}

/// Waits until a process that was sent SIGSTOP has stopped, or has ended.
fn stopped(child: &mut Child) -> bool {
    loop {
        if child.try_wait().expect("a child").is_some() {
            return false;
        }
        let state = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        if state.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')) {
            return true;
        }
    }
}

/// Runs a part and kills it while it writes a shard.
fn kill_in_the_middle(command: &mut Command, folder: &Path) {
    let before = half_written(folder);
    let is_writing = || half_written(folder).iter().any(|name| !before.contains(name));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    loop {
        if is_writing() {
            signal(child.id(), Signal::STOP);
            if stopped(&mut child) && is_writing() {
                child.kill().expect("it can be killed");
                child.wait().expect("it has ended");
                return;
            }
            signal(child.id(), Signal::CONT);
        }
        assert!(child.try_wait().expect("a child").is_none(), "it ended before it could be killed: {command:?}");
    }
}

#[test]
fn a_pack_in_eight_parts_of_which_two_are_killed_and_run_again_is_the_pack_in_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    write_pictures(&path("source"), 240);
    for (name, options) in [
        ("plain", &["--shard-size", "500KiB"][..]),
        ("ready", &["--records-per-shard", "5", "--crop-ready"]),
        ("scalable", &["--records-per-shard", "5", "--scalable"]),
    ] {
        let pack = |to: &str| {
            let mut command = ctl();
            command.arg("pack").args([path("source"), path(to)]).args(["--name", "set", "--json"]).args(options);
            command
        };
        let (one, parts) = (format!("{name}-one"), format!("{name}-parts"));
        let mut report = run(&mut pack(&one)).json();
        assert!(report["shards"].as_u64() >= Some(5 * u64::from(PARTS)), "{report}");

        let set = path(&parts);
        for number in [2, 5] {
            kill_in_the_middle(&mut part(&pack(&parts), number), &set);
        }
        assert_eq!(half_written(&set).len(), 2);
        run(ctl().arg("merge").arg(&set)).error(&["has no part of a pack"]);
        // The others, all at once.
        let others: Vec<_> = (0..PARTS).filter(|number| ![2, 5].contains(number)).collect();
        let running = others.iter().map(|number| {
            let mut command = part(&pack(&parts), *number);
            command.stdout(Stdio::null()).spawn().expect("the program starts")
        });
        for mut child in running.collect::<Vec<_>>() {
            assert!(child.wait().expect("a child").success());
        }
        run(ctl().arg("merge").arg(&set)).error(&["lacks parts 2, 5 of 8", "--part 2/8"]);
        run(part(&pack(&parts), 2).arg("--seed=1")).error(&["holds another pack", "seed 0", "seed 1"]);
        for number in [2, 5] {
            let again = run(&mut part(&pack(&parts), number)).json();
            let done = run(&mut part(&pack(&parts), number)).json();
            assert_eq!((&again["shards"], &done["kept_shards"]), (&done["shards"], &done["shards"]), "{done}");
        }
        let mut merged = run(ctl().arg("merge").arg(&set).arg("--json")).json();
        assert_eq!(contents(&set), contents(&path(&one)), "{name}");
        for report in [&mut report, &mut merged] {
            report["url"].take();
        }
        assert_eq!(merged, report);
    }
}

#[test]
fn pictures_are_stored_in_one_way() {
    let mut both = ctl();
    both.args(["pack", "nowhere", "to", "--scalable", "--crop-ready"]);
    run(&mut both).error(&["--scalable", "cannot be used with", "--crop-ready"]);
}

#[test]
fn wrong_parts_are_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let part = |part: &str, option: &str| {
        let mut command = ctl();
        run(command
            .args(["pack", "nowhere"])
            .arg(folder.path())
            .args(["--part", part])
            .args([option].iter().filter(|o| !o.is_empty())))
    };
    part("8/8", "").error(&["8/8", "there is no part 8 of 8: they are 0 to 7"]);
    part("8", "").error(&["give I/N, such as 0/8 for the first of eight parts"]);
    part("0/8", "--force").error(&["--part", "--force"]);
}

#[tokio::test]
async fn a_source_in_a_bucket_gives_the_shards_of_the_same_source_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    write_pictures(&path("source"), 40);
    let class = fs::read_dir(path("source")).expect("a folder").next().expect("a class").expect("an entry").path();
    for (name, content) in [("beside.txt", "no picture has its stem"), (".hidden.jpg", "hidden"), ("empty.jpg", "")] {
        fs::write(class.join(name), content).expect("a file");
    }
    let picture = contents(&class).into_iter().find(|(name, _)| name.ends_with(".jpg")).expect("a picture");
    fs::write(class.join("Über uns (1).jpg"), picture.1).expect("a file");
    // It is copied to its shard in pieces, and the first bytes of the empty file beside it are asked for.
    fs::write(class.join("empty.bin"), vec![7; 9 << 20]).expect("a file");
    fs::write(path("source/README"), "in no class").expect("a file");
    let server = S3Server::start();
    let url = server.upload(&path("source"), "in").await;
    let local = path("source").display().to_string();
    let some_fields = ["--fields", "jpg,txt=caption"];
    for options in [&["--crop-ready"][..], &["--scalable"], &["--no-shuffle", "--annotations-beside"], &some_fields] {
        let in_parts = |from: &str, to: &str| {
            let mut pack = ctl();
            pack.arg("pack").args([from, &*path(to).display().to_string()]).args(["--name", "set", "--json"]);
            pack.args(options).args(["--records-per-shard", "4"]);
            for number in 0..PARTS {
                run(part(&pack, number).envs(server.environment())).json();
            }
            let mut report = run(ctl().arg("merge").arg(path(to)).arg("--json")).json();
            for key in ["url", "notes", "left_out"] {
                report[key].take();
            }
            report
        };
        if options.contains(&"--annotations-beside") {
            fs::write(class.join("empty.xml"), ANNOTATION).expect("a file");
            server.upload(&path("source"), "in").await;
        }
        let (stored, on_disk) = (format!("stored{}", options.len()), format!("disk{}", options[0]));
        assert_eq!(in_parts(&url, &stored), in_parts(&local, &on_disk), "{options:?}");
        assert_eq!(contents(&path(&stored)), contents(&path(&on_disk)), "{options:?}");
        fs::remove_dir_all(path(&stored)).expect("a folder");
    }

    let pack = |from: &str, more: &[&str]| {
        run(ctl().arg("pack").arg(from).arg(path("none")).args(more).envs(server.environment()))
    };
    pack(&server.url("nowhere"), &[]).error(&["nowhere", "a folder per class with pictures in it is expected"]);
    pack(&server.url("in/README"), &[]).error(&["in/README", "a folder per class with pictures in it is expected"]);
    pack(&server.web_url("in"), &[]).error(&["is on a web server, which cannot list its files"]);
    pack(&url, &["--classes", "zebra"]).error(&["is the folder of class", "not among the given ones"]);
    pack("s4://bucket/in", &[]).error(&["s4"]);
    pack(&url, &["--annotations", "s4://bucket/boxes"]).error(&["s4"]);
    assert!(!path("none").exists());
    server.clear().await;
}

#[tokio::test]
async fn annotations_in_a_bucket_are_those_of_the_same_folder_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    write_pictures(&path("source"), 12);
    let classes = fs::read_dir(path("source")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let pictures = classes.flat_map(|class| {
        let name = class.file_name().expect("a name").to_string_lossy().into_owned();
        contents(&class).into_keys().map(move |picture| format!("{name}/{picture}"))
    });
    let mut pictures: Vec<String> = pictures.collect();
    pictures.sort_unstable();
    for (number, name) in (0..).zip(&pictures) {
        // One has none, and some lie as the pictures do.
        let name = name.replace(".jpg", ".xml");
        let flat = name.rsplit('/').next().filter(|_| number % 2 == 0).unwrap_or(&name);
        let to = path("boxes").join(flat);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        if number > 0 {
            fs::write(to, ANNOTATION).expect("a file");
        }
    }
    // Some programs put such an object where a folder is.
    let class = fs::read_dir(path("source")).expect("a folder").next().expect("a class").expect("an entry").path();
    fs::write(class.join("folder"), "").expect("a file");
    let server = S3Server::start();
    let (source, boxes) = (server.upload(&path("source"), "in").await, server.upload(&path("boxes"), "boxes").await);
    let text = |name: &str| path(name).display().to_string();
    let pack = |source: &str, boxes: &str, to: &str| {
        let mut pack = ctl();
        pack.args(["pack", source, &text(to), "--name", "set", "--annotations", boxes, "--json"]);
        run(pack.envs(server.environment())).json()
    };
    let on_disk = pack(&text("source"), &text("boxes"), "disk");
    assert_eq!((&on_disk["records"], &on_disk["pictures_without_annotation"]), (&11.into(), &1.into()), "{on_disk}");
    assert_eq!(on_disk["left_out"].as_array().map(Vec::len), Some(1), "{on_disk}");
    // As `find . -name '*.jpg'` prints the pictures.
    let list: String = pictures.iter().map(|name| format!("./{name}\t{}\n", name.split('/').next().unwrap())).collect();
    fs::write(path("source/list.txt"), list).expect("a file");
    let sources = [(source, 0), (text("source/list.txt"), 0), (text("source"), 2)];
    for (number, (from, left_out)) in sources.iter().enumerate() {
        let to = format!("stored{number}");
        let mut stored = pack(from, &boxes, &to);
        assert_eq!(stored["left_out"].as_array().map(Vec::len), Some(*left_out), "{stored}");
        for key in ["url", "left_out", "skipped_files", "notes"] {
            stored[key] = on_disk[key].clone();
        }
        assert_eq!(stored, on_disk);
        assert_eq!(contents(&path(&to)), contents(&path("disk")));
    }
    server.clear().await;
}

const ANNOTATION: &str = "<annotation><object><name>dog</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax>\
                          <ymax>9</ymax></bndbox></object></annotation>";
