//! The frames of `top`, as text and in a terminal.

use std::{
    io::{Read, Write},
    num::NonZero,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, limit, program, run};

/// What `top` writes when it gives the terminal back.
const LEAVE: &str = "\x1b[?1049l";

/// A cluster that serves a rank, which pulls for ever.
struct Busy {
    cluster: Cluster,
    _pull: ServerProcess,
    _dataset: TestDataset,
}

fn busy() -> Busy {
    let dataset = TestDataset::of_pictures(24, 8);
    let cluster = Cluster::start(1);
    cluster.submit(&dataset.job("a-job", "epochs = 1000000"));
    let pull = ServerProcess::spawn(&mut cluster.pull("a-job", 0, 1, "node-0", &["--from", "0:0"]));
    cluster.wait_for("a verdict", |status| status["sessions"][0]["verdict"].is_string());
    Busy { cluster, _pull: pull, _dataset: dataset }
}

/// A command on a terminal of its own, which `script` makes.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    output: Arc<Mutex<Output>>,
    reader: Option<JoinHandle<()>>,
}

/// What a command has written, and what a terminal shows of it.
struct Output {
    written: Vec<u8>,
    screen: vt100::Parser,
}

impl Terminal {
    /// Runs a command of the shell on a terminal of 80 columns and 24 rows.
    fn run(shell: &str) -> Self {
        // The shell outlives Ctrl-C, to show how it finds the terminal.
        let shell = format!("trap : INT; stty cols 80 rows 24; {shell}");
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &shell, "/dev/null"]);
        script.env("SHELL", "/bin/sh").env("TERM", "xterm").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("`script` of util-linux");
        let (keys, mut output) = (script.stdin.take().expect("a pipe"), script.stdout.take().expect("a pipe"));
        let kept = Output { written: Vec::new(), screen: vt100::Parser::default() };
        let kept = Arc::new(Mutex::new(kept));
        let shared = kept.clone();
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                let mut kept = kept.lock().expect("no panic");
                kept.written.extend_from_slice(&bytes[..length]);
                kept.screen.process(&bytes[..length]);
            }
        });
        Self { script, keys, output: shared, reader: Some(reader) }
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("no panic").written).into_owned()
    }

    /// Returns the rows that the terminal shows.
    fn frame(&self) -> Vec<String> {
        let output = self.output.lock().expect("no panic");
        let screen = output.screen.screen();
        screen.rows(0, screen.size().1.get()).collect()
    }

    /// Returns what the terminal shows in each place.
    fn cells(&self) -> Vec<vt100::Cell> {
        let output = self.output.lock().expect("no panic");
        let screen = output.screen.screen();
        let (rows, columns) = screen.size();
        let places = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
        places.filter_map(|(row, column)| screen.cell(row, column).cloned()).collect()
    }

    /// Gives the terminal another size, of which the kernel tells the programs on it.
    fn resize(&self, device: &str, columns: u16, rows: u16) {
        let number = |number| NonZero::new(number).expect("no terminal is so small");
        self.output.lock().expect("no panic").screen.screen_mut().set_size(number(rows), number(columns));
        let size = ["cols".to_owned(), columns.to_string(), "rows".to_owned(), rows.to_string()];
        let resize = run(Command::new("stty").args(["-F", device]).args(size));
        assert!(resize.status.success(), "{}", resize.stderr);
    }

    /// Waits for a frame of which `holds` is true.
    #[track_caller]
    fn wait_for(&self, what: &str, holds: impl Fn(&[String]) -> bool) -> Vec<String> {
        let started = Instant::now();
        loop {
            let frame = self.frame();
            if holds(&frame) {
                return frame;
            }
            assert!(started.elapsed() < limit(), "{what} did not come about: {frame:#?}\n{:?}", self.written());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).expect("the terminal reads");
    }

    /// Waits until the command has ended, and returns its exit code.
    fn finish(mut self) -> (Option<i32>, String) {
        let status = self.script.wait().expect("it can be waited for");
        self.reader.take().expect("it is joined once").join().expect("no panic");
        (status.code(), self.written())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn has(frame: &[String], text: &str) -> bool {
    frame.iter().any(|line| line.contains(text))
}

#[test]
fn one_frame_as_text_has_no_colours_and_what_the_status_has() {
    let busy = busy();
    let once = run(&mut busy.cluster.ctl("admin", ["top", "--once"]));
    assert!(once.status.success(), "{}", once.stderr);
    let text = once.stdout;
    for part in [
        "coordinator 0.1.0, up ",
        "session 1 of job `a-job`: running, 1 of 1 rank, at ",
        "worker node-0: ready, 1 rank",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    for start in ["  RANK  STATE", "     0  alive ", "  fetch ", "  decode ", "  hand-over "] {
        assert!(text.lines().any(|line| line.starts_with(start)), "no line begins with `{start}`:\n{text}");
    }
    assert!(!text.contains('\x1b') && text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let verdict = busy.cluster.status()["sessions"][0]["verdict"].as_str().expect("a verdict").to_owned();
    let limit = busy.cluster.status()["sessions"][0]["ranks"][0]["diagnosis"]["limit"].clone();
    assert!(!verdict.is_empty() && limit.is_string(), "{verdict} {limit}");
    run(&mut busy.cluster.ctl("admin", ["top", "--once", "--session", "7"])).error(&["there is no session 7"]);
    run(&mut busy.cluster.ctl("admin", ["top"])).error(&["no terminal", "top --once"]);
}

#[test]
fn a_terminal_shows_the_cluster_live_and_is_as_before_in_the_end() {
    let mut busy = busy();
    let (address, certs) = (busy.cluster.address.clone(), busy.cluster.certs("admin"));
    let top = format!("{:?} top --interval 0.2 --coord {address} --certs {certs:?}", program());
    let mut terminal =
        Terminal::run(&format!("stty -g; tty; {top}; code=$?; echo; echo code=$code; stty -g; exit $code"));
    let frame = terminal.wait_for("a frame", |frame| has(frame, "worker node-0: ready") && has(frame, "0  alive"));
    assert!(frame[23].starts_with(" q quit"), "{frame:#?}");
    let position = |frame: &[String]| frame.iter().find_map(|line| Some(line.split_once(", at ")?.1.to_owned()));
    let before = position(&frame).expect("a position");
    terminal.wait_for("progress", |frame| position(frame).is_some_and(|position| position != before));

    terminal.press("?");
    terminal.wait_for("help", |frame| has(frame, "shows the next or the previous session"));
    terminal.press("\x1b");
    terminal.wait_for("the ranks", |frame| has(frame, "0  alive"));

    let before = terminal.written();
    let device = before.lines().find(|line| line.starts_with("/dev/")).expect("the terminal's name").trim().to_owned();
    for (columns, rows) in [(60, 10), (120, 40)] {
        terminal.resize(&device, columns, rows);
        terminal.wait_for("a frame of the new size", |frame| {
            frame[0].starts_with("coordinator ") && frame[usize::from(rows) - 1].starts_with(" q quit")
        });
    }

    // A coordinator that is gone is said, and the view goes on once there is one again.
    busy.cluster.coordinator = None;
    let alone = terminal.wait_for("its end", |frame| has(frame, "the coordinator does not answer for "));
    assert!(has(&alone, "worker node-0"), "{alone:#?}");
    busy.cluster.start_coordinator();
    terminal.wait_for("the new one", |frame| has(frame, "worker node-0") && !has(frame, "does not answer"));

    terminal.press("\x03");
    let output = terminal.output.clone();
    let (code, written) = terminal.finish();
    assert_eq!(code, Some(130), "{written:?}");
    let output = output.lock().expect("no panic");
    let screen = output.screen.screen();
    assert!(!screen.alternate_screen() && !screen.hide_cursor(), "{written:?}");
    assert_eq!(written.matches(LEAVE).count(), 1, "{written:?}");
    let is_modes =
        |line: &&str| line.contains(':') && line.bytes().all(|byte| byte == b':' || byte.is_ascii_hexdigit());
    let modes: Vec<&str> = written.lines().map(str::trim).filter(is_modes).collect();
    assert!(modes.len() == 2 && modes[0] == modes[1], "{modes:?}");
    let (_, after) = written.split_once(LEAVE).expect("it was counted");
    assert!(after.contains("code=130") && !after.contains("error"), "{after:?}");
}

#[test]
fn q_ends_it_without_an_error_and_without_colours_if_they_are_not_wanted() {
    let busy = busy();
    let (address, certs) = (busy.cluster.address.clone(), busy.cluster.certs("admin"));
    let mut terminal = Terminal::run(&format!("NO_COLOR=1 {:?} top --coord {address} --certs {certs:?}", program()));
    terminal.wait_for("a frame", |frame| has(frame, "0  alive"));
    let cells = terminal.cells();
    assert!(cells.iter().all(|cell| cell.fgcolor() == vt100::Color::Default), "{:?}", terminal.written());
    assert!(cells.iter().any(vt100::Cell::bold));
    terminal.press("q");
    let (code, written) = terminal.finish();
    assert!(code == Some(0) && written.contains(LEAVE), "{code:?} {written:?}");
}
