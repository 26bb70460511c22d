//! What `top` shows: the newest status, the waits over time, and where the user is in it. A frame is a pure function of
//! them.

use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use ratatui::{layout::Size, text::Line};
use spdl_control::coordinator::{SessionStatus, Status};

use super::{
    sections::{self, ShownRanks},
    style::{self, Glyphs, span},
    waits::WaitHistory,
};
use crate::ctl::{
    report,
    status::{first_steps, is_live},
};

/// Lines that a page of scrolling keeps on the screen.
const KEPT_LINES: usize = 2;

/// An answer of the coordinator, or why there is none.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) status: Result<Status, String>,
    pub(super) at: Instant,
}

/// The state of the view.
#[derive(Debug)]
pub(super) struct TopView {
    glyphs: Glyphs,
    status: Option<(Status, Instant)>,
    /// Why the newest request got no answer.
    problem: Option<String>,
    waits: WaitHistory,
    /// The session that the user has chosen.
    session: Option<u64>,
    rows: ShownRanks,
    scroll: usize,
    /// Lines of the body in the last frame, and how many of them were seen.
    body: (usize, usize),
    shows_help: bool,
}

impl TopView {
    pub(super) fn new(session: Option<u64>, glyphs: Glyphs) -> Self {
        Self {
            glyphs,
            status: None,
            problem: None,
            waits: WaitHistory::default(),
            session,
            rows: ShownRanks::Most,
            scroll: 0,
            body: (0, 0),
            shows_help: false,
        }
    }

    /// Takes in a report. Without an answer, the last status stays.
    pub(super) fn take(&mut self, Report { status, at }: Report) {
        match status {
            Ok(status) => {
                self.waits.note(&status);
                self.status = Some((status, at));
                self.problem = None;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    /// Carries out a key.
    pub(super) fn press(&mut self, key: KeyCode) {
        let page = self.body.1.saturating_sub(KEPT_LINES).max(1);
        match key {
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            KeyCode::Esc => self.shows_help = false,
            KeyCode::Char('a') => {
                self.rows = if self.rows == ShownRanks::All { ShownRanks::Most } else { ShownRanks::All }
            }
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('n') => self.choose(1),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('p') => self.choose(-1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::PageUp | KeyCode::Char('b') => self.scroll = self.scroll.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll += page,
            _ => {}
        }
        self.scroll = self.scroll.min(self.body.0.saturating_sub(self.body.1));
    }

    /// Returns whether there is a session of that number.
    pub(super) fn has_session(&self, session: u64) -> bool {
        self.sessions().iter().any(|known| known.session == session)
    }

    /// Chooses the session that is `step` further in the list.
    fn choose(&mut self, step: isize) {
        let sessions = self.sessions();
        let Some(at) = self.shown().and_then(|shown| sessions.iter().position(|one| one.session == shown.session))
        else {
            return;
        };
        let next = (at as isize + step).rem_euclid(sessions.len() as isize) as usize;
        self.session = Some(sessions[next].session);
        self.scroll = 0;
    }

    /// Returns the sessions that can be shown: those that run, or the newest if none does; and the chosen one.
    fn sessions(&self) -> Vec<&SessionStatus> {
        let Some((status, _)) = &self.status else { return Vec::new() };
        let runs = status.sessions.iter().any(is_live);
        let newest = status.sessions.iter().map(|session| session.session).max();
        let is_shown = |session: &&SessionStatus| {
            is_live(session) || Some(session.session) == self.session || !runs && Some(session.session) == newest
        };
        status.sessions.iter().filter(is_shown).collect()
    }

    fn shown(&self) -> Option<&SessionStatus> {
        let sessions = self.sessions();
        let chosen = sessions.iter().find(|session| Some(session.session) == self.session).copied();
        chosen.or_else(|| sessions.into_iter().rev().find(|session| is_live(session))).or_else(|| self.sessions().pop())
    }

    /// Returns a frame as high as the terminal; a line may be too long for it.
    pub(super) fn frame(&mut self, size: Size, now: Instant) -> Vec<Line<'static>> {
        let (width, height) = (usize::from(size.width), usize::from(size.height));
        let mut lines = self.head(width, now);
        let room = height.saturating_sub(lines.len() + 1);
        let body = if self.shows_help { help(&self.glyphs, width) } else { self.body(width, self.rows, room) };
        self.body = (body.len(), room);
        self.scroll = self.scroll.min(body.len().saturating_sub(room));
        lines.extend(body.into_iter().skip(self.scroll).take(room));
        lines.resize(height.saturating_sub(1), Line::default());
        lines.push(self.foot());
        lines
    }

    /// Returns a frame with everything, whatever the height of the terminal.
    pub(super) fn whole(&self, width: usize) -> Vec<Line<'static>> {
        let mut lines = self.head(width, Instant::now());
        lines.extend(self.body(width, ShownRanks::All, 0));
        lines
    }

    /// Returns the first lines: the state of the cluster, and since when the coordinator has not answered.
    fn head(&self, width: usize, now: Instant) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        match &self.status {
            None if self.problem.is_none() => lines.push(span(style::FAINT, "asking the coordinator").into()),
            None => {}
            Some((status, _)) => lines.push(span(style::STRONG, sections::cluster(status)).into()),
        }
        if let Some(problem) = &self.problem {
            let since = self.status.as_ref().map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(*at));
            let since = match &self.status {
                Some(_) => format!(" for {}; what follows is from then", report::duration_s(since.as_secs())),
                None => String::new(),
            };
            let text = format!("the coordinator does not answer{since}: {problem}");
            lines.extend(sections::paragraph(style::ALARM, &text, width));
        }
        lines
    }

    fn body(&self, width: usize, rows: ShownRanks, room: usize) -> Vec<Line<'static>> {
        let Some((status, _)) = &self.status else { return Vec::new() };
        let session = self.shown();
        let mut lines: Vec<Line<'static>> = sections::problems(status, width);
        match session {
            None => lines.extend(first_steps(status).into_iter().map(|step| Line::from(span(style::PLAIN, step)))),
            Some(session) => lines.extend(sections::session(status, session, width)),
        }
        let workers = sections::workers(status, session, &self.glyphs, width);
        if let Some(session) = session {
            let rest = room.saturating_sub(lines.len() + workers.len() + 2);
            let most = match rows {
                ShownRanks::All => usize::MAX,
                // At least half of the room that is left, because then not all workers fit anyway.
                ShownRanks::Most => rest.max(room.saturating_sub(lines.len()) / 2),
            };
            lines.push(Line::default());
            lines.extend(sections::ranks(status, session, &self.waits, &self.glyphs, width, most));
        }
        lines.push(Line::default());
        lines.extend(workers);
        lines
    }

    fn foot(&self) -> Line<'static> {
        let mut sessions = String::new();
        let all = self.sessions();
        if let Some(shown) = self.shown().filter(|_| all.len() > 1) {
            let at = all.iter().position(|one| one.session == shown.session).unwrap_or(0);
            sessions = format!("   session {} of {}", at + 1, all.len());
        }
        let (lines, room) = self.body;
        let more = if lines > room {
            format!("   lines to {} of {lines}", (self.scroll + room).min(lines))
        } else {
            String::new()
        };
        let text = format!(" q quit   ? help   tab session   arrows scroll   a all ranks{sessions}{more} ");
        span(style::REVERSE, text).into()
    }
}

/// Width of the keys in the help.
const KEY_WIDTH: usize = 22;

/// Explains the keys and the drawings.
fn help(glyphs: &Glyphs, width: usize) -> Vec<Line<'static>> {
    let [busy, throttled, output, input] = glyphs.bar;
    let rows = [
        ("q, Ctrl-C", "quits".to_owned()),
        ("tab, left, right", "shows the next or the previous session".to_owned()),
        ("arrows, page up, down", "scrolls".to_owned()),
        ("a", "shows all ranks, or those that wait most".to_owned()),
        ("?, Esc", "closes this help".to_owned()),
        ("", String::new()),
        ("WAITING", "part of its time that a trainer waited for a batch, in the last seconds and over time".to_owned()),
        ("LIMIT", "what limits the rank; the sentence above says what would help".to_owned()),
        (
            "bars",
            format!(
                "time of a stage's units in the last ten seconds: {busy} busy, {throttled} throttled by a budget, \
                 {output} waiting for output, {input} waiting for input"
            ),
        ),
    ];
    let row = |(key, text): (&str, String)| {
        let lines = sections::wrapped(&text, width.saturating_sub(KEY_WIDTH));
        let keys = std::iter::once(key).chain(std::iter::repeat(""));
        let line = |(key, text)| {
            Line::from_iter([span(style::STRONG, format!("{key:<KEY_WIDTH$}")), span(style::PLAIN, text)])
        };
        keys.zip(lines).map(line).collect::<Vec<_>>()
    };
    rows.into_iter().flat_map(row).collect()
}

#[cfg(test)]
mod tests;
