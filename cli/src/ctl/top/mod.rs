//! `spdl-ctl top`: a live view of the cluster in a terminal.

mod sections;
mod style;
mod view;
mod waits;

use std::{
    env,
    io::{self, IsTerminal},
    process::ExitCode,
    time::{Duration, Instant},
};

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyModifiers};
use futures::StreamExt;
use ratatui::{
    style::{Color, Style},
    text::Text,
};
use spdl_control::messages::ToCoordinator;
use spdl_wire::coordinators::CoordinatorClient;
use tokio::sync::mpsc;

use super::{CtlError, CtlResult, coordinator::Connection, interrupt, output::outln, status};
use style::Glyphs;
use view::{Report, TopView};

/// How long the coordinator may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the view updates the time since the last answer.
const TICK: Duration = Duration::from_millis(500);
/// The width of a frame without a terminal, in characters.
const PLAIN_WIDTH: usize = 100;

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    connection: Connection,
    /// Seconds between two requests to the coordinator. When raised, the view is less up to date.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Prints one frame as text and ends.
    #[arg(long)]
    once: bool,
    /// The session to show first; the newest that runs when not given.
    #[arg(long)]
    session: Option<u64>,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if (0.1..=3_600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("`{text}` is not between 0.1 and 3600 seconds"))
    }
}

/// Runs `top`.
pub(crate) fn run(args: &TopArgs) -> CtlResult {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let glyphs = Glyphs::of_locale(&locale.unwrap_or_default().to_string_lossy());
    if args.once {
        return once(args, glyphs);
    }
    if !io::stdout().is_terminal() || set("TERM").is_none_or(|term| term == "dumb") {
        return Err(CtlError::NoTerminal);
    }
    let has_colours = set("NO_COLOR").is_none();
    interrupt::run(|interrupt| live(args, TopView::new(args.session, glyphs), has_colours, interrupt))
}

/// Prints one frame, as wide as the terminal and as high as it needs to be.
fn once(args: &TopArgs, glyphs: Glyphs) -> CtlResult {
    let (_, status) = super::runtime()?.block_on(status::ask(&args.connection))?;
    let mut view = TopView::new(args.session, glyphs);
    view.take(Report { status: Ok(status), at: Instant::now() });
    if let Some(session) = args.session.filter(|session| !view.has_session(*session)) {
        return Err(CtlError::NoSession { session });
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let width = size.map(|size| size.ws_col.into()).filter(|width| *width > 0).unwrap_or(PLAIN_WIDTH);
    for line in view.whole(width) {
        let line: String = line.to_string().chars().take(width).collect();
        outln!("{}", line.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Gives the terminal back when it is dropped.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = ratatui::try_restore();
    }
}

/// Shows frames until the user quits.
async fn live(args: &TopArgs, mut view: TopView, has_colours: bool, mut interrupt: interrupt::Interrupt) -> CtlResult {
    let client = args.connection.open()?;
    let _restore = Restore;
    let mut terminal = ratatui::try_init().map_err(CtlError::Output)?;
    let mut events = EventStream::new();
    let (sender, mut reports) = mpsc::channel(1);
    let asking = tokio::spawn(ask_again(client, Duration::from_secs_f64(args.interval), sender));
    let mut tick = tokio::time::interval(TICK);
    let code = loop {
        let draw = |frame: &mut ratatui::Frame<'_>| {
            let area = frame.area();
            frame.render_widget(Text::from(view.frame(area.as_size(), Instant::now())), area);
            if !has_colours {
                frame.buffer_mut().set_style(area, Style::new().fg(Color::Reset));
            }
        };
        terminal.draw(draw).map_err(CtlError::Output)?;
        tokio::select! {
            Some(report) = reports.recv() => view.take(report),
            // A frame has the size that the terminal has then, so an event of a new size needs no more than a frame.
            Some(event) = events.next() => match event.map_err(CtlError::Output)? {
                Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers: KeyModifiers::CONTROL, .. }) => break 130,
                Event::Key(KeyEvent { code: KeyCode::Char('q' | 'Q'), .. }) => break 0,
                Event::Key(key) => view.press(key.code),
                _ => {}
            },
            _ = tick.tick() => {}
            () = interrupt.asked() => break interrupt::exit_code().unwrap_or_default(),
        }
    };
    asking.abort();
    Ok(ExitCode::from(code))
}

/// Requests the status from the coordinator repeatedly, until the receiver is gone.
async fn ask_again(mut client: CoordinatorClient, interval: Duration, reports: mpsc::Sender<Report>) {
    loop {
        let reply = client.ask(&ToCoordinator::Status, ANSWER_TIMEOUT).await;
        let status = reply.map_err(CtlError::from).and_then(|reply| Ok(status::read(reply)?.1));
        let report = Report { status: status.map_err(|error| error.to_string()), at: Instant::now() };
        if reports.send(report).await.is_err() {
            return;
        }
        tokio::time::sleep(interval).await;
    }
}
