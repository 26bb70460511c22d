//! A command on a terminal, and what that shows.

use std::{
    io::{Read, Write},
    num::NonZero,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::processes::{limit, run};

/// A command on a terminal of its own, which `script` makes.
pub struct Terminal {
    script: Child,
    keys: ChildStdin,
    output: Arc<Mutex<TerminalOutput>>,
    reader: Option<JoinHandle<()>>,
}

/// What a command has written, and what a terminal shows of it.
struct TerminalOutput {
    written: Vec<u8>,
    screen: vt100::Parser,
}

impl Terminal {
    /// Runs a command of the shell on a terminal of 80 columns and 24 rows.
    pub fn run(shell: &str) -> Self {
        // The shell outlives Ctrl-C, to show how it finds the terminal.
        let shell = format!("trap : INT; stty cols 80 rows 24; {shell}");
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &shell, "/dev/null"]);
        script.env("SHELL", "/bin/sh").env("TERM", "xterm").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("`script` of util-linux");
        let (keys, mut output) = (script.stdin.take().expect("a pipe"), script.stdout.take().expect("a pipe"));
        let kept = TerminalOutput { written: Vec::new(), screen: vt100::Parser::default() };
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

    /// Returns all that the command has written.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("no panic").written).into_owned()
    }

    /// Returns the rows that the terminal shows.
    pub fn frame(&self) -> Vec<String> {
        let output = self.output.lock().expect("no panic");
        let screen = output.screen.screen();
        screen.rows(0, screen.size().1.get()).collect()
    }

    /// Whether the terminal shows text in colours.
    #[must_use]
    pub fn has_colours(&self) -> bool {
        self.has(|cell| cell.fgcolor() != vt100::Color::Default)
    }

    /// Whether the terminal shows bold text.
    #[must_use]
    pub fn has_bold(&self) -> bool {
        self.has(vt100::Cell::bold)
    }

    /// Whether the terminal shows its first screen, and the cursor.
    #[must_use]
    pub fn is_given_back(&self) -> bool {
        let output = self.output.lock().expect("no panic");
        let screen = output.screen.screen();
        !screen.alternate_screen() && !screen.hide_cursor()
    }

    fn has(&self, looks: impl Fn(&vt100::Cell) -> bool) -> bool {
        let output = self.output.lock().expect("no panic");
        let screen = output.screen.screen();
        let (rows, columns) = screen.size();
        let mut places = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
        places.any(|(row, column)| screen.cell(row, column).is_some_and(&looks))
    }

    /// Gives the terminal another size, of which the kernel tells the programs on it.
    pub fn resize(&self, device: &str, columns: u16, rows: u16) {
        let number = |number| NonZero::new(number).expect("no terminal is so small");
        self.output.lock().expect("no panic").screen.screen_mut().set_size(number(rows), number(columns));
        let size = ["cols".to_owned(), columns.to_string(), "rows".to_owned(), rows.to_string()];
        let resize = run(Command::new("stty").args(["-F", device]).args(size));
        assert!(resize.status.success(), "{}", resize.stderr);
    }

    /// Waits for a frame of which `holds` is true.
    #[track_caller]
    pub fn wait_for(&self, what: &str, holds: impl Fn(&[String]) -> bool) -> Vec<String> {
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

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).expect("the terminal reads");
    }

    /// Waits until the command has ended, and returns its exit code.
    pub fn finish(&mut self) -> (Option<i32>, String) {
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
