//! The terminal of `top`: uses the alternate screen, without echo, and restores the terminal when it is dropped.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::ink::{Ink, Line};

/// Another screen, no cursor, and no wrapping of lines that are too long.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// The value of a special character that switches it off: `_POSIX_VDISABLE` of Linux.
const DISABLED: u8 = 0;

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TerminalSize {
    pub(super) width: usize,
    pub(super) height: usize,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { width: 80, height: 24 }
    }
}

/// Returns the size of the terminal on standard output; `None` if there is no terminal, or its size is unknown.
pub(super) fn size() -> Option<TerminalSize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    let size = TerminalSize { width: size.ws_col.into(), height: size.ws_row.into() };
    (size.width > 0 && size.height > 0).then_some(size)
}

/// A terminal that shows frames.
pub(super) struct Terminal {
    /// The modes of standard input before; `None` if it is no terminal.
    modes: Option<Termios>,
    has_colours: bool,
    /// The frame that is shown.
    shown: Vec<Line>,
}

impl Terminal {
    /// Takes over the terminal.
    pub(super) fn enter(has_colours: bool) -> io::Result<Self> {
        let modes = io::stdin().is_terminal().then(|| tcgetattr(io::stdin())).transpose()?;
        // From here on, dropping it restores the terminal.
        let terminal = Self { modes, has_colours, shown: Vec::new() };
        if let Some(modes) = &terminal.modes {
            let mut modes = modes.clone();
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // Ctrl-C still ends the process in good order. Suspending is switched off, because a suspended process
            // would leave its screen behind.
            modes.special_codes[SpecialCodeIndex::VSUSP] = DISABLED;
            modes.special_codes[SpecialCodeIndex::VQUIT] = DISABLED;
            tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        }
        write(ENTER)?;
        Ok(terminal)
    }

    /// Shows a frame, unless it is shown already.
    pub(super) fn draw(&mut self, frame: &[Line]) -> io::Result<()> {
        if frame == self.shown {
            return Ok(());
        }
        // Synchronised output: a terminal that supports it shows the whole frame at once.
        let mut text = "\x1b[?2026h\x1b[H".to_owned();
        for (index, line) in frame.iter().enumerate() {
            // Clears each line before it is written: afterwards, the cursor may stand on its last character.
            text.push_str(if index == 0 { "\x1b[2K" } else { "\r\n\x1b[2K" });
            for span in line {
                let code = code(span.ink, self.has_colours);
                text.push_str(&format!("\x1b[{code}m{}\x1b[0m", span.text));
            }
        }
        text.push_str("\x1b[?2026l");
        write(&text)?;
        self.shown = frame.to_vec();
        Ok(())
    }

    /// Makes `draw` draw the next frame even if it is the same, because the terminal may have changed.
    pub(super) fn forget(&mut self) {
        self.shown.clear();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = write(LEAVE);
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, modes);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Returns the code of an ink among the 16 colours that all terminals have.
const fn code(ink: Ink, has_colours: bool) -> &'static str {
    match (ink, has_colours) {
        (Ink::Strong, _) | (Ink::Alarm, false) => "1",
        (Ink::Reverse, _) => "7",
        (Ink::Faint, true) => "90",
        (Ink::Alarm, true) => "1;31",
        (Ink::Busy, true) => "32",
        (Ink::Throttled, true) => "33",
        (Ink::Output, true) => "36",
        (Ink::Plain, _) | (_, false) => "0",
    }
}
