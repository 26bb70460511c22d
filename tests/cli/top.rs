//! The frames of `top`, as text and in a terminal.

use spdl_testkit::{
    processes::{Cluster, ServerProcess, TestDataset, program, run},
    terminal::Terminal,
};

/// What `top` writes when it gives the terminal back.
const LEAVE: &str = "\x1b[?1049l";

/// A cluster that serves a rank, which pulls for ever.
struct Busy {
    cluster: Cluster,
    _pull: ServerProcess,
    _dataset: TestDataset,
}

fn busy() -> Busy {
    let (dataset, cluster) = Cluster::with_job(1, [24, 8], "a-job", "epochs = 1000000");
    let pull = ServerProcess::spawn(&mut cluster.pull("a-job", 0, 1, "node-0", &["--from", "0:0"]));
    cluster.wait_for("a verdict", |status| status["sessions"][0]["verdict"].is_string());
    Busy { cluster, _pull: pull, _dataset: dataset }
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
    terminal.wait_for("the time that is left", |frame| {
        let words = frame.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        has(frame, " of 24 000 000 samples; epoch ") && words.contains(" left, ") && words.contains(" s of this epoch")
    });
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
    let (code, written) = terminal.finish();
    assert_eq!(code, Some(130), "{written:?}");
    assert!(terminal.is_given_back(), "{written:?}");
    assert_eq!(written.matches(LEAVE).count(), 1, "{written:?}");
    let is_modes =
        |line: &&str| line.contains(':') && line.bytes().all(|byte| byte == b':' || byte.is_ascii_hexdigit());
    let modes: Vec<&str> = written.lines().map(str::trim).filter(is_modes).collect();
    assert!(modes.len() == 2 && modes[0] == modes[1], "{modes:?}");
    let (_, after) = written.split_once(LEAVE).expect("it was counted");
    assert!(after.contains("code=130") && !after.contains("error"), "{after:?}");
}

#[test]
fn a_terminal_says_what_to_start_and_sums_up_what_has_ended() {
    let dataset = TestDataset::of_pictures(50, 25);
    let cluster = Cluster::start(1);
    let (address, certs) = (cluster.address.clone(), cluster.certs("admin"));
    let mut terminal =
        Terminal::run(&format!("{:?} top --interval 0.2 --coord {address} --certs {certs:?}", program()));
    terminal.wait_for("the first step", |frame| {
        has(frame, "nothing runs here yet:") && has(frame, "  1. Start a worker on each node of GPUs (done)")
    });
    cluster.submit(&dataset.job("short", "epochs = 2"));
    let frame = terminal.wait_for("the second step", |frame| has(frame, "how to make batches of it (done)"));
    assert!(has(&frame, "spdl-ctl pull --job short"), "{frame:#?}");
    // Each epoch has two batches of 24 samples, and leaves the other two samples out.
    cluster.pull_all("short", 1, &["node-0"], &[]);
    let frame = terminal.wait_for("the summary", |frame| has(frame, "the run is finished: 96 samples in "));
    assert!(!has(&frame, "nothing runs here yet"), "{frame:#?}");
    assert!(has(&frame, "spdl-ctl audit --run short"), "{frame:#?}");
    let sums = cluster.status()["sessions"][0]["progress"].clone();
    assert_eq!((&sums["done_samples"], &sums["all_samples"], &sums["done"]), (&96.into(), &96.into(), &1.0.into()));
    terminal.press("q");
    assert_eq!(terminal.finish().0, Some(0));
}

#[test]
fn q_ends_it_without_an_error_and_without_colours_if_they_are_not_wanted() {
    let busy = busy();
    let (address, certs) = (busy.cluster.address.clone(), busy.cluster.certs("admin"));
    let mut terminal = Terminal::run(&format!("NO_COLOR=1 {:?} top --coord {address} --certs {certs:?}", program()));
    terminal.wait_for("a frame", |frame| has(frame, "0  alive"));
    assert!(!terminal.has_colours(), "{:?}", terminal.written());
    assert!(terminal.has_bold());
    terminal.press("q");
    let (code, written) = terminal.finish();
    assert!(code == Some(0) && written.contains(LEAVE), "{code:?} {written:?}");
}
